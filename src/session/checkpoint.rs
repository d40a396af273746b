//! The checkpoint of a session: where it saves its variables and for which later kernels, and when the worker does so.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::cell::{Cell, CellRequester};
use super::end::CellEnding;
use super::worker::KernelWorker;
use crate::config::{CheckpointPurpose, Config, KernelSite};
pub(crate) use crate::kernels::checkpoint::saved_sessions;
use crate::kernels::checkpoint::{Checkpoint, CheckpointConditions, CheckpointOwner};

/// The time that it may take to bring variables back, and the number of characters about it.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(120);
const RESTORE_CHARS: usize = 2000;
const RESTORE: &str = "__import__('ipybox_checkpoint').restore()";

/// The checkpoint that the settings ask for.
pub(super) fn of(config: &Config) -> Option<Arc<Checkpoint>> {
    let conditions = conditions(config).filter(|_| config.kernel.checkpoint)?;
    Some(Arc::new(Checkpoint::new(&config.state_dir, conditions, &owner(config))))
}

fn owner(config: &Config) -> CheckpointOwner {
    match (config.checkpoint_purpose, &config.session) {
        (CheckpointPurpose::Rest, _) => {
            CheckpointOwner::Beside { id: uuid::Uuid::new_v4().simple().to_string() }
        }
        (CheckpointPurpose::Session { is_resumed }, Some(id)) => {
            CheckpointOwner::Session { id: id.clone(), is_resumed }
        }
        (CheckpointPurpose::Session { .. }, None) | (CheckpointPurpose::Workspace, _) => {
            CheckpointOwner::Workspace
        }
    }
}

/// The conditions under which kernels run; `None` on a Jupyter server, for which the settings exclude checkpoints.
pub(super) fn conditions(config: &Config) -> Option<CheckpointConditions> {
    match &config.site {
        KernelSite::Remote(_) => None,
        KernelSite::Local => {
            Some(CheckpointConditions { site: "without a sandbox".to_owned(), policy: String::new() })
        }
        KernelSite::Pod(_) => {
            Some(CheckpointConditions { site: "in a pod".to_owned(), policy: String::new() })
        }
        KernelSite::Sandboxed { confinement, .. } => {
            let mut digest = Sha256::new();
            digest.update(confinement.policy.text());
            // What one client may not do, another one's kernels must not do for it.
            confinement.clients.iter().for_each(|client| digest.update(format!("{client:?}")));
            let site = format!("in a sandbox ({})", confinement.backend.name());
            Some(CheckpointConditions { site, policy: format!("{:x}", digest.finalize()) })
        }
    }
}

/// The cell that restores variables.
fn restoring(cancel: CancellationToken) -> Cell {
    let why = "variables are restored, which calls no tools";
    Cell::ours(RESTORE.to_owned(), RESTORE_TIMEOUT, RESTORE_CHARS, cancel, why)
}

impl KernelWorker {
    /// Saves the variables after each cell, or before a rest; `None` if they are not saved.
    pub(super) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.tools.as_ref()?.checkpoint.as_deref()
    }

    /// Has the kernel have the variables of a kernel or session that had ended while nobody used it: once, before a cell. Returns
    /// notes about it.
    pub(super) async fn resume(
        &mut self,
        cell: &Cell,
        generation: &CancellationToken,
    ) -> Result<Vec<String>, Error> {
        if cell.author == CellRequester::Ourselves {
            return Ok(Vec::new());
        }
        let ours = Cell { client: cell.client.clone(), ..restoring(cell.cancel.clone()) };
        let mut notes = self.restore(&ours, generation).await?;
        if cell.cancel.is_cancelled() || generation.is_cancelled() {
            // Nobody gets them: the cell does not run.
            return Ok(Vec::new());
        }
        notes.extend(self.idleness.take_untold());
        // With what has become of the variables, in one line.
        if let Some(words) = self.idleness.take_words() {
            let restored = if notes.is_empty() { String::new() } else { format!(" {}", notes.remove(0)) };
            notes.insert(0, words + &restored);
        }
        Ok(notes)
    }

    /// Starts a kernel with the variables that it is to have, for a copy of it.
    pub(super) async fn begin_with_variables(&mut self) -> Result<(), Error> {
        let never = CancellationToken::new();
        let notes = self.restore(&restoring(never.clone()), &never).await?;
        if self.kernel.is_none() {
            self.start_kernel().await?;
        }
        self.idleness.tell_later(notes);
        Ok(())
    }

    /// Runs the cell that restores variables, if there are any that are to come back.
    async fn restore(&mut self, ours: &Cell, generation: &CancellationToken) -> Result<Vec<String>, Error> {
        if !self.checkpoint().is_some_and(Checkpoint::is_resuming) {
            return Ok(Vec::new());
        }
        if self.kernel.is_none() {
            self.start_kernel().await?;
        }
        if !self.checkpoint().is_some_and(Checkpoint::take_resuming) {
            return Ok(Vec::new());
        }
        let outcome = Box::pin(self.execute(ours, generation, None)).await;
        let is_in_vain = match &outcome {
            Ok(outcome) => {
                matches!(outcome.end, CellEnding::NotRun | CellEnding::Cancelled(_) | CellEnding::Reset)
            }
            Err(_) => true,
        };
        if is_in_vain {
            // The next cell does it; a reset discards them.
            self.checkpoint().into_iter().for_each(Checkpoint::kernel_rests);
            return outcome.map(|_| Vec::new());
        }
        let outcome = outcome?;
        self.history.variables_restored();
        self.keep_state().await;
        let mut notes = vec![match (&outcome.end, &outcome.error) {
            (CellEnding::Finished, None) => {
                let text = outcome.shown.text.excerpt.trim_end();
                format!("Variables of this session's earlier kernel were loaded. {text}")
            }
            (CellEnding::Finished, Some(error)) => {
                format!("The variables of this session could not be restored: {}", error.name)
            }
            (end, _) => format!("The variables of this session were not restored: {}", end.words()),
        }];
        if !matches!(outcome.end, CellEnding::Finished) || outcome.error.is_some() {
            notes.extend(self.checkpoint().and_then(Checkpoint::offer));
        }
        notes.extend(outcome.notes);
        Ok(notes)
    }

    /// Has the kernel save its variables, unless it is doing so: then it is asked again later.
    pub(super) fn save_variables(&mut self) {
        let checkpoint = self.tools.as_ref().and_then(|tools| tools.checkpoint.as_ref());
        let (Some(checkpoint), Some(kernel)) = (checkpoint, &mut self.kernel) else { return };
        // A kernel that has ended saves nothing, and the next cell notices that it has.
        if let Some(number) = checkpoint.begin()
            && let Err(error) = kernel.save_variables(number)
        {
            tracing::debug!(%error, "the kernel was not asked for its variables");
        }
    }
}
