//! Places to mount on for what is missing and must not come into being: files and directories on the host without a
//! meaning, for as long as a sandbox needs them.
//!
//! bubblewrap would make them too, and leave them. Sandboxes that share one hold it by shared locks; the last one
//! removes it. A stub is small and bears a time of 1980: what somebody has written to is none any more, and stays.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cap_std::fs::{Dir, OpenOptions};
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, Timespec, Timestamps, renameat_with, utimensat};
use rustix::io::Errno;

use crate::ground::files::replacement::{Replacement, sweep};
use crate::ground::files::{held_too_long, if_there, is_at};

/// When stubs were last changed, by which they are known: 1980-06-07 08:09:10 UTC. Archives have files of 1970's and of 1980's first
/// second, and ZIP knows no time before 1980.
const TIME: Duration = Duration::from_secs(329_213_350);
/// The greatest size of a stub.
const MOST_BYTES: u64 = 64;
/// The usual time that a stub may be in the hands of sandboxes that remove it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval of looks at it then.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Stubs that are held. They are removed on drop; if we are killed, they stay, and the next sandbox that needs them
/// takes them over.
#[derive(Debug)]
pub(crate) struct HeldStubs {
    stubs: Vec<Stub>,
    /// The time that each may be in the hands of sandboxes that remove it.
    patience: Duration,
}

impl Default for HeldStubs {
    fn default() -> Self {
        Self { stubs: Vec::new(), patience: PATIENCE }
    }
}

#[derive(Debug)]
struct Stub {
    path: PathBuf,
    file: File,
}

impl HeldStubs {
    /// The paths of the stubs.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.stubs.iter().map(|stub| stub.path.as_path())
    }

    /// Makes a stub of this kind, or shares that of another sandbox.
    pub(super) fn hold(&mut self, stub: &Path, kind: StubKind) -> io::Result<()> {
        if self.paths().any(|path| path == stub) {
            return Ok(());
        }
        let deadline = Instant::now() + self.patience;
        loop {
            match share(stub)? {
                Shared::Held(file) => {
                    self.stubs.push(Stub { path: stub.to_owned(), file });
                    return Ok(());
                }
                Shared::NoStub => return Ok(()),
                Shared::Missing | Shared::Leaving if Instant::now() >= deadline => {
                    return Err(held_too_long(self.patience));
                }
                Shared::Leaving => std::thread::sleep(POLL_INTERVAL),
                Shared::Missing => match make(stub, kind) {
                    // Another sandbox was faster.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made?,
                },
            }
        }
    }
}

