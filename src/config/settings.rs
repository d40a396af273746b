//! The settings of a user, in groups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use chrono::TimeDelta;
use serde::Deserialize;

use super::{SandboxBackend, SessionLimits};
use crate::approval::AuditContents;
use crate::connections::mcp_client::DEFAULT_CONNECT_TIMEOUT;
use crate::ground::env::ProcessEnvironment;
use crate::kernels::kernel::KernelLimits;

/// The settings of a user; each field has the default of the flag of the same name.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The working directory of the kernel; created if missing. Default: the current directory.
    pub workspace: PathBuf,
    /// The per-user directory for the state of all workspaces. Default: `IPYBOX_STATE_DIR`, else `ipybox` in
    /// the platform's data directory.
    pub state_dir: Option<PathBuf>,
    /// The form of images in a cell's reply. Default: [`Images::Inline`].
    pub images: Images,
    /// The directory for images, relative to the workspace. Default: `images`.
    pub images_dir: PathBuf,
    /// Which MCP clients get links to resources in the answers of cells. Default: [`ResourceLinks::Auto`].
    pub resource_links: ResourceLinks,
    /// Whether MCP clients that can show tables and plots as views (MCP Apps) get them. Default: yes.
    pub views: bool,
    /// The settings of the kernel.
    pub kernel: KernelSettings,
    /// The limits around a session on this machine as a whole. Default: none; in a sandbox 3/4 of the machine's memory, and 1024
    /// processes and threads.
    pub limits: SessionLimits,
    /// The memory that states of the kernel may take by which cells can be undone, in bytes; Linux only. Default: 0, no states.
    pub undo_memory: u64,
    /// Whether a copy of a session works in a copy of the workspace, whose changes wait until a user has applied them by
    /// `ipybox changes`. Neither in a sandbox nor for a Jupyter server. Default: no, it shares the workspace.
    pub branch_files: bool,
    /// The sandbox that the kernel runs in. Default: none.
    pub sandbox: Option<SandboxSettings>,
    /// Whether the sandbox of an MCP client does not matter which tells servers about it. Default: `false`; the kernel gets no more
    /// than the client's own commands.
    pub ignore_client_sandbox: bool,
    /// The Jupyter server that runs the kernel. Default: none; the kernel runs on this machine.
    pub remote: Option<RemoteSettings>,
    /// The settings of the tool server, by which code in the kernel reaches its tools.
    pub tool_server: ToolServerSettings,
    /// The settings of decisions about what may run.
    pub approval: ApprovalSettings,
    /// The log of cells, tool calls and decisions. Default: none.
    pub audit: AuditSettings,
    /// The notebook to which cells are appended. Default: none.
    pub notebook: NotebookSettings,
    /// The recording of the session, for `ipybox replay`: a new file, or a directory for a new one. Default: none.
    pub record: Option<PathBuf>,
    /// The seed of what the kernel's Python draws at random. Default: a random one if the session is recorded, else none.
    pub seed: Option<u32>,
    /// The workspace whose state directory it has, if that is another one.
    pub(crate) state_of: Option<PathBuf>,
    /// The time that the kernel's clock is ahead. Default: none.
    pub(crate) clock_ahead: Option<TimeDelta>,
    /// The workspace in which its MCP servers start, and whose `.env` fills placeholders, if that is another one.
    pub(crate) servers_of: Option<PathBuf>,
    /// Configuration files of MCP clients, whose servers are registered at the start. Default: none.
    pub mcp_configs: Vec<PathBuf>,
    /// Whether requests of MCP clients can stop waiting for their cells: an argument `wait`, and the tool
    /// `wait_for_cell`. Default: no.
    pub long_cells: bool,
    /// The environment of the process that asks for the session. Default: ours.
    pub(crate) environment: Option<ProcessEnvironment>,
}

