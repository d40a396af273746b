//! A notebook that `--notebook` has written, as a recording as far as it goes: cells, outputs, and calls without answers.
//!
//! A notebook has neither a seed, nor definitions of servers, nor the order of a cell's calls. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::tools::recording::{
    CellItem, ReadRecording, RecordedCall, RecordedCell, RecordedFailure, RecordedMoment, RecordedSession,
    RecordedUndo, RecordingLine,
};

/// Calls of the session itself have its name as their server.
const OURSELVES: &str = "ipybox";

#[derive(Deserialize)]
struct ReplayedNotebook {
    nbformat: u64,
    cells: Vec<Value>,
}

#[derive(Deserialize)]
struct NotebookCode {
    source: MultilineText,
    execution_count: Option<u64>,
    outputs: Vec<NotebookOutput>,
    metadata: NotebookMetadata,
}

#[derive(Deserialize)]
struct NotebookMetadata {
    ipybox: Option<NotebookNotes>,
}

/// The metadata of ipybox, which `docs/notebook.md` describes.
#[derive(Deserialize)]
struct NotebookNotes {
    session: String,
    author: String,
    end: String,
    duration_ms: u64,
    #[serde(default)]
    calls: Vec<NotebookCall>,
    #[serde(default)]
    calls_left_out: u64,
    #[serde(default)]
    outputs_left_out: Value,
}

#[derive(Deserialize)]
struct NotebookCall {
    server: String,
    tool: String,
    arguments: Value,
    decision: String,
    by: String,
}

#[derive(Deserialize)]
#[serde(tag = "output_type", rename_all = "snake_case")]
enum NotebookOutput {
    Stream { text: MultilineText },
    DisplayData(NotebookObject),
    ExecuteResult(NotebookObject),
    Error { ename: String, evalue: String, traceback: Vec<String> },
}

#[derive(Deserialize)]
struct NotebookObject {
    data: BTreeMap<String, Value>,
    #[serde(default)]
    metadata: Map<String, Value>,
}

/// A text, or its lines.
#[derive(Deserialize)]
#[serde(untagged)]
enum MultilineText {
    Whole(String),
    Lines(Vec<String>),
}

/// Whether the content of a file is a notebook.
pub(super) fn is_notebook(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct NotebookVersion {
        #[serde(rename = "nbformat")]
        _version: u64,
    }
    serde_json::from_slice::<NotebookVersion>(bytes).is_ok()
}

/// Reads a notebook. The error is the number of a cell with code, or 0, and why it cannot be replayed.
pub(super) fn read(bytes: &[u8]) -> Result<ReadRecording, (u64, String)> {
    ReadRecording::check_values(bytes).map_err(|why| (0, why))?;
    let notebook: ReplayedNotebook = serde_json::from_slice(bytes).map_err(|error| (0, error.to_string()))?;
    if notebook.nbformat != 4 {
        return Err((0, format!("it has version {} of the format instead of 4", notebook.nbformat)));
    }
    let mut course = NotebookCourse::default();
    for cell in notebook.cells {
        match cell["cell_type"].as_str() {
            Some("code") => {
                let number = course.cells + 1;
                let cell = serde_json::from_value(cell).map_err(|error| (number, error.to_string()))?;
                course.add(cell).map_err(|why| (number, why))?;
            }
            _ if cell["metadata"]["ipybox"]["origin"].is_string() => {
                return Err((course.cells + 1, "its session began as a copy of another".to_owned()));
            }
            _ => {}
        }
    }
    let session = RecordedSession {
        format: 1,
        ipybox: String::new(),
        session: course.session,
        time: String::new(),
        workspace: String::new(),
        site: String::new(),
        seed: 0,
        environment: BTreeMap::new(),
        branch_of: None,
    };
    Ok(ReadRecording { session, lines: course.lines, is_complete: true, has_answers: false })
}

/// The lines of a recording that a notebook becomes.
#[derive(Default)]
struct NotebookCourse {
    lines: Vec<(usize, RecordingLine)>,
    cells: u64,
    /// The session of the newest cell, and those before.
    session: String,
    earlier: Vec<String>,
    /// The number of the newest cell in its kernel.
    in_kernel: u64,
    /// Whether there are cells since, whose numbers are not known.
    has_uncounted: bool,
    /// The number of beginnings and ends of calls.
    moments: u64,
}

