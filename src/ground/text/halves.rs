//! Characters of which a half is missing: at the end of a piece of bytes, and in JSON.

use memchr::memchr;

/// The length of the escape of a UTF-16 unit: `\u` and four digits.
const ESCAPE: usize = 6;

/// The number of bytes at the end that may be the beginning of a character.
pub(crate) fn unfinished_character(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    (last..bytes.len())
        .find(|&start| {
            let begins = |error: std::str::Utf8Error| error.valid_up_to() == 0 && error.error_len().is_none();
            str::from_utf8(&bytes[start..]).is_err_and(begins)
        })
        .map_or(0, |start| bytes.len() - start)
}

/// Replaces the escapes of UTF-16 surrogates that are alone, such as `\ud800`. JavaScript writes them for broken strings,
/// and no Rust string can hold them. Backslashes are in strings only.
pub(crate) fn replace_lone_surrogates(json: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &json[at..]) {
        at += found;
        at += match unit(&json[at..]) {
            None => 2,
            Some(0xD800..=0xDBFF) if matches!(unit(&json[at + ESCAPE..]), Some(0xDC00..=0xDFFF)) => {
                2 * ESCAPE
            }
            Some(0xD800..=0xDFFF) => {
                json[at + 2..at + ESCAPE].copy_from_slice(b"fffd");
                ESCAPE
            }
            Some(_) => ESCAPE,
        };
        at = at.min(json.len());
    }
}

/// The UTF-16 unit whose escape `text` begins with.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..ESCAPE - 2)?;
    // `from_str_radix` takes a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let mut json = json.as_bytes().to_vec();
        replace_lone_surrogates(&mut json);
        assert_eq!(str::from_utf8(&json).unwrap(), expected);
    }

    #[test]
    fn only_lone_surrogates_are_replaced() {
        check(r#""plain""#, r#""plain""#);
        check(r"a\ud83d\ude00b", r"a\ud83d\ude00b");
        check(r"a\ud800b", r"a\ufffdb");
        check(r"\udc00\ud800", r"\ufffd\ufffd");
        check(r"\\ud800", r"\\ud800");
        check(r"\n\u0041\ud8", r"\n\u0041\ud8");
        check("é\\", "é\\");
    }
}
