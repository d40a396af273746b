//! Whether a sandbox has the mounts that were planned. Paths are resolved when mounts are made: code in another sandbox of the
//! workspace can put a link in the place of a directory at that moment, and have a mount lead, or land, somewhere else.
//!
//! The host looks from outside, before any code runs inside: nothing inside can say otherwise, and nothing changes afterwards.

use std::path::{Path, PathBuf};

use super::mounts::{MountRules, PathAccess};
use crate::kernels::sandbox::mount_table::{MountEntry, MountTable};

/// The mounts that a sandbox must have.
#[derive(Debug)]
pub(crate) struct ExpectedMounts {
    mounts: MountRules,
    /// The paths with a rule that are there.
    existing: Vec<PathBuf>,
    /// Paths that the backend makes writable by itself.
    also_writable: Vec<PathBuf>,
}

/// Directories of the system that show no files of the host.
const SYSTEM: [&str; 2] = ["/dev", "/proc"];
/// The device that stands in the place of hidden and missing files.
const NOTHING: &str = "/dev/null";

impl ExpectedMounts {
    pub(super) fn new(mounts: MountRules, also_writable: Vec<PathBuf>) -> Self {
        let is_there = |path: &&Path| {
            let mut sources = mounts.sources(path).into_iter();
            mounts.has_place(path)
                && sources.any(|source| source.symlink_metadata().is_ok_and(|found| !found.is_symlink()))
        };
        let existing = mounts.paths().filter(is_there).map(Path::to_owned).collect();
        Self { mounts, existing, also_writable }
    }

    /// The first difference between the mounts inside and those that were planned, in words.
    pub(in crate::kernels::sandbox) fn difference(
        &self,
        inside: &MountTable,
        host: &MountTable,
    ) -> Option<String> {
        if !inside.place(Path::new("/")).is_known() {
            return Some("its root directory is no mount".to_owned());
        }
        let copied = self.mounts.replaced_workspace();
        if let Some(workspace) = copied.filter(|workspace| !self.is_shown(workspace, inside, host)) {
            return Some(format!("`{}` does not show its copy", workspace.display()));
        }
        let unplanned = inside.visible().find_map(|mount| self.unplanned(mount, inside, host));
        unplanned.or_else(|| self.existing.iter().find_map(|path| self.missing(path, inside, host)))
    }

    /// Why a mount must not be there.
    fn unplanned(&self, mount: &MountEntry, inside: &MountTable, host: &MountTable) -> Option<String> {
        let point = &mount.point;
        let is_of_system = SYSTEM.iter().any(|directory| point.starts_with(directory));
        if is_of_system
            || !host.has_device(&mount.place.device)
            || mount.place == host.place(Path::new(NOTHING))
        {
            return None;
        }
        let at = point.display();
        if !self.is_shown(point, inside, host) {
            return Some(format!("`{at}` shows `{}`", mount.place.path.display()));
        }
        match self.mounts.state(point) {
            PathAccess::Hidden => Some(format!("`{at}` is not hidden")),
            PathAccess::ReadOnly if !mount.is_read_only && !self.is_also_writable(point) => {
                Some(format!("`{at}` is writable"))
            }
            PathAccess::ReadOnly | PathAccess::Writable => None,
        }
    }

    /// The missing of the mount that a path needs.
    fn missing(&self, path: &Path, inside: &MountTable, host: &MountTable) -> Option<String> {
        let at = path.display();
        let shows_it = self.is_shown(path, inside, host);
        match self.mounts.state(path) {
            PathAccess::Hidden => shows_it.then(|| format!("`{at}` is not hidden")),
            PathAccess::ReadOnly if self.is_also_writable(path) => None,
            PathAccess::ReadOnly => {
                (shows_it && !inside.covering(path).is_read_only).then(|| format!("`{at}` is writable"))
            }
            PathAccess::Writable => None,
        }
    }

