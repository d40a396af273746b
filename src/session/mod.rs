//! A session: a kernel, the tools that its code can call, and the gate that decides what may run.
//!
//! ```text
//! mcp_server, library → Session ┬ queue → worker (owns the kernel) → follow (one cell's course)
//!                               ├ registry, servers::Pool, tool_server
//!                               └ approval::Gate
//! ```
//!
//! Every operation of ipybox is a method of [`Session`]; the MCP server and the library are thin faces over
//! it, and decide how results look to an MCP client or an application.
//!
//! Reasons: `docs/decisions/session.md`.

pub(crate) mod actions;
mod audience;
mod branch;
mod cell;
mod checkpoint;
mod command;
mod end;
mod error;
mod exit;
mod fence;
mod follow;
mod idle;
mod installation;
mod kernel_life;
mod lost;
pub(crate) mod notebook;
mod obedience;
mod offers;
mod opening;
mod permissions;
mod phase;
mod queue;
mod recorded_setting;
mod recording;
mod records;
mod registrar;
mod remote_packages;
mod reset;
mod rest;
mod settling;
pub(crate) mod site;
mod template;
mod undo;
mod waking;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::audience::{AudienceQuestion, SessionAudience, SessionEvent, WatcherMailbox};
pub(crate) use self::cell::{Cell, CellRequester, Outcome};
pub(crate) use self::checkpoint::saved_sessions;
pub(crate) use self::end::CellEnding;
pub use self::end::KernelState;
pub use self::error::StartError;
pub(crate) use self::error::{Error, InstallError, RegisterError};
pub(crate) use self::exit::KernelExit;
use self::fence::unfenced;
pub(crate) use self::installation::packages;
pub(crate) use self::notebook::CellEnd;
use self::opening::OpenedWith;
use self::permissions::PlaceInForce;
pub(crate) use self::permissions::ToldPermissions;
pub(crate) use self::phase::StartPhase;
use self::queue::CellQueue;
pub(crate) use self::queue::PendingWork;
use self::registrar::{Registrar, record_end};
pub(crate) use self::site::{AppliedChanges, ChangedCopies, FileChange, LimitUse};
use self::site::{HeldLimits, SiteInstaller};
use self::undo::CellEffect;
pub(crate) use self::undo::{UndoError, UndoResult, UndoTarget};
use self::worker::CellTools;
use crate::approval::{ApprovalPolicy, Approver, ApproverLine, Gate, GivenGrant, PastDecision, SessionFace};
use crate::ground::files::TemporaryDirectory;
use crate::kernels::kernel::{CodeInquiry, CodeInsight};
use crate::kernels::output::OutputPlaces;
use crate::tools::recording::{ReplayBroker, SessionRecorder};
use crate::tools::registry::{Registration, Registry};
use crate::tools::tool_server::ToolEndpoint;

/// The time that a cell may run unless its caller sets a timeout.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// As good as for ever. No clock has the end of the longest times that can be chosen.
pub(crate) const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Receives progress: short phrases for the waiting caller.
pub(crate) type ProgressReceiver<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The tools that the code of a session can call, and the approval of its calls.
pub(crate) struct ToolOptions {
    /// The registered servers that code can call; the workspace's own registry if `None`.
    pub(crate) registry: Option<Registry>,
    /// Decides about calls.
    pub(crate) policy: ApprovalPolicy,
    /// The face that holds the session.
    pub(crate) face: SessionFace,
    /// Another session of the same client: what one of them reads, both have read.
    pub(crate) beside: Option<Arc<Session>>,
    /// The recording that it replays, if it does.
    pub(crate) replay: Option<SessionReplay>,
}

/// The replay of a recording by a session.
pub(crate) struct SessionReplay {
    /// Answers the calls of code.
    pub(crate) broker: Arc<ReplayBroker>,
    /// Records the cells, to be compared.
    pub(crate) recorder: Arc<SessionRecorder>,
}

/// A session. Stop it with [`stop`](Self::stop); dropping it ends the same processes, but does not wait.
pub(crate) struct Session {
    queue: CellQueue,
    gate: Arc<Gate>,
    tools: Option<SessionTools>,
    place: Arc<PlaceInForce>,
    places: OutputPlaces,
    opened: OpenedWith,
    /// The tasks that the end of the session waits for: those that close connections to MCP servers, and that settle changes.
    stopping: TaskTracker,
    /// Those who watch its cells.
    audience: Arc<SessionAudience>,
    limits: Arc<HeldLimits>,
    /// Removed when the session and its branches have stopped, or are dropped.
    directory: Mutex<Option<Arc<TemporaryDirectory>>>,
}

