//! The tool `reset`.

use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::arguments::{number, schema};
use super::call_context::CallContext;
use super::progress::ProgressNotifier;
use super::reply;
use super::server::McpServer;
use super::session_names::is_new;
use super::sessions::ChosenSession;
use crate::ground::text::{cell_number, describe};
use crate::session::{KernelExit, UndoTarget};

pub(super) const NAME: &str = "reset";

/// The arguments of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetArguments {
    session: Option<String>,
    #[serde(default, deserialize_with = "number")]
    cells: Option<f64>,
    to: Option<String>,
    #[serde(default)]
    end: bool,
}

/// `is_long` adds what cells with ids need.
pub(super) fn definition(is_long: bool) -> Tool {
    let mut input = json!({
        "type": "object",
        "properties": {
            "session": {"type": "string", "description": "Your own kernel"},
            "cells": {"type": "integer", "description": "Cells to undo"},
            "end": {"type": "boolean", "description": "End it"},
        },
    });
    if is_long {
        input["properties"]["to"] = json!({"type": "string", "description": "Undo from `cell-3` on"});
    }
    Tool::new(NAME, DESCRIPTION, schema(input)).with_title("Reset the kernel").with_annotations(
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false),
    )
}

const DESCRIPTION: &str = "\
Replace the kernel by a fresh one, without variables; a running cell ends. Packages, files and `mcptools/` stay.";

impl ResetArguments {
    /// The cells that are to be undone, if only these are.
    fn target(&self) -> Result<Option<UndoTarget>, String> {
        match (self.cells, self.to.as_deref()) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                Err("the arguments `cells` and `to` cannot be used together: pass one of them".to_owned())
            }
            // Some clients send every number with a decimal point.
            (Some(cells), None) if cells >= 1.0 && cells.fract() == 0.0 => {
                Ok(Some(UndoTarget::Cells(cells as usize)))
            }
            (Some(cells), None) => {
                Err(format!("the argument `cells` cannot be used: {cells} is not a whole number from 1 on"))
            }
            (None, Some(id)) => match cell_number(id) {
                Some(cell) => Ok(Some(UndoTarget::From(cell))),
                None => Err(format!("the argument `to` cannot be used: `{id}` is no id such as `cell-3`")),
            },
        }
    }
}

const DONE: &str = "The kernel was reset.";

/// Follows if the exit of the earlier kernel was cut short.
const CUT_SHORT: &str = "\
The exit of the earlier kernel took too long and was cut short: threads and `atexit` functions that still ran have been \
ended, and what they had not written is lost.";

pub(super) async fn call(
    server: &McpServer,
    arguments: ResetArguments,
    mut call: CallContext,
) -> Result<CallToolResult, String> {
    let target = arguments.target()?;
    let ResetArguments { session, end, .. } = arguments;
    if end && target.is_some() {
        return Err("the argument `end` cannot be used with `cells` or `to`: pass one of them".to_owned());
    }
    if session.as_deref().is_some_and(is_new) {
        return Err("the argument `session` cannot be used: a new session needs no reset".to_owned());
    }
    if end {
        call.turn.come().await;
        drop(call.turn);
        return server.sessions.end(session.as_deref()).await.map(reply::success);
    }
    let ChosenSession { open, note } = server.sessions.choose(session.as_deref()).await?;
    let reset = async {
        call.turn.come().await;
        let done = match target {
            None => {
                let pending = open.session.reset(call.permissions).await;
                drop(call.turn);
                pending.outcome().await.map(reset_words)
            }
            Some(target) => {
                let undoing = open.session.undo(target, &call.permissions).await;
                drop(call.turn);
                let pending = undoing.map_err(|error| format!("Failed to {}", describe(&error)))?;
                pending.outcome().await.map(|undone| undone.words())
            }
        };
        Ok::<_, String>(done)
    };
    let (_silent, phases) = watch::channel(String::new());
    let done = ProgressNotifier::report_while(call.progress, phases, call.approver.waiting(), reset).await?;
    Ok(match done {
        Ok(words) => reply::success(note.into_iter().chain([words]).collect::<Vec<_>>().join("\n")),
        Err(error) => reply::error(&error),
    })
}

fn reset_words(exit: KernelExit) -> String {
    match exit {
        KernelExit::Complete => DONE.to_owned(),
        KernelExit::CutShort => format!("{DONE}\n{CUT_SHORT}"),
    }
}
