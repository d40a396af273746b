//! Saved actions beyond the sessions that saved them: fresh kernels that run them, and scripts that need no ipybox.
//!
//! ```text
//! served call → ActionKernels → a session in an empty workspace: the saved files, and packages of the action's servers
//! export      → ActionKernels (which packages do its imports need?) → a script
//! ```
//!
//! The workspace's own copies, which code can change, are used for neither.

mod export;
mod front;
mod kernels;
mod literal;
mod parameters;
mod script;
mod shelf;

use serde_json::{Map, Value};

pub use self::export::{ExportActionError, ExportActionOptions, export_action};
pub use self::front::ActionTeam;
pub use self::kernels::KernelActionError;
pub(crate) use self::kernels::{ActionCell, ActionKernel, ActionKernels, ActionRun};
pub(crate) use self::shelf::{ActionShelf, ShelvedAction};
use crate::ground::text::describe;
use crate::tools::actions::PublishedAction;

/// The category and the name of an action, in the words that ask approvers to publish it. Nothing in them is trusted.
///
/// # Errors
/// It cannot be published: why, in words.
pub fn published_names(arguments: &Map<String, Value>) -> Result<[String; 2], String> {
    let published = PublishedAction::parse(arguments).map_err(|error| describe(&error))?;
    Ok([published.category, published.name])
}
