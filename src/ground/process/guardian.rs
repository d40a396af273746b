//! A small process that outlives us by a moment, and kills our child processes if we were killed.
//!
//! It reads from a pipe that only we hold. When the pipe closes, whatever the reason, it kills the process
//! groups that were added and not removed. Then it ends.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::LazyLock;

use parking_lot::Mutex;

const SCRIPT: &str = include_str!("guardian.sh");

/// Started with the first child. There is one for the program, as there is one program to be killed.
static GUARDIAN: LazyLock<Mutex<Option<ChildStdin>>> = LazyLock::new(|| Mutex::new(start()));

/// Adds a process group, to be killed if we are killed before it ends.
pub(super) fn add_group(group: i32) {
    send(&format!("+ {group}\n"));
}

/// If we are killed, the process group gets SIGTERM and a minute before it is killed.
pub(super) fn be_gentle(group: i32) {
    send(&format!("~ {group}\n"));
}

/// The process group has got SIGTERM already.
pub(super) fn has_been_asked(group: i32) {
    send(&format!(". {group}\n"));
}

/// The process group is to be killed at once again.
pub(super) fn be_firm(group: i32) {
    send(&format!("= {group}\n"));
}

/// The process group has ended.
pub(super) fn remove_group(group: i32) {
    send(&format!("- {group}\n"));
}

/// Adds a directory, to be removed if we are killed before we remove it.
///
/// A path that is not text of one line is left alone.
pub(crate) fn guard_directory(directory: &Path) {
    if let Some(path) = directory.to_str().filter(|path| !path.contains('\n')) {
        send(&format!("/ {path}\n"));
    }
}

/// Adds the directory of a control group, to be removed with all its processes if we are killed before we remove it.
pub(super) fn guard_control_group(directory: &Path) {
    if let Some(path) = directory.to_str().filter(|path| !path.contains('\n')) {
        send(&format!("c {path}\n"));
    }
}

fn send(line: &str) {
    let mut guardian = GUARDIAN.lock();
    let Some(pipe) = guardian.as_mut() else { return };
    if let Err(error) = pipe.write_all(line.as_bytes()) {
        tracing::warn!(%error, "child processes would survive a sudden end of this one");
        *guardian = None;
    }
}

fn start() -> Option<ChildStdin> {
    // By its path, so that it is started without a copy of our memory's tables: std does that where it need not look the
    // program up.
    let started = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "ipybox-guardian"])
        // Ctrl-C on a terminal goes to our group.
        .process_group(0)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => child.stdin.take(),
        Err(error) => {
            tracing::warn!(%error, "child processes would survive a sudden end of this one");
            None
        }
    }
}
