//! The changes that a call would make in texts, as diffs: of the file that it writes, and of texts that it replaces by others.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};
use similar::{Algorithm, ChangeTag, TextDiff};

use super::words::{block, name};
use crate::faces::people::{ShownCall, Target};
use crate::ground::files::small;
use crate::ground::text::visible::{self, TextUse};

/// The names of arguments for the path of a file, and for what is to be in it, without case and underscores.
const PATHS: [&str; 9] =
    ["path", "filepath", "file", "filename", "absolutepath", "targetfile", "notebookpath", "uri", "fileuri"];
const CONTENTS: [&str; 9] =
    ["content", "contents", "text", "filetext", "filecontent", "newcontent", "newtext", "body", "data"];

/// The beginnings of the names of two arguments if the one is a text, and the other replaces it.
const REPLACED: [(&str, &str); 5] = [
    ("old", "new"),
    ("before", "after"),
    ("search", "replace"),
    ("find", "replace"),
    ("original", "modified"),
];

/// The depth at which texts are looked for in the arguments, and the number of diffs that are shown.
const DEPTH: usize = 4;
const MOST: usize = 50;

/// The number of lines around a change that are shown.
const CONTEXT: usize = 3;

/// The part of a line that is shown, in characters.
const LINE_CHARS: usize = 2_000;

/// The longest text that is compared, in bytes.
const TEXT_BYTES: usize = 2 * 1024 * 1024;

/// The directories of files that are none: they show the system, or ipybox's own variables and memory.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The room for all diffs of a call together.
struct Room {
    /// The number of bytes that are compared.
    compared: usize,
    /// The number of lines, and of bytes in them, that are shown.
    lines: usize,
    bytes: usize,
    /// From then on, diffs are no longer made as short as they could be.
    deadline: Instant,
}

impl Room {
    fn new() -> Self {
        Self {
            compared: 2 * TEXT_BYTES,
            lines: 2_000,
            bytes: 512 * 1024,
            deadline: Instant::now() + Duration::from_millis(300),
        }
    }

    /// Whether these texts are compared.
    fn has_for(&mut self, old: &str, new: &str) -> bool {
        let is_short = old.len().max(new.len()) <= TEXT_BYTES;
        match self.compared.checked_sub(old.len() + new.len()).filter(|_| is_short) {
            Some(left) => {
                self.compared = left;
                true
            }
            None => false,
        }
    }
}

/// The change that a call would make in one text.
#[derive(Debug, Serialize)]
pub(super) struct TextChange {
    what: String,
    kind: ChangeKind,
    /// The number of lines that come and go, those that are not here among them.
    added: usize,
    removed: usize,
    lines: Vec<DiffLine>,
    /// The number of lines that are not here.
    left_out: usize,
}

/// The thing that a change is made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ChangeKind {
    /// A text that there is.
    Text,
    /// A file that there is not.
    New,
    /// Nothing is compared.
    Unknown,
}

#[derive(Debug, Serialize)]
struct DiffLine {
    /// `+`, `-` or a space; `@` between parts that are apart.
    sign: char,
    text: String,
}

/// The files that are read to be compared with what a call would write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparedFiles {
    /// Those that the user of this page can read.
    OfThisUser,
    /// None: this process can read more than the person who looks at the page.
    None,
}

/// The changes that a call would make, as far as its arguments show. Blocks: reads the file.
pub(super) fn changes(call: &ShownCall, files: ComparedFiles) -> Vec<TextChange> {
    let mut changes = Vec::new();
    let mut room = Room::new();
    if !call.is_ours() {
        let written = written(call).filter(|_| files == ComparedFiles::OfThisUser);
        changes.extend(written.map(|(path, argument, text)| of_file(&path, argument, text, &mut room)));
        in_object("", &call.arguments, DEPTH, &mut changes, &mut room);
    }
    if changes.len() >= MOST {
        changes.push(without_lines(format!("Only {MOST} texts are compared: look at the arguments too.")));
    }
    changes
}

