//! Reads `<workspace>/.env`, which a stranger, or code in the kernel, may have written.
//!
//! Values are literal, what decides which code programs load is refused, and a bad line costs that line only.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::KERNEL_ENV_PREFIX;

/// The largest `.env` file that is read, in bytes.
const DOTENV_LIMIT: u64 = 1024 * 1024;

/// What a file says, and what was wrong with it.
#[derive(Default)]
pub(super) struct Dotenv {
    pub(super) variables: BTreeMap<String, String>,
    pub(super) problems: Vec<DotenvProblem>,
}

/// Why (a line of) `.env` could not be read. The line itself is not kept: it may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DotenvProblem {
    /// A line is not of the form `NAME=value`.
    #[error("`{path}` line {line} is not of the form `NAME=value` and was ignored")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
    },
    /// A variable that decides what code programs load is taken from the real environment only.
    #[error("`{name}` in `{path}` was ignored: what decides which code is loaded is set in the real environment", path = path.display())]
    Loader {
        /// The file.
        path: PathBuf,
        /// The variable.
        name: String,
    },
    /// The file as a whole could not be read.
    #[error("`{path}` was ignored: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Reads a file. What is wrong with it is told with what is right.
pub(super) fn read(path: &Path) -> Dotenv {
    let mut dotenv = Dotenv::default();
    match read_regular_file(path) {
        Ok(Some(content)) => dotenv.parse(path, &content),
        Ok(None) => {}
        Err(reason) => dotenv.problems.push(DotenvProblem::File { path: path.to_owned(), reason }),
    }
    dotenv
}

impl Dotenv {
    fn parse(&mut self, path: &Path, content: &[u8]) {
        let text = self.valid_lines(path, content);
        let mut unseen = 0;
        for item in dotenvy::from_read_iter(without_substitution(&text).as_bytes()) {
            match item {
                Ok((name, _)) if decides_what_is_loaded(&name) => {
                    self.problems.push(DotenvProblem::Loader { path: path.to_owned(), name });
                }
                Ok((name, value)) => {
                    self.variables.insert(name, value);
                }
                Err(dotenvy::Error::LineParse(line, _)) => {
                    let number = line_number(&text, &line.replace("\\$", "$"), &mut unseen);
                    self.problems.push(DotenvProblem::Line { path: path.to_owned(), line: number });
                }
                Err(error) => {
                    self.problems
                        .push(DotenvProblem::File { path: path.to_owned(), reason: error.to_string() });
                    return;
                }
            }
        }
    }

    /// The text of a file with the lines emptied that no variable can be made of.
    fn valid_lines(&mut self, path: &Path, content: &[u8]) -> String {
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        let mut text = String::with_capacity(content.len());
        for (index, line) in content.split_inclusive(|&byte| byte == b'\n').enumerate() {
            match std::str::from_utf8(line) {
                Ok(line) if !line.contains('\0') => text.push_str(line),
                _ => {
                    self.problems.push(DotenvProblem::Line { path: path.to_owned(), line: index + 1 });
                    text.push('\n');
                }
            }
        }
        text
    }
}

/// Makes each `$` stand for itself, also where the parser would put the value of a variable in its place.
///
/// It would take that from the process environment: a `.env` that came with a workspace could hand any secret of it to
/// the kernel, `KERNEL_ENV_X=$SECRET`.
fn without_substitution(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    let mut quote = None;
    let mut is_escaped = false;
    for character in text.chars() {
        if character == '$' && quote != Some('\'') && !is_escaped {
            literal.push('\\');
        }
        match (quote, character) {
            (None, '\'' | '"') if !is_escaped => quote = Some(character),
            (Some(open), _) if open == character && !is_escaped => quote = None,
            _ => {}
        }
        is_escaped = character == '\\' && !is_escaped && quote != Some('\'');
        literal.push(character);
    }
    literal
}

/// Whether a variable for the kernel makes programs load code, which a file in the workspace must not decide.
fn decides_what_is_loaded(name: &str) -> bool {
    let Some(name) = name.strip_prefix(KERNEL_ENV_PREFIX) else { return false };
    ["PATH", "IPYTHONDIR", "BASH_ENV", "ENV", "NODE_OPTIONS"].contains(&name)
        || ["PYTHON", "LD_", "DYLD_", "JUPYTER_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The number of the first line at or after `from` that begins what the parser refused as `refused`.
fn line_number(text: &str, refused: &str, from: &mut usize) -> usize {
    let first = refused.lines().next().unwrap_or_default().trim();
    let found = text.lines().enumerate().skip(*from).find(|(_, line)| line.trim() == first);
    let index = found.map_or(*from, |(index, _)| index);
    *from = index + 1;
    index + 1
}

/// Reads a small regular file. A FIFO or a device in its place would make the start hang.
fn read_regular_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    let read = file.take(DOTENV_LIMIT + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    if read as u64 > DOTENV_LIMIT {
        return Err(format!("it is larger than {DOTENV_LIMIT} bytes"));
    }
    Ok(Some(content))
}
