//! `KernelClient`, for Rust applications that need a kernel only: no tools, no approval.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::execution::CodeExecution;
use super::kernel_options::kernel_options;
use super::numbered_session::NumberedSession;
use super::{Code, CodeExecutionError, CodeExecutionResult};
use crate::config::{
    ChangesMode, Config, RemoteHeader, RemoteHeaderValue, RemoteHub, RemotePool, RemoteSettings,
    SandboxBackend, SandboxSettings, SessionLimits, Settings,
};
use crate::ground::env::ProcessEnvironment;
use crate::session::{Session, StartError, UndoTarget};

/// Runs Python code in an IPython kernel of its own that has no tools.
///
/// As [`CodeExecutor`](super::CodeExecutor) in everything but the tools: code that calls one gets a `ToolRunnerError`.
pub struct KernelClient {
    session: NumberedSession,
}

/// The options of a [`KernelClient`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing before `start`"]
pub struct KernelClientBuilder {
    pub(super) settings: Settings,
    pub(super) gateway_program: Option<PathBuf>,
    /// Its URL is empty until it is given.
    gateway: Option<RemoteSettings>,
    pub(super) hub_url: Option<String>,
    pub(super) hub: RemoteHub,
    pub(super) pod_url: Option<String>,
    pub(super) pool_name: Option<String>,
    /// Its name is empty until that is given.
    pool: Option<RemotePool>,
    pub(super) router_url: Option<String>,
}

kernel_options!(KernelClientBuilder);

impl KernelClientBuilder {
    /// The environment of the process that asks for the kernel; default: ours.
    pub(crate) fn environment(mut self, environment: ProcessEnvironment) -> Self {
        self.settings.environment = Some(environment);
        self
    }

    /// Starts a kernel and waits until it runs code.
    ///
    /// # Errors
    /// [`StartError`]; no process is left behind.
    pub async fn start(self) -> Result<KernelClient, StartError> {
        let config = Config::new(self.into_settings())?;
        let session = Session::open(&config, None).await?;
        session.started().await?;
        Ok(KernelClient { session: NumberedSession::new(session) })
    }
}

impl KernelClientBuilder {
    fn kernel(&mut self) -> &mut Self {
        self
    }

    pub(super) fn sandbox_settings(&mut self) -> &mut SandboxSettings {
        self.settings.sandbox.get_or_insert_default()
    }

    pub(super) fn gateway(&mut self) -> &mut RemoteSettings {
        self.gateway.get_or_insert_with(|| RemoteSettings::new(""))
    }

    pub(super) fn pool(&mut self) -> &mut RemotePool {
        self.pool.get_or_insert_with(|| RemotePool::new(""))
    }

    pub(super) fn into_settings(mut self) -> Settings {
        if let Some(sandbox) = &mut self.settings.sandbox {
            sandbox.gateway_program = self.gateway_program.take();
        }
        if let Some(url) = self.hub_url.take() {
            let hub = std::mem::take(&mut self.hub);
            let remote = self.gateway();
            remote.url = url;
            remote.hub = Some(hub);
        }
        if let Some(url) = self.pod_url.take() {
            let remote = self.gateway();
            (remote.url, remote.is_pod) = (url, true);
        }
        if let Some(name) = self.pool_name.take() {
            let pool = RemotePool { name, ..self.pool().clone() };
            // Without a router, sandboxes have addresses of their own.
            let router = self.router_url.take().unwrap_or_default();
            let remote = self.gateway();
            (remote.url, remote.is_pod, remote.pool) = (router, true, Some(pool));
        }
        let is_named =
            |remote: &RemoteSettings| !remote.url.is_empty() || remote.hub.is_some() || remote.is_pod;
        self.settings.remote = self.gateway.filter(is_named);
        self.settings
    }
}

impl KernelClient {
    /// A builder with the default of each option.
    pub fn builder() -> KernelClientBuilder {
        KernelClientBuilder::default()
    }

    /// The real path of the kernel's working directory.
    pub fn working_dir(&self) -> &Path {
        self.session.workspace()
    }

    /// Runs code to its end. Dropping the future cancels the code.
    ///
    /// # Errors
    /// [`CodeExecutionError`] if the code raises an exception, exceeds its timeout, or loses its kernel.
    pub async fn execute(&self, code: impl Into<Code>) -> Result<CodeExecutionResult, CodeExecutionError> {
        self.stream(code).end().await
    }

    /// Runs code and streams its output, if requested by [`Code::with_chunks`], and its result.
    pub fn stream(&self, code: impl Into<Code>) -> CodeExecution {
        CodeExecution::consented(&self.session, code.into())
    }

    /// Replaces the kernel by a fresh one. Code that runs is stopped.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if no fresh kernel starts. The next code tries again.
    pub async fn reset(&self) -> Result<(), CodeExecutionError> {
        self.session.replace_kernel().await
    }

    /// Sets the kernel back to its state before the newest code that was run: so many pieces of it are undone. Returns what this
    /// could not take back, in lines: calls of tools, files of the workspace, packages; and what differs from the state as it
    /// was. Code that runs is stopped, and counts; connections to MCP servers stay.
    ///
    /// States are kept within [`undo_memory`](KernelClientBuilder::undo_memory), also after the death of a kernel (Linux).
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if the state was not kept, with the reason; everything goes on as before.
    pub async fn undo(&self, count: usize) -> Result<Vec<String>, CodeExecutionError> {
        self.session.undo_code(Ok(UndoTarget::Cells(count))).await
    }

    /// As [`CodeExecutor::undo_to`](super::CodeExecutor::undo_to).
    ///
    /// # Errors
    /// As there.
    pub async fn undo_to(&self, cell: &str) -> Result<Vec<String>, CodeExecutionError> {
        self.session.undo_code(UndoTarget::from_id(cell)).await
    }

    /// As [`CodeExecutor::copy`](super::CodeExecutor::copy).
    ///
    /// # Errors
    /// As there.
    pub async fn copy(&self) -> Result<Self, CodeExecutionError> {
        self.session.copy().await.map(|session| Self { session })
    }

    /// Interrupts the running code and cancels queued code.
    pub fn cancel(&self) {
        self.session.cancel();
    }

    /// Ends the kernel and waits until no process is left. Dropping the client does the same without waiting.
    pub async fn stop(&self) {
        self.session.stop().await;
    }
}

impl Drop for KernelClient {
    fn drop(&mut self) {
        // Its streams may outlive it: they end with an error.
        self.session.abandon();
    }
}

impl std::fmt::Debug for KernelClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KernelClient").finish_non_exhaustive()
    }
}
