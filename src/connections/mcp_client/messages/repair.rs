//! Repairs what is almost JSON, so that one wrong letter of a server does not cost its whole answer. Pure.
//!
//! JavaScript's `slice` cuts characters of two UTF-16 units in half, and `JSON.stringify` escapes the half that is left;
//! Python's `json.dumps` writes `NaN`, and integers of any size; programs copy bytes of files that are not UTF-8. What
//! ran has run: its answer is worth more than the letter.

use memchr::{memchr2, memmem};

use crate::ground::text::replace_lone_surrogates;

/// The least number of digits of an integer that 64 bits do not hold.
const LONG_DIGITS: usize = 19;

/// The most significant digits that JavaScript writes of a number: followed by zeros, they name a float.
const FLOAT_DIGITS: usize = 17;

/// The byte order mark with which some servers begin.
pub(crate) const MARK: &[u8] = "\u{feff}".as_bytes();

/// The text without a byte order mark, with U+FFFD for each half of a character and each byte that is not UTF-8, with
/// `null` for NaN, which JSON does not have, and with texts for infinities, and for integers that would become other numbers.
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
    let has_strange = memmem::find(&text, b"NaN").or_else(|| memmem::find(&text, b"Infinity")).is_some();
    if has_strange || has_long_digits(&text) {
        text = without_strange_numbers(&text);
    }
    text
}

/// Whether so many digits follow each other somewhere that they may be an integer of more than 64 bits.
fn has_long_digits(text: &[u8]) -> bool {
    let digits = |part: &mut dyn Iterator<Item = &u8>| {
        part.take(LONG_DIGITS).take_while(|byte| byte.is_ascii_digit()).count()
    };
    // One of these places is within them.
    (LONG_DIGITS - 1..text.len()).step_by(LONG_DIGITS).any(|at| {
        text[at].is_ascii_digit()
            && digits(&mut text[..at].iter().rev()) + digits(&mut text[at..].iter()) >= LONG_DIGITS
    })
}

/// The text with `null` for `NaN`, and with texts for `Infinity`, `-Infinity` and long integers, outside of strings.
fn without_strange_numbers(text: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let strange =
            [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|name| rest.starts_with(name));
        if let Some(name) = strange {
            let text = [b"\"", name, b"\""].concat();
            written.extend_from_slice(if name == b"NaN" { b"null" } else { &text });
            rest = &rest[name.len()..];
            continue;
        }
        let taken = match first {
            b'"' => 1 + end_of_string(after),
            b'-' | b'0'..=b'9' => 1 + after.iter().take_while(|byte| is_of_number(**byte)).count(),
            _ => 1,
        };
        let (token, others) = rest.split_at(taken);
        if first != b'"' && changes(token) {
            written.extend([b"\"", token, b"\""].concat());
        } else {
            written.extend_from_slice(token);
        }
        rest = others;
    }
    written
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-')
}

/// Whether `token` is an integer that 64 bits do not hold, and that no float names.
fn changes(token: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(token) else { return false };
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_short = digits.trim_end_matches('0').len() <= FLOAT_DIGITS;
    if is_short || digits.contains(|character: char| !character.is_ascii_digit()) {
        return false;
    }
    let is_float = |float: f64| float.is_finite() && format!("{float:.0}") == text;
    text.parse::<i64>().is_err() && text.parse::<u64>().is_err() && !text.parse().is_ok_and(is_float)
}

/// The length of a string, with its closing quote, that began before `text`.
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
    fn numbers_that_json_does_not_have_are_null_or_texts() {
        check(
            br#"{"a": [NaN, -Infinity,Infinity], "b\"": "NaN \" NaN"}"#,
            r#"{"a": [null, "-Infinity","Infinity"], "b\"": "NaN \" NaN"}"#,
        );
    }

    #[test]
    fn integers_that_would_become_other_numbers_are_texts() {
        let long = "9".repeat(400);
        check(
            format!(
                r#"{{"a": [123456789012345678901234567890,-9223372036854775809, {long}], "b": "{long}"}}"#
            )
            .as_bytes(),
            &format!(
                r#"{{"a": ["123456789012345678901234567890","-9223372036854775809", "{long}"], "b": "{long}"}}"#
            ),
        );
        // 64 bits hold the first three, and the others are how Python and JavaScript write floats.
        let kept = "[18446744073709551615, -9223372036854775808, 0.12345678901234567890, 1180591620717411303424, \
                    123456789012345670000, 1e30]";
        check(kept.as_bytes(), kept);
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
