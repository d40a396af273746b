//! A kernel that a Jupyter server runs, on this machine or another.
//!
//! ```text
//! RemoteKernel ⇄ link (a task) ⇄ jupyter::Channels ⇄ server ⇄ ipykernel, adapted by ipybox_remote.py
//!                 └ calls ⇄ CallHandler
//! ```

mod calls;
mod frames;
mod link;
mod parts;
mod running;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::task::TaskTracker;

pub(crate) use self::calls::CallHandler;
use self::link::{LinkState, RemoteEvent, RemoteLink, RemoteRequest};
pub(super) use self::parts::{KernelChannel, MessageParts};
use self::running::{RunningKernel, obtain, settle};
use super::fold::CellFold;
use super::jupyter::{JupyterChannels, KernelId, KernelServer};
use super::message::{KernelInfo, KernelMessage, MessageContent};
use super::{Error, ExecuteRequest, KernelDeath, KernelEvent, KernelLimits, SHARED_MODULES, ShellCommands};
use crate::ground::text::describe;

/// The comm target of the kernel's calls, beside those of other code.
const COMM_TARGET: &str = "ipybox";

/// The time that a kernel waits for a sign of life from us before it ends. Laptops sleep at night.
const LEASE: Duration = Duration::from_secs(12 * 3600);

/// The interval at which a new kernel is sent a `kernel_info_request` until its complete answer arrives.
const GREET_INTERVAL: Duration = Duration::from_secs(1);

/// The interval of checks that a starting kernel still exists.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The time that the server may take to interrupt a kernel.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(3);

/// The least time to wait for a broken connection when code is to be run.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);

/// The modules that adapt a kernel; the first is run and imports the others.
const ADAPTER: &str = include_str!("ipybox_remote.py");
#[rustfmt::skip]
const MODULES: [(&str, &str); 6] = python_modules![
    "ipybox_carrier", "ipybox_imports", "ipybox_ipykernel", "ipybox_packages", "ipybox_session",
    "ipybox_streams",
];

/// The modules of kernels that have none of the workspace's files.
#[cfg(target_os = "linux")]
pub(super) const MODULES_WITHOUT_WORKSPACE: [(&str, &str); 2] =
    python_modules!["ipybox_imports", "ipybox_packages"];

/// The settings for starting remote kernels, one at a time.
pub(crate) struct RemoteLaunch {
    pub(crate) server: KernelServer,
    /// The kernel spec; `None` for the server's default.
    pub(crate) kernel_name: Option<String>,
    /// Variables for the server that configure the kernel's start.
    pub(crate) start_variables: BTreeMap<String, String>,
    /// Variables for code in the kernel.
    pub(crate) environment: BTreeMap<String, String>,
    /// The limits of the kernel and of each process that it starts.
    pub(crate) limits: KernelLimits,
    /// Which programs its code may start.
    pub(crate) shell_commands: ShellCommands,
    /// The time that it may take to be ready.
    pub(crate) timeout: Duration,
    /// The Python modules that generated code imports, by name.
    pub(crate) runtime: &'static [(&'static str, &'static str)],
    /// Answers its calls.
    pub(crate) handler: Arc<dyn CallHandler>,
    /// Pending requests about kernels.
    pub(crate) tasks: TaskTracker,
    /// A kernel that the server restarts as the next one.
    pub(crate) earlier: Option<KernelId>,
}

impl RemoteLaunch {
    /// Leaves a kernel on the server, which restarts it as the next one. Another kernel is killed.
    pub(crate) async fn keep_for_restart(&mut self, kernel: super::Kernel) {
        self.earlier = match kernel {
            super::Kernel::Remote(kernel) => Some(kernel.release()),
            other @ super::Kernel::Own(_) => {
                other.kill().await;
                None
            }
        };
    }

    /// Has the server end the kernel that was to be restarted, and waits for pending requests about others.
    pub(crate) async fn end(&mut self) {
        if let (Some(earlier), Some(server)) = (self.earlier.take(), self.server.found()) {
            drop(RunningKernel::new(server, earlier, self.tasks.clone()));
        }
        settle(&self.tasks).await;
        self.server.leave().await;
    }
}

/// A kernel on a Jupyter server. Dropping it has the server end it.
pub(crate) struct RemoteKernel {
    running: RunningKernel,
    requests: mpsc::UnboundedSender<RemoteRequest>,
    heard: mpsc::Receiver<RemoteEvent>,
    state: watch::Receiver<LinkState>,
    link: AbortHandle,
    limits: KernelLimits,
    /// Completed interrupt requests to the server are reported here.
    interrupts: (mpsc::UnboundedSender<()>, mpsc::UnboundedReceiver<()>),
    /// The newest of these requests: a late one must not hit the next cell.
    interrupting: Option<JoinHandle<()>>,
}

