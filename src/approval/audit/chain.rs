//! The chain of a log: each record ends in the hash of the record before it, and in its own.
//!
//! ```text
//! {"time":…,"session":…,"event":…, …,"number":7,"previous":"<64 digits>","hash":"<64 digits>"}
//!  └──────────────────────── hashed ───────────────────────────────────┘
//! ```
//!
//! The chain is the file's, not a session's: whoever appends holds the file's lock, reads the last line, and continues
//! from it. `number` counts a session's records in the file. A line without a hash (one of an earlier version, or half
//! a line of a process that was killed) is continued from too, by a hash of its end.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The part of the end of a line that decides how the chain goes on, in bytes: more than a hash, and one read.
pub(in crate::approval) const TAIL: usize = 4096;

/// The text between the hashed part of a record and its hash.
const BEFORE_HASH: &[u8] = b",\"hash\":\"";

/// The end of a record.
const AFTER_HASH: &[u8] = b"\"}";

/// The state of a chain after a line.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(in crate::approval) struct ChainHead([u8; 32]);

impl ChainHead {
    /// The state before the first line of all.
    pub(in crate::approval) const BEGINNING: Self = Self([0; 32]);

    fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The state after a line of which `end` is the last [`TAIL`] bytes, or all: the hash in it, or else a hash of `end`.
    pub(in crate::approval) fn after(end: &[u8]) -> Self {
        split(end).map_or_else(|| Self::of(&end[end.len().saturating_sub(TAIL)..]), |(_, hash)| hash)
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub(in crate::approval) fn parse(digits: &[u8]) -> Option<Self> {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let digits: &[u8; 64] = digits.try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for ChainHead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for ChainHead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The line of `record`, a JSON object, as its session's `number`th of the file, with its newline; and the state after it.
pub(in crate::approval) fn link(record: &str, number: u64, previous: ChainHead) -> (Vec<u8>, ChainHead) {
    let open = record.strip_suffix('}').unwrap_or(record);
    let mut line = format!("{open},\"number\":{number},\"previous\":\"{previous}\"").into_bytes();
    let hash = ChainHead::of(&line);
    line.extend_from_slice(BEFORE_HASH);
    line.extend_from_slice(hash.to_string().as_bytes());
    line.extend_from_slice(AFTER_HASH);
    line.push(b'\n');
    (line, hash)
}

/// The hashed part of a line without its newline, and its hash; `None` if it does not end in one.
pub(in crate::approval) fn split(line: &[u8]) -> Option<(&[u8], ChainHead)> {
    let (rest, digits) = line.strip_suffix(AFTER_HASH)?.split_last_chunk::<64>()?;
    Some((rest.strip_suffix(BEFORE_HASH)?, ChainHead::parse(digits)?))
}

/// Whether the hash of a line is that of its content.
pub(in crate::approval) fn is_intact(hashed: &[u8], hash: ChainHead) -> bool {
    ChainHead::of(hashed) == hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_hash_and_the_one_before() {
        let (line, head) = link(r#"{"a":1}"#, 7, ChainHead::BEGINNING);
        let text = std::str::from_utf8(&line).unwrap();
        let zeros = "0".repeat(64);
        assert!(text.starts_with(&format!(r#"{{"a":1,"number":7,"previous":"{zeros}","hash":""#)), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(text).is_ok() && text.ends_with("\"}\n"), "{text}");
        let (hashed, hash) = split(line.trim_ascii_end()).unwrap();
        assert!(hash == head && is_intact(hashed, hash) && ChainHead::after(line.trim_ascii_end()) == head);
        assert_eq!(ChainHead::parse(head.to_string().as_bytes()), Some(head));
    }

    #[test]
    fn a_line_without_a_hash_is_continued_by_its_end() {
        let long = [b"x".repeat(10_000), b"y".repeat(TAIL)].concat();
        assert_eq!(ChainHead::after(&long), ChainHead::of(&b"y".repeat(TAIL)));
        assert_eq!(ChainHead::after(b"torn"), ChainHead::of(b"torn"));
        assert_eq!(split(b"\",\"hash\":\"00\"}"), None);
    }

    #[test]
    fn only_64_lower_case_digits_are_a_hash() {
        for text in ["", "00", &"0".repeat(63), &"G".repeat(64), &"A".repeat(64), &"0".repeat(65)] {
            assert_eq!(ChainHead::parse(text.as_bytes()), None, "{text}");
        }
    }
}
