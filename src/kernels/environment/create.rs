//! Making the managed environment: with uv, else with `venv` and pip.

use std::path::Path;

use super::installer::{BytecodeTime, Installer};
use super::lock::InstallTurn;
use super::managed_place::ManagedPlace;
use super::probe::{self, NEWEST, OLDEST, PythonFacts, dotted};
use super::record::InstallerTool;
use super::run::{self, ProgramInvocation};
use super::search;
use super::{Error, FailedAttempt, FailedAttempts};

/// The package that saves variables (`--checkpoint`). A kernel runs without it.
const PICKLER: &str = "cloudpickle";

/// The number of lines of a failed tool's output that its error shows.
const SHOWN_LINES: usize = 12;

/// Makes the environment in its final place: console scripts hold absolute paths, so it cannot be created in
/// another place and moved. The caller records that it is complete.
pub(super) async fn create(
    managed: &ManagedPlace<'_>,
    turn: &InstallTurn<'_>,
) -> Result<InstallerTool, Error> {
    let installer = managed.installer;
    let base = search::base_beside(managed.executable.as_deref(), installer.environment()).await;
    managed.clear().await?;
    let mut attempts = FailedAttempts::default();
    if let Some(uv) = installer.uv() {
        match with_uv(managed, uv, base.as_ref(), turn).await {
            Ok(()) => return Ok(InstallerTool::Uv),
            Err(attempt) => {
                tracing::warn!(output = %attempt.output, "uv made no environment; trying venv and pip");
                turn.report(&format!("{} failed, trying venv and pip instead", attempt.what));
                attempts.0.push(attempt);
                managed.clear().await?;
            }
        }
    }
    let base = match base.filter(|base| base.details.has_venv) {
        Some(base) => base,
        None => base_for_venv(managed, &attempts).await?,
    };
    match with_venv(managed, &base, turn).await {
        Ok(()) => Ok(InstallerTool::Pip),
        Err(attempt) => {
            attempts.0.push(attempt);
            Err(Error::Create { directory: managed.directory.clone(), attempts })
        }
    }
}

/// Installs the packages that a kernel needs, what saves its variables, and pip for `%pip`.
pub(super) async fn fill(
    installer: &Installer,
    tool: InstallerTool,
    python: &Path,
    bytecode: BytecodeTime,
    turn: &InstallTurn<'_>,
) -> Result<(), FailedAttempt> {
    let mut requirements = probe::needed().to_vec();
    if tool == InstallerTool::Uv {
        requirements.push("pip".to_owned());
    }
    let what = match tool {
        InstallerTool::Uv => "`uv pip install`",
        InstallerTool::Pip => "`python -m pip install`",
    };
    turn.report("installing IPython and pydantic");
    let all: Vec<String> = requirements.iter().cloned().chain([PICKLER.to_owned()]).collect();
    let invocation = installer.install(&[], tool, python, &all, bytecode);
    let Err(failed) = attempt(what, &invocation, turn).await else { return Ok(()) };
    if tool == InstallerTool::Uv {
        // Without a network, the packages of an earlier environment are still in uv's cache.
        for packages in [&all, &requirements] {
            let offline = installer.install(&[], tool, python, packages, bytecode).env("UV_OFFLINE", "1");
            if attempt(what, &offline, turn).await.is_ok() {
                tracing::warn!(output = %failed.output, "packages were taken from uv's cache, as the index did not serve");
                return Ok(());
            }
        }
    }
    Err(failed)
}

async fn with_uv(
    managed: &ManagedPlace<'_>,
    uv: &Path,
    base: Option<&PythonFacts>,
    turn: &InstallTurn<'_>,
) -> Result<(), FailedAttempt> {
    // Without a base of our own uv decides: its managed Pythons, those on PATH, or a download.
    let python = match base {
        Some(base) => base.details.base_executable.display().to_string(),
        None => format!(">={}.{},<{}.{}", OLDEST.0, OLDEST.1, NEWEST.0, NEWEST.1 + 1),
    };
    let invocation = managed.installer.uv_venv(uv, &python, &managed.directory);
    attempt("`uv venv`", &invocation, turn).await?;
    fill(
        managed.installer,
        InstallerTool::Uv,
        &managed.directory.join("bin/python"),
        managed.bytecode(),
        turn,
    )
    .await
}

async fn with_venv(
    managed: &ManagedPlace<'_>,
    base: &PythonFacts,
    turn: &InstallTurn<'_>,
) -> Result<(), FailedAttempt> {
    let python = &base.details.base_executable;
    let version = dotted(base.version);
    turn.report(&format!("creating a virtual environment with Python {version}"));
    let invocation = managed.installer.venv(python, &managed.directory);
    attempt("`python -m venv`", &invocation, turn).await?;
    fill(
        managed.installer,
        InstallerTool::Pip,
        &managed.directory.join("bin/python"),
        managed.bytecode(),
        turn,
    )
    .await
}

/// A Python on `PATH` that can make virtual environments.
pub(super) async fn base_for_venv(
    managed: &ManagedPlace<'_>,
    attempts: &FailedAttempts,
) -> Result<PythonFacts, Error> {
    let found = search::pythons_on_path(managed.path, managed.installer.environment()).await;
    match found.into_iter().next() {
        Some(facts) if facts.details.has_venv => Ok(facts),
        Some(facts) => Err(Error::NoVenv {
            package: format!("python{}.{}-venv", facts.version.0, facts.version.1),
            python: facts.details.executable,
            attempts: attempts.clone(),
        }),
        None => Err(Error::NoPython { attempts: attempts.clone() }),
    }
}

async fn attempt(
    what: &str,
    invocation: &ProgramInvocation,
    turn: &InstallTurn<'_>,
) -> Result<(), FailedAttempt> {
    let output = match turn.run(invocation).await {
        Ok(run) if run.status.success() => return Ok(()),
        Ok(run) => format!("{}\n({})", run::last_lines(&run.output, SHOWN_LINES), run.status),
        Err(error) => error.to_string(),
    };
    Err(FailedAttempt { what: what.to_owned(), output })
}