impl RemoteKernel {
    /// Has the server start a kernel, or restart the earlier one, and waits until it is adapted. A Hub starts the server first,
    /// which has a time of its own.
    pub(super) async fn start(
        launch: &mut RemoteLaunch,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Self, Error> {
        let started = Self::find_and_start(launch, report).await;
        match &started {
            // Another session has just had it stopped.
            Err(Error::Server(error)) if launch.server.may_start_again(error) => {
                Self::find_and_start(launch, report).await
            }
            _ => started,
        }
    }

    async fn find_and_start(
        launch: &mut RemoteLaunch,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Self, Error> {
        let server = launch.server.find(launch.timeout, report).await?;
        report("starting the IPython kernel on the Jupyter server");
        let timeout = launch.timeout;
        let started = async {
            let running = obtain(launch, &server).await?;
            let mut kernel = Self::connect(running, launch).await?;
            kernel.greet().await?;
            kernel.adapt(launch).await?;
            Ok(kernel)
        };
        tokio::time::timeout(timeout, started).await.unwrap_or(Err(Error::StartTimeout(launch.timeout)))
    }

    async fn connect(running: RunningKernel, launch: &RemoteLaunch) -> Result<Self, Error> {
        let server = Arc::clone(&running.server);
        let kernel = running.kernel.clone();
        let session = uuid::Uuid::new_v4().to_string();
        let handler = Arc::clone(&launch.handler);
        let (link, requests, heard, state) = RemoteLink::new(server, kernel, session, handler);
        let channels = open(&link, launch.limits).await?;
        let link = tokio::spawn(link.run(channels)).abort_handle();
        let limits = launch.limits;
        Ok(Self {
            running,
            requests,
            heard,
            state,
            link,
            limits,
            interrupts: mpsc::unbounded_channel(),
            interrupting: None,
        })
    }

    /// Waits until the kernel answers and its iopub messages arrive.
    async fn greet(&mut self) -> Result<(), Error> {
        let mut asked = Vec::new();
        let mut info = None;
        let mut is_idle = false;
        let mut interval = tokio::time::interval(GREET_INTERVAL);
        while info.is_none() || !is_idle {
            tokio::select! {
                _ = interval.tick() => {
                    let (id, request) = MessageParts::request(KernelChannel::Shell, "kernel_info_request", &json!({}));
                    asked.push(id);
                    self.send(request)?;
                }
                message = self.next_while_starting() => {
                    let KernelMessage { parent, content, .. } = message?;
                    match content {
                        _ if !parent.is_some_and(|parent| asked.contains(&parent)) => {}
                        MessageContent::KernelInfoReply(reply) => info = Some(reply),
                        MessageContent::Idle => is_idle = true,
                        _ => {}
                    }
                }
            }
        }
        match info {
            Some(KernelInfo { implementation, language }) if language != "python" => {
                Err(Error::NotPython { implementation, language })
            }
            _ => Ok(()),
        }
    }

    /// Makes the kernel like one of our own, before any code of a user.
    async fn adapt(&mut self, launch: &RemoteLaunch) -> Result<(), Error> {
        let sources: BTreeMap<&str, &str> =
            MODULES.iter().chain(&SHARED_MODULES).chain(launch.runtime).copied().collect();
        let settings = json!({
            "environment": launch.environment,
            "lease_seconds": LEASE.as_secs(),
            "limits": launch.limits,
            "shell_commands": launch.shell_commands,
            "sources": sources,
        });
        // A JSON string literal is also a Python one.
        let code = format!(
            "exec(compile({}, 'ipybox:ipybox_remote.py', 'exec'), \
             {{'__name__': 'ipybox_remote', 'SETTINGS': __import__('json').loads({})}})",
            Value::from(ADAPTER),
            Value::from(settings.to_string()),
        );
        let content = json!({
            "code": code,
            "silent": true,
            "store_history": false,
            "user_expressions": {},
            "allow_stdin": false,
            "stop_on_error": true,
        });
        let (id, request) = MessageParts::request(KernelChannel::Shell, "execute_request", &content);
        self.send(request)?;
        let mut fold = CellFold::new(id);
        while !fold.is_complete() {
            let message = self.next_while_starting().await?;
            if fold.is_parent_of(&message) {
                drop(fold.take(message.content));
            }
        }
        match fold.finish() {
            (_, Some(error)) => Err(Error::NotAdapted(error.last_line())),
            (_, None) => Ok(()),
        }
    }

    /// The next message of a kernel that must not end or disconnect. Cancellation safe.
    async fn next_while_starting(&mut self) -> Result<KernelMessage, Error> {
        loop {
            match self.next().await? {
                KernelEvent::Message(message) => return Ok(message),
                KernelEvent::Torn => {}
                KernelEvent::Disconnected(why) => return Err(Error::Disconnected(why)),
                KernelEvent::Died(death) => return Err(Error::DiedStarting(death)),
            }
        }
    }

    /// Sends a request to run code. A broken connection gets a while to be reopened.
    pub(super) async fn execute(&mut self, request: &ExecuteRequest) -> Result<String, Error> {
        let back = self.state.wait_for(|state| matches!(state, LinkState::Connected));
        if tokio::time::timeout(SHORT_PATIENCE, back).await.is_err()
            && let LinkState::Broken(why) = &*self.state.borrow()
        {
            return Err(Error::Disconnected(why.clone()));
        }
        if let Some(mut interrupting) = self.interrupting.take()
            && tokio::time::timeout(INTERRUPT_TIMEOUT, &mut interrupting).await.is_err()
        {
            interrupting.abort();
        }
        let content = json!({
            "code": request.code(),
            "silent": false,
            "store_history": request.store_history,
            "user_expressions": {},
            "allow_stdin": false,
            "stop_on_error": false,
            // For `ipybox_ipykernel.py`.
            "has_views": request.has_views,
        });
        let (id, request) = MessageParts::request(KernelChannel::Shell, "execute_request", &content);
        self.ask(RemoteRequest::Execute(request))?;
        Ok(id)
    }

    /// Sends a request that runs no code; its answer carries the returned id.
    pub(super) fn request(&mut self, kind: &str, content: &Value) -> Result<String, Error> {
        let (id, request) = MessageParts::request(KernelChannel::Shell, kind, content);
        self.send(request)?;
        Ok(id)
    }

    fn send(&self, parts: MessageParts) -> Result<(), Error> {
        self.ask(RemoteRequest::Other(parts))
    }

    fn ask(&self, request: RemoteRequest) -> Result<(), Error> {
        self.requests.send(request).map_err(|_| Error::Connection("the remote kernel has ended".into()))
    }

    /// The next message or the kernel's end. Cancellation safe.
    pub(super) async fn next(&mut self) -> Result<KernelEvent, Error> {
        let heard = tokio::select! {
            heard = self.heard.recv() => heard,
            Some(()) = self.interrupts.1.recv() => {
                return Ok(KernelEvent::Message(KernelMessage::new(None, MessageContent::InterruptReply)));
            }
        };
        Ok(match heard {
            Some(RemoteEvent::Message(message)) => KernelEvent::Message(message),
            Some(RemoteEvent::Torn) => KernelEvent::Torn,
            Some(RemoteEvent::Disconnected(why)) => {
                self.ask(RemoteRequest::Forget)?;
                KernelEvent::Disconnected(why)
            }
            Some(RemoteEvent::Ended(words)) => KernelEvent::Died(KernelDeath::remote(words, self.limits)),
            None => return Err(Error::Connection("the remote kernel has ended".into())),
        })
    }

    /// Requests the server to interrupt the running code. A message confirms it.
    pub(super) fn request_interrupt(&mut self) -> Result<(), Error> {
        let state = self.state.borrow().clone();
        if let LinkState::Broken(why) = state {
            self.ask(RemoteRequest::Forget)?;
            return Err(Error::Disconnected(why));
        }
        let server = Arc::clone(&self.running.server);
        let kernel = self.running.kernel.clone();
        let done = self.interrupts.0.clone();
        let requests = self.requests.clone();
        self.interrupting = Some(tokio::spawn(async move {
            let interrupted = tokio::time::timeout(INTERRUPT_TIMEOUT, server.interrupt_kernel(&kernel)).await;
            let why = match interrupted {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(describe(&error)),
                Err(_) => Some("no answer".to_owned()),
            };
            if let Some(why) = why {
                tracing::warn!(why, "the Jupyter server does not interrupt the kernel");
                interrupt_by(&requests);
            }
            // Fails only if the kernel was given up.
            done.send(()).ok();
        }));
        Ok(())
    }

    /// Sends an interrupt request to the kernel itself, without its server.
    pub(super) fn interrupt_directly(&self) {
        interrupt_by(&self.requests);
    }

    /// Has the server end the kernel, and does not wait.
    pub(super) fn end(&self) {
        self.running.begin_to_end();
    }

    /// Has the server end the kernel.
    pub(super) async fn kill(self) {
        self.link.abort();
        self.running.end().await;
    }

    /// Leaves the kernel on the server, to be restarted.
    pub(super) fn release(self) -> KernelId {
        self.link.abort();
        self.running.release()
    }
}

/// Sends an interrupt request to a kernel itself.
fn interrupt_by(requests: &mpsc::UnboundedSender<RemoteRequest>) {
    let interrupt = MessageParts::request(KernelChannel::Control, "interrupt_request", &json!({})).1;
    if requests.send(RemoteRequest::Other(interrupt)).is_err() {
        tracing::debug!("the remote kernel is gone before its interrupt");
    }
}

/// Opens the first connection, which a server accepts when the kernel answers; meanwhile the kernel may die.
async fn open(link: &RemoteLink, limits: KernelLimits) -> Result<JupyterChannels, Error> {
    let look = async {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if let Err(error) = link.server.check_kernel(&link.kernel).await
                && error.is_end()
            {
                tracing::debug!(%error, "a kernel that starts is gone");
                return "its process ended while it started; the log of the Jupyter server says why"
                    .to_owned();
            }
        }
    };
    tokio::select! {
        opened = link.open() => Ok(opened?),
        words = look => Err(Error::DiedStarting(KernelDeath::remote(words, limits))),
    }
}
