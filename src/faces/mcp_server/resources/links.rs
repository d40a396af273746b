//! The clients that get links to resources beside the text of an answer.

use rmcp::RoleServer;
use rmcp::service::RequestContext;

use crate::config::ResourceLinks;

/// Clients that show a link as something to open or save. Others drop it, or fail the whole call over it.
#[rustfmt::skip]
const SHOWING: [&str; 8] = [
    "Code - OSS", "VSCodium", "Visual Studio Code", "Visual Studio Code - Insiders", "inspector-cli",
    "inspector-client", "mcp-inspector", "mcp-inspector-tui",
];

/// Whether the answers to a request have links.
pub(in crate::faces::mcp_server) fn are_wanted(
    setting: ResourceLinks,
    context: &RequestContext<RoleServer>,
) -> bool {
    match setting {
        ResourceLinks::Always => true,
        ResourceLinks::Never => false,
        ResourceLinks::Auto => {
            context.client_info().is_some_and(|client| SHOWING.contains(&client.name.as_str()))
        }
    }
}
