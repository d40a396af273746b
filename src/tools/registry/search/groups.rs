//! Which tools there are, in few words: for a registration, and for queries without words.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::ops::Range;

use super::answer::{self, EntryDetail};
use super::entry::IndexEntry;
use ipybox_codegen::{self as codegen, Tool};

/// The number of tools of a server that are all shown when it is registered.
const SHOWN: usize = 20;
/// The length of what the answer of a registration says of them, in bytes.
const SHOWN_BYTES: usize = 5000;
/// The note for a model about tools that declare no result.
const NO_TYPE: &str = "\nA `ToolResult` is a string, with `attachments`. Where it is JSON, \
    `ipybox_runtime.infer_result(<tool>, result)` adds `<tool>.run_parsed`, which returns a model.";
/// The number of groups that are named, and of servers.
const GROUPS: usize = 12;
const SERVERS: usize = 40;
/// A word that more than this part of the names have, in hundredths, groups nothing.
const COMMON: usize = 60;
/// Words of names that say what is done, and not with what.
const VERBS: [&str; 30] = [
    "add", "api", "browser", "by", "bulk", "check", "close", "create", "delete", "edit", "execute", "fetch",
    "find", "for", "from", "get", "in", "list", "manage", "modify", "new", "open", "read", "remove", "run",
    "search", "set", "start", "to", "update",
];

/// The overview of a server's tools in the answer of a registration: the calls if they are few, else their groups.
pub(crate) fn calls_of(server: &str, tools: &[Tool]) -> String {
    let modules = codegen::module_names(tools);
    if tools.len() > SHOWN {
        return of_names(server, &modules.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let entries: Vec<IndexEntry> =
        tools.iter().zip(modules).map(|(tool, module)| IndexEntry::new(server, tool, module).0).collect();
    let entries: Vec<&IndexEntry> = entries.iter().collect();
    let mut text = answer::text(&entries, EntryDetail::Signature, SHOWN_BYTES);
    if tools.iter().any(|tool| tool.output_schema.is_none()) {
        text.push_str(NO_TYPE);
    }
    text
}

/// The servers, with the number of their tools.
pub(super) fn of_all(servers: &BTreeMap<String, Range<usize>>) -> String {
    if servers.is_empty() {
        return "no MCP server is registered; register one with `register_mcp_server`".to_owned();
    }
    let tools: usize = servers.values().map(ExactSizeIterator::len).sum();
    let shown = servers.iter().take(SERVERS);
    let mut names: Vec<_> = shown.map(|(name, entries)| format!("{name} {}", entries.len())).collect();
    names.extend((servers.len() > SERVERS).then(|| format!("{} more", servers.len() - SERVERS)));
    format!("{tools} tools: {}\n`search(\"what to do\")` finds some of them", names.join(", "))
}

/// The saved actions by their names, if there are some.
pub(super) fn of_actions(actions: &[IndexEntry]) -> Option<String> {
    let names: Vec<_> =
        actions.iter().take(SERVERS).map(|action| format!("{}.{}", action.module, action.server)).collect();
    (!names.is_empty()).then(|| format!("{} saved actions: {}", actions.len(), names.join(", ")))
}

/// The groups of a server's tools.
pub(super) fn of_server(server: &str, entries: &[IndexEntry]) -> String {
    of_names(server, &entries.iter().map(|entry| entry.module.as_str()).collect::<Vec<_>>())
}

fn of_names(server: &str, modules: &[&str]) -> String {
    let mut text = format!("{} tools in `mcptools.{server}`", modules.len());
    let (groups, others) = groups(modules);
    if groups.len() > 1 {
        let mut named: Vec<_> = groups.iter().map(|(word, count)| format!("{word} {count}")).collect();
        named.extend((others > 0).then(|| format!("others {others}")));
        let _infallible = write!(text, ", by the words of their names: {}", named.join(", "));
    }
    let _infallible = write!(
        text,
        "\n`from mcptools import search; search(\"what to do\", server=\"{server}\")` says how those that fit are called"
    );
    text
}

/// Words of names with the number of tools that they group, the largest group first, and how many tools are in none.
fn groups(modules: &[&str]) -> (Vec<(String, usize)>, usize) {
    let words_of = |module: &str| -> Vec<String> {
        let words = module.split('_').filter(|word| word.len() > 1 && VERBS.binary_search(word).is_err());
        words.map(singular).collect()
    };
    let mut left: Vec<Vec<String>> = modules.iter().map(|module| words_of(module)).collect();
    let mut groups = Vec::new();
    while groups.len() < GROUPS {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for words in &left {
            let mut seen: Vec<&str> = Vec::new();
            for word in words {
                if !seen.contains(&word.as_str()) {
                    seen.push(word);
                    *counts.entry(word).or_default() += 1;
                }
            }
        }
        let usual = |count: usize| groups.is_empty() && count * 100 > modules.len() * COMMON;
        if let Some((common, _)) = counts.iter().find(|(_, count)| usual(**count)) {
            let common = (*common).to_owned();
            left.iter_mut().for_each(|words| words.retain(|word| *word != common));
            continue;
        }
        let largest = counts.into_iter().max_by(|one, other| one.1.cmp(&other.1).then(other.0.cmp(one.0)));
        let Some((word, count)) = largest.filter(|(_, count)| *count > 1) else { break };
        let word = word.to_owned();
        left.retain(|words| !words.contains(&word));
        groups.push((word, count));
    }
    (groups, left.len())
}

/// A word without the `s` of the plural.
fn singular(word: &str) -> String {
    let is_plural = word.len() > 3 && !["ss", "us", "is"].iter().any(|ending| word.ends_with(ending));
    let word = if is_plural { word.strip_suffix('s').unwrap_or(word) } else { word };
    word.strip_suffix("ie").map_or_else(|| word.to_owned(), |root| format!("{root}y"))
}
