//! What a Rust application holds that wants a kernel alone: no tools, no approval.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::StartError;
use super::execution::CodeExecution;
use super::session::Session;
use super::{Code, CodeExecutionError, CodeExecutionResult};
use crate::config::{Config, Settings};

/// Runs Python code in an IPython kernel of its own that has no tools.
///
/// As [`CodeExecutor`](super::CodeExecutor) in everything but the tools: code that calls one gets a `ToolRunnerError`.
pub struct KernelClient {
    session: Arc<Session>,
}

/// The options of a [`KernelClient`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing before `start`"]
pub struct KernelClientBuilder {
    pub(super) settings: Settings,
}

impl KernelClientBuilder {
    /// The kernel's working directory, created if missing; default: the current directory.
    pub fn working_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.workspace = directory.into();
        self
    }

    /// The interpreter that runs the kernel, or its virtual environment; default: an environment made for the working
    /// directory.
    pub fn python(mut self, python: impl Into<PathBuf>) -> Self {
        self.settings.kernel.python = Some(python.into());
        self
    }

    /// Where state is kept that outlives the session: managed environments, registered servers. Default: `ipybox` in
    /// the platform's data directory.
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.state_dir = Some(directory.into());
        self
    }

    /// Variables for the kernel, which inherits nothing but what every program needs (`PATH`, `HOME`, the locale,
    /// certificates).
    pub fn kernel_env<K: Into<String>, V: Into<String>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.settings.kernel.env = variables.collect::<BTreeMap<_, _>>();
        self
    }

    /// Where images are saved; default: `images` in the working directory.
    pub fn images_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.images_dir = directory.into();
        self
    }

    /// How long a kernel may take to start, its environment not counted; default: 60 seconds.
    pub fn kernel_init_timeout(mut self, timeout: Duration) -> Self {
        self.settings.kernel.init_timeout = timeout;
        self
    }

    /// Starts a kernel and waits until it runs code.
    ///
    /// # Errors
    /// [`StartError`]; no process is left behind.
    pub async fn start(self) -> Result<KernelClient, StartError> {
        let config = Config::new(self.settings)?;
        let session = Session::start(&config, None).map_err(StartError::PrivateDirectory)?;
        session.started().await.map_err(|error| StartError::kernel(&error))?;
        Ok(KernelClient { session: Arc::new(session) })
    }
}

impl KernelClient {
    /// A builder with the default of each option.
    pub fn builder() -> KernelClientBuilder {
        KernelClientBuilder::default()
    }

    /// Runs code to its end. Dropping the future cancels the code.
    ///
    /// # Errors
    /// [`CodeExecutionError`] if the code raises an exception, exceeds its timeout, or loses its kernel.
    pub async fn execute(&self, code: impl Into<Code>) -> Result<CodeExecutionResult, CodeExecutionError> {
        self.stream(code).end().await
    }

    /// Runs code and tells what it shows, if it asks for that ([`Code::with_chunks`]), and its result.
    pub fn stream(&self, code: impl Into<Code>) -> CodeExecution {
        CodeExecution::consented(Arc::clone(&self.session), code.into())
    }

    /// Replaces the kernel by a fresh one. Code that runs is stopped.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if no fresh kernel starts. The next code tries again.
    pub async fn reset(&self) -> Result<(), CodeExecutionError> {
        self.session.reset().await
    }

    /// Interrupts the code that runs and gives up what waits for its turn.
    pub fn cancel(&self) {
        self.session.cancel();
    }

    /// Kills the kernel and waits until no process is left. Dropping the client does the same without waiting.
    pub async fn stop(&self) {
        self.session.stop().await;
    }
}

impl Drop for KernelClient {
    fn drop(&mut self) {
        // Streams of it may live on: they end with an error.
        self.session.abandon();
    }
}

impl std::fmt::Debug for KernelClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KernelClient").finish_non_exhaustive()
    }
}
