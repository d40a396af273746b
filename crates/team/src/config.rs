//! The configuration of a team server: a file in TOML.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use crate::actions::ActionTable;
use crate::kernels::{KernelMistake, KernelTable, kernel_mistake};
use crate::login::{LoginConfig, SecureUrl};
use crate::storage::read_bounded;
use crate::upstream::{self, UpstreamMistake, UpstreamTable};
use crate::users::UserLimits;

/// The path of MCP.
pub(crate) const MCP_PATH: &str = "/mcp";
/// The path of published actions: below that of sessions, whose login it has.
pub(crate) const ACTIONS_PATH: &str = "/mcp/actions";
/// The largest file, in bytes.
const FILE_BYTES: u64 = 1024 * 1024;
/// The first id of the range that users have if the file names none: above those that systems give to people, and beside the
/// ranges of containers.
const FIRST_ID: u32 = 1_600_000_000;
/// The interval at which the server looks for what is not to be kept any longer.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// The times that a question may wait.
const WAITS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);
/// The number of ids in it.
const IDS: u32 = 65_536;

/// Why a configuration is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read the configuration `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, or has a key or a value that there is not.
    #[error("understand the configuration `{}`", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The place, and the reason.
        #[source]
        source: toml::de::Error,
    },
    /// A value does not fit.
    #[error("use the configuration `{}`: `{key}` {why}\nhint: {remedy}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// The mistake.
        why: String,
        /// The remedy.
        remedy: &'static str,
    },
}

/// A team server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeamConfig {
    /// Its address and storage.
    pub server: ServerSettings,
    /// The users who may use it.
    pub login: LoginConfig,
    /// The sessions of users.
    #[serde(default)]
    pub sessions: SessionSettings,
    /// The place of kernels.
    #[serde(default)]
    pub kernels: KernelTable,
    /// Limits for each user.
    #[serde(default)]
    pub users: UserSettings,
    /// The sources of packages.
    #[serde(default)]
    pub packages: PackageSettings,
    /// How long records are kept.
    #[serde(default)]
    pub retention: RetentionSettings,
    /// Decisions on a page of the server. Default: there is none.
    #[serde(default)]
    pub approvals: Option<ApprovalTable>,
    /// Actions for everybody, which approvers allow. Default: there are none.
    #[serde(default)]
    pub actions: Option<ActionTable>,
    /// Servers that each user reaches as oneself.
    #[serde(default)]
    pub upstream: Vec<UpstreamTable>,
}

/// Decisions of people on a page.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalTable {
    /// The time that a question waits. Default: 10 minutes.
    #[serde(with = "humantime_serde")]
    pub wait: Duration,
    /// A program that is told of questions to approvers.
    pub webhook: Option<WebhookTable>,
}

/// A program that is told of questions by HTTP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookTable {
    /// Its URL.
    pub url: SecureUrl,
    /// The environment variable with the secret that messages are signed by.
    pub secret_env: String,
    /// Messages have the arguments of calls too. Default: `false`.
    #[serde(default)]
    pub arguments: bool,
}

impl Default for ApprovalTable {
    fn default() -> Self {
        Self { wait: Duration::from_secs(600), webhook: None }
    }
}

/// The address of the server, and where it keeps what it knows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// The address to listen on. Default: `127.0.0.1:8931`.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// The directory for what belongs to users.
    pub state_dir: PathBuf,
    /// The certificates and key to serve TLS with.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// The addresses of proxies that end TLS in front of the server.
    #[serde(default)]
    pub trusted_proxies: Vec<IpNet>,
    /// The origins of web pages that may send requests. Default: none.
    #[serde(default)]
    pub allowed_origins: Vec<String>,
    /// The largest request, in bytes. Default: 16 MiB.
    #[serde(default = "default_request_bytes")]
    pub max_request_bytes: usize,
    /// The number of connections at a time. Default: 1,024.
    #[serde(default = "default_connections")]
    pub max_connections: usize,
    /// The time that running calls get when the server is asked to end. Default: 30 seconds.
    #[serde(default = "default_drain", with = "humantime_serde")]
    pub drain: Duration,
    /// A loopback address for metrics, as Prometheus reads them. Default: none.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
}

/// The files of TLS, in PEM.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The server's certificate, and those that lead to an authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A sandbox for kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TeamSandbox {
    /// Bubblewrap.
    #[default]
    Bwrap,
    /// Anthropic's sandbox-runtime.
    Srt,
}

/// The one who decides about calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TeamApproval {
    /// Everything runs.
    Auto,
    /// The user is asked.
    Ask,
    /// Nothing runs.
    Deny,
    /// The rules of `approval_policy` decide.
    Policy,
}

