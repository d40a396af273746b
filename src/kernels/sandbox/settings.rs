//! The settings of sandboxes in this session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

use super::bwrap::ProcView;
use super::configured::named_by_configuration;
use super::domain::{DomainHost, DomainRule};
use super::git::named_by_git;
use super::proxy::{HostFilter, Proxy, system_resolver};
use super::{
    ClientPermissions, Error, GatewayConfiguration, Hardening, HostService, MountedCopy, PolicyPaths,
    Sandbox, SandboxBackend, SandboxPolicy, SandboxPolicyError, SandboxRules, bwrap, check, srt,
};
use crate::ground::env::Variables;
use crate::ground::env::on_path;
use crate::ground::process::HeldLimits;

/// The note about a workspace whose search was cut.
const SEARCH_CUT: &str = "the workspace is too large to protect all that configures other programs in its subdirectories: \
     use a smaller one, or look at what code writes there";

/// The number of times that srt is started if it gives up waiting for its own helpers.
const STARTS_OF_SRT: usize = 3;

/// The settings of sandboxes in this session.
#[derive(Debug, Clone)]
pub(crate) struct Confinement {
    pub(crate) backend: SandboxBackend,
    pub(crate) policy: SandboxPolicy,
    /// The permissions of the session's clients; the policy allows no more than each of them.
    pub(crate) clients: Vec<Arc<ClientPermissions>>,
    /// The program of ours that runs inside.
    pub(crate) gateway: PathBuf,
    /// The process environment.
    pub(crate) variables: Arc<Variables>,
    /// The sources of packages, beside the configured index.
    pub(crate) install_domains: Vec<String>,
    /// The time that a sandbox may take to start.
    pub(crate) timeout: Duration,
}

/// A sandbox for one purpose.
#[derive(Clone, Copy)]
pub(crate) struct SandboxPlan<'a> {
    pub(crate) rules: &'a SandboxRules,
    pub(crate) paths: &'a PolicyPaths,
    /// The port of the tool server in the sandbox, or 0 for a free one; `None` for no tool server.
    pub(crate) tools: Option<u16>,
    /// The name of the settings file, below the private directory.
    pub(crate) name: &'a str,
    /// The limits around all that runs in it.
    pub(crate) limits: &'a HeldLimits,
    /// The copy that code writes in the place of the workspace; bubblewrap alone can show it there.
    pub(crate) copy: Option<&'a MountedCopy>,
}

impl Confinement {
    /// Looks whether sandboxes can be made at all, as far as that shows without making one.
    ///
    /// # Errors
    /// A program is missing, or the policy cannot be held.
    pub(crate) async fn check(&self, paths: &PolicyPaths) -> Result<(), Error> {
        if check::lacks(self.backend, &self.variables, |key| self.policy.has(key)) {
            let findings = check::missing(self.backend, &self.variables).await;
            if !findings.is_empty() {
                return Err(check::UnusableSandbox { backend: self.backend, findings }.into());
            }
        }
        self.held_by_backend(&self.rules_of_policy(paths)?)
    }

    /// The rules of the policy, as far as the clients allow the same.
    ///
    /// # Errors
    /// See [`SandboxPolicy::rules`] and [`SandboxRules::within`].
    pub(crate) fn rules_of_policy(&self, paths: &PolicyPaths) -> Result<SandboxRules, SandboxPolicyError> {
        let rules = self.policy.rules(paths)?;
        let mut rules = self.clients.iter().try_fold(rules, |rules, client| rules.within(client, paths))?;
        if self.backend == SandboxBackend::Srt {
            // It opens hosts by name only.
            rules.allowed_domains.retain(|domain| *domain != DomainRule::everything());
        }
        Ok(rules)
    }

