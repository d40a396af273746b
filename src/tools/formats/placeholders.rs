//! Placeholders as each client writes them → ours. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::ground::env::{SECRET, is_variable_name};
use crate::ground::text::one_line;

/// The inputs that VS Code asks its user for, by id: the description, and the default unless it is a password.
#[derive(Default)]
pub(super) struct VscodeInputs(BTreeMap<String, Input>);

struct Input {
    description: String,
    default: Option<String>,
}

impl VscodeInputs {
    /// Reads the member `inputs` of a configuration.
    pub(super) fn of(document: &Map<String, Value>) -> Self {
        let inputs = document.get("inputs").and_then(Value::as_array);
        let read = |input: &Value| {
            let id = input["id"].as_str()?.to_owned();
            let description = one_line(input["description"].as_str().unwrap_or_default());
            let is_password = input["password"].as_bool() == Some(true);
            let default = input["default"].as_str().filter(|_| !is_password).map(str::to_owned);
            Some((id, Input { description, default }))
        };
        Self(inputs.into_iter().flatten().filter_map(read).collect())
    }
}

/// The filling of the placeholders of one server.
pub(super) struct PlaceholderFilling<'a> {
    pub(super) workspace: &'a Path,
    /// Whether the server is a program, whose parameters may have `${workspace}`.
    pub(super) is_program: bool,
    /// Whether `$NAME` refers to a variable.
    pub(super) has_bare_names: bool,
    pub(super) inputs: &'a VscodeInputs,
}

impl PlaceholderFilling<'_> {
    /// Translates the placeholders in all texts of an entry.
    ///
    /// # Errors
    /// One of them cannot be filled, as a text.
    pub(super) fn translate(
        &self,
        entry: &mut Map<String, Value>,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        entry.iter_mut().try_for_each(|(_, value)| self.translate_value(value, notes))
    }

    fn translate_value(&self, value: &mut Value, notes: &mut Vec<String>) -> Result<(), String> {
        match value {
            Value::String(text) => {
                if text.contains(&format!("${{{SECRET}")) {
                    // Else a file could send the secrets of another server to its own.
                    return Err(
                        "it has a placeholder of a secret that ipybox keeps for another server".to_owned()
                    );
                }
                if text.contains('$') {
                    *text = self.translate_text(text, notes);
                }
                Ok(())
            }
            Value::Array(values) => {
                values.iter_mut().try_for_each(|value| self.translate_value(value, notes))
            }
            Value::Object(values) => {
                values.iter_mut().try_for_each(|(_, value)| self.translate_value(value, notes))
            }
            _ => Ok(()),
        }
    }

    fn translate_text(&self, text: &str, notes: &mut Vec<String>) -> String {
        let mut translated = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('$') {
            translated.push_str(&rest[..start]);
            rest = &rest[start..];
            if let Some((inner, after)) = rest.strip_prefix("${").and_then(|rest| rest.split_once('}')) {
                match self.filled(inner, notes) {
                    Some(text) => translated.push_str(&text),
                    None => translated.push_str(&format!("${{{inner}}}")),
                }
                rest = after;
            } else {
                let name: &str = &rest[1..];
                let end = name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                let name = &name[..end.unwrap_or(name.len())];
                if self.has_bare_names && is_variable_name(name) {
                    translated.push_str(&format!("${{{name}}}"))
                } else {
                    translated.push_str(&rest[..=name.len()])
                }
                rest = &rest[1 + name.len()..];
            }
        }
        translated + rest
    }

    /// The value of `${inner}`; `None` if it stays as it is.
    fn filled(&self, inner: &str, notes: &mut Vec<String>) -> Option<String> {
        let (name, _) = inner.split_once(":-").unwrap_or((inner, ""));
        Some(match name {
            "workspaceFolder" | "workspaceRoot" | "cwd" | "CLAUDE_PROJECT_DIR" => self.workspace(),
            _ if name.starts_with("workspaceFolder:") => self.workspace(),
            "workspaceFolderBasename" => {
                self.workspace.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            "pathSeparator" | "/" => "/".to_owned(),
            _ => self.input(name.strip_prefix("input:")?, notes),
        })
    }

    fn workspace(&self) -> String {
        if self.is_program {
            "${workspace}".to_owned()
        } else {
            self.workspace.to_string_lossy().into_owned()
        }
    }

    /// The variable in place of an input that another client asks its user for.
    fn input(&self, id: &str, notes: &mut Vec<String>) -> String {
        let variable = variable_for(id);
        let input = self.inputs.0.get(id);
        let default = input.and_then(|input| input.default.as_deref()).filter(|text| !text.contains('}'));
        let meaning = input.map(|input| input.description.as_str()).filter(|text| !text.is_empty());
        let meaning = meaning.map(|text| format!(" ({text})")).unwrap_or_default();
        let note = format!(
            "`${{input:{}}}`{meaning} is the variable `{variable}` here: set it in ipybox's environment or in the \
             workspace's `.env`.",
            one_line(id)
        );
        if default.is_none() && !notes.contains(&note) {
            notes.push(note);
        }
        default.map_or_else(|| format!("${{{variable}}}"), |default| format!("${{{variable}:-{default}}}"))
    }
}

