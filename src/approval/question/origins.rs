//! The origins of the data in calls, in words for a question.

use std::fmt::Write;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::approval::action::{Action, as_python};
use crate::approval::provenance::{Found, Label, Origin, Provenance};

/// The number of origins that a question names, and more if they have labels that these have not.
const NAMED: usize = 3;

/// The number of runs of rows that are named of an origin.
const RUNS: usize = 12;

/// An origin of data in one or more calls.
struct NamedOrigin<'a> {
    origin: &'a Origin,
    /// The numbers of the calls, in order.
    rows: Vec<usize>,
    found: Found,
}

/// The lines of a question about the data in calls, whose rows are numbered from `first` on if they are rows. Empty if nothing is
/// known.
pub(crate) fn provenance(actions: &[&Action], first: Option<usize>) -> String {
    let mut text = String::new();
    let named = named(actions, first.unwrap_or_default());
    let selected = selected(&named);
    if !selected.is_empty() {
        let lines: Vec<String> = selected.iter().map(|named| line(named, first.is_some())).collect();
        let _infallible = write!(text, "\n\nAs far as can be seen, {}", lines.join("; "));
        let left_out = named.len() - selected.len();
        if left_out > 0 {
            let _infallible = write!(text, "; and {left_out} more");
        }
        text.push('.');
    }
    if let Some(read) = actions.iter().find_map(|action| read_in_words(action.known.as_deref()?)) {
        let is_batch = actions.iter().any(|action| action.batch.is_some());
        let has_had = if is_batch { "When this runs, this session" } else { "This session" };
        let _infallible = write!(text, "\n\n{has_had} has had access to {read}.");
    }
    text
}

/// The origins in the calls, those that matter most first.
fn named<'a>(actions: &[&'a Action], first: usize) -> Vec<NamedOrigin<'a>> {
    let mut all: Vec<NamedOrigin<'a>> = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        let origins = action.known.iter().flat_map(|known| &known.origins);
        for origin in origins.filter(|origin| origin.label != Some(Label::Trusted)) {
            let same = all.iter_mut().find(|named| {
                let other = named.origin;
                (&other.argument, &other.server, &other.tool, other.label)
                    == (&origin.argument, &origin.server, &origin.tool, origin.label)
            });
            match same {
                Some(named) => named.add(first + index, origin.found),
                None => all.push(NamedOrigin { origin, rows: vec![first + index], found: origin.found }),
            }
        }
    }
    all.sort_by_key(|named| std::cmp::Reverse((named.origin.strictness(), named.found)));
    all
}

/// The origins that a question names: the first, and one of each label that only others have.
fn selected<'a, 'b>(named: &'b [NamedOrigin<'a>]) -> Vec<&'b NamedOrigin<'a>> {
    let (first, others) = named.split_at(named.len().min(NAMED));
    let mut selected: Vec<&NamedOrigin<'_>> = first.iter().collect();
    for other in others {
        let label = other.origin.label;
        if label.is_some() && selected.iter().all(|one| one.origin.label != label) {
            selected.push(other);
        }
    }
    selected
}

fn line(NamedOrigin { origin, rows, found }: &NamedOrigin<'_>, are_rows: bool) -> String {
    let what = match *found {
        Found::Bytes(bytes) => format!("about {} that came", size(bytes)),
        Found::Values(1) => "a value that came".to_owned(),
        Found::Values(values) => format!("{values} values that came"),
    };
    let (place, what) = match &rows[..] {
        [row] if are_rows => (format!("row {row}: "), what),
        rows if are_rows => (format!("rows {}: ", listed(rows)), format!("together {what}")),
        _ => (String::new(), what),
    };
    let label = origin.label.map(|label| format!(" ({})", label.word())).unwrap_or_default();
    let argument = &origin.argument;
    let server = &origin.server;
    let tool = &origin.tool;
    let argument = match argument.as_str() {
        Origin::TOOL_NAME => "the name of the tool".to_owned(),
        argument => format!("`{}`", as_python::name(argument)),
    };
    format!("{place}{argument} has {what} from {}.{}{label}", as_python::name(server), as_python::name(tool))
}

impl NamedOrigin<'_> {
    /// Another call has it too.
    fn add(&mut self, row: usize, found: Found) {
        if self.rows.last() != Some(&row) {
            self.rows.push(row);
        }
        self.found = match (self.found, found) {
            (Found::Bytes(one), Found::Bytes(other)) => Found::Bytes(one.saturating_add(other)),
            (Found::Values(one), Found::Values(other)) => Found::Values(one.saturating_add(other)),
            // A run of text is better evidence than single values.
            (one, other) => one.max(other),
        };
    }
}

/// Numbers in order, those that follow each other as `2–5`.
fn listed(rows: &[usize]) -> String {
    let mut runs: Vec<RangeInclusive<usize>> = Vec::new();
    for &row in rows {
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == row => *run = *run.start()..=row,
            _ => runs.push(row..=row),
        }
    }
    let left_out: usize = runs.iter().skip(RUNS).map(|run| run.clone().count()).sum();
    let run = |run: &RangeInclusive<usize>| match run.end() - run.start() {
        0 => run.start().to_string(),
        1 => format!("{}, {}", run.start(), run.end()),
        _ => format!("{}–{}", run.start(), run.end()),
    };
    let text = runs.iter().take(RUNS).map(run).collect::<Vec<_>>().join(", ");
    if left_out > 0 { format!("{text} and {left_out} more") } else { text }
}

