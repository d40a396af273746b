//! The changes that wait, as the page shows them and takes answers about them.

use serde_json::{Value, json};

use super::words::block;
use crate::faces::people::{ChangeRemark, SeenChange, SettleAction, WaitingChange, WaitingCopy};
use crate::ground::text::visible::{self, TextUse};

/// The changes that wait.
#[derive(Debug, Default)]
pub(super) struct WaitingChanges {
    copies: Vec<WaitingCopy>,
    note: Option<String>,
    /// The number of times that they were shown: an answer is about those that its page has shown.
    revision: u64,
}

impl WaitingChanges {
    /// Takes those that wait now, and returns the event for browsers.
    pub(super) fn take(&mut self, copies: Vec<WaitingCopy>, note: Option<String>) -> Value {
        if copies != self.copies {
            self.revision += 1;
        }
        (self.copies, self.note) = (copies, note);
        json!({"event": "changes", "changes": self.shown()})
    }

    /// All of them, for a page.
    pub(super) fn shown(&self) -> Value {
        json!({
            "revision": self.revision,
            "note": self.note.as_deref().map(|note| visible::shown(note, TextUse::Text)),
            "copies": self.copies.iter().map(shown_copy).collect::<Vec<_>>(),
        })
    }

    /// The changes of a copy that an answer is about, by their places in it; all for none.
    ///
    /// # Errors
    /// Why it cannot be given.
    pub(super) fn seen(
        &self,
        revision: u64,
        copy: &str,
        action: SettleAction,
        places: Option<&[usize]>,
    ) -> Result<Vec<SeenChange>, &'static str> {
        const OVER: &str = "These changes are not those that wait now: look at them again.";
        let copy = self.copies.iter().find(|known| known.id == copy).filter(|_| revision == self.revision);
        let changes = &copy.ok_or(OVER)?.changes;
        let chosen: Option<Vec<&WaitingChange>> = match places {
            Some(places) => places.iter().map(|place| changes.get(*place)).collect(),
            None => Some(changes.iter().collect()),
        };
        let chosen = chosen.ok_or(OVER)?;
        if action == SettleAction::Apply && !chosen.iter().all(|change| change.is_whole) {
            return Err("The page does not show all of these changes: apply them by `ipybox changes`.");
        }
        Ok(chosen.into_iter().map(|change| SeenChange::of(&change.path, &change.digest)).collect())
    }
}

fn shown_copy(copy: &WaitingCopy) -> Value {
    let WaitingCopy { id, is_live, is_cut, changes } = copy;
    json!({
        "id": id,
        "live": is_live,
        "cut": is_cut,
        "changes": changes.iter().map(shown_change).collect::<Vec<_>>(),
    })
}

fn shown_change(change: &WaitingChange) -> Value {
    let WaitingChange { path, kind, bytes, marks, diff, is_whole, .. } = change;
    let mark = |mark: &ChangeRemark| json!({"words": visible::line(&mark.words), "warning": mark.is_warning});
    json!({
        "path": visible::line(path),
        "kind": kind,
        "bytes": bytes,
        "marks": marks.iter().map(mark).collect::<Vec<_>>(),
        "diff": block(diff, TextUse::Code),
        "whole": is_whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, is_whole: bool) -> WaitingChange {
        WaitingChange {
            path: path.to_owned(),
            kind: "added".to_owned(),
            bytes: 1,
            marks: vec![ChangeRemark { words: "pro\u{202e}gram".to_owned(), is_warning: true }],
            digest: format!("digest of {path}"),
            diff: "+a\u{200b}".to_owned(),
            is_whole,
        }
    }

    #[test]
    fn an_answer_is_about_what_the_page_has_shown_and_nothing_else() {
        let mut waiting = WaitingChanges::default();
        let changes = vec![change("a\u{202e}.py", true), change("long", false)];
        let copy = WaitingCopy { id: "ab".to_owned(), is_live: true, is_cut: false, changes };
        let event = waiting.take(vec![copy.clone()], None);
        assert!(!event.to_string().contains(['\u{202e}', '\u{200b}']), "{event}");
        let seen = |waiting: &WaitingChanges, revision, copy: &str, action, places: Option<&[usize]>| {
            waiting.seen(revision, copy, action, places).map(|seen| seen.len())
        };
        let (apply, discard) = (SettleAction::Apply, SettleAction::Discard);
        assert_eq!(seen(&waiting, 1, "ab", apply, Some(&[0])), Ok(1));
        assert_eq!(seen(&waiting, 1, "ab", discard, None), Ok(2));
        assert!(seen(&waiting, 1, "ab", apply, None).unwrap_err().contains("does not show all"));
        for (revision, copy, places) in [(0, "ab", Some(&[0][..])), (1, "cd", None), (1, "ab", Some(&[2]))] {
            assert!(
                seen(&waiting, revision, copy, discard, places).unwrap_err().contains("look at them again")
            );
        }
        // The same ones again are those that were shown; others are not.
        waiting.take(vec![copy], Some("note".to_owned()));
        assert_eq!(seen(&waiting, 1, "ab", apply, Some(&[0])), Ok(1));
        waiting.take(Vec::new(), None);
        assert!(seen(&waiting, 1, "ab", discard, None).is_err());
    }
}
