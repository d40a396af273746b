//! `KernelClient`, for Rust applications that need a kernel only: no tools, no approval.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::execution::CodeExecution;
use super::{Code, CodeExecutionError, CodeExecutionResult};
use crate::config::{Config, RemoteSettings, SandboxBackend, Settings};
use crate::ground::env::ProcessEnvironment;
use crate::session::{Session, StartError};

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
    gateway_program: Option<PathBuf>,
    /// Its URL is empty until it is given.
    gateway: Option<RemoteSettings>,
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

    /// Whether the kernel runs in a sandbox; default: `false`. Without [`sandbox_config`](Self::sandbox_config) it can
    /// read all but secrets, write its working directory and nothing else, and has no network.
    ///
    /// The program `ipybox`, of the version of this crate, runs inside: see [`gateway_program`](Self::gateway_program).
    pub fn sandbox(mut self, is_sandboxed: bool) -> Self {
        self.settings.sandbox = is_sandboxed.then(|| self.settings.sandbox.take().unwrap_or_default());
        self
    }

    /// What code in the sandbox may do: a file in the settings format of sandbox-runtime, relative to the working
    /// directory. Asks for a [`sandbox`](Self::sandbox) too.
    pub fn sandbox_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.sandbox.get_or_insert_default().config = Some(file.into());
        self
    }

    /// Whether the working directory may be the user's home directory, or contain it, in a sandbox. Code
    /// could then write files that shells, editors and the desktop act upon. Asks for a
    /// [`sandbox`](Self::sandbox) too. Default: `false`.
    pub fn allow_home_workspace(mut self, is_allowed: bool) -> Self {
        self.settings.sandbox.get_or_insert_default().allow_home_workspace = is_allowed;
        self
    }

    /// Whether `sandbox-config.json` in the working directory is what [`sandbox_config`](Self::sandbox_config) names, if it is
    /// there. Code in a sandbox can never write it. Asks for a [`sandbox`](Self::sandbox) too. Default: `false`, because a
    /// working directory may come from a stranger.
    pub fn sandbox_workspace_config(mut self, is_taken: bool) -> Self {
        self.settings.sandbox.get_or_insert_default().workspace_config = is_taken;
        self
    }

    /// The program that makes the sandbox; default: [`SandboxBackend::Srt`]. Asks for a
    /// [`sandbox`](Self::sandbox) too.
    pub fn sandbox_backend(mut self, backend: SandboxBackend) -> Self {
        self.settings.sandbox.get_or_insert_default().backend = backend;
        self
    }

    /// Domains that packages may be installed from in the sandbox, beside those that uv and pip are configured for:
    /// `example.com`, `*.example.com`, with a port or without. Asks for a [`sandbox`](Self::sandbox) too. Default: none.
    pub fn sandbox_install_domains<D: Into<String>>(mut self, domains: impl IntoIterator<Item = D>) -> Self {
        let sandbox = self.settings.sandbox.get_or_insert_default();
        sandbox.install_domains = domains.into_iter().map(Into::into).collect();
        self
    }

    /// The program `ipybox` to run in the sandbox, of the version of this crate; default: `ipybox` on `PATH`. Has no
    /// effect without a sandbox.
    pub fn gateway_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.gateway_program = Some(program.into());
        self
    }

    /// Runs the kernel on the Jupyter Server, Kernel Gateway or Enterprise Gateway at this URL, which includes its base
    /// path. Default: the kernel runs on this machine. Excludes a sandbox and an interpreter of this machine.
    pub fn kernel_gateway_url(mut self, url: impl Into<String>) -> Self {
        self.gateway().url = url.into();
        self
    }

    /// The token of that server, or with a blank in it (`Bearer …`) the whole value of the header `Authorization`. Has no
    /// effect without a [`kernel_gateway_url`](Self::kernel_gateway_url).
    pub fn kernel_gateway_token(mut self, token: impl Into<String>) -> Self {
        self.gateway().token = Some(token.into());
        self
    }

    /// A file with certificates in PEM to trust beside the system's. Has no effect without a
    /// [`kernel_gateway_url`](Self::kernel_gateway_url).
    pub fn kernel_gateway_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.gateway().ca = Some(file.into());
        self
    }

    /// The kernel spec to start there; default: the server's. Has no effect without a
    /// [`kernel_gateway_url`](Self::kernel_gateway_url).
    pub fn kernel_name(mut self, name: impl Into<String>) -> Self {
        self.gateway().kernel_name = Some(name.into());
        self
    }

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
        Ok(KernelClient { session: Arc::new(session) })
    }
}

impl KernelClientBuilder {
    fn gateway(&mut self) -> &mut RemoteSettings {
        self.gateway.get_or_insert_with(|| RemoteSettings::new(""))
    }

    pub(super) fn into_settings(mut self) -> Settings {
        if let Some(sandbox) = &mut self.settings.sandbox {
            sandbox.gateway_program = self.gateway_program;
        }
        self.settings.remote = self.gateway.filter(|gateway| !gateway.url.is_empty());
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
        CodeExecution::consented(Arc::clone(&self.session), code.into())
    }

    /// Replaces the kernel by a fresh one. Code that runs is stopped.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if no fresh kernel starts. The next code tries again.
    pub async fn reset(&self) -> Result<(), CodeExecutionError> {
        let reset = self.session.reset().await.outcome().await;
        reset.map_err(CodeExecutionError::unavailable)
    }

    /// Interrupts the running code and cancels queued code.
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
        // Its streams may outlive it: they end with an error.
        self.session.abandon();
    }
}

impl std::fmt::Debug for KernelClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KernelClient").finish_non_exhaustive()
    }
}
