//! The file of answers that hold for good. Several servers on one workspace may use it at the same time, and its owner may
//! edit it.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::action::Action;
use super::like::Like;
use super::shown;

/// The format of the file. A newer one is refused rather than overwritten.
const VERSION: u32 = 1;

/// How long to wait for another process that writes the file; writing takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How much of a call is kept for whoever reads the file; scripts may be long.
const SHOWN_CHARS: usize = 500;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    approvals: Vec<Approval>,
}

#[derive(Serialize, Deserialize)]
struct Approval {
    #[serde(flatten)]
    like: Like,
    /// The call, where its arguments make a difference; for readers alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shown: Option<String>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Saved {
    path: PathBuf,
}

impl Saved {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Whether the like of an action is always allowed. Reads the file: another process may have written it. Blocks.
    pub(super) fn contains(&self, like: &Like) -> io::Result<bool> {
        Ok(self.read()?.approvals.iter().any(|approval| approval.like == *like))
    }

    /// Allows the like of `action` from now on; on an error, what was there before is still there. Blocks.
    pub(super) fn add(&self, action: &Action) -> io::Result<()> {
        let _lock = self.lock().map_err(|error| self.failed("locked", &error))?;
        let mut document = self.read()?;
        let like = Like::of(action);
        if document.approvals.iter().any(|approval| approval.like == like) {
            return Ok(());
        }
        let shown = like.has_arguments().then(|| {
            let call = std::fmt::from_fn(|formatter| shown::call(action, formatter)).to_string();
            call.chars().take(SHOWN_CHARS).collect()
        });
        document.approvals.push(Approval { like, shown });
        self.write(&document).map_err(|error| self.failed("written", &error))
    }

    /// Waits for other processes, but not for one that never lets go.
    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.path.with_extension("lock"))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    let message = format!("another process has held it for {LOCK_TIMEOUT:?}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
            }
        }
    }

    fn read(&self) -> io::Result<Document> {
        let content = match std::fs::read(&self.path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Document { version: VERSION, approvals: Vec::new() });
            }
            Err(error) => return Err(self.failed("read", &error)),
        };
        let document: Document =
            serde_json::from_slice(&content).map_err(|error| self.failed("used", &error.into()))?;
        if document.version != VERSION {
            let message = format!("version {} is not {VERSION}", document.version);
            return Err(self.failed("used", &io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        Ok(document)
    }

    fn write(&self, document: &Document) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        serde_json::to_writer_pretty(&mut file, document)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }

    fn failed(&self, what: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("`{}` cannot be {what}: {error}", self.path.display()))
    }
}
