//! Servers start in a directory of their own, and read neither code nor configuration from exposed places: where code in a
//! sandbox can write, or could in earlier sessions.
//!
//! This checks a server's parameters and environment; the server itself is trusted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::filled::FilledStdio;
use super::launcher;
use crate::connections::mcp_client::failure::Error;
use crate::ground::env::{Variables, is_program, on_path};
use crate::ground::files::create_private_directory;
use crate::ground::text::Secrets;
use crate::kernels::sandbox::{ExposedPlaces, Exposure};

/// The longest first line of a script that names its interpreter (Linux, `BINPRM_BUF_SIZE`).
const SHEBANG_BYTES: u64 = 256;
/// The number of scripts that may interpret each other (Linux).
const MOST_INTERPRETERS: usize = 5;

/// Keeps Python from importing files in its working directory, or beside its script.
const PYTHON_SAFE_PATH: &str = "PYTHONSAFEPATH";

/// The directory that servers start in, and the exposed places.
#[derive(Debug, Clone)]
pub(crate) struct StartGuard {
    /// Each server has a directory of its name in it. Without one they start in the root directory.
    directory: Option<PathBuf>,
    exposed: ExposedPlaces,
}

/// A program, and the directory and environment that it starts in. It has no `Debug`: it holds secrets.
pub(crate) struct ProgramStart {
    pub(super) program: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
}

impl StartGuard {
    /// Servers start in a directory of their name in `directory`, unless their parameters name another one.
    pub(crate) fn new(directory: PathBuf, exposed: ExposedPlaces) -> Self {
        Self { directory: Some(directory), exposed }
    }

    /// Servers start in the root directory, unless their parameters name another one.
    pub(crate) fn without_directory() -> Self {
        Self { directory: None, exposed: ExposedPlaces::default() }
    }

    /// Adds exposed places.
    pub(crate) fn expose(&mut self, exposed: ExposedPlaces) {
        self.exposed.add(exposed);
    }

    /// The part of `environment` that a server inherits, and variables that keep it safe.
    fn inherited(&self, environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let directory = self.directory.as_deref().unwrap_or(Path::new("/"));
        let safe = |(name, value): (String, String)| {
            self.exposed.safe_value(&name, &value, directory).map(|value| (name, value))
        };
        let mut environment: BTreeMap<_, _> = environment.into_iter().filter_map(safe).collect();
        // Without exposed places it would only keep scripts from importing the modules beside them.
        if !self.exposed.is_empty() {
            environment.insert(PYTHON_SAFE_PATH.to_owned(), "1".to_owned());
        }
        environment
    }

    /// Checks and returns how to start the server `name`; its `cwd` is relative to `workspace`.
    ///
    /// # Errors
    /// It would read code or configuration from an exposed place, or its program or directory is not there.
    pub(crate) fn start(
        &self,
        name: &str,
        server: &FilledStdio,
        workspace: &Path,
        variables: &Variables,
        secrets: &Secrets,
    ) -> Result<ProgramStart, Error> {
        let mut environment = self.inherited(variables.for_mcp_server());
        environment.extend(server.env.clone());
        let check = ParametersCheck { guard: self, secrets, workspace };
        let directory = match &server.cwd {
            Some(cwd) => workspace.join(cwd),
            None => self.directory_of(name)?,
        };
        if let (Some(cwd), Some(place), false) =
            (&server.cwd, self.exposed.above(&directory), server.trusts_workspace)
        {
            return Err(check.refusal("cwd", &cwd.to_string_lossy(), place));
        }
        if !server.trusts_workspace {
            check.all(server, &directory)?;
        }
        let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
        let program = program(&server.command, &directory, path, secrets)?;
        if !server.trusts_workspace {
            check.program(&program, &server.command)?;
        }
        if !directory.is_dir() {
            return Err(Error::WorkingDirectory {
                path: secrets.redact(&directory.to_string_lossy()).into(),
            });
        }
        Ok(ProgramStart { program, directory, environment })
    }

    /// The directory of the server `name`, created if missing: servers do not share a directory.
    fn directory_of(&self, name: &str) -> Result<PathBuf, Error> {
        let Some(directory) = &self.directory else { return Ok("/".into()) };
        let directory = directory.join(name);
        if let Some(place) = self.exposed.above(&directory) {
            return Err(Error::Surrounded { directory, place });
        }
        match create_private_directory(&directory) {
            Ok(()) => Ok(directory),
            Err(_) => Err(Error::WorkingDirectory { path: directory }),
        }
    }
}

/// The file of `command`.
fn program(command: &str, directory: &Path, path: &str, secrets: &Secrets) -> Result<PathBuf, Error> {
    let found = if command.contains('/') {
        Some(directory.join(command)).filter(|program| program.exists())
    } else {
        on_path(command, path)
    };
    found.ok_or_else(|| Error::CommandNotFound { command: secrets.redact(command) })
}

