//! The options of a [`CodeExecutor`](super::CodeExecutor).

use std::path::PathBuf;
use std::time::Duration;

use super::kernel_client::KernelClientBuilder;
use super::kernel_options::kernel_options;
use crate::approval::{ApprovalEffect, ApprovalPolicy, SessionFace};
use crate::config::{
    AuditSettings, ChangesMode, NotebookSettings, RemoteHeader, RemoteHeaderValue, SandboxBackend,
    SessionLimits,
};
use crate::tools::registry::Registry;

/// The options of a [`CodeExecutor`](super::CodeExecutor), each with a default.
///
/// There is none for logging: the library emits [`tracing`](https://docs.rs/tracing) events, which the
/// application may subscribe to.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing before `start`"]
pub struct CodeExecutorBuilder {
    pub(super) kernel: KernelClientBuilder,
    pub(super) registry: Option<Registry>,
    /// `None`: the default policy, by the fields for tool calls and shell commands.
    policy: Option<ApprovalPolicy>,
    asks_for_tool_calls: bool,
    /// The face that holds the session, for the audit log.
    pub(super) face: SessionFace,
}

impl Default for CodeExecutorBuilder {
    fn default() -> Self {
        Self {
            kernel: KernelClientBuilder::default(),
            registry: None,
            policy: None,
            asks_for_tool_calls: true,
            face: SessionFace::RustLibrary,
        }
    }
}

/// Tool calls run, shell commands need approval.
const ONLY_COMMANDS: &str = r#"
default = "allow"
[[rule]]
server = "ipybox"
effect = "ask"
"#;

kernel_options!(CodeExecutorBuilder);

impl CodeExecutorBuilder {
    /// The memory that the kernel, and each process that it starts, may use, in bytes; Linux only. Default: no limit.
    pub fn kernel_memory_limit(mut self, bytes: u64) -> Self {
        self.kernel.settings.kernel.memory_limit = Some(bytes);
        self
    }

    /// The most processes and threads that the kernel may add to those that its user runs; Linux only, without effect on root.
    /// Default: no limit.
    pub fn kernel_max_processes(mut self, count: u32) -> Self {
        self.kernel.settings.kernel.max_processes = Some(count);
        self
    }

    /// The size in bytes to which a file that the kernel writes can grow; Linux only. Default: no limit, and 16 GiB in a
    /// sandbox.
    pub fn kernel_max_file_size(mut self, bytes: u64) -> Self {
        self.kernel.settings.kernel.max_file_size = Some(bytes);
        self
    }