/// The MCP client that requests an operation; its user decides whether it is done.
#[derive(Clone, Copy)]
pub(crate) struct RequestingClient<'a> {
    /// Answers what the policy asks.
    pub(crate) approver: &'a Approver,
    /// Cancelled when the client cancels its request.
    pub(crate) cancelled: &'a CancellationToken,
    /// The permissions of its own commands.
    pub(crate) permissions: &'a ToldPermissions,
}

impl RequestingClient<'_> {
    /// Runs `work` until the client cancels its request; `None` if it does.
    async fn unless_cancelled<T>(client: Option<Self>, work: impl Future<Output = T>) -> Option<T> {
        match client {
            None => Some(work.await),
            Some(Self { cancelled, .. }) => cancelled.run_until_cancelled(work).await,
        }
    }
}

/// The tools that the code of a session can call.
struct SessionTools {
    registrar: Registrar,
    server: Arc<ToolEndpoint>,
    /// The progress of servers with calls.
    progress: watch::Sender<String>,
    of_cells: CellTools,
}

impl Session {
    /// Waits until the first kernel is ready. If it does not start, the session is closed.
    pub(crate) async fn started(&self) -> Result<(), Error> {
        let started = self.queue.started().await;
        if started.is_err() {
            self.close().await;
        }
        started
    }

    /// The workspace's real path.
    pub(crate) fn workspace(&self) -> &Path {
        &self.places.workspace
    }

    /// The places for files of cells.
    pub(crate) fn places(&self) -> &OutputPlaces {
        &self.places
    }

    /// The progress of starting, until the first cell can run.
    pub(crate) fn phase(&self) -> watch::Receiver<StartPhase> {
        self.queue.phase()
    }

    /// Queues a cell. Its outcome comes from the returned [`PendingWork`]; the order of calls is the order of execution.
    pub(crate) async fn execute(&self, cell: Cell) -> PendingWork<Outcome> {
        self.queue.submit(Cell { code: unfenced(cell.code), ..cell }).await
    }

    /// A token that ends a cell: cancelled by [`cancel`](Self::cancel) too.
    pub(crate) fn cell_token(&self) -> CancellationToken {
        self.queue.cell_token()
    }

    /// Those who watch its cells.
    pub(crate) fn audience(&self) -> &Arc<SessionAudience> {
        &self.audience
    }

    /// The file of its notebook, which may not be there yet.
    pub(crate) fn notebook(&self) -> Option<&Path> {
        self.audience.notebook().map(|notebook| notebook.path())
    }

    /// The newest decisions of the session, if an audit log is kept.
    pub(crate) async fn decisions(&self) -> Vec<PastDecision> {
        self.gate.audit().decisions().await
    }

    /// Asks the kernel about code that a person writes; `None` if it runs a cell, or does not answer soon.
    pub(crate) async fn inquire(&self, inquiry: CodeInquiry) -> Option<CodeInsight> {
        self.queue.inquire(inquiry).await
    }

    /// Interrupts the running cell and cancels the queued ones.
    pub(crate) fn cancel(&self) {
        self.queue.cancel();
    }

    /// The grants that its users have given.
    pub(crate) fn grants(&self) -> Vec<GivenGrant> {
        self.gate.grants()
    }

    /// Changes when these may have changed.
    pub(crate) fn changes_of_grants(&self) -> watch::Receiver<u64> {
        self.gate.changes_of_grants()
    }

    /// Has approvers whom rules name asked by this line, from now on. Returns whether there was none.
    pub(crate) fn ask_approvers(&self, line: ApproverLine) -> bool {
        self.gate.ask_approvers(line)
    }

    /// Ends a grant. Returns whether there was one.
    pub(crate) fn revoke_grant(&self, id: u64) -> bool {
        self.gate.revoke_grant(id)
    }

    /// Queues the replacement of the kernel by a fresh one and the closing of the connections to MCP servers.
    ///
    /// The running cell and those queued before end at once; those queued later run in the fresh kernel. The outcome is how
    /// the exit of the earlier kernel went. The fresh kernel gets what the `client` allows, if it has told.
    pub(crate) async fn reset(&self, client: ToldPermissions) -> PendingWork<KernelExit> {
        self.queue.submit_reset(client).await
    }

