//! The scene of the page, and its changes: what the session says becomes events for browsers.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Value, json};

use super::cell::{ArgumentCell, cells};
use super::row::CallRow;
use super::waiting_changes::WaitingChanges;
use super::words::{block, name};
use crate::faces::people::{CellAuthor, PastDecision, SessionMessage, ShownCall, StandingGrant, UserAnswer};
use crate::ground::text::ColouredText;
use crate::ground::text::visible::{self, TextUse};

/// The number of decisions that are shown.
const DECISIONS: usize = 500;

/// The number of cells that are shown.
const CELLS: usize = 6;

/// The output of a cell for a page that is opened later, in bytes: its end.
const OUTPUT_BYTES: usize = 64 * 1024;

/// All that is shown now.
#[derive(Debug, Default)]
pub(super) struct PageScene {
    questions: BTreeMap<u64, ShownQuestion>,
    decisions: VecDeque<ShownDecision>,
    cells: VecDeque<RunCell>,
    /// The grants that hold, as the page shows them.
    grants: Vec<Value>,
    waiting: WaitingChanges,
    about: SceneSubject,
    is_over: bool,
}

/// Whose calls these are.
#[derive(Debug, Default, Serialize)]
pub(super) struct SceneSubject {
    workspace: String,
    client: Option<String>,
    /// The id of a kept session.
    session: Option<String>,
}

#[derive(Debug)]
struct ShownQuestion {
    row: CallRow,
    call: ShownCall,
    until: Option<Instant>,
}

/// A decision, as the page shows it.
#[derive(Debug, Clone, Serialize)]
struct ShownDecision {
    at: String,
    server: String,
    tool: String,
    arguments: Vec<ArgumentCell>,
    how: String,
}

#[derive(Debug)]
struct RunCell {
    cell: u64,
    number: u64,
    by: CellAuthor,
    code: String,
    colours: ColouredText,
    output: String,
    left_out: usize,
    images: Vec<PathBuf>,
    end: Option<Value>,
}

impl PageScene {
    /// Of a session, by its id if it is kept.
    pub(super) fn of(session: Option<String>) -> Self {
        Self { about: SceneSubject { session, ..SceneSubject::default() }, ..Self::default() }
    }

    /// Everything, for a browser that begins to look.
    pub(super) fn all(&self) -> Value {
        json!({
            "event": "all",
            "about": self.about,
            "questions": self.questions.values().map(ShownQuestion::shown).collect::<Vec<_>>(),
            "decisions": self.decisions,
            "grants": self.grants,
            "changes": self.waiting.shown(),
            "cells": self.cells.iter().map(RunCell::shown).collect::<Vec<_>>(),
            "over": self.is_over,
        })
    }

