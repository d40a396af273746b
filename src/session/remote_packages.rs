//! Packages for a kernel on a Jupyter server: installed by the kernel itself, into its own environment.

use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cell::{Cell, Outcome};
use super::end::End;

/// How long an installation may take.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// How many characters of the installer's output are returned.
const OUTPUT_CHARS: usize = 20_000;

/// The cell that installs `package`, a requirement that has been checked.
pub(super) fn cell(package: &str, cancel: CancellationToken) -> Cell {
    // A JSON string literal is also a Python one.
    let code = format!("__import__('ipybox_packages').install({})", Value::from(package));
    Cell::ours(code, TIMEOUT, OUTPUT_CHARS, cancel, "packages are installed without tools")
}

/// The installer's output, or why the package was not installed.
pub(super) fn output_or_reason(outcome: Outcome) -> Result<String, String> {
    let said = outcome.shown.text.excerpt.trim().to_owned();
    let why = match (&outcome.end, &outcome.error) {
        (End::Finished, None) => return Ok(said),
        (End::Finished, Some(error)) => format!("{}: {}", error.name, error.value),
        (end, _) => end.words(),
    };
    Err(if said.is_empty() { why } else { format!("{why}\n{said}") })
}
