//! Files that the kernel has sent, as `<8 hex digits>-<name>`: copies of what code has named by `show_file` in
//! `<workspace>/.ipybox/files/`, views of objects in `<workspace>/.ipybox/views/`.
//!
//! The kernel sends their bytes, so that the host opens no path that code chooses.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::kept::{self, KeptFiles};
use crate::kernels::kernel::{FileRole, ShownFile};

/// The directory of the copies in the workspace.
pub(crate) const FILES: &str = ".ipybox/files";
/// The directory of the views.
pub(crate) const VIEWS: &str = ".ipybox/views";

/// The number of copies that a cell can show, and of views. There are as many of earlier cells.
pub(super) const MOST_FILES: usize = 32;

/// Which of each directory are kept.
const KEPT: KeptFiles = KeptFiles { files: 2 * MOST_FILES, bytes: 512 * 1024 * 1024, is_ours };

/// The longest name after the digits, in characters. File systems allow 255 bytes.
const NAME_CHARS: usize = 100;

/// A file of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedFile {
    /// The path of the copy.
    pub(crate) path: PathBuf,
    /// Its length.
    pub(crate) bytes: u64,
}

impl SavedFile {
    /// The name that code has given it, as far as a file can have it.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.split_once('-').map_or_else(|| name.to_string(), |(_, name)| name.to_owned())
    }
}

/// The directory of the files with this role.
pub(super) fn directory_of(role: FileRole) -> &'static str {
    match role {
        FileRole::Copy => FILES,
        FileRole::View => VIEWS,
    }
}

/// Saves a file. Blocks.
pub(super) fn save(workspace: &Path, file: &ShownFile) -> io::Result<SavedFile> {
    let place = directory_of(file.role);
    let directory = kept::open_directory(workspace, place)?;
    KEPT.prune(&directory)?;
    let harmless = harmless(&file.name);
    let (name, mut copy) = kept::create_new(&directory, |digits| format!("{digits}-{harmless}"))?;
    copy.write_all(&file.bytes)?;
    Ok(SavedFile { path: workspace.join(place).join(name), bytes: file.bytes.len() as u64 })
}

/// Removes a file. Blocks.
pub(super) fn remove(workspace: &Path, file: &SavedFile, role: FileRole) -> io::Result<()> {
    kept::open_directory(workspace, directory_of(role))?
        .remove_file(file.path.file_name().unwrap_or_default())
}

/// A name of letters, digits and `.-_`, which no shell, URI or file system reads otherwise.
fn harmless(name: &str) -> String {
    let is_harmless = |char: char| char.is_ascii_alphanumeric() || ".-_".contains(char);
    let name: String = name.chars().map(|char| if is_harmless(char) { char } else { '_' }).collect();
    // The extension says what it is.
    let name = &name[name.len().saturating_sub(NAME_CHARS)..];
    match name.trim_matches('.') {
        "" => "file".to_owned(),
        _ => name.to_owned(),
    }
}

/// Whether a file of this name is one of ours.
pub(super) fn is_ours(name: &str) -> bool {
    name.split_once('-').is_some_and(|(digits, name)| {
        digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && harmless(name) == name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> ShownFile {
        ShownFile { name: name.to_owned(), bytes: b"content".to_vec(), role: FileRole::Copy }
    }

    #[test]
    fn a_copy_is_saved_under_its_name() {
        let workspace = tempfile::tempdir().unwrap();
        let saved = save(workspace.path(), &shown("report.pdf")).unwrap();
        assert_eq!(std::fs::read(&saved.path).unwrap(), b"content");
        assert_eq!((saved.name().as_str(), saved.bytes), ("report.pdf", 7));
        assert!(is_ours(saved.path.file_name().unwrap().to_str().unwrap()));
        remove(workspace.path(), &saved, FileRole::Copy).unwrap();
        assert!(!saved.path.exists());
    }

    #[test]
    fn names_are_harmless() {
        let check = |name: &str, expected: &str| assert_eq!(harmless(name), expected);
        check("../../etc/passwd", ".._.._etc_passwd");
        check("a b\u{202e}.py\n", "a_b_.py_");
        check("été.csv", "_t_.csv");
        check("..", "file");
        check("", "file");
        check(&format!("{}.csv", "x".repeat(300)), &format!("{}.csv", "x".repeat(96)));
        assert!(!is_ours("0a1b2c3d.txt") && !is_ours("0a1b2c3d-a b") && !is_ours("x-y"));
    }

    #[test]
    fn the_newest_are_kept() {
        let workspace = tempfile::tempdir().unwrap();
        let first = save(workspace.path(), &shown("first")).unwrap();
        let file = std::fs::File::options().write(true).open(&first.path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        for _ in 0..KEPT.files {
            save(workspace.path(), &shown("later")).unwrap();
        }
        assert!(!first.path.exists());
        assert_eq!(std::fs::read_dir(workspace.path().join(FILES)).unwrap().count(), KEPT.files);
    }

    #[test]
    fn a_link_out_of_the_workspace_is_not_followed() {
        let [workspace, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        std::fs::create_dir(workspace.path().join(".ipybox")).unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(FILES)).unwrap();
        save(workspace.path(), &shown("file")).unwrap_err();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
