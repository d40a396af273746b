//! Installing packages into the environment that runs the kernel.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::index;
use super::installer::{AGAIN, BytecodeTime, Installer};
use super::lock::InstallTurn;
use super::probe;
use super::record::InstallerTool;
use super::requirement::{self, RequirementError};
use super::run::{self, InstallerRun, SandboxRunner};
use super::{Environment, Error, InstallProgress, contents, several, summary};
use crate::ground::env::Variables;
use crate::ground::text::backticked;

/// Why a package was not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum EnvironmentInstallError {
    /// A text is no requirement.
    #[error(transparent)]
    Requirement(#[from] RequirementError),
    /// The installer ran and did not succeed.
    #[error("install `{package}`\n{output}")]
    Failed {
        /// The requirement.
        package: String,
        /// The installer's whole output.
        output: String,
    },
    /// There is neither uv nor a pip in the environment.
    #[error(
        "install `{package}`: there is no `uv`, and `{}` has no pip\n\
         hint: install uv, or run `{} -m ensurepip`", python.display(), run::quoted(python)
    )]
    NoInstaller {
        /// The requirement.
        package: String,
        /// The interpreter.
        python: PathBuf,
    },
    /// A sandboxed installation makes the whole environment writable, so it must be a virtual environment.
    #[error(
        "install `{package}` in a sandbox: `{}` is no virtual environment\n\
         hint: name the python of one with `--python`, or leave that out to have one made", python.display()
    )]
    NoVirtualEnvironment {
        /// The requirement.
        package: String,
        /// The interpreter.
        python: PathBuf,
    },
    /// A sandboxed installation reaches the package index only, and not the host of a requested URL.
    #[error(
        "install `{package}` in a sandbox: `{host}` is neither the package index nor allowed beside it\n\
         hint: give the name that the package has in the index; the user can allow the host by \
         `--sandbox-install-domain {host}`"
    )]
    Host {
        /// The requirement.
        package: String,
        /// `host:port` of its URL.
        host: String,
    },
    /// The installer could not be started.
    #[error("start the installer")]
    Start(#[source] std::io::Error),
    /// The environment could not be locked.
    #[error(transparent)]
    Environment(#[from] Error),
}

/// The requirements in `packages`, each of which is one or several; paths are relative to `workspace`.
///
/// # Errors
/// [`EnvironmentInstallError::Requirement`] says what is wrong with one.
pub(crate) fn requirements(
    packages: &[String],
    workspace: &Path,
) -> Result<Vec<String>, EnvironmentInstallError> {
    Ok(several::split(packages, workspace)?)
}

/// Whether a sandboxed installation may reach the source of `package`: the index as `variables` configure it,
/// or a host (`host:port`) that `is_allowed`.
///
/// # Errors
/// [`EnvironmentInstallError::Host`].
pub(crate) fn check_host(
    package: &str,
    variables: &Variables,
    is_allowed: impl Fn(&str) -> bool,
) -> Result<(), EnvironmentInstallError> {
    let Some(host) = index::host_of(package) else { return Ok(()) };
    if is_allowed(&host) || index::hosts(Installer::new(variables).environment()).contains(&host) {
        return Ok(());
    }
    Err(EnvironmentInstallError::Host { package: package.trim().to_owned(), host })
}

impl Environment {
    /// Installs requirements together and returns what was done, in one line, with the installer's warnings.
    ///
    /// A requirement is one of PEP 508, a URL or a local path relative to the workspace.
    /// Installations are serialised, also among servers that share a managed environment. Dropping
    /// the future kills the installer. With a place `sandbox` it runs there. A running kernel has to call `importlib.invalidate_caches()`.
    ///
    /// # Errors
    /// [`EnvironmentInstallError`] says what is wrong with a requirement, or carries the installer's output.
    pub(crate) async fn install(
        &self,
        requirements: &[String],
        progress: InstallProgress<'_>,
        sandbox: Option<&dyn SandboxRunner>,
    ) -> Result<String, EnvironmentInstallError> {
        // With our own requirements, which are met: what does not go with them is refused, and nothing is changed.
        let own = probe::needed();
        let parsed: Result<Vec<String>, _> =
            requirements.iter().map(|each| requirement::parse(each, &self.workspace)).collect();
        let arguments: Vec<String> = parsed?.into_iter().chain(own.iter().cloned()).collect();
        let turn = InstallTurn::wait(&self.lock, progress).await?;
        let package = || requirements.join(" ");
        // Otherwise a whole Python installation would have to be writable by build code of packages.
        if sandbox.is_some() && !self.facts.details.is_venv && !self.facts.details.is_conda {
            let python = self.python().to_owned();
            return Err(EnvironmentInstallError::NoVirtualEnvironment { package: package(), python });
        }
        let completed = self.complete(&turn, sandbox).await?;
        let tool = self.installer.available(self.tool);
        turn.begin(self.python()).map_err(EnvironmentInstallError::Start)?;
        let run = self.run(&turn, &[], &arguments, sandbox).await.map_err(EnvironmentInstallError::Start)?;
        if run.status.success() || !summary::may_be_partial(&run.output) {
            turn.end(self.python()).map_err(EnvironmentInstallError::Start)?;
        }
        if run.status.success() {
            let done = summarised(&run.output, requirements, |name| self.version_of(name));
            Ok(completed.into_iter().chain([done]).collect::<Vec<_>>().join("\n"))
        } else if tool == InstallerTool::Pip && run.output.contains("No module named pip") {
            Err(EnvironmentInstallError::NoInstaller { package: package(), python: self.python().to_owned() })
        } else {
            tracing::info!(status = %run.status, "an installation failed");
            Err(failed(&run, requirements, &own))
        }
    }

    /// Completes packages that an interrupted installation has left in part: installers take them for installed. Returns a
    /// sentence about them, if there are any.
    async fn complete(
        &self,
        turn: &InstallTurn<'_>,
        sandbox: Option<&dyn SandboxRunner>,
    ) -> Result<Option<String>, EnvironmentInstallError> {
        if !turn.was_interrupted(self.python()) {
            return Ok(None);
        }
        let incomplete: BTreeSet<String> =
            self.package_directories().flat_map(|packages| contents::incomplete(&packages)).collect();
        let incomplete = Vec::from_iter(incomplete);
        let shown = backticked(&incomplete);
        if !incomplete.is_empty() {
            turn.report(&format!("completing the interrupted installation of {shown}"));
            let run =
                self.run(turn, AGAIN, &incomplete, sandbox).await.map_err(EnvironmentInstallError::Start)?;
            if !run.status.success() {
                let why = summary::failure(&run.output);
                return Ok(Some(format!(
                    "The interrupted installation of {shown} could not be completed: {why}"
                )));
            }
        }
        turn.end(self.python()).map_err(EnvironmentInstallError::Start)?;
        Ok((!incomplete.is_empty()).then(|| format!("Completed the interrupted installation of {shown}")))
    }

    /// Runs the installer for `requirements`, in the place `sandbox` if there is one.
    async fn run(
        &self,
        turn: &InstallTurn<'_>,
        options: &[&str],
        requirements: &[String],
        sandbox: Option<&dyn SandboxRunner>,
    ) -> io::Result<InstallerRun> {
        let tool = self.installer.available(self.tool);
        let bytecode = BytecodeTime::for_kernel(sandbox.is_some());
        let invocation = self.installer.install(options, tool, self.python(), requirements, bytecode);
        let Some(sandbox) = sandbox else { return turn.run(&invocation).await };
        let hosts = index::hosts(self.installer.environment());
        let writable = self.facts.details.prefix.clone();
        let mut readable = index::configurations(self.installer.environment());
        readable.extend(self.installer.uv().map(Path::to_owned));
        let program = Installer::without_cache(invocation).contained(writable, hosts, readable);
        turn.run_in_sandbox(program, sandbox).await
    }

    /// The version of an installed package, by its normalised name.
    pub(super) fn version_of(&self, name: &str) -> Option<String> {
        let mut found =
            self.package_directories().filter_map(|packages| contents::installed(&packages, name));
        found.next().map(|found| found.version)
    }

    /// The directories that packages are in.
    fn package_directories(&self) -> impl Iterator<Item = PathBuf> {
        let places = self.facts.metadata().into_iter().flatten();
        places.filter_map(Path::parent).map(Path::to_owned)
    }
}

/// The summary of an installation of `requirements` by the installer's `output`; all of that if it has an unknown form.
pub(crate) fn summarised(
    output: &str,
    requirements: &[String],
    version_of: impl Fn(&str) -> Option<String>,
) -> String {
    summary::summary(output, requirements, version_of).unwrap_or_else(|| output.trim_end().to_owned())
}

/// The part of a failed installer's `output` that says why, and what became of `requirements`, of which there are several.
pub(crate) fn explained(output: &str, requirements: &[String]) -> String {
    let mut text = summary::failure(output).trim_end().to_owned();
    if requirements.len() > 1 {
        let failed = summary::failed(output, requirements);
        if !failed.is_empty() && failed.len() < requirements.len() {
            text.push_str(&format!("\nNot possible: {}", backticked(failed)));
        }
        text.push_str(if summary::may_be_partial(output) {
            "\nSome of the packages may be installed: the installer failed while it put them in place"
        } else {
            "\nNone of the packages was installed"
        });
    }
    text
}

fn failed(run: &InstallerRun, requirements: &[String], own: &[String]) -> EnvironmentInstallError {
    let mut output = explained(&run.output, requirements);
    if own.iter().any(|requirement| run.output.contains(requirement)) {
        output.push_str(&format!(
            "\nhint: ipybox itself requires {} in this environment; nothing has been changed",
            own.join(" and ")
        ));
    }
    EnvironmentInstallError::Failed { package: requirements.join(" "), output }
}