/// The settings of the kernel.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KernelSettings {
    /// The interpreter that runs the kernel. Default: a managed environment for the workspace.
    pub python: Option<PathBuf>,
    /// Variables of the kernel, beside what every program needs and those given by
    /// [`KERNEL_ENV_PREFIX`](crate::ground::env::KERNEL_ENV_PREFIX).
    pub env: BTreeMap<String, String>,
    /// The time that it may take to start. A cold disk and no compiled bytecode cost several seconds. Default: 60 seconds.
    pub init_timeout: Duration,
    /// The memory that the kernel, and each process that it starts, may use, in bytes; Linux only. Default: the session's
    /// ([`Settings::limits`]).
    pub memory_limit: Option<u64>,
    /// The number of processes and threads that the kernel may add to those that its user runs when it starts; Linux only, and
    /// without effect on root. Default: as many as the system allows, or the session's if nothing else holds those.
    pub max_processes: Option<u32>,
    /// The size in bytes to which a file that the kernel writes can grow; Linux only. Default: no limit, and 16 GiB in a
    /// sandbox.
    pub max_file_size: Option<u64>,
    /// Whether IPython's shell commands (`!command`, `%%bash`, …) ask for approval. Default: they do not.
    pub approve_shell_cmds: bool,
    /// Whether Python's own functions that start programs are blocked, so that only shell commands start
    /// them; needs [`approve_shell_cmds`](Self::approve_shell_cmds). Not a boundary: only a sandbox is.
    /// Default: they are not.
    pub require_shell_escape: bool,
    /// Whether variables are saved after each cell, so that a later kernel of the workspace can have them back by
    /// `ipybox_checkpoint.restore()`. Not for Jupyter servers. Default: they are not.
    pub checkpoint: bool,
    /// The time without a cell after which the kernel ends. The next cell has another one, with the variables: needs
    /// [`checkpoint`](Self::checkpoint). Default: it does not end.
    pub idle_timeout: Option<Duration>,
    /// The time that a kernel's exit may take, in which threads end and `atexit` functions run; a running cell, which is
    /// interrupted before it, may take one and a half times as long, and half of that at the end of a session. Default: 2 seconds.
    pub exit_timeout: Duration,
    /// Whether every kernel starts from scratch. Default: no; on Linux, kernels after a reset and of further sessions are forked
    /// from a process that has run no code, and share its layout of memory and its hash seed.
    pub cold_start: bool,
}

/// The sandbox that the kernel runs in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SandboxSettings {
    /// The program that makes it. Default: [`SandboxBackend::Srt`].
    pub backend: SandboxBackend,
    /// The policy for code in it: a file in the settings format of sandbox-runtime. Default: the policy
    /// `sandbox-default.json`, which is part of the program.
    pub config: Option<PathBuf>,
    /// Whether `sandbox-config.json` in the workspace is added to the default if it is there, and no `config` is named. What it
    /// opens beyond the default is refused until the user has allowed it by `ipybox sandbox-policy`. Code in a sandbox can
    /// never write it. Default: `false`, because a workspace may come from a stranger.
    pub workspace_config: bool,
    /// Whether the workspace may be the user's home directory, or contain it. Code could then write files
    /// that shells, editors and the desktop act upon, and so run programs outside. Default: `false`.
    pub allow_home_workspace: bool,
    /// The program `ipybox`, of this very version, which runs inside. Default: the running program if it is that, else
    /// `ipybox` on `PATH`.
    pub gateway_program: Option<PathBuf>,
    /// Domains that packages may be installed from, beside those that uv and pip are configured for. Default: none.
    pub install_domains: Vec<String>,
    /// Files and directories that code does not see, but for the workspace and what the policy opens in them: those for
    /// temporary files, for example, which others of the machine write too. Default: none.
    pub hide: Vec<PathBuf>,
    /// When what code writes in the workspace is there. Default: [`ChangesMode::Write`].
    pub changes: ChangesMode,
    /// The time that it may take to start. Default: 30 seconds.
    pub init_timeout: Duration,
}

/// When what code in a sandbox writes in the workspace is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ChangesMode {
    /// At once.
    #[default]
    Write,
    /// When a user has applied it by `ipybox changes`: code writes to a copy of the workspace. Needs
    /// [`SandboxBackend::Bubblewrap`].
    Ask,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            backend: SandboxBackend::default(),
            config: None,
            workspace_config: false,
            allow_home_workspace: false,
            gateway_program: None,
            install_domains: Vec::new(),
            hide: Vec::new(),
            changes: ChangesMode::default(),
            init_timeout: Duration::from_secs(30),
        }
    }
}

/// The Jupyter Server, Kernel Gateway or Enterprise Gateway that runs the kernel.
#[derive(Clone)]
#[non_exhaustive]
pub struct RemoteSettings {
    /// Its URL, with its base path: `https://host:8888/base/`.
    pub url: String,
    /// Its token, or with a blank in it the whole value of the header `Authorization`. Default: none.
    pub token: Option<String>,
    /// The variable that holds it, of the environment or the workspace's `.env`, if `token` does not. Default: none.
    pub token_env: Option<String>,
    /// The kernel spec. Default: the server's.
    pub kernel_name: Option<String>,
    /// A file with certificates in PEM to trust beside those that the system trusts. Default: none.
    pub ca: Option<PathBuf>,
    /// Further headers of each request to it, of the connections to its kernels too. Default: none.
    pub headers: Vec<RemoteHeader>,
    /// Whether the server of a team, of which the session is one, gives the token of the Hub's user. Default: no.
    pub token_of_team: bool,
    /// Whether `url` is that of a JupyterHub, and the server is one of its users'. Default: no.
    pub hub: Option<RemoteHub>,
    /// Whether `url` is that of `ipybox pod`, which runs kernels like those of this machine. Default: no.
    pub is_pod: bool,
    /// The pod's token. Default: none.
    pub pod_token: Option<String>,
    /// The variable that holds it, of the environment or the workspace's `.env`, if `pod_token` does not. Default: none.
    pub pod_token_env: Option<String>,
    /// The pool of a Kubernetes cluster from which such pods are claimed. `url` is then that of the router to them, or empty: they
    /// are reached at their own addresses. Default: none.
    pub pool: Option<RemotePool>,
}

