//! The Python that runs the kernel: found or created, and packages installed into it.
//!
//! It knows no kernel and no Jupyter; it returns the interpreter for the kernel, and the variables that make
//! `!pip`, `%pip` and `!python` use this environment.
//!
//! ```text
//! --python  → named   → probe → record          (used as it is, or refused)
//! otherwise → managed → record | create → probe (one environment per workspace)
//! install   → several → requirement → lock → installer → run → summary
//! ```
//!
//! Reasons: `docs/decisions/environment.md`.

mod contents;
mod create;
mod examine;
mod index;
mod install;
mod installer;
mod lock;
mod managed;
mod managed_place;
mod named;
mod probe;
mod record;
mod requirement;
mod run;
mod search;
mod several;
mod shared;
mod summary;
mod transcript;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use examine::{PythonOutlook, examine, find_uv};
pub(crate) use install::{EnvironmentInstallError, check_host, explained, requirements, summarised};
use installer::Installer;
use managed_place::ManagedPlace;
use probe::{ProbeError, PythonFacts};
use record::{InstallerTool, RecordFile};
pub(crate) use run::{ContainedProgram, RunningInstaller, SandboxRunner};
pub(crate) use shared::SharedEnvironment;

use crate::ground::env::Variables;

/// Receives progress: short phrases, and an installer's newest line.
pub(crate) type InstallProgress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The settings of the environment.
#[derive(Debug, Clone)]
pub(crate) struct EnvironmentSettings {
    /// The interpreter that the user named; without one, the workspace gets an environment of its own.
    pub(crate) python: Option<PathBuf>,
    /// The workspace's own directory for state, which exists and only the user can enter.
    pub(crate) state_dir: PathBuf,
    /// The workspace: local packages are found relative to it.
    pub(crate) workspace: PathBuf,
    /// The process environment.
    pub(crate) variables: Arc<Variables>,
    /// Whether packages are installed in a sandbox. They run there only: an environment that holds them is
    /// never run outside, not even to examine it.
    pub(crate) is_sandboxed: bool,
}

/// A Python that can run the kernel, and the installer for its packages.
#[derive(Debug)]
pub(crate) struct Environment {
    facts: PythonFacts,
    tool: InstallerTool,
    installer: Installer,
    lock: PathBuf,
    workspace: PathBuf,
    /// The kernel's `PATH` before this environment comes first in it.
    path: String,
}

/// Why no Python can run the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The interpreter that the user named is not usable.
    #[error("use `{}` as the kernel's Python: {why}", python.display())]
    Unusable {
        /// The path as the user gave it.
        python: PathBuf,
        /// The fault of the interpreter.
        why: UnusablePython,
    },
    /// There is no Python to make an environment with.
    #[error(
        "find Python 3.10 or newer for the kernel\n\
         hint: install uv (https://docs.astral.sh/uv/) or Python, or name one by `--python`{attempts}"
    )]
    NoPython {
        /// The attempts before.
        attempts: FailedAttempts,
    },
    /// There is a Python, but it cannot make virtual environments.
    #[error(
        "make a virtual environment: `{}` comes without `venv` or `ensurepip`\n\
         hint: run `apt install {package}`, or install uv (https://docs.astral.sh/uv/){attempts}", python.display()
    )]
    NoVenv {
        /// The interpreter.
        python: PathBuf,
        /// The Debian package that completes it.
        package: String,
        /// The attempts before.
        attempts: FailedAttempts,
    },
    /// Creating the environment failed, though all tools exist.
    #[error("make the Python environment `{}`{attempts}", directory.display())]
    Create {
        /// The environment.
        directory: PathBuf,
        /// The attempts and their results.
        attempts: FailedAttempts,
    },
    /// A file or directory of the state directory could not be read or written.
    #[error("keep the Python environment in `{}`", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Why an interpreter that the user named is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UnusablePython {
    #[error("there is no such program on PATH\nhint: give the path of a Python 3.10 or newer")]
    NotOnPath,
    #[error("it does not exist\nhint: give the path of a Python 3.10 or newer")]
    NotFound,
    #[error("it is not an executable file\nhint: give the path of a Python 3.10 or newer")]
    NotExecutable,
    #[error("it is a directory without `bin/python`\nhint: give a virtual environment or an interpreter")]
    NoPythonInside,
    #[error("{0}\nhint: give the path of a Python 3.10 or newer")]
    Probe(ProbeError),
    #[error(
        "it is managed by the operating system (PEP 668), so packages cannot be installed into it\n\
         hint: name a virtual environment's python, or leave `--python` out to have one made"
    )]
    ExternallyManaged,
    #[error("it lacks {lacking}\nhint: run `{command}`")]
    Lacking { lacking: String, command: String },
}

