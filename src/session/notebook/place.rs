//! The file of a notebook, and how cells come into it.
//!
//! Code in the kernel can write the workspace, so nothing that is found there is trusted: no link below it is followed,
//! nothing but a regular file is read, and a notebook is replaced as a whole, by a file that is renamed. Whoever writes
//! holds the lock of the file that has the name.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use super::document::{self, NotebookDocument, NotebookText, SEPARATOR};
use crate::ground::files::replacement::{PRIVATE, PUBLIC, Replacement, sweep};
use crate::ground::files::{create_private_directory, if_there};
use crate::kernels::output::{KeptFiles, directory_below};
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};

/// The size below which a notebook is kept, in bytes. Browsers are slow with larger ones.
pub(super) const MOST_BYTES: usize = 32 * 1024 * 1024;

/// The largest file that is read: one that somebody has changed may be larger.
const READ_BYTES: u64 = MOST_BYTES as u64 / 8 * 9;

/// The time to wait for another process that writes it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Which notebooks of earlier sessions are kept where ipybox chooses the place: 50 beside a new one.
const KEPT: KeptFiles =
    KeptFiles { files: 51, bytes: 512 * 1024 * 1024, is_ours: |name: &str| name.ends_with(".ipynb") };

/// The file of a notebook.
#[derive(Debug)]
pub(super) struct NotebookFile {
    root: Root,
    /// The path below the root.
    file: PathBuf,
    /// The version that we have written last.
    known: Option<KnownNotebook>,
    /// The time to wait for another process that writes it.
    lock_timeout: Duration,
}

/// The directory that the file is below: links do not lead out of it.
#[derive(Debug)]
enum Root {
    /// The workspace. Directories below it are made.
    Workspace(PathBuf),
    /// A directory that the user has named.
    Named(PathBuf),
    /// A directory of ipybox, for this user alone.
    Private(PathBuf),
}

#[derive(Debug)]
struct KnownNotebook {
    stamp: NotebookStamp,
    begin_bytes: u64,
    tail: String,
    has_cells: bool,
}

/// The mark that distinguishes the versions of a file. Code can set the time of a change, but not when it set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotebookStamp {
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl NotebookFile {
    /// The file that a user has named, relative to the workspace.
    pub(super) fn named(workspace: &Path, file: &Path) -> Self {
        let is_plain = |path: &Path| {
            path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        let absolute = workspace.join(file);
        let name = absolute.file_name().unwrap_or_default().to_owned();
        let parent = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        // A link in a path below the workspace may be of a stranger; other paths are as the user means them.
        let parent = if is_plain(file) { parent } else { parent.canonicalize().unwrap_or(parent) };
        let (root, file) = match parent.strip_prefix(workspace) {
            Ok(below) if is_plain(below) => (Root::Workspace(workspace.to_owned()), below.join(name)),
            _ => (Root::Named(parent), name.into()),
        };
        Self { root, file, known: None, lock_timeout: LOCK_TIMEOUT }
    }

    /// A file in a directory of ipybox.
    pub(super) fn private(directory: PathBuf, name: &str) -> Self {
        let root = Root::Private(directory);
        Self { root, file: name.into(), known: None, lock_timeout: LOCK_TIMEOUT }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.root.path().join(&self.file)
    }

    /// The directory that links in the notebook are relative to, if it is in the workspace.
    pub(super) fn links_from(&self) -> Option<PathBuf> {
        match &self.root {
            Root::Workspace(_) => self.path().parent().map(Path::to_owned),
            Root::Named(_) | Root::Private(_) => None,
        }
    }

    /// Whether it could be appended to, as far as one can see. Blocks.
    pub(super) fn check(&self) -> io::Result<()> {
        let directory = self.directory()?;
        sweep(&directory);
        if_there(self.open(&directory))?.map_or(Ok(()), |file| document(&content(&file)?).map(drop))
    }

    /// Appends cells, and makes the file if there is none. Blocks.
    pub(super) fn append(&mut self, cells: &[String]) -> io::Result<()> {
        let directory = self.directory()?;
        let current = self.lock(&directory)?;
        let added: u64 = cells.iter().map(|cell| (cell.len() + SEPARATOR.len()) as u64).sum();
        let stamp = NotebookStamp::of(&current)?;
        let known = self.known.take().filter(|known| known.stamp == stamp);
        let known = known.filter(|known| known.begin_bytes + added < MOST_BYTES as u64);
        self.known = Some(self.replace(&directory, &current, |file| match known {
            Some(known) => {
                copy(&current, file, known.begin_bytes)?;
                finish(file, known.begin_bytes, known.has_cells, known.tail, cells)
            }
            None => {
                let NotebookText { begin, tail, has_cells } =
                    shortened(document(&content(&current)?)?, added);
                file.write_all(begin.as_bytes())?;
                finish(file, begin.len() as u64, has_cells, tail, cells)
            }
        })?);
        Ok(())
    }

    /// Writes another file, and gives it the name.
    fn replace(
        &self,
        directory: &Dir,
        current: &File,
        write: impl FnOnce(&mut File) -> io::Result<KnownNotebook>,
    ) -> io::Result<KnownNotebook> {
        let mode = current.metadata()?.mode();
        let mut fresh = Replacement::file(directory, PRIVATE)?;
        let known = write(fresh.as_file())?;
        // As the user has set it.
        fresh.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode & 0o777))?;
        let file = fresh.put(self.name())?;
        Ok(KnownNotebook { stamp: NotebookStamp::of(&file)?, ..known })
    }

    /// The file with the name, locked; it is made if there is none.
    fn lock(&self, directory: &Dir) -> io::Result<File> {
        let deadline = Instant::now() + self.lock_timeout;
        loop {
            let file = match self.open(directory) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() <= deadline => {
                    self.make(directory)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match file.try_lock() {
                // Another process may have replaced it meanwhile.
                Ok(()) | Err(TryLockError::Error(_)) if self.has_name(directory, &file)? => return Ok(file),
                Ok(()) | Err(TryLockError::Error(_)) => {}
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL_INTERVAL),
            }
            if Instant::now() > deadline {
                let why = format!("another process has held its lock for {:?}", self.lock_timeout);
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
    }

    fn make(&self, directory: &Dir) -> io::Result<()> {
        let mode = if matches!(self.root, Root::Private(_)) { PRIVATE } else { PUBLIC };
        let mut fresh = Replacement::file(directory, mode)?;
        // Nobody finds a file that is no notebook.
        let NotebookText { begin, tail, .. } = document::empty();
        fresh.as_file().write_all([begin, tail].concat().as_bytes())?;
        match fresh.put_if_missing(self.name()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn has_name(&self, directory: &Dir, file: &File) -> io::Result<bool> {
        use cap_std::fs::MetadataExt as _;

        let ours = file.metadata()?;
        Ok(directory
            .symlink_metadata(self.name())
            .is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())))
    }

    fn open(&self, directory: &Dir) -> io::Result<File> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        let kind = directory.symlink_metadata(self.name())?.file_type();
        if kind.is_symlink() {
            return Err(refused("it is a symbolic link, which is not followed"));
        }
        if !kind.is_file() {
            return Err(refused("it is not a regular file"));
        }
        // It may be replaced by a pipe at this moment.
        let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        let file = directory.open_with(self.name(), options.read(true).custom_flags(without_waiting))?;
        let file = file.into_std();
        if file.metadata()?.is_file() { Ok(file) } else { Err(refused("it is not a regular file")) }
    }

    fn name(&self) -> &Path {
        self.file.file_name().map_or(Path::new(""), Path::new)
    }

    fn directory(&self) -> io::Result<Dir> {
        let authority = cap_std::ambient_authority();
        match &self.root {
            Root::Workspace(workspace) => {
                directory_below(workspace, self.file.parent().unwrap_or(Path::new("")))
            }
            Root::Named(directory) => {
                Dir::open_ambient_dir(directory, authority).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => {
                        let why = format!("its directory `{}` does not exist", directory.display());
                        io::Error::new(error.kind(), why)
                    }
                    _ => error,
                })
            }
            Root::Private(directory) => {
                if !directory.exists() {
                    create_private_directory(directory)?;
                }
                let opened = Dir::open_ambient_dir(directory, authority)?;
                if self.known.is_none() {
                    KEPT.prune(&opened)?;
                }
                Ok(opened)
            }
        }
    }
}

