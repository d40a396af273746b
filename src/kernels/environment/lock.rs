//! The lock for changing an environment, across processes.
//!
//! Its file also tells of installations that were interrupted: a line for each beginning and each end.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::run::{self, ContainedProgram, InstallerRun, ProgramInvocation, SandboxRunner};
use super::{Error, InstallProgress};

/// The interval at which a taken lock is tried again. Blocking in `flock` instead would hold a thread of the
/// runtime that cannot be interrupted, and with it the end of the server.
const RETRY: Duration = Duration::from_millis(100);

/// The part of the file that is read. It is emptied when no installation has been interrupted.
const FILE_BYTES: u64 = 64 * 1024;

/// The beginnings of lines of the file.
const BEGIN: &str = "+ ";
const END: &str = "- ";

/// The right to change an environment, until dropped.
///
/// Installers get the locked file as their stdin. If we are killed they may live on for a while, and keep the
/// lock: no other process clears a directory that an orphan still writes to.
pub(super) struct InstallTurn<'a> {
    file: File,
    progress: InstallProgress<'a>,
}

impl<'a> InstallTurn<'a> {
    /// Waits until no other process holds the lock at `path`; waiting is reported once.
    pub(super) async fn wait(path: &Path, progress: InstallProgress<'a>) -> Result<Self, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let file = File::options().create(true).read(true).append(true).open(path).map_err(failed)?;
        let turn = Self { file, progress };
        let mut is_reported = false;
        loop {
            match turn.file.try_lock() {
                Ok(()) => return Ok(turn),
                Err(TryLockError::WouldBlock) => {
                    if !is_reported {
                        turn.report("waiting until another installation into this environment has finished");
                        is_reported = true;
                    }
                    tokio::time::sleep(RETRY).await;
                }
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    tracing::warn!(%error, "this file system has no locks; installations may collide");
                    return Ok(turn);
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }

    pub(super) fn report(&self, phrase: &str) {
        (self.progress)(phrase);
    }

    /// Whether an installation into the environment of `python` has begun and not ended.
    pub(super) fn was_interrupted(&self, python: &Path) -> bool {
        self.unfinished().is_ok_and(|unfinished| unfinished.contains(&line(python)))
    }

    /// Records that an installation into the environment of `python` begins.
    pub(super) fn begin(&self, python: &Path) -> io::Result<()> {
        let line = line(python);
        if !self.unfinished()?.contains(&line) {
            (&self.file).write_all(format!("{BEGIN}{line}\n").as_bytes())?;
        }
        self.file.sync_all()
    }

    /// Records that it has ended.
    pub(super) fn end(&self, python: &Path) -> io::Result<()> {
        (&self.file).write_all(format!("{END}{}\n", line(python)).as_bytes())?;
        if self.unfinished()?.is_empty() { self.file.set_len(0) } else { Ok(()) }
    }

    fn unfinished(&self) -> io::Result<Vec<String>> {
        let mut file = &self.file;
        let mut text = String::new();
        file.rewind()?;
        file.take(FILE_BYTES).read_to_string(&mut text)?;
        let mut unfinished = Vec::new();
        for line in text.lines() {
            if let Some(begun) = line.strip_prefix(BEGIN) {
                unfinished.push(begun.to_owned());
            } else if let Some(ended) = line.strip_prefix(END) {
                unfinished.retain(|begun| begun != ended);
            }
        }
        Ok(unfinished)
    }

    /// Runs an installer, and reports its newest line as progress.
    pub(super) async fn run(&self, invocation: &ProgramInvocation) -> io::Result<InstallerRun> {
        run::run(invocation, Stdio::from(self.file.try_clone()?), self.progress).await
    }

    /// Runs an installer in a sandbox, and reports its newest line as progress.
    pub(super) async fn run_in_sandbox(
        &self,
        program: ContainedProgram,
        place: &dyn SandboxRunner,
    ) -> io::Result<InstallerRun> {
        run::run_in_sandbox(program, place, self.progress).await
    }
}

/// The interpreter's path as one line.
fn line(python: &Path) -> String {
    format!("{:?}", python.as_os_str())
}

impl Drop for InstallTurn<'_> {
    fn drop(&mut self) {
        // Closing is not enough: processes that an installer has left behind may hold the same open file.
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "could not let go of a lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_installation_is_unfinished_until_its_end_is_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let (first, second) = (Path::new("/a b/python"), Path::new("/other\npython"));
        let turn = async || InstallTurn::wait(&path, &|_| ()).await.unwrap();
        turn().await.begin(first).unwrap();
        turn().await.begin(second).unwrap();
        turn().await.begin(second).unwrap();
        assert!(turn().await.was_interrupted(first) && turn().await.was_interrupted(second));
        turn().await.end(second).unwrap();
        assert!(turn().await.was_interrupted(first) && !turn().await.was_interrupted(second));
        turn().await.end(first).unwrap();
        assert!(!turn().await.was_interrupted(first));
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[tokio::test]
    async fn the_second_waits_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = InstallTurn::wait(&path, &|_| ()).await.unwrap();
        let reports = Arc::new(AtomicUsize::new(0));
        let (waiting, mut is_waiting) = tokio::sync::mpsc::channel(1);
        let second = tokio::spawn({
            let (reports, path) = (reports.clone(), path.clone());
            async move {
                let progress = move |_: &str| {
                    reports.fetch_add(1, Ordering::SeqCst);
                    waiting.try_send(()).unwrap();
                };
                InstallTurn::wait(&path, &progress).await.map(drop)
            }
        });
        is_waiting.recv().await.unwrap();
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap().unwrap();
        assert_eq!(reports.load(Ordering::SeqCst), 1);
    }
}
