//! Faults of the parameters of an MCP server.

use crate::ground::text::backticked;

/// The longest timeout for a server, in seconds: a day, longer than any client waits.
pub(super) const LONGEST_TIMEOUT_SECS: f64 = 86_400.0;

/// Why the parameters of an MCP server are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParametersError {
    /// Neither of the two keys that decide what kind of server it is.
    #[error(
        "a stdio server needs `command`, an HTTP server needs `url`; the parameters have {}",
        keys(found)
    )]
    Neither {
        /// The keys that are there.
        found: Vec<String>,
    },
    /// Both of them.
    #[error("`command` (a stdio server) and `url` (an HTTP server) exclude each other")]
    Both,
    /// A value of another type than the key asks for.
    #[error("`{key}` must be {expected}, not {found}")]
    WrongType {
        /// The key, for example `args[1]` or `env.PORT`.
        key: String,
        /// The kind that it must be.
        expected: &'static str,
        /// The kind that it is.
        found: &'static str,
    },
    /// An empty value.
    #[error("`{key}` must not be empty")]
    Empty {
        /// The key.
        key: &'static str,
    },
    /// Another number of servers than one.
    #[error("{}", not_one(wrapper, found))]
    NotOneServer {
        /// The key that has them.
        wrapper: String,
        /// Their names.
        found: Vec<String>,
    },
    /// Two keys of the same meaning have different values.
    #[error("`{first}` and `{second}` contradict each other: give one of them")]
    Contradiction {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
    /// A key that is nearly a known one.
    #[error("`{key}` is not a parameter\nhint: did you mean `{known}`?")]
    Misspelt {
        /// The key.
        key: String,
        /// The key that is likely meant.
        known: String,
    },
    /// A command line that takes a shell.
    #[error(
        "`command` is `{command}`, which takes a shell, and none is used\n\
         hint: `\"command\": \"sh\", \"args\": [\"-c\", \"…\"]`, or the program in `command` and its arguments in `args`"
    )]
    ShellLine {
        /// The command.
        command: String,
    },
    /// A placeholder that another client fills by asking its user, or from its own settings.
    #[error(
        "`{key}` has `{placeholder}`, which another client fills\n\
         hint: write the value, or a secret as `${{VARIABLE}}`, and set the variable in ipybox's environment or in the workspace's `.env`"
    )]
    ForeignPlaceholder {
        /// The key that has it.
        key: String,
        /// The placeholder.
        placeholder: String,
    },
    /// A key that this kind of server does not have.
    #[error("`{key}` is not a parameter of {kind}; known: {}", known.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
        /// The kind of server.
        kind: &'static str,
        /// The keys it has.
        known: &'static [&'static str],
    },
    /// A `type` that is no transport of this kind of server.
    #[error("`type` must be {expected} here, not `{found}`")]
    UnknownTransport {
        /// The given value.
        found: String,
        /// The values that may be given.
        expected: &'static str,
    },
    /// An invalid timeout.
    #[error("`timeout` must be more than 0 and at most {LONGEST_TIMEOUT_SECS} seconds, not {seconds}")]
    Timeout {
        /// The given value.
        seconds: String,
    },
    /// The HTTP transport is unknown.
    #[error(
        "the transport is unknown: the URL contains neither `/mcp` nor `/sse`\n\
         hint: add `\"type\": \"streamable_http\"` or `\"type\": \"sse\"`"
    )]
    UndecidedTransport,
    /// Not an http or https URL. The URL is not shown: it may hold a secret.
    #[error("`url` is not an http or https URL: {reason}")]
    InvalidUrl {
        /// Why.
        reason: String,
    },
    /// A name that no HTTP header can have, or one that the protocol sets itself.
    #[error("`{name}` cannot be set as a header")]
    InvalidHeader {
        /// The header's name.
        name: String,
    },
    /// A value that is none of those that may be given.
    #[error("`{key}` must be {expected}, not `{found}`")]
    Choice {
        /// The key.
        key: &'static str,
        /// The given value.
        found: String,
        /// The values that may be given.
        expected: &'static str,
    },
    /// A value that cannot be used.
    #[error("`{key}` cannot be used: {why}")]
    Unusable {
        /// The key.
        key: &'static str,
        /// Why.
        why: String,
    },
    /// A key of one grant, with another.
    #[error("`{key}` goes with `\"grant\": \"{grant}\"` alone")]
    OnlyWith {
        /// The key.
        key: &'static str,
        /// Its grant.
        grant: &'static str,
    },
    /// A name that no environment variable can have.
    #[error("`{name}` cannot be the name of an environment variable")]
    InvalidVariable {
        /// The variable's name.
        name: String,
    },
}

fn not_one(wrapper: &str, found: &[String]) -> String {
    match found {
        [] => format!("`{wrapper}` has no server"),
        found => format!(
            "`{wrapper}` has {} servers and none that is called as this one: {}\n\
             hint: register them one by one",
            found.len(),
            backticked(found)
        ),
    }
}

fn keys(found: &[String]) -> String {
    if found.is_empty() {
        return "no keys".to_owned();
    }
    backticked(found)
}
