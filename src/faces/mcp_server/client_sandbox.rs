//! The sandbox of a client, which some clients tell with each call to servers that ask for it.
//!
//! Today that is Codex. Its words are in `_meta` of a request, which the client writes and no code in the kernel.

use std::sync::Arc;

use rmcp::model::{ExperimentalCapabilities, JsonObject};

use crate::ground::text::describe;
use crate::kernels::sandbox::ClientPermissions;
use crate::session::ToldPermissions;

/// The capability by which a server asks Codex for its sandbox, and the key in `_meta` of its answer.
const CODEX: &str = "codex/sandbox-state-meta";

/// The way on for a user whose client says what ipybox does not know.
const HINT: &str =
    "hint: update ipybox, or start it with `--ignore-client-sandbox`, which gives code all that you may";

/// Asks clients for their sandbox.
pub(super) fn capability() -> ExperimentalCapabilities {
    ExperimentalCapabilities::from([(CODEX.to_owned(), JsonObject::new())])
}

/// The permissions of the client that has sent a request with this `_meta`.
///
/// # Errors
/// It says something that is not known and may take something away. The text is for the model.
pub(super) fn of(meta: &JsonObject) -> Result<ToldPermissions, String> {
    let Some(state) = meta.get(CODEX) else { return Ok(None) };
    match ClientPermissions::of_codex(state) {
        Ok(permissions) => Ok(Some(Arc::new(permissions))),
        Err(error) => Err(format!("Not done: ipybox failed to {}\n{HINT}", describe(&error))),
    }
}
