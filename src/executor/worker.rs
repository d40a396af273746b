//! The task that owns the kernel and does what is queued, one thing at a time.
//!
//! Between cells it keeps reading what the kernel says, so that the kernel never waits for us, and
//! notices its death.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::Error;
use super::account;
use super::cell::{self, Cell, Outcome};
use super::confined::Confined;
use super::end::{End, KernelState};
use super::late::Late;
use super::phase::Phase;
use crate::audit::Audit;
use crate::describe::describe;
use crate::kernel::{self, Death, Event, Kernel, Launch, Limits, ShellCommands, Sockets};
use crate::tool_server::Endpoint;
use crate::{env, environment};

/// How long the kernel may take for our own housekeeping; it takes a few milliseconds.
const HOUSEKEEPING_TIMEOUT: Duration = Duration::from_secs(5);

const REFRESH_IMPORTS: &str = "__import__('importlib').invalidate_caches()";

/// Something to do with the kernel.
pub(super) enum Command {
    Execute { cell: Cell, generation: CancellationToken, reply: oneshot::Sender<Result<Outcome, Error>> },
    RefreshImports,
    Reset { reply: oneshot::Sender<Result<(), Error>> },
}

/// The state of the task.
pub(super) struct Worker {
    pub(super) kernel: Option<Kernel>,
    /// Why the variables of earlier cells are gone, until a cell has been told.
    pub(super) lost: Option<String>,
    pub(super) queue: mpsc::Receiver<Command>,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) environment: Arc<environment::Shared>,
    /// None if the kernel's code has no tools.
    pub(super) tool_server: Option<Arc<Endpoint>>,
    /// What earlier cells have shown since the last outcome.
    pub(super) late: Late,
    /// How often in a row the kernel has not started, and when it last did not.
    pub(super) failed_starts: Option<(u32, Instant)>,
    pub(super) workspace: PathBuf,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) private_directory: PathBuf,
    pub(super) limits: Limits,
    pub(super) shell_commands: ShellCommands,
    pub(super) audit: Audit,
    pub(super) kernel_init_timeout: Duration,
    /// Where the kernel runs, if it is in a sandbox.
    pub(super) confined: Option<Confined>,
}

