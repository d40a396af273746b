//! The process of a session: `ipybox`, as a client would start it, in the name of a user.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::account::UserPlace;
use crate::actions::ActionTable;
use crate::config::{PackageSettings, SessionSettings, TeamApproval, TeamSandbox};
use crate::hub::{HubName, HubNameError, TeamHub};
use crate::kernels::KernelTable;
use crate::login::SecureUrl;
use crate::socket::SessionTokens;

/// The variables that each process has from the server.
const INHERITED: [&str; 6] = ["PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"];
/// The directories of the machine whose files are its operator's and other users': code sees none of them, but for what
/// `sandbox_config` opens there.
const FOREIGN: [&str; 5] = ["/home", "/root", "/run", "/tmp", "/var/tmp"];
/// The file by which pip reads no configuration.
const NO_FILE: &str = "/dev/null";
/// The variable with a session's token at the socket.
const TOKEN: &str = "IPYBOX_SESSION_TOKEN";
/// The time that the last words of a process may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Starts the processes of sessions.
pub(crate) struct SessionStarter {
    program: PathBuf,
    settings: SessionSettings,
    packages: PackageSettings,
    way: Option<SocketWay>,
    /// The JupyterHub whose servers run kernels; `None` if this machine does.
    hub: Option<Arc<TeamHub>>,
    /// The pools of the sandboxes that run kernels, if they do.
    kernels: KernelTable,
    /// The directory of published actions, if processes serve these instead.
    published: Option<PathBuf>,
}

/// The way of a session to the server.
#[derive(Clone)]
pub(crate) struct SocketWay {
    pub(crate) socket: PathBuf,
    pub(crate) tokens: Arc<SessionTokens>,
    /// The page to which browsers come back from authorization servers.
    pub(crate) callback: String,
    /// The time that a question to people waits; `None` if the server asks nobody.
    pub(crate) approvals: Option<Duration>,
    /// Those who decide about published actions.
    pub(crate) publishers: Option<ActionTable>,
    /// The file with the servers that users reach as themselves.
    pub(crate) upstream: Option<PathBuf>,
}

/// A process that has been started.
pub(crate) struct SessionProcess {
    pub(crate) output: ChildStdout,
    pub(crate) input: ChildStdin,
    pub(crate) words: StartWords,
}

impl SocketWay {
    /// As the program reads it.
    fn as_json(&self) -> Value {
        let publishers = self.publishers.as_ref();
        json!({
            "socket": self.socket.display().to_string(),
            "callback": self.callback,
            "approvals": self.approvals.is_some(),
            "publishers": publishers.map(|table| json!({"names": table.approver, "includes_user": table.self_approval})),
        })
    }
}

impl SessionStarter {
    /// Starts this program.
    pub(crate) fn new(program: PathBuf, settings: SessionSettings, packages: PackageSettings) -> Self {
        Self {
            program,
            settings,
            packages,
            way: None,
            hub: None,
            kernels: KernelTable::default(),
            published: None,
        }
    }

    /// Has sessions ask the server by this way.
    pub(crate) fn with_socket(self, way: SocketWay) -> Self {
        Self { way: Some(way), ..self }
    }

    /// Has kernels run at this JupyterHub.
    pub(crate) fn with_hub(self, hub: Option<Arc<TeamHub>>) -> Self {
        Self { hub, ..self }
    }

    /// Has kernels run where this table says, if it is in sandboxes of a cluster.
    pub(crate) fn with_kernels(self, kernels: KernelTable) -> Self {
        Self { kernels, ..self }
    }

    /// Starts processes that serve the published actions in a directory, in place of sessions.
    pub(crate) fn with_published(self, directory: PathBuf) -> Self {
        Self { published: Some(directory), ..self }
    }

    /// The time after which a process ends that nobody needs.
    pub(crate) fn idle(&self) -> Duration {
        self.settings.idle
    }