    /// The rules of a new sandbox for code in the workspace, and what they cannot protect, as texts for the user.
    ///
    /// # Errors
    /// See [`SandboxPolicy::rules`].
    pub(crate) async fn rules(&self, paths: &PolicyPaths) -> Result<(SandboxRules, Vec<String>), Error> {
        let mut rules = self.rules_of_policy(paths)?;
        let named = named_by_git(&rules, paths, &self.variables).await;
        for note in &named.notes {
            tracing::warn!(note, "the sandbox cannot protect what git is configured for");
        }
        rules.deny_write(named.paths.iter().map(PathBuf::as_path));
        rules.deny_write(named_by_configuration(&rules, paths).iter().map(PathBuf::as_path));
        let mut notes: Vec<String> = named.notes.into_iter().collect();
        if rules.is_search_cut {
            tracing::warn!(SEARCH_CUT);
            notes.push(SEARCH_CUT.to_owned());
        }
        Ok((rules, notes))
    }

    /// The paths with a rule, each with all beneath it down to the next one, and whether code may write there.
    ///
    /// # Errors
    /// A pattern of the policy cannot be expanded.
    pub(crate) fn writable_parts(
        &self,
        rules: &SandboxRules,
        paths: &PolicyPaths,
    ) -> Result<Vec<(PathBuf, bool)>, Error> {
        Ok(bwrap::writable_parts(rules, &paths.workspace)?)
    }

    /// The paths that must be readable in every sandbox, beside `others`: our own program, and srt's.
    pub(crate) fn needed_by(&self, mut others: Vec<PathBuf>) -> Vec<PathBuf> {
        others.push(self.gateway.clone());
        if self.backend == SandboxBackend::Srt {
            others.extend(self.find("srt").ok().and_then(|srt| srt::package(&srt)));
        }
        others
    }

    /// Whether packages may come from `host:port` because the user has said so.
    pub(crate) fn installs_from(&self, host: &str) -> bool {
        let split = host
            .rsplit_once(':')
            .and_then(|(name, port)| Some((DomainHost::parse(name)?, port.parse().ok()?)));
        split.is_some_and(|(name, port)| {
            let mut rules = self.install_domains.iter().filter_map(|domain| DomainRule::parse(domain).ok());
            rules.any(|rule| rule.matches(&name, port))
        })
    }

    fn held_by_backend(&self, rules: &SandboxRules) -> Result<(), Error> {
        match self.backend {
            SandboxBackend::Srt => Ok(()),
            SandboxBackend::Bubblewrap => match rules.unsupported_by_bubblewrap() {
                unsupported if unsupported.is_empty() => Ok(()),
                unsupported => Err(Error::Unsupported(unsupported.join(", "))),
            },
        }
    }

    /// Starts a sandbox.
    ///
    /// # Errors
    /// It could not be made, or not be locked as it must be. Nothing runs then.
    pub(crate) async fn start(&self, inside: SandboxPlan<'_>) -> Result<Sandbox, Error> {
        let mut started = self.try_to_start(inside, ProcView::Own).await;
        for _ in 1..STARTS_OF_SRT {
            match &started {
                Err(error) if error.is_of_impatience() => {
                    started = self.try_to_start(inside, ProcView::Own).await;
                }
                _ => break,
            }
        }
        if self.backend == SandboxBackend::Bubblewrap
            && matches!(&started, Err(error) if error.is_of_covered_proc())
        {
            started = self.try_to_start(inside, ProcView::Outer).await;
        }
        let error = match started {
            Err(error) if error.may_be_the_machines() => error,
            started => return started,
        };
        let findings = check::missing(self.backend, &self.variables).await;
        if findings.is_empty() {
            return Err(error);
        }
        tracing::debug!(%error, "the sandbox did not start");
        Err(check::UnusableSandbox { backend: self.backend, findings }.into())
    }