    /// Queues that the newest cells are undone: the kernel is as it was before them. The running cell and those queued before
    /// end at once. Connections to MCP servers stay.
    ///
    /// # Errors
    /// They cannot be undone; everything goes on as before.
    pub(crate) async fn undo(
        &self,
        target: UndoTarget,
        client: &ToldPermissions,
    ) -> Result<PendingWork<UndoResult>, UndoError> {
        // Kernels that get more than the client allows have no states from then on.
        self.obey(client).await.map_err(|error| UndoError::Disobedient(Box::new(error)))?;
        self.queue.submit_undo(target).await
    }

    /// The progress of MCP servers with the calls of code, as they report it.
    pub(crate) fn progress_of_servers(&self) -> watch::Receiver<String> {
        // Closed if there are none.
        self.tools
            .as_ref()
            .map_or_else(|| watch::channel(String::new()).1, |tools| tools.progress.subscribe())
    }

    /// The number of tools of each registered server, by its name.
    pub(crate) fn servers(&self) -> BTreeMap<String, usize> {
        self.tools.as_ref().map(|tools| tools.registrar.registry.servers()).unwrap_or_default()
    }

    /// The names of the servers that are offered to the session and not registered yet: the first cell waits for them.
    pub(crate) fn offered(&self) -> Vec<String> {
        let offers = self.tools.as_ref().and_then(|tools| tools.of_cells.offers.as_ref());
        offers.map(|offers| offers.names()).unwrap_or_default()
    }

    /// Registers an MCP server: connects to it, generates the package `mcptools.<name>`, and keeps the connection for the
    /// first call. Code finds the package with its next import. The user of a `client` decides about a server that is not
    /// registered yet; an application decides by itself, and passes `None`.
    ///
    /// Dropping the future before the package is in place leaves the earlier package and registration. After that the
    /// registration is completed all the same.
    ///
    /// # Errors
    /// The registration is denied, fails, or is cancelled.
    pub(crate) async fn register(
        self: &Arc<Self>,
        name: &str,
        parameters: &Map<String, Value>,
        client: Option<RequestingClient<'_>>,
        progress: ProgressReceiver<'_>,
    ) -> Result<Registration, RegisterError> {
        let Some(SessionTools { registrar, .. }) = &self.tools else { return Err(RegisterError::NoTools) };
        if let Some(RequestingClient { permissions, .. }) = client {
            // A server must not come from where code can write.
            let obeyed = RequestingClient::unless_cancelled(client, self.obey(permissions)).await;
            let obeyed = obeyed.ok_or(RegisterError::Cancelled)?;
            obeyed.map_err(|error| RegisterError::Session(Box::new(error)))?;
        }
        let asked = client.map(|client| self.place.approver(client.approver, client.permissions));
        let registering = registrar.register(name, parameters, asked, progress);
        let registered = RequestingClient::unless_cancelled(client, registering).await;
        let (registration, open) = registered.ok_or(RegisterError::Cancelled)??;
        // In a task, which the caller cannot drop: the name means this server already.
        let session = Arc::clone(self);
        let registrar = registrar.clone();
        let owned_name = name.to_owned();
        let changed = registration.changed(name).map(str::to_owned);
        let keeping = tokio::spawn(async move {
            session.queue.refresh_imports(changed.as_deref()).await;
            registrar.keep(&owned_name, open, || session.queue.is_stopping()).await;
        });
        if let Err(error) = keeping.await {
            tracing::error!(%error, "the connection to a registered server was not kept");
        }
        registration.log(name);
        Ok(registration)
    }

    /// Lets code find what was installed or generated for another session in the same workspace; the package of `server`
    /// is imported again.
    pub(crate) async fn refresh_imports(&self, server: Option<&str>) {
        self.queue.refresh_imports(server).await;
    }

    /// Installs packages where the kernel finds them: each text is one requirement, or several. Returns what was done, in
    /// one line. The user of a `client` decides; an application decides by itself, and passes `None`.
    ///
    /// # Errors
    /// The installation is denied, fails, or is cancelled.
    pub(crate) async fn install(
        &self,
        packages: &[String],
        client: Option<RequestingClient<'_>>,
        progress: ProgressReceiver<'_>,
    ) -> Result<String, InstallError> {
        let installing = self.install_if_permitted(packages, client, progress);
        let installed = RequestingClient::unless_cancelled(client, installing).await;
        let summary = installed.ok_or(InstallError::Cancelled)??;
        self.queue.refresh_imports(None).await;
        self.queue.note(CellEffect::Installed(summary.clone()));
        if let Some(recorder) = self.audience.recorder() {
            recorder.installed(packages);
        }
        Ok(summary)
    }

