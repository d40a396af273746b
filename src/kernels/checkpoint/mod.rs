//! Checkpoints: the variables of a session's kernels, saved after each cell so that a later kernel can have them back.
//!
//! ```text
//! cell ends → begin → kernel forks (ipybox_saving.py) → receive, one value after the other → end: the document is replaced
//! kernel starts → offer, in a note → restore() in a cell (ipybox_checkpoint.py) → list, load
//! ```
//!
//! The values are pickled in the kernel and loaded there. The host keeps bytes and never parses them. What a kernel under
//! other [`CheckpointConditions`] has saved is in another directory.

mod directory;
mod manifest;
mod note;
mod owner;
mod receiving;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use self::directory::{CheckpointDirectory, NotOpened};
pub(crate) use self::manifest::{CheckpointConditions, CheckpointReport};
use self::manifest::{CheckpointContent, Manifest, TOTAL_BYTES};
pub(crate) use self::owner::{CheckpointOwner, saved_sessions};
pub(crate) use self::receiving::ArrivingValue;
use crate::ground::text::describe;

/// The time that a kernel may take to send its variables; `ipybox_saving.py` gives up before.
const SAVING_TIMEOUT: Duration = Duration::from_secs(60);

/// The hint for interpreters that can save data only.
const DATA_ONLY: &str = "Functions and classes of cells are not saved: the kernel's Python has no `cloudpickle`. Install \
                         the package `cloudpickle`, and reset the kernel.";
const SILENT: &str = "The variables could not be saved: the kernel did not send them in time.";
const BUSY: &str =
    "The variables of this session are not saved: another session in this workspace saves its own.";

/// Saves the variables of a session's kernels, and offers them to the next one. Its methods block for as long as small files
/// take.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// The directories of all conditions.
    base: PathBuf,
    /// Whether variables are saved before a rest alone, and forgotten at the end.
    is_for_rest: bool,
    state: Mutex<CheckpointState>,
    /// Whether variables are being saved.
    is_saving: watch::Sender<bool>,
}

/// Why a request about saved variables is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The host has not asked for them, or has given up.
    #[error("no variables are asked for by this number")]
    NotAsked,
    /// Another value is arriving.
    #[error("values are sent one after the other")]
    Occupied,
    /// A value is too large, or all are together.
    #[error("it takes too much room")]
    TooLarge,
    /// There is no such value.
    #[error("there is no such saved variable")]
    Unknown,
    /// The file system fails.
    #[error(transparent)]
    Disk(io::Error),
}

#[derive(Debug)]
struct CheckpointState {
    conditions: CheckpointConditions,
    /// The version of the kernel's Python, once it has started.
    python: Option<String>,
    open: Option<OpenCheckpoint>,
    saving: Option<Saving>,
    /// The number of the last request.
    last_number: u64,
    /// Whether a cell has ended since the last request.
    is_due: bool,
    /// Whether the kernel has had variables since it has sent all of them last.
    is_behind: bool,
    /// Notes for the next cell.
    notes: Vec<String>,
    /// The last note about what does not work: it is added once.
    trouble: Option<String>,
    has_named_others: bool,
    /// Whether the variables are to come back before the first cell, so that nobody is offered them.
    is_resuming: bool,
    /// Whether the kernel that has saved them ended since nobody used it.
    is_resting: bool,
}

#[derive(Debug)]
struct OpenCheckpoint {
    directory: CheckpointDirectory,
    python: String,
    /// The kernel's name of its Python.
    tag: String,
    /// The variables that earlier kernels have saved.
    earlier: CheckpointContent,
    /// The variables that this kernel has saved.
    own: CheckpointContent,
}

#[derive(Debug)]
struct Saving {
    number: u64,
    until: Instant,
    /// The number of bytes that may still arrive.
    room: u64,
    is_receiving: bool,
}

/// The note about saved variables for code in the kernel.
#[derive(Debug, Default, Serialize)]
pub(crate) struct SavedNote {
    python: String,
    variables: Vec<OfferedVariable>,
    missing: Vec<manifest::UnsavedVariable>,
    /// The digests of values that need not be sent.
    kept: BTreeSet<String>,
}

