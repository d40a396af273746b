//! Repairs what is almost JSON, so that one wrong letter of a server does not cost its whole answer. Pure.
//!
//! JavaScript's `slice` cuts characters of two UTF-16 units in half, and `JSON.stringify` escapes the half that is left;
//! Python's `json.dumps` writes `NaN`; programs copy bytes of files that are not UTF-8. What ran has run: its answer is
//! worth more than the letter.

use memchr::{memchr2, memmem};

use crate::ground::text::replace_lone_surrogates;

/// The byte order mark with which some servers begin.
pub(super) const MARK: &[u8] = "\u{feff}".as_bytes();

/// The text without a byte order mark, with U+FFFD for each half of a character and each byte that is not UTF-8, and with `null` for numbers that
/// JSON does not have.
pub(super) fn repaired(text: Vec<u8>) -> Vec<u8> {
    let mut text = match String::from_utf8(text) {
        Ok(valid) => valid.into_bytes(),
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned().into_bytes(),
    };
    if text.starts_with(MARK) {
        text.drain(..MARK.len());
    }
    if memmem::find(&text, br"\ud").or_else(|| memmem::find(&text, br"\uD")).is_some() {
        replace_lone_surrogates(&mut text);
    }
    if memmem::find(&text, b"NaN").or_else(|| memmem::find(&text, b"Infinity")).is_some() {
        text = without_strange_numbers(&text);
    }
    text
}

/// The text with `null` for `NaN`, `Infinity` and `-Infinity` outside of strings.
fn without_strange_numbers(text: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let strange =
            [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|name| rest.starts_with(name));
        let taken = match (first, strange) {
            (b'"', _) => 1 + end_of_string(after),
            (_, Some(name)) => {
                written.extend_from_slice(b"null");
                rest = &rest[name.len()..];
                continue;
            }
            _ => 1,
        };
        written.extend_from_slice(&rest[..taken]);
        rest = &rest[taken..];
    }
    written
}

/// How long a string is, with its closing quote, that began before `text`.
fn end_of_string(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        match text[at + found] {
            b'"' => return at + found + 1,
            _ => at += found + 2,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8], expected: &str) {
        let repaired = String::from_utf8(repaired(text.to_vec())).unwrap();
        assert_eq!(repaired, expected);
        serde_json::from_str::<serde_json::Value>(&repaired).unwrap();
    }

    #[test]
    fn what_is_right_stays() {
        for text in [
            r#"{"a": "\ud83d\ude00 \u00e4 \\ud83d \" \\", "NaN": "-Infinity NaN \" NaN"}"#,
            r#"["ä", "\uD83D\uDE00", 1.5e3, null]"#,
        ] {
            check(text.as_bytes(), text);
        }
    }

    #[test]
    fn halves_of_characters_are_replaced() {
        check(br#"["a\ud83d"]"#, r#"["a\ufffd"]"#);
        check(br#"["\ude00\ud83d"]"#, r#"["\ufffd\ufffd"]"#);
        check(br#"["\ud83d\ud83d\ude00x\uD800\n"]"#, r#"["\ufffd\ud83d\ude00x\ufffd\n"]"#);
        check(br#"["\\\ud83d\\ud83d"]"#, r#"["\\\ufffd\\ud83d"]"#);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        check(b"[\"a\xff\xc3b\xe2\x82\"]", "[\"a\u{fffd}\u{fffd}b\u{fffd}\"]");
    }

    #[test]
    fn a_byte_order_mark_is_left_out() {
        check("\u{feff}[\"\u{feff}\"]".as_bytes(), "[\"\u{feff}\"]");
    }

    #[test]
    fn numbers_that_json_does_not_have_are_null() {
        check(
            br#"{"a": [NaN, -Infinity,Infinity], "b\"": "NaN \" NaN"}"#,
            r#"{"a": [null, null,null], "b\"": "NaN \" NaN"}"#,
        );
    }

    #[test]
    fn what_is_no_json_ends() {
        for text in [
            &br"\ud83"[..],
            br"\",
            br#""\"#,
            br#""NaN\"#,
            br"\ud83d\u",
            b"NaN",
            b"",
            br"\u+123",
            br#""\ud83d\"#,
        ] {
            repaired(text.to_vec());
        }
    }
}
