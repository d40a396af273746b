//! The file of answers that hold for good. Several servers on one workspace may use it at the same time, and its owner may
//! edit it.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::approval::action::{Action, AlikeActions, as_python};
use crate::approval::provenance::{Label, ServerLabels};
use crate::ground::files::StateFile;

/// The number of characters of a call that are saved for readers of the file; scripts may be long.
const SHOWN_CHARS: usize = 500;

#[derive(Default, Serialize, Deserialize)]
struct AnswersDocument {
    #[serde(default)]
    approvals: Vec<SavedApproval>,
    /// The user's labels for the data of servers.
    #[serde(default, skip_serializing_if = "ServerLabels::is_empty")]
    labels: ServerLabels,
}

#[derive(Serialize, Deserialize)]
struct SavedApproval {
    #[serde(flatten)]
    like: AlikeActions,
    /// The call, if its arguments are compared; for readers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shown: Option<String>,
}

/// The file.
#[derive(Debug)]
pub(super) struct SavedAnswers(StateFile);

impl SavedAnswers {
    pub(in crate::approval) fn new(path: PathBuf) -> Self {
        Self(StateFile::new(path))
    }

    /// Whether alike actions are always allowed. Reads the file: another process may have written it. Blocks.
    pub(in crate::approval) fn contains(&self, like: &AlikeActions) -> io::Result<bool> {
        let document: AnswersDocument = self.0.read()?;
        Ok(document.approvals.iter().any(|approval| approval.like == *like))
    }

    /// The labels of servers. Blocks.
    pub(in crate::approval) fn labels(&self) -> io::Result<ServerLabels> {
        Ok(self.0.read::<AnswersDocument>()?.labels)
    }

    /// Gives a server a label, or takes it away; an error leaves the file unchanged. Blocks.
    pub(in crate::approval) fn label(&self, server: &str, label: Option<Label>) -> io::Result<()> {
        if label.is_none() && self.labels()?.of(server).is_none() {
            return Ok(());
        }
        self.0.change(|document: &mut AnswersDocument| document.labels.set(server, label))
    }

    /// Whether the same tool was always allowed as it was defined earlier. Blocks.
    pub(super) fn has_earlier(&self, now: &AlikeActions) -> io::Result<bool> {
        let document: AnswersDocument = self.0.read()?;
        Ok(document.approvals.iter().any(|approval| approval.like.is_of_earlier(now)))
    }

    /// Always allows actions like `action` from now on; an error leaves the file unchanged. Blocks.
    pub(in crate::approval) fn add(&self, action: &Action) -> io::Result<()> {
        let like = AlikeActions::of(action);
        let shown = like.has_arguments().then(|| {
            let call = std::fmt::from_fn(|formatter| as_python::call(action, formatter)).to_string();
            call.chars().take(SHOWN_CHARS).collect()
        });
        self.0.change(|document: &mut AnswersDocument| {
            if !document.approvals.iter().any(|approval| approval.like == like) {
                document.approvals.push(SavedApproval { like, shown });
            }
        })
    }
}