/// Failed attempts at making an environment, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailedAttempts(Vec<FailedAttempt>);

#[derive(Debug, Clone)]
struct FailedAttempt {
    what: String,
    output: String,
}

impl fmt::Display for FailedAttempts {
    /// Each on lines of its own, which begin with a line break: they follow a message.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|FailedAttempt { what, output }| write!(formatter, "\n{what} failed: {output}"))
    }
}

impl Environment {
    /// Checks the Python that the user named, or finds, repairs or creates the workspace's own.
    ///
    /// Creation takes seconds; an environment that was found good before takes less than a
    /// millisecond. Two servers may do this at once: one waits for the other.
    ///
    /// # Errors
    /// [`Error`] says what is wrong with the named interpreter or why none could be made.
    pub(crate) async fn prepare(
        settings: &EnvironmentSettings,
        progress: InstallProgress<'_>,
    ) -> Result<Self, Error> {
        let installer = Installer::new(&settings.variables);
        let state = |name: &str| settings.state_dir.join(name);
        let lock = state("python.lock");
        let path = settings.variables.in_process("PATH").unwrap_or_default();
        let (tool, facts) = match &settings.python {
            Some(named) => {
                // A record of its own: that of the managed environment stays valid while another is used.
                let record = RecordFile::new(state("python-named.json"));
                (installer.default_tool(), named::prepare(named, path, &record, &installer).await?)
            }
            None => ManagedPlace::of(settings, &lock, &installer, path).prepare(progress).await?,
        };
        let path = settings.variables.for_kernel().remove("PATH").unwrap_or_default();
        Ok(Self { facts, tool, installer, lock, workspace: settings.workspace.clone(), path })
    }

    /// The interpreter that runs the kernel: its real path, but a virtual environment's own.
    pub(crate) fn python(&self) -> &Path {
        &self.facts.details.executable
    }

    /// The major and the minor version of that Python.
    pub(crate) fn python_version(&self) -> (u32, u32) {
        self.facts.minor_version()
    }

    /// The variables by which `!pip`, `%pip`, `!python` and the console scripts of installed packages use
    /// this environment.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let details = &self.facts.details;
        let mut variables = BTreeMap::new();
        let mut set =
            |name: &str, value: &Path| variables.insert(name.to_owned(), value.display().to_string());
        set("PATH", Path::new(&self.kernel_path()));
        if details.is_venv {
            set("VIRTUAL_ENV", &details.prefix);
        }
        if details.is_conda {
            set("CONDA_PREFIX", &details.prefix);
        }
        if !details.has_pip {
            // `!pip` finds the pip of another Python, which installs here with this variable.
            set("PIP_PYTHON", &details.executable);
        }
        variables
    }

    /// The directories that the interpreter needs to run.
    pub(crate) fn prefixes(&self) -> Vec<PathBuf> {
        let base = self.facts.details.base_executable.canonicalize().ok();
        // The installation: `bin/python3` lies two levels below it.
        let base = base.and_then(|base| base.parent()?.parent().map(Path::to_owned));
        let mut prefixes = vec![self.facts.details.prefix.clone()];
        prefixes.extend(base.filter(|base| base.parent().is_some()));
        prefixes
    }

    fn kernel_path(&self) -> String {
        let own = [Some(self.facts.details.scripts.as_path()), self.python().parent()];
        let mut directories: Vec<PathBuf> = own.into_iter().flatten().map(Path::to_owned).collect();
        directories.dedup();
        let others = std::env::split_paths(&self.path).filter(|directory| !directory.as_os_str().is_empty());
        let others: Vec<PathBuf> = others.filter(|directory| !directories.contains(directory)).collect();
        directories.extend(others);
        let shown = directories.iter().map(|directory| directory.display().to_string());
        Vec::from_iter(shown).join(":")
    }
}

#[cfg(test)]
mod tests;
