//! Adds a line to a recording: its file is replaced as a whole, by one process at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use super::FILE_BYTES;
use super::line::RecordingLine;
use super::reader::ReadRecording;
use super::writer::written;
use crate::ground::files::replacement::{parent_of, replace};
use crate::ground::files::{is_at, lock, small};

/// The time that other processes may take with the file.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// Adds `line` before the end of the recording at `path`. A call comes after all others, and is of no cell. Whatever happens, the
/// file is the old or the new one. Blocks.
///
/// # Errors
/// The file cannot be read or replaced, is no recording, or would be too large.
pub(crate) fn add_line(path: &Path, line: RecordingLine) -> io::Result<()> {
    let path = path.canonicalize()?;
    let turn = turn(&path)?;
    let bytes = with_line(&small::read(&path, FILE_BYTES)?, line)?;
    if bytes.len() as u64 > FILE_BYTES {
        let why = format!("it would be larger than {FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let (directory, name) = parent_of(&path)?;
    replace(&directory, name, turn.metadata()?.mode() & 0o777, &bytes)
}

/// Locks the file that has this name now: another process may have replaced the one that was locked first.
fn turn(path: &Path) -> io::Result<File> {
    loop {
        let locked = lock(path, TURN_TIMEOUT)?;
        if is_at(&locked, path)?.is_some() {
            return Ok(locked);
        }
    }
}

/// The text of a recording with one more line.
fn with_line(bytes: &[u8], mut line: RecordingLine) -> io::Result<Vec<u8>> {
    let read = ReadRecording::parse(bytes).map_err(|(line, why)| {
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} cannot be used: {why}"))
    })?;
    if let RecordingLine::Call(call) = &mut line {
        let ends = read.lines.iter().filter_map(|(_, line)| match line {
            RecordingLine::Call(call) => Some(call.order[1]),
            _ => None,
        });
        let last = ends.max().unwrap_or_default();
        (call.cell, call.order) = (0, [last.saturating_add(1), last.saturating_add(2)]);
    }
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    // A torn line is none.
    lines.truncate(1 + read.lines.len());
    let has_end = matches!(read.lines.last(), Some((_, RecordingLine::End(_))));
    let end = if has_end { lines.pop() } else { None };
    let added = written(&line)?;
    let kept = lines.into_iter().flat_map(|line| [line, b"\n"]);
    Ok(kept
        .chain([&added[..]])
        .chain(end.into_iter().flat_map(|end| [end, b"\n"]))
        .collect::<Vec<_>>()
        .concat())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::{Value, json};

    use super::*;

    const SESSION: &str = r#"{"line":"session","format":1,"ipybox":"0","session":"a","time":"2026-01-31T12:00:00Z","site":"local","seed":1,"workspace":"/w"}"#;
    const END: &str = r#"{"line":"end","cells":0}"#;

    fn call() -> RecordingLine {
        serde_json::from_value(json!({
            "line": "call", "cell": 7, "server": "s", "tool": "t", "arguments": {}, "answer": {"result": 1},
            "decision": "accepted", "by": "policy", "duration_ms": 0, "order": [1, 2]
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(before: &str, kinds: &[&str]) -> Vec<Value> {
        let text = String::from_utf8(with_line(before.as_bytes(), call()).unwrap()).unwrap();
        assert!(ReadRecording::parse(text.as_bytes()).is_ok(), "{text}");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().map(|line| line["line"].clone()).collect::<Vec<_>>(), kinds);
        lines
    }

    #[test]
    fn a_line_comes_before_the_end_and_after_what_is_whole() {
        check(&format!("{SESSION}\n{END}\n"), &["session", "call", "end"]);
        check(&format!("{SESSION}\n{END}"), &["session", "call", "end"]);
        check(SESSION, &["session", "call"]);
        check(&format!("{SESSION}\n{{\"line\":\"ce"), &["session", "call"]);
        assert!(with_line(b"print(1)\n", call()).is_err());
    }

    #[test]
    fn calls_follow_each_other() {
        let once = with_line(format!("{SESSION}\n{END}\n").as_bytes(), call()).unwrap();
        let lines = check(&String::from_utf8(once).unwrap(), &["session", "call", "call", "end"]);
        assert_eq!((&lines[1]["order"], &lines[2]["order"]), (&json!([1, 2]), &json!([3, 4])));
        assert_eq!(lines[2]["cell"], 0);
    }

    #[test]
    fn writers_side_by_side_lose_nothing_and_keep_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.jsonl");
        std::fs::write(&path, format!("{SESSION}\n{END}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| add_line(&path, call()).unwrap()));
            }
        });
        let read = ReadRecording::read(&path).unwrap();
        assert!(read.is_complete && read.lines.len() == 21, "{}", read.lines.len());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
