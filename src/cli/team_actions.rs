//! `ipybox team actions`: what users have published, for the operator.

use anyhow::Context as _;
use clap::Subcommand;
use ipybox_team::{CheckedAction, TeamAction, TeamAdmin};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{print, print_message};

const RESULT: &str = "write the result";

/// The commands for published actions.
#[derive(Debug, Subcommand)]
pub(crate) enum PublishedCommand {
    /// List them, with who has published and allowed the newest version
    List,
    /// Show all of one: its files, and those of what it uses
    Show {
        /// Its name
        name: String,
    },
    /// Remove one with all its versions
    Remove {
        /// Its name
        name: String,
    },
}

/// Checks what a session wants to publish.
pub(super) fn check(action: &Map<String, Value>) -> Result<CheckedAction, String> {
    let [category, name] = ipybox::published_names(action)?;
    Ok(CheckedAction { category, name })
}

pub(super) fn run(admin: &TeamAdmin, command: PublishedCommand, as_json: bool) -> anyhow::Result<()> {
    match command {
        PublishedCommand::List => {
            let actions = admin.actions()?;
            let text = if as_json { lines(&actions)? } else { actions.iter().map(line).collect() };
            print(&text, RESULT)
        }
        PublishedCommand::Show { name } => {
            let (known, action) = admin.action(&name)?;
            let text = if as_json {
                let mut shown = serde_json::to_value(&known).context("write JSON")?;
                shown["action"] = action;
                lines(&shown)?
            } else {
                format!("{}{}", line(&known), shown(&action))
            };
            print(&text, RESULT)
        }
        PublishedCommand::Remove { name } => {
            admin.remove_action(&name)?;
            if as_json {
                print(&lines(&json!({"removed": name}))?, RESULT)
            } else {
                print_message(&format!("`{name}` is removed"));
                Ok(())
            }
        }
    }
}

fn lines(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("write JSON")? + "\n")
}

fn line(action: &TeamAction) -> String {
    let TeamAction { category, name, version, publisher, by, .. } = action;
    format!("{category}.{name}, version {version}: published by {publisher}, allowed by {by}\n")
}

/// The signature, the docstring and the files.
fn shown(action: &Value) -> String {
    let word = |part: &Value, key: &str| part[key].as_str().unwrap_or_default().to_owned();
    let mut text = format!(
        "\n{}{}\n\n{}\n",
        word(action, "name"),
        word(action, "signature"),
        word(action, "description")
    );
    let uses = action["uses"].as_array().into_iter().flatten();
    for part in std::iter::once(action).chain(uses) {
        for (file, content) in part["files"].as_object().into_iter().flatten() {
            let place = format!("{}.{}", word(part, "category"), word(part, "name"));
            text.push_str(&format!("\n# {place}: {file}\n{}", content.as_str().unwrap_or_default()));
        }
    }
    text
}
