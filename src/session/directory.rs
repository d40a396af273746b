//! The private directory of a session.

/// The longest path of the directory: `srt` makes sockets in it, whose paths are limited to 104 bytes (macOS) or 108
/// (Linux).
const DIRECTORY_BYTES: usize = 80;

/// Makes a directory that only this user can enter.
pub(super) fn session_directory() -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("ipybox-").rand_bytes(8);
    match builder.tempdir() {
        Ok(directory) if directory.path().as_os_str().len() <= DIRECTORY_BYTES => Ok(directory),
        // `TMPDIR` leads too deep or nowhere.
        _ => builder.tempdir_in("/tmp"),
    }
}
