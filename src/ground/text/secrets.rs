//! Values that must not be shown: each is replaced by its placeholder.
//!
//! A value is found verbatim, and as escaped in JSON and in URLs. Other forms (Base64, a hash, a part of it)
//! are not found.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::Value;

use super::plain;

/// Shorter values are not searched for: they would match everywhere and hide nothing.
const SHORTEST_SECRET: usize = 4;

/// Values that are settings, whatever variable has them: in code and output they are words like any other.
#[rustfmt::skip]
const ORDINARY_VALUES: [&str; 22] = [
    "auto", "debug", "default", "dev", "development", "disabled", "enabled", "error", "false", "info", "local", "localhost", "none",
    "null", "prod", "production", "staging", "test", "testing", "true", "warn", "warning",
];

/// Variables that every process has and that say where and for whom it runs. Their values are in half of all paths.
#[rustfmt::skip]
const ORDINARY_NAMES: [&str; 13] = [
    "HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "USERNAME",
];

/// Characters that `encodeURIComponent` and Python's `quote(…, safe='')` do not escape.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Characters that Python's `quote` does not escape.
const PATH: &AsciiSet = &COMPONENT.remove(b'/');
/// Characters that the URL standard does not escape in a query, the part of a URL in which it escapes least.
const QUERY: &AsciiSet =
    &percent_encoding::CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'\'');

/// Replaces a text that could not be searched for secrets.
const WITHHELD: &str = "[withheld]";

/// Values to redact in shown and logged texts.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Option<Arc<SecretSearch>>);

struct SecretSearch {
    /// The name of each pattern's variable.
    names: Vec<String>,
    /// `None` if there are too many patterns for one.
    automaton: Option<AhoCorasick>,
    longest: usize,
}

impl Secrets {
    /// Takes names and values of variables.
    pub(crate) fn new<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut patterns: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in variables.into_iter().filter(|(name, value)| !is_ordinary(name, value)) {
            for pattern in spellings(value).into_iter().filter(|pattern| pattern.len() >= SHORTEST_SECRET) {
                patterns.entry(pattern).or_insert_with(|| name.to_owned());
            }
        }
        if patterns.is_empty() {
            return Self::default();
        }
        let longest = patterns.keys().map(String::len).max().unwrap_or_default();
        // The longest match, since a value may begin with a shorter one.
        let automaton =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns.keys()).ok();
        let names = patterns.into_values().collect();
        Self(Some(Arc::new(SecretSearch { names, automaton, longest })))
    }

    /// `text` with each secret in it replaced by its placeholder.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.redacted(text).into_owned()
    }

    /// A foreign text that is safe to show: redacted, and without terminal control characters.
    pub(crate) fn clean(&self, text: &str) -> String {
        // Before and after: a secret may have control characters, or be in pieces because of them.
        self.redact(&plain(&self.redact(text)))
    }

    fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(search) = &self.0 else { return Cow::Borrowed(text) };
        let Some(automaton) = &search.automaton else { return Cow::Borrowed(WITHHELD) };
        if !automaton.is_match(text) {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::with_capacity(text.len());
        automaton.replace_all_with(text, &mut redacted, |found, _, redacted| {
            redacted.push_str(&format!("${{{}}}", search.names[found.pattern().as_usize()]));
            true
        });
        Cow::Owned(redacted)
    }

    fn longest(&self) -> usize {
        self.0.as_ref().map_or(0, |search| search.longest)
    }
}

/// Whether nobody would keep this secret. In doubt it is a secret.
fn is_ordinary(name: &str, value: &str) -> bool {
    ORDINARY_NAMES.contains(&name)
        || ["LC_", "XDG_"].iter().any(|prefix| name.starts_with(prefix))
        || ORDINARY_VALUES.iter().any(|word| word.eq_ignore_ascii_case(value.trim()))
}

/// A value, and its common escaped forms.
fn spellings(value: &str) -> Vec<String> {
    let as_json = Value::from(value).to_string();
    let component = utf8_percent_encode(value, COMPONENT).to_string();
    vec![
        // Headers, for instance, lose surrounding white space.
        value.trim().to_owned(),
        value.to_owned(),
        as_json[1..as_json.len() - 1].to_owned(),
        utf8_percent_encode(value, PATH).to_string(),
        utf8_percent_encode(value, QUERY).to_string(),
        // As in the body of a form.
        component.replace("%20", "+"),
        component,
    ]
}

