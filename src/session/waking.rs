//! Undo in the worker: it has states made after cells, and one take the place of the kernel.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::Error;
use super::lost::lost_note;
use super::phase::StartPhase;
use super::site::{self, BranchFailure, SleepingKernel};
use super::undo::{CellEffect, PastCell, StateBefore, UndoClaim, UndoResult, WatchedPlaces, end_all};
use super::worker::KernelWorker;
use crate::ground::files::{ChangedFiles, changed_since};
use crate::ground::text::{describe, one_line};
use crate::kernels::kernel::{self, BranchError};

/// The time in which changed files are looked for. A disk may not answer.
const FILES_TIMEOUT: Duration = Duration::from_secs(15);

impl KernelWorker {
    /// Keeps the state of the kernel after a cell, which has been answered.
    pub(super) async fn keep_state(&mut self) {
        let Some(kernel) = self.kernel.as_mut().filter(|_| self.history.is_due()) else { return };
        let begun = Instant::now();
        let mut said = Vec::new();
        let kept = self.kernels.keep_state(kernel, &mut said).await;
        self.history.enter(kept.map_err(|error| why_not(&error)), begun.elapsed());
        for event in said {
            self.take_event(event).await;
        }
    }

    /// Has the kernel be as it was before cells. If it cannot, the kernel goes on as before.
    pub(super) async fn undo(&mut self, claim: UndoClaim) -> Result<UndoResult, Error> {
        if !self.history.holds(&claim) {
            self.history.claim_ends(false);
            if self.kernel.is_none() {
                self.start_kernel().await?;
            }
            return Err(Error::Kernel(site::Error::Kernel(kernel::Error::Connection(
                "the state was given up meanwhile".into(),
            ))));
        }
        let UndoClaim { state, cells, effects, parent, .. } = claim;
        let (notes, is_back) = match state {
            StateBefore::Kept(state) => (self.awaken(state, &cells).await, true),
            StateBefore::Fresh | StateBefore::Missing(_) => {
                (self.begin_anew().await.map(|()| Vec::new()), false)
            }
        };
        let later = self.history.claim_ends(is_back && notes.is_ok());
        let notes = notes?;
        let titles = cells.iter().map(|cell| cell.title.clone()).collect();
        let first = &cells[0];
        let count = cells.len();
        let begun = cells[0].begun;
        self.gate.audit().undone(first.audited.unwrap_or(0), count, parent);
        self.audience.undone(first.number, &first.title);
        let states = cells.into_iter().filter_map(|cell| cell.before.into_state()).chain(later);
        end_all(states.collect()).await;
        self.refresh_imports(None).await;
        for effect in &effects {
            if let CellEffect::Regenerated(server) = effect {
                self.refresh_imports(Some(server)).await;
            }
        }
        if let Some(checkpoint) = self.checkpoint() {
            checkpoint.kernel_set_back();
            self.save_variables();
        }
        let files = match self.history.places.clone() {
            Some(places) => files_since(places, begun).await.map_or_else(
                || vec!["the files of the workspace could not be compared".to_owned()],
                of_files,
            ),
            None => vec!["files in the pod, of which nothing is known here".to_owned()],
        };
        Ok(UndoResult::new(titles, effects, files, notes))
    }

    /// Has a state take the place of the kernel. Returns what differs from it as it was.
    async fn awaken(&mut self, state: SleepingKernel, cells: &[PastCell]) -> Result<Vec<String>, Error> {
        let notes = state.notes().to_vec();
        let woken = self.kernels.awaken(state).await;
        let kernel = match woken {
            Ok(kernel) => kernel,
            Err(error) => {
                tracing::warn!(error = %describe(&error), cell = cells[0].title, "a state could not be brought back");
                if self.kernel.is_none() {
                    // The cell that was stopped for it has taken the kernel along.
                    self.lost = Some(lost_note("a cell was stopped"));
                    self.start_kernel().await?;
                }
                return Err(error.into());
            }
        };
        // Not its exit: that would remove what the state has too, such as temporary directories.
        if let Some(later) = self.kernel.replace(kernel) {
            self.kernels.kill(later).await;
        }
        (self.lost, self.failed_starts) = (None, None);
        // It has run code: no template is made of it, and its variables can be lost.
        self.template_due = None;
        self.obedience.has_run = true;
        self.phase.send_replace(StartPhase::Ready);
        Ok(notes)
    }

    /// Replaces the kernel by a fresh one.
    async fn begin_anew(&mut self) -> Result<(), Error> {
        if let Some(kernel) = self.kernel.take() {
            self.kernels.kill(kernel).await;
        }
        (self.lost, self.failed_starts) = (None, None);
        self.start_kernel().await
    }
}

/// The reason why there is no state, in words.
fn why_not(error: &BranchFailure) -> String {
    match error {
        BranchFailure::Kernel(BranchError::Refused(reasons)) => reasons.join("; "),
        BranchFailure::Kernel(BranchError::Unanswered) => {
            "the kernel did not answer in time: a task may have kept it busy".to_owned()
        }
        BranchFailure::Kernel(_) | BranchFailure::Site(_) => describe(error).to_string(),
    }
}

/// The files of the workspace that have changed since then.
async fn files_since(places: WatchedPlaces, since: SystemTime) -> Option<ChangedFiles> {
    let looking = tokio::task::spawn_blocking(move || changed_since(&places.workspace, since, &places.apart));
    let looked = tokio::time::timeout(FILES_TIMEOUT, looking).await;
    let found = looked.map_err(io::Error::other).and_then(|looked| looked.map_err(io::Error::other)?);
    found.inspect_err(|error| tracing::warn!(%error, "the files of the workspace could not be compared")).ok()
}

/// Lines about files of the workspace.
fn of_files(files: ChangedFiles) -> Vec<String> {
    let ChangedFiles { new, changed, reduced, is_incomplete } = files;
    let line = |words: &str, path: &PathBuf| {
        let path = path.to_string_lossy();
        let path = if path.is_empty() { "." } else { &*path };
        format!("{words} `{}`", one_line(path).replace('`', "'"))
    };
    let new = new.iter().map(|path| line("new:", path));
    let changed = changed.iter().map(|path| line("changed:", path));
    let reduced = reduced.iter().map(|path| line("removed or renamed: something in", path));
    let incomplete = is_incomplete.then(|| "the workspace has more files than were looked at".to_owned());
    new.chain(changed).chain(reduced).chain(incomplete).collect()
}
