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
use super::sandboxed::Sandboxed;
use crate::config::Config;
use crate::environment::{self, Contained, Environment, InstallError, Running, SandboxRunner};
use crate::sandbox::{self, Confinement, Inside, Place, Program};

/// The name of the settings file in the private directory.
const SETTINGS: &str = "installation.json";

/// Installs packages where a session's kernels find them.
pub(crate) enum Installer {
    /// Into an environment of this machine.
    Local(Box<LocalInstaller>),
    /// Where a Jupyter server runs the kernel: the kernel does it.
    Remote,
}

/// Installs into the environment of the kernels on this machine.
pub(crate) struct LocalInstaller {
    environment: Arc<environment::Shared>,
    workspace: PathBuf,
    /// The plan of sandboxes for installations, if kernels are sandboxed.
    sandbox: Option<Installations>,
}

impl LocalInstaller {
    pub(super) fn new(
        environment: Arc<environment::Shared>,
        config: &Config,
        sandboxed: Option<&Sandboxed>,
        directory: &Path,
    ) -> Self {
        let sandbox = sandboxed.map(|sandboxed| {
            let (confinement, place) = sandboxed.plan();
            Installations { confinement, place, directory: directory.to_owned() }
        });
        Self { environment, workspace: config.workspace.clone(), sandbox }
    }

    /// The Python environment; waits until it is ready.
    pub(crate) async fn environment(
        &self,
        progress: environment::Progress<'_>,
    ) -> Result<Arc<Environment>, Error> {
        self.environment.get(progress).await.map_err(Error::Environment)
    }

    /// Checks that a package can be installed at all, from an allowed source.
    pub(crate) fn check(&self, package: &str) -> Result<(), InstallError> {
        environment::check_requirement(package, &self.workspace)?;
        let Some(Installations { confinement, .. }) = &self.sandbox else { return Ok(()) };
        environment::check_host(package, &confinement.variables, |host| confinement.installs_from(host))
    }

    /// Installs a package into `environment`. Returns the installer's output.
    pub(crate) async fn install(
        &self,
        package: &str,
        environment: &Environment,
        progress: environment::Progress<'_>,
    ) -> Result<String, InstallError> {
        let sandboxed =
            self.sandbox.as_ref().map(|with| Installation { with, prefixes: environment.prefixes() });
        let sandbox = sandboxed.as_ref().map(|sandboxed| sandboxed as &dyn SandboxRunner);
        environment.install(package, progress, sandbox).await
    }
}

/// The plan of sandboxes for installations, like the kernel's.
struct Installations {
    confinement: Arc<Confinement>,
    place: Place,
    /// Where directories for temporary files are made.
    directory: PathBuf,
}

/// An installation into one environment.
struct Installation<'a> {
    with: &'a Installations,
    prefixes: Vec<PathBuf>,
}

impl SandboxRunner for Installation<'_> {
    fn run(&self, program: Contained, output: OwnedFd) -> Running<'_> {
        Box::pin(async move {
            let directory = tempfile::Builder::new().prefix("i").tempdir_in(&self.with.directory)?;
            self.install(program, output, directory.path()).await.map_err(io::Error::other)
        })
    }
}

impl Installation<'_> {
    async fn install(
        &self,
        program: Contained,
        output: OwnedFd,
        directory: &Path,
    ) -> Result<ExitStatus, sandbox::Error> {
        let Installations { confinement, place, .. } = self.with;
        let place = Place {
            python_prefixes: confinement.needed_by(self.prefixes.clone()),
            writable_directory: directory.to_owned(),
            ..place.clone()
        };
        let Contained { program, arguments, mut environment, writable, mut hosts } = program;
        hosts.extend(confinement.install_domains.iter().cloned());
        let rules = confinement.policy.rules(&place)?.for_installation(&[&writable, directory], &hosts)?;
        // Build code must not change what runs outside.
        if confinement.gateway.starts_with(&writable) {
            return Err(sandbox::Error::OwnProgram { directory: writable });
        }
        let temporary = directory.join("tmp");
        environment.insert("TMPDIR".to_owned(), temporary.display().to_string());
        let program = Program { program, arguments, environment, working_directory: "/".into() };
        let inside = Inside { rules: &rules, place: &place, tools: None, name: SETTINGS };
        let sandbox = confinement.start(inside).await?;
        let status = sandbox.run(program, output).await;
        sandbox.stop().await;
        status
    }
}
