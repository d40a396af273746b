//! `ipybox import`: shows what other clients have, asks, and registers it.
//!
//! The list and the results go to stdout, questions and progress to stderr.

mod args;
mod ask;
mod progress;
mod show;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use ipybox::{Import, ImportEvent, ImportServer, ImportState, Importer, SandboxSettings, Settings};
use parking_lot::Mutex;

pub(super) use self::args::ImportArgs;
use self::progress::{ImportProgress, ImportResults};
use self::show::ImportOutcome;
use super::signals::EndSignals;
use super::{multi_threaded, print_message};

/// The exit code of a program that SIGINT has ended.
const INTERRUPTED: u8 = 130;

pub(super) fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let mut import = Import::read(&args.workspace, args.state_dir.clone(), &args.from)?;
    narrow(&mut import, &args.names)?;
    let is_wanted = |server: &&ImportServer| {
        server.state == ImportState::New || (args.replace && server.state == ImportState::Differs)
    };
    let wanted: Vec<ImportServer> = import.servers.iter().filter(is_wanted).cloned().collect();
    let readable = if import.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if !args.json {
        show::list(&import, args.replace).context("print the list")?;
    }
    for problem in &import.unreadable {
        print_message(&format!("failed to {problem}"));
    }
    let chosen = if args.dry_run || wanted.is_empty() {
        Vec::new()
    } else if args.yes {
        let is_named = !args.names.is_empty() || !args.from.is_empty();
        if is_named { wanted } else { without_exposed(wanted) }
    } else if !args.json && ask::can_ask() {
        ask::choose(&wanted).context("ask")?
    } else {
        print_message(
            "nothing was imported, since nobody can be asked here: `--yes` imports all of the list, or only the names that you give",
        );
        if args.json {
            show::json(&import, &BTreeMap::new()).context("print the servers")?;
        }
        return Ok(ExitCode::FAILURE);
    };
    if chosen.is_empty() {
        if args.json {
            show::json(&import, &BTreeMap::new()).context("print the servers")?;
        }
        return Ok(readable);
    }
    let outcomes = register(&args, &chosen)?;
    if args.json {
        show::json(&import, &outcomes).context("print the results")?;
    } else {
        show::summary(&outcomes).context("print the results")?;
    }
    if outcomes.len() < chosen.len() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let has_failed = outcomes.values().any(|outcome| outcome.error.is_some());
    Ok(if has_failed { ExitCode::FAILURE } else { readable })
}

/// Leaves out servers from files that code could write: `--yes` alone is no consent to what code has written.
fn without_exposed(wanted: Vec<ImportServer>) -> Vec<ImportServer> {
    let (exposed, trusted): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|server| !server.exposed.is_empty());
    for server in exposed {
        let files: Vec<String> = server.exposed.iter().map(|file| format!("`{}`", file.display())).collect();
        print_message(&format!(
            "`{name}` was left out: code in the sandbox of an earlier session could write {}. If it is yours, give its name: \
             `ipybox import {name} --yes`",
            files.join(", "),
            name = server.name,
        ));
    }
    trusted
}

/// Leaves the servers of these names, or all if there are none.
fn narrow(import: &mut Import, names: &[String]) -> anyhow::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    for name in names {
        let is_it = |server: &&ImportServer| server.name == *name || server.original == *name;
        if !import.servers.iter().any(|server| is_it(&server)) {
            let known: Vec<String> =
                import.servers.iter().map(|server| format!("`{}`", server.name)).collect();
            if known.is_empty() {
                anyhow::bail!("import `{name}`: no MCP servers are configured here");
            }
            anyhow::bail!("import `{name}`: there is no such server; there are {}", known.join(", "));
        }
    }
    import.servers.retain(|server| names.contains(&server.name) || names.contains(&server.original));
    Ok(())
}

/// Registers servers until a signal ends it.
fn register(args: &ImportArgs, servers: &[ImportServer]) -> anyhow::Result<BTreeMap<String, ImportOutcome>> {
    let mut settings = Settings::default();
    settings.workspace = args.workspace.clone();
    settings.state_dir = args.state_dir.clone();
    settings.tool_server.connect_timeout = args.connect_timeout;
    settings.sandbox = args.sandbox.then(|| {
        let mut sandbox = SandboxSettings::default();
        sandbox.gateway_program = std::env::current_exe().ok();
        sandbox
    });
    let importer = Importer::new(settings)?;
    let runtime = multi_threaded()?;
    let results = if args.json { ImportResults::AtTheEnd } else { ImportResults::AsTheyCome };
    let state = Mutex::new((ImportProgress::new(results), BTreeMap::new()));
    let report = |server: &ImportServer, event: ImportEvent<'_>| {
        let mut state = state.lock();
        let (progress, outcomes) = &mut *state;
        if let Some(outcome) = progress.take(&server.name, &event) {
            outcomes.insert(server.name.clone(), outcome);
        }
    };
    runtime.block_on(async {
        let mut signals = EndSignals::new().context("handle signals")?;
        tokio::select! {
            _failed = importer.register(servers, &report) => {}
            () = signals.next() => {
                state.lock().0.clear();
                print_message("ending: what was not registered yet is left out");
            }
        }
        importer.stop().await;
        anyhow::Ok(())
    })?;
    Ok(state.into_inner().1)
}
