//! Without a terminal: stdin is one cell, stdout its output.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use ipybox::lasting::{CellAuthor, JoinedSession, SessionMessage};

use super::{end_of, said};
use crate::cli::print_message;

/// The longest cell, in bytes.
const CODE_BYTES: u64 = 4 * 1024 * 1024;

/// Runs the cell. Ends with 1 if it raises an exception or does not run.
pub(super) fn run(mut joined: JoinedSession) -> anyhow::Result<ExitCode> {
    let mut code = String::new();
    io::stdin().take(CODE_BYTES + 1).read_to_string(&mut code).context("read stdin")?;
    anyhow::ensure!(code.len() as u64 <= CODE_BYTES, "run stdin: it is longer than {CODE_BYTES} bytes");
    joined.says.say(&said(code)).context("speak to the session")?;
    let mut own = None;
    let mut was_left_out = false;
    let mut is_in_line = false;
    while let Some(heard) = joined.hears.hear().context("hear the session")? {
        match heard {
            SessionMessage::Began { cell, by: CellAuthor::You, .. } => own = Some(cell),
            SessionMessage::Text { cell, text } if own == Some(cell) => {
                is_in_line = !text.ends_with('\n');
                print(&text)?;
            }
            SessionMessage::LeftOut { cell, bytes } if own == Some(cell) => {
                was_left_out = true;
                print_message(&format!("{bytes} bytes of output were left out: they came too fast"));
            }
            SessionMessage::Ended { cell, error, words, images, files, file } if own == Some(cell) => {
                print(if is_in_line { "\n" } else { "" })?;
                print(&end_of(None, "", &images, &files))?;
                // Nothing can be done for a user whose stderr is closed.
                write!(io::stderr(), "{}", end_of(error.as_deref(), &words, &[], &[])).ok();
                if let Some(file) = file.filter(|_| was_left_out) {
                    print_message(&format!("all output is in {}", file.display()));
                }
            }
            SessionMessage::Done { is_ok, notes, .. } => {
                notes.iter().for_each(|note| print_message(note));
                return Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            _ => {}
        }
    }
    anyhow::bail!("go on: the session `{}` has ended", joined.id)
}

/// Prints on stdout. A reader that has had enough is no error: the cell goes on to its end.
fn print(text: &str) -> anyhow::Result<()> {
    crate::cli::print(text, "write the output")
}
