//! A call as the page shows it: all of its texts made visible here, so that the browser only sets them. Pure.

use serde::Serialize;
use serde_json::Value;

use super::cell::{ArgumentCell, CELL_CHARS, cells};
use super::diff;
use super::words::{block, name, used};
use crate::faces::people::{self, GrantOffer, Label, OriginInWords, ShownCall, Target};
use crate::ground::text::visible::{self, TextUse};

/// The part of all values that the page gets at once, in characters, when it asks for all. Arguments may be as large as memory.
const WHOLE_CHARS: usize = 2_000_000;

/// A call, as a row of a table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CallRow {
    pub(super) id: u64,
    /// The server and the tool: rows of the same make a table.
    server: String,
    tool: String,
    /// The question about what ipybox does itself.
    kind: Option<&'static str>,
    arguments: Vec<ArgumentCell>,
    /// The arguments that are shown as changes of texts.
    compared: Vec<String>,
    /// The part that runs the tool; empty for what ipybox does itself.
    behind: String,
    hints: Vec<&'static str>,
    changes: Option<String>,
    /// The purpose of the call and of those of its batch, as the code states it.
    batch: Option<String>,
    /// The grant that is proposed.
    grant: Option<ProposedGrant>,
    /// Why the call is outside of the grants that there are.
    outside: Option<String>,
    /// The extent of answers that hold longer; `None` if the question cannot be answered here.
    scope: Option<String>,
    /// The same, as the object of a sentence.
    like: String,
    /// The origins of the data in the call.
    origins: Vec<OriginInWords>,
    /// The data that the session has had access to.
    read: Option<String>,
    /// Another person, in whose session the call waits, and the reason for the question. Answers hold once then.
    asker: Option<String>,
    /// The labels that an answer can give to the data of the server.
    labels: &'static [Label],
}

/// A grant that is proposed.
#[derive(Debug, Clone, Serialize)]
struct ProposedGrant {
    /// The answer that gives it.
    answer: String,
    covers: String,
}

/// An argument in full.
#[derive(Debug, Serialize)]
pub(super) struct WholeArgument {
    name: String,
    value: String,
    /// The number of characters that are not here, because no browser could show them.
    left_out: usize,
}

impl CallRow {
    /// `scope` says what answers that hold longer would cover, if the question can be answered here.
    pub(super) fn of(id: u64, call: &ShownCall, scope: Option<&str>) -> Self {
        Self {
            id,
            server: name(&call.server),
            tool: name(&call.tool),
            kind: call.question_of_ours(),
            arguments: cells(&call.arguments, call.is_ours()),
            compared: diff::compared(call).iter().map(|argument| name(argument)).collect(),
            behind: match &call.behind {
                Target::Command(words) => format!("a program on this machine: {}", visible::line(words)),
                Target::Url(url) => format!("a server at {}", visible::line(url)),
                Target::Kernel | Target::Host => String::new(),
            },
            hints: hints(call),
            changes: call.changes.as_deref().map(|changes| block(changes, TextUse::Text)),
            batch: call.batch.as_deref().map(|title| visible::shown(title, TextUse::Text)),
            grant: None,
            outside: None,
            scope: scope.map(visible::line),
            like: match &call.behind {
                Target::Kernel => "this very command".to_owned(),
                Target::Host => "this very request".to_owned(),
                Target::Command(_) | Target::Url(_) => {
                    format!("every call of {}.{}", name(&call.server), name(&call.tool))
                }
            },
            origins: call.origins.iter().map(shown_origin).collect(),
            read: call.read.as_deref().map(visible::line),
            asker: call.asker.as_deref().map(visible::line),
            labels: if call.takes_label() && call.asker.is_none() { &Label::ALL } else { &[] },
        }
    }

    /// With what is to be said of grants.
    pub(super) fn with_grants(self, offer: Option<&GrantOffer>, outside: Option<&str>) -> Self {
        let grant = offer.map(|GrantOffer { choice, covers, .. }| ProposedGrant {
            answer: visible::line(choice),
            covers: block(covers, TextUse::Text),
        });
        Self { grant, outside: outside.map(visible::line), ..self }
    }

    /// Whether a grant is proposed.
    pub(super) fn has_grant(&self) -> bool {
        self.grant.is_some()
    }

    /// Whether the call waits in another person's session.
    pub(super) fn is_of_another(&self) -> bool {
        self.asker.is_some()
    }

    /// Whether the question can be answered on the page.
    pub(super) fn can_be_answered(&self) -> bool {
        self.scope.is_some()
    }
}

/// The arguments of a call, in full. If there is no room for all, long ones are shortened, not those beside them.
pub(super) fn wholes(call: &ShownCall) -> Vec<WholeArgument> {
    let used = used(call.is_ours());
    let whole = |(argument, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => block(text, used),
            other => visible::json(&serde_json::to_string_pretty(other).unwrap_or_default()),
        };
        WholeArgument { name: name(argument), value, left_out: 0 }
    };
    let mut wholes: Vec<_> = call.arguments.iter().map(whole).collect();
    let mut shortest_first: Vec<_> = wholes.iter_mut().collect();
    shortest_first.sort_by_key(|whole| whole.value.len());
    let mut room = WHOLE_CHARS;
    let mut count = shortest_first.len();
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
pub(super) fn line(call: &ShownCall) -> String {
    let arguments = call.arguments.iter().map(|(argument, value)| {
        format!("{}={}", name(argument), people::argument(value, call.is_ours(), CELL_CHARS))
    });
    let line =
        format!("{}.{}({})", name(&call.server), name(&call.tool), arguments.collect::<Vec<_>>().join(", "));
    crate::ground::text::shortened(&line, 4 * CELL_CHARS)
}

fn shown_origin(origin: &OriginInWords) -> OriginInWords {
    let OriginInWords { argument, source, label, amount } = origin;
    let [argument, source, amount] = [argument, source, amount].map(|text| visible::line(text));
    OriginInWords { argument, source, label: *label, amount }
}

/// The server's hints about its tool; nothing enforces them.
fn hints(call: &ShownCall) -> Vec<&'static str> {
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
mod tests {
    use serde_json::json;

    use super::super::words::call_for_tests;
    use super::*;

    #[test]
    fn nothing_in_a_row_misleads() {
        let call =
            call_for_tests("s\u{200b}", json!({"a\u{430}": "x\u{202e}\u{1b}[2Jy\n", "n": [1, "\u{200b}"]}));
        let row = serde_json::to_value(CallRow::of(1, &call, Some("s"))).unwrap();
        assert_eq!(row["server"], r"'s\u200b'");
        assert_eq!(row["arguments"][0]["name"], r"'a\u0430'");
        assert_eq!(
            row["arguments"][0]["parts"],
            json!(["x", {"mark": r"\u202e"}, {"mark": r"\x1b"}, "[2Jy", {"mark": "↵"}])
        );
        assert_eq!(row["arguments"][1]["parts"], json!(["[1, \"", {"mark": r"\u200b"}, "\"]"]));
        assert_eq!(row["behind"], r"a program on this machine: npx \u202ex");
        assert_eq!(line(&call), r"'s\u200b'.t('a\u0430'='x\u202e\x1b[2Jy\n', n=[1, '\u200b'])");
    }

    #[test]
    fn long_texts_are_whole_on_demand() {
        let text = format!("{}\n\tend é\u{200b}", "x".repeat(5_000));
        let call = call_for_tests("s", json!({"text": text, "map": {"a": 1}}));
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
