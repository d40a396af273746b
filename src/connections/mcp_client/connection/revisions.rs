//! Chooses the revision of the protocol to ask for, after a server has refused one: pure.

use rmcp::model::ProtocolVersion;

/// The revisions that have `initialize`, newest first.
pub(super) const WITH_INITIALIZE: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// The length of the name of a revision.
const NAME_BYTES: usize = "2025-11-25".len();

/// The next revision to ask for, if the server's answer refuses the last one of `refused`: the newest one that the answer names,
/// or else the one before. There is none if it names others alone, which have no `initialize`.
pub(crate) fn next(answer: &str, refused: &[ProtocolVersion]) -> Option<ProtocolVersion> {
    let answer = answer.to_lowercase();
    let says = |word: &str| answer.contains(word);
    let mut left = WITH_INITIALIZE.into_iter().filter(|revision| !refused.contains(revision));
    if !(says("version") || says("revision") || says("protocol") || says("supported")) {
        return None;
    }
    let named = left.clone().find(|revision| says(revision.as_str()));
    if named.is_some() || names_other(&answer, refused) || !(says("protocol") && says("version")) {
        return named;
    }
    left.next()
}

/// Says whether the text has the name of a revision that is none of these.
fn names_other(answer: &str, refused: &[ProtocolVersion]) -> bool {
    let is_date = |text: &[u8]| {
        text.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
    };
    answer
        .as_bytes()
        .windows(NAME_BYTES)
        .any(|text| is_date(text) && !refused.iter().any(|refused| refused.as_str().as_bytes() == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, refused: usize, expected: &str) {
        let next = next(answer, &WITH_INITIALIZE[..refused]);
        assert_eq!(next.as_ref().map_or("", ProtocolVersion::as_str), expected, "{answer}");
    }

    #[test]
    fn the_newest_revision_that_a_refusal_names_is_next() {
        for answer in [
            "Bad Request: Unsupported protocol version (supported versions: 2025-06-18, 2025-03-26, 2024-11-05)",
            "Unsupported protocol version\n{\"supported\":[\"2025-03-26\",\"2025-06-18\"],\"requested\":\"2025-11-25\"}",
            "Unsupported protocol version: 2025-11-25. Supported versions: 2025-06-18, 2026-07-28",
            "MCP-Protocol-Version must be 2025-06-18",
        ] {
            check(answer, 1, "2025-06-18");
        }
        check("supported: 2024-11-05", 2, "2024-11-05");
    }

    #[test]
    fn without_a_name_the_revision_before_is_next() {
        for (refused, expected) in [(1, "2025-06-18"), (2, "2025-03-26"), (3, "2024-11-05"), (4, "")] {
            check("Unsupported protocol version", refused, expected);
            check("invalid params: unknown protocolVersion 2025-11-25", refused, expected);
        }
    }

    #[test]
    fn other_refusals_are_not_about_the_revision() {
        check("not today", 1, "");
        check("the key has expired on 2025-06-18", 1, "");
        check("this version of the server is not licensed", 1, "");
        // There, `server/discover` comes in the place of `initialize`.
        check(
            "Unsupported protocol version {\"supported\":[\"2026-07-28\"],\"requested\":\"2025-11-25\"}",
            1,
            "",
        );
    }
}
