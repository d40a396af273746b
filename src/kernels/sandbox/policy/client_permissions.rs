//! The permissions of an MCP client's own commands on this machine. A sandbox gives the client's code no more.
//!
//! ```text
//! the client's words (`codex`) → ClientPermissions ─ meet (`meet`) with the rules of our policy → Rules
//! ```
//!
//! Pure, but for links in paths, which are resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The permissions of a client's commands. The nearest entry above a path decides about it; without one nothing is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientPermissions {
    pub(super) files: BTreeMap<PathBuf, ClientAccess>,
    /// Paths whose entry holds only if something is there when a kernel starts.
    pub(super) optional: BTreeSet<PathBuf>,
    /// Patterns of files that must not be read, each below a directory.
    pub(super) hidden: BTreeSet<String>,
    pub(super) has_network: bool,
}

/// The access to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientAccess {
    Nothing,
    Read,
    Write,
}

impl ClientPermissions {
    /// No restriction of files.
    pub(super) fn everything(has_network: bool) -> Self {
        let files = BTreeMap::from([(PathBuf::from("/"), ClientAccess::Write)]);
        Self { files, has_network, ..Self::default() }
    }

    /// Whether nothing is restricted.
    pub(crate) fn is_unrestricted(&self) -> bool {
        *self == Self::everything(true)
    }

    /// The access to `path`, an absolute one without links.
    pub(crate) fn access(&self, path: &Path) -> ClientAccess {
        let nearest = path.ancestors().find_map(|above| self.files.get(above));
        nearest.copied().unwrap_or(ClientAccess::Nothing)
    }

    /// The entries.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, ClientAccess)> {
        self.files.iter().map(|(path, access)| (path.as_path(), *access))
    }

    /// Whether the entry for this path holds only if something is there.
    pub(crate) fn is_optional(&self, path: &Path) -> bool {
        self.optional.contains(path)
    }

    /// Patterns of files that must not be read.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = &str> {
        self.hidden.iter().map(String::as_str)
    }

    /// Whether the network can be reached.
    pub(crate) fn has_network(&self) -> bool {
        self.has_network
    }

    /// Whether they allow nothing that `other` does not allow.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        // Between two entries nothing changes, so that the entries of both decide.
        let mut places = self.files.keys().chain(other.files.keys());
        (other.has_network || !self.has_network)
            && other.hidden.is_subset(&self.hidden)
            && places.all(|place| self.access(place) <= other.access(place))
    }

    /// Adds an entry. Of two for the same path, a denial wins, and else the wider one.
    pub(super) fn add(&mut self, path: PathBuf, access: ClientAccess) {
        let entry = self.files.entry(path).or_insert(access);
        if *entry != ClientAccess::Nothing {
            *entry = if access == ClientAccess::Nothing { access } else { access.max(*entry) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permissions(entries: &[(&str, ClientAccess)], has_network: bool) -> ClientPermissions {
        let mut permissions = ClientPermissions { has_network, ..ClientPermissions::default() };
        for (path, access) in entries {
            permissions.add(PathBuf::from(path), *access);
        }
        permissions
    }

    #[test]
    fn the_nearest_entry_decides_and_a_denial_wins() {
        use ClientAccess::{Nothing, Read, Write};

        let some =
            permissions(&[("/", Read), ("/ws", Write), ("/ws/.git", Read), ("/ws/.git", Nothing)], false);
        let access = ["/etc", "/ws/a/b", "/ws/.git/x"].map(|path| some.access(Path::new(path)));
        assert_eq!(access, [Read, Write, Nothing]);
        assert_eq!(permissions(&[("/ws", Write)], false).access(Path::new("/etc")), Nothing);
    }

    #[test]
    fn permissions_are_compared_at_each_place_where_one_of_them_changes() {
        use ClientAccess::{Nothing, Read, Write};

        let all = ClientPermissions::everything(true);
        let reading = permissions(&[("/", Read)], false);
        let writing = permissions(&[("/", Read), ("/ws", Write), ("/ws/.git", Read)], false);
        let other = permissions(&[("/", Read), ("/ws/sub", Write)], false);
        assert!(all.is_unrestricted() && !ClientPermissions::everything(false).is_unrestricted());
        for (narrow, wide) in [(&reading, &writing), (&writing, &all), (&other, &writing), (&other, &other)] {
            assert!(narrow.is_within(wide), "{narrow:?} {wide:?}");
        }
        let hole = permissions(&[("/", Write), ("/ws/.git", Nothing)], false);
        for (wide, narrow) in [(&writing, &reading), (&all, &writing), (&writing, &other), (&writing, &hole)]
        {
            assert!(!wide.is_within(narrow), "{wide:?} {narrow:?}");
        }
        assert!(!permissions(&[("/", Read)], true).is_within(&reading));
    }
}
