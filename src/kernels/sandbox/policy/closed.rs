//! Paths that are closed in every session, whatever the user's file says, and paths that must be open.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::paths::{PathPattern, PathProblem, real, usable};
use super::policy_paths::PolicyPaths;
use super::{SandboxPolicy, SandboxPolicyError, WORKSPACE_POLICY};

/// Paths that the host itself reads or writes in the workspace, and trusts.
const OWN_IN_WORKSPACE: [&str; 4] = [".env", "mcptools", ".ipybox", WORKSPACE_POLICY];

/// Programs that srt or we start outside the sandbox, and configuration files of srt, as the policy names
/// them.
#[rustfmt::skip]
pub(super) const NAMED_FILES: [&str; 9] = [
    "/bwrapPath", "/socatPath", "/javaAgentJarPath", "/seccomp/applyPath", "/ripgrep/command",
    "/network/mitmProxy/socketPath", "/network/tlsTerminate/caCertPath",
    "/network/tlsTerminate/caKeyPath", "/network/tlsTerminate/extraCaCertPaths",
];

/// Closed paths, and paths that must be open.
pub(super) struct ClosedPaths {
    pub(super) workspace: PathBuf,
    /// Not writable; file names are not resolved, though they may be links.
    protected: Vec<PathBuf>,
    /// Not readable, either.
    pub(super) secret: Vec<PathBuf>,
    private: PathBuf,
    /// Writable though beneath `private`.
    pub(super) writable: PathBuf,
    /// Readable though beneath something secret.
    pub(super) readable: Vec<PathBuf>,
}

/// Why a pattern of the user is refused.
pub(super) enum PatternRefusal {
    Path(PathProblem),
    Opens(PathBuf),
}

impl ClosedPaths {
    pub(super) fn new(policy: &SandboxPolicy, paths: &PolicyPaths) -> Result<Self, SandboxPolicyError> {
        let workspace = own(&paths.workspace)?;
        let in_workspace = OWN_IN_WORKSPACE.iter().map(|name| workspace.join(name));
        let files = paths.protected.iter().chain(&policy.source.file).cloned();
        let named = policy.named_files().into_iter().map(|file| workspace.join(file));
        let others = files.chain(named).map(|path| in_real_directory(&path));
        let protected = in_workspace.map(Ok).chain(others).collect::<Result<_, _>>()?;
        let secret = std::iter::once(&paths.state_dir).chain(&paths.hidden).map(|path| own(path));
        let private = own(&paths.private_directory)?;
        let python = paths.python_prefixes.iter().map(|path| own(path));
        Ok(Self {
            protected,
            secret: secret.collect::<Result<_, _>>()?,
            writable: own(&paths.writable_directory)?,
            readable: std::iter::once(Ok(private.clone())).chain(python).collect::<Result<_, _>>()?,
            private,
            workspace,
        })
    }

    pub(super) fn may_write(&self, pattern: &PathPattern) -> Result<(), PatternRefusal> {
        no_glob_on_linux(pattern)?;
        let root = pattern.root();
        if root.starts_with(&self.writable) {
            return Ok(());
        }
        let mut closed = std::iter::once(&self.private).chain(&self.protected).chain(&self.secret);
        refuse(closed.find(|closed| root.starts_with(closed)))
    }

    pub(super) fn may_read(&self, pattern: &PathPattern) -> Result<(), PatternRefusal> {
        let root = pattern.root();
        if pattern.path().is_none()
            && let Some(hidden) = self.secret.iter().find(|secret| secret.starts_with(root))
        {
            return Err(PatternRefusal::Path(PathProblem::MayMatch { hidden: hidden.clone() }));
        }
        let is_readable_beneath = |secret: &Path| {
            let mut within = self.readable.iter().filter(|readable| readable.starts_with(secret));
            within.any(|readable| root.starts_with(readable))
        };
        let mut above = self.secret.iter().filter(|secret| root.starts_with(secret));
        refuse(above.find(|secret| !is_readable_beneath(secret)))
    }

