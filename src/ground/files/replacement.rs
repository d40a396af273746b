//! Files and directories that are replaced as a whole: written beside under a name of their own, then renamed.
//!
//! A writer of one holds its lock. A process that dies leaves it behind without, by which [`sweep`] finds it.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::if_there;
use super::temporary::remove_tree_in;

/// The beginning of the names of all replacements. Python imports none of them.
const PREFIX: &str = ".ipybox-new-";
/// The permissions of a document for this user alone, and of one that others may read.
pub(crate) const PRIVATE: u32 = 0o600;
pub(crate) const PUBLIC: u32 = 0o666;
/// The number of times that other processes may be faster.
const ATTEMPTS: usize = 16;
/// The depth of documents below the state of a workspace: those of saved variables are the deepest.
const STATE_LEVELS: usize = 2;
/// The beginning of the names of Python environments.
const ENVIRONMENT: &str = "python";
/// The number of files that are flushed at once. The file system writes them together.
const FLUSHED_AT_ONCE: usize = 16;

/// A file or a directory that has not got its name yet. If dropped before, it is removed.
#[derive(Debug)]
#[must_use = "put it in place"]
pub(crate) struct Replacement {
    directory: Dir,
    name: String,
    file: File,
    is_in_place: bool,
}

impl Replacement {
    /// A new, empty file in `directory`, with these permissions as far as the process's mask allows them.
    pub(crate) fn file(directory: &Dir, mode: u32) -> io::Result<Self> {
        Self::new(directory, |name| {
            let mut options = OpenOptions::new();
            Ok(directory.open_with(name, options.write(true).create_new(true).mode(mode))?.into_std())
        })
    }

    /// A new, empty directory in `directory`.
    pub(crate) fn directory(directory: &Dir) -> io::Result<Self> {
        Self::new(directory, |name| {
            directory.create_dir_with(name, DirBuilder::new().mode(0o777))?;
            open(directory, name, OFlags::DIRECTORY)
        })
    }

    fn new(directory: &Dir, make: impl Fn(&str) -> io::Result<File>) -> io::Result<Self> {
        let directory = directory.try_clone()?;
        // Another process may have swept it away before it was locked.
        persist(
            |error| error.kind() == io::ErrorKind::NotFound,
            || {
                let name = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
                let made =
                    Self { directory: directory.try_clone()?, file: make(&name)?, name, is_in_place: false };
                match made.file.try_lock() {
                    // Some file systems have no locks; what a dead process leaves there stays.
                    Ok(()) | Err(TryLockError::Error(_)) => {}
                    Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::NotFound.into()),
                }
                if_there(made.directory.symlink_metadata(&made.name))?.ok_or(io::ErrorKind::NotFound)?;
                Ok(made)
            },
        )
    }

    /// The name that it has until then.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file, to be written.
    pub(crate) fn as_file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Writes files with these names and texts into the directory, and flushes them to the disk.
    pub(crate) fn fill<'f>(&self, files: impl IntoIterator<Item = (&'f str, &'f str)>) -> io::Result<()> {
        // Not by its name, which code may have given to something else.
        let directory = Dir::from_std_file(self.file.try_clone()?);
        let mut written = Vec::new();
        for (name, text) in files {
            let mut file = directory.create(name)?.into_std();
            file.write_all(text.as_bytes())?;
            written.push(file);
            if written.len() >= FLUSHED_AT_ONCE {
                flush_all(&std::mem::take(&mut written))?;
            }
        }
        flush_all(&written)?;
        flush(&self.file)
    }

    /// Gives it the name `name`, in place of a file that has it. After a power failure either may be there, or an empty one.
    ///
    /// Returns the file.
    pub(crate) fn put(mut self, name: impl AsRef<Path>) -> io::Result<File> {
        self.directory.rename(&self.name, &self.directory, name)?;
        self.is_in_place = true;
        self.file.try_clone()
    }

    /// As [`put`](Self::put), unless something has the name: [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn put_if_missing(mut self, name: impl AsRef<Path>) -> io::Result<()> {
        let directory = &self.directory;
        let name = name.as_ref();
        match renameat_with(directory, &self.name, directory, name, RenameFlags::NOREPLACE) {
            // A file system that cannot do it. The first name is removed with the value.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                directory.hard_link(&self.name, directory, name)
            }
            renamed => {
                renamed?;
                self.is_in_place = true;
                Ok(())
            }
        }
    }

    /// As [`put`](Self::put), and it outlives a power failure.
    pub(crate) fn put_durably(self, name: impl AsRef<Path>) -> io::Result<File> {
        self.file.sync_all()?;
        let directory = self.directory.try_clone()?;
        let file = self.put(name)?;
        flush_directory(&directory);
        Ok(file)
    }

    /// Gives a directory the name `name`, and removes what has it. At each moment one of the two is there, where the file
    /// system can exchange names; else none is for a moment.
    pub(crate) fn exchange(mut self, name: &str) -> io::Result<()> {
        let had_old = persist(is_outrun, || self.swap(name))?;
        self.is_in_place = true;
        flush_directory(&self.directory);
        if had_old {
            remove(&self.directory, &self.name);
        }
        Ok(())
    }

    /// Exchanges the names; returns whether `name` existed.
    fn swap(&self, name: &str) -> io::Result<bool> {
        let Self { directory, name: fresh, .. } = self;
        match renameat_with(directory, fresh, directory, name, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => directory.rename(fresh, directory, name).map(|()| false),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                swap_by_a_third_name(directory, fresh, name).map(|()| true)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_in_place {
            remove(&self.directory, &self.name);
        }
    }
}

