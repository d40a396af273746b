//! Answers as text for a model: as much as a call needs, within bounds.

use std::fmt::Write as _;

use super::SearchQuery;
use super::entry::{EntryKind, IndexEntry};
use crate::ground::text::{backticked, one_line};
use crate::tools::servers::query::LIMIT;

/// The longest answer, in bytes, if it has no more tools than by default: below 600 tokens. More tools may have more.
const ANSWER_BYTES: usize = 1800;
/// The longest text about saved actions, in bytes, which follows.
const ACTIONS_BYTES: usize = 900;
/// The part of that which is left for the names of tools that do not fit.
const NAMES_BYTES: usize = 240;

/// The number of a query's words without a tool that are named, and how much of each, in characters.
const UNKNOWN: usize = 6;
const UNKNOWN_CHARS: usize = 30;

/// The amount that an answer says of each tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryDetail {
    /// Its name, and what it does.
    Names,
    /// The call in one line, with types and defaults.
    Signature,
    /// The text of `print(module)`: parameters with explanations, and the result's fields.
    Module,
}

/// The tools, or the saved actions, that fit a query.
pub(super) struct SearchMatches<'i> {
    /// The best ones, in order.
    pub(super) best: Vec<&'i IndexEntry>,
    /// The number of all of them.
    pub(super) matched: usize,
    /// The number that were searched.
    pub(super) searched: usize,
    /// The words of the query that no tool has.
    pub(super) unknown: Vec<&'i str>,
}

/// The answer with the tools that fit, of which at most `limit` were asked for. One alone is explained.
pub(super) fn of_matches(matches: &SearchMatches<'_>, limit: usize) -> String {
    let detail = if limit == 1 { EntryDetail::Module } else { EntryDetail::Signature };
    let most = ANSWER_BYTES * limit.max(LIMIT) / LIMIT;
    let count = count(matches, "tools");
    text(&matches.best, detail, most - count.len() - 1) + "\n" + &count
}

/// The part of an answer with the saved actions that fit.
pub(super) fn of_actions(matches: &SearchMatches<'_>) -> String {
    text(&matches.best, EntryDetail::Signature, ACTIONS_BYTES) + "\n" + &count(matches, "saved actions")
}

/// The last line: how many fit of how many, and which words of the query had no part in it. Another search for the
/// same would find nothing else.
fn count(matches: &SearchMatches<'_>, things: &str) -> String {
    let SearchMatches { best, matched, searched, unknown } = matches;
    let mut line = format!("# {matched} of {searched} {things} fit");
    if best.len() < *matched {
        let _infallible = write!(line, ", the best {}", best.len());
    }
    let mut named: Vec<String> = Vec::new();
    for word in unknown {
        let word: String = word.chars().take(UNKNOWN_CHARS).collect();
        if !named.contains(&word) {
            named.push(word);
        }
    }
    named.truncate(UNKNOWN);
    if !named.is_empty() {
        let _infallible = write!(line, "; none has {}", backticked(&named));
    }
    line
}

/// The tools in at most `most` bytes: those that do not fit by their names. The first is always there.
pub(super) fn text(tools: &[&IndexEntry], detail: EntryDetail, most: usize) -> String {
    let mut imported: Vec<(&str, &str)> = Vec::new();
    let mut text = String::new();
    let mut left_out: Vec<String> = Vec::new();
    for entry in tools {
        let shown = shown(entry, detail);
        let room = most.saturating_sub(NAMES_BYTES + text.len() + imports(&imported).len());
        if shown.len() > room && (detail == EntryDetail::Names || !text.is_empty()) {
            left_out.push(entry.path());
            continue;
        }
        let shown = &shown[..shown.floor_char_boundary(room)];
        text.push_str(shown.trim_end());
        text.push('\n');
        let import = (entry.package(), entry.server.as_str());
        if !imported.contains(&import) {
            imported.push(import);
        }
    }
    if detail != EntryDetail::Names {
        text.insert_str(0, &imports(&imported));
    }
    append_names(&mut text, "also", &left_out, most);
    text.trim_end().to_owned()
}

/// A line for each package, with the names that come from it.
fn imports(imported: &[(&str, &str)]) -> String {
    let mut packages: Vec<&str> = Vec::new();
    for (package, _) in imported {
        if !packages.contains(package) {
            packages.push(package);
        }
    }
    let line = |package: &str| {
        let names = imported.iter().filter(|(other, _)| *other == package).map(|(_, name)| *name);
        format!("from {package} import {}\n", names.collect::<Vec<_>>().join(", "))
    };
    packages.into_iter().map(line).collect()
}

fn shown(entry: &IndexEntry, detail: EntryDetail) -> String {
    let path = entry.path();
    let call = &entry.call;
    match detail {
        EntryDetail::Names if call.summary.is_empty() => path,
        EntryDetail::Names => format!("{path}: {}", call.summary),
        EntryDetail::Signature => {
            let mut line = match entry.kind {
                EntryKind::Tool => format!("{path}.run{}", call.signature),
                EntryKind::Action => format!("{path}.{}", call.signature),
            };
            if !call.summary.is_empty() {
                let _infallible = write!(line, "  # {}", call.summary);
            }
            for class in call.classes.lines() {
                let _infallible = write!(line, "\n  {class}");
            }
            line
        }
        EntryDetail::Module => format!("{path}: {}\n", call.overview),
    }
}

/// Adds names on a line, as many as there is room for.
pub(super) fn append_names(text: &mut String, title: &str, names: &[String], most: usize) {
    for (position, name) in names.iter().enumerate() {
        let separator = if position == 0 { format!("{title}: ") } else { ", ".to_owned() };
        if text.len() + separator.len() + name.len() > most {
            let _infallible = write!(text, " and {} more", names.len() - position);
            return;
        }
        text.push_str(&separator);
        text.push_str(name);
    }
}

/// The answer if no tool has a word of the query, with those whose words are most like it, of `searched` tools.
pub(super) fn of_nothing(query: &SearchQuery, near: &[&IndexEntry], searched: usize) -> String {
    let place = match (&query.server, searched) {
        (None, 0) => {
            return "no MCP server is registered; register one with `register_mcp_server`".to_owned();
        }
        (Some(server), _) => format!("the {searched} tools of `{server}`"),
        (None, _) => format!("the {searched} registered tools"),
    };
    let mut text = format!("none of {place} fits `{}`", one_line(&query.query));
    if near.is_empty() {
        text.push_str("; try other words, or an empty query to see what there is");
    } else {
        text.push_str("; the nearest:\n");
        text.push_str(&self::text(near, EntryDetail::Names, ANSWER_BYTES));
    }
    text
}
