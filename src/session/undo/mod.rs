//! Undo: the states of the kernel before its newest cells, so that these can be undone.
//!
//! ```text
//! cell begins: the state of now becomes the one before it → cell ends → the kernel forks: the state of now, asleep
//! undo: claim (here) → awaken (`session/waking`): the state becomes the kernel, the later ones end
//! ```
//!
//! The states share their memory with the kernel until one of them writes. What they hold beside it is within a budget: the
//! oldest go first.

mod effects;
mod states;
mod undone;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(super) use self::effects::CellEffect;
use self::effects::EffectLog;
use self::states::StateAllowance;
pub(super) use self::states::StateBefore;
pub(crate) use self::undone::UndoResult;
use super::site::SleepingKernel;
use crate::ground::text::{cell_id, cell_number, one_line, shortened};

/// The number of cells that are remembered.
const MOST_CELLS: usize = 64;
/// The number of characters of a cell's code that name it.
const TITLE_CHARS: usize = 60;
/// The part of the session's memory that states may take.
const PART_OF_MEMORY: u64 = 4;

/// The cells that are to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndoTarget {
    /// So many, the newest.
    Cells(usize),
    /// The one with this id, and those after it.
    From(u64),
}

impl UndoTarget {
    /// The cell with this id, such as `cell-7`, and those after it.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn from_id(id: &str) -> Result<Self, UndoError> {
        cell_number(id).map(Self::From).ok_or_else(|| UndoError::NoId(id.to_owned()))
    }
}

/// Why cells cannot be undone. The kernel goes on as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndoError {
    /// Nothing here holds what the client allows.
    #[error("undo a cell")]
    Disobedient(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No states are kept.
    #[error("undo a cell: no states are kept\nhint: `--undo-memory 512M` keeps them within 512 MiB")]
    Off,
    /// The kernel is on another machine.
    #[error(
        "undo a cell: a Jupyter server runs the kernel, and only kernels of ipybox's own have states that are kept"
    )]
    Remote,
    /// There are not so many.
    #[error("undo {asked} cells: there are {there}")]
    TooMany { asked: usize, there: usize },
    /// It is no id.
    #[error("undo cells: `{0}` is no id such as `cell-3`")]
    NoId(String),
    /// It is not one of them.
    #[error("undo `{}`: it is none of the last cells of this session", cell_id(*.0))]
    Unknown(u64),
    /// There is no state before it.
    #[error("undo {cell}: its state was not kept: {why}{other}")]
    Missing { cell: String, why: String, other: String },
}

/// The last cells of a session, the states of the kernel before them, and what they have done beside the kernel.
pub(super) struct UndoHistory {
    /// In bytes.
    budget: u64,
    is_remote: bool,
    /// `None` if the files of code are on another machine.
    pub(super) places: Option<WatchedPlaces>,
    past: Mutex<Past>,
    /// Notified when states have come, a cell begins, or nothing follows.
    changed: Notify,
}

/// The places in which an undo looks for files that have changed.
#[derive(Clone)]
pub(super) struct WatchedPlaces {
    pub(super) workspace: PathBuf,
    /// Those that ipybox itself writes.
    pub(super) apart: Vec<PathBuf>,
}

struct Past {
    /// The oldest first.
    cells: VecDeque<PastCell>,
    /// The state of the kernel after the last of them.
    now: StateBefore,
    effects: EffectLog,
    allowance: StateAllowance,
    is_running: bool,
    /// Whether an undo is under way.
    is_claimed: bool,
    is_closed: bool,
    /// The number of times that all states were forgotten.
    forgotten: u64,
}

/// A cell that begins.
pub(super) struct BegunCell<'a> {
    pub(super) code: &'a str,
    pub(super) id: Option<u64>,
    /// Its number in the audit log.
    pub(super) audited: Option<u64>,
    /// The number of the last cell in the kernel before it.
    pub(super) number: u64,
    /// When it began, by the clock of files.
    pub(super) begun: SystemTime,
}

/// A cell that has begun.
pub(super) struct PastCell {
    id: Option<u64>,
    /// Its number in the audit log.
    pub(super) audited: Option<u64>,
    pub(super) title: String,
    pub(super) begun: SystemTime,
    /// The number of effects before it.
    effects: u64,
    /// The number of the last cell in the kernel before it.
    pub(super) number: u64,
    pub(super) before: StateBefore,
}

/// A state that is to be the kernel's, and what follows from that.
pub(super) struct UndoClaim {
    pub(super) state: StateBefore,
    /// The cells that are undone.
    pub(super) cells: Vec<PastCell>,
    pub(super) effects: Vec<CellEffect>,
    /// The number in the audit log of the last cell that is not undone.
    pub(super) parent: u64,
    forgotten: u64,
}

impl UndoHistory {
    /// Keeps states that take so much memory at most, in bytes, of a session that may be limited to this `memory`.
    pub(super) fn new(
        most: u64,
        memory: Option<u64>,
        is_remote: bool,
        places: Option<WatchedPlaces>,
    ) -> Self {
        let budget = most.min(memory.map_or(u64::MAX, |memory| memory / PART_OF_MEMORY));
        Self {
            budget,
            is_remote,
            places,
            past: Mutex::new(Past {
                cells: VecDeque::new(),
                now: StateBefore::Missing("the session began with it".to_owned()),
                effects: EffectLog::default(),
                allowance: StateAllowance::default(),
                is_running: false,
                is_claimed: false,
                is_closed: false,
                forgotten: 0,
            }),
            changed: Notify::new(),
        }
    }

    fn is_on(&self) -> bool {
        !self.is_remote && self.budget > 0
    }

