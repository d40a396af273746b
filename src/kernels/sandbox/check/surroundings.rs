//! The surroundings of the checks: `PATH`, a temporary directory, the machine.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::finding::{CheckFinding, CheckRemedy};
use super::machine::MachineSettings;
use super::remedy::PackageManager;
use crate::ground::env::Variables;
use crate::ground::env::on_path;
use crate::ground::process::{ProgramQuestion, guard_directory};

/// The time that a program may take; the slowest, a start of srt, takes half a second where the machine is not busy.
const LIMIT: Duration = Duration::from_secs(60);

/// The state that the checks share.
#[derive(Debug)]
pub(super) struct CheckSurroundings {
    /// The value of `PATH`.
    path: String,
    environment: BTreeMap<String, String>,
    directory: TempDir,
    pub(super) machine: MachineSettings,
    pub(super) packages: PackageManager,
}

impl CheckSurroundings {
    /// Makes a temporary directory, which is removed with the value.
    pub(super) fn new(variables: &Variables) -> io::Result<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let is_pod = variables.in_process("KUBERNETES_SERVICE_HOST").is_some();
        Self::on(MachineSettings::read(Path::new("/"), is_root, is_pod), variables)
    }

    /// As if on `machine`.
    pub(super) fn on(machine: MachineSettings, variables: &Variables) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("ipybox-check-").tempdir()?;
        guard_directory(directory.path());
        let path = variables.in_process("PATH").unwrap_or_default().to_owned();
        let mut environment = variables.for_sandbox();
        let place = directory.path().display().to_string();
        // srt leaves sockets behind in the first, and gives the second to what it runs.
        for name in ["TMPDIR", "CLAUDE_CODE_TMPDIR"] {
            environment.insert(name.to_owned(), place.clone());
        }
        environment.insert("LC_ALL".to_owned(), "C".to_owned());
        let packages = PackageManager::of(&path, machine.is_root);
        Ok(Self { path, environment, directory, machine, packages })
    }

    /// The finding if no temporary directory can be made.
    pub(super) fn finding(error: &io::Error) -> CheckFinding {
        CheckFinding::failed(
            "temporary-directory",
            format!("cannot be made: {error}"),
            "nothing can be tried, and no sandbox starts",
            CheckRemedy::Advice("name a directory that you can write to in `TMPDIR`".to_owned()),
        )
    }

    /// The first program of this name on `PATH`.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        on_path(name, &self.path)
    }

    /// The temporary directory.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a program; `Err` holds its output, or why it could not be run.
    pub(super) async fn run(&self, program: &Path, arguments: &[&str]) -> Result<String, String> {
        let question = ProgramQuestion {
            program,
            environment: &self.environment,
            directory: self.directory(),
            limit: LIMIT,
        };
        match question.ask(arguments).await {
            Ok(answer) if answer.succeeded => Ok(answer.text),
            Ok(answer) => Err(first_line(&answer.text).unwrap_or("it failed without a word").to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Searches for a required program, and gets its version by `arguments`, if there are any.
    pub(super) async fn program(
        &self,
        name: &'static str,
        arguments: &[&str],
        consequence: &str,
    ) -> CheckFinding {
        let Some(program) = self.find(name) else {
            return CheckFinding::failed(name, "not on PATH", consequence, self.packages.remedy(name));
        };
        let path = program.display();
        if arguments.is_empty() {
            return CheckFinding::ok(name, format!("`{path}`"));
        }
        match self.run(&program, arguments).await {
            Ok(text) => match version(&text) {
                Some(version) => CheckFinding::ok(name, format!("{version} (`{path}`)")),
                None => CheckFinding::ok(name, format!("`{path}`")),
            },
            Err(said) => CheckFinding::failed(
                name,
                format!("`{path}` does not run: {said}"),
                consequence,
                self.packages.remedy(name),
            ),
        }
    }
}

/// The first line that is not blank.
fn first_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

/// The first word that looks like a version.
pub(crate) fn version(text: &str) -> Option<&str> {
    text.split_whitespace()
        .map(|word| word.trim_start_matches('v').trim_end_matches([',', ')', ';']))
        .find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()))
}
