//! Saved actions: Python functions that agents have kept because they worked.
//!
//! The copy in the workspace, `gentools/<category>/<name>/`, is what code imports, and code can change it. The state directory
//! has the copy that the host trusts, with the record of it:
//!
//! ```text
//! actions/<category>/<name>/action.json   the record of the newest version
//! actions/<category>/<name>/<version>/    __init__.py, api.py, impl.py, parsers that it imports, and test.jsonl, a recording
//! actions/uses.json                       in how many cells each has worked
//! ```
//!
//! Reasons: `docs/decisions/search.md`.

mod bundle;
mod calls;
mod draft;
mod imports;
mod published;
mod record;
mod state;
mod store;
mod uses;
mod workspace;

pub(crate) use self::bundle::{ActionBundle, BundleError};
pub(crate) use self::calls::ImportedActions;
pub(crate) use self::draft::{ActionDraft, ActionSaver, UnusableDraft};
pub(crate) use self::published::{PublishedAction, PublishedActions, UnusablePublication};
pub(crate) use self::record::{
    ActionFiles, ActionTest, SandboxOfTest, SavedAction, TEST, ToolDigests, UsedAction,
};
pub(crate) use self::state::{ActionStamp, ActionState};
pub(crate) use self::store::ActionStore;
pub(crate) use self::uses::UseCount;
pub(crate) use self::workspace::WorkspaceActions;