#[derive(Debug, Serialize)]
struct OfferedVariable {
    name: String,
    digest: String,
    /// In seconds.
    age: u64,
}

impl Checkpoint {
    /// Checkpoints in the state directory of a workspace.
    pub(crate) fn new(state_dir: &Path, conditions: CheckpointConditions, owner: &CheckpointOwner) -> Self {
        let state = CheckpointState { is_resuming: owner.is_resumed(), ..CheckpointState::under(conditions) };
        Self {
            base: owner.directory(state_dir),
            is_for_rest: owner.is_beside(),
            state: Mutex::new(state),
            is_saving: watch::Sender::new(false),
        }
    }

    /// The kernels that start from now on run under these conditions. What the earlier ones have saved stays.
    pub(crate) fn move_to(&self, conditions: CheckpointConditions) {
        let mut state = self.state.lock();
        self.give_up_saving(&mut state);
        *state = CheckpointState {
            last_number: state.last_number,
            // What a kernel that rests has saved stays under its own conditions.
            is_resuming: state.is_resuming && !state.is_resting,
            ..CheckpointState::under(conditions)
        };
    }

    /// A fresh kernel has started, of this version of Python. What earlier ones have saved is offered to it.
    pub(crate) fn kernel_started(&self, major: u32, minor: u32) {
        let mut state = self.state.lock();
        self.give_up_saving(&mut state);
        (state.is_due, state.is_behind, state.is_resting) = (false, false, false);
        let python = format!("{major}.{minor}");
        state.python = Some(python.clone());
        match &mut state.open {
            Some(open) if open.python == python => {
                open.earlier = open.own.and(&open.earlier);
                open.own = CheckpointContent::default();
                let offer = note::offer(&open.earlier).filter(|_| !state.is_resuming);
                state.notes.extend(offer);
            }
            other => {
                // What this session has saved for another Python is worth a word.
                let has_saved = other
                    .as_ref()
                    .is_some_and(|open| !open.own.variables.is_empty() || !open.earlier.variables.is_empty());
                state.has_named_others &= !has_saved;
                self.open(&mut state, python);
            }
        }
    }

    /// A copy of a kernel runs under the same conditions, which saves its variables here, as the other one's are saved in
    /// `origin`.
    pub(crate) fn kernel_copied(&self, origin: &Self) {
        let (python, conditions) = {
            let origin = origin.state.lock();
            (origin.python.clone(), origin.conditions.clone())
        };
        let mut state = self.state.lock();
        *state = CheckpointState { python: python.clone(), ..CheckpointState::under(conditions) };
        if let Some(python) = python {
            self.open(&mut state, python);
        }
    }

    fn open(&self, state: &mut CheckpointState, python: String) {
        state.open = None;
        let (directory, found) = match CheckpointDirectory::open(&self.base, &state.conditions, &python) {
            Ok(opened) => opened,
            Err(NotOpened::Busy) => return state.note_once(BUSY.to_owned()),
            Err(NotOpened::Failed(error)) => return state.failed(&error),
        };
        let mut manifest = match found {
            Ok(manifest) => manifest,
            Err(error) => {
                state.notes.push(format!("Variables of an earlier session are lost: {error}."));
                if let Err(error) = directory.clear() {
                    return state.failed(&error);
                }
                Manifest::default()
            }
        };
        manifest.content.forget_old();
        directory.sweep(&manifest.content);
        if manifest.content.variables.is_empty() && !state.has_named_others {
            let others = directory::others(&self.base, &state.conditions, &python);
            state.notes.extend(note::not_offered(&others, &state.conditions, &python));
        }
        state.has_named_others = true;
        let Manifest { tag, content: earlier, .. } = manifest;
        state.notes.extend(note::offer(&earlier).filter(|_| !state.is_resuming));
        state.open =
            Some(OpenCheckpoint { directory, python, tag, earlier, own: CheckpointContent::default() });
    }

