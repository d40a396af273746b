//! The copy that code writes in the place of the workspace to the end of its session: in a sandbox from its first kernel on, in
//! the branches of a session without one from their beginning.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use super::Error;
use crate::config::{ChangesMode, Config, KernelSite};
use crate::ground::text::describe;
use crate::kernels::changes::{CopyAudit, CopyError, WorkspaceCopy, WritableParts};
use crate::kernels::sandbox::MountedCopy;

/// Directories of the workspace that ipybox writes: in a branch's copy they are links to the workspace's.
const SHARED: [&str; 2] = ["mcptools", ".ipybox"];

/// Looks for changes that take longer may take this part of the time: 1/20.
const QUICK_LOOK: Duration = Duration::from_millis(50);
const LOOK_PART: u32 = 20;

/// The copy of a session. In a sandbox its branches share it.
#[derive(Clone)]
pub(super) struct CopiedSession {
    state_dir: PathBuf,
    workspace: PathBuf,
    /// The flags by which `ipybox changes` finds the workspace.
    flags: String,
    /// The audit log, in which decisions about its changes belong.
    audit: Option<CopyAudit>,
    copy: Option<Arc<WorkspaceCopy>>,
    is_told: bool,
    /// The time before which changes are not looked for again.
    next_look: Option<Instant>,
}

impl CopiedSession {
    /// For sessions whose changes wait; `None` for others.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let KernelSite::Sandboxed { changes: ChangesMode::Ask, .. } = config.site else { return None };
        Some(Self::without_copy(config))
    }

    /// For sessions whose branches have files of their own; `None` for others.
    pub(super) fn of_branches(config: &Config) -> Option<Self> {
        config.branch_files.then(|| Self::without_copy(config))
    }

    fn without_copy(config: &Config) -> Self {
        Self {
            state_dir: config.state_dir.clone(),
            workspace: config.workspace.clone(),
            flags: config.command_flags().to_owned(),
            audit: config.audit.file.as_ref().and_then(|file| {
                let file = std::path::absolute(file).ok()?;
                Some(CopyAudit { file, max_bytes: config.audit.max_bytes })
            }),
            copy: None,
            is_told: false,
            next_look: None,
        }
    }

    /// The directory with the files of the copy, if there is one.
    pub(super) fn files(&self) -> Option<PathBuf> {
        self.copy.as_ref().map(|copy| copy.files())
    }

    /// A copy for a branch: of the workspace, or of this session's own copy.
    pub(super) async fn branch(&self) -> Result<Self, Error> {
        let shared = SHARED.map(|name| self.workspace.join(name));
        let apart = shared.iter().chain([&self.state_dir]).map(|path| (path.clone(), false));
        let parts = [(self.workspace.clone(), true)].into_iter().chain(apart);
        let parts = WritableParts::new(&self.workspace, parts);
        let Self { state_dir, workspace, audit, copy: origin, .. } = self.clone();
        let made = spawn_blocking(move || {
            let copy = match origin {
                Some(origin) => origin.copy(&state_dir),
                None => WorkspaceCopy::make(&state_dir, &workspace, parts, audit),
            }?;
            link_shared(&workspace, &copy.files()).map_err(CopyError::Place)?;
            Ok(Arc::new(copy))
        });
        let made = made.await.map_err(|failed| CopyError::Place(io::Error::other(failed))).flatten();
        let copy = Some(made.map_err(Error::Copy)?);
        Ok(Self { copy, is_told: false, next_look: None, ..self.clone() })
    }

    /// The words for the first answer from a branch with this copy.
    pub(super) fn branch_note(&self) -> Option<String> {
        let copy = self.copy.as_ref()?;
        Some(format!(
            "its files are a copy of the workspace, `{files}`: relative paths lead there, absolute ones still to \
             `{workspace}`. `ipybox changes {id}{flags}` shows what it changes, and applies or discards it",
            files = copy.files().display(),
            workspace = self.workspace.display(),
            id = copy.id(),
            flags = self.flags
        ))
    }

    /// The copy, which is made if there is none yet, for a sandbox in which code may write these parts of the workspace.
    pub(super) async fn ready(&mut self, parts: Vec<(PathBuf, bool)>) -> Result<MountedCopy, Error> {
        let parts = WritableParts::new(&self.workspace, parts);
        let made = self.copy.clone();
        let state_dir = self.state_dir.clone();
        let workspace = self.workspace.clone();
        let audit = self.audit.clone();
        let ready = spawn_blocking(move || match made {
            Some(copy) => copy.renew(parts).map(|()| copy).map_err(CopyError::Place),
            None => WorkspaceCopy::make(&state_dir, &workspace, parts, audit).map(Arc::new),
        });
        let ready = ready.await.map_err(|failed| CopyError::Place(io::Error::other(failed))).flatten();
        let copy = self.copy.insert(ready.map_err(Error::Copy)?);
        Ok(MountedCopy { workspace: self.workspace.clone(), files: copy.files() })
    }

    /// Says once that changes wait.
    pub(super) async fn take_note(&mut self) -> Option<String> {
        let begun = Instant::now();
        let is_due = !self.is_told && self.next_look.is_none_or(|next| next <= begun);
        let copy = Arc::clone(self.copy.as_ref().filter(|_| is_due)?);
        let id = copy.id();
        let found = spawn_blocking(move || copy.changes()).await.map_err(io::Error::other).flatten();
        let took = begun.elapsed();
        self.next_look = (took > QUICK_LOOK).then(|| Instant::now() + took * LOOK_PART);
        let waiting = match found {
            Ok(found) if found.changes.is_empty() => return None,
            Ok(found) => found.changes.len(),
            Err(error) => {
                tracing::warn!(error = describe(&error), "the copy of the workspace cannot be compared");
                return None;
            }
        };
        self.is_told = true;
        let changes =
            if waiting == 1 { "1 change waits".to_owned() } else { format!("{waiting} changes wait") };
        Some(format!(
            "The session writes to a copy of the workspace: {changes} there until the user applies them. \
             `ipybox changes {id}{flags} --diff` shows them, `ipybox changes {id}{flags} apply` applies them.",
            flags = self.flags
        ))
    }

    /// Removes the copy if nothing waits in it, and no other session uses it.
    pub(super) async fn end(self) {
        let Some(copy) = self.copy.and_then(Arc::into_inner) else { return };
        let id = copy.id();
        match spawn_blocking(move || copy.close()).await.map_err(io::Error::other).flatten() {
            Ok(0) => {}
            Ok(waiting) => tracing::info!(id, waiting, "changes wait in a copy of the workspace"),
            Err(error) => tracing::warn!(id, %error, "a copy of the workspace is left"),
        }
    }
}

/// Has code find in the copy what ipybox writes in the workspace.
fn link_shared(workspace: &Path, files: &Path) -> io::Result<()> {
    SHARED.iter().try_for_each(|name| symlink(workspace.join(name), files.join(name)))
}
