//! The files that a sandbox's mounts are on. A mount holds for the file that was there when the sandbox started: if a program of
//! the host removes it or puts another one in its place, code can reach the new one.

use std::path::{Path, PathBuf};

use super::stubs::HeldStubs;
use crate::ground::files::FileIdentity;

/// The files that a sandbox protects in places that code can write.
#[derive(Debug, Default)]
pub(crate) struct MountPoints {
    /// Those that were missing.
    stubs: HeldStubs,
    /// All of them, as they were at the start.
    protected: Vec<PathAtStart>,
    /// The hidden paths in other places, likewise.
    hidden: Vec<PathAtStart>,
}

/// A path, and what was there at the start.
#[derive(Debug)]
struct PathAtStart {
    path: PathBuf,
    identity: Option<FileIdentity>,
}

impl MountPoints {
    pub(super) fn new<'a>(
        stubs: HeldStubs,
        protected: impl Iterator<Item = &'a Path>,
        hidden: impl Iterator<Item = &'a Path>,
    ) -> Self {
        let [protected, hidden] =
            [protected.map(PathAtStart::new).collect(), hidden.map(PathAtStart::new).collect()];
        Self { stubs, protected, hidden }
    }

    /// The stubs among them.
    pub(super) fn stubs(&self) -> &HeldStubs {
        &self.stubs
    }

    /// The first one, in a place that code can write, that is no longer the file that it was at the start.
    pub(super) fn replaced(&self) -> Option<&Path> {
        self.protected.iter().find(|one| one.is_replaced()).map(|one| one.path.as_path())
    }

    /// Whether a new sandbox would protect or hide the same.
    pub(super) fn are_current(&self) -> bool {
        !self.protected.iter().chain(&self.hidden).any(PathAtStart::is_replaced)
    }
}

impl PathAtStart {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity_of(path) }
    }

    fn is_replaced(&self) -> bool {
        identity_of(&self.path) != self.identity
    }
}

/// `None` if there is no file, or if it cannot be examined.
fn identity_of(path: &Path) -> Option<FileIdentity> {
    path.symlink_metadata().ok().map(|found| FileIdentity::of(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_the_same_until_it_is_removed_or_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let [kept, missing, other, hidden] =
            ["kept", "missing", "other", "hidden"].map(|name| directory.path().join(name));
        std::fs::write(&kept, "1").unwrap();
        std::fs::write(&other, "3").unwrap();
        let protected = [kept.as_path(), &missing];
        let points = || {
            MountPoints::new(HeldStubs::default(), protected.into_iter(), std::iter::once(hidden.as_path()))
        };
        let at_first = points();
        std::fs::write(&kept, "2").unwrap();
        assert_eq!(at_first.replaced(), None);
        std::fs::write(&missing, "").unwrap();
        assert_eq!(at_first.replaced(), Some(missing.as_path()));
        let later = points();
        std::fs::rename(&other, &kept).unwrap();
        assert_eq!(later.replaced(), Some(kept.as_path()));
        let again = points();
        std::fs::remove_file(&missing).unwrap();
        assert_eq!(again.replaced(), Some(missing.as_path()));
        let last = points();
        assert!(last.are_current());
        std::fs::write(&hidden, "").unwrap();
        assert!(last.replaced().is_none() && !last.are_current());
    }
}
