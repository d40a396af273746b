//! The package's `__init__.py`: the connection to the server, and an index of its tools.

use std::fmt::Write as _;

use super::literal;
use super::overview::first_sentence;
use crate::{FunctionModule, Module, Server, Tool, identifier};

/// The part of a tool's description that the index shows, in characters: it has one line for each tool.
const SUMMARY_CHARS: usize = 120;

/// The names that the package takes from the runtime: the connection, the errors that users want to catch, and the list of tools.
const IMPORTS: &str = "\
from ipybox_modules import ToolPackage
from ipybox_runtime import (
    ApprovalRejectedError,
    ApprovalTimeoutError,
    ToolRunner,
    ToolRunnerError,
)";

/// The text of `__init__.py`.
pub(crate) fn render(
    server: &Server,
    tools: &[(&Tool, &Module)],
    others: &[(&'static str, FunctionModule)],
) -> String {
    let description = server.description.as_deref().unwrap_or_default().trim();
    let mut doc = match description {
        "" => format!("Tools of the MCP server `{}`.", server.name),
        description => description.to_owned(),
    };
    if !tools.is_empty() {
        doc.push_str("\n\nModules, one for each tool:\n");
    }
    for (tool, module) in tools {
        let _ = write!(doc, "\n{}", module.name);
        if module.name != identifier::module(&tool.name) {
            let _ = write!(doc, " (tool `{}`)", literal::comment(&tool.name));
        }
        let summary = summary(tool);
        if !summary.is_empty() {
            let _ = write!(doc, ": {summary}");
        }
    }
    if !others.is_empty() {
        doc.push_str("\n\nBeside the tools:\n");
    }
    let mut described = "__name__".to_owned();
    for (kind, FunctionModule { name, functions, .. }) in others {
        let count = functions.len();
        let _ = write!(doc, "\n{name}: the server's {kind}, {count} as functions");
        let _ = write!(described, ", {}", literal::string(name));
    }
    format!(
        "{}\n\n{}\n\n\
         __all__ = [\"CLIENT\", \"ApprovalRejectedError\", \"ApprovalTimeoutError\", \"ToolRunnerError\"]\n\n\
         CLIENT = ToolRunner(server_name={})\n\n\
         ToolPackage.describe({described})\n",
        literal::docstring(&doc, ""),
        IMPORTS,
        literal::string(&server.name),
    )
}

/// The description of a tool, in one line.
fn summary(tool: &Tool) -> String {
    let text = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    literal::comment(&first_sentence(text, SUMMARY_CHARS))
}