/// The names of the arguments that [`changes`] compares with others or with a file. Reads nothing.
pub(super) fn compared(call: &ShownCall) -> Vec<&str> {
    if call.is_ours() {
        return Vec::new();
    }
    let mut names: Vec<&str> = written(call).map(|(_, argument, _)| argument).into_iter().collect();
    for old in call.arguments.keys() {
        if let Some((new, _)) = partner(old, &call.arguments) {
            names.extend([old.as_str(), new]);
        }
    }
    names
}

/// The file that a program on this machine is to write, with the argument that is to be in it.
fn written(call: &ShownCall) -> Option<(PathBuf, &str, &str)> {
    let is_read_only = call.hints.as_ref().is_some_and(|hints| hints.read_only == Some(true));
    if is_read_only || !matches!(call.behind, Target::Command(_)) {
        return None;
    }
    let only = |names: &[&str]| {
        let is_named = |(name, value): &(&String, &Value)| {
            value.is_string() && names.contains(&name.replace('_', "").to_lowercase().as_str())
        };
        let mut found = call.arguments.iter().filter(is_named);
        match (found.next(), found.next()) {
            (Some((name, Value::String(text))), None) => Some((name.as_str(), text.as_str())),
            _ => None,
        }
    };
    let (_, path) = only(&PATHS)?;
    let (argument, text) = only(&CONTENTS)?;
    let path = Path::new(path.strip_prefix("file://").unwrap_or(path));
    // What a relative path means is known to the server alone.
    path.is_absolute().then(|| (path.to_owned(), argument, text))
}

fn of_file(path: &Path, argument: &str, text: &str, room: &mut Room) -> TextChange {
    let argument = name(argument);
    let shown = visible::line(&path.to_string_lossy());
    let read = if text.len() > TEXT_BYTES { Ok(String::new()) } else { read(path) };
    match read {
        Ok(now) if now == text => {
            without_lines(format!("{shown} on this machine has this {argument} already."))
        }
        Ok(now) if !room.has_for(&now, text) => {
            without_lines(format!("{argument} is too long to be compared with {shown}."))
        }
        Ok(now) => {
            let what = format!("{argument}, compared with {shown} as it is on this machine now");
            between(&now, text, what, room)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("{shown} does not exist on this machine yet.");
            let change =
                if room.has_for("", text) { between("", text, what, room) } else { without_lines(what) };
            TextChange { kind: ChangeKind::New, ..change }
        }
        Err(error) => without_lines(format!(
            "{argument} cannot be compared with {shown}: {}",
            visible::line(&error.to_string())
        )),
    }
}

/// Reads a file, if it is one that programs write.
fn read(path: &Path) -> io::Result<String> {
    let real = path.canonicalize()?;
    if SYSTEM.iter().any(|directory| real.starts_with(directory)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is the system's, and no file that is kept",
        ));
    }
    small::read_text(&real, TEXT_BYTES as u64)
}

fn without_lines(what: String) -> TextChange {
    TextChange { what, kind: ChangeKind::Unknown, added: 0, removed: 0, lines: Vec::new(), left_out: 0 }
}

/// The texts in an object that replace each other, and those in its values. `place` is the object's name.
fn in_object(
    place: &str,
    object: &Map<String, Value>,
    depth: usize,
    changes: &mut Vec<TextChange>,
    room: &mut Room,
) {
    for (key, value) in object {
        if changes.len() >= MOST {
            return;
        }
        let (own, Some(other)) = (value, partner(key, object)) else {
            in_value(&within(place, key), value, depth, changes, room);
            continue;
        };
        let ((new_name, new), Value::String(old)) = (other, own) else { continue };
        let what = format!("{} → {}", within(place, key), within(place, new_name));
        changes.push(if room.has_for(old, new) {
            between(old, new, what, room)
        } else {
            without_lines(format!("{what}: too long to be compared."))
        });
    }
}