/// The kind of a stub.
#[derive(Clone, Copy)]
pub(super) enum StubKind {
    /// A file with this content.
    File(&'static str),
    Directory,
}

/// The result of sharing a stub.
enum Shared {
    /// It stays for as long as the file is open.
    Held(File),
    /// Nothing is there.
    Missing,
    /// Another sandbox is removing it.
    Leaving,
    /// Somebody has put something else in its place.
    NoStub,
}

/// Makes a stub. It gets its name last, since others who find it under that name have to know it for one.
///
/// # Errors
/// As for creating it, [`io::ErrorKind::AlreadyExists`] among them.
fn make(path: &Path, kind: StubKind) -> io::Result<()> {
    let (directory, name) = parent_of(path)?;
    sweep(&directory);
    let unnamed = Replacement::directory(&directory)?;
    let fresh = Path::new(unnamed.name()).join("stub");
    make_in_place(&directory, &fresh, kind)?;
    match renameat_with(&directory, &fresh, &directory, name, RenameFlags::NOREPLACE) {
        // A file system that cannot do it, such as NFS.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => make_in_place(&directory, name, kind),
        renamed => Ok(renamed?),
    }
}

fn make_in_place(directory: &Dir, path: &Path, kind: StubKind) -> io::Result<()> {
    match kind {
        StubKind::File(content) => {
            let mut options = OpenOptions::new();
            directory.open_with(path, options.write(true).create_new(true))?.write_all(content.as_bytes())?;
        }
        StubKind::Directory => directory.create_dir(path)?,
    }
    let time = Timespec { tv_sec: TIME.as_secs().cast_signed(), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(directory, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The directory of a stub, and its name there. Code in another sandbox can put a link in the place of a directory above it, which
/// is not followed.
fn parent_of(path: &Path) -> io::Result<(Dir, &Path)> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().map(Path::new).unwrap_or(path);
    Ok((Dir::from_std_file(open_without_links(parent)?), name))
}

#[cfg(target_os = "linux")]
fn open_without_links(directory: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, ResolveFlags, openat2};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, where only the mounts are compared afterwards.
        Err(Errno::NOSYS) => File::open(directory),
        opened => Ok(opened?.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_without_links(directory: &Path) -> io::Result<File> {
    File::open(directory)
}

fn share(path: &Path) -> io::Result<Shared> {
    let Some(found) = if_there(path.symlink_metadata())? else { return Ok(Shared::Missing) };
    if !is_stub(&found) {
        return Ok(Shared::NoStub);
    }
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).unwrap_or_default();
    let Some(file) = if_there(File::options().read(true).custom_flags(flags).open(path))? else {
        return Ok(Shared::Missing);
    };
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Shared::Leaving),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Before the lock, the last sandbox that held it may have removed it.
    let is_there = is_at(&file, path)?.is_some();
    Ok(if is_there { Shared::Held(file) } else { Shared::Missing })
}

/// Whether it was made for a sandbox, which may still run.
pub(crate) fn is_stub(found: &Metadata) -> bool {
    let is_small = found.is_dir() || found.is_file() && found.len() <= MOST_BYTES;
    is_small && found.modified().is_ok_and(|time| time == SystemTime::UNIX_EPOCH + TIME)
}

impl Drop for HeldStubs {
    fn drop(&mut self) {
        for stub in &self.stubs {
            if let Err(error) = stub.remove() {
                tracing::warn!(path = %stub.path.display(), %error, "empty file of the sandbox not removed");
            }
        }
    }
}

impl Stub {
    fn remove(&self) -> io::Result<()> {
        // Others hold it.
        if self.file.try_lock().is_err() {
            return Ok(());
        }
        let Some(found) = is_at(&self.file, &self.path)?.filter(is_stub) else { return Ok(()) };
        let (directory, name) = parent_of(&self.path)?;
        if found.is_dir() { directory.remove_dir(name) } else { directory.remove_file(name) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// The time that a stub may be in others' hands on a slow machine.
    const SLOW: Duration = Duration::from_secs(300);

    #[test]
    fn sandboxes_that_come_and_go_never_lose_a_stub_that_they_hold() {
        let directory = tempfile::tempdir().unwrap();
        let stubs = ["file", "directory"].map(|name| directory.path().join(name));
        let kinds = [StubKind::File(""), StubKind::Directory];
        let (start, lost) = (Barrier::new(2), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        start.wait();
                        let mut held = HeldStubs { stubs: Vec::new(), patience: SLOW };
                        let asked = stubs.iter().zip(kinds);
                        let errors = asked.filter(|(stub, kind)| held.hold(stub, *kind).is_err()).count();
                        std::thread::yield_now();
                        let is_kept = |stub: &Stub| {
                            is_at(&stub.file, &stub.path).unwrap().is_some_and(|found| is_stub(&found))
                        };
                        let kept = held.stubs.iter().filter(|stub| is_kept(stub)).count();
                        if errors > 0 || kept < stubs.len() {
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(lost.into_inner(), 0, "of 4000");
        let left: Vec<_> = directory.path().read_dir().unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn what_another_process_locks_is_waited_for_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        make(&path, StubKind::File("")).unwrap();
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        let error = HeldStubs::default().hold(&path, StubKind::File("")).unwrap_err();
        assert_eq!(error.to_string(), "another process has held it for 2s");
        drop(file);
        drop(make(&path, StubKind::File("")));
        HeldStubs::default().hold(&path, StubKind::File("")).unwrap();
        assert!(!path.exists());
    }
}
