//! From rules to mounts: which paths are hidden, readable or writable, and in which order that is mounted.
//!
//! It reads the file system, and changes nothing in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use super::Error;

/// The access of code inside to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathAccess {
    Hidden,
    ReadOnly,
    Writable,
}

/// Rules by path. A rule decides for its path and all beneath it, down to the next rule.
#[derive(Debug, Default)]
pub(super) struct MountRules {
    /// Whether the path may be read. Denials hold against a permission for the same path.
    reading: BTreeMap<PathBuf, bool>,
    allow_write: BTreeSet<PathBuf>,
    /// They hold against permissions beneath them.
    deny_write: BTreeSet<PathBuf>,
    /// The copy that is mounted in the place of the writable parts of the workspace.
    copy: Option<MountedCopy>,
}

/// A copy of the workspace that is mounted in its place: code writes there alone. What it cannot write is the workspace's own.
#[derive(Debug, Clone)]
pub(crate) struct MountedCopy {
    pub(crate) workspace: PathBuf,
    /// The directory with the files of the copy.
    pub(crate) files: PathBuf,
}

impl MountedCopy {
    /// The place of a path of the workspace in the copy.
    fn place(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.workspace).ok()?;
        Some(if below.as_os_str().is_empty() { self.files.clone() } else { self.files.join(below) })
    }

    /// Whether there is a place to mount on: code may have removed it, and needs no protection then.
    fn has_place(&self, path: &Path) -> bool {
        self.place(path).is_none_or(|place| place.parent().is_some_and(Path::is_dir))
    }
}

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The path, on the host and inside.
    pub(super) path: PathBuf,
    /// The path of the host that is mounted there.
    source: PathBuf,
    state: PathAccess,
    pub(super) is_directory: bool,
}

impl MountRules {
    /// Has the copy mounted in the place of the workspace.
    pub(super) fn replace_workspace(&mut self, copy: &MountedCopy) {
        if self.state(&copy.workspace) == PathAccess::Writable {
            self.allow_write(&copy.workspace);
        }
        self.copy = Some(copy.clone());
    }

    /// The place of a path in the copy, if there is one.
    pub(super) fn in_copy(&self, path: &Path) -> Option<PathBuf> {
        self.copy.as_ref()?.place(path)
    }

    /// The paths of the host that may be mounted at a path.
    pub(super) fn sources(&self, path: &Path) -> Vec<PathBuf> {
        let own = Some(path.to_owned()).filter(|_| self.copied(path).is_none());
        own.into_iter().chain(self.in_copy(path)).collect()
    }

    /// The place in the copy of a path that code may write.
    fn copied(&self, path: &Path) -> Option<PathBuf> {
        self.in_copy(path).filter(|_| self.state(path) == PathAccess::Writable)
    }

    /// Whether a path of the workspace needs a mount: not where code has removed the directory for it.
    pub(super) fn has_place(&self, path: &Path) -> bool {
        !self.is_in_writable(path) || self.copy.as_ref().is_none_or(|copy| copy.has_place(path))
    }

    /// The workspace, if it has a copy that code may write.
    pub(super) fn replaced_workspace(&self) -> Option<&Path> {
        let workspace = &self.copy.as_ref()?.workspace;
        (self.state(workspace) == PathAccess::Writable).then_some(workspace)
    }

    pub(super) fn allow_read(&mut self, path: &Path) {
        self.reading.entry(path.to_owned()).or_insert(true);
    }

    pub(super) fn allow_write(&mut self, path: &Path) {
        self.allow_read(path);
        self.allow_write.insert(path.to_owned());
    }

    pub(super) fn deny_read(&mut self, path: &Path) {
        self.reading.insert(path.to_owned(), false);
    }

    pub(super) fn deny_write(&mut self, path: &Path) {
        self.deny_write.insert(path.to_owned());
    }

