//! The messages between a face for people, a prompt or a page, and the process that holds the session: one line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{SeenChange, ShownCall, WaitingCopy};
use crate::approval::{Label, PastDecision, SettleAction, UserAnswer};

/// A message of a prompt or a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PersonMessage {
    /// Run this cell.
    Run {
        /// Its code.
        code: String,
    },
    /// Undo the newest cells, whoever has run them. The cell that runs is stopped, and counts.
    Undo {
        /// Their number.
        cells: usize,
    },
    /// Interrupt the person's cell, or take it out of the queue.
    Interrupt,
    /// How could this code go on?
    Complete {
        /// Comes back with the answer.
        id: u64,
        /// The code.
        code: String,
        /// The position in it, in bytes.
        cursor: usize,
    },
    /// Is this code complete?
    Check {
        /// Comes back with the answer.
        id: u64,
        /// The code.
        code: String,
    },
    /// The answer to a question.
    Answer {
        /// The question.
        question: u64,
        /// The answer.
        answer: UserAnswer,
        /// The label for the data of the server that is registered; `None` leaves it as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<Label>,
    },
    /// End a grant.
    Revoke {
        /// Its number.
        grant: u64,
    },
    /// Ask here what the user of the agent's client is asked, too. The first answer counts.
    AskAll,
    /// Somebody looks at the page, or nobody does any more.
    Look {
        /// Whether somebody does.
        is_looking: bool,
    },
    /// Which decisions have there been in the session?
    History,
    /// A question for the changes that wait in copies of the workspace.
    Changes,
    /// Apply or discard changes that wait, as they were shown.
    Settle {
        /// The id of the copy.
        copy: String,
        /// Their fate.
        action: SettleAction,
        /// The changes.
        seen: Vec<SeenChange>,
    },
}

/// A message to a prompt or a page. Code and output may contain anything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "hear", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionMessage {
    /// The session is ready for the person's cells.
    Ready {
        /// The number of the last cell.
        number: u64,
    },
    /// A cell has been given to the kernel.
    Began {
        /// The cell.
        cell: u64,
        /// Its number in the kernel.
        number: u64,
        /// Whose it is.
        by: CellAuthor,
        /// Its code.
        code: String,
    },
    /// A cell has shown a text.
    Text {
        /// The cell.
        cell: u64,
        /// The text.
        text: String,
    },
    /// Some text of a cell came too fast.
    LeftOut {
        /// The cell.
        cell: u64,
        /// The size in bytes.
        bytes: usize,
    },
    /// A cell has ended.
    Ended {
        /// The cell.
        cell: u64,
        /// The traceback, if an exception ended it.
        error: Option<String>,
        /// The way it ended, if not by itself.
        words: String,
        /// The files of its images.
        images: Vec<PathBuf>,
        /// The copies of files that it has shown.
        files: Vec<PathBuf>,
        /// The file with all of its text, if there was much.
        file: Option<PathBuf>,
    },
    /// All is over that the person's `Run` or `Undo` has begun.
    Done {
        /// Whether the cell ran to its end.
        is_ok: bool,
        /// The further remarks: why it did not run, what became of the kernel, what earlier cells have shown.
        notes: Vec<String>,
        /// The number of the last cell, after an undo.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
    },
    /// The person is asked whether something may run.
    Question {
        /// The question.
        question: u64,
        /// Its text, for a prompt.
        text: String,
        /// The grant that the text proposes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<GrantOffer>,
        /// Why the call is outside of the grants that there are for its tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outside: Option<String>,
        /// The call that is asked about.
        call: ShownCall,
        /// The extent of answers that hold longer.
        scope: String,
        /// The time that it waits for its answer, in milliseconds; `None` if the time has not begun.
        left_ms: Option<u64>,
    },
    /// The questions that come next can be asked together.
    Together {
        /// The questions, in the order of the rows.
        questions: Vec<u64>,
        /// A table of them with its heading, for a prompt.
        text: String,
    },
    /// The agent's client asks its user.
    Asked {
        /// The question.
        question: u64,
        /// The call as text, for a prompt.
        text: String,
        /// The call.
        call: ShownCall,
    },
    /// A question is over.
    Decided {
        /// The question.
        question: u64,
        /// The decision in words.
        how: String,
    },
    /// It was decided about a call without a question: by a rule, a grant or an earlier answer.
    Ruled {
        /// The decision.
        decision: PastDecision,
    },
    /// Whose session it is. It is sent when that changes.
    About {
        /// The workspace.
        workspace: String,
        /// The name and version of the client, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<String>,
    },
    /// The decisions that there have been, from the audit log; none if there is no log.
    History {
        /// The newest last.
        decisions: Vec<PastDecision>,
    },
    /// The grants that hold from now on. They are sent when they change.
    Grants {
        /// The oldest first.
        grants: Vec<StandingGrant>,
    },
    /// The changes that wait.
    Changes {
        /// The copies of the workspace that have any.
        copies: Vec<WaitingCopy>,
        /// The fate of some of them just now, or the reason why they cannot be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The possible continuations of code.
    Completions {
        /// The id of the question.
        id: u64,
        /// The texts that could stand there.
        matches: Vec<String>,
        /// The number of characters before the cursor at which it would begin.
        before: usize,
    },
    /// Whether code is complete; `None` if nobody can say now.
    Checked {
        /// The id of the question.
        id: u64,
        /// Whether it is.
        is_complete: Option<bool>,
    },
}

/// A grant that a question proposes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GrantOffer {
    /// The answer that gives it, in words.
    pub choice: String,
    /// The calls that it allows.
    pub covers: String,
}

impl GrantOffer {
    pub(crate) fn new(choice: String, covers: String) -> Self {
        Self { choice, covers }
    }
}

/// A grant that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StandingGrant {
    /// Its number in the session.
    pub id: u64,
    /// The number of further calls that it allows.
    pub left: u32,
    /// The calls that it allows.
    pub covers: String,
    /// Whether it ends with the cell.
    pub is_of_cell: bool,
}

impl StandingGrant {
    pub(crate) fn new(id: u64, left: u32, covers: String, is_of_cell: bool) -> Self {
        Self { id, left, covers, is_of_cell }
    }
}

/// Whose a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "there are no other ones")]
pub enum CellAuthor {
    /// The agent's.
    Agent,
    /// The person's own.
    You,
    /// That of another person who is attached.
    Another,
}
