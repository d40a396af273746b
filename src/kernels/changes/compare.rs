//! Compares a copy with what it began with, and with the workspace as it is now.

use std::fs::{File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::base::CopyBase;
use super::tree::{TreeEntries, TreeKind, TreeStamp, is_gone};
use crate::ground::files::inside;
use crate::ground::text::visible;
use crate::kernels::sandbox::configures_programs;

/// In the place of the digest of a file of the workspace that cannot be read.
const UNREADABLE: &str = "unreadable";

/// A difference that code has made between its copy and the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileChange {
    /// Its path in the workspace.
    pub path: PathBuf,
    /// The kind of the difference.
    pub kind: FileChangeKind,
    /// The bytes of the file in the copy; 0 if it is none.
    pub bytes: u64,
    /// Remarks about it.
    pub marks: Vec<ChangeMark>,
    /// Distinguishes what is there from everything else that could be.
    #[serde(skip)]
    pub(super) digest: String,
    /// The state in the copy; `None` if nothing is there.
    #[serde(skip)]
    pub(super) stamp: Option<TreeStamp>,
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FileChangeKind {
    /// The workspace did not have it.
    Added,
    /// Another content, link or kind.
    Changed,
    /// Another mode alone.
    Mode,
    /// The workspace had it.
    Deleted,
}

/// A remark about a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeMark {
    /// It can be started as a program.
    Executable,
    /// Programs may take it for their configuration.
    Configuration,
    /// A symbolic link to this target.
    Link(String),
    /// The link leads out of the workspace.
    LeadsOut,
    /// A device, a FIFO or a socket, which is never applied.
    Special,
    /// Code has locked the file: it is applied once it can be read.
    Unreadable,
    /// The workspace has another state than the copy began with.
    Conflict,
}

impl FileChangeKind {
    /// It in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Mode => "mode",
            Self::Deleted => "deleted",
        }
    }
}

impl ChangeMark {
    /// It in words, of one line.
    #[must_use]
    pub fn words(&self) -> String {
        let words = match self {
            Self::Executable => "program",
            Self::Configuration => "configures programs",
            Self::Link(target) => return format!("link to {}", visible::line(target)),
            Self::LeadsOut => "may lead out of the workspace",
            Self::Unreadable => "not readable",
            Self::Special => "device, FIFO or socket",
            Self::Conflict => "conflict: the workspace has changed",
        };
        words.to_owned()
    }

    /// Whether it is a reason to look closely.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        !matches!(self, Self::Link(_))
    }
}

/// All differences of a copy.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct FileChanges {
    /// The differences, by path.
    pub changes: Vec<FileChange>,
    /// Whether there are others that cannot be listed.
    pub is_cut: bool,
}

impl FileChange {
    /// Its path on one line; characters that could hide what it is are escaped.
    #[must_use]
    pub fn shown_path(&self) -> String {
        visible::line(&self.path.to_string_lossy())
    }

    /// Distinguishes what is there from everything else that could be.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether the copy has a file there.
    pub(super) fn is_file(&self) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.kind == TreeKind::File)
    }

    /// Whether the copy has this content there.
    pub(super) fn is_of(&self, digest: &str) -> bool {
        self.stamp.as_ref().is_some_and(|stamp| stamp.digest_with(digest) == self.digest)
    }
}

/// The differences of the copy in `files`. Blocks.
///
/// # Errors
/// The copy cannot be listed.
pub(super) fn compare(base: &CopyBase, files: &Path) -> io::Result<FileChanges> {
    let is_left_out = |path: &Path| !base.may_be_codes(path);
    let tree = match TreeEntries::read(files, &is_left_out) {
        // Code has locked its workspace. The directory is a place of ours, and no link.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            std::fs::set_permissions(files, Permissions::from_mode(0o700))?;
            TreeEntries::read(files, &is_left_out)?
        }
        tree => tree?,
    };
    let mut found = FileChanges { is_cut: tree.is_cut, ..FileChanges::default() };
    let own = tree.entries.iter().filter(|(path, _)| base.parts.has(path));
    for (path, stamp) in own {
        let before = base.entries.get(path);
        if before.is_some_and(|before| before.copy.as_ref() == Some(stamp)) {
            continue;
        }
        found.changes.extend(changed(base, files, path, stamp)?);
    }
    // What was not looked at may still be there.
    if !tree.is_cut {
        let gone = base.entries.keys().filter(|path| !tree.entries.contains_key(*path));
        for path in gone {
            found.changes.extend(deleted(base, path)?);
        }
    }
    found.changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn changed(base: &CopyBase, files: &Path, path: &Path, stamp: &TreeStamp) -> io::Result<Option<FileChange>> {
    let now = TreeStamp::find(&base.workspace, path)?;
    let mut marks = marks(files, path, stamp);
    let digest = match digest(files, path, stamp) {
        // Code has removed or replaced it since it was listed.
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            marks.push(ChangeMark::Unreadable);
            String::new()
        }
        digest => digest?,
    };
    let kind = match &now {
        None => FileChangeKind::Added,
        Some(now) => {
            // What the workspace has that cannot be read differs.
            let theirs = self::digest(&base.workspace, path, now).unwrap_or_else(|_| UNREADABLE.to_owned());
            match (theirs == digest && now.kind == stamp.kind, now.mode == stamp.mode) {
                (true, true) => return Ok(None),
                (true, false) => FileChangeKind::Mode,
                (false, _) => FileChangeKind::Changed,
            }
        }
    };
    if base.entries.get(path).map(|before| &before.original) != now.as_ref() {
        marks.push(ChangeMark::Conflict);
    }
    let bytes = if stamp.kind == TreeKind::File { stamp.bytes } else { 0 };
    let digest = stamp.digest_with(&digest);
    Ok(Some(FileChange { path: path.to_owned(), kind, bytes, marks, digest, stamp: Some(stamp.clone()) }))
}

