//! Values as the log shows them: redacted, and of bounded length.

use serde::Serialize;
use serde_json::Value;

use crate::ground::text::{OutputBeginning, Redactor};

/// The longest text or JSON value that is written whole, in bytes: enough for readers, and one write appends
/// a line of it.
pub(in crate::approval) const LONGEST: usize = 64 * 1024;

/// `text`, or its beginning and a mark with its length.
pub(in crate::approval) fn text(redactor: &Redactor, text: &str) -> String {
    if text.len() <= LONGEST {
        redactor.redact(text).into_owned()
    } else {
        beginning(redactor, text, text.len())
    }
}

/// `value`, or a text: the beginning of its JSON and a mark with its length. And the length in bytes.
pub(in crate::approval) fn json<T: Serialize + ?Sized>(redactor: &Redactor, value: &T) -> (Value, usize) {
    let mut kept = OutputBeginning::before(LONGEST, redactor);
    // Never happens: all logged values come from JSON.
    if serde_json::to_writer(&mut kept, value).is_err() {
        return (Value::Null, kept.length);
    }
    let shown = if kept.length <= LONGEST {
        redactor.redact_json(serde_json::from_slice(&kept.bytes).unwrap_or_default())
    } else {
        beginning(redactor, &String::from_utf8_lossy(&kept.bytes), kept.length).into()
    };
    (shown, kept.length)
}

fn beginning(redactor: &Redactor, text: &str, length: usize) -> String {
    format!("{}… [{length} bytes in all]", redactor.redact_beginning(text, LONGEST))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ground::env::Variables;

    fn redactor() -> Redactor {
        let variables = Variables::from_pairs([("KEY", "the-secret")]);
        variables.fill("${KEY}").unwrap();
        variables.redactor().clone()
    }

    #[test]
    fn short_values_are_shown_whole() {
        assert_eq!(text(&redactor(), "a the-secret"), "a ${KEY}");
        let (shown, length) = json(&redactor(), &json!({"a": ["the-secret"]}));
        assert_eq!((shown, length), (json!({"a": ["${KEY}"]}), 20));
    }

    #[test]
    fn long_values_are_shortened_and_say_so() {
        let long = "the-secret ".repeat(10_000);
        let shown = text(&redactor(), &long);
        assert!(shown.starts_with("${KEY} ${KEY} ") && shown.ends_with("… [110000 bytes in all]"), "{shown}");
        assert!(!shown.contains("the-s") && shown.len() < LONGEST);
        let (shown, length) = json(&redactor(), &json!({"a": long}));
        let shown = shown.as_str().unwrap();
        assert!(
            shown.starts_with(r#"{"a":"${KEY} "#) && shown.ends_with("… [110008 bytes in all]"),
            "{shown}"
        );
        assert!(!shown.contains("the-s") && length == 110_008);
    }

    #[test]
    fn a_secret_at_the_cut_is_not_shown_in_part() {
        for before in 0..30 {
            let text = format!("{}{}", "x".repeat(LONGEST - before), "the-secret".repeat(10));
            let (shown, _) = json(&redactor(), &json!({"a": text}));
            let shown = shown.as_str().unwrap().replace("${KEY}", "");
            assert!(!shown.contains("the"), "{before}: {}", &shown[LONGEST - 40..]);
        }
    }
}
