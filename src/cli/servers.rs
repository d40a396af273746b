//! `ipybox servers`: lists, tries and removes registered servers.

use anyhow::Context as _;
use ipybox::{Emphasis, KnownServers};

use super::login::runtime;
use super::print;
use super::registered_args::{ServersAction, ServersArgs};

pub(super) fn run(args: ServersArgs) -> anyhow::Result<()> {
    let servers = KnownServers::open(&args.place.workspace, args.place.state_dir)?;
    let text = match args.action {
        None if args.json => {
            serde_json::to_string_pretty(&servers.list()?).context("write the list as JSON")? + "\n"
        }
        None => list(&servers)?,
        Some(ServersAction::Test { name }) => {
            let tools = runtime()?.block_on(servers.test(&name))?;
            format!("`{name}` answers, and has {tools} tool{}.\n", if tools == 1 { "" } else { "s" })
        }
        Some(ServersAction::Label { name, label }) => {
            servers.label(&name, label)?;
            match label {
                Some(label) => format!("`{name}` is {label}, from the next session on.\n"),
                None => format!("`{name}` has no label, from the next session on.\n"),
            }
        }
        Some(ServersAction::Remove { name }) => {
            runtime()?.block_on(servers.remove(&name))?;
            format!("`{name}` is removed.\n")
        }
    };
    print(&text, "print the answer")
}

fn list(servers: &KnownServers) -> anyhow::Result<String> {
    let servers = servers.list()?;
    if servers.is_empty() {
        return Ok("No MCP server is registered in this workspace.\n\
                   Agents register them with `register_mcp_server`; `ipybox import` registers those of your other clients.\n"
            .to_owned());
    }
    let lines = servers.iter().map(|server| {
        let tools = match server.tools {
            Some(1) => "1 tool".to_owned(),
            Some(tools) => format!("{tools} tools"),
            None => Emphasis::Warning.of("not registered"),
        };
        let login = server.login.as_ref().map(|login| format!(", {login}")).unwrap_or_default();
        let label = server.label.map(|label| format!(", {label}")).unwrap_or_default();
        format!("{}: {} ({tools}{login}{label})\n", Emphasis::Title.of(&server.name), server.target)
    });
    Ok(lines.collect())
}
