//! Installing a package into the environment that runs the kernel.

use std::path::{Path, PathBuf};

use super::index;
use super::installer::{Bytecode, Installer};
use super::lock::Turn;
use super::probe;
use super::record::Tool;
use super::requirement::{self, RequirementError};
use super::run::{self, SandboxRunner};
use super::{Environment, Error, Progress};
use crate::ground::env::Variables;

/// Why a package was not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InstallError {
    /// The text is not one requirement.
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

/// Whether `package` is an acceptable requirement, relative to `workspace`.
///
/// # Errors
/// [`InstallError::Requirement`] says what is wrong with it.
pub(crate) fn check_requirement(package: &str, workspace: &Path) -> Result<(), InstallError> {
    requirement::parse(package, workspace)?;
    Ok(())
}

/// Whether a sandboxed installation may reach the source of `package`: the index as `variables` configure it,
/// or a host (`host:port`) that `is_allowed`.
///
/// # Errors
/// [`InstallError::Host`].
pub(crate) fn check_host(
    package: &str,
    variables: &Variables,
    is_allowed: impl Fn(&str) -> bool,
) -> Result<(), InstallError> {
    let Some(host) = index::host_of(package) else { return Ok(()) };
    if is_allowed(&host) || index::hosts(Installer::new(variables).environment()).contains(&host) {
        return Ok(());
    }
    Err(InstallError::Host { package: package.trim().to_owned(), host })
}

impl Environment {
    /// Installs one requirement and returns the installer's output.
    ///
    /// `package` is a requirement of PEP 508, a URL or a local path relative to the workspace.
    /// Installations are serialised, also among servers that share a managed environment. Dropping
    /// the future kills the installer. With a place `sandbox` it runs there. A running kernel has to call `importlib.invalidate_caches()`.
    ///
    /// # Errors
    /// [`InstallError`] says what is wrong with `package`, or carries the installer's output.
    pub(crate) async fn install(
        &self,
        package: &str,
        progress: Progress<'_>,
        sandbox: Option<&dyn SandboxRunner>,
    ) -> Result<String, InstallError> {
        // With our own requirements, which are met: what does not go with them is refused, and nothing is changed.
        let own = probe::needed();
        let requirements: Vec<String> =
            [requirement::parse(package, &self.workspace)?].into_iter().chain(own.iter().cloned()).collect();
        let turn = Turn::wait(&self.lock, progress).await?;
        let tool = self.installer.available(self.tool);
        let bytecode = Bytecode::for_kernel(sandbox.is_some());
        let run = match sandbox {
            None => turn.run(&self.installer.install(tool, self.python(), &requirements, bytecode)).await,
            // Otherwise a whole Python installation would have to be writable by build code of packages.
            Some(_) if !self.facts.details.is_venv && !self.facts.details.is_conda => {
                return Err(InstallError::NoVirtualEnvironment {
                    package: package.trim().to_owned(),
                    python: self.python().to_owned(),
                });
            }
            Some(sandbox) => {
                let hosts = index::hosts(self.installer.environment());
                let invocation = self.installer.install(tool, self.python(), &requirements, bytecode);
                let program =
                    Installer::without_cache(invocation).contained(self.facts.details.prefix.clone(), hosts);
                turn.run_in_sandbox(program, sandbox).await
            }
        };
        let run = run.map_err(InstallError::Start)?;
        let package = || package.trim().to_owned();
        if run.status.success() {
            Ok(run.output)
        } else if tool == Tool::Pip && run.output.contains("No module named pip") {
            Err(InstallError::NoInstaller { package: package(), python: self.python().to_owned() })
        } else {
            tracing::info!(status = %run.status, "an installation failed");
            let is_ours = own.iter().any(|requirement| run.output.contains(requirement));
            let hint = if is_ours {
                format!(
                    "\nhint: ipybox itself requires {} in this environment; nothing has been changed",
                    own.join(" and ")
                )
            } else {
                String::new()
            };
            Err(InstallError::Failed { package: package(), output: run.output + &hint })
        }
    }
}