/// The settings of the sessions of all users. Relative paths are relative to the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionSettings {
    /// The time without a request after which no process of the front serves a session. Default: 15 minutes.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,
    /// The time after which the kernel of a session ends that nobody uses; its variables are saved. Default: 8 hours.
    #[serde(with = "humantime_serde")]
    pub keep: Duration,
    /// The sandbox of kernels. Default: `bwrap`.
    pub sandbox_backend: TeamSandbox,
    /// The policy of the sandbox, as `--sandbox-config`.
    pub sandbox_config: Option<PathBuf>,
    /// Domains that packages may be installed from.
    pub install_domains: Vec<String>,
    /// The Python of kernels. Default: an environment for each user.
    pub python: Option<PathBuf>,
    /// The one who decides about calls. Default: `policy` with a policy, else `auto`.
    pub approval: Option<TeamApproval>,
    /// Rules that decide.
    pub approval_policy: Option<PathBuf>,
    /// Configuration files of MCP clients, whose servers each user has.
    pub mcp_config: Vec<PathBuf>,
    /// Variables of the server that sessions have too: for `${NAME}` in the parameters of MCP servers.
    pub environment: Vec<String>,
    /// Requests may stop waiting for their cells.
    pub long_cells: bool,
    /// The audit log of each user has code and results too.
    pub audit_contents: bool,
    /// Limits of each session, as the flags `--limit-…` have them.
    pub limit_memory: Option<String>,
    /// In processors.
    pub limit_cpu: Option<f64>,
    /// The number of processes and threads.
    pub limit_processes: Option<u32>,
    /// Temporary files, and what is added to the workspace.
    pub limit_disk: Option<String>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(15 * 60),
            keep: Duration::from_secs(8 * 3600),
            sandbox_backend: TeamSandbox::default(),
            sandbox_config: None,
            install_domains: Vec::new(),
            python: None,
            approval: None,
            approval_policy: None,
            mcp_config: Vec::new(),
            environment: Vec::new(),
            long_cells: false,
            audit_contents: false,
            limit_memory: None,
            limit_cpu: None,
            limit_processes: None,
            limit_disk: None,
        }
    }
}

/// The sources of packages.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PackageSettings {
    /// The indexes that packages come from, the first one before the others. Default: those that the machine's uv and pip are
    /// configured for, and each user's.
    pub indexes: Vec<SecureUrl>,
}

/// How long records are kept. Default: for ever.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionSettings {
    /// Files of audit logs, since their last line was written.
    #[serde(with = "humantime_serde")]
    pub audit: Option<Duration>,
    /// The workspace, the home and the state of a user, since the user was last seen.
    #[serde(with = "humantime_serde")]
    pub users: Option<Duration>,
}

/// Limits for each user, and the ids of the system that users have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserSettings {
    /// The first id of the system's users that stand for users of the server, where it runs as root.
    pub first_id: u32,
    /// The number of ids.
    pub ids: u32,
    /// Users may share the id of the server, where it does not run as root: their MCP servers, which are in no sandbox, can then
    /// read what belongs to each other. Default: `false`, and the server does not start.
    pub share_id: bool,
    /// Requests of a user in a minute. Default: 600.
    pub requests_per_minute: u32,
    /// Sessions of a user at a time. Default: 8.
    pub max_sessions: usize,
    /// Memory of all that a user runs: bytes, or with K, M, G or T. Default: no limit. Needs control groups.
    pub limit_memory: Option<String>,
    /// Processor time of all that, in processors.
    pub limit_cpu: Option<f64>,
    /// Processes and threads of all that.
    pub limit_processes: Option<u32>,
}

impl UserSettings {
    /// The limits of all that a user runs.
    pub(crate) fn limits(&self) -> UserLimits {
        UserLimits {
            memory: self.limit_memory.as_deref().and_then(bytes),
            cpu: self.limit_cpu,
            processes: self.limit_processes,
        }
    }
}

impl Default for UserSettings {
    fn default() -> Self {
        Self {
            first_id: FIRST_ID,
            ids: IDS,
            share_id: false,
            requests_per_minute: 600,
            max_sessions: 8,
            limit_memory: None,
            limit_cpu: None,
            limit_processes: None,
        }
    }
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8931))
}

fn default_request_bytes() -> usize {
    16 * 1024 * 1024
}

fn default_connections() -> usize {
    1024
}

fn default_drain() -> Duration {
    Duration::from_secs(30)
}

