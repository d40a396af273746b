//! Failures of servers: why there is no connection or answer, in words for people and models.

mod diagnosis;
pub(super) mod http_failure;
mod last_words;
pub(super) mod lost_session;
mod telling;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::http_failure::AccessRefusal;
pub(crate) use self::last_words::LastWords;
use crate::connections::mcp_client::parameters::ParametersError;
use crate::ground::env::{IPYBOX_DOTENV, MissingVariable};

/// Why a server could not be connected to, or could not list its tools.
///
/// Each message is complete, its cause included: it is read by a model, and secrets are taken out of the
/// text as a whole. So there are no `source`s, which would say the same again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The variable of a placeholder is not set.
    #[error("{missing} (asked for by `{key}`)")]
    Placeholder {
        /// The parameter that holds the placeholder.
        key: String,
        /// The variable.
        missing: MissingVariable,
    },
    /// A value of `.env` would choose more than a secret. The value is not shown.
    #[error(
        "fill `${{{name}}}` in `{key}`: its value comes from the workspace's `.env`, which {why}\n\
         hint: set `{name}` in ipybox's environment (`env` in the client's entry), or name it there: \
         `{IPYBOX_DOTENV}={name}`"
    )]
    Untrusted {
        /// The parameter that holds the placeholder.
        key: String,
        /// The variable.
        name: String,
        /// The reason in `.env`.
        why: &'static str,
    },
    /// The parameters turned out wrong once their placeholders were filled.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// The value of a header has characters that no header can have. The value is not shown.
    #[error("the value of the header `{name}` has characters that a header cannot have")]
    HeaderValue {
        /// The header's name.
        name: String,
    },
    /// There is no such program.
    #[error("the program `{command}` was not found{}", if command.contains('/') { "" } else { " on `PATH`" })]
    CommandNotFound {
        /// The program, secrets redacted.
        command: String,
    },
    /// The working directory of a stdio server is not a directory.
    #[error("`{}`, its working directory, is not a directory", path.display())]
    WorkingDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A parameter that decides what runs leads to an exposed place.
    #[error(
        "`{key}` is `{value}`, which leads to `{}`: code in the sandbox can write there, or could in an earlier session, \
         and what it writes would act outside of the sandbox\n\
         hint: name what lies where code cannot write. The workspace itself, `${{workspace}}`, may be an argument of a server, \
         behind the name of its program or package. With `\"trust_workspace\": true` in the parameters the server is started \
         all the same: then code in the sandbox can run programs on this machine", place.display()
    )]
    Exposed {
        /// The parameter.
        key: String,
        /// Its value, secrets redacted.
        value: String,
        /// The place that it leads to.
        place: PathBuf,
    },
    /// A relative path: servers do not start in the workspace.
    #[error(
        "`{key}` is `{value}`, a relative path: a server starts in an empty directory of its own, not in the workspace\n\
         hint: write an absolute path, `${{workspace}}` for the workspace, or `\"cwd\": \"${{workspace}}\"` in the parameters \
         to start the server there"
    )]
    Relative {
        /// The parameter.
        key: String,
        /// Its value, secrets redacted.
        value: String,
    },
    /// A directory above the one that servers start in is exposed.
    #[error(
        "MCP servers would start in `{}`, and code in the sandbox can write `{}`, from where they may be configured\n\
         hint: name a state directory outside of that place with `--state-dir`", directory.display(), place.display()
    )]
    Surrounded {
        /// The directory.
        directory: PathBuf,
        /// The open place.
        place: PathBuf,
    },
    /// The program could not be started.
    #[error("the program `{command}` could not be started: {cause}")]
    Spawn {
        /// The program, secrets redacted.
        command: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The HTTP client could not be set up.
    #[error("the HTTP client could not be set up: {reason}")]
    HttpClient {
        /// Why.
        reason: String,
    },
    /// The server ended, or closed its connection, before it had answered.
    #[error("the server ended before it had answered `{method}`{last_words}")]
    Ended {
        /// The method of the request.
        method: &'static str,
        /// The end of the server.
        last_words: LastWords,
    },
    /// The server lives and does not answer.
    #[error(
        "the server did not answer `{method}` within {} s{last_words}\n\
         hint: if it needs longer, set `timeout` in its parameters, in seconds",
        after.as_secs_f32()
    )]
    Silent {
        /// The method of the request.
        method: &'static str,
        /// The time that it was waited for.
        after: Duration,
        /// The output meanwhile.
        last_words: LastWords,
    },
    /// The program is not ready yet, and goes on to start.
    #[error(
        "the server is not ready after {} s, and goes on to start in the background{last_words}\n\
         hint: do the same again, as often as needed, to wait for it; a reset ends it. To wait longer at once, set \
         `timeout` in its parameters, in seconds, or `--connect-timeout`",
        after.as_secs_f32()
    )]
    StillStarting {
        /// The time that it was waited for.
        after: Duration,
        /// The output meanwhile.
        last_words: LastWords,
    },
    /// The start was ended by another caller.
    #[error("the server had not started yet when a reset or another registration ended it")]
    StartEnded,
    /// The server answered with an error.
    #[error("the server answered `{method}` with an error: {message} (code {code})")]
    Refused {
        /// The method of the request.
        method: &'static str,
        /// The code of the JSON-RPC error.
        code: i32,
        /// The server's message, secrets redacted.
        message: String,
    },
    /// The server refuses the credentials, or a request without any.
    #[error("{refusal}")]
    Unauthorized {
        /// The refusal in its answer.
        refusal: AccessRefusal,
    },
    /// The server could not be reached, or its answer is not MCP.
    #[error("`{method}` failed: {reason}{last_words}")]
    Unusable {
        /// The method of the request.
        method: &'static str,
        /// The fault, secrets redacted.
        reason: String,
        /// The output meanwhile.
        last_words: LastWords,
    },
    /// A list does not end.
    #[error("the list of {items} has no end: {pages} pages were read")]
    EndlessList {
        /// The name of the listed items.
        items: &'static str,
        /// The number of pages that were read.
        pages: usize,
    },
    /// A list takes too much memory.
    #[error("the list of {items} is refused: its pages would take more than {} MiB of memory", limit_bytes >> 20)]
    LargeList {
        /// The name of the listed items.
        items: &'static str,
        /// The memory that it may take.
        limit_bytes: usize,
    },
}