/// All values that must not be shown, including those added later.
///
/// Clones share what they know.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<Mutex<KnownSecrets>>);

#[derive(Default)]
struct KnownSecrets {
    /// The variables' names by their values.
    names: BTreeMap<String, String>,
    /// Built on demand from all values.
    secrets: Option<Secrets>,
}

impl Redactor {
    /// From now on `value` is shown as `${name}`.
    pub(crate) fn note(&self, name: &str, value: &str) {
        let mut known = self.0.lock();
        if !known.names.contains_key(value) {
            known.names.insert(value.to_owned(), name.to_owned());
            known.secrets = None;
        }
    }

    /// `text` with each value in it replaced by its placeholder.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets().redacted(text)
    }

    fn secrets(&self) -> Secrets {
        let mut known = self.0.lock();
        let KnownSecrets { names, secrets } = &mut *known;
        let variables = names.iter().map(|(value, name)| (name.as_str(), value.as_str()));
        secrets.get_or_insert_with(|| Secrets::new(variables)).clone()
    }

    /// As [`redact`](Self::redact), for a text of which only the first `length` bytes are to be shown. The
    /// rest is read only as far as needed, and a value at the cut is not shown in part.
    pub(crate) fn redact_beginning(&self, text: &str, length: usize) -> String {
        let secrets = self.secrets();
        let end = text.floor_char_boundary(length.saturating_add(secrets.longest()));
        let mut beginning = secrets.redact(&text[..end]);
        if end < text.len() {
            // The end may be the first half of a value.
            let uncertain = beginning.len().saturating_sub(secrets.longest());
            beginning.truncate(beginning.floor_char_boundary(uncertain));
        }
        beginning
    }

    /// The JSON of `value`, or its beginning of about `length` bytes and a mark with its length, with each value that must
    /// not be shown replaced.
    pub(crate) fn redact_json_beginning<T: Serialize + ?Sized>(&self, value: &T, length: usize) -> String {
        let mut beginning = OutputBeginning::before(length, self);
        // Never happens: what is shown comes from JSON.
        if serde_json::to_writer(&mut beginning, value).is_err() {
            return String::new();
        }
        self.marked(&beginning, length)
    }

    /// The same of a text, which is never held whole.
    pub(crate) fn redact_text_beginning(&self, text: &dyn fmt::Display, length: usize) -> String {
        let mut beginning = OutputBeginning::before(length, self);
        // Writing to memory does not fail.
        write!(beginning, "{text}").ok();
        self.marked(&beginning, length)
    }

    fn marked(&self, beginning: &OutputBeginning, length: usize) -> String {
        let text = String::from_utf8_lossy(&beginning.bytes);
        let all = beginning.length;
        if all <= length {
            self.redact(&text).into_owned()
        } else {
            format!("{}… [{all} bytes in all]", self.redact_beginning(&text, length))
        }
    }

    /// The number of bytes beyond `length` that [`redact_beginning`](Self::redact_beginning) reads.
    fn lookahead(&self) -> usize {
        self.secrets().longest()
    }

    /// `value` with each value that must not be shown replaced in its texts, keys and numbers.
    pub(crate) fn redact_json(&self, value: Value) -> Value {
        redact_json(&self.secrets(), value)
    }
}

/// Keeps the first bytes of what is written, and counts all.
pub(crate) struct OutputBeginning {
    pub(crate) bytes: Vec<u8>,
    limit: usize,
    pub(crate) length: usize,
}

impl OutputBeginning {
    /// Keeps what [`Redactor::redact_beginning`] needs for so many bytes: one more than it looks at, so that it sees that
    /// the text goes on.
    pub(crate) fn before(length: usize, redactor: &Redactor) -> Self {
        Self { bytes: Vec::new(), limit: length + redactor.lookahead() + 1, length: 0 }
    }
}

