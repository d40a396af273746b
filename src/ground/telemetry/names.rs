//! The names of attributes: those of OpenTelemetry's conventions, and our own, which begin with `ipybox.`.

pub(super) const METHOD: &str = "mcp.method.name";
pub(super) const PROTOCOL_VERSION: &str = "mcp.protocol.version";
pub(super) const RESOURCE: &str = "mcp.resource.uri";
pub(super) const REQUEST: &str = "jsonrpc.request.id";
pub(super) const STATUS_CODE: &str = "rpc.response.status_code";
pub(super) const ERROR_TYPE: &str = "error.type";
pub(super) const EXCEPTION_TYPE: &str = "exception.type";
pub(super) const TRANSPORT: &str = "network.transport";
pub(super) const TRANSPORT_PROTOCOL: &str = "network.protocol.name";
pub(super) const ADDRESS: &str = "server.address";
pub(super) const PORT: &str = "server.port";
pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const TOOL: &str = "gen_ai.tool.name";
pub(super) const PROMPT: &str = "gen_ai.prompt.name";
pub(super) const ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const RESULT: &str = "gen_ai.tool.call.result";

/// The name under which an MCP server is registered.
pub(super) const SERVER: &str = "ipybox.server.name";
/// The id of the call in the audit log.
pub(super) const CALL: &str = "ipybox.call.id";
/// The party that decided about the call, in the audit log's word.
pub(super) const DECIDED_BY: &str = "ipybox.approval.by";
/// The duration of the decision, in seconds.
pub(super) const WAITED: &str = "ipybox.approval.duration";
/// `accepted` or `denied`.
pub(super) const DECISION: &str = "ipybox.approval.decision";
/// The end of the cell, in the audit log's word.
pub(super) const CELL_STATUS: &str = "ipybox.cell.status";
/// The party that wanted the cell to run.
pub(super) const CELL_AUTHOR: &str = "ipybox.cell.author";
/// The models' name of a cell that requests can stop waiting for.
pub(super) const CELL_ID: &str = "ipybox.cell.id";
