//! Reads recordings, which strangers may have made or changed: bounded in size, lines, values and depth.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::line::{FORMAT, RecordedSession, RecordingLine};
use super::{FILE_BYTES, LINE_BYTES};
use crate::config::is_of_locale;
use crate::ground::files::small;

/// The number of lines that are read.
const MOST_LINES: usize = 1_000_000;

/// The number of values in all lines together, each of which takes memory.
const MOST_VALUES: usize = 4_000_000;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableRecording {
    /// The file cannot be read, or is too large.
    #[error("read the recording `{path}`", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is a notebook that cannot be replayed.
    #[error("replay the notebook `{path}`, cell {cell}: {why}", path = path.display())]
    Notebook {
        /// The file.
        path: PathBuf,
        /// The number of the cell among those with code, from 1; 0 if it is none of them.
        cell: u64,
        /// Why.
        why: String,
    },
    /// A line is not as it should be.
    #[error("read the recording `{path}`, line {line}: {why}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// Why.
        why: String,
    },
}

/// A recording.
#[derive(Debug)]
pub(crate) struct ReadRecording {
    pub(crate) session: RecordedSession,
    /// The lines after the first, in order, with their numbers.
    pub(crate) lines: Vec<(usize, RecordingLine)>,
    /// Whether the session has ended as sessions end, and not in the middle of something.
    pub(crate) is_complete: bool,
    /// Whether calls have answers. Those of a notebook have none.
    pub(crate) has_answers: bool,
}

impl ReadRecording {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`UnreadableRecording`].
    pub(crate) fn read(path: &Path) -> Result<Self, UnreadableRecording> {
        let read = small::read(path, FILE_BYTES);
        let bytes = read.map_err(|source| UnreadableRecording::File { path: path.to_owned(), source })?;
        Self::of(path, &bytes)
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// See [`UnreadableRecording`].
    pub(crate) fn of(path: &Path, bytes: &[u8]) -> Result<Self, UnreadableRecording> {
        Self::parse(bytes).map_err(|(line, why)| UnreadableRecording::Line {
            path: path.to_owned(),
            line,
            why,
        })
    }

    /// Refuses JSON of too many values.
    pub(crate) fn check_values(text: &[u8]) -> Result<(), String> {
        if values(text) > MOST_VALUES {
            return Err(format!("it has more than {MOST_VALUES} values"));
        }
        Ok(())
    }

    /// The error is the number of a line, and why it cannot be used.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // Nothing follows the last newline, or a line that was being written when the process was killed.
        let last = lines.pop().unwrap_or_default();
        let is_torn = !last.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(last).is_err();
        if !last.is_empty() && !is_torn {
            lines.push(last);
        }
        let mut check = LineCheck::default();
        let mut read = Vec::new();
        for (index, text) in lines.into_iter().enumerate() {
            let number = index + 1;
            let line = check.line(number, text).map_err(|why| (number, why))?;
            read.push((number, line));
        }
        let mut read = read.into_iter();
        let Some((_, RecordingLine::Session(session))) = read.next() else {
            return Err((1, "it does not begin with a line of a session".to_owned()));
        };
        let lines: Vec<_> = read.collect();
        let has_end = matches!(lines.last(), Some((_, RecordingLine::End(_))));
        Ok(Self { session, lines, is_complete: has_end && !is_torn, has_answers: true })
    }
}

/// The state of the checks of a recording.
#[derive(Default)]
struct LineCheck {
    values: usize,
    cells: u64,
    has_ended: bool,
}

impl LineCheck {
    fn line(&mut self, number: usize, text: &[u8]) -> Result<RecordingLine, String> {
        if number > MOST_LINES {
            return Err(format!("it has more than {MOST_LINES} lines"));
        }
        if text.len() > LINE_BYTES + LINE_BYTES / 4 {
            return Err(format!("it is longer than {LINE_BYTES} bytes"));
        }
        self.values += values(text);
        if self.values > MOST_VALUES {
            return Err(format!("the recording has more than {MOST_VALUES} values"));
        }
        if self.has_ended {
            return Err("it follows the end of the session".to_owned());
        }
        if number == 1 {
            check_format(text)?;
        }
        let line: RecordingLine = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        self.check(number, &line)?;
        Ok(line)
    }