fn in_value(place: &str, value: &Value, depth: usize, changes: &mut Vec<TextChange>, room: &mut Room) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(object) => in_object(place, object, depth, changes, room),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate().take(MOST) {
                in_value(&format!("{place}[{index}]"), item, depth, changes, room);
            }
        }
        _ => {}
    }
}

fn within(place: &str, key: &str) -> String {
    let key = name(key);
    if place.is_empty() { key } else { format!("{place}.{key}") }
}

/// The text that replaces the one under `key`.
fn partner<'a>(key: &str, object: &'a Map<String, Value>) -> Option<(&'a str, &'a str)> {
    object.get(key)?.as_str()?;
    let lower = key.to_lowercase();
    REPLACED.iter().find_map(|(old, new)| {
        let rest = lower.strip_prefix(old)?;
        let is_partner = |name: &String| name.to_lowercase().strip_prefix(new) == Some(rest);
        let (name, value) = object.iter().find(|(name, _)| is_partner(name))?;
        Some((name.as_str(), value.as_str()?))
    })
}

fn between(old: &str, new: &str, what: String, room: &mut Room) -> TextChange {
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).deadline(room.deadline).diff_lines(old, new);
    let mut lines = Vec::new();
    let mut left_out = 0;
    let mut added = 0;
    let mut removed = 0;
    let mut add = |sign: char, text: &str| {
        added += usize::from(sign == '+');
        removed += usize::from(sign == '-');
        if room.lines == 0 || room.bytes == 0 {
            left_out += 1;
            return;
        }
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = crate::ground::text::shortened(&block(text, TextUse::Text), LINE_CHARS);
        room.lines -= 1;
        room.bytes = room.bytes.saturating_sub(text.len());
        lines.push(DiffLine { sign, text });
    };
    for (index, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            add('@', "");
        }
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            add(sign, change.value());
        }
    }
    TextChange { what, kind: ChangeKind::Text, added, removed, lines, left_out }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(arguments: Value) -> Vec<(String, String)> {
        let call = super::super::words::call_for_tests("files", arguments);
        let text = |change: TextChange| {
            let lines = change.lines.iter().map(|line| format!("{}{}", line.sign, line.text));
            (change.what, lines.collect::<Vec<_>>().join("\n"))
        };
        changes(&call, ComparedFiles::OfThisUser).into_iter().map(text).collect()
    }

    #[test]
    fn a_file_that_is_written_is_compared_with_the_one_that_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        let text = path.to_str().unwrap();
        let write = |content: &str| shown(json!({"path": text, "content": content}));
        assert_eq!(
            write("x\ny"),
            [(format!("{text} does not exist on this machine yet."), "+x\n+y".to_owned())]
        );
        let many: String = (0..40).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, &many).unwrap();
        assert!(write(&many)[0].0.ends_with("has this content already."));
        let changed = many.replace("line 3\n", "line three\u{202e}\n").replace("line 30\n", "");
        let [(what, lines)] = &write(&changed)[..] else { panic!("one change") };
        assert_eq!(what, &format!("content, compared with {text} as it is on this machine now"));
        assert_eq!(
            lines,
            " line 0\n line 1\n line 2\n-line 3\n+line three\\u202e\n line 4\n line 5\n line 6\n@\n line 27\n line 28\n line 29\n-line 30\n line 31\n line 32\n line 33"
        );
        std::fs::write(&path, [0xff, 0]).unwrap();
        assert!(write("x")[0].0.ends_with("it is not UTF-8"));
        assert!(
            shown(json!({"path": directory.path(), "content": "x"}))[0]
                .0
                .ends_with("it is not a regular file")
        );
        // Which file is meant is not known.
        assert!(shown(json!({"path": "a.txt", "content": "x"})).is_empty());
        assert!(shown(json!({"path": text, "file": text, "content": "x"})).is_empty());
    }

    #[test]
    fn texts_that_replace_each_other_are_compared_wherever_they_are() {
        let edits = json!({"path": "/x", "edits": [
            {"oldText": "a\nb\n", "newText": "a\nc\n"},
            {"old_text": "same", "new_string": "other name"},
        ]});
        assert_eq!(
            shown(edits),
            [("edits[0].oldText → edits[0].newText".to_owned(), " a\n-b\n+c".to_owned())]
        );
        assert_eq!(shown_whats(json!({"old_str": "a", "new_str": "b"})), ["old_str → new_str"]);
        assert_eq!(shown_whats(json!({"search": "a", "replace": "b"})), ["search → replace"]);
        assert!(shown_whats(json!({"old": 1, "new": 2, "older": "x", "before": "x"})).is_empty());
    }

    #[test]
    fn what_is_compared_is_known_without_a_look_at_the_file() {
        let compared = |arguments: Value| {
            let call = super::super::words::call_for_tests("files", arguments);
            compared(&call).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(compared(json!({"path": "/nowhere/x", "content": "x", "mode": "w"})), ["content"]);
        assert_eq!(compared(json!({"file": "a", "old_str": "a", "new_str": "b"})), ["old_str", "new_str"]);
        assert!(compared(json!({"path": "x", "content": "x"})).is_empty());
    }

    #[test]
    fn a_diff_is_bounded_in_lines_and_time() {
        let text = |seed: u64| {
            let line = |number: u64| format!("{}\n", (number * seed) % 8_191);
            (0..60_000).map(line).collect::<String>()
        };
        let change = between(&text(7), &text(13), String::new(), &mut Room::new());
        assert_eq!(change.lines.len(), Room::new().lines);
        assert!(change.added + change.removed > change.lines.len());
        assert!(change.left_out > 50_000, "{}", change.left_out);
    }

    #[test]
    fn all_diffs_of_a_call_together_are_bounded() {
        let text = |seed: usize| {
            let line = |number: usize| format!("{number} {}\n", "x".repeat(seed));
            (0..400).map(line).collect::<String>()
        };
        let edits: Vec<_> = (0..30).map(|_| json!({"oldText": text(600), "newText": text(601)})).collect();
        let call = super::super::words::call_for_tests("files", json!({"edits": edits}));
        let changes = changes(&call, ComparedFiles::OfThisUser);
        let shown = changes.iter().flat_map(|change| &change.lines).map(|line| line.text.len());
        let left_out: usize = changes.iter().map(|change| change.left_out).sum();
        assert!(shown.clone().count() <= Room::new().lines && left_out > 0);
        assert!(shown.sum::<usize>() <= Room::new().bytes + LINE_CHARS);
        assert!(changes.last().unwrap().what.ends_with("too long to be compared."));
        let many: Vec<_> = (0..MOST + 1).map(|_| json!({"old": "a", "new": "b"})).collect();
        assert!(shown_whats(json!({"edits": many})).last().unwrap().contains("Only 50 texts are compared"));
        let long = "x".repeat(TEXT_BYTES + 1);
        assert!(shown_whats(json!({"old": long, "new": ""}))[0].ends_with("too long to be compared."));
        assert!(shown_whats(json!({"path": "/x", "content": long}))[0].contains("too long to be compared"));
    }

    #[test]
    fn files_of_the_system_are_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/proc/self/environ", &link).unwrap();
        for path in ["/proc/self/environ", "/dev/../proc/version", "/dev/zero", link.to_str().unwrap()] {
            if Path::new(path).exists() {
                let shown = shown(json!({"path": path, "content": "x"}));
                assert!(shown[0].0.ends_with("it is the system's, and no file that is kept"), "{shown:?}");
                assert!(shown[0].1.is_empty());
            }
        }
    }

    fn shown_whats(arguments: Value) -> Vec<String> {
        shown(arguments).into_iter().map(|(what, _)| what).collect()
    }
}
