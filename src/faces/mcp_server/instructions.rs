//! The description of the server that a model reads before it sees the tools.

use std::collections::BTreeMap;

use crate::ground::text::backticked;
use crate::session::Session;

/// What a model should know before it sees the tools.
const INSTRUCTIONS: &str = "\
Runs Python in a stateful IPython kernel and lets that Python call the tools of other MCP servers.

1. `register_mcp_server` connects to an MCP server once and writes a typed Python API for its tools to \
`mcptools/<server_name>/` in the workspace, one module per tool.
2. `execute_ipython_cell` runs code that uses it:
   from mcptools.<server_name> import <tool_name>
   result = <tool_name>.run(<tool_name>.Params(...))
   `print(<tool_name>)` shows its parameters and result; `from mcptools import search; search(\"what to do\")` finds tools \
and shows how they are called. `run` returns a `Result` model where the tool declares \
one, else a string, whose `attachments` are images and files. Where the strings are JSON, \
`ipybox_runtime.infer_result(<tool_name>, result)` gives the module a `run_parsed` that returns a model.

Combine several tool calls in one cell with loops and conditions, and print only what you need: \
intermediate results stay out of your context. Servers registered earlier work without registering again.";

/// How many registered servers the instructions list: some 250 tokens.
const LISTED_SERVERS: usize = 40;

/// The instructions for clients of this session.
pub(super) fn of(session: &Session) -> String {
    INSTRUCTIONS.to_owned() + &registered(&session.servers()) + &offered(&session.offered())
}

/// The part of the instructions that lists the registered servers. Only their names, which ipybox validates:
/// a server's own description is not trusted here.
fn registered(servers: &BTreeMap<String, usize>) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let shown = servers.iter().take(LISTED_SERVERS);
    let mut names: Vec<_> = shown.map(|(name, tools)| format!("`{name}` ({tools})")).collect();
    if servers.len() > LISTED_SERVERS {
        names.push(format!("{} more in `mcptools/`", servers.len() - LISTED_SERVERS));
    }
    format!(
        "\n\nRegistered, with the number of their tools: {}. Find tools by \
         `from mcptools import search`.",
        names.join(", ")
    )
}

/// The part of the instructions that lists the servers that are being registered.
fn offered(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let shown = backticked(names.iter().take(LISTED_SERVERS));
    format!("\n\nBeing registered, as the user has configured: {shown}. The first cell waits for them.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_session_knows_what_is_registered() {
        assert_eq!(registered(&BTreeMap::new()), "");
        let few = BTreeMap::from([("git".to_owned(), 12), ("time".to_owned(), 2)]);
        assert!(registered(&few).contains(": `git` (12), `time` (2). "), "{}", registered(&few));
        let many = (0..1_000).map(|number| (format!("server_with_a_long_name_{number:04}"), 7)).collect();
        let text = registered(&many);
        assert!(text.contains("960 more") && text.len() < 2_000, "{text}");
    }
}
