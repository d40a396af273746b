//! The settings of sandboxes in this session.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

use super::configured::named_by_configuration;
use super::domain::{DomainHost, DomainRule};
use super::git::named_by_git;
use super::proxy::{HostFilter, Proxy, system_resolver};
use super::{
    Backend, Configuration, Error, Hardening, PolicyPaths, Rules, Sandbox, SandboxPolicy, Service, bwrap,
    check, srt,
};
use crate::ground::env::Variables;
use crate::ground::env::on_path;

/// The note about a workspace whose search was cut.
const SEARCH_CUT: &str = "the workspace is too large to protect all that configures other programs in its subdirectories: \
     use a smaller one, or look at what code writes there";

/// The settings of sandboxes in this session.
#[derive(Debug, Clone)]
pub(crate) struct Confinement {
    pub(crate) backend: Backend,
    pub(crate) policy: SandboxPolicy,
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
pub(crate) struct Inside<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) paths: &'a PolicyPaths,
    /// The port of the tool server in the sandbox, or 0 for a free one; `None` for no tool server.
    pub(crate) tools: Option<u16>,
    /// The name of the settings file, below the private directory.
    pub(crate) name: &'a str,
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
        self.held_by_backend(&self.policy.rules(paths)?)
    }

    /// The rules of a new sandbox for code in the workspace, and what they cannot protect, as texts for the user.
    ///
    /// # Errors
    /// See [`SandboxPolicy::rules`].
    pub(crate) async fn rules(&self, paths: &PolicyPaths) -> Result<(Rules, Vec<String>), Error> {
        let mut rules = self.policy.rules(paths)?;
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

    /// The paths that must be readable in every sandbox, beside `others`: our own program, and srt's.
    pub(crate) fn needed_by(&self, mut others: Vec<PathBuf>) -> Vec<PathBuf> {
        others.push(self.gateway.clone());
        if self.backend == Backend::Srt {
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

    fn held_by_backend(&self, rules: &Rules) -> Result<(), Error> {
        match self.backend {
            Backend::Srt => Ok(()),
            Backend::Bubblewrap => match rules.unsupported_by_bubblewrap() {
                unsupported if unsupported.is_empty() => Ok(()),
                unsupported => Err(Error::Unsupported(unsupported.join(", "))),
            },
        }
    }

    /// Starts a sandbox.
    ///
    /// # Errors
    /// It could not be made, or not be locked as it must be. Nothing runs then.
    pub(crate) async fn start(&self, inside: Inside<'_>) -> Result<Sandbox, Error> {
        let error = match self.try_to_start(inside).await {
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

    async fn try_to_start(&self, inside: Inside<'_>) -> Result<Sandbox, Error> {
        let Inside { rules, paths, tools, name } = inside;
        for path in rules.missing_writable() {
            tracing::warn!(path = %path.display(), "`allowWrite` of the sandbox's policy names what does not exist");
        }
        let mut listeners: BTreeMap<Service, u16> =
            tools.map(|port| (Service::Tools, port)).into_iter().collect();
        let (mut mount_points, mut expected) = (None, None);
        let mut command = match self.backend {
            Backend::Srt => {
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
            Backend::Bubblewrap => {
                listeners.insert(Service::Proxy, 0);
                let program = match &rules.bwrap_path {
                    Some(program) => program.clone(),
                    None => self.find("bwrap")?,
                };
                let prepared = bwrap::prepare(rules, &paths.workspace)?;
                (mount_points, expected) = (Some(prepared.mount_points), Some(prepared.expected));
                let mut command = Command::new(program);
                command.args(prepared.arguments).arg(&self.gateway).arg("sandbox-gateway");
                command
            }
        };
        self.confine(&mut command, paths);
        let configuration = Configuration {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hardening: Hardening {
                writable: rules.writable(),
                allow_unix_sockets: rules.allow_all_unix_sockets,
            },
            is_complete_hardening_required: rustix::process::geteuid().is_root(),
            listeners,
        };
        let mut sandbox = Sandbox::start(command, configuration, expected.as_ref(), self.timeout).await?;
        tracing::info!(hardening = %sandbox.report(), "the sandbox is ready");
        let mut proxy = None;
        if let Some(listener) = sandbox.take_listener(Service::Proxy) {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Channel)?;
            let filter = HostFilter {
                allowed: rules.allowed_domains.clone(),
                denied: rules.denied_domains.clone(),
                denied_addresses: rules.denied_addresses.clone(),
            };
            proxy = Some(Proxy::start(listener, filter, system_resolver()));
        }
        sandbox.keep(proxy, mount_points);
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
