//! Texts of calls, safe to show. Pure.

#[cfg(test)]
use serde_json::Value;

#[cfg(test)]
use crate::faces::people::{ShownCall, Target};
use crate::ground::text::visible::{self, QuotedName, TextUse};

/// A text of several lines.
pub(super) fn block(text: &str, used: TextUse) -> String {
    let lines = text.split('\n').map(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let parts = line.split('\t').map(|part| bare(part, used));
        parts.collect::<Vec<_>>().join("\t")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn bare(text: &str, used: TextUse) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        text.to_owned()
    } else {
        visible::shown(text, used)
    }
}

/// The use of the texts of a call.
pub(super) fn used(is_ours: bool) -> TextUse {
    if is_ours { TextUse::Code } else { TextUse::Text }
}

/// The name of a server, a tool or an argument: unchanged if it looks like one, else quoted.
pub(super) fn name(name: &str) -> String {
    let is_usual = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    if !name.is_empty() && name.chars().all(is_usual) {
        name.to_owned()
    } else {
        QuotedName(name).to_string()
    }
}

#[cfg(test)]
pub(super) fn call_for_tests(server: &str, arguments: Value) -> ShownCall {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    ShownCall {
        server: server.to_owned(),
        tool: "t".to_owned(),
        arguments,
        behind: Target::Command("npx \u{202e}x".to_owned()),
        hints: None,
        changes: None,
        batch: None,
        origins: Vec::new(),
        read: None,
        asker: None,
    }
}
