//! A call as the page shows it: all of its texts made visible here, so that the browser only sets them. Pure.

use serde::Serialize;
use serde_json::Value;

use crate::faces::people::{self, Call, Label, Offer, Target};
use crate::ground::text::visible::{self, Literal, Name, Use};

/// How long a text in a row may be, in characters: of longer ones both ends are shown. The whole is one key away.
const CELL_CHARS: usize = 160;

/// How much of all values the page gets at once, in characters, when it asks for all. Arguments may be as large as memory.
const WHOLE_CHARS: usize = 2_000_000;

/// A call, as a row of a table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) id: u64,
    /// The server and the tool: rows of the same make a table.
    server: String,
    tool: String,
    /// What kind of call it is.
    kind: &'static str,
    arguments: Vec<Cell>,
    behind: String,
    hints: Vec<&'static str>,
    changes: Option<String>,
    /// What the code says that the call and those of its batch are for.
    batch: Option<String>,
    /// The grant that is proposed.
    grant: Option<Granting>,
    /// Why the call is outside of the grants that there are.
    outside: Option<String>,
    /// What answers that hold longer would cover; `None` if the question cannot be answered here.
    scope: Option<String>,
    /// Where the data in the call comes from.
    provenance: Option<String>,
    /// The labels that an answer can give to the data of the server.
    labels: &'static [Label],
}

/// A grant that is proposed.
#[derive(Debug, Clone, Serialize)]
struct Granting {
    choice: String,
    covers: String,
}

/// An argument in a row.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    name: String,
    value: String,
    /// How many characters there are if not all of them are here; of what is no text, in JSON.
    chars: Option<usize>,
}

/// An argument in full.
#[derive(Debug, Serialize)]
pub(super) struct Whole {
    name: String,
    value: String,
    /// How many characters are not here, because no browser could show them.
    left_out: usize,
}

impl Row {
    /// `scope` says what answers that hold longer would cover, if the question can be answered here.
    pub(super) fn of(id: u64, call: &Call, scope: Option<&str>) -> Self {
        let is_ours = call.is_ours();
        Self {
            id,
            server: name(&call.server),
            tool: name(&call.tool),
            kind: call.question_of_ours().unwrap_or("Code in the kernel wants to call this tool."),
            arguments: call.arguments.iter().map(|(name, value)| cell(name, value, is_ours)).collect(),
            behind: match &call.behind {
                Target::Command(words) => format!("a program on this machine: {}", visible::line(words)),
                Target::Url(url) => format!("a server at {}", visible::line(url)),
                Target::Kernel => "the kernel".to_owned(),
                Target::Host => "ipybox itself".to_owned(),
            },
            hints: hints(call),
            changes: call.changes.as_deref().map(|changes| block(changes, Use::Text)),
            batch: call.batch.as_deref().map(|title| Literal(title, Use::Text).to_string()),
            grant: None,
            outside: None,
            scope: scope.map(visible::line),
            provenance: call.provenance.as_deref().map(|words| Literal(words, Use::Text).to_string()),
            labels: if call.takes_label() { &Label::ALL } else { &[] },
        }
    }

    /// With what is to be said of grants.
    pub(super) fn with_grants(self, offer: Option<&Offer>, outside: Option<&str>) -> Self {
        let grant = offer.map(|Offer { choice, covers, .. }| Granting {
            choice: visible::line(choice),
            covers: visible::line(covers),
        });
        Self { grant, outside: outside.map(visible::line), ..self }
    }

    /// Whether a grant is proposed.
    pub(super) fn has_grant(&self) -> bool {
        self.grant.is_some()
    }

    /// Whether the question can be answered on the page.
    pub(super) fn can_be_answered(&self) -> bool {
        self.scope.is_some()
    }
}

/// The arguments of a call, in full. If there is no room for all, long ones are shortened, not those beside them.
pub(super) fn wholes(call: &Call) -> Vec<Whole> {
    let used = used(call.is_ours());
    let whole = |(argument, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => block(text, used),
            other => visible::json(&serde_json::to_string_pretty(other).unwrap_or_default()),
        };
        Whole { name: name(argument), value, left_out: 0 }
    };
    let mut wholes: Vec<_> = call.arguments.iter().map(whole).collect();
    let mut shortest_first: Vec<_> = wholes.iter_mut().collect();
    shortest_first.sort_by_key(|whole| whole.value.len());
    let (mut room, mut count) = (WHOLE_CHARS, shortest_first.len());
    for whole in shortest_first {
        let chars = whole.value.chars().count();
        let shown = chars.min(room / count);
        if let Some((end, _)) = whole.value.char_indices().nth(shown) {
            whole.value.truncate(end);
        }
        whole.left_out = chars - shown;
        room -= shown;
        count -= 1;
    }
    wholes
}

/// A call in a line.
pub(super) fn line(call: &Call) -> String {
    let arguments = call.arguments.iter().map(|(argument, value)| {
        let cell = cell(argument, value, call.is_ours());
        format!("{}={}", cell.name, cell.value)
    });
    let line =
        format!("{}.{}({})", name(&call.server), name(&call.tool), arguments.collect::<Vec<_>>().join(", "));
    crate::ground::text::shortened(&line, 4 * CELL_CHARS)
}

/// A text of several lines.
pub(super) fn block(text: &str, used: Use) -> String {
    let lines = text.split('\n').map(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let parts = line.split('\t').map(|part| bare(part, used));
        parts.collect::<Vec<_>>().join("\t")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn bare(text: &str, used: Use) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        text.to_owned()
    } else {
        visible::shown(text, used)
    }
}