    /// Notes for the next cell: what can be restored, and what does not work.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut state = self.state.lock();
        // The session that has held the directory may have ended.
        if state.open.is_none()
            && let Some(python) = state.python.clone()
        {
            self.open(&mut state, python);
        }
        std::mem::take(&mut state.notes)
    }

    /// Whether variables may have to come back before the first cell.
    pub(crate) fn is_resuming(&self) -> bool {
        self.state.lock().is_resuming
    }

    /// Whether there are variables that have to come back now. From then on they are offered as ever.
    pub(crate) fn take_resuming(&self) -> bool {
        let mut state = self.state.lock();
        std::mem::take(&mut state.is_resuming)
            && state
                .open
                .as_ref()
                .is_some_and(|open| !open.earlier.variables.is_empty() || !open.earlier.missing.is_empty())
    }

    /// The note about what the next kernel can have back; `None` if there is nothing.
    pub(crate) fn offer(&self) -> Option<String> {
        let state = self.state.lock();
        let open = state.open.as_ref()?;
        note::offer(&open.own.and(&open.earlier))
    }

    /// Forgets all variables, as the user has asked for: nothing is offered to the next kernel.
    pub(crate) fn discard(&self) {
        let mut state = self.state.lock();
        self.give_up_saving(&mut state);
        state.notes.clear();
        state.is_resuming = false;
        let Some(open) = &mut state.open else { return };
        (open.earlier, open.own) = Default::default();
        if let Err(error) = open.directory.clear() {
            state.failed(&error);
        }
    }

    /// No kernel follows: another session may save its variables here.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        self.give_up_saving(&mut state);
        (state.open, state.python) = (None, None);
        if self.is_for_rest {
            directory::remove_all(&self.base);
        }
    }

    /// A cell has ended, so that variables may have changed.
    pub(crate) fn cell_ended(&self) {
        let mut state = self.state.lock();
        (state.is_due, state.is_behind) = (!self.is_for_rest, true);
    }

    /// Has the kernel save its variables, since it is to end.
    pub(crate) fn save_now(&self) {
        let mut state = self.state.lock();
        (state.is_due, state.is_behind) = (true, true);
    }

    /// Whether all that the kernel has is saved, as far as it can be.
    pub(crate) fn is_saved(&self) -> bool {
        let state = self.state.lock();
        state.open.is_some() && !state.is_behind
    }

    /// Has a kernel that has not sent its variables be asked again, unless it is doing so.
    pub(crate) fn ask_again(&self) {
        let mut state = self.state.lock();
        let is_saving = state.saving.as_ref().is_some_and(|saving| saving.until > Instant::now());
        state.is_due |= state.is_behind && !is_saving;
    }

    /// The kernel ends that has saved its variables; the next one is to have them.
    pub(crate) fn kernel_rests(&self) {
        let mut state = self.state.lock();
        (state.is_resuming, state.is_resting) = (true, true);
    }

    /// The kernel has earlier variables again, which are to be saved; they need not be restored.
    pub(crate) fn kernel_set_back(&self) {
        let mut state = self.state.lock();
        self.give_up_saving(&mut state);
        state.notes.clear();
        (state.is_due, state.is_behind) = (!self.is_for_rest, true);
    }

    /// Waits until variables are to be saved, which [`begin`](Self::begin) does. Cancellation safe.
    pub(crate) async fn due(&self) {
        loop {
            let until = {
                let state = self.state.lock();
                match &state.saving {
                    _ if !state.is_due || state.open.is_none() => None,
                    Some(saving) => Some(saving.until),
                    None => return,
                }
            };
            let Some(until) = until else { return std::future::pending().await };
            let mut is_saving = self.is_saving.subscribe();
            let ended = tokio::time::timeout_at(until, is_saving.wait_for(|is_saving| !is_saving)).await;
            if ended.is_err() {
                let mut state = self.state.lock();
                tracing::warn!("the kernel has not sent its variables in time");
                self.give_up_saving(&mut state);
                state.note_once(SILENT.to_owned());
            }
        }
    }

    /// The number by which the kernel is to send its variables now; `None` if it is not to.
    pub(crate) fn begin(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.open.is_none() || state.saving.is_some() || !state.is_due {
            return None;
        }
        state.is_due = false;
        state.last_number += 1;
        let number = state.last_number;
        let until = Instant::now() + SAVING_TIMEOUT;
        state.saving = Some(Saving { number, until, room: TOTAL_BYTES, is_receiving: false });
        self.is_saving.send_replace(true);
        Some(number)
    }

    /// Removes what has arrived: no document will name it.
    fn give_up_saving(&self, state: &mut CheckpointState) {
        if state.saving.take().is_some()
            && let Some(open) = &state.open
        {
            open.directory.sweep(&open.own.and(&open.earlier));
        }
        self.is_saving.send_replace(false);
    }

    /// The variables that can be restored.
    pub(crate) fn saved(&self) -> SavedNote {
        let state = self.state.lock();
        let Some(open) = &state.open else { return SavedNote::default() };
        let offered = |variable: &manifest::SavedVariable| OfferedVariable {
            name: variable.name.clone(),
            digest: variable.digest.clone(),
            age: variable.age().as_secs(),
        };
        let all = open.earlier.variables.iter().chain(&open.own.variables);
        SavedNote {
            python: open.tag.clone(),
            variables: open.earlier.variables.iter().map(offered).collect(),
            missing: open.earlier.missing.clone(),
            kept: all.map(|variable| variable.digest.clone()).collect(),
        }
    }

    /// The file of an offered variable, and its length.
    ///
    /// # Errors
    /// It is not offered, or its file is gone or damaged in a way that shows without reading it.
    pub(crate) fn load(&self, name: &str, digest: &str) -> Result<(File, u64), Error> {
        let state = self.state.lock();
        let open = state.open.as_ref().ok_or(Error::Unknown)?;
        let mut variables = open.earlier.variables.iter();
        let found = variables.find(|variable| variable.name == name && variable.digest == digest);
        let variable = found.ok_or(Error::Unknown)?;
        if !open.directory.has(digest, variable.bytes) {
            let damaged = "the saved data is damaged: it was cut or removed";
            return Err(Error::Disk(io::Error::new(io::ErrorKind::InvalidData, damaged)));
        }
        let file = open.directory.read(digest).map_err(Error::Disk)?;
        Ok((file, variable.bytes))
    }

    /// The kernel has sent all variables: they replace those that it had saved before.
    ///
    /// # Errors
    /// The host has not asked for them, or the document cannot be written. Then the earlier one holds on.
    pub(crate) fn end(&self, number: u64, report: CheckpointReport) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut saving = state.saving.as_ref();
        saving = saving.filter(|saving| saving.number == number && !saving.is_receiving);
        let open = state.open.as_mut().filter(|_| saving.is_some()).ok_or(Error::NotAsked)?;
        let tag = report.python.clone();
        let has_cloudpickle = report.has_cloudpickle;
        let restored = report.restored.clone();
        let own = report.content(|digest, bytes| open.directory.has(digest, bytes));
        let left = open.earlier.left_by(&own, &restored);
        let manifest = Manifest {
            conditions: state.conditions.clone(),
            python: open.python.clone(),
            tag: tag.clone(),
            content: own.and(&left),
        };
        let written = open.directory.write(&manifest);
        if written.is_ok() {
            (open.own, open.earlier, open.tag) = (own, left, tag);
            state.saving = None;
            state.is_behind = state.is_due;
        }
        self.give_up_saving(state);
        match written {
            Ok(()) if !has_cloudpickle => state.note_once(DATA_ONLY.to_owned()),
            Ok(()) => state.trouble = None,
            Err(error) => {
                state.failed(&error);
                return Err(Error::Disk(error));
            }
        }
        Ok(())
    }
}

impl CheckpointState {
    fn under(conditions: CheckpointConditions) -> Self {
        Self {
            conditions,
            python: None,
            open: None,
            saving: None,
            last_number: 0,
            is_due: false,
            is_behind: false,
            notes: Vec::new(),
            trouble: None,
            has_named_others: false,
            is_resuming: false,
            is_resting: false,
        }
    }

    fn failed(&mut self, error: &io::Error) {
        tracing::warn!(error = %describe(error), "variables could not be saved");
        // The error's own text has a name that is different each time.
        self.note_once(format!("The variables could not be saved in the state directory: {}.", error.kind()));
    }

    /// Adds a note, unless it is the last one of its kind.
    fn note_once(&mut self, note: String) {
        if self.trouble.as_ref() != Some(&note) {
            self.trouble = Some(note.clone());
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests;
