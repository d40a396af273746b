//! Programs that tests make and run.
//!
//! The system runs no file that is open for writing ("Text file busy"). While one thread writes a file, a child that another
//! one has just forked has it open too, until it runs its own program. So other processes write these.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run.
pub(crate) fn write_program(path: &Path, script: &str) {
    let mut writing = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writing.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(writing.wait().unwrap().success(), "{}", path.display());
}

/// Copies a program.
pub(crate) fn copy_program(from: &str, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success(), "{}", to.display());
}
