//! Anthropic's sandbox-runtime: its settings file and its command line.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::{Error, SandboxRules};

/// Writes the settings file, and returns the command that runs the gateway under them.
pub(super) fn command(
    srt: &Path,
    settings: &Path,
    rules: &SandboxRules,
    gateway: &Path,
) -> Result<Command, Error> {
    write(settings, &rules.srt_settings().to_string())
        .map_err(|source| Error::Settings { path: settings.to_owned(), source })?;
    let mut command = Command::new(srt);
    command.arg("--settings").arg(settings).arg("--").arg(gateway).arg("sandbox-gateway");
    Ok(command)
}

/// The directory of srt's package, of which it starts a program inside.
pub(super) fn package(srt: &Path) -> Option<PathBuf> {
    let program = srt.canonicalize().ok()?;
    program.ancestors().find(|directory| directory.join("package.json").is_file()).map(Path::to_owned)
}

/// In a directory of ours that nobody else writes to.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
