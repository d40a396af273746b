//! Changes as unified diffs.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use similar::TextDiff;

use super::compare::{ChangeMark, FileChange, FileChangeKind, digest_of_bytes, digest_of_link};
use crate::ground::files::inside;

/// The longest text that is compared, in bytes.
const TEXT_BYTES: u64 = 2 * 1024 * 1024;
/// After this time, a diff is no longer made as short as it could be.
const PATIENCE: Duration = Duration::from_millis(500);

/// A change as a unified diff, or in words.
pub(super) fn diff(workspace: &Path, files: &Path, change: &FileChange) -> String {
    let path = change.shown_path();
    let link = change.marks.iter().find_map(|mark| match mark {
        ChangeMark::Link(target) => Some(target),
        _ => None,
    });
    let moves = || format!("{path}: code changes it at this moment: look at it again\n");
    if let Some(target) = link {
        let is_shown = change.is_of(&digest_of_link(Path::new(target)));
        return if is_shown { format!("{path}: a symbolic link to {target}\n") } else { moves() };
    }
    if change.kind == FileChangeKind::Mode {
        let mode = change.stamp.as_ref().map_or(0, |stamp| stamp.mode);
        return format!("{path}: the mode is {mode:o}\n");
    }
    let texts = (text(workspace, &change.path), text(files, &change.path));
    let (Ok(old), Ok(new)) = texts else { return format!("{path}: no text, or too long to be shown\n") };
    // What is shown is what can be applied.
    if change.is_file() && !change.is_of(&digest_of_bytes(new.as_bytes())) {
        return moves();
    }
    let mut config = TextDiff::configure();
    let diff = config.deadline(Instant::now() + PATIENCE).diff_lines(&old, &new);
    let name = |prefix: &str, is_there: bool| {
        if is_there { format!("{prefix}/{path}") } else { "/dev/null".to_owned() }
    };
    let old_name = name("a", change.kind != FileChangeKind::Added);
    let new_name = name("b", change.kind != FileChangeKind::Deleted);
    diff.unified_diff().header(&old_name, &new_name).to_string()
}

/// The text of a file; an empty one if there is none.
fn text(root: &Path, path: &Path) -> io::Result<String> {
    let file = match inside::open_any(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) if inside::directory(root, path).is_ok() => {
            tracing::debug!(%error, "a directory has no text");
            return Ok(String::new());
        }
        file => file?,
    };
    let mut bytes = Vec::new();
    if file.take(TEXT_BYTES + 1).read_to_end(&mut bytes)? as u64 > TEXT_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}