    /// A cell begins that can be undone.
    pub(super) fn cell_begins(&self, cell: BegunCell<'_>) {
        if !self.is_on() {
            return;
        }
        let BegunCell { code, id, audited, number, begun } = cell;
        let mut past = self.past.lock();
        let title = match id {
            Some(id) => format!("`{}` (`{}`)", cell_id(id), title(code)),
            None => format!("`{}`", title(code)),
        };
        past.push(title, id, audited, number, begun);
        past.is_running = true;
        drop(past);
        self.changed.notify_one();
    }

    /// The kernel is lost, with the variables that it had after the last cell.
    pub(super) fn kernel_lost(&self, number: u64) {
        let mut past = self.past.lock();
        past.is_running = false;
        // Else a cell has ended it, before which there may be a state.
        if matches!(past.now, StateBefore::Kept(_)) {
            past.push("the end of the kernel".to_owned(), None, None, number, SystemTime::now());
        }
    }

    /// A fresh kernel has started.
    pub(super) fn kernel_started(&self) {
        self.past.lock().now = StateBefore::Fresh;
    }

    /// The state to offer after a kernel was lost, in words.
    pub(super) fn offer(&self) -> Option<String> {
        let past = self.past.lock();
        let (count, cell) = past.newest_kept(past.cells.len())?;
        Some(format!("`reset(cells={count})` brings the variables back as they were before {}.", cell.title))
    }

    /// Has an undo answer that this was done.
    pub(super) fn note(&self, effect: CellEffect) {
        if self.is_on() {
            self.past.lock().effects.add(effect);
        }
    }

    /// Whether an undo is under way: a running cell is undone as soon as it is stopped.
    pub(super) fn is_claimed(&self) -> bool {
        self.past.lock().is_claimed
    }

    /// Takes the state before cells out, which are forgotten.
    ///
    /// # Errors
    /// See [`UndoError`].
    pub(super) fn claim(&self, target: UndoTarget) -> Result<UndoClaim, UndoError> {
        if self.is_remote {
            return Err(UndoError::Remote);
        }
        if self.budget == 0 {
            return Err(UndoError::Off);
        }
        let mut past = self.past.lock();
        let first = past.position(target)?;
        if let StateBefore::Missing(why) = &past.cells[first].before {
            let cell = past.cells[first].title.clone();
            let why = why.clone();
            let other = past.newest_kept(first).map(|(count, cell)| {
                format!("\nhint: `reset(cells={count})` goes back to the state before {}", cell.title)
            });
            return Err(UndoError::Missing { cell, why, other: other.unwrap_or_default() });
        }
        let mut cells: Vec<PastCell> = past.cells.drain(first..).collect();
        let effects = past.effects.since(cells[0].effects);
        let state = std::mem::replace(&mut cells[0].before, StateBefore::Missing(String::new()));
        let parent = past.cells.iter().rev().find_map(|cell| cell.audited).unwrap_or(0);
        past.is_claimed = true;
        Ok(UndoClaim { state, cells, effects, parent, forgotten: past.forgotten })
    }

    /// Whether no reset, and no client that allows less, has come since the claim: else it is void.
    pub(super) fn holds(&self, claim: &UndoClaim) -> bool {
        self.past.lock().forgotten == claim.forgotten
    }

    /// Takes all states out; they are to be ended.
    pub(super) fn forget(&self) -> Vec<SleepingKernel> {
        let mut past = self.past.lock();
        past.forgotten += 1;
        let now = std::mem::replace(&mut past.now, StateBefore::Fresh);
        let states = past.cells.drain(..).map(|cell| cell.before).chain([now]);
        states.filter_map(StateBefore::into_state).collect()
    }

    /// Ends all states, and the task that watches them.
    pub(super) async fn close(&self) {
        self.past.lock().is_closed = true;
        self.changed.notify_one();
        end_all(self.forget()).await;
    }
}

/// Ends states.
pub(super) async fn end_all(states: Vec<SleepingKernel>) {
    futures::future::join_all(states.into_iter().map(SleepingKernel::end)).await;
}

impl Past {
    fn push(&mut self, title: String, id: Option<u64>, audited: Option<u64>, number: u64, begun: SystemTime) {
        if self.cells.len() == MOST_CELLS {
            // Dropping its state ends it.
            self.cells.pop_front();
        }
        let effects = self.effects.count();
        let running = StateBefore::Missing("the cell before it had not ended".to_owned());
        let before = std::mem::replace(&mut self.now, running);
        self.cells.push_back(PastCell { id, audited, title, begun, effects, number, before });
    }

    fn position(&self, target: UndoTarget) -> Result<usize, UndoError> {
        let there = self.cells.len();
        match target {
            UndoTarget::Cells(asked) => {
                let first = there.checked_sub(asked).filter(|_| asked > 0);
                first.ok_or(UndoError::TooMany { asked, there })
            }
            UndoTarget::From(id) => {
                let found = self.cells.iter().position(|cell| cell.id == Some(id));
                found.ok_or(UndoError::Unknown(id))
            }
        }
    }

    /// The newest cell before position `end` before which there is a state, and how many are undone with it.
    fn newest_kept(&self, end: usize) -> Option<(usize, &PastCell)> {
        let is_kept = |cell: &&PastCell| matches!(cell.before, StateBefore::Kept(_));
        let (position, cell) = self.cells.iter().enumerate().take(end).rfind(|(_, cell)| is_kept(cell))?;
        Some((self.cells.len() - position, cell))
    }
}

fn title(code: &str) -> String {
    let line = code.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    shortened(&one_line(line), TITLE_CHARS).replace('`', "'")
}

#[cfg(test)]
mod tests;