    fn check(&mut self, number: usize, line: &RecordingLine) -> Result<(), String> {
        match line {
            RecordingLine::Session(session) => {
                if number != 1 {
                    return Err("a second session begins: a recording has one".to_owned());
                }
                if session.began().is_none() {
                    return Err(format!("`{}` is no time as `2026-01-31T12:00:00Z`", session.time));
                }
                match session.environment.keys().find(|name| !is_of_locale(name)) {
                    Some(name) => Err(format!("`{name}` is no variable of a locale or time zone")),
                    None => Ok(()),
                }
            }
            RecordingLine::Server(server) => {
                ipybox_codegen::validate_package_name(&server.name).map_err(|error| error.to_string())?;
                let mut names = BTreeSet::new();
                match server.tools.iter().find(|tool| !names.insert(&tool.name)) {
                    Some(tool) => Err(format!("`{}` has two tools of the name `{}`", server.name, tool.name)),
                    None => Ok(()),
                }
            }
            RecordingLine::Call(call) if call.order[0] >= call.order[1] => {
                Err("the call ends before it begins".to_owned())
            }
            RecordingLine::Call(call) if call.cell > self.cells + 1 => {
                Err(format!("it is a call of cell {}, after {} cells", call.cell, self.cells))
            }
            RecordingLine::Cell(cell) => {
                let expected = self.cells + 1;
                if cell.cell != expected {
                    return Err(format!("cell {} is missing before cell {}", expected, cell.cell));
                }
                self.cells = expected;
                Ok(())
            }
            RecordingLine::End(_) => {
                self.has_ended = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Checks the first line before its members, which another version may have changed.
fn check_format(text: &[u8]) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    struct FirstLine {
        line: String,
        format: Option<u64>,
    }
    match serde_json::from_slice(text) {
        Ok(FirstLine { line, format: Some(format) }) if line == "session" => {
            if format == u64::from(FORMAT) {
                Ok(())
            } else {
                Err(format!("it has version {format} of the format, and this ipybox reads version {FORMAT}"))
            }
        }
        _ => Err("it is no recording of ipybox".to_owned()),
    }
}

/// About the number of values in a line of JSON.
fn values(text: &[u8]) -> usize {
    let mut count = 1;
    let mut is_text = false;
    let mut is_escaped = false;
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session() -> serde_json::Value {
        json!({"line": "session", "format": 1, "ipybox": "0", "session": "a", "time": "2026-01-31T12:00:00Z", "site": "local", "seed": 1,
               "workspace": "/w"})
    }

    fn cell(number: u64) -> serde_json::Value {
        json!({"line": "cell", "cell": number, "author": "agent", "code": "1", "end": "finished", "outputs": [],
               "duration_ms": 1})
    }

    fn text(lines: &[serde_json::Value]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[track_caller]
    fn check(text: &str, line: usize, why: &str) {
        let (number, found) = ReadRecording::parse(text.as_bytes()).map(|read| read.lines.len()).unwrap_err();
        assert!(number == line && found.contains(why), "{number}: {found}");
    }

    #[test]
    fn whole_and_torn_recordings_are_read() {
        let end = json!({"line": "end", "cells": 2});
        let whole = text(&[session(), cell(1), cell(2), end]);
        let read = ReadRecording::parse(whole.as_bytes()).unwrap();
        assert!(read.is_complete && read.lines.len() == 3);
        for cut in whole.find("\"cell\":2").unwrap()..whole.len() - 1 {
            let read = ReadRecording::parse(&whole.as_bytes()[..cut]);
            assert!(read.is_ok_and(|read| !read.lines.is_empty()), "{cut}");
        }
        assert!(
            ReadRecording::parse(whole.trim_end().as_bytes()).unwrap().is_complete,
            "an editor took the newline"
        );
    }

    #[test]
    fn bad_lines_are_named() {
        check("", 1, "does not begin");
        check("print(1)\n", 1, "no recording");
        check("{\"nbformat\": 4}\n", 1, "no recording");
        let mut newer = session();
        newer["format"] = json!(2);
        check(&text(&[newer]), 1, "version 2");
        check(&text(&[session(), cell(2)]), 2, "cell 1 is missing");
        check(&text(&[session(), cell(1), session()]), 3, "second session");
        check(&(text(&[session()]) + "{\"line\":\"cell\"\n" + &cell(1).to_string()), 2, "EOF");
        check(&text(&[session(), json!({"line": "pickle", "data": "gASV"})]), 2, "unknown variant");
        check(&text(&[session(), json!({"line": "end", "cells": 0}), cell(1)]), 3, "follows the end");
        let mut variable = session();
        variable["environment"] = json!({"LD_PRELOAD": "/x"});
        check(&text(&[variable]), 1, "LD_PRELOAD");
        let mut extra = cell(1);
        extra["file"] = json!("../../x");
        check(&text(&[session(), extra]), 2, "unknown field");
    }

    #[test]
    fn hostile_lines_are_refused() {
        let server = json!({"line": "server", "name": "../x", "parameters": {}, "tools": [], "annotations": {}, "others": {}});
        check(&text(&[session(), server]), 2, "../x");
        let deep = format!(
            "{}{{\"line\":\"server\",\"parameters\":{}1{}}}\n",
            text(&[session()]),
            "[".repeat(1_000),
            "]".repeat(1_000)
        );
        check(&deep, 2, "recursion");
        let many =
            format!("{}{{\"line\":\"answer\",\"x\":[{}1]}}\n", text(&[session()]), "1,".repeat(MOST_VALUES));
        check(&many, 2, "values");
        let mut call = json!({"line": "call", "cell": 1, "server": "s", "tool": "t", "arguments": {}, "answer": null,
                              "decision": "accepted", "by": "policy", "duration_ms": 0, "order": [2, 2]});
        check(&text(&[session(), call.clone()]), 2, "ends before");
        (call["order"], call["cell"]) = (json!([1, 2]), json!(7));
        check(&text(&[session(), call]), 2, "cell 7");
    }
}