fn used(is_ours: bool) -> Use {
    if is_ours { Use::Code } else { Use::Text }
}

fn cell(name: &str, value: &Value, is_ours: bool) -> Cell {
    let shown = people::argument(value, is_ours, CELL_CHARS);
    let is_cut = shown.ends_with("[…]") || !is_ours && has_long_text(value);
    let chars = is_cut.then(|| match value {
        Value::String(text) => text.chars().count(),
        other => other.to_string().chars().count(),
    });
    Cell { name: self::name(name), value: shown, chars }
}

/// Whether a text in it is not shown whole in a row.
fn has_long_text(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().nth(CELL_CHARS).is_some(),
        Value::Array(items) => items.iter().any(has_long_text),
        Value::Object(members) => {
            members.iter().any(|(key, member)| key.chars().nth(CELL_CHARS).is_some() || has_long_text(member))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The name of a server, a tool or an argument: unchanged if it looks like one, else quoted.
pub(super) fn name(name: &str) -> String {
    let is_usual = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    if !name.is_empty() && name.chars().all(is_usual) { name.to_owned() } else { Name(name).to_string() }
}

/// What the server says of its tool; nothing enforces it.
fn hints(call: &Call) -> Vec<&'static str> {
    let Some(hints) = &call.hints else { return Vec::new() };
    let is_read_only = hints.read_only == Some(true);
    let said = |hint: Option<bool>, yes: &'static str, no: &'static str| {
        hint.map(|is_so| if is_so { yes } else { no })
    };
    let all = [
        said(hints.read_only, "only reads", "changes something"),
        said(hints.destructive, "may destroy something", "destroys nothing").filter(|_| !is_read_only),
        said(hints.open_world, "reaches the outside world", "stays in its own domain"),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
pub(super) fn call_for_tests(server: &str, arguments: Value) -> Call {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    let (server, tool) = (server.to_owned(), "t".to_owned());
    let behind = Target::Command("npx \u{202e}x".to_owned());
    Call { server, tool, arguments, behind, hints: None, changes: None, batch: None, provenance: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_in_a_row_misleads() {
        let call =
            call_for_tests("s\u{200b}", json!({"a\u{430}": "x\u{202e}\u{1b}[2Jy\n", "n": [1, "\u{200b}"]}));
        let row = serde_json::to_value(Row::of(1, &call, Some("s"))).unwrap();
        assert_eq!(row["server"], r"'s\u200b'");
        assert_eq!(row["arguments"][0]["name"], r"'a\u0430'");
        assert_eq!(row["arguments"][0]["value"], r"'x\u202e\x1b[2Jy\n'");
        assert_eq!(row["arguments"][1]["value"], r"[1, '\u200b']");
        assert_eq!(row["behind"], r"a program on this machine: npx \u202ex");
        assert_eq!(line(&call), r"'s\u200b'.t('a\u0430'='x\u202e\x1b[2Jy\n', n=[1, '\u200b'])");
    }

    #[test]
    fn long_texts_are_cut_in_a_row_and_whole_on_demand() {
        let text = format!("{}\n\tend é\u{200b}", "x".repeat(5_000));
        let call = call_for_tests("s", json!({"text": text, "map": {"a": 1}}));
        let row = serde_json::to_value(Row::of(1, &call, None)).unwrap();
        assert_eq!(row["arguments"][0]["chars"], text.chars().count());
        let shown = row["arguments"][0]["value"].as_str().unwrap();
        assert!(shown.len() < CELL_CHARS + 80 && shown.ends_with(r"\tend é\u200b'"), "{shown}");
        // Neither a long text nor its place can hide what matters.
        let hidden = json!({"map": {"comment": text, "pay": 1_000_000, "to": "eve@example.com"}});
        let row = serde_json::to_value(Row::of(1, &call_for_tests("s", hidden), None)).unwrap();
        let shown = row["arguments"][0]["value"].as_str().unwrap();
        assert!(shown.contains("'pay': 1000000, 'to': 'eve@example.com'"), "{shown}");
        assert!(row["arguments"][0]["chars"].is_number());
        let command = format!("echo {}; rm x", "x".repeat(5_000));
        let row = Row::of(1, &call_for_tests("ipybox", json!({"cmd": command})), None);
        let row = serde_json::to_value(row).unwrap();
        assert_eq!(row["arguments"][0]["value"], format!("'{command}'"));
        assert!(row["arguments"][0]["chars"].is_null());
        let wholes = serde_json::to_value(wholes(&call)).unwrap();
        assert_eq!(wholes[0]["value"], format!("{}\n\tend é\\u200b", "x".repeat(5_000)));
        assert_eq!(wholes[0]["left_out"], 0);
        assert_eq!(wholes[1]["value"], "{\n  \"a\": 1\n}");
        let long = "é".repeat(WHOLE_CHARS);
        let wholes = super::wholes(&call_for_tests("s", json!({"a": long, "b": long, "c": "short"})));
        let left: Vec<_> = wholes.iter().map(|whole| whole.left_out).collect();
        assert!(left[0] > 0 && left[1] > 0 && left[2] == 0);
        let shown: usize = wholes.iter().map(|whole| whole.value.chars().count()).sum();
        assert_eq!(shown, WHOLE_CHARS);
        assert_eq!(shown + left.iter().sum::<usize>(), 2 * WHOLE_CHARS + 5);
    }
}