    /// Starts a process for a session of a user; `wish` says which.
    pub(crate) async fn start(&self, place: &Arc<UserPlace>, mut wish: Value) -> io::Result<SessionProcess> {
        let mut command = self.command(place);
        let server = self.way.as_ref().map(SocketWay::as_json);
        if let Some(way) = &self.way {
            command.env(TOKEN, way.tokens.of(&place.key));
        }
        let front = match &self.published {
            Some(directory) => {
                command.args(self.action_arguments(place, directory));
                server
            }
            None => {
                let hub = self.hub.as_ref().map(|hub| Ok((hub.url(), hub.user_of(&place.key)?)));
                let hub = hub.transpose().map_err(|error: HubNameError| io::Error::other(error))?;
                command.args(self.arguments(place, hub.as_ref()));
                let token = self.kernels.router_token_env.as_ref();
                command.envs(token.and_then(|name| Some((name, std::env::var_os(name)?))));
                if let Some(server) = server {
                    wish["server"] = server;
                }
                Some(wish)
            }
        };
        if let Some(front) = front {
            command.arg("--front").arg(front.to_string());
        }
        let mut child = command.spawn()?;
        let (Some(output), Some(input), Some(errors)) =
            (child.stdout.take(), child.stdin.take(), child.stderr.take())
        else {
            return Err(io::Error::other("it has no pipes"));
        };
        let words = StartWords::of(errors, place.key.clone());
        // Reaped when it ends, which it does when its input ends.
        tokio::spawn(async move { child.wait().await });
        Ok(SessionProcess { output, input, words })
    }

    /// Checks that the kernel of a user would run in a sandbox.
    ///
    /// # Errors
    /// It would not: the words of `ipybox doctor`.
    pub(crate) async fn check(&self, place: &UserPlace) -> Result<(), String> {
        let mut command = self.command(place);
        command.args(["doctor", "--sandbox-backend", self.backend()]);
        command.arg("--workspace").arg(place.workspace()).arg("--state-dir").arg(place.state());
        if let Some(python) = &self.settings.python {
            command.arg("--python").arg(python);
        }
        command.stdin(Stdio::null());
        let program = self.program.display();
        let output = command.output().await.map_err(|error| {
            format!("`{program}` cannot be run for users ({error}); they need to read it, and to pass through its directories")
        })?;
        if output.status.success() {
            return Ok(());
        }
        let [out, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Err(format!("`ipybox doctor` says\n{out}{errors}"))
    }

    /// A command of the program in the name of a user.
    pub(crate) fn admin_command(&self, place: &UserPlace, action: &[&str]) -> Command {
        let mut command = self.command(place);
        command.arg("sessions").args(action).arg("--state-dir").arg(place.state());
        command.stdin(Stdio::null());
        command
    }

    /// A command that reads the audit log of a user, in files of which the oldest comes first, in the name of the user: the user
    /// could have put links there.
    pub(crate) fn audit_command(&self, place: &UserPlace, files: &[PathBuf], flags: &[String]) -> Command {
        let mut command = self.command(place);
        command.args(["audit", "--ocsf"]).args(flags).arg("--").args(files);
        command.stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
        command
    }

    fn backend(&self) -> &'static str {
        match self.settings.sandbox_backend {
            TeamSandbox::Bwrap => "bwrap",
            TeamSandbox::Srt => "srt",
        }
    }

