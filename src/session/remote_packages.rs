//! Packages for a kernel on a Jupyter server: installed by the kernel itself, into its own environment.

use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cell::{Cell, Outcome};
use super::end::CellEnding;
use super::site;

/// The time that an installation may take.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The number of characters of the installer's output that are returned.
const OUTPUT_CHARS: usize = 20_000;

/// The cell that installs `requirements`, which have been checked.
pub(super) fn cell(requirements: &[String], cancel: CancellationToken) -> Cell {
    // A list of strings in JSON is also one of Python.
    let code = format!("__import__('ipybox_packages').install({})", Value::from(requirements));
    Cell::ours(code, TIMEOUT, OUTPUT_CHARS, cancel, "packages are installed without tools")
}

/// The summary of an installation, or the reason why `requirements` were not installed.
pub(super) fn summary_or_reason(outcome: Outcome, requirements: &[String]) -> Result<String, String> {
    let said = outcome.shown.text.excerpt.trim();
    let why = match (&outcome.end, &outcome.error) {
        (CellEnding::Finished, None) => {
            // The last line is that of `ipybox_packages.py`.
            let (output, place) = said.rsplit_once('\n').unwrap_or(("", said));
            return Ok(format!("{}\n{place}", site::summarised(output, requirements, |_| None))
                .trim()
                .to_owned());
        }
        (CellEnding::Finished, Some(error)) => format!("{}: {}", error.name, error.value),
        (end, _) => end.words(),
    };
    let said = site::explained(said, requirements);
    Err(if said.is_empty() { why } else { format!("{why}\n{said}") })
}
