//! The report as text for people. Pure.

use std::collections::BTreeMap;
use std::fmt;

use super::report::{AuditReport, records};
use super::tally::{SessionTally, ToolTally};
use crate::ground::text::Emphasis;
use crate::ground::text::visible::line;

/// The part of a report that is about the chain.
struct ChainSummary<'a>(&'a AuditReport);

impl AuditReport {
    /// The findings about the chain, in words.
    pub fn summary(&self) -> String {
        ChainSummary(self).to_string()
    }
}

impl fmt::Display for AuditReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ChainSummary(self), formatter)?;
        self.tally.sessions.iter().try_for_each(|(id, session)| show_session(formatter, id, session))
    }
}

impl fmt::Display for ChainSummary<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let findings = &report.findings;
        let sessions = match findings.sessions {
            1 => "1 session".to_owned(),
            count => format!("{count} sessions"),
        };
        match report.break_count {
            0 if findings.records == 0 => {
                let nothing = Emphasis::Warning.within(formatter, "nothing can be verified");
                writeln!(formatter, "{nothing}: no record has a hash")?
            }
            0 => {
                let whole = Emphasis::Good.within(formatter, "the chain is whole");
                writeln!(formatter, "{whole}: {} of {sessions}", records(findings.records))?
            }
            count => {
                let broken = Emphasis::Bad.within(formatter, "THE CHAIN IS BROKEN");
                writeln!(formatter, "{broken}, in {count} place{}", if count == 1 { "" } else { "s" })?
            }
        }
        for found in &report.breaks {
            match found.place {
                Some(place) => write!(formatter, "  {} line {}: ", report.names[place.part], place.line)?,
                None => write!(formatter, "  ")?,
            }
            writeln!(formatter, "{}: {}", found.kind.word(), found.words)?;
        }
        if report.break_count > report.breaks.len() as u64 {
            writeln!(formatter, "  and {} more", report.break_count - report.breaks.len() as u64)?;
        }
        if let Some(head) = findings.head {
            writeln!(formatter, "head: {head}")?;
        }
        let note = Emphasis::Warning.within(formatter, "note");
        report.notes().iter().try_for_each(|words| writeln!(formatter, "{note}: {words}"))?;
        Ok(())
    }
}

fn show_session(formatter: &mut fmt::Formatter<'_>, id: &str, session: &SessionTally) -> fmt::Result {
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    writeln!(formatter, "\n{}", Emphasis::Title.within(formatter, &format!("session {}", line(id))))?;
    let end = if session.has_ended { "ended" } else { "no end" };
    writeln!(formatter, "  {} to {} ({end})", or_unknown(&session.begun), or_unknown(&session.last))?;
    if let Some(face) = &session.face {
        let version = or_unknown(&session.version);
        let workspace = or_unknown(&session.workspace);
        writeln!(formatter, "  ipybox {version}, {face}, in {workspace}")?;
    }
    if session.cells > 0 {
        writeln!(formatter, "  cells: {} ({})", session.cells, counts(&session.cell_ends))?;
    }
    if session.events_lost > 0 {
        let lost = Emphasis::Bad.within(formatter, "LOST");
        writeln!(formatter, "  {lost}: {} events could not be written", session.events_lost)?;
    }
    if !session.decisions.is_empty() {
        writeln!(formatter, "  decided: {}", counts(&session.decisions))?;
    }
    let mut servers: BTreeMap<&str, Vec<(&str, &ToolTally)>> = BTreeMap::new();
    for ((server, tool), tally) in &session.tools {
        servers.entry(server).or_default().push((tool, tally));
    }
    for (server, tools) in servers {
        writeln!(formatter, "  {}", Emphasis::Title.within(formatter, server))?;
        tools.iter().try_for_each(|(tool, tally)| show_tool(formatter, tool, tally))?;
    }
    Ok(())
}

fn show_tool(formatter: &mut fmt::Formatter<'_>, tool: &str, tally: &ToolTally) -> fmt::Result {
    let ToolTally { permitted, denied, failed, cancelled, .. } = tally;
    let counted = |count: u64, word: &str, formatter: &fmt::Formatter<'_>| {
        let words = format!("{count} {word}");
        if count > 0 { Emphasis::Warning.within(formatter, &words) } else { words }
    };
    let denied = counted(*denied, "denied", formatter);
    let failed = counted(*failed, "failed", formatter);
    write!(formatter, "    {tool}: {permitted} permitted, {denied}, {failed}")?;
    if *cancelled > 0 {
        write!(formatter, ", {cancelled} cancelled")?;
    }
    writeln!(formatter, " ({})", counts(&tally.decisions))?;
    for write in &tally.writes {
        let cell = write.cell.map(|cell| format!(" cell {cell}")).unwrap_or_default();
        let outcome = write.outcome.as_deref().unwrap_or("no end");
        writeln!(
            formatter,
            "      {}{cell}  {}  [{}; {outcome}]",
            write.time, write.arguments, write.decided
        )?;
    }
    match tally.may_have_written.saturating_sub(tally.writes.len() as u64) {
        0 => Ok(()),
        more => writeln!(formatter, "      and {more} more"),
    }
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    counts.join(", ")
}
