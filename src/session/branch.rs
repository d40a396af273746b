//! Branches: sessions whose kernel begins as a copy of another session's.

use std::sync::Arc;

use super::audience::SessionAudience;
use super::command::{BranchReceiver, QueuedCommand};
use super::opening::{OpeningSession, closed_gate, tape};
use super::phase::StartPhase;
use super::queue::CellQueue;
use super::records::{notebook, open_audit, recorder};
use super::site::{BranchFailure, BranchedSite};
use super::worker::KernelWorker;
use super::{Error, Session, SessionTools, StartError};
use crate::kernels::kernel::RunningBranch;
use crate::tools::tool_server::ToolEndpoint;

/// A note for the author of a copy that is recorded.
const NOT_REPLAYED: &str =
    "The recording of this copy can be read, but not replayed: it does not have the cells before the copy.";

/// Why there is no branch of a session, which goes on as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionBranchError {
    /// The kernel cannot be copied.
    #[error(transparent)]
    Kernel(#[from] BranchFailure),
    /// The branch cannot be opened.
    #[error("copy the session")]
    Open(#[from] StartError),
    /// The session has no kernel, or has ended.
    #[error(transparent)]
    Session(#[from] Error),
}

impl Session {
    /// Opens a session with the variables, imports and working directory that this one has after the cells that are queued.
    /// Returns the differences that are worth a word, too.
    ///
    /// It decides by the same policy and answers, and has no more rights: see [`Gate::for_branch`](crate::approval::Gate).
    ///
    /// # Errors
    /// See [`SessionBranchError`]; no process is left behind.
    pub(crate) async fn branch(&self) -> Result<(Self, Vec<String>), SessionBranchError> {
        let mut opened = self.opened.clone();
        opened.config = Arc::new(opened.config.beside_another());
        let config = &opened.config;
        let origin = self.audience.recorder().map(|recorder| recorder.path());
        let recorder = recorder(config, origin).map_err(StartError::from)?;
        let tape = tape(config, recorder.as_ref());
        let calls = tape.recorder().cloned();
        let (gate, tools) = match opened.face {
            Some(face) => {
                let audit = open_audit(config, face).map_err(StartError::from)?;
                let gate = Arc::new(self.gate.for_branch(audit));
                (
                    Arc::clone(&gate),
                    Some(SessionTools::open(config, opened.registry.clone(), gate, tape).await?),
                )
            }
            None => (Arc::new(closed_gate()), None),
        };
        let tool_server = tools.as_ref().map(|tools| Arc::clone(&tools.server));
        let branched = self.queue.branch(tool_server).await;
        let (RunningBranch { kernel, mut notes, .. }, kernels) = match branched {
            Ok(branched) => branched,
            Err(error) => {
                gate.audit().close().await;
                return Err(error);
            }
        };
        gate.audit().branched_from(self.gate.audit());
        if recorder.is_some() {
            notes.push(NOT_REPLAYED.to_owned());
        }
        let notebook = notebook(config, self.notebook());
        let branch = OpeningSession {
            audience: SessionAudience::of_branch(notebook, recorder, &self.audience)
                .with_calls_of(calls.as_ref()),
            installer: self.place.installer(),
            limits: Arc::clone(&self.limits),
            directory: self.directory.lock().clone(),
            kernel: Some(kernel),
            opened,
            gate,
            tools,
            kernels,
        };
        Ok((branch.begin(), notes))
    }
}

impl CellQueue {
    /// Has the kernel copied after the cells that are queued.
    async fn branch(
        &self,
        tool_server: Option<Arc<ToolEndpoint>>,
    ) -> Result<BranchedSite, SessionBranchError> {
        self.send(|reply| QueuedCommand::Branch { tool_server, reply })
            .await
            .outcome()
            .await?
            .map_err(SessionBranchError::from)
    }
}

impl KernelWorker {
    /// Copies the kernel; a fresh one if there is none.
    pub(super) async fn branch(&mut self, tool_server: Option<Arc<ToolEndpoint>>, reply: BranchReceiver) {
        if reply.is_closed() {
            return;
        }
        let begun = match self.kernel {
            Some(_) => Ok(()),
            None => self.begin_with_variables().await,
        };
        if let Err(error) = begun {
            // Fails only if the caller has given up.
            reply.send(Err(error)).ok();
            return;
        }
        let Some(kernel) = self.kernel.as_mut() else { return };
        let mut said = Vec::new();
        let checkpoint = tool_server.as_ref().and_then(|tools| tools.checkpoint().cloned());
        let branched = self.kernels.branch(kernel, tool_server, &mut said).await;
        if let (Ok(_), Some(origin), Some(checkpoint)) = (&branched, self.checkpoint(), checkpoint) {
            checkpoint.kernel_copied(origin);
        }
        // A branch that nobody waits for any more is dropped, and ends.
        reply.send(Ok(branched)).ok();
        for event in said {
            self.take_event(event).await;
        }
    }

    /// Starts the first kernel, unless it runs already.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        if self.kernel.is_none() {
            return self.start_kernel().await;
        }
        if let Err(error) = self.keep_apart() {
            self.give_up_kernel().await;
            return Err(error);
        }
        self.phase.send_replace(StartPhase::Ready);
        Ok(())
    }
}