    /// A configuration file of an MCP client, whose servers are registered at the start; may be called several times. The
    /// first code waits for them. The approval policy decides about each as about the tool `register_mcp_server`.
    pub fn mcp_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.kernel.settings.mcp_configs.push(file.into());
        self
    }

    /// The host that the tool server listens on, a loopback address; default: `localhost`.
    pub fn tool_server_host(mut self, host: impl Into<String>) -> Self {
        self.kernel.settings.tool_server.host = host.into();
        self
    }

    /// The port that the tool server listens on; default: a free one.
    pub fn tool_server_port(mut self, port: u16) -> Self {
        self.kernel.settings.tool_server.port = Some(port);
        self
    }

    /// The time that a registration or a tool call waits for an MCP server to start; default: 120 seconds. One
    /// that is not ready then goes on to start, and the next call for it waits for it. `timeout` in a
    /// server's parameters wins. A [`registry`](Self::registry) of your own has [its
    /// own](Registry::connect_timeout) for registrations.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.kernel.settings.tool_server.connect_timeout = timeout;
        self
    }

    /// The MCP servers whose tools code can call. Default: those registered in the workspace.
    pub fn registry(mut self, registry: &Registry) -> Self {
        self.registry = Some(registry.clone());
        self
    }

    /// Whether tool calls of [`CodeExecutor::stream`](super::CodeExecutor::stream) need approval; default:
    /// `true`. Without it they run. An [`approval_policy`](Self::approval_policy) replaces it.
    pub fn approve_tool_calls(mut self, is_asked: bool) -> Self {
        self.asks_for_tool_calls = is_asked;
        self
    }

    /// Whether shell commands of [`CodeExecutor::stream`](super::CodeExecutor::stream) need approval:
    /// `!command`, `%%bash` and the like; default: `false`. The request's server is `ipybox`, its tool
    /// `shell` or `shell_magic`, its argument `cmd`.
    ///
    /// It is a rule for code that keeps it; only a sandbox is a boundary.
    pub fn approve_shell_cmds(mut self, is_asked: bool) -> Self {
        self.kernel.settings.kernel.approve_shell_cmds = is_asked;
        self
    }

    /// Whether Python's own functions that start programs are blocked, so that only shell commands start
    /// them; default: `false`. Needs [`approve_shell_cmds`](Self::approve_shell_cmds).
    ///
    /// It is a rule for code that keeps it; only a sandbox is a boundary.
    pub fn require_shell_escape(mut self, is_required: bool) -> Self {
        self.kernel.settings.kernel.require_shell_escape = is_required;
        self
    }

    /// Whether variables are saved after each piece of code, so that a later kernel of the workspace can have them back by
    /// `ipybox_checkpoint.restore()`; default: `false`. Excludes a [`kernel_gateway_url`](Self::kernel_gateway_url).
    pub fn checkpoint(mut self, is_saved: bool) -> Self {
        self.kernel.settings.kernel.checkpoint = is_saved;
        self
    }

    /// The time without code after which the kernel ends. The next code has another one, with the variables: needs
    /// [`checkpoint`](Self::checkpoint). Its sandbox of a pool is suspended if it has volumes, else deleted. Default: it does not end.
    pub fn kernel_idle_timeout(mut self, timeout: Duration) -> Self {
        self.kernel.settings.kernel.idle_timeout = Some(timeout);
        self
    }

    /// The time that a kernel's exit may take, in which threads end and `atexit` functions run; code that still runs is
    /// interrupted before it, and may take one and a half times as long, and half of that at the end of the session. Default: 2
    /// seconds.
    pub fn kernel_exit_timeout(mut self, timeout: Duration) -> Self {
        self.kernel.settings.kernel.exit_timeout = timeout;
        self
    }

    /// Decides which calls need approval, which run and which are denied. Denied calls are denied in
    /// [`CodeExecutor::execute`](super::CodeExecutor::execute) too. Default: every call needs approval.
    pub fn approval_policy(mut self, policy: ApprovalPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The time that an [`ApprovalRequest`](crate::ApprovalRequest) waits for its answer; default: 60 seconds. The call fails
    /// then with `ApprovalTimeoutError`.
    pub fn approval_timeout(mut self, timeout: Duration) -> Self {
        self.kernel.settings.approval.timeout = timeout;
        self
    }

    /// A log of cells, tool calls and decisions; default: none.
    pub fn audit(mut self, settings: AuditSettings) -> Self {
        self.kernel.settings.audit = settings;
        self
    }

    /// The notebook to which code is appended, with what it shows and calls; default: none.
    /// [`CodeExecutor::notebook`](super::CodeExecutor::notebook) says where it is.
    pub fn notebook(mut self, settings: NotebookSettings) -> Self {
        self.kernel.settings.notebook = settings;
        self
    }

    /// The recording of the session, for `ipybox replay`: a new file, or a directory for a new one; default: none.
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.kernel.settings.record = Some(path.into());
        self
    }

    /// The seed of hashes, `random`, `numpy.random` and `uuid.uuid4` in the kernel; default: a random one if the session is
    /// recorded, else none.
    pub fn seed(mut self, seed: u32) -> Self {
        self.kernel.settings.seed = Some(seed);
        self
    }

    fn kernel(&mut self) -> &mut KernelClientBuilder {
        &mut self.kernel
    }

    /// The default of each option, but for those of the kernel.
    pub(crate) fn with_kernel(kernel: KernelClientBuilder) -> Self {
        Self { kernel, ..Self::default() }
    }

    /// Sets who holds the session, for the audit log.
    pub(crate) fn held_by(mut self, face: SessionFace) -> Self {
        self.face = face;
        self
    }

    /// The policy by these options.
    pub(super) fn policy(&self) -> ApprovalPolicy {
        match &self.policy {
            Some(policy) => policy.clone(),
            None if self.asks_for_tool_calls => ApprovalPolicy::always(ApprovalEffect::Ask),
            // Cannot fail; if it did, asking about everything is safe.
            None => ApprovalPolicy::parse(ONLY_COMMANDS)
                .unwrap_or_else(|_| ApprovalPolicy::always(ApprovalEffect::Ask)),
        }
    }
}