/// A warm pool of [agent-sandbox](https://github.com/kubernetes-sigs/agent-sandbox), whose sandboxes run `ipybox pod`.
#[derive(Debug, Clone)]
pub struct RemotePool {
    /// The name of the `SandboxWarmPool`.
    pub name: String,
    /// Further pools, by the names with which an agent chooses them for a session of its own: `new:gpu`. A name has small letters,
    /// digits and `-`, begins with a letter, and is not `main`, `new` or `copy`. Default: none.
    pub named: BTreeMap<String, String>,
    /// The namespace of all of them. Default: that of the cluster's credentials.
    pub namespace: Option<String>,
    /// The port on which `ipybox pod` listens. Default: 8888.
    pub port: u16,
    /// The time after which the cluster deletes what a session has left that could not do it itself. Default: 5 minutes.
    pub lease: Duration,
    /// The time that a sandbox may take to be ready. Default: 10 minutes.
    pub timeout: Duration,
    /// Whether the server of a team, of which the session is one, claims its sandboxes. Default: no.
    pub of_team: bool,
}

impl RemotePool {
    /// The pool of this name, and the default of everything else.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            named: BTreeMap::new(),
            namespace: None,
            port: 8888,
            lease: Duration::from_secs(300),
            timeout: Duration::from_secs(600),
            of_team: false,
        }
    }
}

/// The server of a JupyterHub's user, which is started if it does not run.
#[derive(Debug, Clone, Default)]
pub struct RemoteHub {
    /// The named server. Default: the user's default server.
    pub server: Option<String>,
    /// The user, if the token is not the user's own. Default: the token's.
    pub user: Option<String>,
    /// Options for its start, as the Hub's spawner takes them. Default: those of its last start.
    pub options: serde_json::Map<String, serde_json::Value>,
    /// Named servers, and options for their start, by the names with which an agent chooses them for a session of its own:
    /// `new:gpu`. A name is as those of [`RemotePool::named`]. Default: none.
    pub named: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
}

/// A header of each request to a Jupyter server. Its value is a secret.
#[derive(Clone)]
pub struct RemoteHeader {
    /// Its name.
    pub name: String,
    /// The source of its value.
    pub value: RemoteHeaderValue,
}

/// The value of a header.
#[derive(Clone)]
pub enum RemoteHeaderValue {
    /// This text.
    Text(String),
    /// The value of the variable with this name, of the environment or the workspace's `.env`.
    Variable(String),
}

/// Without the value.
impl std::fmt::Debug for RemoteHeader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RemoteHeader").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RemoteSettings {
    /// The server at `url`, and the default of everything else.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            token_env: None,
            token_of_team: false,
            kernel_name: None,
            ca: None,
            headers: Vec::new(),
            hub: None,
            is_pod: false,
            pod_token: None,
            pod_token_env: None,
            pool: None,
        }
    }
}

/// Without the token and the values of headers.
impl std::fmt::Debug for RemoteSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RemoteSettings")
            .field("url", &self.url)
            .field("has_token", &self.token.is_some())
            .field("token_env", &self.token_env)
            .field("token_of_team", &self.token_of_team)
            .field("kernel_name", &self.kernel_name)
            .field("ca", &self.ca)
            .field("headers", &self.headers)
            .field("hub", &self.hub)
            .field("pool", &self.pool)
            .finish()
    }
}

/// The settings of the tool server, by which code in the kernel reaches its tools.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolServerSettings {
    /// The host that the tool server listens on; must be this machine. Default: `localhost`.
    pub host: String,
    /// The port that the tool server listens on. Default: a free one.
    pub port: Option<u16>,
    /// The time that a registration or a tool call waits for an MCP server to start. One that is not ready then
    /// goes on to start, and the next call for it waits for it. Default: 120 seconds.
    pub connect_timeout: Duration,
}