    /// All paths with a rule, parents first.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = self.reading.keys().chain(&self.allow_write).chain(&self.deny_write);
        paths.map(PathBuf::as_path).collect::<BTreeSet<_>>().into_iter()
    }

    /// The access to `path` by the rules.
    pub(super) fn state(&self, path: &Path) -> PathAccess {
        let is_in = |set: &BTreeSet<PathBuf>| path.ancestors().any(|ancestor| set.contains(ancestor));
        let is_readable =
            path.ancestors().find_map(|ancestor| self.reading.get(ancestor)).is_none_or(|&read| read);
        if !is_readable {
            PathAccess::Hidden
        } else if is_in(&self.allow_write) && !is_in(&self.deny_write) {
            PathAccess::Writable
        } else {
            PathAccess::ReadOnly
        }
    }

    /// The paths that are protected in directories that code can write.
    pub(super) fn protected(&self) -> impl Iterator<Item = &Path> {
        // Code does not reach what a program of the host puts in the place of what a copy has.
        self.paths().filter(|path| {
            self.in_copy(path).is_none()
                && self.state(path) != PathAccess::Writable
                && self.is_in_writable(path)
        })
    }

    /// The paths that are hidden in other places.
    pub(super) fn hidden(&self) -> impl Iterator<Item = &Path> {
        self.paths().filter(|path| self.state(path) == PathAccess::Hidden && !self.is_in_writable(path))
    }

    fn is_in_writable(&self, path: &Path) -> bool {
        path.parent().map(|parent| self.state(parent)) == Some(PathAccess::Writable)
    }

    /// The mounts for existing paths, parents first.
    ///
    /// # Errors
    /// A path that code inside might be able to reach cannot be examined.
    pub(super) fn plan(&self) -> Result<Vec<Mount>, Error> {
        let mut plan: BTreeMap<PathBuf, (PathAccess, bool)> = BTreeMap::new();
        for path in self.paths() {
            let Some(metadata) = self.look(path)? else { continue };
            let state = self.state(path);
            let (above, inherited) = above(&plan, path);
            let is_copied = self.replaced_workspace() == Some(path);
            // A path that is denied writing is mounted even if the directory is not writable.
            if (state == inherited && !is_copied) || !self.has_place(path) {
                continue;
            }
            if inherited == PathAccess::Writable {
                pin(&mut plan, &above, path);
            }
            plan.insert(path.to_owned(), (state, metadata.is_dir()));
        }
        let mount = |(path, (state, is_directory)): (PathBuf, (PathAccess, bool))| {
            let is_own = self.copied(&path).is_none() && path.symlink_metadata().is_ok();
            let source = if is_own { None } else { self.in_copy(&path) };
            Mount { source: source.unwrap_or_else(|| path.clone()), path, state, is_directory }
        };
        Ok(plan.into_iter().map(mount).collect())
    }

    /// The metadata of what is mounted at a path: the workspace's own, or what the copy has in its place.
    fn look(&self, path: &Path) -> Result<Option<Metadata>, Error> {
        let found = if self.copied(path).is_some() { None } else { look(path, self)? };
        Ok(found.or_else(|| self.in_copy(path)?.symlink_metadata().ok()))
    }
}

/// The mount that `path` lies in.
fn above(plan: &BTreeMap<PathBuf, (PathAccess, bool)>, path: &Path) -> (PathBuf, PathAccess) {
    let mounted = path.ancestors().skip(1).find_map(|ancestor| Some((ancestor, plan.get(ancestor)?.0)));
    mounted.map_or_else(|| ("/".into(), PathAccess::ReadOnly), |(path, state)| (path.to_owned(), state))
}

/// Makes mounts of the directories between `above` and `path`: a mount cannot be renamed. Otherwise code
/// inside could move the directory away, and create another one with its own file instead of the protected
/// one.
fn pin(plan: &mut BTreeMap<PathBuf, (PathAccess, bool)>, above: &Path, path: &Path) {
    for ancestor in path.ancestors().skip(1).take_while(|ancestor| *ancestor != above) {
        plan.insert(ancestor.to_owned(), (PathAccess::Writable, true));
    }
}