    async fn install_if_permitted(
        &self,
        packages: &[String],
        client: Option<RequestingClient<'_>>,
        progress: ProgressReceiver<'_>,
    ) -> Result<String, InstallError> {
        // Nobody is asked about what cannot be done.
        if let Some(RequestingClient { permissions, .. }) = client {
            self.obey(permissions).await.map_err(|error| InstallError::Session(Box::new(error)))?;
        }
        let installer = self.place.installer();
        let requirements = installer.requirements(packages)?;
        let on_record = match client {
            Some(RequestingClient { approver, permissions, .. }) => {
                let asked = self.place.approver(approver, permissions);
                installation::permit_all(&self.gate, &requirements, asked).await?
            }
            None => Vec::new(),
        };
        let installed = match &*installer {
            _ if self.queue.is_stopping() => Err(InstallError::Session(Box::new(Error::Stopped))),
            SiteInstaller::Local(installer) => {
                installer.install(&requirements, progress).await.map_err(InstallError::from)
            }
            SiteInstaller::Remote { .. } => self.install_remotely(&requirements, progress).await,
        };
        for call in on_record {
            record_end(Some(call), &installed, |summary| json!(summary));
        }
        installed
    }

    /// Queues a cell in which the remote kernel installs the packages itself.
    async fn install_remotely(
        &self,
        requirements: &[String],
        progress: ProgressReceiver<'_>,
    ) -> Result<String, InstallError> {
        progress("installing where the Jupyter server runs the kernel");
        let cancel = self.cell_token();
        // If the caller drops this future, the installation is cancelled.
        let _guard = cancel.clone().drop_guard();
        let outcome = self.execute(remote_packages::cell(requirements, cancel)).await.outcome().await;
        let outcome = outcome.map_err(|error| InstallError::Session(Box::new(error)))?;
        remote_packages::summary_or_reason(outcome, requirements)
            .map_err(|why| InstallError::Remote(format!("install `{}`: {why}", requirements.join(" "))))
    }

    /// The interpreter of the kernel; waits until its environment is ready.
    pub(crate) async fn python(&self) -> Result<PathBuf, Error> {
        if self.queue.is_stopping() {
            return Err(Error::Stopped);
        }
        Ok(self.place.installer().python().await?)
    }

    /// The limits around it, and what is in use.
    pub(crate) fn limits(&self) -> Vec<LimitUse> {
        self.limits.uses()
    }

    /// Begins to stop, and does not wait.
    pub(crate) fn abandon(&self) {
        self.queue.abandon();
    }

    /// Ends the kernel, closes all connections, and waits until nothing is left, also if it was stopped before.
    pub(crate) async fn stop(&self) {
        self.queue.abandon();
        if let Some(SessionTools { server, of_cells, .. }) = &self.tools {
            let server = Arc::clone(server);
            let CellTools { pool, offers, .. } = of_cells.clone();
            self.stopping.spawn(async move {
                server.stop().await;
                if let Some(offers) = offers {
                    offers.stop().await;
                }
                pool.stop().await;
            });
        }
        self.stopping.close();
        tokio::join!(self.queue.stop(), self.stopping.wait());
        if let Some(notebook) = self.audience.notebook() {
            notebook.close().await;
        }
        if let Some(recorder) = self.audience.recorder() {
            recorder.close().await;
        }
        // Here and not only by dropping: calls under way may hold the session for as long as the program runs.
        let directory = self.directory.lock().take().and_then(Arc::into_inner);
        if let Some(Err(error)) = directory.map(TemporaryDirectory::close) {
            tracing::warn!(%error, "could not remove the session's temporary files");
        }
    }

    /// Stops, and completes the audit log: nothing is recorded any more.
    pub(crate) async fn close(&self) {
        self.stop().await;
        self.gate.audit().close().await;
    }
}

impl Drop for SessionTools {
    fn drop(&mut self) {
        if let Some(offers) = &self.of_cells.offers {
            offers.abandon();
        }
    }
}