    async fn try_to_start(&self, inside: SandboxPlan<'_>, proc: ProcView) -> Result<Sandbox, Error> {
        let SandboxPlan { rules, paths, tools, name, limits, copy } = inside;
        for path in rules.missing_writable() {
            tracing::warn!(path = %path.display(), "`allowWrite` of the sandbox's policy names what does not exist");
        }
        let mut listeners: BTreeMap<HostService, u16> =
            tools.map(|port| (HostService::Tools, port)).into_iter().collect();
        let mut mount_points = None;
        let mut expected = None;
        let command = match self.backend {
            SandboxBackend::Srt => {
                let mut rules = rules.clone();
                if cfg!(target_os = "linux") {
                    let held = bwrap::hold_stubs(&rules)?;
                    // Else srt would make what is missing below a stub, which would not be empty any more.
                    rules.deny_write(held.mount_points.stubs().paths());
                    rules.deny_read(held.hidden.iter().map(PathBuf::as_path));
                    (mount_points, expected) = (Some(held.mount_points), Some(held.expected));
                }
                let settings = paths.private_directory.join(name);
                srt::command(&self.find("srt")?, &settings, &rules, &self.gateway)?
            }
            SandboxBackend::Bubblewrap => {
                listeners.insert(HostService::Proxy, 0);
                let program = match &rules.bwrap_path {
                    Some(program) => program.clone(),
                    None => self.find("bwrap")?,
                };
                let prepared = bwrap::prepare(rules, &paths.workspace, copy, proc)?;
                (mount_points, expected) = (Some(prepared.mount_points), Some(prepared.expected));
                let mut command = Command::new(program);
                command.args(prepared.arguments).arg(&self.gateway).arg("sandbox-gateway");
                command
            }
        };
        let mut command = entered(limits, command);
        self.confine(&mut command, paths);
        let configuration = GatewayConfiguration {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hardening: Hardening {
                writable: rules.writable(),
                allow_unix_sockets: rules.allow_all_unix_sockets,
                readable: match proc {
                    ProcView::Own => None,
                    ProcView::Outer => Some(all_but_proc().map_err(Error::Channel)?),
                },
            },
            is_complete_hardening_required: rustix::process::geteuid().is_root() || proc == ProcView::Outer,
            listeners,
        };
        let mut sandbox = Sandbox::start(command, configuration, expected.as_ref(), self.timeout).await?;
        tracing::info!(hardening = %sandbox.report(), "the sandbox is ready");
        let mut proxy = None;
        if let Some(listener) = sandbox.take_listener(HostService::Proxy) {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Channel)?;
            let filter = HostFilter {
                allowed: rules.allowed_domains.clone(),
                denied: rules.denied_domains.clone(),
                denied_addresses: rules.denied_addresses.clone(),
            };
            proxy = Some(Proxy::start(listener, filter, system_resolver()));
        }
        if let Some(note) = proc.note() {
            tracing::warn!(note, "the sandbox is within another one");
        }
        sandbox.keep(proxy, mount_points, proc);
        Ok(sandbox)
    }

    fn confine(&self, command: &mut Command, paths: &PolicyPaths) {
        let temporary = paths.writable_directory.join("tmp");
        command
            // In the workspace it could find files of code's.
            .current_dir(&paths.private_directory)
            .env_clear()
            .envs(self.variables.for_sandbox())
            // bash takes a socket as stdin for a remote shell's, and runs `.bashrc`, unless it is below another shell.
            .env("SHLVL", "1")
            // What srt makes `TMPDIR` of, inside; its own is outside of what code can write.
            .env("CLAUDE_CODE_TMPDIR", &temporary)
            .env("TMPDIR", &paths.private_directory);
    }

    fn find(&self, name: &'static str) -> Result<PathBuf, Error> {
        on_path(name, self.variables.in_process("PATH").unwrap_or_default())
            .ok_or(Error::Missing { program: name })
    }
}

/// All that is in the root directory, without `/proc`. The places of links are among it.
fn all_but_proc() -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir("/")?.map(|entry| Ok(entry?.path()));
    let mut places = entries.collect::<std::io::Result<Vec<_>>>()?;
    places.retain(|place| !place.is_symlink() && place != Path::new("/proc"));
    Ok(places)
}

/// The command, within the limits from its first instruction on.
fn entered(limits: &HeldLimits, command: Command) -> Command {
    let mut words = limits.entrance().into_iter();
    let Some(program) = words.next() else { return command };
    let mut entering = Command::new(program);
    let command = command.as_std();
    entering.args(words).arg(command.get_program()).args(command.get_args());
    entering
}