impl Worker {
    /// Works until `stop` is cancelled, then kills the kernel.
    ///
    /// Tells `started` how the first start of the kernel went.
    pub(super) async fn run(mut self, stop: CancellationToken, started: oneshot::Sender<Result<(), Error>>) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work(started) => {}
        }
        // The kernel ends with its sandbox, which is quicker than first the one, then the other.
        match &mut self.confined {
            Some(confined) => confined.end().await,
            None => self.give_up_kernel().await,
        }
    }

    async fn work(&mut self, started: oneshot::Sender<Result<(), Error>>) {
        let first = self.start_kernel().await;
        if let Err(error) = &first {
            // The first cell tries again, and tells its caller.
            tracing::error!(error = %describe(error), "the kernel did not start");
        }
        // An MCP server does not wait for it.
        drop(started.send(first));
        loop {
            tokio::select! {
                command = self.queue.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                event = next_event(&mut self.kernel) => self.overhear(event).await,
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Execute { cell, generation, reply } => {
                let on_record = self.audit.cell_started(&cell.code);
                if let Some(tool_server) = &self.tool_server {
                    tool_server.gate().put_on_duty(cell.approver.clone());
                }
                let outcome = self.execute(&cell, &generation).await;
                if let Some(tool_server) = &self.tool_server {
                    tool_server.gate().end_duty();
                }
                account::tell(on_record, outcome.as_ref());
                let was_reset = outcome.as_ref().is_ok_and(|outcome| matches!(outcome.end, End::Reset));
                // The caller gave up; there is nobody to tell.
                drop(reply.send(outcome));
                // A reset starts the next kernel itself. One that does not start is left to the next cell.
                if self.kernel.is_none()
                    && !was_reset
                    && self.failed_starts.is_none()
                    && let Err(error) = self.start_kernel().await
                {
                    tracing::error!(error = %describe(&error), "the kernel did not start again");
                }
            }
            Command::RefreshImports => self.refresh_imports().await,
            Command::Reset { reply } => drop(reply.send(self.reset().await)),
        }
    }

    async fn execute(&mut self, cell: &Cell, generation: &CancellationToken) -> Result<Outcome, Error> {
        let request = tokio::select! {
            // What was cancelled while it waited must not run.
            biased;
            () = cell.cancel.cancelled() => return Ok(Outcome::not_run(End::NotRun)),
            () = generation.cancelled() => return Ok(Outcome::not_run(End::Reset)),
            request = self.send(&cell.code) => request?,
        };
        let mut notes = Vec::from_iter(self.lost.take());
        let Some(kernel) = self.kernel.as_mut() else { return Err(Error::Stopped) };
        let (recorded, error, end) = cell::follow(kernel, request, cell, generation, &mut self.late).await;
        if KernelState::of(&end) == KernelState::Lost {
            self.give_up_kernel().await;
            // The next caller need not be this one, and a caller who cancelled hears nothing.
            self.lost = match &end {
                End::Reset => None,
                End::Died(death) => {
                    Some(lost_note(&format!("it died while running an earlier cell ({})", death.status)))
                }
                End::Unreachable(_) => Some(lost_note("the connection to it failed during an earlier cell")),
                _ => Some(lost_note("an earlier cell did not react to its interruption")),
            };
        }
        let late = self.late.tell().await;
        notes.extend(late.troubles);
        notes.extend(recorded.troubles);
        let images = late.images.into_iter().chain(recorded.images).collect();
        Ok(Outcome { text: recorded.text, late: late.text, images, error, end, notes })
    }

    /// Sends code to the kernel, to a fresh one if it has died since the last cell.
    async fn send(&mut self, code: &str) -> Result<String, Error> {
        if let Some(kernel) = self.kernel.as_mut() {
            match kernel.execute(code.to_owned()).await {
                Ok(request) => return Ok(request),
                Err(error) => {
                    let end = tokio::time::timeout(HOUSEKEEPING_TIMEOUT, self.last_words_of_kernel()).await;
                    let why = match (error, end.ok().flatten()) {
                        (kernel::Error::Ended(death), _) | (_, Some(death)) => ended_with(&death),
                        (error, None) => format!("the connection to it failed ({})", describe(&error)),
                    };
                    tracing::warn!(%why, "the kernel is gone; starting it anew");
                    self.give_up_kernel().await;
                    self.lost = Some(lost_note(&why));
                }
            }
        }
        self.start_kernel().await?;
        let Some(kernel) = self.kernel.as_mut() else { return Err(Error::Stopped) };
        Ok(kernel.execute(code.to_owned()).await?)
    }

    /// Takes in what a kernel that cannot be spoken to any more has said. Returns how it ended, if that can be told: its
    /// connection may break before its end is known.
    async fn last_words_of_kernel(&mut self) -> Option<Death> {
        loop {
            match self.kernel.as_mut()?.next().await {
                Ok(Event::Message(message)) => self.late.take(message.content).await,
                Ok(Event::Torn) => {}
                Ok(Event::Died(death)) => return Some(death),
                Err(_) => return None,
            }
        }
    }

    async fn reset(&mut self) -> Result<(), Error> {
        self.give_up_kernel().await;
        self.lost = None;
        self.failed_starts = None;
        let tool_server = self.tool_server.clone();
        let closing = async {
            if let Some(tool_server) = tool_server {
                tool_server.close_connections().await;
            }
        };
        let (started, ()) = tokio::join!(self.start_kernel(), closing);
        started
    }

    async fn refresh_imports(&mut self) {
        let Some(kernel) = self.kernel.as_mut() else { return };
        let said =
            match tokio::time::timeout(HOUSEKEEPING_TIMEOUT, kernel.run(REFRESH_IMPORTS.to_owned())).await {
                Ok(Ok(said)) => said,
                // A death is noticed by the next cell, which tells its caller.
                Ok(Err(error)) => return tracing::warn!(%error, "could not refresh the kernel's imports"),
                Err(_) => return tracing::warn!("the kernel was too busy to refresh its imports"),
            };
        for message in said {
            self.late.take(message.content).await;
        }
    }

    /// Starts a kernel. After failures it waits a while before.
    async fn start_kernel(&mut self) -> Result<(), Error> {
        if let Some((count, last)) = self.failed_starts {
            let pause = pause_after(count).saturating_sub(last.elapsed());
            if !pause.is_zero() {
                let words = format!(
                    "waiting {} s, since the kernel did not start {count} times",
                    pause.as_secs() + 1
                );
                self.phase.send_replace(Phase::Preparing(words));
                tokio::time::sleep(pause).await;
            }
        }
        let mut started = self.try_to_start().await;
        if let Err(Error::Kernel(kernel::Error::Spawn { .. })) = started {
            // The interpreter is gone: find or make another.
            self.environment.forget().await;
            started = self.try_to_start().await;
        }
        match &started {
            Ok(()) => self.failed_starts = None,
            Err(_) => {
                self.environment.forget().await;
                let count = self.failed_starts.map_or(0, |(count, _)| count);
                self.failed_starts = Some((count + 1, Instant::now()));
            }
        }
        started
    }

    async fn try_to_start(&mut self) -> Result<(), Error> {
        let phase = &self.phase;
        let report = |words: &str| drop(phase.send_replace(Phase::Preparing(words.to_owned())));
        let environment = self.environment.get(&report).await.map_err(Error::Environment)?;
        report("starting the IPython kernel");
        self.prepare_files().map_err(Error::Files)?;
        if let Some(confined) = &mut self.confined {
            confined.ready(&environment, self.tool_server.as_deref()).await?;
        }
        let mut variables: BTreeMap<String, String> = match &self.confined {
            None => BTreeMap::new(),
            Some(confined) => {
                confined.variables().map(|(name, path)| (name.to_owned(), path.display().to_string())).into()
            }
        };
        variables.extend(self.variables.clone());
        variables.extend(environment.variables());
        variables.extend(self.our_variables());
        let launch = Launch {
            python: environment.python().to_owned(),
            working_directory: self.workspace.clone(),
            environment: variables,
            private_directory: self.kernel_directory().to_owned(),
            limits: self.limits,
            default_limits: self.confined.as_ref().map_or_else(Limits::default, Confined::limits),
            shell_commands: self.shell_commands,
            timeout: self.kernel_init_timeout,
            sockets: if self.confined.is_some() { Sockets::Ports } else { Sockets::Files },
            wrapper: Vec::new(),
        };
        self.kernel = Some(match &mut self.confined {
            None => Kernel::start(&launch).await?,
            Some(confined) => confined.start_kernel(&launch).await?,
        });
        self.phase.send_replace(Phase::Ready);
        tracing::info!(python = %launch.python.display(), "the kernel is ready");
        Ok(())
    }

    /// Makes the directories that a kernel needs. Code in an earlier kernel, or a cleaner of temporary files, may
    /// have removed them.
    fn prepare_files(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.workspace)?;
        let private = std::fs::symlink_metadata(&self.private_directory);
        if !private.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            // A file or a link in its place is not ours.
            if private.is_ok() {
                std::fs::remove_file(&self.private_directory)?;
            }
            std::fs::DirBuilder::new().mode(0o700).create(&self.private_directory)?;
        }
        crate::tool_server::write_runtime(&self.private_directory, &self.workspace)
    }

    /// Where the kernel keeps files of its own.
    fn kernel_directory(&self) -> &Path {
        self.confined.as_ref().map_or(&self.private_directory, Confined::directory)
    }

    /// What the kernel gets beside the user's variables: where its tools are.
    fn our_variables(&self) -> Vec<(String, String)> {
        let runtime = crate::tool_server::runtime_directory(&self.private_directory).display().to_string();
        let python_path = match self.variables.get("PYTHONPATH") {
            Some(users) => format!("{runtime}:{users}"),
            None => runtime,
        };
        let mut ours = vec![("PYTHONPATH".to_owned(), python_path)];
        if let Some(tool_server) = &self.tool_server
            && let Some(address) = tool_server.address()
        {
            ours.push((env::IPYBOX_TOOL_SERVER.to_owned(), address.to_string()));
            // A new token for each kernel: what an earlier one left behind cannot call tools.
            ours.push((env::IPYBOX_TOOL_SERVER_TOKEN.to_owned(), tool_server.renew_token()));
        }
        ours
    }

    /// Takes in what the kernel says between cells.
    async fn overhear(&mut self, event: Result<Event, kernel::Error>) {
        let why = match event {
            Ok(Event::Message(message)) => return self.late.take(message.content).await,
            Ok(Event::Torn) => return,
            Ok(Event::Died(death)) => ended_with(&death),
            Err(error) => format!("the connection to it failed ({})", describe(&error)),
        };
        tracing::warn!(%why, "the kernel ended between cells");
        self.give_up_kernel().await;
        self.lost = Some(lost_note(&why));
    }

    async fn give_up_kernel(&mut self) {
        let Some(kernel) = self.kernel.take() else { return };
        if !kernel.kill().await
            && let Some(confined) = &mut self.confined
        {
            tracing::warn!("the sandbox does not end its kernel; ending the sandbox");
            confined.end().await;
        }
    }
}

/// What the kernel says between cells. Cancellation safe; never ends without a kernel.
async fn next_event(kernel: &mut Option<Kernel>) -> Result<Event, kernel::Error> {
    match kernel {
        Some(kernel) => kernel.next().await,
        None => std::future::pending().await,
    }
}

/// How long to wait before a kernel that has not started `count` times is started again: not at all at first, since
/// the cause may have been mended, then 1, 2, 4, 8 seconds.
fn pause_after(count: u32) -> Duration {
    match count {
        0 | 1 => Duration::ZERO,
        _ => Duration::from_secs(1 << (count - 2).min(3)),
    }
}

fn ended_with(death: &Death) -> String {
    let Death { status, stderr, .. } = death;
    let causes = death.causes();
    let causes = causes.trim_end_matches('.').trim_start();
    let causes = if causes.is_empty() { String::new() } else { format!(": {causes}") };
    if stderr.is_empty() {
        format!("it had ended ({status}{causes})")
    } else {
        format!("it had ended ({status}{causes}):\n{stderr}\n")
    }
}

fn lost_note(why: &str) -> String {
    format!("The kernel was started anew, since {why}. All variables and imports of earlier cells are gone.")
}