    /// Checks a denial above paths that we need ourselves, which takes effect only within an open directory.
    pub(super) fn may_deny_writing(
        &self,
        pattern: &PathPattern,
        allow_write: &[PathPattern],
    ) -> Result<(), PatternRefusal> {
        no_glob_on_linux(pattern)?;
        let denied = pattern.root();
        let is_within = |open: &PathPattern| denied.starts_with(open.root());
        if pattern.path().is_some() && self.writable.starts_with(denied) && allow_write.iter().any(is_within)
        {
            return Err(PatternRefusal::Path(PathProblem::Needed { needed: self.writable.clone() }));
        }
        Ok(())
    }

    /// Refuses links: a protection applies to the target of a link, and the link itself could be replaced.
    pub(super) fn must_be_no_link(
        &self,
        path: &Path,
        allow_write: &[PathPattern],
    ) -> Result<(), SandboxPolicyError> {
        let is_open = allow_write.iter().any(|open| path.starts_with(open.root()));
        if is_open && path.is_symlink() {
            return Err(SandboxPolicyError::Own { path: path.to_owned(), problem: PathProblem::Link });
        }
        Ok(())
    }

    /// The paths to deny because `allow_write` opens a directory above them, or could after a link is
    /// changed.
    pub(super) fn denied_under(
        &self,
        allow_write: &[PathPattern],
    ) -> Result<Vec<PathBuf>, SandboxPolicyError> {
        let is_open = |path: &Path| allow_write.iter().any(|open| path.starts_with(open.root()));
        let mut denied = Vec::new();
        for path in &self.protected {
            let problem = |problem| SandboxPolicyError::Own { path: path.clone(), problem };
            if path.is_symlink() && is_open(path) {
                return Err(problem(PathProblem::Link));
            }
            denied.push(real(path).map_err(|error| problem(error.into())).and_then(|path| own(&path))?);
        }
        denied.extend(self.secret.iter().cloned());
        // Python's environment may lie in the workspace, and the host runs what is in it, too.
        denied.extend(self.readable.iter().filter(|path| is_open(path) && **path != self.private).cloned());
        if is_open(&self.private) {
            beside(&self.private, &self.writable, &mut denied).map_err(|error| SandboxPolicyError::Own {
                path: self.private.clone(),
                problem: error.into(),
            })?;
        }
        Ok(denied)
    }
}

impl SandboxPolicy {
    /// Files that act outside the sandbox. Programs without a directory are found on `PATH`.
    fn named_files(&self) -> Vec<String> {
        let document = Value::Object(self.document.clone());
        let values = NAMED_FILES.iter().filter_map(|pointer| document.pointer(pointer));
        let texts = values.flat_map(|value| match value {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            value => value.as_str().into_iter().collect::<Vec<_>>(),
        });
        texts.filter(|file| is_of_workspace(file) || file.starts_with('/')).map(str::to_owned).collect()
    }
}

/// Whether a file named like this in a policy is relative to the workspace.
pub(super) fn is_of_workspace(file: &str) -> bool {
    file.contains('/') && !file.starts_with(['/', '~'])
}

fn refuse(closed: Option<&PathBuf>) -> Result<(), PatternRefusal> {
    match closed {
        Some(closed) => Err(PatternRefusal::Opens(closed.clone())),
        None => Ok(()),
    }
}

/// srt skips globs in its lists for writing, silently.
fn no_glob_on_linux(pattern: &PathPattern) -> Result<(), PatternRefusal> {
    if cfg!(target_os = "linux") && pattern.path().is_none() {
        return Err(PatternRefusal::Path(PathProblem::NoGlob));
    }
    Ok(())
}

/// All entries of `directory`, except `kept` and its parents. A directory cannot be denied as a whole when
/// part of it is writable: denials win.
fn beside(directory: &Path, kept: &Path, all: &mut Vec<PathBuf>) -> io::Result<()> {
    if !kept.starts_with(directory) {
        all.push(directory.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path == kept {
            continue;
        }
        beside(&path, kept, all)?;
    }
    Ok(())
}

/// The real path of one of our own files or directories.
pub(super) fn own(path: &Path) -> Result<PathBuf, SandboxPolicyError> {
    let problem = |problem| SandboxPolicyError::Own { path: path.to_owned(), problem };
    real(path).map_err(|error| problem(error.into())).and_then(|path| usable(path).map_err(problem))
}

/// The path of a file by its own name, though that may be a link, in a directory without links.
fn in_real_directory(path: &Path) -> Result<PathBuf, SandboxPolicyError> {
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => Ok(own(directory)?.join(name)),
        _ => own(path),
    }
}