/// The metadata of `path`, if it exists.
///
/// # Errors
/// It cannot be read, and code inside may change the modes of the directories there.
pub(super) fn look(path: &Path, mounts: &MountRules) -> Result<Option<Metadata>, Error> {
    match path.symlink_metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => {
            let is_changeable =
                path.ancestors().skip(1).any(|parent| mounts.state(parent) == PathAccess::Writable);
            // In other places the mode cannot change, and code inside cannot read it either.
            if is_changeable { Err(Error::Look { path: path.to_owned(), source: error }) } else { Ok(None) }
        }
    }
}

impl Mount {
    /// Whether it is a directory that is hidden by an empty one.
    pub(super) fn is_empty_directory(&self) -> bool {
        self.state == PathAccess::Hidden && self.is_directory
    }

    pub(super) fn arguments(&self) -> Vec<OsString> {
        let [path, source] = [&self.path, &self.source].map(|path| || path.clone().into_os_string());
        match self.state {
            PathAccess::Hidden if self.is_directory => vec!["--tmpfs".into(), path()],
            // Devices cannot be opened on mounts of bubblewrap: readers get a permission error.
            PathAccess::Hidden => vec!["--ro-bind".into(), "/dev/null".into(), path()],
            PathAccess::ReadOnly => vec!["--ro-bind".into(), source(), path()],
            PathAccess::Writable => vec!["--bind".into(), source(), path()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan for a tree with `a/b/c/d`, `a/file` and `x/y`; `+w a` allows writing `a`, `-r a/b` hides it.
    #[track_caller]
    fn check(rules: &[&str], expected: &[&str]) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/c/d")).unwrap();
        std::fs::create_dir_all(root.join("x/y")).unwrap();
        std::fs::write(root.join("a/file"), "").unwrap();
        let mut mounts = MountRules::default();
        for rule in rules {
            let (kind, path) = rule.split_once(' ').unwrap();
            let path = root.join(path);
            match kind {
                "+w" => mounts.allow_write(&path),
                "-w" => mounts.deny_write(&path),
                "+r" => mounts.allow_read(&path),
                _ => mounts.deny_read(&path),
            }
        }
        let shown = |mount: &Mount| {
            let path = mount.path.strip_prefix(&root).unwrap().display().to_string();
            let kind = match mount.state {
                PathAccess::Hidden if mount.is_directory => "empty",
                PathAccess::Hidden => "null",
                PathAccess::ReadOnly => "ro",
                PathAccess::Writable => "rw",
            };
            format!("{kind} {path}")
        };
        let plan: Vec<String> = mounts.plan().unwrap().iter().map(shown).collect();
        assert_eq!(plan, expected, "{rules:?}");
    }

    #[test]
    fn what_is_already_so_is_not_mounted() {
        check(&["-w a"], &[]);
        check(&["+r a"], &[]);
        check(&["+w a", "+w a/b"], &["rw a"]);
        check(&["-r a", "-r a/b"], &["empty a"]);
        check(&["+w missing", "-r missing", "-w a/missing"], &[]);
    }

    #[test]
    fn denials_of_writing_hold_against_permissions_beneath() {
        check(&["+w a", "-w a/b", "+w a/b/c"], &["rw a", "ro a/b"]);
        check(&["+w a", "-w a"], &[]);
    }

    #[test]
    fn the_nearest_rule_about_reading_holds() {
        check(&["-r a", "+r a/b", "-r a/b/c"], &["empty a", "ro a/b", "empty a/b/c"]);
        check(&["-r a", "+w a/b", "-w a/b/c"], &["empty a", "rw a/b", "ro a/b/c"]);
        check(&["+r a", "-r a"], &["empty a"]);
        check(&["+w a", "-r a/file"], &["rw a", "null a/file"]);
        check(&["+w a", "-r a/file", "-w a/file"], &["rw a", "null a/file"]);
    }

    #[test]
    fn directories_above_what_is_protected_are_pinned() {
        check(&["+w a", "-w a/b/c/d"], &["rw a", "rw a/b", "rw a/b/c", "ro a/b/c/d"]);
        check(&["+w a", "-w a/b", "-r a/b/c/d"], &["rw a", "ro a/b", "empty a/b/c/d"]);
    }
}
