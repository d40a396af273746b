//! Finds what has changed below a directory since a moment, by the times that the system keeps of each file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cap_std::fs::{Dir, DirEntry, MetadataExt as _};

/// The number of entries that are looked at.
const MOST_ENTRIES: usize = 20_000;
/// The time that a search takes at most.
const MOST_TIME: Duration = Duration::from_secs(10);
/// Directories whose contents are not looked at: they are large, and change as a whole.
const OPAQUE: [&str; 4] = [".git", ".venv", "node_modules", "site-packages"];
/// Directories that nobody misses.
const IGNORED: [&str; 2] = ["__pycache__", ".ipynb_checkpoints"];
/// The times of files are so much behind the clock, but on a machine that is very busy.
const BEHIND: Duration = Duration::from_millis(10);

/// The changes below a directory, by paths relative to it.
#[derive(Debug, Default)]
pub(crate) struct ChangedFiles {
    pub(crate) new: Vec<PathBuf>,
    pub(crate) changed: Vec<PathBuf>,
    /// Directories from which something was removed or renamed, and in which nothing else has changed.
    pub(crate) reduced: Vec<PathBuf>,
    /// Whether there was too much to look at all of it.
    pub(crate) is_incomplete: bool,
}

/// The search, which follows no links.
struct Search<'a> {
    since: SystemTime,
    apart: &'a [PathBuf],
    left: usize,
    until: Instant,
    found: ChangedFiles,
}

/// The time that a file would have that was written now: files have another clock than programs, which goes in steps, and on a
/// busy machine in large ones.
pub(crate) fn file_time() -> SystemTime {
    let now = tempfile::tempfile().and_then(|file| file.metadata()?.modified());
    now.unwrap_or_else(|_| SystemTime::now() - BEHIND)
}

/// Looks for what has changed below `root` since a moment by [`file_time`], except at these paths `apart`.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn changed_since(root: &Path, since: SystemTime, apart: &[PathBuf]) -> io::Result<ChangedFiles> {
    let directory = Dir::open_ambient_dir(root, cap_std::ambient_authority())?;
    let until = Instant::now() + MOST_TIME;
    let mut search = Search { since, apart, left: MOST_ENTRIES, until, found: ChangedFiles::default() };
    search.look(&directory, root, Path::new(""))?;
    Ok(search.found)
}

impl Search<'_> {
    fn look(&mut self, directory: &Dir, root: &Path, path: &Path) -> io::Result<()> {
        let before = self.found.new.len() + self.found.changed.len();
        let is_touched = directory.dir_metadata()?.modified().is_ok_and(|time| time.into_std() >= self.since);
        let mut directories = Vec::new();
        for entry in directory.entries()? {
            if self.left == 0 || Instant::now() > self.until {
                self.found.is_incomplete = true;
                break;
            }
            self.left -= 1;
            let entry = entry?;
            let path = path.join(entry.file_name());
            if !self.apart.contains(&root.join(&path)) {
                // It may have been removed meanwhile.
                directories.extend(self.entry(&entry, path).unwrap_or_default());
            }
        }
        if is_touched && self.found.new.len() + self.found.changed.len() == before {
            self.found.reduced.push(path.to_owned());
        }
        for (inner, path) in directories {
            // It may not be ours to read, or be gone.
            self.look(&inner, root, &path).ok();
        }
        Ok(())
    }

    /// Notes a file; returns a directory that is to be looked at.
    fn entry(&mut self, entry: &DirEntry, path: PathBuf) -> io::Result<Option<(Dir, PathBuf)>> {
        let name = entry.file_name();
        let is_named = |names: &[&str]| names.iter().any(|one| name == *one);
        let metadata = entry.metadata()?;
        let is_new = metadata.created().is_ok_and(|time| time.into_std() >= self.since);
        let is_directory = metadata.is_dir();
        if is_directory && is_named(&IGNORED) {
            return Ok(None);
        }
        let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
        let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
        // Unlike the time of its last modification, no program can choose this one.
        let is_changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds) >= self.since;
        if is_new {
            self.found.new.push(path);
        } else if is_changed && (!is_directory || is_named(&OPAQUE)) {
            self.found.changed.push(path);
        } else if is_directory && !is_named(&OPAQUE) {
            return Ok(Some((entry.open_dir()?, path)));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_changed_or_missing_is_found() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["kept", "reduced", "ours", "__pycache__"] {
            std::fs::create_dir(root.path().join(directory)).unwrap();
        }
        for file in ["a", "b", "kept/a", "reduced/a", "ours/a"] {
            std::fs::write(root.path().join(file), "1").unwrap();
        }
        // The clock of the files has to go on.
        let since = loop {
            let probe = root.path().join("probe");
            std::fs::write(&probe, "").unwrap();
            let time = std::fs::metadata(&probe).unwrap().modified().unwrap();
            if time > std::fs::metadata(root.path().join("ours/a")).unwrap().modified().unwrap() {
                std::fs::remove_file(probe).unwrap();
                break time;
            }
        };
        std::fs::write(root.path().join("b"), "2").unwrap();
        std::fs::create_dir(root.path().join("made")).unwrap();
        std::fs::write(root.path().join("made/a"), "2").unwrap();
        std::fs::write(root.path().join("ours/b"), "2").unwrap();
        std::fs::write(root.path().join("__pycache__/b"), "2").unwrap();
        std::fs::remove_file(root.path().join("reduced/a")).unwrap();
        std::os::unix::fs::symlink("/", root.path().join("kept/link")).unwrap();
        let mut found = changed_since(root.path(), since, &[root.path().join("ours")]).unwrap();
        found.new.sort();
        assert_eq!(found.new, ["kept/link", "made"].map(PathBuf::from));
        assert_eq!(found.changed, ["b"].map(PathBuf::from));
        assert_eq!(found.reduced, ["reduced"].map(PathBuf::from));
        assert!(!found.is_incomplete);
    }
}
