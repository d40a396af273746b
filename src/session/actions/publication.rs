//! Asks for a saved action to be served to everybody by the server of a team, whose approvers decide.
//!
//! The server keeps what they have seen: this process runs with its user's rights, and keeps nothing of it.

use std::io;

use serde_json::json;

use super::{SessionActions, blocking, record_end};
use crate::approval::{Action, AllowedAction, DenialReason, NamedApprovers, Target};
use crate::tools::actions::{ActionBundle, ActionStore, PublishedAction, UnusablePublication};

/// The place of the rule that names the approvers.
const RULE: &str = "`[actions]` of the server";

/// Why an action is not published.
#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error("publish an action: only `ipybox team` does, with a table `[actions]` in its configuration")]
    NoServer,
    #[error("read the saved action")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Unusable(#[from] UnusablePublication),
    #[error(transparent)]
    Denied(#[from] DenialReason),
    #[error("publish what was allowed: {0}")]
    Undone(String),
}

impl SessionActions {
    /// Those who decide about what is published.
    ///
    /// # Errors
    /// Nothing is.
    pub(super) fn publishers(&self) -> Result<NamedApprovers, PublishError> {
        let front = self.config.front.as_ref();
        let publishers = front.and_then(|front| front.publishers.clone()).ok_or(PublishError::NoServer)?;
        Ok(NamedApprovers { names: publishers.names, includes_user: publishers.includes_user })
    }

    /// Has approvers decide about the newest version of an action, with all that it uses.
    pub(super) async fn publish(&self, name: &str) -> Result<(), PublishError> {
        let publishers = self.publishers()?;
        let store = ActionStore::in_directory(&self.config.state_dir);
        let name = name.to_owned();
        let reading = move || {
            let action = store.get(&name)?.ok_or(io::ErrorKind::NotFound)?;
            let bundle = ActionBundle::of_saved(&store, &action)?;
            Ok(PublishedAction::of(&action, bundle))
        };
        let arguments = blocking(reading).await?.arguments()?;
        let arguments = arguments.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let action = Action::ours("publish_action", arguments, Target::Host);
        let AllowedAction { on_record, undone } =
            self.gate.decide_by_approvers(action, publishers, RULE).await?;
        let published = undone.map_or(Ok(()), |why| Err(PublishError::Undone(why)));
        record_end(Some(on_record), &published, |()| json!("published"));
        published
    }
}
