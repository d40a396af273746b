//! `${NAME}`, `${NAME:-default}` and `${secret:NAME}` in texts, and the values for them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::kept::is_secret_name;
use super::{IPYBOX_DOTENV, Variables};

/// A variable of a `${NAME}` placeholder that is not set, or a secret that is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}{note}")]
pub struct MissingVariable {
    /// The variable's name.
    pub name: String,
    what: String,
    note: String,
}

fn secret_is_gone(name: &str) -> String {
    format!("the secret of `${{{name}}}` is not there")
}

impl Variables {
    /// From now on the values of all placeholders in `text` are redacted, even if they are never filled.
    pub(crate) fn expect_placeholders(&self, text: &str) {
        for placeholder in text.split("${").skip(1) {
            let placeholder = placeholder.split('}').next().unwrap_or_default();
            let name = placeholder.split_once(":-").map_or(placeholder, |(name, _)| name);
            if let Ok(Some(value)) = self.value_of(name) {
                self.redactor.note(name, &value);
            }
        }
    }

    /// Fills each `${NAME}` in `text`; `${NAME:-default}` becomes `default` if `NAME` is unset.
    ///
    /// # Errors
    /// [`MissingVariable`] for the first name that is not set and has no default.
    pub fn fill(&self, text: &str) -> Result<String, MissingVariable> {
        self.fill_noting(text, &mut BTreeMap::new())
    }

    /// As [`fill`](Self::fill), and notes in `used` the variables whose values are in the result now.
    pub(crate) fn fill_noting(
        &self,
        text: &str,
        used: &mut BTreeMap<String, String>,
    ) -> Result<String, MissingVariable> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let (before, after) = rest.split_at(start);
            filled.push_str(before);
            let Some((placeholder, tail)) = after[2..].split_once('}') else {
                rest = after;
                break;
            };
            let (name, default) = match placeholder.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (placeholder, None),
            };
            if is_variable_name(name) || is_secret_name(name) {
                match (self.value_of(name)?, default) {
                    (Some(value), _) => {
                        self.redactor.note(name, &value);
                        filled.push_str(&value);
                        used.insert(name.to_owned(), value.into_owned());
                    }
                    (None, Some(default)) => filled.push_str(default),
                    (None, None) => return Err(self.missing(name)),
                }
            } else {
                // Not a placeholder: `${}` or `${a b}` stay unchanged.
                filled.push_str(&after[..placeholder.len() + 3]);
            }
            rest = tail;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// The value of a variable or of a kept secret.
    fn value_of(&self, name: &str) -> Result<Option<Cow<'_, str>>, MissingVariable> {
        if !is_secret_name(name) {
            return Ok(self.get(name).map(Cow::Borrowed));
        }
        let failed = |error: std::io::Error| MissingVariable {
            name: name.to_owned(),
            what: secret_is_gone(name),
            note: format!(": it could not be looked up: {error}"),
        };
        Ok(self.secrets.get(name).map_err(failed)?.map(Cow::Owned))
    }

    fn missing(&self, name: &str) -> MissingVariable {
        let (what, note) = if is_secret_name(name) {
            let hint =
                "\nhint: `ipybox import` keeps it again, or register the server with another placeholder";
            (secret_is_gone(name), hint.to_owned())
        } else if self.refused.contains(name) {
            let what = format!(
                "the variable `{name}` is in the workspace's `.env`, which may not set it: without your word that file \
                 sets secrets only, such as `API_KEY`"
            );
            let hint = format!(
                "\nhint: set `{name}` in ipybox's environment (`env` in the client's entry), or name it there: \
                 `{IPYBOX_DOTENV}={name}`"
            );
            (what, hint)
        } else {
            let what = format!(
                "the variable `{name}` is set neither in the environment nor in the workspace's `.env`"
            );
            (what, self.problems.iter().map(|problem| format!("\nhint: {problem}")).collect())
        };
        MissingVariable { name: name.to_owned(), what, note }
    }
}

pub(crate) fn is_variable_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_secret_is_filled_and_redacted() {
        let mut variables = Variables::from_pairs([("secret", "plain")]);
        assert_eq!(variables.fill("${secret:a.KEY:-none} ${secret:-x}").unwrap(), "none plain");
        variables.find_secrets_by(|name| match name {
            "secret:a.KEY" => Ok(Some("hidden-value".to_owned())),
            "secret:broken" => Err(std::io::Error::other("locked")),
            _ => Ok(None),
        });
        assert_eq!(variables.fill("Bearer ${secret:a.KEY}").unwrap(), "Bearer hidden-value");
        assert_eq!(variables.redactor().redact("got hidden-value"), "got ${secret:a.KEY}");
        assert_eq!(variables.fill("${secret:a b} ${secret:}").unwrap(), "${secret:a b} ${secret:}");
        let gone = variables.fill("${secret:gone}").unwrap_err().to_string();
        assert!(gone.contains("`${secret:gone}` is not there"), "{gone}");
        assert!(variables.fill("${secret:broken}").unwrap_err().to_string().contains("locked"));
    }

    #[test]
    fn expected_secrets_are_redacted_before_they_are_filled() {
        let mut variables = Variables::default();
        variables.find_secrets_by(|_| Ok(Some("hidden-value".to_owned())));
        variables.expect_placeholders(r#"{"env": {"A": "${secret:a.KEY}"}}"#);
        assert_eq!(variables.redactor().redact("hidden-value"), "${secret:a.KEY}");
    }
}
