//! [`views`](super::views) without the feature `views`: no client has any.

use std::path::PathBuf;

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, ResourceContents, Tool};
use rmcp::service::RequestContext;

use crate::kernels::output::OutputPlaces;

pub(super) const NAME: &str = "read_view";

pub(super) fn are_shown_by(_context: &RequestContext<RoleServer>) -> bool {
    false
}

pub(super) fn add_to(tools: Vec<Tool>, _of_cells: &[&str]) -> Vec<Tool> {
    tools
}

pub(super) fn page(_uri: &str) -> Option<ResourceContents> {
    None
}

pub(super) fn add_names(result: CallToolResult, _views: &[PathBuf]) -> CallToolResult {
    result
}

pub(super) async fn read(_places: &OutputPlaces, _arguments: &JsonObject) -> Result<CallToolResult, String> {
    Err("ipybox was built without the feature `views`".to_owned())
}