    /// Takes what the session says, and returns the event for browsers.
    pub(super) fn take(&mut self, heard: SessionMessage) -> Option<Value> {
        Some(match heard {
            SessionMessage::Question { question, call, grant, outside, scope, left_ms, .. } => {
                let row = CallRow::of(question, &call, Some(&scope));
                let row = row.with_grants(grant.as_ref(), outside.as_deref());
                self.open(question, row, call, left_ms)
            }
            SessionMessage::Asked { question, call, .. } => {
                let row = CallRow::of(question, &call, None);
                self.open(question, row, call, None)
            }
            SessionMessage::Decided { question, how } => {
                let open = self.questions.remove(&question)?;
                let decided = ShownDecision {
                    at: now(),
                    server: name(&open.call.server),
                    tool: name(&open.call.tool),
                    arguments: cells(&open.call.arguments, open.call.is_ours()),
                    how: visible::line(&how),
                };
                let event = json!({"event": "decided", "id": question, "decision": decided});
                self.keep([decided]);
                event
            }
            SessionMessage::History { decisions } => {
                let since: Vec<ShownDecision> = self.decisions.drain(..).collect();
                self.keep(decisions.iter().map(ShownDecision::of).chain(since).collect::<Vec<_>>());
                json!({"event": "history", "decisions": self.decisions})
            }
            SessionMessage::Ruled { decision } => {
                let decided = ShownDecision::of(&decision);
                let event = json!({"event": "ruled", "decision": decided});
                self.keep([decided]);
                event
            }
            SessionMessage::About { workspace, client } => {
                self.about.workspace = visible::line(&workspace);
                self.about.client = client.map(|client| visible::shown(&client, TextUse::Text));
                json!({"event": "about", "about": self.about})
            }
            SessionMessage::Grants { grants } => {
                let shown = |granted: &StandingGrant| {
                    let StandingGrant { id, left, is_of_cell, .. } = granted;
                    json!({"id": id, "left": left, "covers": visible::line(&granted.covers), "of_cell": is_of_cell})
                };
                self.grants = grants.iter().map(shown).collect();
                json!({"event": "grants", "grants": self.grants})
            }
            SessionMessage::Changes { copies, note } => self.waiting.take(copies, note),
            SessionMessage::Began { cell, number, by, code } => self.begin(cell, number, by, &code),
            SessionMessage::Text { cell, text } => {
                let cell = self.cells.iter_mut().find(|shown| shown.cell == cell)?;
                let text = cell.colours.take(&text, false);
                if text.is_empty() {
                    return None;
                }
                cell.add(&text);
                json!({"event": "text", "cell": cell.cell, "text": text})
            }
            SessionMessage::LeftOut { cell, bytes } => {
                let cell = self.cells.iter_mut().find(|shown| shown.cell == cell)?;
                cell.left_out += bytes;
                json!({"event": "left_out", "cell": cell.cell, "bytes": bytes})
            }
            SessionMessage::Ended { cell, error, words, images, files, file } => {
                let cell = self.cells.iter_mut().find(|shown| shown.cell == cell)?;
                let end = json!({
                    "error": error.map(|error| block(&error, TextUse::Text)),
                    "words": block(&words, TextUse::Text),
                    "images": lines(&images),
                    "files": lines(&files),
                    "file": file.map(|file| visible::line(&file.to_string_lossy())),
                });
                cell.images = images;
                cell.end = Some(end.clone());
                json!({"event": "ended", "cell": cell.cell, "end": end})
            }
            _ => return None,
        })
    }

    /// The session has ended: nothing waits any more.
    pub(super) fn end(&mut self) -> Value {
        self.is_over = true;
        self.questions.clear();
        self.grants.clear();
        self.waiting = WaitingChanges::default();
        json!({"event": "over"})
    }

    /// Whether a question can be answered here, in this way.
    pub(super) fn can_answer(&self, question: u64, answer: UserAnswer) -> bool {
        let is_for_once = matches!(answer, UserAnswer::Once | UserAnswer::No);
        let open = self.questions.get(&question);
        open.is_some_and(|open| open.row.can_be_answered() && (is_for_once || !open.row.is_of_another()))
    }

    /// Whether a grant can be given as the answer to a question.
    pub(super) fn can_grant(&self, question: u64) -> bool {
        self.questions.get(&question).is_some_and(|open| open.row.has_grant())
    }

    /// The changes that wait.
    pub(super) fn waiting(&self) -> &WaitingChanges {
        &self.waiting
    }

    /// The call that a question is about.
    pub(super) fn call(&self, question: u64) -> Option<&ShownCall> {
        self.questions.get(&question).map(|open| &open.call)
    }

    /// The file of an image of a cell.
    pub(super) fn image(&self, cell: u64, index: usize) -> Option<PathBuf> {
        self.cells.iter().find(|shown| shown.cell == cell)?.images.get(index).cloned()
    }

    fn open(&mut self, question: u64, row: CallRow, call: ShownCall, left_ms: Option<u64>) -> Value {
        let until = left_ms.and_then(|left| Instant::now().checked_add(Duration::from_millis(left)));
        let open = ShownQuestion { row, call, until };
        let event = json!({"event": "question", "question": open.shown()});
        self.questions.insert(question, open);
        event
    }

    fn keep(&mut self, decisions: impl IntoIterator<Item = ShownDecision>) {
        self.decisions.extend(decisions);
        let surplus = self.decisions.len().saturating_sub(DECISIONS);
        self.decisions.drain(..surplus);
    }

