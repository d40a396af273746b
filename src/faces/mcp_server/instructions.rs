//! The description of the server that a model reads before it sees the tools.

use std::collections::BTreeMap;

use crate::config::KernelSite;
use crate::ground::text::backticked;
use crate::session::Session;

/// The first words for a model, before it sees the tools. Every conversation pays for it: what the tools themselves say, or
/// answers when it matters, is not here.
const INSTRUCTIONS: &str = "\
Runs Python in a stateful IPython kernel that can call the tools of other MCP servers.

Register a server once with `register_mcp_server`. In `execute_ipython_cell` combine calls of its tools with loops and \
conditions, and print only what you need: intermediate results stay out of your context. One or two calls \
with short results need no code: call the tool itself, if you have it.";

/// The number of registered servers that the instructions list: some 250 tokens.
const LISTED_SERVERS: usize = 40;

/// The number of hosts within a sandbox's reach that are named.
const LISTED_HOSTS: usize = 8;

/// The instructions for clients of this session, whose kernels run at this site.
pub(super) fn of(session: &Session, site: &KernelSite) -> String {
    let sandbox = match site {
        KernelSite::Sandboxed { confinement, .. } => sandboxed(&confinement.policy.allowed_domains()),
        KernelSite::Local | KernelSite::Remote(_) | KernelSite::Pod(_) => String::new(),
    };
    INSTRUCTIONS.to_owned() + &sandbox + &registered(&session.servers()) + &offered(&session.offered())
}

/// The part of the instructions about a sandbox, whose code can reach these hosts.
fn sandboxed(hosts: &[String]) -> String {
    let network = match hosts.len() {
        0 => "without network".to_owned(),
        1..=LISTED_HOSTS => format!("whose network is {}", backticked(hosts)),
        count => format!(
            "whose network is {} and {} more hosts",
            backticked(&hosts[..LISTED_HOSTS]),
            count - LISTED_HOSTS
        ),
    };
    format!(
        "\n\nThe kernel is in a sandbox {network}: code writes in the workspace only, where files that configure programs are \
         read-only (empty ones stand for missing ones). Packages come by `install_package`, not pip."
    )
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
    use serde_json::json;

    use super::*;

    /// Each conversation pays for these texts: at most 1,000 tokens, in a sandbox and with long cells. `o200k_base` counts a
    /// token for 4.2 of their characters.
    #[test]
    fn tools_and_instructions_stay_short() {
        let own = INSTRUCTIONS.to_owned() + &sandboxed(&[]);
        let of_tool = |tool: rmcp::model::Tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
                .to_string()
        };
        for (is_long, most) in [(false, 3_550), (true, 4_250)] {
            let tools = crate::faces::mcp_server::tools::definitions(is_long, &[]).into_iter().map(of_tool);
            let chars: usize = tools.chain([own.clone()]).map(|text| text.chars().count()).sum();
            assert!(chars <= most, "{chars} characters, long cells: {is_long}");
        }
    }

    #[test]
    fn a_model_knows_which_hosts_a_sandbox_reaches() {
        let hosts: Vec<String> = (0..9).map(|number| format!("h{number}.test")).collect();
        assert!(sandboxed(&[]).contains("in a sandbox without network: "));
        assert!(sandboxed(&hosts[..1]).contains("in a sandbox whose network is `h0.test`: "));
        assert!(sandboxed(&hosts).contains("`h7.test` and 1 more hosts: "));
    }

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
