//! The private directory for the kernels of a session.

use tempfile::TempDir;

use crate::ground::process::guard_directory;

/// The longest path of the directory: `srt` makes sockets in it, whose paths are limited to 104 bytes (macOS) or 108
/// (Linux).
const DIRECTORY_BYTES: usize = 80;

/// Makes a directory that only this user can enter. It is removed with the value, or if we are killed.
pub(crate) fn private_directory() -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("ipybox-").rand_bytes(8);
    let directory = match builder.tempdir() {
        Ok(directory) if directory.path().as_os_str().len() <= DIRECTORY_BYTES => directory,
        // `TMPDIR` leads too deep or nowhere.
        _ => builder.tempdir_in("/tmp")?,
    };
    guard_directory(directory.path());
    Ok(directory)
}
