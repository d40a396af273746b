//! The package's `__init__.py`: the connection to the server, and an index of its tools.

use std::fmt::Write as _;

use super::literal;
use crate::codegen::{Module, Server, Tool, identifier};

/// A summary longer than this is cut: the index is one line for each tool.
const MAX_SUMMARY_CHARS: usize = 120;

/// What the package takes from the runtime: the connection, and the errors that users want to catch.
const RUNTIME_NAMES: [&str; 4] =
    ["ApprovalRejectedError", "ApprovalTimeoutError", "ToolRunner", "ToolRunnerError"];

/// The text of `__init__.py`.
pub(in crate::codegen) fn render(server: &Server, tools: &[(&Tool, &Module)]) -> String {
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
    format!(
        "{}\n\n{}\n\n\
         __all__ = [\"CLIENT\", \"ApprovalRejectedError\", \"ApprovalTimeoutError\", \"ToolRunnerError\"]\n\n\
         CLIENT = ToolRunner(server_name={})\n",
        literal::docstring(&doc, ""),
        literal::import("ipybox_runtime", RUNTIME_NAMES),
        literal::string(&server.name),
    )
}

/// What a tool does, in one line.
fn summary(tool: &Tool) -> String {
    let text = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default().trim();
    let line = text.lines().next().unwrap_or_default().trim();
    // The first sentence is enough, unless its full stop is that of an abbreviation.
    let end = line.match_indices(". ").map(|(at, _)| at + 1).find(|at| *at > 20).unwrap_or(line.len());
    let sentence = &line[..end];
    match sentence.char_indices().nth(MAX_SUMMARY_CHARS) {
        Some((cut, _)) => format!("{}…", sentence[..cut].trim_end()),
        None => sentence.to_owned(),
    }
}
