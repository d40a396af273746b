//! The text of a script: its header, its data as Python, and the part that is the same for all. Pure.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The part that is the same for all.
const SCRIPT: &str = include_str!("script.py");

/// The releases of the MCP SDK that it is written for.
const SDK: &str = "mcp>=1.26,<2";

/// The parts of a script.
pub(super) struct ActionScript {
    /// The description of the action, with its name, schema and module, as data.
    pub(super) action: Map<String, Value>,
    /// The parameters of its servers, by name.
    pub(super) servers: Map<String, Value>,
    /// Its modules: paths and texts.
    pub(super) files: Vec<(String, String)>,
    /// The version of Python.
    pub(super) python: String,
    /// The requirements of the action's own imports.
    pub(super) packages: Vec<String>,
    pub(super) pydantic: String,
}

impl ActionScript {
    /// The text. `about` is its docstring.
    pub(super) fn text(&self, about: &str) -> String {
        let mut packages = vec![SDK.to_owned(), format!("pydantic>={}", self.pydantic)];
        packages.extend(self.packages.iter().cloned());
        let packages: String =
            packages.iter().map(|package| format!("#     {},\n", quoted(package))).collect();
        let mut files = String::from("{\n");
        for (path, text) in &self.files {
            // Writing to a text never fails.
            write!(files, "    {}: (\n{}    ),\n", quoted(path), lines(text)).ok();
        }
        files.push('}');
        let (_, code) = SCRIPT.split_once("\"\"\"\n").unwrap_or(("", SCRIPT));
        let filled = [
            ("ACTION = {}", format!("ACTION = {}", python(&Value::Object(self.action.clone()), 0))),
            ("SERVERS = {}", format!("SERVERS = {}", python(&Value::Object(self.servers.clone()), 0))),
            ("FILES = {}", format!("FILES = {files}")),
        ];
        let mut text = format!(
            "#!/usr/bin/env -S uv run --script\n# /// script\n# requires-python = {}\n# dependencies = [\n{packages}# ]\n# ///\n{}\n",
            quoted(&format!(">={}", self.python)),
            quoted(about),
        );
        let mut rest = code;
        for (empty, full) in filled {
            // The script has each once; its own tests run it.
            let (before, after) = rest.split_once(&format!("{empty}\n")).unwrap_or((rest, ""));
            text.push_str(before);
            text.push_str(&full);
            text.push('\n');
            rest = after;
        }
        text + rest
    }
}

/// A text in lines, each a literal of Python.
fn lines(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| format!("        {}\n", quoted(line)));
    let lines: String = lines.collect();
    if lines.is_empty() { "        \"\"\n".to_owned() } else { lines }
}

/// A literal of Python for a text, in which readers see what is there.
fn quoted(text: &str) -> String {
    let mut literal = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => literal.extend(['\\', character]),
            '\n' => literal.push_str("\\n"),
            '\t' => literal.push_str("\\t"),
            // Invisible ones, and those that change the direction of the text, among them.
            _ if character.is_alphanumeric() || character.is_ascii_graphic() || character == ' ' => {
                literal.push(character)
            }
            _ => {
                // Writing to a text never fails.
                write!(literal, "\\U{:08x}", u32::from(character)).ok();
            }
        }
    }
    literal + "\""
}

/// A literal of Python for a value of JSON.
fn python(value: &Value, depth: usize) -> String {
    let indent = "    ".repeat(depth + 1);
    let inside = |parts: Vec<String>, [open, close]: [char; 2]| {
        if parts.is_empty() {
            return format!("{open}{close}");
        }
        let lines: String = parts.iter().map(|part| format!("{indent}{part},\n")).collect();
        format!("{open}\n{lines}{}{close}", "    ".repeat(depth))
    };
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => inside(items.iter().map(|item| python(item, depth + 1)).collect(), ['[', ']']),
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("{}: {}", quoted(name), python(value, depth + 1));
            inside(members.iter().map(member).collect(), ['{', '}'])
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_is_written_as_python() {
        let data = json!({"a": [1, 2.5, true, null], "b": {}, "c": "\"\\\n\u{202e}é"});
        let expected = "{\n    \"a\": [\n        1,\n        2.5,\n        True,\n        None,\n    ],\n    \"b\": {},\n    \
             \"c\": \"\\\"\\\\\\n\\U0000202eé\",\n}";
        assert_eq!(python(&data, 0), expected);
    }

    #[test]
    fn a_script_has_all_its_parts() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let script = ActionScript {
            action: object(json!({"name": "count"})),
            servers: object(json!({"hub": {"command": "hub"}})),
            files: vec![("a.py".to_owned(), "x = 1\n\"\"\"\n".to_owned())],
            python: "3.11".to_owned(),
            packages: vec!["pandas==2.2.3".to_owned()],
            pydantic: "2.11.1".to_owned(),
        };
        let text = script.text("Counts.\n\nAll of it.");
        let header = "#!/usr/bin/env -S uv run --script\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n\
             #     \"mcp>=1.26,<2\",\n#     \"pydantic>=2.11.1\",\n#     \"pandas==2.2.3\",\n# ]\n# ///\n\
             \"Counts.\\n\\nAll of it.\"\n\nimport argparse\n";
        assert!(text.starts_with(header), "{text}");
        for part in [
            "ACTION = {\n    \"name\"",
            "SERVERS = {\n    \"hub\"",
            "FILES = {\n    \"a.py\": (\n        \"x = 1\\n\"\n",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part}");
        }
        assert!(text.ends_with("    sys.exit(_main())\n"), "{text}");
    }
}
