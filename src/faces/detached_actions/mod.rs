//! Saved actions beyond the sessions that saved them: fresh kernels that run them, and scripts that need no ipybox.
//!
//! ```text
//! served call → ActionKernels → a session in an empty workspace: the saved files, and packages of the action's servers
//! export      → ActionKernels (which packages do its imports need?) → a script
//! ```
//!
//! The workspace's own copies, which code can change, are used for neither.

mod export;
mod kernels;
mod literal;
mod parameters;
mod script;
mod shelf;

pub use self::export::{ExportActionError, ExportActionOptions, export_action};
pub use self::kernels::KernelActionError;
pub(crate) use self::kernels::{ActionCell, ActionKernel, ActionKernels, ActionRun};
pub(crate) use self::shelf::{ActionShelf, ShelvedAction};