fn deleted(base: &CopyBase, path: &Path) -> io::Result<Option<FileChange>> {
    let Some(now) = TreeStamp::find(&base.workspace, path)? else { return Ok(None) };
    let mut marks = configuration(path);
    if base.entries.get(path).is_none_or(|before| before.original != now) {
        marks.push(ChangeMark::Conflict);
    }
    let kind = FileChangeKind::Deleted;
    let digest = "deleted".to_owned();
    Ok(Some(FileChange { path: path.to_owned(), kind, bytes: 0, marks, digest, stamp: None }))
}

/// A digest of the content of a file, or of the target of a link.
fn digest(root: &Path, path: &Path, stamp: &TreeStamp) -> io::Result<String> {
    match stamp.kind {
        TreeKind::File => digest_of(inside::open_any(root, path)?, &mut io::sink()),
        TreeKind::Link => Ok(digest_of_link(&target(root, path)?)),
        TreeKind::Directory | TreeKind::Special => Ok(String::new()),
    }
}

/// Copies a file, as long as it is now, and returns the digest of what was copied.
pub(super) fn digest_of(file: File, to: &mut impl io::Write) -> io::Result<String> {
    let mut digest = Sha256::new();
    let bytes = file.metadata()?.len();
    let mut buffer = vec![0; 64 * 1024];
    // Code may add to it all the time.
    let mut file = file.take(bytes);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(format!("{:x}", digest.finalize()));
        }
        digest.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
    }
}

/// The digest of a link with this target.
pub(super) fn digest_of_link(target: &Path) -> String {
    digest_of_bytes(target.as_os_str().as_bytes())
}

/// The digest of a file with these bytes.
pub(super) fn digest_of_bytes(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// The target of a link.
pub(super) fn target(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let parent = inside::directory(root, path.parent().unwrap_or(Path::new("")))?;
    parent.read_link_contents(path.file_name().unwrap_or_default())
}

fn marks(files: &Path, path: &Path, stamp: &TreeStamp) -> Vec<ChangeMark> {
    let mut marks = configuration(path);
    match stamp.kind {
        TreeKind::File if stamp.mode & 0o111 != 0 => marks.push(ChangeMark::Executable),
        TreeKind::Link => {
            let target = target(files, path).unwrap_or_default();
            marks.push(ChangeMark::Link(target.to_string_lossy().into_owned()));
            if leads_out(path, &target) {
                marks.push(ChangeMark::LeadsOut);
            }
        }
        TreeKind::Special => marks.push(ChangeMark::Special),
        TreeKind::File | TreeKind::Directory => {}
    }
    marks
}

fn configuration(path: &Path) -> Vec<ChangeMark> {
    if configures_programs(path) { vec![ChangeMark::Configuration] } else { Vec::new() }
}

/// Whether a link at `path` may have a target that is not below the workspace. A `..` behind a name may lead anywhere, since the
/// name can be a link too.
fn leads_out(path: &Path, target: &Path) -> bool {
    let above =
        target.components().take_while(|part| matches!(part, Component::ParentDir | Component::CurDir));
    let levels = above.filter(|part| *part == Component::ParentDir).count();
    let mut rest =
        target.components().skip_while(|part| matches!(part, Component::ParentDir | Component::CurDir));
    let is_plain = rest.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    !is_plain || levels >= path.components().count()
}
