//! The mounts that a process sees, from its `/proc/…/mountinfo`; pure.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The mounts of a process.
#[derive(Debug)]
pub(super) struct MountTable {
    entries: Vec<MountEntry>,
    /// The positions of mounts, by the mount that they are on and their path.
    on: HashMap<(u32, PathBuf), usize>,
    root: usize,
}

/// A mount.
#[derive(Debug)]
pub(super) struct MountEntry {
    id: u32,
    parent: u32,
    /// The path, in the view of the process.
    pub(super) point: PathBuf,
    /// The part of the file system that is mounted.
    pub(super) place: MountedPlace,
    pub(super) is_read_only: bool,
}

/// A place in a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountedPlace {
    /// The device of the file system, `major:minor`.
    pub(super) device: String,
    /// The path in the file system.
    pub(super) path: PathBuf,
}

impl MountTable {
    /// Reads the text of a `mountinfo`; `None` if it is none.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut entries = lines.map(MountEntry::parse).collect::<Option<Vec<_>>>()?;
        let ids: HashMap<u32, usize> =
            entries.iter().enumerate().map(|(index, entry)| (entry.id, index)).collect();
        let is_root = |entry: &MountEntry| {
            entry.point == Path::new("/") && (entry.parent == entry.id || !ids.contains_key(&entry.parent))
        };
        let root = match entries.iter().position(is_root) {
            Some(root) => root,
            None => {
                let top = entries.iter().find(|entry| !ids.contains_key(&entry.parent))?.parent;
                entries.push(MountEntry::unknown_root(top));
                entries.len() - 1
            }
        };
        let on = entries
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != root)
            .map(|(index, entry)| ((entry.parent, entry.point.clone()), index))
            .collect();
        Some(Self { entries, on, root })
    }

    /// The same, with the root directory of another table if the own one is not known: that of a process in a `chroot` is no mount.
    pub(super) fn with_root_of(mut self, other: &Self) -> Self {
        let root = &mut self.entries[self.root];
        if !root.place.is_known() {
            root.place = other.covering(Path::new("/")).place.clone();
        }
        self
    }

    /// The mount that decides about `path`, which is absolute and has no links.
    pub(super) fn covering(&self, path: &Path) -> &MountEntry {
        let mut prefixes: Vec<&Path> = path.ancestors().collect();
        prefixes.reverse();
        let mut current = self.root;
        for prefix in prefixes {
            while let Some(next) = self.on.get(&(self.entries[current].id, prefix.to_owned())) {
                current = *next;
            }
        }
        &self.entries[current]
    }

    /// The place in a file system that `path` shows.
    pub(super) fn place(&self, path: &Path) -> MountedPlace {
        let entry = self.covering(path);
        let below = path.strip_prefix(&entry.point).unwrap_or(Path::new(""));
        let within = if below.as_os_str().is_empty() {
            entry.place.path.clone()
        } else {
            entry.place.path.join(below)
        };
        MountedPlace { device: entry.place.device.clone(), path: within }
    }

    /// The mounts that no other mount covers.
    pub(super) fn visible(&self) -> impl Iterator<Item = &MountEntry> {
        self.entries.iter().filter(|entry| self.covering(&entry.point).id == entry.id)
    }

    /// Whether a mount is of this device.
    pub(super) fn has_device(&self, device: &str) -> bool {
        self.entries.iter().any(|entry| entry.place.device == device)
    }
}

impl MountedPlace {
    /// Whether it is not that of a root directory which is no mount.
    pub(super) fn is_known(&self) -> bool {
        !self.device.is_empty()
    }
}

impl MountEntry {
    /// A root directory that is below the mount with this number.
    fn unknown_root(id: u32) -> Self {
        let place = MountedPlace { device: String::new(), path: PathBuf::new() };
        Self { id, parent: id, point: "/".into(), place, is_read_only: false }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let id = number()?;
        let parent = number()?;
        let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let path = decoded(fields.next()?);
        let point = decoded(fields.next()?);
        let mut options = fields.next()?.split(|byte| *byte == b',');
        let is_read_only = options.any(|option| option == b"ro");
        Some(Self { id, parent, point, place: MountedPlace { device, path }, is_read_only })
    }
}

/// A path of the text, in which blanks and backslashes are written as octal numbers.
fn decoded(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        21 20 0:21 / /proc rw - proc proc rw\n\
        22 20 8:1 /home/a\\040b /mnt ro - ext4 /dev/vda rw\n\
        23 22 0:30 / /mnt/x rw - tmpfs tmpfs rw\n\
        24 20 0:31 / /mnt rw - tmpfs tmpfs rw\n\
        25 24 8:1 /data /mnt/x ro,nosuid - ext4 /dev/vda rw\n";

    #[test]
    fn the_last_mount_on_a_path_covers_the_others() {
        let table = MountTable::parse(TABLE.replace("24 20 0:31", "24 22 0:31").as_bytes()).unwrap();
        assert_eq!(table.covering(Path::new("/etc/x")).id, 20);
        assert_eq!(table.covering(Path::new("/mnt/y")).id, 24);
        assert_eq!(table.covering(Path::new("/mnt/x/y")).id, 25);
        let place = table.place(Path::new("/mnt/x/y"));
        assert_eq!(place, MountedPlace { device: "8:1".to_owned(), path: "/data/y".into() });
        let visible: Vec<u32> = table.visible().map(|entry| entry.id).collect();
        assert_eq!(visible, [20, 21, 24, 25]);
    }

    #[test]
    fn a_root_directory_that_is_no_mount_is_that_of_the_sandbox() {
        let jail = "21 20 0:21 / /proc rw - proc proc rw\n25 20 8:2 / /data rw - ext4 x rw\n";
        let inside = "30 1 8:1 /srv/jail / ro - ext4 x rw\n";
        let [jail, inside] = [jail, inside].map(|text| MountTable::parse(text.as_bytes()).unwrap());
        let jail = jail.with_root_of(&inside);
        assert_eq!(jail.place(Path::new("/etc/x")), inside.place(Path::new("/etc/x")));
        assert_eq!(jail.place(Path::new("/data/x")).device, "8:2");
    }

    #[test]
    fn blanks_in_paths_are_read_and_other_texts_are_none() {
        let table = MountTable::parse(TABLE.as_bytes()).unwrap();
        assert_eq!(table.entries[2].place.path, Path::new("/home/a b"));
        assert!(table.entries[2].is_read_only && !table.entries[1].is_read_only);
        for text in ["", "x", "1 2 8:1 / rw"] {
            assert!(MountTable::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
