//! Beside a sandbox, servers must read neither code nor configuration from exposed places.
//!
//! This checks a server's parameters and environment; the server itself is trusted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::filled::FilledStdio;
use super::{Error, launcher};
use crate::ground::env::{is_program, on_path};
use crate::ground::text::Secrets;
use crate::kernels::sandbox::{Exposed, Exposure};

/// The longest first line of a script that names its interpreter (Linux, `BINPRM_BUF_SIZE`).
const SHEBANG_BYTES: u64 = 256;
/// How many scripts may interpret each other (Linux).
const MOST_INTERPRETERS: usize = 5;

/// The directory of servers beside a sandbox, and the exposed places.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    directory: PathBuf,
    exposed: Exposed,
}

/// A program and the directory that it starts in.
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) directory: PathBuf,
}

impl Guard {
    /// Servers start in a directory of their name in `directory`, unless their parameters name another one.
    pub(crate) fn new(directory: PathBuf, exposed: Exposed) -> Self {
        Self { directory, exposed }
    }

    /// The part of `environment` that a server inherits.
    pub(super) fn inherited(&self, environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let safe = |(name, value): (String, String)| {
            self.exposed.safe_value(&name, &value, &self.directory).map(|value| (name, value))
        };
        environment.into_iter().filter_map(safe).collect()
    }

    /// Checks and returns how to start a server with this environment; its `cwd` is relative to `workspace`.
    ///
    /// # Errors
    /// It would read code or configuration from an exposed place.
    pub(super) fn start(
        &self,
        name: &str,
        server: &FilledStdio,
        workspace: &Path,
        environment: &BTreeMap<String, String>,
        secrets: &Secrets,
    ) -> Result<Start, Error> {
        let check = Check { guard: self, secrets };
        let directory = match &server.cwd {
            Some(cwd) => workspace.join(cwd),
            None => self.directory_of(name)?,
        };
        let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
        if server.trusts_workspace {
            let program = program(&server.command, &directory, path, secrets)?;
            return Ok(Start { program, directory });
        }
        if let (Some(cwd), Some(place)) = (&server.cwd, self.exposed.above(&directory)) {
            return Err(check.refusal("cwd", &cwd.to_string_lossy(), place));
        }
        check.all(server, &directory)?;
        let program = program(&server.command, &directory, path, secrets)?;
        check.program(&program, &server.command)?;
        Ok(Start { program, directory })
    }

    /// The directory of the server `name`, created if missing: servers do not share a directory.
    fn directory_of(&self, name: &str) -> Result<PathBuf, Error> {
        let directory = self.directory.join(name);
        if let Some(place) = self.exposed.above(&directory) {
            return Err(Error::Surrounded { directory, place });
        }
        match std::fs::create_dir_all(&directory) {
            Ok(()) => Ok(directory),
            Err(_) => Err(Error::WorkingDirectory { path: directory }),
        }
    }
}

/// The file of `command`.
fn program(command: &str, directory: &Path, path: &str, secrets: &Secrets) -> Result<PathBuf, Error> {
    let found = match command.contains('/') {
        true => Some(directory.join(command)).filter(|program| program.exists()),
        false => on_path(command, path),
    };
    found.ok_or_else(|| Error::CommandNotFound { command: secrets.redact(command) })
}

/// The check of one server's parameters.
struct Check<'a> {
    guard: &'a Guard,
    secrets: &'a Secrets,
}

impl Check<'_> {
    fn all(&self, server: &FilledStdio, directory: &Path) -> Result<(), Error> {
        self.text("command", &server.command, directory, Choice::Made)?;
        let chosen = launcher::chosen(&server.command, &server.args);
        for (index, argument) in server.args.iter().enumerate() {
            let key = format!("args[{index}]");
            if server.cwd.is_none() && is_relative(argument) {
                return Err(Error::Relative { key, value: self.secrets.redact(argument) });
            }
            let choice = if index < chosen { Choice::Made } else { Choice::Free };
            self.text(&key, argument, directory, choice)?;
        }
        for (name, value) in &server.env {
            self.text(&format!("env.{name}"), value, directory, Choice::Made)?;
        }
        Ok(())
    }

    /// Checks the program's file, and its interpreters if it is a script.
    fn program(&self, program: &Path, command: &str) -> Result<(), Error> {
        let mut file = program.to_owned();
        for _ in 0..MOST_INTERPRETERS {
            if let Some(place) = self.guard.exposed.on_the_way(&file) {
                return Err(self.refusal("command", command, place));
            }
            let Some(line) = shebang(&file) else { return Ok(()) };
            self.text("command", &line, Path::new("/"), Choice::Made)?;
            let interpreter = line.split_whitespace().next().unwrap_or_default();
            file = PathBuf::from(interpreter);
        }
        Ok(())
    }

    fn text(&self, key: &str, text: &str, directory: &Path, choice: Choice) -> Result<(), Error> {
        match self.guard.exposed.named_by(text, directory) {
            None => Ok(()),
            Some(Exposure::Directory(_)) if choice == Choice::Free => Ok(()),
            Some(Exposure::Directory(place) | Exposure::Within(place)) => Err(self.refusal(key, text, place)),
        }
    }

    fn refusal(&self, key: &str, value: &str, place: PathBuf) -> Error {
        Error::Exposed { key: key.to_owned(), value: self.secrets.redact(value), place }
    }
}

/// Whether a text chooses what runs, or how; else it may name the workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Made,
    Free,
}

/// Whether an argument is, or has as its value, a path that begins with `.`.
fn is_relative(argument: &str) -> bool {
    let value = match argument.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => argument,
    };
    matches!(value, "." | "..") || value.starts_with("./") || value.starts_with("../")
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
