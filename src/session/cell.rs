//! A cell: the code to run, and what comes of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::end::CellEnding;
use super::permissions::ToldPermissions;
use crate::approval::{Approver, CellOutput};
use crate::kernels::kernel::PythonError;
use crate::kernels::output::{OutputText, RecordedOutput, UnreadText};
use crate::session::notebook::CellEnd;

/// Code to run.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The code, as a user would type it into IPython.
    pub(crate) code: String,
    /// The time that it may run. Waiting in the queue, for the kernel and for approval does not count.
    pub(crate) timeout: Duration,
    /// The number of characters of its output that are returned.
    pub(crate) max_output_chars: usize,
    /// Ends the cell: at once if it is queued, by an interrupt if it runs.
    pub(crate) cancel: CancellationToken,
    /// Receives text while it is produced.
    pub(crate) chunks: Option<mpsc::Sender<String>>,
    /// Gets the same text, for whoever does not wait until the end.
    pub(crate) unread: Option<Arc<UnreadText>>,
    /// Decides about the tool calls of its code. While an approval request waits, the timeout does not run.
    pub(crate) approver: Approver,
    /// The permissions of its client.
    pub(crate) client: ToldPermissions,
    /// Whether its reader has views.
    pub(crate) has_views: bool,
    /// Whose cell it is.
    pub(crate) author: CellRequester,
    /// The number in the id by which its agent knows it.
    pub(crate) id: Option<u64>,
}

/// The party that wants a cell to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellRequester {
    /// The agent, or the application.
    Agent,
    /// A person who is attached to the session, by number.
    Person(u64),
    /// ipybox itself.
    Ourselves,
}

/// The end of a cell, and its output.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Its output, after the images and files of late output.
    pub(crate) shown: RecordedOutput,
    /// Late output: what earlier cells have shown since the last outcome, after they had ended.
    pub(crate) late: OutputText,
    /// The end of the cell.
    pub(crate) end: CellEnding,
    /// The exception that ended its code. After an interrupt it shows where the code was.
    pub(crate) error: Option<PythonError>,
    /// Notes beyond the cell's own output: variables were lost before it, an image was lost.
    pub(crate) notes: Vec<String>,
    /// The offer to bring the variables back, if the kernel is lost.
    pub(crate) offer: Option<String>,
}

impl Cell {
    /// A cell of ipybox itself; nobody approves its calls, for the reason `why`.
    pub(crate) fn ours(
        code: String,
        timeout: Duration,
        max_output_chars: usize,
        cancel: CancellationToken,
        why: &'static str,
    ) -> Self {
        let approver = Approver::Nobody(why);
        Self {
            code,
            timeout,
            max_output_chars,
            cancel,
            chunks: None,
            unread: None,
            approver,
            client: None,
            has_views: false,
            author: CellRequester::Ourselves,
            id: None,
        }
    }
}

impl Cell {
    /// Whether it can be undone, so that the state before it is worth its memory.
    pub(super) fn can_be_undone(&self) -> bool {
        self.author != CellRequester::Ourselves && !self.code.trim().is_empty()
    }
}

impl CellRequester {
    /// Whether the code may call tools, so that the cell waits for servers that are yet to be registered.
    pub(super) fn calls_tools(self) -> bool {
        self != Self::Ourselves
    }

    /// The author in a word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Person(_) => "person",
            Self::Ourselves => "ipybox",
        }
    }
}

impl Outcome {
    /// The outcome of a cell that ended before its code ran.
    pub(crate) fn not_run(end: CellEnding) -> Self {
        Self {
            shown: RecordedOutput::default(),
            late: OutputText::default(),
            end,
            error: None,
            notes: Vec::new(),
            offer: None,
        }
    }

    /// The report of an end that the code did not reach by itself, and what can be done about it; else empty.
    pub(crate) fn words(&self) -> String {
        let offer = self.offer.as_ref().map(|offer| format!("\n{offer}"));
        self.end.words() + offer.as_deref().unwrap_or_default()
    }

    /// The end in the audit log's word.
    pub(super) fn word(&self) -> &'static str {
        match &self.end {
            CellEnding::Finished if self.error.is_some() => "error",
            CellEnding::Finished => "finished",
            CellEnding::TimedOut { .. } => "timed_out",
            CellEnding::Cancelled(_) => "cancelled",
            CellEnding::NotRun => "not_run",
            CellEnding::Reset => "reset",
            CellEnding::Died(_) => "died",
            CellEnding::Unanswered | CellEnding::Unreachable(_) => "unknown",
        }
    }

    /// Its end, for those who watch and for the notebook.
    pub(super) fn ended(&self) -> CellEnd {
        CellEnd {
            word: self.word(),
            words: self.words(),
            late: self.late.excerpt.clone(),
            notes: self.notes.clone(),
            images: self.shown.images.iter().map(|image| image.path.clone()).collect(),
            files: self.shown.files.iter().map(|file| file.path.clone()).collect(),
            file: self.shown.text.cut.as_ref().and_then(|cut| cut.file.clone()),
        }
    }

    /// The amount of output, for the audit log.
    pub(super) fn output(&self) -> CellOutput<'_> {
        let OutputText { excerpt, cut } = &self.shown.text;
        let chars = cut.as_ref().map_or_else(|| excerpt.chars().count(), |cut| cut.chars);
        CellOutput { excerpt, chars, images: self.shown.images.len() }
    }
}
