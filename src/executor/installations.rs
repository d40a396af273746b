//! Where packages are installed when the kernel is in a sandbox: in another one, for each package anew.
//!
//! A package's build is code from the network. It can reach the package index, and write to the environment that it is
//! installed into; neither the workspace nor the kernel's files.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;

use super::confined::Confined;
use crate::environment::{self, Contained, Elsewhere, Environment, Running};
use crate::sandbox::{self, Confinement, Inside, Place, Program};

/// The name of the settings file in the private directory.
const SETTINGS: &str = "installation.json";

/// What sandboxes for installations are made from.
pub(super) struct Installations {
    confinement: Arc<Confinement>,
    place: Place,
    /// Where directories for temporary files are made.
    directory: PathBuf,
}

impl Installations {
    /// As the kernel's sandbox, with `directory` for temporary files.
    pub(super) fn new(confined: &Confined, directory: &Path) -> Self {
        let (confinement, place) = confined.plan();
        Self { confinement, place, directory: directory.to_owned() }
    }

    /// Whether `package` comes from where packages may come from.
    pub(super) fn check(&self, package: &str) -> Result<(), environment::InstallError> {
        let allowed = |host: &str| self.confinement.installs_from(host);
        environment::check_host(package, &self.confinement.variables, allowed)
    }

    /// A place to install into `environment`.
    pub(super) fn in_environment(&self, environment: &Environment) -> Installation<'_> {
        Installation { with: self, prefixes: environment.prefixes() }
    }
}

/// A place to install into one environment.
pub(super) struct Installation<'a> {
    with: &'a Installations,
    prefixes: Vec<PathBuf>,
}

impl Elsewhere for Installation<'_> {
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
