//! A file to which several processes may append lines, rotated by size.
//!
//! Every line is written under a lock of the file that has the name at that moment: a process that has waited
//! for the lock of a file that was renamed meanwhile starts over with the new file. So no line is torn, none
//! is lost in a file that is removed, and no two processes rotate at the same time.
//!
//! Under the same lock the [`chain`] is continued: from the last line of the file, or if the file is new, of the one that
//! had its name before.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::chain::{self, ChainHead, TAIL};

/// The number of renamings of a file, while we wait for its lock, after which we give up.
const ATTEMPTS: usize = 100;

/// The log's file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    max_bytes: u64,
    kept_files: usize,
    file: File,
    /// The file's length after our last line, and the chain's state.
    ours: Option<(u64, ChainHead)>,
    /// The file that had the name before, until the new one has a record of ours.
    before: Option<MovedFile>,
    /// The number of records that this handle has appended.
    records: u64,
    cannot_rotate: bool,
}

/// A file that was renamed or removed while we had it open.
#[derive(Debug)]
struct MovedFile {
    file: File,
    /// The chain's state at its end.
    head: ChainHead,
}

impl LogFile {
    /// Opens the file for appending, and creates it, for this user alone, if it does not exist.
    pub(super) fn open(path: &Path, max_bytes: u64, kept_files: usize) -> io::Result<Self> {
        let kept_files = kept_files.max(1);
        let file = open(path)?;
        let path = path.to_owned();
        Ok(Self {
            path,
            max_bytes,
            kept_files,
            file,
            ours: None,
            before: None,
            records: 0,
            cannot_rotate: false,
        })
    }

    /// The number of records that this handle has appended.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Appends a record, a JSON object, to the chain. It is written whole or not at all. Returns its line.
    pub(super) fn append(&mut self, record: &str) -> io::Result<Vec<u8>> {
        let number = self.records + 1;
        self.append_line(|previous| chain::link(record, number, previous))
    }

    fn append_line(&mut self, line: impl Fn(ChainHead) -> (Vec<u8>, ChainHead)) -> io::Result<Vec<u8>> {
        let appended = self.lock().and_then(|()| self.append_and_rotate(line));
        if appended.is_ok() {
            self.records += 1;
        }
        // Also after a failure, since other processes would wait for the lock.
        let unlocked = self.file.unlock();
        unlocked.and(appended)
    }

