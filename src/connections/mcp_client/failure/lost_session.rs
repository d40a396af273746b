//! Recognises the texts by which servers refuse a request because they do not know the client's session: pure.
//!
//! The protocol demands a 404 for that. Servers answer 400, 401, 422, 500 or 503 with a text, or an error of JSON-RPC with
//! any of several codes, some of them with a 200.

use std::sync::LazyLock;

use regex::Regex;

/// The beginning of a text that is looked at, in bytes. Such refusals are short.
const LOOKED_AT_BYTES: usize = 2_000;

/// Words before the session's name that say that it is not known. All are in lower case, with `-`, `_` or nothing for a space.
const BEFORE: [&str; 2] = [
    r"(?-u:\b)(?:no|unknown|invalid|bad|expired|missing|stale|unrecogni[sz]ed|inactive|terminated|non-?existent)(?-u:\b)",
    "(?:could not|couldn.?t|cannot|can.?t|unable to|failed to) (?:find|locate|resolve|get|load|retrieve|restore)",
];
/// The same after it.
#[rustfmt::skip]
const AFTER: [&str; 19] = [
    "not[ _-]?found", "not[ _-]?exist", "n.t exist", "expired", "not[ _-]?valid", "invalid", "unknown", "missing", "required",
    "terminated", "no longer", "not[ _-]?recogni[sz]ed", "unrecogni[sz]ed", "(?:not[ _-]?|in)active", "timed out", "deleted",
    "lost", "(?:is|was|been|already) closed", "(?:is|has|was) (?:ended|gone)",
];
/// Words that say that `initialize` is missing.
const UNINITIALIZED: [&str; 5] = [
    "not (?:[a-z]+ ){0,2}initiali[sz]ed|uninitiali[sz]ed",
    "before initiali[sz]",
    "re-?initiali[sz]e|initiali[sz]e first",
    "by an initiali[sz]e request",
    "expect(?:s|ed|ing)? (?:an )?initiali[sz]e",
];

/// Finds such words.
static REFUSAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let before = BEFORE.join("|");
    let after = AFTER.join("|");
    let uninitialized = UNINITIALIZED.join("|");
    let session = r"(?-u:\b)(?:mcp[-_ ]?)?session";
    let named_before = format!(r"(?:{before})(?:[ ,:]+(?-u:[\w/'-]){{1,20}}){{0,3}}?[ ,:`'\x22]+{session}");
    let named_after = format!(r"{session}[^.\n]{{0,80}}?(?:{after})");
    Regex::new(&format!("{named_before}|{named_after}|{uninitialized}")).ok()
});

/// Says whether the text says that the server does not know the session. A tool may say the same of a session of its own.
pub(crate) fn is_named(text: &str) -> bool {
    let beginning = &text[..text.floor_char_boundary(LOOKED_AT_BYTES)];
    // A page is written by something in front of the server, for people.
    !beginning.trim_start().starts_with('<')
        && REFUSAL.as_ref().is_some_and(|refusal| refusal.is_match(&beginning.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_not_known_is_named() {
        for text in [
            // SDKs: TypeScript, Python, Go, Java, C#, Rust, Kotlin, Swift, PHP.
            "Bad Request: No valid session ID provided",
            "Bad Request: Server not initialized",
            "Bad Request: Mcp-Session-Id header is required",
            "Bad Request: Missing session ID",
            "Session not found",
            "session not found",
            "Session has been terminated",
            "Session ID missing",
            "Session not found: 9f1c7c1e-3a56-4b1c-8dd1-0f5a3f8f6a10",
            "Session ID required in mcp-session-id header",
            "Bad Request: A new session can only be created by an initialize request. Include a valid Mcp-Session-Id header",
            "Unauthorized: Session not found",
            "Unexpected message, expect initialize request",
            "Bad Request: Missing MCP-Session-Id header",
            "Session not found or has expired",
            // Others.
            "Invalid session",
            "invalid or expired session",
            "Invalid or missing session ID",
            "Missing required Mcp-Session-Id header",
            "unknown session id: 5",
            "no such session",
            "No active session found",
            "No transport found for sessionId",
            "Session 7f3a does not exist",
            "Session 7f3a doesn't exist",
            "The session 'x' is no longer valid",
            "Your session has expired. Please reconnect",
            "Could not find session",
            r#"{"error":"session_not_found"}"#,
            r#"{"error":{"code":"SessionNotFound","message":"?"}}"#,
            r#"{"detail":"SESSION_EXPIRED"}"#,
            "Server not initialized",
            "The client has not been initialised",
            "Received request before initialization was complete",
            "unknown connection; please re-initialize",
        ] {
            assert!(is_named(text), "{text}");
        }
    }

    #[test]
    fn other_words_about_sessions_are_no_refusal() {
        for text in [
            "",
            "paid, but the checkout session could not be closed",
            "the session was opened twice",
            "2 sessions are running",
            "`session` must be a number",
            "no such file: /srv/obsession/a.txt",
            "busy",
            "<html><body>Your session has expired</body></html>",
        ] {
            assert!(!is_named(text), "{text}");
        }
    }
}