/// For a file system without exchange: `name` is missing for a moment, but never lost.
fn swap_by_a_third_name(directory: &Dir, fresh: &str, name: &str) -> io::Result<()> {
    let aside = format!("{fresh}-old");
    directory.rename(name, directory, &aside)?;
    if let Err(error) = directory.rename(fresh, directory, name) {
        match directory.rename(&aside, directory, name) {
            // Another process has put its own there.
            Err(occupied) if is_outrun(&occupied) => remove(directory, &aside),
            restored => restored?,
        }
        return Err(error);
    }
    directory.rename(&aside, directory, fresh)
}

/// Whether a directory has appeared or disappeared since it was looked for.
fn is_outrun(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
    )
}

/// Replaces the file `name` of `directory`, durably.
pub(crate) fn replace(directory: &Dir, name: impl AsRef<Path>, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut fresh = Replacement::file(directory, mode)?;
    fresh.as_file().write_all(bytes)?;
    fresh.put_durably(name).map(drop)
}

/// The directory of a path, and the name in it.
pub(crate) fn parent_of(path: &Path) -> io::Result<(Dir, &Path)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    Ok((Dir::open_ambient_dir(parent, cap_std::ambient_authority())?, Path::new(name)))
}

/// Removes replacements in `directory` whose process has ended. A failure is no reason not to start.
pub(crate) fn sweep(directory: &Dir) {
    sweep_where(directory, |name| name.starts_with(PREFIX));
}

/// As [`sweep`], in a directory of the state and some levels below it; there also what earlier versions have left.
pub(crate) fn sweep_state(directory: &Path) {
    match Dir::open_ambient_dir(directory, cap_std::ambient_authority()) {
        Ok(directory) => sweep_levels(&directory, STATE_LEVELS),
        Err(error) => tracing::warn!(%error, "the state directory is not swept"),
    }
}

fn sweep_levels(directory: &Dir, levels: usize) {
    sweep_where(directory, |name| name.starts_with(PREFIX) || is_of_earlier_version(name));
    if levels == 0 {
        return;
    }
    for entry in directory.entries().into_iter().flatten().flatten() {
        // An installer may be at work in an environment, and its temporary files have such names too.
        let is_environment = entry.file_name().to_string_lossy().starts_with(ENVIRONMENT);
        if !is_environment
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(below) = entry.open_dir()
        {
            sweep_levels(&below, levels - 1);
        }
    }
}

/// The names that the crate `tempfile` gives.
fn is_of_earlier_version(name: &str) -> bool {
    name.strip_prefix(".tmp")
        .is_some_and(|rest| rest.len() == 6 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn sweep_where(directory: &Dir, is_ours: impl Fn(&str) -> bool) {
    for entry in directory.entries().into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str().filter(|name| is_ours(name))
            && let Err(error) = sweep_one(directory, name)
        {
            tracing::warn!(%error, name, "could not remove what an earlier process has left");
        }
    }
}

fn sweep_one(directory: &Dir, name: &str) -> io::Result<()> {
    let Some(file) = if_there(open(directory, name, OFlags::empty()))? else { return Ok(()) };
    // A living process writes it.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Ok(());
    }
    tracing::debug!(name, "removing what an earlier process has left");
    let is_directory = file.metadata()?.is_dir();
    let removed = if is_directory { remove_tree_in(directory, name) } else { directory.remove_file(name) };
    if_there(removed).map(drop)
}

/// Opens what has the name, without following a link or waiting.
fn open(directory: &Dir, name: &str, flags: OFlags) -> io::Result<File> {
    let flags =
        flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?))
}

