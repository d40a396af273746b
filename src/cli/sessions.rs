//! Sessions that outlive their clients: their processes, and `ipybox sessions`.

use std::time::Duration;

use anyhow::Context as _;
use ipybox::lasting::{self, KeepRules, KeptSession, KeptSessions};
use ipybox::telemetry::exporting;
use ipybox::{Emphasis, LimitUse, Settings};

use super::serve_args::{ServeArgs, SessionKeeperArgs};
use super::session_args::{SessionsAction, SessionsArgs};
use super::{greeting, multi_threaded, print, print_message, single_threaded};

const RESULT: &str = "write the result";

const NONE_KEPT: &str = "No session is kept.\n\
                         A client's session is if its entry has `--keep-session 30m`: until then after the client's end.\n";

/// The time that a session is held that was not to be kept: until its client ends.
const NOT_KEPT: Duration = Duration::from_secs(1);

/// Whether the session is to be held by a process of its own.
pub(crate) fn is_kept(args: &ServeArgs) -> bool {
    let is_container = std::env::var_os(ipybox::env::IPYBOX_CONTAINER).is_some();
    if is_container && args.lasting.keep_session.is_some() {
        tracing::warn!("`--keep-session` has no effect in the container image: the container is the session");
    }
    args.lasting.keep_session.is_some() && !is_container
}

/// Serves a client with a session that outlives it.
pub(crate) fn relay(args: ServeArgs) -> anyhow::Result<()> {
    let keep = args.lasting.keep_session.unwrap_or(NOT_KEPT);
    let front = args.lasting.front.clone();
    let settings = Settings::from(args);
    let workspace = settings.workspace.canonicalize().unwrap_or_else(|_| settings.workspace.clone());
    let runtime = single_threaded()?;
    let relaying = Box::pin(lasting::relay(settings, keep, std::env::args_os().skip(1).collect(), front));
    let relayed = runtime.block_on(greeting::greeting(&workspace, relaying));
    // A read of a terminal cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    Ok(relayed?)
}

/// Holds a session.
pub(crate) fn keep(args: SessionKeeperArgs) -> anyhow::Result<()> {
    let lasting = &args.serve.lasting;
    let keep = KeepRules::new(lasting.keep_session.unwrap_or(NOT_KEPT), args.entry, lasting.front.clone());
    let runtime = multi_threaded()?;
    Ok(runtime.block_on(exporting(lasting::keep_session((*args.serve).into(), keep)))?)
}

/// Lists sessions, shows one or ends them.
pub(crate) fn run(args: SessionsArgs) -> anyhow::Result<()> {
    let sessions = KeptSessions::open(args.state_dir)?;
    match args.action {
        None => {
            let found = sessions.list()?;
            print(&if args.json { json(&found)? } else { table(&found) }, RESULT)
        }
        Some(SessionsAction::Show { id }) => {
            let found = sessions.find(&id)?;
            print(&if args.json { json(&found)? } else { details(&found) }, RESULT)
        }
        Some(SessionsAction::End { ids, all }) => {
            let ids = if all { sessions.list()?.into_iter().map(|each| each.id).collect() } else { ids };
            let mut ended = Vec::new();
            let mut failed = None;
            for id in ids {
                match sessions.end(&id, all) {
                    Ok(true) => {
                        print_message(&format!("session `{id}` has ended"));
                        ended.push(id);
                    }
                    Ok(false) => print_message(&format!("session `{id}` has a client, and goes on")),
                    // It has ended by itself since it was listed.
                    Err(lasting::Error::Unknown { .. }) if all => {}
                    // The other ones end all the same.
                    Err(error) => {
                        if let Some(earlier) = failed.replace(anyhow::Error::from(error)) {
                            print_message(&format!("{earlier:#}"));
                        }
                    }
                }
            }
            if ended.is_empty() && failed.is_none() {
                print_message("no session was ended: none is kept without a client");
            }
            print(&if args.json { json(&ended)? } else { String::new() }, RESULT)?;
            failed.map_or(Ok(()), Err)
        }
    }
}

fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let json = serde_json::to_string_pretty(value).context("write JSON")?;
    Ok(json + "\n")
}

fn table(sessions: &[KeptSession]) -> String {
    if sessions.is_empty() {
        return NONE_KEPT.to_owned();
    }
    let titles = format!("{:<10}{:<9}{:<9}{:<34}{}", "ID", "AGE", "MEMORY", "STATE", "WORKSPACE");
    let mut text = Emphasis::Title.of(&titles) + "\n";
    for session in sessions {
        let KeptSession { id, seconds, workspace, .. } = session;
        let memory = memory(session);
        let state = state(session);
        let age = time(*seconds);
        text.push_str(&format!("{id:<10}{age:<9}{memory:<9}{state:<34}{}\n", path(workspace)));
    }
    text
}

fn details(session: &KeptSession) -> String {
    let mut text = format!(
        "Session    {}\nWorkspace  {}\nState      {}\nAge        {}\nMemory     {}\nProcess    {}\nLog        {}\n",
        session.id,
        path(&session.workspace),
        state(session),
        time(session.seconds),
        memory(session),
        session.process,
        session.log.display(),
    );
    for limit in &session.limits {
        text.push_str(&format!("Limit      {}\n", limit_in_words(limit)));
    }
    if let Some(notebook) = &session.notebook {
        text.push_str(&format!("Notebook   {}\n", path(notebook)));
    }
    for call in &session.calls {
        text.push_str(&format!("Call       {call}\n"));
    }
    text
}

fn state(session: &KeptSession) -> String {
    let cells = match session.open_cells {
        0 => String::new(),
        1 => "runs a cell, ".to_owned(),
        cells => format!("runs {cells} cells, "),
    };
    let people = match session.people {
        0 => "",
        _ => ", is attached to",
    };
    match session.seconds_left {
        _ if !session.answers => "does not answer".to_owned(),
        None if session.is_attended => format!("{cells}has a client{people}"),
        None => format!("{cells}is attached to"),
        Some(left) => format!("{cells}waits {} more", time(left)),
    }
}

fn memory(session: &KeptSession) -> String {
    session.memory_bytes.map_or_else(|| "?".to_owned(), |bytes| format!("{} MB", bytes / 1_000_000))
}

fn limit_in_words(limit: &LimitUse) -> String {
    let used = limit.used.map_or_else(String::new, |used| match limit.name.as_str() {
        "memory" | "disk" => format!("{} MB of ", used / 1_000_000),
        _ => format!("{used} of "),
    });
    let most = match limit.name.as_str() {
        name @ ("memory" | "disk") => format!("{} MB of {name}", limit.limit / 1_000_000),
        "cpu" => format!("{} processors", limit.limit as f64 / 1000.0),
        name => format!("{} {name}", limit.limit),
    };
    let extent = if limit.is_whole { "" } else { ", for each process alone" };
    format!("{used}{most}{extent}")
}

fn time(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200.. => format!("{} h", seconds / 3600),
    }
}

/// A path on one line, without what a terminal would act on.
fn path(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}
