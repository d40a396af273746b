//! The imported servers, for people and for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use ipybox::{Emphasis, Import, ImportServer, ImportState};
use serde_json::{Value, json};

/// The end of the registration of a server.
pub(super) struct ImportOutcome {
    pub(super) tools: usize,
    pub(super) notes: Vec<String>,
    pub(super) error: Option<String>,
}

/// Prints what there is to import, and what is left out.
pub(super) fn list(import: &Import, replaces: bool) -> io::Result<()> {
    let mut out = crate::cli::stdout();
    let of = |state: ImportState| import.servers.iter().filter(move |server| server.state == state);
    if import.servers.is_empty() && import.left.is_empty() {
        writeln!(out, "No MCP servers are configured here. Looked for:")?;
        for path in &import.looked_for {
            writeln!(out, "  {}", path.display())?;
        }
        writeln!(out, "`--from FILE` takes another file.")?;
        return Ok(());
    }
    section(&mut out, "To import:", of(ImportState::New))?;
    let differing = if replaces {
        "To import in place of registrations with other parameters:"
    } else {
        "Registered with other parameters, and kept (`--replace` takes these):"
    };
    section(&mut out, differing, of(ImportState::Differs))?;
    let known: Vec<&str> = of(ImportState::Registered).map(|server| server.name.as_str()).collect();
    if !known.is_empty() {
        writeln!(out, "Registered already: {}", known.join(", "))?;
    }
    if !import.left.is_empty() {
        writeln!(out, "{}", Emphasis::Warning.of("Not taken:"))?;
        for left in &import.left {
            let name = Emphasis::Title.of(&left.name);
            writeln!(out, "  {name}  ({}, {})\n    {}", left.owner, left.path.display(), left.why)?;
        }
    }
    out.flush()
}

fn section<'a>(
    out: &mut impl Write,
    title: &str,
    servers: impl Iterator<Item = &'a ImportServer>,
) -> io::Result<()> {
    for (index, server) in servers.enumerate() {
        if index == 0 {
            writeln!(out, "{}", Emphasis::Title.of(title))?;
        }
        writeln!(out, "  {}  {}", Emphasis::Title.of(&server.name), server.what)?;
        if !server.settings.is_empty() {
            writeln!(out, "    with {}", server.settings.join(" "))?;
        }
        let origins = server.origins.iter().map(|(owner, path)| format!("{owner} ({})", path.display()));
        writeln!(out, "    from {}", origins.collect::<Vec<_>>().join(", "))?;
        if !server.secrets.is_empty() {
            writeln!(out, "    secrets in clear text, to be kept apart: {}", server.secrets.join(", "))?;
        }
        for note in &server.notes {
            writeln!(out, "    {note}")?;
        }
    }
    Ok(())
}

/// Prints how many were registered, how to go on, and which were not.
pub(super) fn summary(outcomes: &BTreeMap<String, ImportOutcome>) -> io::Result<()> {
    let mut out = crate::cli::stdout();
    let (ready, failed): (Vec<_>, Vec<_>) = outcomes.iter().partition(|(_, outcome)| outcome.error.is_none());
    let tools: usize = outcomes.values().map(|outcome| outcome.tools).sum();
    writeln!(out, "Registered: {} with {}.", count(ready.len(), "server"), count(tools, "tool"))?;
    if let Some((name, _)) = ready.first() {
        writeln!(out, "Code finds them: `from mcptools.{name} import …`, `from mcptools import search`.")?;
    }
    if !failed.is_empty() {
        let names: Vec<String> = failed.iter().map(|(name, _)| Emphasis::Bad.of(name)).collect();
        writeln!(
            out,
            "Not registered: {}. Why is said above; `ipybox import` tries them again.",
            names.join(", ")
        )?;
    }
    out.flush()
}

/// Prints everything as one JSON object.
pub(super) fn json(import: &Import, outcomes: &BTreeMap<String, ImportOutcome>) -> io::Result<()> {
    let server = |server: &ImportServer| {
        let outcome = outcomes.get(&server.name);
        let status = match (server.state, outcome) {
            (_, Some(outcome)) if outcome.error.is_none() => "registered",
            (_, Some(_)) => "failed",
            (ImportState::New, None) => "offered",
            (ImportState::Registered, None) => "known",
            (ImportState::Differs, None) => "differs",
        };
        let origins = server.origins.iter();
        let origins =
            origins.map(|(owner, path)| json!({"client": owner, "file": path.display().to_string()}));
        let mut object = json!({
            "name": server.name,
            "original_name": server.original,
            "status": status,
            "target": server.what,
            "settings": server.settings,
            "origins": origins.collect::<Vec<_>>(),
            "secrets": server.secrets,
            "notes": server.notes,
        });
        if let Some(outcome) = outcome {
            object["tools"] = json!(outcome.tools);
            object["registration_notes"] = json!(outcome.notes);
            object["error"] = json!(outcome.error);
        }
        object
    };
    let left = import.left.iter().map(|left| {
        let file = left.path.display().to_string();
        json!({"name": left.name, "client": left.owner, "file": file, "why": left.why})
    });
    let document = json!({
        "servers": import.servers.iter().map(server).collect::<Vec<Value>>(),
        "left_out": left.collect::<Vec<Value>>(),
        "unreadable": import.unreadable,
    });
    let mut out = crate::cli::stdout();
    writeln!(out, "{document:#}")?;
    out.flush()
}

/// `1 tool`, `2 tools`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
