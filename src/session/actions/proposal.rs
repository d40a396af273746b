//! The question about saving an action: all of its new files, or how they differ from those of the version before.

use serde_json::{Map, Value, json};

use crate::approval::{Action, Target};
use crate::ground::text::line_diff;
use crate::tools::actions::{ActionFiles, SavedAction};

/// The longest line that a diff shows whole, in characters.
const LINE_CHARS: usize = 300;

/// The action that is decided about. `before` are the files of the version before.
pub(super) fn proposal(action: &SavedAction, files: &ActionFiles, before: Option<&ActionFiles>) -> Action {
    let name = format!("{}.{}", action.category, action.name);
    let version = ("version", json!(action.version));
    let example = ("example", Value::Object(action.example.clone()));
    let shown = before.filter(|before| can_be_compared(before) && can_be_compared(files));
    let contents = match shown {
        Some(before) => ("changes", changes(before, files)),
        None => ("files", files.iter().map(|(name, text)| (name.clone(), json!(text))).collect()),
    };
    let uses = action.uses.iter().map(|(name, used)| (name.clone(), json!(used.version))).collect();
    let uses = (!action.uses.is_empty()).then_some(("uses", Value::Object(uses)));
    let parts = [("name", json!(name)), version, example].into_iter().chain(uses).chain([contents]);
    Action::ours("save_action", parts, Target::Host)
}

/// Whether a diff would show all of the lines.
fn can_be_compared(files: &ActionFiles) -> bool {
    files.iter().flat_map(|(_, text)| text.lines()).all(|line| line.chars().count() < LINE_CHARS)
}

fn changes(before: &ActionFiles, files: &ActionFiles) -> Value {
    let mut changes = Map::new();
    for (name, text) in files {
        let earlier = before.iter().find(|(other, _)| other == name).map_or("", |(_, text)| text);
        let lines = line_diff(earlier, text, usize::MAX);
        if !lines.is_empty() {
            changes.insert(name.clone(), json!(lines.join("\n")));
        }
    }
    Value::Object(changes)
}
