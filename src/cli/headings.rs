//! The headings under which `--help` shows the flags of the server.

pub(super) const SESSION: &str = "Session";
pub(super) const SANDBOX: &str = "Sandbox";
pub(super) const REMOTE: &str = "Kernel on a Jupyter server";
pub(super) const SERVERS: &str = "MCP servers";
pub(super) const APPROVAL: &str = "Approval";
pub(super) const LIMITS: &str = "Limits";
pub(super) const AUDIT: &str = "Audit log";
pub(super) const REPLIES: &str = "Answers";
