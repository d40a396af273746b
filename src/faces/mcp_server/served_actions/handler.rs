//! Handles the requests of a client of saved actions: rmcp's face of the server.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::definition;
use super::work::ActionServer;
use crate::faces::mcp_server::handler::answer_panics;
use crate::faces::mcp_server::icons;

/// Instructions for the client's model.
const INSTRUCTIONS: &str =
    "Python functions that have worked before. Each call runs in a fresh kernel: nothing is left of it.";

/// The handler for rmcp.
pub(super) struct ActionHandler {
    pub(super) server: Arc<ActionServer>,
}

impl ServerHandler for ActionHandler {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new("ipybox-actions", env!("CARGO_PKG_VERSION"))
            .with_title("Saved actions")
            .with_icons(icons::server());
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let usable = self.server.usable().await.map_err(|error| {
            ErrorData::internal_error(format!("the saved actions cannot be read: {error}"), None)
        })?;
        Ok(ListToolsResult::with_all_items(usable.iter().map(definition::tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // A large future.
        answer_panics(Box::pin(self.server.call(request, &context))).await
    }
}