impl Write for OutputBeginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.length += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn redact_json(secrets: &Secrets, value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(secrets.redact(&text)),
        Value::Number(number) => match secrets.redacted(&number.to_string()) {
            Cow::Owned(redacted) => Value::String(redacted),
            Cow::Borrowed(_) => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(|item| redact_json(secrets, item)).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(key, member)| (secrets.redact(&key), redact_json(secrets, member)))
            .collect(),
        Value::Null | Value::Bool(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor(variables: &[(&str, &str)]) -> Redactor {
        let redactor = Redactor::default();
        variables.iter().for_each(|(name, value)| redactor.note(name, value));
        redactor
    }

    fn check(text: &str, expected: &str) {
        let variables = [
            ("KEY", "secret"),
            ("LONG", "secret-and-more"),
            ("NO", "no"),
            ("ODD", " a/\"b&c=é "),
            ("SELF", "KEY}"),
        ];
        assert_eq!(redactor(&variables).redact(text), expected, "{text}");
    }

    #[test]
    fn values_are_replaced_by_their_placeholders() {
        check("no secret-and-more, secret!", "no ${LONG}, ${KEY}!");
        check("secretsecret", "${KEY}${KEY}");
        check("nothing", "nothing");
        check("KEY} secret", "${SELF} ${KEY}");
    }

    #[test]
    fn what_is_no_secret_stays() {
        let variables = [
            ("HOME", "/home/me"),
            ("MODE", "Production"),
            ("FLAG", "true "),
            ("LC_ALL", "C.UTF-8"),
            ("KEY", "secret"),
        ];
        let text = r#"print("production", True, "/home/me/x", "C.UTF-8", "true") # "#;
        assert_eq!(Secrets::new(variables).redact(&format!("{text}secret")), format!("{text}${{KEY}}"));
    }

    #[test]
    fn values_are_found_as_urls_and_json_write_them() {
        check("<a/\"b&c=é>", "<${ODD}>");
        check(r#"{"x": " a/\"b&c=é "}"#, r#"{"x": "${ODD}"}"#);
        check("?k=%20a%2F%22b%26c%3D%C3%A9%20", "?k=${ODD}");
        check("?k=%20a/%22b%26c%3D%C3%A9%20", "?k=${ODD}");
        check("?k=%20a/%22b&c=%C3%A9%20", "?k=${ODD}");
        check("k=+a%2F%22b%26c%3D%C3%A9+", "k=${ODD}");
    }

    #[test]
    fn json_is_redacted_at_every_depth() {
        let redactor = redactor(&[("KEY", "secret"), ("PIN", "12345")]);
        let value = json!({"a secret": [1, null, true, {"b": "secret"}], "pin": 12345});
        let expected = json!({"a ${KEY}": [1, null, true, {"b": "${KEY}"}], "pin": "${PIN}"});
        assert_eq!(redactor.redact_json(value), expected);
    }

    #[test]
    fn the_beginning_of_json_has_no_secret_either() {
        let redactor = redactor(&[("KEY", "secret")]);
        assert_eq!(redactor.redact_json_beginning(&json!({"a": "secret"}), 100), r#"{"a":"${KEY}"}"#);
        for length in 55..65 {
            let long = redactor.redact_json_beginning(&json!(["secret".repeat(50)]), length);
            let begins = long.starts_with(r#"["${KEY}${KEY}"#);
            assert!(begins && long.ends_with("… [304 bytes in all]"), "{length}: {long}");
            assert!(!long.replace("${KEY}", "").contains("se"), "{length}: {long}");
        }
    }

    #[test]
    fn clones_learn_of_values_that_turn_up_later() {
        let redactor = redactor(&[("KEY", "secret")]);
        let clone = redactor.clone();
        assert_eq!(clone.redact("secret late"), "${KEY} late");
        redactor.note("LATER", "late");
        assert_eq!(clone.redact("secret late"), "${KEY} ${LATER}");
    }

    #[test]
    fn a_value_at_the_cut_is_not_shown_in_part() {
        let redactor = redactor(&[("KEY", "secret")]);
        for length in 0..40 {
            let beginning = redactor.redact_beginning("éééé secret secret secret é", length);
            let rest = beginning.replace("${KEY}", "");
            assert!(!rest.contains("se"), "{length}: {beginning}");
        }
        assert_eq!(redactor.redact_beginning("a secret", 100), "a ${KEY}");
    }
}