impl NotebookCourse {
    fn add(&mut self, cell: NotebookCode) -> Result<(), String> {
        let Some(ours) = cell.metadata.ipybox else {
            return Err("ipybox has not run it: its metadata has no `ipybox`".to_owned());
        };
        self.follow_kernel(&ours.session, cell.execution_count)?;
        self.cells += 1;
        self.add_calls(ours.calls, ours.calls_left_out > 0);
        let is_cut = !ours.outputs_left_out.is_null();
        let outputs = if is_cut { Vec::new() } else { cell.outputs.into_iter().filter_map(item).collect() };
        self.put(RecordingLine::Cell(Box::new(RecordedCell {
            cell: self.cells,
            author: ours.author,
            code: cell.source.joined(),
            end: ours.end,
            outputs,
            is_cut,
            duration_ms: ours.duration_ms,
        })));
        Ok(())
    }

    /// Notes what has become of the kernel, by the number that the next cell has in it.
    fn follow_kernel(&mut self, session: &str, number: Option<u64>) -> Result<(), String> {
        if session != self.session {
            if self.earlier.iter().any(|earlier| earlier == session) {
                return Err(format!("it is of session `{session}` again, whose cells are not in one piece"));
            }
            let before = std::mem::replace(&mut self.session, session.to_owned());
            self.earlier.push(before);
            self.fresh_kernel();
        }
        let Some(number) = number else {
            self.has_uncounted = true;
            return Ok(());
        };
        if number == 0 {
            return Err("it is number 0 of its kernel, which counts from 1".to_owned());
        }
        let may_skip = std::mem::take(&mut self.has_uncounted);
        if number == 1 && self.in_kernel > 0 {
            self.fresh_kernel();
        } else if number - 1 > self.in_kernel && !may_skip {
            return Err(format!(
                "it is number {number} of its kernel, after number {}: a cell before it is missing",
                self.in_kernel
            ));
        } else if number <= self.in_kernel {
            self.put(RecordingLine::Undo(RecordedUndo { cells: self.cells, last: number - 1 }));
        }
        self.in_kernel = number;
        Ok(())
    }

    fn fresh_kernel(&mut self) {
        self.in_kernel = 0;
        self.put(RecordingLine::Kernel(RecordedMoment { cells: self.cells }));
    }

    /// Adds the calls of tools. All of a cell overlap: their order is not known.
    fn add_calls(&mut self, calls: Vec<NotebookCall>, are_left_out: bool) {
        let count = calls.len() as u64;
        let is_known = |call: &NotebookCall| call.server != OURSELVES && call.arguments.is_object();
        if are_left_out {
            return;
        }
        for (place, call) in (1..).zip(calls.into_iter().filter(is_known)) {
            let Value::Object(arguments) = call.arguments else { continue };
            let begin = self.moments + place;
            self.put(RecordingLine::Call(Box::new(RecordedCall {
                cell: self.cells,
                server: call.server,
                tool: call.tool,
                arguments,
                answer: None,
                left_out: None,
                decision: call.decision,
                by: call.by,
                duration_ms: 0,
                order: [begin, begin + count],
            })));
        }
        self.moments += 2 * count;
    }

    fn put(&mut self, line: RecordingLine) {
        self.lines.push((self.lines.len() + 1, line));
    }
}

/// An output as recordings have it; `None` of a link to what is too large for a notebook.
fn item(output: NotebookOutput) -> Option<CellItem> {
    match output {
        NotebookOutput::Stream { text } => Some(CellItem::Text(text.joined())),
        NotebookOutput::DisplayData(object) | NotebookOutput::ExecuteResult(object) => {
            let is_link = object.data.contains_key("text/markdown")
                && object.metadata.get("ipybox").is_some_and(|ours| ours["files"].is_array());
            let joined = object.data.into_iter().map(|(kind, value)| {
                let value = match value {
                    Value::Array(lines) if !is_json(&kind) => {
                        lines.iter().filter_map(Value::as_str).collect::<String>().into()
                    }
                    value if is_json(&kind) => value.to_string().into(),
                    value => value,
                };
                (kind, value)
            });
            let object = CellItem::object(joined);
            (!is_link).then_some(object)
        }
        NotebookOutput::Error { ename, evalue, traceback } => {
            Some(CellItem::Error(RecordedFailure { name: ename, value: evalue, traceback }))
        }
    }
}

fn is_json(kind: &str) -> bool {
    kind == "application/json" || kind.ends_with("+json")
}