    /// Whether a path shows what it may show.
    fn is_shown(&self, path: &Path, inside: &MountTable, host: &MountTable) -> bool {
        let shown = inside.place(path);
        self.mounts.sources(path).iter().any(|source| shown == host.place(source))
    }

    fn is_also_writable(&self, path: &Path) -> bool {
        self.also_writable.iter().any(|open| path.starts_with(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "20 1 8:1 / / rw - ext4 x rw\n21 20 0:5 / /dev rw - devtmpfs x rw\n";

    /// The difference for a workspace `/ws`, in which `p` is protected and `h` is hidden as the home is, with these mounts
    /// inside after that of the root.
    fn difference(rules: &[(&str, PathAccess)], inside: &[&str]) -> Option<String> {
        let mut mounts = MountRules::default();
        for (path, access) in rules {
            match access {
                PathAccess::Hidden => mounts.deny_read(Path::new(path)),
                PathAccess::ReadOnly => mounts.deny_write(Path::new(path)),
                PathAccess::Writable => mounts.allow_write(Path::new(path)),
            }
        }
        let existing = mounts.paths().map(Path::to_owned).collect();
        let expected = ExpectedMounts { mounts, existing, also_writable: vec!["/logs".into()] };
        let lines =
            inside.iter().enumerate().map(|(index, mount)| format!("{} 30 {mount} - x x rw\n", index + 31));
        let inside = format!("30 1 8:1 / / ro - ext4 x rw\n{}", lines.collect::<String>());
        let [inside, host] = [inside.as_str(), HOST].map(|text| MountTable::parse(text.as_bytes()).unwrap());
        expected.difference(&inside, &host)
    }

    #[test]
    fn links_in_the_place_of_directories_are_noticed_wherever_they_lead() {
        let rules = [
            ("/ws", PathAccess::Writable),
            ("/ws/d/p", PathAccess::ReadOnly),
            ("/home/u", PathAccess::Hidden),
        ];
        let check = |inside: &[&str], expected: Option<&str>| {
            let workspace = "8:1 /ws /ws rw";
            let mounts: Vec<&str> = [workspace, "0:40 / /home/u ro"].iter().chain(inside).copied().collect();
            // Each lies on the one before it where it is below.
            assert_eq!(difference(&rules, &mounts).as_deref(), expected, "{inside:?}");
        };
        check(&["8:1 /ws/d/p /ws/d/p ro"], Some("`/ws/d/p` is writable"));
        check(&["8:1 /home/u/.ssh /ws/d/p ro"], Some("`/ws/d/p` is writable"));
        check(&["8:1 /home/u/x /etc/x ro"], Some("`/etc/x` shows `/home/u/x`"));
        check(&["8:1 /home/u/x /opt rw"], Some("`/opt` shows `/home/u/x`"));
        check(&["8:1 /opt /opt rw"], Some("`/opt` is writable"));
    }

    #[test]
    fn a_root_directory_that_is_no_mount_is_none_of_a_sandbox() {
        let [inside, host] =
            ["31 30 0:5 / /dev rw - x x rw\n", HOST].map(|text| MountTable::parse(text.as_bytes()).unwrap());
        let expected =
            ExpectedMounts { mounts: MountRules::default(), existing: Vec::new(), also_writable: Vec::new() };
        assert!(expected.difference(&inside, &host).is_some());
    }

    #[test]
    fn what_was_planned_is_in_order() {
        let hidden = [("/home/u", PathAccess::Hidden)];
        assert_eq!(difference(&hidden, &["0:40 / /home/u ro"]), None);
        assert_eq!(difference(&hidden, &[]).as_deref(), Some("`/home/u` is not hidden"));
        assert_eq!(difference(&hidden, &["0:5 /null /home/u ro"]), None);
        assert_eq!(difference(&[], &["8:1 /logs /logs rw", "0:5 /tty /dev/tty rw"]), None);
        assert_eq!(difference(&[("/ws", PathAccess::Writable)], &["8:1 /ws /ws rw"]), None);
    }
}
