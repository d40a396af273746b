//! Whether a directory can be used, or made and used. Nothing is written to find out.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};

use crate::kernels::sandbox::check::{CheckFinding, CheckRemedy};

/// An environment for the kernel takes 150 MB, and some packages as much each.
const ROOM_BYTES: u64 = 500 * 1024 * 1024;

/// The possible use of a path.
#[derive(Debug, PartialEq, Eq)]
enum PathUse {
    Full(String),
    /// It exists, and cannot be written.
    Reading(String),
    None(String),
}

/// Checks the kernel's working directory.
pub(super) fn workspace(path: &Path) -> CheckFinding {
    let remedy = || CheckRemedy::Advice("name a directory that you can write to by `--workspace`".to_owned());
    match examine(path) {
        PathUse::Full(found) => CheckFinding::ok("workspace", found),
        PathUse::Reading(found) => CheckFinding::warning(
            "workspace",
            found,
            "code writes no files there, and no server can be registered",
            remedy(),
        ),
        PathUse::None(found) => CheckFinding::failed("workspace", found, "ipybox does not start", remedy()),
    }
}

/// Checks ipybox's state directory.
pub(super) fn state_directory(path: &Path) -> CheckFinding {
    match examine(path) {
        PathUse::Full(found) => CheckFinding::ok("state-directory", found),
        PathUse::Reading(found) | PathUse::None(found) => CheckFinding::failed(
            "state-directory",
            found,
            "neither Python environments nor registered servers can be kept",
            CheckRemedy::Advice("name a directory that you can write to by `--state-dir`".to_owned()),
        ),
    }
}

fn examine(path: &Path) -> PathUse {
    let shown = path.display();
    let Some(there) = existing(path) else { return PathUse::None(format!("`{shown}` has no parent")) };
    if !there.is_dir() {
        return PathUse::None(format!("`{}` is not a directory", there.display()));
    }
    // By the effective user id, not the real one.
    let is_writable = accessat(CWD, there, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    let refused = |error| format!("`{}` cannot be written to: {error}", there.display());
    match is_writable {
        Ok(()) if there == path => PathUse::Full(format!("`{shown}`")),
        Ok(()) => PathUse::Full(format!("`{shown}`, which will be made")),
        Err(error) if there == path => PathUse::Reading(refused(error)),
        Err(error) => PathUse::None(refused(error)),
    }
}

/// A finding if the disk of `path` has little space.
pub(super) fn room(path: &Path) -> Option<CheckFinding> {
    let there = existing(path)?;
    let system = statvfs(there).ok()?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    (free < ROOM_BYTES).then(|| {
        CheckFinding::warning(
            "disk-space",
            format!("{} MB free at `{}`", free / 1_000_000, there.display()),
            "an environment for the kernel and its packages may not fit",
            CheckRemedy::Advice("make room, or name another place by `--state-dir`".to_owned()),
        )
    })
}

/// The path, or its nearest existing parent.
fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|above| above.symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &Path, expected: &str) {
        let finding = workspace(path);
        assert!(finding.found.contains(expected), "{finding:?}");
        assert_eq!(finding.is_failed(), expected.contains("not"), "{finding:?}");
        assert_eq!(state_directory(path).is_failed(), finding.is_failed(), "{finding:?}");
    }

    #[test]
    fn a_directory_is_there_or_can_be_made_or_not() {
        let directory = tempfile::tempdir().unwrap();
        check(directory.path(), "`");
        check(&directory.path().join("a/b"), "will be made");
        check(Path::new("/dev/null/a"), "is not a directory");
        assert!(!directory.path().join("a").exists());
    }

    /// `/proc/sys` takes no new files from anybody, but its permissions show that only to ordinary users.
    #[test]
    fn a_workspace_that_is_only_readable_is_no_reason_not_to_start() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let path = Path::new("/proc/sys");
        assert!(matches!(examine(path), PathUse::Reading(_)), "{:?}", examine(path));
        assert!(!workspace(path).is_failed() && state_directory(path).is_failed());
        assert!(workspace(&path.join("new")).is_failed());
    }
}