impl Root {
    fn path(&self) -> &Path {
        match self {
            Self::Workspace(path) | Self::Named(path) | Self::Private(path) => path,
        }
    }
}

impl NotebookStamp {
    fn of(file: &File) -> io::Result<Self> {
        let it = file.metadata()?;
        Ok(Self { file: (it.dev(), it.ino()), bytes: it.len(), changed: (it.ctime(), it.ctime_nsec()) })
    }
}

fn content(mut file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.rewind()?;
    if file.take(READ_BYTES + 1).read_to_end(&mut content)? as u64 > READ_BYTES {
        let why = format!("it is larger than {READ_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(content)
}

fn document(content: &[u8]) -> io::Result<NotebookDocument<'_>> {
    document::read(content).map_err(|refusal| io::Error::new(io::ErrorKind::InvalidData, refusal))
}

/// A notebook with room for so many bytes.
fn shortened(mut notebook: NotebookDocument<'_>, added: u64) -> NotebookText {
    let added = usize::try_from(added).unwrap_or(MOST_BYTES);
    if notebook.cells_bytes() + added >= MOST_BYTES {
        // Room for further ones too, so that it is not read for each of them.
        notebook.shorten((MOST_BYTES / 4 * 3).saturating_sub(added));
    }
    notebook.text()
}

fn copy(mut from: &File, to: &mut File, bytes: u64) -> io::Result<()> {
    from.rewind()?;
    match io::copy(&mut from.take(bytes), to)? {
        copied if copied == bytes => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Writes cells and the tail after what `file` has already.
fn finish(
    file: &mut File,
    begin: u64,
    has_cells: bool,
    tail: String,
    cells: &[String],
) -> io::Result<KnownNotebook> {
    let added = cells.join(SEPARATOR);
    let separator = if has_cells && !cells.is_empty() { SEPARATOR } else { "" };
    file.write_all([separator, &added, &tail].concat().as_bytes())?;
    let begin_bytes = begin + (separator.len() + added.len()) as u64;
    Ok(KnownNotebook {
        stamp: NotebookStamp::of(file)?,
        begin_bytes,
        tail,
        has_cells: has_cells || !cells.is_empty(),
    })
}

#[cfg(test)]
mod tests;
