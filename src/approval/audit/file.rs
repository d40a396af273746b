//! A file to which several processes may append lines, rotated by size.
//!
//! Every line is written under a lock of the file that has the name at that moment: a process that has waited
//! for the lock of a file that was renamed meanwhile starts over with the new file. So no line is torn, none
//! is lost in a file that is removed, and no two processes rotate at the same time.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How often a file may be renamed while we wait for its lock, before we give up.
const ATTEMPTS: usize = 100;

/// The log's file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    max_bytes: u64,
    kept_files: usize,
    file: File,
    cannot_rotate: bool,
}

impl LogFile {
    /// Opens the file for appending, and creates it, for this user alone, if it does not exist.
    pub(super) fn open(path: &Path, max_bytes: u64, kept_files: usize) -> io::Result<Self> {
        let kept_files = kept_files.max(1);
        Ok(Self { path: path.to_owned(), max_bytes, kept_files, file: open(path)?, cannot_rotate: false })
    }

    /// Appends a line that ends in a newline. It is written whole or not at all.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let appended = self.append_and_rotate(line);
        // Also after a failure, since other processes would wait for the lock.
        let unlocked = self.file.unlock();
        appended.and(unlocked)
    }

    fn append_and_rotate(&mut self, line: &[u8]) -> io::Result<()> {
        self.lock()?;
        // Other processes may fill the new file before we lock it: then rotate again.
        for _ in 0..ATTEMPTS {
            let length = self.file.metadata()?.len();
            if length == 0 || length.saturating_add(line.len() as u64) <= self.max_bytes {
                break;
            }
            match self.rotate() {
                // Closing the renamed file releases its lock.
                Ok(()) => {
                    self.cannot_rotate = false;
                    self.lock()?;
                }
                // A log that is too large is better than none.
                Err(error) => {
                    if !self.cannot_rotate {
                        self.cannot_rotate = true;
                        tracing::warn!(%error, "the audit log cannot be rotated");
                    }
                    break;
                }
            }
        }
        self.append_locked(line)
    }

    /// Locks the file that has the name now.
    fn lock(&mut self) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            self.file.lock()?;
            if self.has_its_name()? {
                return Ok(());
            }
            self.file = open(&self.path)?;
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is replaced again and again"))
    }

    fn has_its_name(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match std::fs::symlink_metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn append_locked(&mut self, line: &[u8]) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let written = match length > 0 && !self.ends_with_a_line(length)? {
            // A process was killed, or the power failed, in the middle of a line.
            true => self.file.write_all(&[b"\n", line].concat()),
            false => self.file.write_all(line),
        };
        if written.is_err() {
            // For instance the disk is full: half a line is useless.
            self.file.set_len(length)?;
        }
        written
    }

    fn ends_with_a_line(&self, length: u64) -> io::Result<bool> {
        let mut last = [0];
        self.file.read_exact_at(&mut last, length - 1)?;
        Ok(last == *b"\n")
    }

    /// Renames the files one number up; the last one is replaced.
    fn rotate(&self) -> io::Result<()> {
        for number in (1..self.kept_files).rev() {
            match std::fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, self.numbered(1))
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

/// Follows no symbolic link, and does not wait for the reader of a FIFO. Opened for reading too, to see how
/// the last line ends.
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;

    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|error| match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::LOOP) => {
                io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link, which is not followed")
            }
            _ => error,
        })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<String> {
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_full_file_is_renamed_and_the_oldest_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut file = LogFile::open(&path, 10, 2).unwrap();
        for line in ["1234\n", "5678\n", "a line of its own\n", "b\n", "c\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        assert_eq!(names(directory.path()), ["log", "log.1", "log.2"]);
        assert_eq!(lines(&path), ["b", "c"]);
        assert_eq!(lines(&file.numbered(1)), ["a line of its own"]);
        assert_eq!(lines(&file.numbered(2)), ["1234", "5678"]);
        file.append(b"123456789\n").unwrap();
        assert_eq!(lines(&file.numbered(2)), ["a line of its own"]);
    }

    #[test]
    fn two_handles_lose_and_tear_nothing_while_both_rotate() {
        const COUNT: usize = 1_000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::thread::scope(|scope| {
            for writer in ["a", "b"] {
                let mut file = LogFile::open(&path, 1_000, 1_000).unwrap();
                scope.spawn(move || {
                    for number in 0..COUNT {
                        file.append(format!("{writer} {number} end\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let mut seen: Vec<String> =
            names(directory.path()).iter().flat_map(|name| lines(&directory.path().join(name))).collect();
        seen.sort();
        let mut expected: Vec<String> = ["a", "b"]
            .iter()
            .flat_map(|writer| (0..COUNT).map(move |number| format!("{writer} {number} end")))
            .collect();
        expected.sort();
        assert_eq!(seen, expected);
        let longest = names(directory.path())
            .iter()
            .map(|name| directory.path().join(name).metadata().unwrap().len())
            .max();
        assert!(longest.is_some_and(|longest| longest <= 1_000), "{longest:?}");
    }

    #[test]
    fn a_removed_file_is_made_again_for_this_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut file = LogFile::open(&path, 1_000, 1).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.append(b"1\n").unwrap();
        assert_eq!(lines(&path), ["1"]);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_that_was_left_torn_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "torn").unwrap();
        LogFile::open(&path, 1_000, 1).unwrap().append(b"whole\n").unwrap();
        assert_eq!(lines(&path), ["torn", "whole"]);
    }

    #[test]
    fn a_file_that_cannot_be_renamed_grows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::create_dir_all(directory.path().join("log.1/in-the-way")).unwrap();
        let mut file = LogFile::open(&path, 3, 1).unwrap();
        file.append(b"1\n").unwrap();
        file.append(b"2\n").unwrap();
        assert_eq!(lines(&path), ["1", "2"]);
    }

    #[test]
    fn links_and_devices_are_no_logs() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &link).unwrap();
        LogFile::open(&link, 10, 1).unwrap_err();
        LogFile::open(Path::new("/dev/null"), 10, 1).unwrap_err();
    }
}
