//! Reads `<workspace>/.env`, which a stranger, or code in the kernel, may have written.
//!
//! Values are literal, variables that are not for secrets are refused, and a bad line costs that line only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::allowed::AllowedNames;
use super::{IPYBOX_DOTENV, KERNEL_ENV_PREFIX};
use crate::ground::files::small;
use crate::ground::text::listed;

/// The variables of a file, and its problems.
#[derive(Default)]
pub(super) struct DotenvFile {
    pub(super) variables: BTreeMap<String, String>,
    /// Variables that the file may not set.
    pub(super) refused: BTreeMap<String, String>,
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
    /// Variables for the kernel that are not named like secrets. Programs would act upon them.
    #[error(
        "{} of `{path}` not passed to the kernel: without your word that file sets secrets only, whose names end as \
         `API_KEY`, `TOKEN`, `SECRET` or `PASSWORD` do\n\
         hint: set what you need in ipybox's environment (`env` in the client's entry), or name it there: \
         `{IPYBOX_DOTENV}={}`",
        listed(names.iter().map(String::as_str)),
        names.first().map(String::as_str).unwrap_or_default(),
        path = path.display()
    )]
    NotSecret {
        /// The file.
        path: PathBuf,
        /// The variables.
        names: Vec<String>,
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

/// Reads a file. Problems are returned beside the valid variables.
pub(super) fn read(path: &Path, allowed: &AllowedNames<'_>) -> DotenvFile {
    let mut dotenv = DotenvFile::default();
    let workspace = path.parent().unwrap_or(path);
    match small::read_in(workspace, path, small::BY_HAND) {
        Ok(content) => dotenv.parse(path, &content, allowed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            let reason = error.to_string();
            dotenv.problems.push(DotenvProblem::File { path: path.to_owned(), reason });
        }
    }
    dotenv
}

/// The variables of a file that a user names for a program, in order; values are literal. Invalid lines are passed over.
pub(crate) fn literal(content: &[u8]) -> Vec<(String, String)> {
    let text = DotenvFile::default().valid_lines(Path::new(""), content);
    let escaped = without_substitution(&text);
    let variables = dotenvy::from_read_iter(escaped.as_bytes());
    variables.take_while(|item| !matches!(item, Err(dotenvy::Error::Io(_)))).flatten().collect()
}

impl DotenvFile {
    fn parse(&mut self, path: &Path, content: &[u8], allowed: &AllowedNames<'_>) {
        let text = self.valid_lines(path, content);
        let mut unseen = 0;
        for item in dotenvy::from_read_iter(without_substitution(&text).as_bytes()) {
            match item {
                Ok((name, value)) if !allowed.holds(&name) => drop(self.refused.insert(name, value)),
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
                    break;
                }
            }
        }
        let names = self.refused.keys().filter(|name| name.starts_with(KERNEL_ENV_PREFIX)).cloned();
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            self.problems.push(DotenvProblem::NotSecret { path: path.to_owned(), names });
        }
    }

    /// The text of a file in which invalid lines are emptied.
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

/// Escapes each `$`, so that the parser substitutes no variables.
///
/// It would take them from the process environment: a `.env` that came with a workspace could pass any secret
/// of it to the kernel, `KERNEL_ENV_X=$SECRET`.
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

/// The number of the first line at or after `from` that begins what the parser refused as `refused`.
fn line_number(text: &str, refused: &str, from: &mut usize) -> usize {
    let first = refused.lines().next().unwrap_or_default().trim();
    let found = text.lines().enumerate().skip(*from).find(|(_, line)| line.trim() == first);
    let index = found.map_or(*from, |(index, _)| index);
    *from = index + 1;
    index + 1
}
