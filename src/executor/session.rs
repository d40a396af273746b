//! The task that owns the kernel and does what is queued, one thing at a time.
//!
//! Between cells it keeps reading what the kernel says, so that the kernel never waits for us, and
//! notices its death.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::cell::{self, Cell, End, Outcome, State};
use super::images::ImageStore;
use super::{Error, Phase};
use crate::describe::describe;
use crate::kernel::{self, Death, Event, Fold, Kernel, Launch, Limits, Output, TextLimit};
use crate::tool_server::ToolServer;
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
pub(super) struct Session {
    pub(super) kernel: Option<Kernel>,
    /// Why the variables of earlier cells are gone, until a cell has been told.
    pub(super) lost: Option<String>,
    pub(super) queue: mpsc::Receiver<Command>,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) environment: Arc<environment::Shared>,
    pub(super) tool_server: Arc<ToolServer>,
    pub(super) images: ImageStore,
    pub(super) workspace: PathBuf,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) private_directory: PathBuf,
    pub(super) limits: Limits,
}

impl Session {
    /// Works until `stop` is cancelled, then kills the kernel.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work() => {}
        }
        if let Some(kernel) = self.kernel.take() {
            kernel.kill().await;
        }
    }

    async fn work(&mut self) {
        if let Err(error) = self.start_kernel().await {
            // The first cell tries again, and tells its caller.
            tracing::error!(error = %describe(&error), "the kernel did not start");
        }
        loop {
            tokio::select! {
                command = self.queue.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                () = drain(&mut self.kernel, &mut self.lost) => {}
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Execute { cell, generation, reply } => {
                let outcome = self.execute(&cell, &generation).await;
                let was_reset = outcome.as_ref().is_ok_and(|outcome| matches!(outcome.end, End::Reset));
                // The caller gave up; there is nobody to tell.
                drop(reply.send(outcome));
                // A reset starts the next kernel itself.
                if self.kernel.is_none()
                    && !was_reset
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
        let (output, end) = cell::follow(kernel, request, cell, generation).await;
        if State::of(&end) == State::Lost {
            self.give_up_kernel("it was given up").await;
            // The caller learns of the loss by `end`.
            self.lost = None;
        }
        let Output { text, images, .. } = output;
        let images = self.images.save(images, &mut notes).await;
        Ok(Outcome { text, images, end, notes })
    }

    /// Sends code to the kernel, to a fresh one if it has died since the last cell.
    async fn send(&mut self, code: &str) -> Result<String, Error> {
        if let Some(kernel) = self.kernel.as_mut() {
            match kernel.execute(code.to_owned()).await {
                Ok(request) => return Ok(request),
                Err(error) => {
                    let why = match error {
                        kernel::Error::Ended(death) => ended_with(&death),
                        error => format!("the connection to it failed ({})", describe(&error)),
                    };
                    tracing::warn!(%why, "the kernel is gone; starting it anew");
                    self.give_up_kernel(&why).await;
                }
            }
        }
        self.start_kernel().await?;
        let Some(kernel) = self.kernel.as_mut() else { return Err(Error::Stopped) };
        Ok(kernel.execute(code.to_owned()).await?)
    }

    async fn reset(&mut self) -> Result<(), Error> {
        if let Some(kernel) = self.kernel.take() {
            kernel.kill().await;
        }
        self.lost = None;
        let tool_server = Arc::clone(&self.tool_server);
        let (started, ()) = tokio::join!(self.start_kernel(), tool_server.close_connections());
        started
    }

    async fn refresh_imports(&mut self) {
        let Some(kernel) = self.kernel.as_mut() else { return };
        let refresh = async {
            let mut fold = Fold::new(kernel.execute(REFRESH_IMPORTS.to_owned()).await?, TextLimit::None);
            while !fold.is_complete() {
                match kernel.next().await? {
                    Event::Message(message) => drop(fold.take(message)),
                    Event::Torn => {}
                    // The next cell notices it, and tells its caller.
                    Event::Died(_) => return Ok(()),
                }
            }
            Ok::<_, kernel::Error>(())
        };
        match tokio::time::timeout(HOUSEKEEPING_TIMEOUT, refresh).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "could not refresh the kernel's imports"),
            Err(_) => tracing::warn!("the kernel was too busy to refresh its imports"),
        }
    }

    async fn start_kernel(&mut self) -> Result<(), Error> {
        let phase = &self.phase;
        let report = |words: &str| drop(phase.send_replace(Phase::Preparing(words.to_owned())));
        let environment = self.environment.get(&report).await.map_err(Error::Environment)?;
        report("starting the IPython kernel");
        self.prepare_files().map_err(Error::Files)?;
        let mut variables = self.variables.clone();
        variables.extend(environment.variables());
        variables.extend(self.our_variables());
        let launch = Launch {
            python: environment.python().to_owned(),
            working_directory: self.workspace.clone(),
            environment: variables,
            private_directory: self.private_directory.clone(),
            limits: self.limits,
        };
        self.kernel = Some(Kernel::start(&launch).await?);
        self.phase.send_replace(Phase::Ready);
        tracing::info!(python = %launch.python.display(), "the kernel is ready");
        Ok(())
    }

    /// Makes the directories that a kernel needs. Code in an earlier kernel, or a cleaner of temporary files, may
    /// have removed them.
    fn prepare_files(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.workspace)?;
        if !self.private_directory.exists() {
            std::fs::DirBuilder::new().mode(0o700).create(&self.private_directory)?;
        }
        crate::tool_server::write_runtime(&self.private_directory, &self.workspace)
    }

    /// What the kernel gets beside the user's variables: where its tools are.
    fn our_variables(&self) -> [(String, String); 3] {
        let runtime = crate::tool_server::runtime_directory(&self.private_directory).display().to_string();
        let python_path = match self.variables.get("PYTHONPATH") {
            Some(users) => format!("{runtime}:{users}"),
            None => runtime,
        };
        [
            (env::IPYBOX_TOOL_SERVER, self.tool_server.address().to_string()),
            // A new token for each kernel: what an earlier one left behind cannot call tools.
            (env::IPYBOX_TOOL_SERVER_TOKEN, self.tool_server.renew_token()),
            ("PYTHONPATH", python_path),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    async fn give_up_kernel(&mut self, why: &str) {
        if let Some(kernel) = self.kernel.take() {
            kernel.kill().await;
        }
        self.lost = Some(lost_note(why));
    }
}

/// Reads what the kernel says between cells. Ends only when the kernel does.
async fn drain(kernel: &mut Option<Kernel>, lost: &mut Option<String>) {
    let why = loop {
        let Some(running) = kernel.as_mut() else { return std::future::pending().await };
        match running.next().await {
            Ok(Event::Message(_) | Event::Torn) => {}
            Ok(Event::Died(death)) => break ended_with(&death),
            Err(error) => break format!("the connection to it failed ({})", describe(&error)),
        }
    };
    tracing::warn!(%why, "the kernel ended between cells");
    if let Some(kernel) = kernel.take() {
        kernel.kill().await;
    }
    *lost = Some(lost_note(&why));
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