/// `github-token` → `GITHUB_TOKEN`.
fn variable_for(id: &str) -> String {
    let upper = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    let name: String = id.chars().map(upper).collect();
    if is_variable_name(&name) { name } else { format!("INPUT_{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn translate(text: &str, is_program: bool, has_bare_names: bool) -> (String, Vec<String>) {
        let inputs = json!({"inputs": [
            {"type": "promptString", "id": "github-token", "description": "GitHub PAT", "password": true},
            {"type": "pickString", "id": "region", "default": "eu", "options": ["eu", "us"]},
        ]});
        let inputs = VscodeInputs::of(inputs.as_object().unwrap());
        let filling = PlaceholderFilling {
            workspace: Path::new("/my/work"),
            is_program,
            has_bare_names,
            inputs: &inputs,
        };
        let mut entry = Map::from_iter([("x".to_owned(), json!([text]))]);
        let mut notes = Vec::new();
        filling.translate(&mut entry, &mut notes).unwrap();
        (entry["x"][0].as_str().unwrap().to_owned(), notes)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(translate(text, true, false).0, expected, "{text}");
    }

    #[test]
    fn what_is_the_same_here_stays() {
        for text in ["${TOKEN}", "${URL:-http://a/}", "$TOKEN", "$", "a$", "${", "$5", "${env:A}", "é$é"] {
            check(text, text);
        }
    }

    #[test]
    fn directories_of_editors_are_ours() {
        check("${workspaceFolder}/a", "${workspace}/a");
        check("${workspaceFolder:app}", "${workspace}");
        check("${CLAUDE_PROJECT_DIR:-.}/x", "${workspace}/x");
        check("${workspaceFolderBasename}${/}${pathSeparator}", "work//");
        assert_eq!(translate("${workspaceFolder}", false, false).0, "/my/work");
    }

    #[test]
    fn bare_names_are_variables_for_gemini() {
        let check = |text: &str, expected: &str| assert_eq!(translate(text, true, true).0, expected);
        check("Bearer $TOKEN.", "Bearer ${TOKEN}.");
        check("$A$B ${C} $5 $$", "${A}${B} ${C} $5 $$");
    }

    #[test]
    fn what_vs_code_asks_for_is_a_variable() {
        let (text, notes) = translate("Bearer ${input:github-token}", true, false);
        assert_eq!(text, "Bearer ${GITHUB_TOKEN}");
        assert!(notes[0].contains("`${input:github-token}` (GitHub PAT) is the variable `GITHUB_TOKEN`"));
        assert_eq!(translate("${input:region}", true, false), ("${REGION:-eu}".to_owned(), Vec::new()));
        assert_eq!(translate("${input:2}", true, false).0, "${INPUT_2}");
    }

    #[test]
    fn secrets_of_other_servers_are_refused() {
        let inputs = VscodeInputs::default();
        let filling = PlaceholderFilling {
            workspace: Path::new("/"),
            is_program: true,
            has_bare_names: false,
            inputs: &inputs,
        };
        let mut entry = Map::from_iter([("headers".to_owned(), json!({"X": "a${secret:github.TOKEN}"}))]);
        assert!(filling.translate(&mut entry, &mut Vec::new()).unwrap_err().contains("another server"));
    }
}