/// Removes a leftover; a failure is not worth failing for, since the next start sweeps it.
fn remove(directory: &Dir, name: &str) {
    let removed = match if_there(directory.symlink_metadata(name)) {
        Ok(Some(metadata)) if metadata.is_dir() => remove_tree_in(directory, name),
        Ok(Some(_)) => directory.remove_file(name),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    // Another process may sweep it at this moment.
    if let Err(error) = if_there(removed) {
        tracing::warn!(%error, name, "could not remove a leftover");
    }
}

fn flush_all(files: &[File]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let flushing: Vec<_> = files.iter().map(|file| scope.spawn(|| flush(file))).collect();
        flushing
            .into_iter()
            .try_for_each(|done| done.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    })
}

/// Hands a file to the disk. On macOS, [`File::sync_all`] also waits for the disk's own cache, which for a package takes
/// seconds.
fn flush(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

/// Makes names in a directory outlive a power failure. They are in place, so that an error is none of the change.
pub(crate) fn flush_directory(directory: &Dir) {
    if let Err(error) = open(directory, ".", OFlags::DIRECTORY).and_then(|opened| flush(&opened)) {
        tracing::warn!(%error, "a change may be lost in a power failure");
    }
}

/// Tries again as long as it fails because another process `was_faster`, a few times.
pub(crate) fn persist<T>(
    was_faster: impl Fn(&io::Error) -> bool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if was_faster(&error) => {}
            done => return done,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Barrier;

    use super::*;

    fn place() -> (tempfile::TempDir, Dir) {
        let place = tempfile::tempdir().unwrap();
        let directory = Dir::open_ambient_dir(place.path(), cap_std::ambient_authority()).unwrap();
        (place, directory)
    }

    fn entries(path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_living_process_writes_is_not_swept_and_what_a_dead_one_has_left_is() {
        let (place, directory) = place();
        let outside = tempfile::tempdir().unwrap();
        let file = Replacement::file(&directory, PRIVATE).unwrap();
        let package = Replacement::directory(&directory).unwrap();
        package.fill([("module.py", "1")]).unwrap();
        for name in [".ipybox-new-1", ".ipybox-new", ".tmpabc123"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        std::fs::create_dir_all(place.path().join(".ipybox-new-2/a/b")).unwrap();
        symlink(outside.path(), place.path().join(".ipybox-new-2/link")).unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        sweep(&directory);
        file.put("file").unwrap();
        package.exchange("package").unwrap();
        assert_eq!(entries(place.path()), [".ipybox-new", ".tmpabc123", "file", "package"]);
        assert_eq!(entries(&place.path().join("package")), ["module.py"]);
        assert_eq!(entries(outside.path()), ["kept"]);
        let [saved, environment] = ["saved/1", "python/bin"].map(|name| place.path().join(name));
        for directory in [&saved, &environment] {
            std::fs::create_dir_all(directory).unwrap();
            std::fs::write(directory.join(".tmpabc123"), "").unwrap();
        }
        sweep_state(place.path());
        assert_eq!(entries(place.path()), [".ipybox-new", "file", "package", "python", "saved"]);
        assert_eq!((entries(&saved).len(), entries(&environment).len()), (0, 1));
    }

    #[test]
    fn what_writers_put_in_place_is_whole_while_others_sweep() {
        let (place, directory) = place();
        let begin = Barrier::new(4);
        std::thread::scope(|scope| {
            for sweeps in [false, false, true, true] {
                let (directory, begin) = (&directory, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for _ in 0..300 {
                        if sweeps {
                            sweep(directory);
                        } else {
                            replace(directory, "file", PRIVATE, b"whole").unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(std::fs::read(place.path().join("file")).unwrap(), b"whole");
        assert_eq!(entries(place.path()), ["file"]);
    }

    /// Has two processes put a directory in place at the same moment, many times.
    fn check_together(put: impl Fn(Replacement) -> io::Result<()> + Sync) {
        let (place, directory) = place();
        for _ in 0..200 {
            let begin = Barrier::new(2);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let fresh = Replacement::directory(&directory).unwrap();
                        fresh.fill([("module.py", "1")]).unwrap();
                        begin.wait();
                        put(fresh).unwrap();
                    });
                }
            });
            assert_eq!(entries(place.path()), ["s"]);
            directory.remove_dir_all("s").unwrap();
        }
    }

    #[test]
    fn directories_that_are_put_in_place_at_the_same_moment_replace_each_other() {
        check_together(|fresh| fresh.exchange("s"));
    }

    #[test]
    fn they_also_do_on_a_file_system_without_exchange() {
        check_together(|mut fresh| {
            let had_old = persist(is_outrun, || {
                let has_old = fresh.directory.exists("s");
                if has_old {
                    swap_by_a_third_name(&fresh.directory, &fresh.name, "s")?;
                } else {
                    fresh.directory.rename(&fresh.name, &fresh.directory, "s")?;
                }
                Ok(has_old)
            })?;
            fresh.is_in_place = !had_old;
            Ok(())
        });
    }
}