    fn append_and_rotate(&mut self, line: impl Fn(ChainHead) -> (Vec<u8>, ChainHead)) -> io::Result<Vec<u8>> {
        let (mut text, mut head) = line(self.head()?);
        // Other processes may fill the new file before we lock it: then rotate again.
        for _ in 0..ATTEMPTS {
            let length = self.file.metadata()?.len();
            if length == 0 || length.saturating_add(text.len() as u64) <= self.max_bytes {
                break;
            }
            match self.rotate() {
                Ok(()) => {
                    self.cannot_rotate = false;
                    self.lock()?;
                    // Another process may have begun the new file.
                    (text, head) = line(self.head()?);
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
        self.append_locked(&text, head)?;
        Ok(text)
    }

    /// Locks the file that has the name now.
    fn lock(&mut self) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            self.file.lock()?;
            if self.has_its_name()? {
                return Ok(());
            }
            // Nobody appends to it any more: they all look for its name under the lock.
            let head = self.head()?;
            let file = std::mem::replace(&mut self.file, open(&self.path)?);
            file.unlock()?;
            (self.before, self.ours) = (Some(MovedFile { file, head }), None);
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

    /// The chain's state, which the next record continues.
    fn head(&self) -> io::Result<ChainHead> {
        let length = self.file.metadata()?.len();
        match self.ours {
            // If somebody has cut the file, what is left is not what our record follows.
            Some((end, head)) if length <= end => Ok(head),
            _ if length > 0 => head_of(&self.file, length),
            _ => Ok(self.head_before()),
        }
    }

    /// The chain's state at the end of the file that had the name before this empty one.
    fn head_before(&self) -> ChainHead {
        match &self.before {
            Some(before) if !self.is_rotated_further(&before.file).unwrap_or_default() => before.head,
            // It was renamed while we did not have it open. If there is none, a chain of its own begins.
            _ => self.head_of_the_last_rotated().unwrap_or(ChainHead::BEGINNING),
        }
    }

    fn head_of_the_last_rotated(&self) -> io::Result<ChainHead> {
        let file = open_regular(&self.numbered(1), OpenOptions::new().read(true))?;
        match file.metadata()?.len() {
            0 => Ok(ChainHead::BEGINNING),
            length => head_of(&file, length),
        }
    }

    /// Whether other processes have filled and rotated another file since `file` had the name.
    fn is_rotated_further(&self, file: &File) -> io::Result<bool> {
        let ours = file.metadata()?;
        let is_ours = |named: &Metadata| (named.dev(), named.ino()) == (ours.dev(), ours.ino());
        let named = |number| std::fs::symlink_metadata(self.numbered(number)).ok();
        Ok(match named(1) {
            Some(last) if is_ours(&last) => false,
            // If it is gone, it may have been the oldest one.
            Some(last) if ours.nlink() == 0 => last.modified()? >= ours.modified()?,
            Some(_) => (2..=self.kept_files).filter_map(named).any(|named| is_ours(&named)),
            None => false,
        })
    }

    fn append_locked(&mut self, line: &[u8], head: ChainHead) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let is_torn = length > 0 && !self.ends_with_a_line(length)?;
        // A process was killed, or the power failed, in the middle of a line.
        let torn: &[u8] = if is_torn { b"\n" } else { b"" };
        let written = self.file.write_all(&[torn, line].concat());
        match written {
            Ok(()) => {
                self.ours = Some((length + u64::from(is_torn) + line.len() as u64, head));
                self.before = None;
            }
            // For instance the disk is full: half a line is useless.
            Err(_) => self.file.set_len(length)?,
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

/// The chain's state after the last line of `file`.
fn head_of(file: &File, length: u64) -> io::Result<ChainHead> {
    // Its newline, and the one before.
    let wanted = length.min(TAIL as u64 + 2);
    let mut end = vec![0; usize::try_from(wanted).map_err(io::Error::other)?];
    file.read_exact_at(&mut end, length - wanted)?;
    let end = end.strip_suffix(b"\n").unwrap_or(&end);
    Ok(ChainHead::after(end.rsplit(|byte| *byte == b'\n').next().unwrap_or_default()))
}

fn open(path: &Path) -> io::Result<File> {
    open_regular(path, OpenOptions::new().read(true).append(true).create(true).mode(0o600))
}

/// Follows no symbolic link, and does not wait for the reader of a FIFO. Opened for reading too, to see how
/// the last line ends.
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    use rustix::fs::OFlags;

    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(|error| {
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::LOOP) => {
                io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link, which is not followed")
            }
            _ => error,
        }
    })?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends a line that is no record.
    fn append(file: &mut LogFile, line: &str) {
        file.append_line(|_| (line.as_bytes().to_vec(), ChainHead::after(line.trim_ascii_end().as_bytes())))
            .unwrap();
    }

    /// Checks that each record of these files in order continues the one before.
    #[track_caller]
    fn check_chain(paths: &[&Path], count: usize) {
        let text: Vec<String> = paths.iter().flat_map(|path| lines(path)).collect();
        let mut head = ChainHead::BEGINNING;
        for line in &text {
            let previous = format!("\"previous\":\"{head}\"");
            assert!(
                chain::split(line.as_bytes()).is_none() || line.contains(&previous),
                "{line} in {text:#?}"
            );
            head = ChainHead::after(line.as_bytes());
        }
        assert_eq!(text.len(), count);
    }

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
            append(&mut file, line);
        }
        assert_eq!(names(directory.path()), ["log", "log.1", "log.2"]);
        assert_eq!(lines(&path), ["b", "c"]);
        assert_eq!(lines(&file.numbered(1)), ["a line of its own"]);
        assert_eq!(lines(&file.numbered(2)), ["1234", "5678"]);
        append(&mut file, "123456789\n");
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
                        append(&mut file, &format!("{writer} {number} end\n"));
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
        append(&mut file, "1\n");
        assert_eq!(lines(&path), ["1"]);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_that_was_left_torn_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "torn").unwrap();
        append(&mut LogFile::open(&path, 1_000, 1).unwrap(), "whole\n");
        assert_eq!(lines(&path), ["torn", "whole"]);
    }

    #[test]
    fn a_file_that_cannot_be_renamed_grows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::create_dir_all(directory.path().join("log.1/in-the-way")).unwrap();
        let mut file = LogFile::open(&path, 3, 1).unwrap();
        append(&mut file, "1\n");
        append(&mut file, "2\n");
        assert_eq!(lines(&path), ["1", "2"]);
    }

    #[test]
    fn links_and_devices_are_no_logs() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("target"), &link).unwrap();
        LogFile::open(&link, 10, 1).unwrap_err();
        LogFile::open(Path::new("/dev/null"), 10, 1).unwrap_err();
    }

    #[test]
    fn two_handles_continue_one_chain_through_all_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut file = LogFile::open(&path, 2_000, 1_000).unwrap();
                scope.spawn(move || (0..500).for_each(|_| drop(file.append("{\"a\":0}").unwrap())));
            }
        });
        let number =
            |name: &String| name.strip_prefix("log.").map_or(0, |number| number.parse::<usize>().unwrap());
        let mut names = names(directory.path());
        names.sort_by_key(|name| std::cmp::Reverse(number(name)));
        let paths: Vec<PathBuf> = names.iter().map(|name| directory.path().join(name)).collect();
        assert!(paths.len() > 10, "{paths:?}");
        check_chain(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>(), 1_000);
    }

    #[test]
    fn the_chain_goes_on_from_a_torn_line_and_from_a_file_that_was_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, renamed) = (directory.path().join("log"), directory.path().join("log.1"));
        std::fs::write(&path, "{\"torn").unwrap();
        let open = || LogFile::open(&path, 10_000, 5).unwrap();
        let (mut first, mut second) = (open(), open());
        first.append("{\"a\":1}").unwrap();
        second.append("{\"a\":2}").unwrap();
        std::fs::rename(&path, &renamed).unwrap();
        first.append("{\"a\":3}").unwrap();
        second.append("{\"a\":4}").unwrap();
        check_chain(&[&renamed, &path], 5);
        drop((first, second));
        std::fs::rename(&path, &renamed).unwrap();
        open().append("{\"a\":5}").unwrap();
        let (earlier, later) = (lines(&renamed), lines(&path));
        let head = ChainHead::after(earlier[1].as_bytes());
        assert!(later[0].contains(&format!("\"previous\":\"{head}\"")), "{later:?} after {earlier:?}");
    }

    #[test]
    fn a_file_that_was_cut_is_not_continued_as_if_it_were_whole() {
        for left in [0, 1] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let mut file = LogFile::open(&path, 10_000, 5).unwrap();
            (0..2).for_each(|_| drop(file.append("{\"a\":0}").unwrap()));
            let before = lines(&path);
            std::fs::write(&path, before[..left].iter().map(|line| format!("{line}\n")).collect::<String>())
                .unwrap();
            file.append("{\"a\":0}").unwrap();
            let head = ChainHead::after(before[1].as_bytes());
            assert!(lines(&path)[left].contains(&format!("\"previous\":\"{head}\"")), "{left}");
        }
    }
}