/// The check of one server's parameters.
struct ParametersCheck<'a> {
    guard: &'a StartGuard,
    secrets: &'a Secrets,
    workspace: &'a Path,
}

impl ParametersCheck<'_> {
    fn all(&self, server: &FilledStdio, directory: &Path) -> Result<(), Error> {
        if server.cwd.is_none() {
            self.no_relative(server, directory)?;
        }
        self.text("command", &server.command, directory, ProgramChoice::Made)?;
        let chosen = launcher::chosen(&server.command, &server.args);
        for (index, argument) in server.args.iter().enumerate() {
            let key = format!("args[{index}]");
            let choice = if index < chosen { ProgramChoice::Made } else { ProgramChoice::Free };
            self.text(&key, argument, directory, choice)?;
        }
        for (name, value) in &server.env {
            self.text(&format!("env.{name}"), value, directory, ProgramChoice::Made)?;
        }
        Ok(())
    }

    /// Refuses relative paths where the workspace is meant: the server starts in another directory.
    fn no_relative(&self, server: &FilledStdio, directory: &Path) -> Result<(), Error> {
        let refusal = |key: String, value: &str| Error::Relative { key, value: self.secrets.redact(value) };
        if server.command.contains('/') && !Path::new(&server.command).is_absolute() {
            return Err(refusal("command".to_owned(), &server.command));
        }
        let is_meant = |text: &str| is_relative(text) || self.is_in_workspace(value_of(text), directory);
        let arguments = server.args.iter().enumerate();
        let mut arguments = arguments.map(|(index, argument)| (format!("args[{index}]"), argument));
        if let Some((key, argument)) = arguments.find(|(_, argument)| is_meant(argument)) {
            return Err(refusal(key, argument));
        }
        let mut variables = server.env.iter();
        match variables.find(|(_, value)| is_meant(value)) {
            Some((name, value)) => Err(refusal(format!("env.{name}"), value)),
            None => Ok(()),
        }
    }

    /// Whether `text` looks like a relative path, and is there in the workspace, but not in the server's `directory`.
    fn is_in_workspace(&self, text: &str, directory: &Path) -> bool {
        // `@scope/package` is a package.
        let is_path = text.contains(['/', '.']) && !text.starts_with(['/', '@', '-']);
        let is_in = |directory: &Path| directory.join(text).symlink_metadata().is_ok();
        is_path && is_in(self.workspace) && !is_in(directory)
    }

    /// Checks the program's file, and its interpreters if it is a script.
    fn program(&self, program: &Path, command: &str) -> Result<(), Error> {
        let mut file = program.to_owned();
        for _ in 0..MOST_INTERPRETERS {
            if let Some(place) = self.guard.exposed.on_the_way(&file) {
                return Err(self.refusal("command", command, place));
            }
            let Some(line) = shebang(&file) else { return Ok(()) };
            self.text("command", &line, Path::new("/"), ProgramChoice::Made)?;
            let interpreter = line.split_whitespace().next().unwrap_or_default();
            file = PathBuf::from(interpreter);
        }
        Ok(())
    }

    fn text(&self, key: &str, text: &str, directory: &Path, choice: ProgramChoice) -> Result<(), Error> {
        match self.guard.exposed.named_by(text, directory) {
            None => Ok(()),
            Some(Exposure::Directory(_)) if choice == ProgramChoice::Free => Ok(()),
            Some(Exposure::Directory(place) | Exposure::Within(place)) => Err(self.refusal(key, text, place)),
        }
    }

    fn refusal(&self, key: &str, value: &str, place: PathBuf) -> Error {
        Error::Exposed { key: key.to_owned(), value: self.secrets.redact(value), place }
    }
}

/// Whether a text chooses what runs, or how; else it may name the workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramChoice {
    Made,
    Free,
}

/// The value of an argument that is an option with one, or the argument.
fn value_of(argument: &str) -> &str {
    match argument.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => argument,
    }
}

/// Whether a text is, or has as a part (`--root=.`, `.:/data`, `source=./a,target=/b`), a path that begins with `.`.
fn is_relative(text: &str) -> bool {
    let is_path =
        |part: &str| matches!(part, "." | "..") || part.starts_with("./") || part.starts_with("../");
    text.split([':', ',', '=']).any(is_path)
}

/// The first line of a script after `#!`.
fn shebang(file: &Path) -> Option<String> {
    if !is_program(file) {
        return None;
    }
    let mut begin = Vec::new();
    File::open(file).ok()?.take(SHEBANG_BYTES).read_to_end(&mut begin).ok()?;
    let line = begin.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim().to_owned())
}
