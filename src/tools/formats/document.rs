//! Text of a configuration file → JSON value: JSON, JSON with comments and trailing commas, or TOML. Pure.
//!
//! Errors say the line and column, and never quote the file: it may hold secrets.

use serde_json::Value;

/// Why a file cannot be understood, as a text that follows its name.
pub(super) type UnreadableReason = String;

/// Reads a file's content; `is_toml` says which language it is in.
pub(super) fn parse(content: &[u8], is_toml: bool) -> Result<Value, UnreadableReason> {
    let text = decode(content)?;
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    if is_toml { parse_toml(&text) } else { parse_json(text) }
}

/// Editors on Windows write a byte order mark, or UTF-16.
fn decode(content: &[u8]) -> Result<String, UnreadableReason> {
    let units = |bytes: &[u8], read: fn([u8; 2]) -> u16| -> Result<String, UnreadableReason> {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
        String::from_utf16(&units).map_err(|_| "it is not valid UTF-16".to_owned())
    };
    match content {
        [0xff, 0xfe, rest @ ..] => units(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => units(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => match std::str::from_utf8(rest) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err("it is not UTF-8 text".to_owned()),
        },
    }
}

fn parse_json(mut text: String) -> Result<Value, UnreadableReason> {
    // By blanks, so that positions stay as they are.
    json_strip_comments::strip(&mut text).map_err(|_| "a comment in it has no end".to_owned())?;
    serde_json::from_str(&text).map_err(|error| {
        let line = error.line();
        let column = error.column();
        // serde_json appends the position to its message.
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default().to_owned();
        format!("it is not valid JSON: {words} (line {line}, column {column})")
    })
}

fn parse_toml(text: &str) -> Result<Value, UnreadableReason> {
    let invalid = |error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = &text[..text.floor_char_boundary(start)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        // The first line says what is wrong; others may quote the file.
        let words = error.message().lines().next().unwrap_or_default().to_owned();
        format!("it is not valid TOML: {words} (line {line}, column {column})")
    };
    let table: toml::Table = text.parse().map_err(invalid)?;
    serde_json::to_value(table).map_err(|error| format!("it cannot be represented as JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_error(content: &[u8], is_toml: bool, expected: &str) {
        let reason = parse(content, is_toml).unwrap_err();
        assert!(reason.contains(expected) && !reason.contains("s3cret"), "{reason}");
    }

    #[test]
    fn json_may_have_comments_and_trailing_commas() {
        let text = r#"{
            // "a": 1, é
            "url": "http://a//b", /* , } */
            "quote": "\"//\\", "list": [1, 2, /* x */ ],
        }"#;
        let expected = json!({"url": "http://a//b", "quote": "\"//\\", "list": [1, 2]});
        assert_eq!(parse(text.as_bytes(), false).unwrap(), expected);
        assert!(parse(b"{\"a\": 1 /*", false).is_err());
    }

    #[test]
    fn texts_of_windows_are_read() {
        let utf16: Vec<u8> = "\u{feff}{\"a\": 1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(parse(&utf16, false).unwrap(), json!({"a": 1}));
        assert_eq!(parse(b"\xef\xbb\xbf{}", false).unwrap(), json!({}));
    }

    #[test]
    fn errors_say_where_and_quote_nothing() {
        check_error(b"{\n  \"a\": s3cret\n}", false, "not valid JSON: expected value (line 2, column 8)");
        check_error(b"{\"a\": 1", false, "line 1, column 7");
        check_error(b"[a]\nb = s3cret\n", true, "not valid TOML");
        check_error(b"[a]\nb = s3cret\n", true, "(line 2, column 5)");
        check_error(b" \n", false, "it is empty");
        check_error(b"\xc3(", false, "not UTF-8");
        check_error("[".repeat(100_000).as_bytes(), false, "recursion limit");
    }
}
