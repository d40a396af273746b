//! Installing packages into the environment that runs the kernel.

use std::path::{Path, PathBuf};

use super::index;
use super::installer::{Bytecode, Installer};
use super::lock::Turn;
use super::probe;
use super::record::Tool;
use super::requirement::{self, RequirementError};
use super::run::{self, Run, SandboxRunner};
use super::{Environment, Error, Progress, contents, several, summary};
use crate::ground::env::Variables;
use crate::ground::text::backticked;

/// Why a package was not installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum InstallError {
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
/// [`InstallError::Requirement`] says what is wrong with one.
pub(crate) fn requirements(packages: &[String], workspace: &Path) -> Result<Vec<String>, InstallError> {
    Ok(several::split(packages, workspace)?)
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
    /// Installs requirements together and returns what was done, in one line, with the installer's warnings.
    ///
    /// A requirement is one of PEP 508, a URL or a local path relative to the workspace.
    /// Installations are serialised, also among servers that share a managed environment. Dropping
    /// the future kills the installer. With a place `sandbox` it runs there. A running kernel has to call `importlib.invalidate_caches()`.
    ///
    /// # Errors
    /// [`InstallError`] says what is wrong with a requirement, or carries the installer's output.
    pub(crate) async fn install(
        &self,
        requirements: &[String],
        progress: Progress<'_>,
        sandbox: Option<&dyn SandboxRunner>,
    ) -> Result<String, InstallError> {
        // With our own requirements, which are met: what does not go with them is refused, and nothing is changed.
        let own = probe::needed();
        let parsed: Result<Vec<String>, _> =
            requirements.iter().map(|each| requirement::parse(each, &self.workspace)).collect();
        let arguments: Vec<String> = parsed?.into_iter().chain(own.iter().cloned()).collect();
        let turn = Turn::wait(&self.lock, progress).await?;
        let tool = self.installer.available(self.tool);
        let bytecode = Bytecode::for_kernel(sandbox.is_some());
        let package = || requirements.join(" ");
        let run = match sandbox {
            None => turn.run(&self.installer.install(tool, self.python(), &arguments, bytecode)).await,
            // Otherwise a whole Python installation would have to be writable by build code of packages.
            Some(_) if !self.facts.details.is_venv && !self.facts.details.is_conda => {
                return Err(InstallError::NoVirtualEnvironment {
                    package: package(),
                    python: self.python().to_owned(),
                });
            }
            Some(sandbox) => {
                let hosts = index::hosts(self.installer.environment());
                let invocation = self.installer.install(tool, self.python(), &arguments, bytecode);
                let program =
                    Installer::without_cache(invocation).contained(self.facts.details.prefix.clone(), hosts);
                turn.run_in_sandbox(program, sandbox).await
            }
        };
        let run = run.map_err(InstallError::Start)?;
        if run.status.success() {
            Ok(summarised(&run.output, requirements, |name| self.version_of(name)))
        } else if tool == Tool::Pip && run.output.contains("No module named pip") {
            Err(InstallError::NoInstaller { package: package(), python: self.python().to_owned() })
        } else {
            tracing::info!(status = %run.status, "an installation failed");
            Err(failed(&run, requirements, &own))
        }
    }

    /// The version of an installed package, by its normalised name.
    pub(super) fn version_of(&self, name: &str) -> Option<String> {
        let places = self.facts.metadata()?.into_iter().filter_map(Path::parent);
        places.filter_map(|packages| contents::installed(packages, name)).map(|found| found.version).next()
    }
}

/// What an installation of `requirements` has done by the installer's `output`; all of that if it has an unknown form.
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

fn failed(run: &Run, requirements: &[String], own: &[String]) -> InstallError {
    let mut output = explained(&run.output, requirements);
    if own.iter().any(|requirement| run.output.contains(requirement)) {
        output.push_str(&format!(
            "\nhint: ipybox itself requires {} in this environment; nothing has been changed",
            own.join(" and ")
        ));
    }
    InstallError::Failed { package: requirements.join(" "), output }
}
