//! `ipybox attach`: a person's prompt on a kept session, beside the agent's client.

mod helper;
mod piped;
mod prompt;
mod questions;
mod screen;
mod shared;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use ipybox::lasting::{self, JoinedKernel, PersonMessage};

use super::session_args::AttachArgs;

/// The variable that asks programs for no colours (<https://no-color.org>).
const NO_COLOR: &str = "NO_COLOR";

/// The word that undoes the last cell, or so many.
const UNDO: &str = "%undo";

/// Attaches to a session: with a prompt on a terminal, or else for one cell, which is read from stdin.
pub(crate) fn run(AttachArgs { join: args, copy }: AttachArgs) -> anyhow::Result<ExitCode> {
    let is_terminal = std::io::stdout().is_terminal();
    let has_prompt = is_terminal && std::io::stdin().is_terminal();
    let has_colours = is_terminal && std::env::var_os(NO_COLOR).is_none_or(|value| value.is_empty());
    let kernel = if copy { JoinedKernel::Copy } else { JoinedKernel::Shared };
    let joined = lasting::join(args.session.as_deref(), args.state_dir, kernel, has_prompt, has_colours)?;
    if has_prompt { prompt::run(joined, has_colours).map(|()| ExitCode::SUCCESS) } else { piped::run(joined) }
}

/// The message for what a person has typed: a cell, or `%undo` and perhaps a number.
fn said(code: String) -> PersonMessage {
    let mut words = code.split_whitespace();
    let cells = match (words.next(), words.next(), words.next()) {
        (Some(UNDO), None, None) => Some(1),
        (Some(UNDO), Some(cells), None) => cells.parse().ok(),
        _ => None,
    };
    cells.map_or(PersonMessage::Run { code }, |cells| PersonMessage::Undo { cells })
}

/// The lines at the end of a cell: its exception, how it ended, its files.
fn end_of(error: Option<&str>, words: &str, images: &[PathBuf], files: &[PathBuf]) -> String {
    let mut text = String::new();
    for (what, paths) in [("image", images), ("file", files)] {
        for path in paths {
            text.push_str(&format!("[{what}: {}]\n", path.display()));
        }
    }
    for part in [error.unwrap_or_default(), words] {
        if !part.is_empty() {
            text.push_str(part.trim_end());
            text.push('\n');
        }
    }
    text
}
