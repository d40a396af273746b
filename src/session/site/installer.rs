//! Installs packages where kernels find them: beside sandboxed kernels in another sandbox, for each package anew.
//!
//! A package's build is code from the network. In its sandbox it can reach the package index, and write to the environment
//! that it is installed into; neither the workspace nor the kernel's files.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;

use super::Error;
use super::sandboxed::SandboxedSite;
use crate::ground::files::TemporaryDirectory;
use crate::kernels::environment::{self, ContainedProgram, InstallProgress, RunningInstaller, SandboxRunner};
use crate::kernels::kernel::HeldLimits;
use crate::kernels::sandbox::{self, Confinement, PolicyPaths, SandboxPlan, SandboxProgram};

/// The name of the settings file in the private directory.
const SETTINGS: &str = "installation.json";

/// Installs packages where a session's kernels find them.
pub(crate) enum SiteInstaller {
    /// Into an environment of this machine.
    Local(Box<LocalInstaller>),
    /// For a kernel that a Jupyter server runs: the kernel installs.
    Remote {
        /// The directory that paths are relative to.
        workspace: PathBuf,
    },
}

/// Why a package was not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SiteInstallError {
    /// There is no environment to install into.
    #[error(transparent)]
    Python(#[from] Error),
    /// It cannot be installed.
    #[error(transparent)]
    Install(#[from] environment::EnvironmentInstallError),
    /// It is a path, and the kernel is on another machine.
    #[error(
        "install `{package}`: packages are installed where the Jupyter server runs the kernel, which does not have the \
         files of this machine\nhint: give a name or a URL"
    )]
    Path {
        /// The requirement.
        package: String,
    },
}

impl SiteInstaller {
    /// The requirements in `packages`, each of which is one or several, if they can be installed at all, from an allowed
    /// source.
    ///
    /// # Errors
    /// They cannot.
    pub(crate) fn requirements(&self, packages: &[String]) -> Result<Vec<String>, SiteInstallError> {
        match self {
            Self::Local(installer) => Ok(installer.requirements(packages)?),
            Self::Remote { workspace } => {
                packages.iter().try_for_each(|package| check_no_path(package))?;
                let requirements = environment::requirements(packages, workspace)?;
                requirements.iter().try_for_each(|requirement| check_no_path(requirement))?;
                Ok(requirements)
            }
        }
    }

    /// The interpreter of the kernel; waits until its environment is ready.
    ///
    /// # Errors
    /// There is none, or it is on another machine.
    pub(crate) async fn python(&self) -> Result<PathBuf, Error> {
        match self {
            Self::Local(installer) => {
                let environment = installer.environment.get(&|_| {}).await.map_err(Error::Environment)?;
                Ok(environment.python().to_owned())
            }
            Self::Remote { .. } => Err(Error::RemotePython),
        }
    }
}

/// Refuses paths: the remote kernel has no files of this machine.
fn check_no_path(package: &str) -> Result<(), SiteInstallError> {
    let text = package.trim();
    let is_path =
        matches!(text, "." | "..") || ["/", "./", "../", "file:"].iter().any(|start| text.starts_with(start));
    if is_path { Err(SiteInstallError::Path { package: text.to_owned() }) } else { Ok(()) }
}

/// Installs into the environment of the kernels on this machine.
pub(crate) struct LocalInstaller {
    environment: Arc<environment::SharedEnvironment>,
    workspace: PathBuf,
    /// The plan of sandboxes for installations, if kernels are sandboxed.
    sandbox: Option<Installations>,
}

impl LocalInstaller {
    pub(super) fn new(
        environment: Arc<environment::SharedEnvironment>,
        workspace: &Path,
        sandboxed: Option<&SandboxedSite>,
        directory: &Path,
    ) -> Self {
        let sandbox = sandboxed.map(|sandboxed| {
            let (confinement, paths, limits) = sandboxed.plan();
            Installations { confinement, paths, limits, directory: directory.to_owned() }
        });
        Self { environment, workspace: workspace.to_owned(), sandbox }
    }