    /// The program, in the name of a user and in nothing of the server's.
    fn command(&self, place: &UserPlace) -> Command {
        let mut command = Command::new(&self.program);
        if place.id.is_some() || !place.groups.is_empty() {
            command.args(["team", "become"]);
            command.args(place.groups.iter().flat_map(|group| [OsStr::new("--group"), group.as_os_str()]));
            command.args(place.id.map(|id| format!("--id={id}")));
            command.arg("--").arg(&self.program);
        }
        command.env_clear();
        let passed = INHERITED.into_iter().chain(self.settings.environment.iter().map(String::as_str));
        command.envs(passed.filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(index_variables(&self.packages.indexes));
        command.env("HOME", place.home()).current_dir(place.home());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The flags of a session, whose kernel runs on this machine, in a sandbox of a cluster, or as this user of a JupyterHub.
    fn arguments(&self, place: &UserPlace, hub: Option<&(&str, HubName)>) -> Vec<OsString> {
        let settings = &self.settings;
        let mut arguments = FlagList::default();
        arguments.flag("--workspace", place.workspace());
        arguments.flag("--state-dir", place.state());
        arguments.flag("--keep-session", format!("{}s", settings.keep.as_secs().max(1)));
        arguments.flag("--audit-log", place.audit_log());
        arguments.flags("--audit-contents", settings.audit_contents);
        arguments.flags("--checkpoint", hub.is_none());
        arguments.flags("--long-cells", settings.long_cells);
        let is_local = hub.is_none() && self.kernels.pool.is_none();
        arguments.flags("--sandbox", is_local);
        if let Some((url, user)) = hub {
            arguments.flag("--kernel-hub-url", url);
            arguments.flag("--kernel-hub-user", user.as_str());
            arguments.flags("--kernel-hub-token-team", true);
            let named = self.kernels.hub_servers.iter();
            named.for_each(|(name, options)| {
                arguments.flag("--kernel-hub-options", format!("{name}={}", json!(options)));
            });
        }
        self.add_pools(&mut arguments);
        settings.install_domains.iter().for_each(|domain| arguments.flag("--sandbox-install-domain", domain));
        let upstream = self.way.as_ref().and_then(|way| way.upstream.as_ref());
        settings.mcp_config.iter().chain(upstream).for_each(|file| arguments.flag("--mcp-config", file));
        if is_local {
            self.add_local(&mut arguments);
        }
        self.add_approval(&mut arguments);
        arguments.0
    }

    /// The flags of a process that serves published actions.
    fn action_arguments(&self, place: &UserPlace, directory: &Path) -> Vec<OsString> {
        let mut arguments = FlagList(vec!["actions".into(), "serve".into()]);
        arguments.flag("--published", directory);
        arguments.flag("--workspace", place.workspace());
        arguments.flag("--state-dir", place.state());
        arguments.flag("--audit-log", place.audit_log());
        arguments.flags("--audit-contents", self.settings.audit_contents);
        self.add_local(&mut arguments);
        self.add_approval(&mut arguments);
        arguments.0
    }

    /// The flags about kernels in sandboxes that the server claims.
    fn add_pools(&self, arguments: &mut FlagList) {
        let KernelTable { pool: Some(pool), pool_port, router_url, router_token_env, .. } = &self.kernels
        else {
            return;
        };
        arguments.flag("--kernel-pool", pool);
        let named = self.kernels.named.iter();
        named.for_each(|(name, named)| arguments.flag("--kernel-pool", format!("{name}={}", named.pool)));
        arguments.flags("--kernel-pool-team", true);
        arguments.option("--kernel-pool-port", pool_port.map(|port| port.to_string()).as_ref());
        arguments.option("--kernel-router-url", router_url.as_ref());
        arguments.option("--kernel-router-token-env", router_token_env.as_ref());
        let timeout = self.kernels.claim_timeout.map(|timeout| timeout.as_secs_f64().to_string());
        arguments.option("--kernel-claim-timeout", timeout.as_ref());
        let idle = self.kernels.idle_timeout.map(|idle| format!("{}s", idle.as_secs_f64()));
        arguments.option("--kernel-idle-timeout", idle.as_ref());
    }

    /// The flags about kernels of this machine.
    fn add_local(&self, arguments: &mut FlagList) {
        let settings = &self.settings;
        arguments.flag("--sandbox-backend", self.backend());
        FOREIGN.iter().for_each(|place| arguments.flag("--sandbox-hide", place));
        arguments.option("--sandbox-config", settings.sandbox_config.as_ref());
        arguments.option("--python", settings.python.as_ref());
        arguments.option("--limit-memory", settings.limit_memory.as_ref());
        arguments.option("--limit-cpu", settings.limit_cpu.map(|cpu| cpu.to_string()).as_ref());
        arguments.option("--limit-processes", settings.limit_processes.map(|most| most.to_string()).as_ref());
        arguments.option("--limit-disk", settings.limit_disk.as_ref());
    }

    /// The flags about approval.
    fn add_approval(&self, arguments: &mut FlagList) {
        let settings = &self.settings;
        let approval = settings.approval.map(|mode| match mode {
            TeamApproval::Auto => "auto",
            TeamApproval::Ask => "ask",
            TeamApproval::Deny => "deny",
            TeamApproval::Policy => "policy",
        });
        arguments.option("--approval", approval.as_ref());
        arguments.option("--approval-policy", settings.approval_policy.as_ref());
        let wait =
            self.way.as_ref().and_then(|way| way.approvals).map(|wait| wait.as_secs().max(1).to_string());
        arguments.option("--approval-timeout", wait.as_ref());
    }
}

/// Variables by which uv and pip take packages from these indexes and from no other: files of theirs, which users write, are not
/// read.
fn index_variables(indexes: &[SecureUrl]) -> Vec<(&'static str, String)> {
    let Some((last, others)) = indexes.split_last() else { return Vec::new() };
    let joined = |indexes: &[SecureUrl]| indexes.iter().map(SecureUrl::as_str).collect::<Vec<_>>().join(" ");
    let mut variables = vec![
        ("UV_NO_CONFIG", "1".to_owned()),
        // uv asks it after the others.
        ("UV_DEFAULT_INDEX", last.as_str().to_owned()),
        ("PIP_CONFIG_FILE", NO_FILE.to_owned()),
        ("PIP_INDEX_URL", indexes[0].as_str().to_owned()),
    ];
    if !others.is_empty() {
        variables.extend([("UV_INDEX", joined(others)), ("PIP_EXTRA_INDEX_URL", joined(&indexes[1..]))]);
    }
    variables
}

/// The arguments of a command.
#[derive(Default)]
struct FlagList(Vec<OsString>);

impl FlagList {
    fn flag(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.0.extend([OsString::from(name), value.as_ref().to_owned()]);
    }

    fn flags(&mut self, name: &str, is_set: bool) {
        self.0.extend(is_set.then(|| OsString::from(name)));
    }

    fn option(&mut self, name: &str, value: Option<&impl AsRef<OsStr>>) {
        if let Some(value) = value {
            self.flag(name, value);
        }
    }
}

/// The end of what a process says on stderr.
pub(crate) struct StartWords(watch::Receiver<LastStartWords>);

#[derive(Default)]
struct LastStartWords {
    text: String,
    has_ended: bool,
}

impl StartWords {
    fn of(errors: ChildStderr, key: String) -> Self {
        let (sender, receiver) = watch::channel(LastStartWords::default());
        tokio::spawn(async move {
            let mut lines = BufReader::new(errors).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                tracing::debug!(user = %key, "{line}");
                if let Some(words) = line.strip_prefix("ipybox: ") {
                    sender.send_modify(|last| words.clone_into(&mut last.text));
                }
            }
            sender.send_modify(|last| last.has_ended = true);
        });
        Self(receiver)
    }

    /// Why the process has ended, in its first words about it; empty if it has not said it.
    pub(crate) async fn last(mut self) -> String {
        // At worst what it has said so far.
        tokio::time::timeout(LAST_WORDS, self.0.wait_for(|last| last.has_ended)).await.ok();
        self.0.borrow().text.clone()
    }
}

#[cfg(test)]
mod tests;