/// The origin of data in a call, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OriginInWords {
    /// The argument, as a call shows its name; empty for the name of the tool.
    pub argument: String,
    /// The tool that has returned the data.
    pub source: String,
    /// The label of its server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// The amount that has been found: `about 40 bytes`, `3 values`.
    pub amount: String,
}

/// The origins of the data in a call that are not trusted, those that matter most first.
pub(crate) fn origins_in_words(known: &Provenance) -> Vec<OriginInWords> {
    let mut origins: Vec<&Origin> =
        known.origins.iter().filter(|origin| origin.label != Some(Label::Trusted)).collect();
    origins.sort_by_key(|origin| std::cmp::Reverse((origin.strictness(), origin.found)));
    let in_words = |origin: &Origin| OriginInWords {
        argument: match origin.argument.as_str() {
            Origin::TOOL_NAME => String::new(),
            argument => as_python::name(argument),
        },
        source: format!("{}.{}", as_python::name(&origin.server), as_python::name(&origin.tool)),
        label: origin.label,
        amount: match origin.found {
            Found::Bytes(bytes) => format!("about {}", size(bytes)),
            Found::Values(1) => "a value".to_owned(),
            Found::Values(values) => format!("{values} values"),
        },
    };
    origins.into_iter().map(in_words).collect()
}

/// The labels of what a session had access to that matter, with the servers, and why a call is asked about again.
pub(crate) fn read_in_words(known: &Provenance) -> Option<String> {
    let relevant = known.read.iter().filter(|(label, _)| **label != Label::Trusted);
    let parts: Vec<String> = relevant
        .map(|(label, servers)| {
            let servers: Vec<String> = servers.iter().map(|server| as_python::name(server)).collect();
            format!("{} data from {}", label.word(), servers.join(", "))
        })
        .collect();
    let read = (!parts.is_empty()).then(|| parts.join(" and "));
    let Some(why) = &known.asked_again else { return read };
    let read = read.unwrap_or_else(|| "no labelled data".to_owned());
    Some(format!("{read}. You are asked again about this call: {why}"))
}

/// A size for people.
fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, Value, json};

    use super::*;
    use crate::approval::action::Target;

    /// A call with these origins: argument, server, label, bytes.
    fn action(origins: &[(&str, &str, Option<&str>, usize)]) -> Action {
        let origins: Vec<Value> = origins
            .iter()
            .map(|(argument, server, label, bytes)| {
                let found = json!({"bytes": bytes});
                json!({"argument": argument, "server": server, "tool": "read", "label": label, "found": found})
            })
            .collect();
        let known: Provenance = serde_json::from_value(json!({"origins": origins})).unwrap();
        let target = Target::Command("c".to_owned());
        let action = Action::new("chat".to_owned(), "post".to_owned(), Map::new(), target);
        Action { known: Some(Arc::new(known)), ..action }
    }

    #[track_caller]
    fn check(actions: &[Action], first: Option<usize>, expected: &str) {
        let actions: Vec<&Action> = actions.iter().collect();
        let expected = match expected {
            "" => String::new(),
            expected => format!("\n\nAs far as can be seen, {expected}."),
        };
        assert_eq!(provenance(&actions, first), expected);
    }

    #[test]
    fn what_matters_comes_first_and_is_never_left_out() {
        let harmless = [("a", "notes", None, 900), ("b", "notes", None, 800), ("c", "notes", None, 700)];
        let mut all = harmless.to_vec();
        all.extend([("d", "web", Some("untrusted"), 50), ("e", "mail", Some("confidential"), 40)]);
        check(
            &[action(&all)],
            None,
            "`e` has about 40 bytes that came from mail.read (confidential); `d` has about 50 bytes that came from web.read \
             (untrusted); `a` has about 900 bytes that came from notes.read; and 2 more",
        );
        let mails: Vec<_> = ["a", "b", "c", "d"].map(|name| (name, "mail", Some("confidential"), 90)).into();
        let mails = [&mails[..], &[("e", "web", Some("untrusted"), 50)]].concat();
        let actions = [action(&mails)];
        let text = provenance(&[&actions[0]], None);
        assert!(
            text.contains("`e` has about 50 bytes that came from web.read (untrusted); and 1 more."),
            "{text}"
        );
    }

    #[test]
    fn trusted_data_is_not_mentioned() {
        check(&[action(&[("a", "notes", Some("trusted"), 900)])], None, "");
    }

    #[test]
    fn the_name_of_the_tool_is_no_argument() {
        check(
            &[action(&[(Origin::TOOL_NAME, "mail", Some("confidential"), 90)])],
            None,
            "the name of the tool has about 90 bytes that came from mail.read (confidential)",
        );
    }

    #[test]
    fn rows_with_the_same_are_named_together() {
        let from_mail = || action(&[("text", "mail", Some("confidential"), 600)]);
        let other = || action(&[("text", "notes", None, 900)]);
        check(
            &[other(), from_mail(), other(), action(&[]), from_mail()],
            Some(5),
            "rows 6, 9: `text` has together about 1.2 KB that came from mail.read (confidential); rows 5, 7: `text` has \
             together about 1.8 KB that came from notes.read",
        );
        check(
            &[action(&[]), from_mail()],
            Some(1),
            "row 2: `text` has about 600 bytes that came from mail.read (confidential)",
        );
        assert_eq!(listed(&[1, 2, 3, 7, 8, 10]), "1–3, 7, 8, 10");
        let odd: Vec<usize> = (0..40).map(|number| 2 * number).collect();
        assert!(listed(&odd).ends_with("20, 22 and 28 more"), "{}", listed(&odd));
    }
}