impl TeamConfig {
    /// Reads a configuration. Its relative paths are made absolute.
    ///
    /// # Errors
    /// The file cannot be read, or does not describe a server.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::File { path: path.to_owned(), source };
        let text = read_bounded(path, FILE_BYTES).map_err(failed)?;
        let text = String::from_utf8(text).map_err(|error| failed(std::io::Error::other(error)))?;
        let mut config: Self =
            toml::from_str(&text).map_err(|source| ConfigError::Syntax { path: path.to_owned(), source })?;
        let base = std::path::absolute(path).map_err(failed)?;
        config.rebase(base.parent().unwrap_or(Path::new("/")));
        config.validate(path)?;
        config.login.hub_user_claim = config.kernels.hub_user_claim.clone();
        Ok(config)
    }

    fn rebase(&mut self, base: &Path) {
        self.login = self.login.clone().in_directory(base);
        let sessions = &mut self.sessions;
        let paths = [&mut sessions.sandbox_config, &mut sessions.python, &mut sessions.approval_policy];
        let tls = self.server.tls.iter_mut().flat_map(|tls| [&mut tls.certificate, &mut tls.key]);
        let paths = paths.into_iter().flatten().chain(&mut sessions.mcp_config).chain(tls);
        for path in paths.chain([&mut self.server.state_dir]) {
            *path = base.join(&*path);
        }
    }

    fn validate(&self, path: &Path) -> Result<(), ConfigError> {
        let wrong = |key, why: &str, remedy| {
            Err(ConfigError::Value { path: path.to_owned(), key, why: why.to_owned(), remedy })
        };
        let server = &self.server;
        let is_local = server.listen.ip().is_loopback();
        if self.login.resource.url().path() != MCP_PATH {
            return wrong(
                "login.resource",
                "does not end with `/mcp` after the host",
                "use the address that clients have: `https://ipybox.example.org/mcp`",
            );
        }
        if !is_local && server.tls.is_none() && server.trusted_proxies.is_empty() {
            return wrong(
                "server.listen",
                "is not a loopback address, and there is no TLS",
                "name `server.tls`, or the addresses of the proxies that end TLS in `server.trusted_proxies`",
            );
        }
        if server.metrics.is_some_and(|metrics| !metrics.ip().is_loopback()) {
            return wrong("server.metrics", "is not a loopback address", "use 127.0.0.1");
        }
        let sessions = &self.sessions;
        if sessions.approval_policy.is_some()
            && !matches!(sessions.approval, None | Some(TeamApproval::Policy))
        {
            return wrong(
                "sessions.approval_policy",
                "would decide nothing beside this `sessions.approval`",
                "use `policy` there",
            );
        }
        if let Some(name) = sessions.environment.iter().find(|name| !is_variable(name)) {
            let why = format!("has `{name}`, which is no name of a variable");
            return wrong("sessions.environment", &why, "name variables, without values");
        }
        let sizes = [
            ("sessions.limit_memory", &sessions.limit_memory),
            ("sessions.limit_disk", &sessions.limit_disk),
            ("users.limit_memory", &self.users.limit_memory),
        ];
        for (key, size) in sizes {
            if size.as_ref().is_some_and(|size| bytes(size).is_none()) {
                return wrong(key, "is no size", "use bytes, or a number with K, M, G or T, as \"4G\"");
            }
        }
        if self.users.ids == 0 || self.users.first_id.checked_add(self.users.ids).is_none() {
            return wrong("users.ids", "is no range of ids", "use the default, or some thousand");
        }
        let least = sessions.keep + DAY;
        if self.retention.users.is_some_and(|kept| kept < least) {
            return wrong(
                "retention.users",
                "is shorter than `sessions.keep` and a day: a session could still use what would be removed",
                "use a longer time, as \"90d\"",
            );
        }
        if self.retention.audit.is_some_and(|kept| kept < DAY) {
            return wrong("retention.audit", "is shorter than a day", "use a longer time, as \"365d\"");
        }
        let has_web = self.login.issuers.iter().any(|issuer| issuer.web.is_some());
        if self.approvals.is_some() && self.login.tokens_file.is_none() && !has_web {
            return wrong(
                "approvals",
                "has nobody who could log in by a browser",
                "write a table `login.issuer.web`, or name `login.tokens_file` and add those who decide by `ipybox team user add`",
            );
        }
        if self.approvals.as_ref().is_some_and(|approvals| !WAITS.contains(&approvals.wait)) {
            return wrong(
                "approvals.wait",
                "is not between a second and a week",
                "use the default, or some minutes",
            );
        }
        if self.actions.is_some() && self.approvals.is_none() {
            return wrong(
                "actions",
                "have nobody who is asked",
                "write a table `[approvals]`, which has a page",
            );
        }
        if let Some(UpstreamMistake { key, why, remedy }) = upstream::mistake(&self.upstream, &self.login) {
            return wrong(key, &why, remedy);
        }
        let mistake = kernel_mistake(&self.kernels, sessions, self.actions.is_some());
        if let Some(KernelMistake { key, why, remedy }) = mistake {
            return wrong(key, why, remedy);
        }
        if self.users.requests_per_minute == 0 || self.users.max_sessions == 0 {
            return wrong("users", "would let nobody in", "leave the limits out, or use 1 at least");
        }
        Ok(())
    }
}

/// Whether the text is a name of an environment variable.
pub(crate) fn is_variable(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
        && characters.all(|other| other == '_' || other.is_ascii_alphanumeric())
}

/// The number of bytes of a size with a letter, or `None`.
fn bytes(size: &str) -> Option<u64> {
    let (digits, factor) = match size.char_indices().last()? {
        (place, letter) if letter.is_ascii_alphabetic() => {
            let power = "KMGT".find(letter.to_ascii_uppercase())? + 1;
            (&size[..place], 1_u64 << (10 * power))
        }
        _ => (size, 1),
    };
    digits.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(factor)
}
