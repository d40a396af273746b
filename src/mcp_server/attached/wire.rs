//! What passes between a person's prompt and the process that holds the session: one line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::approval::Answer;

/// What a prompt says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Said {
    /// Run this cell.
    Run {
        /// Its code.
        code: String,
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
        answer: Answer,
    },
}

/// What a prompt hears. Code and output may contain anything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "hear", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Heard {
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
        by: By,
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
        /// How many bytes.
        bytes: usize,
    },
    /// A cell has ended.
    Ended {
        /// The cell.
        cell: u64,
        /// The traceback, if an exception ended it.
        error: Option<String>,
        /// How it ended, if not by itself.
        words: String,
        /// The files of its images.
        images: Vec<PathBuf>,
        /// The file with all of its text, if there was much.
        file: Option<PathBuf>,
    },
    /// All is over that the person's `Run` has begun.
    Done {
        /// Whether the cell ran to its end.
        is_ok: bool,
        /// What else is to be said: why it did not run, what became of the kernel, what earlier cells have shown.
        notes: Vec<String>,
    },
    /// The person is asked whether something may run.
    Question {
        /// The question.
        question: u64,
        /// Its text.
        text: String,
        /// The answer that gives the grant which the text proposes, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<String>,
    },
    /// The agent's client asks its user.
    Asked {
        /// The question.
        question: u64,
        /// The call.
        call: String,
    },
    /// A question is over.
    Decided {
        /// The question.
        question: u64,
        /// How.
        how: String,
    },
    /// How code could go on.
    Completions {
        /// The id of the question.
        id: u64,
        /// What could stand there.
        matches: Vec<String>,
        /// How many characters before the cursor it would begin.
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

/// Whose a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "there are no other ones")]
pub enum By {
    /// The agent's.
    Agent,
    /// The person's own.
    You,
    /// That of another person who is attached.
    Another,
}