    fn begin(&mut self, cell: u64, number: u64, by: CellAuthor, code: &str) -> Value {
        let code = block(code, TextUse::Text);
        let colours = ColouredText::default();
        let output = String::new();
        let images = Vec::new();
        let cell = RunCell { cell, number, by, code, colours, output, left_out: 0, images, end: None };
        let event = json!({"event": "began", "cell": cell.shown()});
        self.cells.push_back(cell);
        // Those that have not ended stay.
        while self.cells.len() > CELLS {
            let ended = self.cells.iter().position(|cell| cell.end.is_some()).unwrap_or_default();
            self.cells.remove(ended);
        }
        event
    }
}

impl ShownDecision {
    fn of(decision: &PastDecision) -> Self {
        let PastDecision { at, server, tool, arguments, how, .. } = decision;
        Self {
            at: visible::line(at),
            server: name(server),
            tool: name(tool),
            arguments: cells(arguments, false),
            how: visible::line(how),
        }
    }
}

impl ShownQuestion {
    fn shown(&self) -> Value {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()).as_millis());
        let left = left.map(|left| u64::try_from(left).unwrap_or(u64::MAX));
        json!({"row": self.row, "left_ms": left})
    }
}

impl RunCell {
    fn add(&mut self, text: &str) {
        self.output.push_str(text);
        if self.output.len() > 2 * OUTPUT_BYTES {
            let end = self.output.ceil_char_boundary(self.output.len() - OUTPUT_BYTES);
            self.output.drain(..end);
            self.left_out += end;
        }
    }

    fn shown(&self) -> Value {
        json!({
            "cell": self.cell,
            "number": self.number,
            "by": self.by,
            "code": self.code,
            "output": self.output,
            "left_out": self.left_out,
            "end": self.end,
        })
    }
}

/// Paths, each as a line.
fn lines(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| visible::line(&path.to_string_lossy())).collect()
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_end_and_counts_the_rest() {
        let mut scene = PageScene::default();
        scene.take(SessionMessage::Began { cell: 1, number: 1, by: CellAuthor::Agent, code: "x".to_owned() });
        let line = "0123456789\n".repeat(1_000);
        for _ in 0..30 {
            scene.take(SessionMessage::Text { cell: 1, text: line.clone() }).unwrap();
        }
        let shown = &scene.all()["cells"][0];
        let (output, left_out) = (shown["output"].as_str().unwrap(), shown["left_out"].as_u64().unwrap());
        assert!((OUTPUT_BYTES..=2 * OUTPUT_BYTES).contains(&output.len()), "{}", output.len());
        assert_eq!(output.len() as u64 + left_out, 30 * line.len() as u64);
    }

    #[test]
    fn cells_that_run_are_shown_longer_than_those_that_have_ended() {
        let mut scene = PageScene::default();
        for cell in 0..20 {
            scene.take(SessionMessage::Began {
                cell,
                number: cell,
                by: CellAuthor::Agent,
                code: String::new(),
            });
            if cell > 0 {
                let (error, words, images, files, file) = (None, String::new(), Vec::new(), Vec::new(), None);
                scene.take(SessionMessage::Ended { cell, error, words, images, files, file });
            }
        }
        let cells: Vec<u64> = scene.cells.iter().map(|cell| cell.cell).collect();
        assert_eq!(cells, [0, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn output_is_text() {
        let mut scene = PageScene::default();
        scene.take(SessionMessage::Began {
            cell: 1,
            number: 1,
            by: CellAuthor::Agent,
            code: "a\u{202e}b\nc".to_owned(),
        });
        let event = scene
            .take(SessionMessage::Text { cell: 1, text: "\u{1b}[31mred\u{1b}[0m\u{202e}<b>".to_owned() })
            .unwrap();
        assert_eq!(event["text"], "red<b>");
        assert_eq!(scene.all()["cells"][0]["code"], "a\\u202eb\nc");
        assert!(scene.take(SessionMessage::Text { cell: 2, text: "nobody's".to_owned() }).is_none());
    }
}
