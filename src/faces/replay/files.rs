//! Copies the files that recorded code needs into the workspace of its replay.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

/// The number of files and directories that are copied.
const MOST_FILES: usize = 10_000;

/// The bytes of files that are copied, together.
const MOST_BYTES: u64 = 1 << 30;

/// Not copied: secrets, and what a replay makes itself.
const LEFT_OUT: [&str; 3] = [".env", ".ipybox", "mcptools"];

/// Copies regular files of the directory `from`. No link is followed out of it, and none is copied. Blocks.
///
/// # Errors
/// A file cannot be copied, or there are too many.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut directories = vec![(Dir::open_ambient_dir(from, ambient_authority())?, PathBuf::new())];
    let mut room = MOST_BYTES;
    let mut count = 0;
    while let Some((directory, path)) = directories.pop() {
        for entry in directory.entries()? {
            let entry = entry?;
            let name = entry.file_name();
            if path.as_os_str().is_empty() && LEFT_OUT.iter().any(|left_out| name == *left_out) {
                continue;
            }
            count += 1;
            if count > MOST_FILES {
                return Err(io::Error::other(format!("it has more than {MOST_FILES} files")));
            }
            let path = path.join(&name);
            let kind = entry.file_type()?;
            if kind.is_dir() {
                std::fs::create_dir(to.join(&path))?;
                directories.push((entry.open_dir()?, path));
            } else if kind.is_file() {
                let mut copied = File::create_new(to.join(&path))?;
                room -= io::copy(&mut entry.open()?.into_std().take(room), &mut copied)?;
                if room == 0 {
                    return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_copied_without_links_and_secrets() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(from.path().join("data/.ipybox")).unwrap();
        std::fs::create_dir(from.path().join("mcptools")).unwrap();
        for file in ["a.csv", ".env", "data/b.csv", "data/.ipybox/c", "mcptools/d.py"] {
            std::fs::write(from.path().join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", from.path().join("data/etc")).unwrap();
        copy(from.path(), to.path()).unwrap();
        let is_there = |file: &str| to.path().join(file).symlink_metadata().is_ok();
        assert!(["a.csv", "data/b.csv", "data/.ipybox/c"].into_iter().all(is_there));
        assert!(![".env", "mcptools", "link", "data/etc"].into_iter().any(is_there));
        assert_eq!(std::fs::read_to_string(to.path().join("data/b.csv")).unwrap(), "data/b.csv");
        assert!(copy(Path::new("/nonexistent"), to.path()).is_err());
    }
}
