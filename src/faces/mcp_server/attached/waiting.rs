//! The changes that wait in copies of the workspace, for people who look at a page.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::faces::people::{ChangeRemark, SeenChange, SettleAction, WaitingChange, WaitingCopy};
use crate::ground::text::describe;
use crate::session::{AppliedChanges, ChangedCopies, FileChange, Session};

/// The most bytes of one diff, and of all together.
const DIFF_BYTES: usize = 128 * 1024;
const ALL_BYTES: usize = 1024 * 1024;
/// The number of changes of a copy that are shown.
const MOST_CHANGES: usize = 500;
/// The number of refusals that are said.
const REFUSALS: usize = 5;

/// The copies in which changes wait. Blocks.
pub(super) fn waiting(copies: &ChangedCopies) -> io::Result<Vec<WaitingCopy>> {
    let mut left = ALL_BYTES;
    let mut waiting = Vec::new();
    for summary in copies.list()?.into_iter().filter(|copy| copy.changes > 0) {
        // It may have gone meanwhile.
        let Ok(copy) = copies.find(&summary.id) else { continue };
        let found = copy.changes()?;
        let is_cut = found.is_cut || found.changes.len() > MOST_CHANGES;
        let changes = found.changes.iter().take(MOST_CHANGES);
        let changes = changes.map(|change| shown(change, copy.diff(change), &mut left)).collect();
        waiting.push(WaitingCopy { id: summary.id, is_live: summary.is_live, is_cut, changes });
    }
    Ok(waiting)
}

/// A change with its diff, which is left out if it is longer than what is `left` of all.
fn shown(change: &FileChange, mut diff: String, left: &mut usize) -> WaitingChange {
    let is_whole = diff.len() <= DIFF_BYTES.min(*left);
    if is_whole {
        *left -= diff.len();
    } else {
        diff.clear();
    }
    let marks = change.marks.iter();
    let marks = marks.map(|mark| ChangeRemark { words: mark.words(), is_warning: mark.is_warning() });
    WaitingChange {
        path: change.path.to_string_lossy().into_owned(),
        kind: change.kind.word().to_owned(),
        bytes: change.bytes,
        marks: marks.collect(),
        digest: change.digest().to_owned(),
        diff,
        is_whole,
    }
}

/// Applies or discards changes of a copy, as a person has seen them. Returns what was done, in words.
pub(super) async fn settle(
    session: &Session,
    id: String,
    action: SettleAction,
    seen: Vec<SeenChange>,
) -> String {
    let seen: BTreeMap<PathBuf, String> =
        seen.into_iter().map(|change| (PathBuf::from(change.path), change.digest)).collect();
    match session.settle_changes(id, action, seen).await {
        Ok(settled) => words(action, &settled),
        Err(error) => format!("Failed to {}", describe(&error)),
    }
}

fn words(action: SettleAction, settled: &AppliedChanges) -> String {
    let done = match action {
        SettleAction::Apply => "Applied",
        SettleAction::Discard => "Discarded",
    };
    let mut sentences = vec![format!("{done}: {}.", settled.done.len())];
    let refused = settled.refused.iter();
    sentences
        .extend(refused.take(REFUSALS).map(|one| format!("`{}` is left: {}.", one.path.display(), one.why)));
    if let Some(more) = settled.refused.len().checked_sub(REFUSALS).filter(|more| *more > 0) {
        sentences.push(format!("{more} others are left, too."));
    }
    sentences.join(" ")
}