    fn requirements(&self, packages: &[String]) -> Result<Vec<String>, environment::EnvironmentInstallError> {
        let requirements = environment::requirements(packages, &self.workspace)?;
        if let Some(Installations { confinement, .. }) = &self.sandbox {
            let is_allowed = |host: &str| confinement.installs_from(host);
            for requirement in &requirements {
                environment::check_host(requirement, &confinement.variables, is_allowed)?;
            }
        }
        Ok(requirements)
    }

    /// Installs requirements into the Python environment, once that is ready. Returns what was done, in one line.
    ///
    /// # Errors
    /// There is no environment, or one of them cannot be installed into it.
    pub(crate) async fn install(
        &self,
        requirements: &[String],
        progress: InstallProgress<'_>,
    ) -> Result<String, SiteInstallError> {
        let environment = self.environment.get(progress).await.map_err(Error::Environment)?;
        let sandboxed =
            self.sandbox.as_ref().map(|with| Installation { with, prefixes: environment.prefixes() });
        let sandbox = sandboxed.as_ref().map(|sandboxed| sandboxed as &dyn SandboxRunner);
        Ok(environment.install(requirements, progress, sandbox).await?)
    }
}

/// The plan of sandboxes for installations, like the kernel's.
struct Installations {
    confinement: Arc<Confinement>,
    paths: PolicyPaths,
    limits: Arc<HeldLimits>,
    /// The place for directories of temporary files.
    directory: PathBuf,
}

/// An installation into one environment.
struct Installation<'a> {
    with: &'a Installations,
    prefixes: Vec<PathBuf>,
}

impl SandboxRunner for Installation<'_> {
    fn run(&self, program: ContainedProgram, output: OwnedFd) -> RunningInstaller<'_> {
        Box::pin(async move {
            let directory = tempfile::Builder::new().prefix("i").tempdir_in(&self.with.directory)?;
            let directory = TemporaryDirectory::from(directory);
            self.install(program, output, directory.path()).await.map_err(io::Error::other)
        })
    }
}

impl Installation<'_> {
    async fn install(
        &self,
        program: ContainedProgram,
        output: OwnedFd,
        directory: &Path,
    ) -> Result<ExitStatus, sandbox::Error> {
        let Installations { confinement, paths, limits, .. } = self.with;
        let ContainedProgram { program, arguments, mut environment, writable, mut hosts, readable } = program;
        let needed = [self.prefixes.clone(), readable].concat();
        let paths = PolicyPaths {
            python_prefixes: confinement.needed_by(needed),
            writable_directory: directory.to_owned(),
            ..paths.clone()
        };
        hosts.extend(confinement.install_domains.iter().cloned());
        let rules = confinement.rules_of_policy(&paths)?.for_installation(&[&writable, directory], &hosts)?;
        // Build code must not change what runs outside.
        if confinement.gateway.starts_with(&writable) {
            return Err(sandbox::Error::OwnProgram { directory: writable });
        }
        let temporary = directory.join("tmp");
        environment.insert("TMPDIR".to_owned(), temporary.display().to_string());
        // No tool server is inside: an index at a loopback address is this machine's, behind the proxy.
        environment.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), String::new())));
        let program = SandboxProgram { program, arguments, environment, working_directory: "/".into() };
        let inside =
            SandboxPlan { rules: &rules, paths: &paths, tools: None, name: SETTINGS, limits, copy: None };
        let sandbox = confinement.start(inside).await?;
        let status = sandbox.run(program, output).await;
        sandbox.stop().await;
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_this_machine_is_refused_for_a_remote_kernel() {
        for path in [".", "./here", "../there", "/abs", " file:///x.whl"] {
            let refusal = check_no_path(path).unwrap_err().to_string();
            assert!(refusal.contains("does not have the files"), "{path}");
        }
        for package in ["six", "git+https://host/x", "name @ https://host/x.whl"] {
            check_no_path(package).unwrap();
        }
    }
}