/// The settings of the log of cells, tool calls and decisions.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditSettings {
    /// The file, in a directory that exists and code in the kernel cannot write to. Default: no log is kept.
    pub file: Option<PathBuf>,
    /// Its contents beside names, decisions, durations and sizes. Default: [`AuditContents::Arguments`].
    pub contents: AuditContents,
    /// The size in bytes at which the file is rotated. Default: 10 MiB.
    pub max_bytes: u64,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { file: None, contents: AuditContents::default(), max_bytes: 10 * 1024 * 1024 }
    }
}

/// The notebook to which the cells of a session are appended, with what they show and call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotebookSettings {
    /// None.
    #[default]
    Off,
    /// A new one in the workspace's state directory, for this user alone.
    Auto,
    /// This file, relative to the workspace. One that ipybox has begun is gone on with, others are left alone.
    File(PathBuf),
}

/// A text that says of no notebook where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `auto` nor a file whose name ends with `.ipynb`")]
pub struct UnusableNotebook(String);

impl FromStr for NotebookSettings {
    type Err = UnusableNotebook;

    /// `auto`, or a file.
    fn from_str(text: &str) -> Result<Self, UnusableNotebook> {
        match text {
            "auto" => Ok(Self::Auto),
            file if Path::new(file).extension().is_some_and(|extension| extension == "ipynb") => {
                Ok(Self::File(file.into()))
            }
            _ => Err(UnusableNotebook(text.to_owned())),
        }
    }
}

/// The approval of tool calls, and of ipybox's own actions for its client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApprovalSettings {
    /// The way to decide. Default: [`ApprovalMode::Auto`].
    pub mode: ApprovalMode,
    /// The time that an approval request waits for its answer. Default: 60 seconds.
    pub timeout: Duration,
    /// Whether the MCP server serves a page on which people decide. Default: no.
    pub page: bool,
}

/// The way to decide what may run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ApprovalMode {
    /// Everything runs.
    #[default]
    Auto,
    /// The user is asked, unless a standing answer holds.
    Ask,
    /// Nothing runs.
    Deny,
    /// By the rules in a file.
    Policy(PathBuf),
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self { mode: ApprovalMode::Auto, timeout: Duration::from_secs(60), page: false }
    }
}

/// The form of images in a cell's reply. All of them are saved in the workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Images {
    /// Links in the text, and the first few as MCP image content, made small enough for that.
    #[default]
    Inline,
    /// Links in the text alone.
    Link,
}

/// Which MCP clients get links to resources in the answers of cells, besides their text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceLinks {
    /// Those that are known to show them.
    #[default]
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workspace: PathBuf::from("."),
            state_dir: None,
            images: Images::default(),
            images_dir: PathBuf::from("images"),
            resource_links: ResourceLinks::default(),
            views: true,
            kernel: KernelSettings::default(),
            limits: SessionLimits::default(),
            undo_memory: 0,
            branch_files: false,
            sandbox: None,
            ignore_client_sandbox: false,
            remote: None,
            tool_server: ToolServerSettings::default(),
            approval: ApprovalSettings::default(),
            audit: AuditSettings::default(),
            notebook: NotebookSettings::default(),
            record: None,
            seed: None,
            state_of: None,
            clock_ahead: None,
            servers_of: None,
            mcp_configs: Vec::new(),
            long_cells: false,
            environment: None,
        }
    }
}

impl KernelSettings {
    /// The limits of a kernel.
    pub(crate) fn limits(&self) -> KernelLimits {
        let Self { memory_limit: memory, max_processes: processes, max_file_size: file_size, .. } = *self;
        KernelLimits { memory, processes, file_size }
    }
}

impl Default for KernelSettings {
    fn default() -> Self {
        Self {
            python: None,
            env: BTreeMap::new(),
            init_timeout: Duration::from_secs(60),
            memory_limit: None,
            max_processes: None,
            max_file_size: None,
            approve_shell_cmds: false,
            require_shell_escape: false,
            checkpoint: false,
            idle_timeout: None,
            exit_timeout: Duration::from_secs(2),
            cold_start: false,
        }
    }
}

impl Default for ToolServerSettings {
    fn default() -> Self {
        Self { host: "localhost".to_owned(), port: None, connect_timeout: DEFAULT_CONNECT_TIMEOUT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notebook_is_a_file_or_auto() {
        let parsed = str::parse::<NotebookSettings>;
        assert_eq!(parsed("auto"), Ok(NotebookSettings::Auto));
        assert_eq!(parsed("a/b.ipynb"), Ok(NotebookSettings::File("a/b.ipynb".into())));
        for wrong in ["", "Auto", "a.txt", ".ipynb", "ipynb"] {
            assert!(parsed(wrong).unwrap_err().to_string().starts_with(&format!("`{wrong}` is neither")));
        }
    }
}