impl MultilineText {
    fn joined(self) -> String {
        match self {
            Self::Whole(text) => text,
            Self::Lines(lines) => lines.concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(number: u64, session: &str) -> Value {
        json!({"cell_type": "code", "source": ["1 +\n", "1"], "execution_count": number, "outputs": [],
               "metadata": {"ipybox": {"session": session, "author": "agent", "end": "finished", "duration_ms": 1}}})
    }

    fn notebook(cells: &[Value]) -> Vec<u8> {
        json!({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).to_string().into_bytes()
    }

    #[track_caller]
    fn check(cells: &[Value], cell: u64, why: &str) {
        let (number, found) = read(&notebook(cells)).map(|read| read.lines.len()).unwrap_err();
        assert!(number == cell && found.contains(why), "{number}: {found}");
    }

    #[track_caller]
    fn check_kinds(cells: &[Value], expected: &[&str]) {
        let read = read(&notebook(cells)).unwrap();
        let kinds = read.lines.iter().map(|(_, line)| {
            let value = serde_json::to_value(line).unwrap();
            format!(
                "{} {}",
                value["line"].as_str().unwrap(),
                value["last"].as_u64().map_or(String::new(), |last| last.to_string())
            )
        });
        assert_eq!(kinds.map(|kind| kind.trim().to_owned()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn numbers_say_what_has_become_of_the_kernel() {
        check_kinds(&[code(1, "a"), code(2, "a")], &["kernel", "cell", "cell"]);
        check_kinds(&[code(1, "a"), code(1, "a")], &["kernel", "cell", "kernel", "cell"]);
        check_kinds(
            &[code(1, "a"), code(2, "a"), code(2, "a")],
            &["kernel", "cell", "cell", "undo 1", "cell"],
        );
        check_kinds(&[code(1, "a"), code(1, "b")], &["kernel", "cell", "kernel", "cell"]);
        check(&[code(3, "a")], 1, "a cell before it is missing");
        check(&[code(u64::MAX, "a")], 1, "a cell before it is missing");
        check(&[code(1, "a"), code(0, "a")], 2, "counts from 1");
        check(&[code(1, "a"), code(1, "b"), code(2, "a")], 3, "session `a` again");
    }

    #[test]
    fn foreign_cells_are_named() {
        let mut foreign = code(2, "a");
        foreign["metadata"] = json!({});
        check(
            &[code(1, "a"), json!({"cell_type": "markdown", "source": "x", "metadata": {}}), foreign],
            2,
            "ipybox has not run it",
        );
        let mut odd = code(2, "a");
        odd["outputs"] = json!([{"output_type": "pickle"}]);
        check(&[code(1, "a"), odd], 2, "unknown variant");
        let branch =
            json!({"cell_type": "markdown", "source": "x", "metadata": {"ipybox": {"origin": "b.ipynb"}}});
        check(&[code(1, "a"), branch], 2, "began as a copy");
        assert!(
            is_notebook(&notebook(&[])) && !is_notebook(b"{\"line\":\"session\"}\n{}") && !is_notebook(b"x")
        );
    }

    #[test]
    fn calls_and_outputs_are_as_in_a_recording() {
        let mut cell = code(1, "a");
        let call = |server: &str| json!({"server": server, "tool": "t", "arguments": {"a": 1}, "decision": "accepted", "by": "policy", "waited_ms": 0});
        cell["metadata"]["ipybox"]["calls"] = json!([call("s"), call("ipybox"), call("s")]);
        cell["outputs"] = json!([
            {"output_type": "stream", "name": "stdout", "text": ["a\n", "b"]},
            {"output_type": "display_data", "data": {"text/plain": ["x"], "application/json": {"b": 1}}, "metadata": {}},
            {"output_type": "display_data", "data": {"text/markdown": "The whole output: …"}, "metadata": {"ipybox": {"files": ["x"]}}},
        ]);
        let read = read(&notebook(&[cell])).unwrap();
        let orders = read.lines.iter().filter_map(|(_, line)| match line {
            RecordingLine::Call(call) => Some(call.order),
            _ => None,
        });
        assert_eq!(orders.collect::<Vec<_>>(), [[1, 4], [2, 5]]);
        let Some((_, RecordingLine::Cell(cell))) = read.lines.last() else { panic!("{:?}", read.lines) };
        assert_eq!(cell.code, "1 +\n1");
        assert_eq!(
            serde_json::to_value(&cell.outputs).unwrap(),
            json!([{"text": "a\nb"}, {"data": {"text/plain": "x", "application/json": "{\"b\":1}"}}])
        );
    }
}
