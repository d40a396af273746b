//! The programs that names on `PATH` refer to.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The first program called `name` on `path`, the value of `PATH`.
///
/// Relative entries are passed over: programs in the current directory are not trusted.
pub(crate) fn on_path(name: &str, path: &str) -> Option<PathBuf> {
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(name)).find(|file| is_program(file))
}

/// Whether `path` is a file that may be executed.
pub(crate) fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_in_absolute_directories_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
        for entry in [&first, &second] {
            std::fs::create_dir(entry).unwrap();
            std::fs::write(entry.join("uv"), "").unwrap();
        }
        std::fs::create_dir(second.join("python")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(second.join("uv"), executable).unwrap();
        let path = format!(".::{}:{}", first.display(), second.display());
        assert_eq!(on_path("uv", &path), Some(second.join("uv")));
        assert_eq!(on_path("python", &path), None);
        assert_eq!(on_path("sh", "relative:/bin"), Some(PathBuf::from("/bin/sh")));
    }
}
