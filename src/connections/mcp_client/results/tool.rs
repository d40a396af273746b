//! A server's identity and its tools, in our own types.

use std::sync::Arc;

use rmcp::model::ServerPeerInfo;
use serde_json::{Map, Value};

/// A tool, as its server describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerTool {
    /// The name to call it by.
    pub(crate) name: String,
    /// A name for people.
    pub(crate) title: Option<String>,
    /// The description that the server gives.
    pub(crate) description: Option<String>,
    /// The JSON schema of its arguments.
    pub(crate) input_schema: Map<String, Value>,
    /// The JSON schema of its structured result.
    pub(crate) output_schema: Option<Map<String, Value>>,
    /// Hints on what calling it does.
    pub(crate) hints: Hints,
    /// Whether it is for the server's own user interface and not for models (MCP Apps, `_meta.ui.visibility`).
    pub(crate) is_for_apps: bool,
}

/// A server's hints on what calling a tool does; `None` where it gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) read_only: Option<bool>,
    pub(crate) destructive: Option<bool>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) open_world: Option<bool>,
}

/// A server's identity, from its answer to `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its own name, which may differ from its registered name; the registered one if it has none.
    pub(crate) name: String,
    /// A name for people.
    pub(crate) title: Option<String>,
    /// Its version; empty if unknown.
    pub(crate) version: String,
    /// The server's instructions for its use.
    pub(crate) instructions: Option<String>,
    /// The negotiated protocol revision.
    pub(crate) protocol_version: String,
    /// Whether it declares resources.
    pub(crate) has_resources: bool,
    /// Whether it declares prompts.
    pub(crate) has_prompts: bool,
}

impl ServerTool {
    pub(crate) fn from_rmcp(tool: rmcp::model::Tool) -> Self {
        let annotations = tool.annotations.unwrap_or_default();
        let is_for_apps = tool.meta.is_some_and(|meta| is_for_apps(&Value::Object(meta.0)));
        Self {
            name: tool.name.into_owned(),
            title: tool.title.or(annotations.title),
            description: tool.description.map(std::borrow::Cow::into_owned),
            input_schema: Arc::unwrap_or_clone(tool.input_schema),
            output_schema: tool.output_schema.map(Arc::unwrap_or_clone),
            hints: Hints {
                read_only: annotations.read_only_hint,
                destructive: annotations.destructive_hint,
                idempotent: annotations.idempotent_hint,
                open_world: annotations.open_world_hint,
            },
            is_for_apps,
        }
    }
}

/// Whether a tool with this `_meta` is for apps only. Without `visibility` it is for models too (MCP Apps, SEP-1865).
pub(crate) fn is_for_apps(meta: &Value) -> bool {
    let visibility = meta.pointer("/ui/visibility").and_then(Value::as_array);
    visibility.is_some_and(|visible| !visible.is_empty() && !visible.iter().any(|to| to == "model"))
}

impl Identity {
    /// The identity of the server registered as `registered_name`.
    pub(crate) fn from_rmcp(info: Option<&ServerPeerInfo>, registered_name: &str) -> Self {
        let implementation = info.and_then(|info| info.server_info.as_ref());
        let named = implementation.filter(|server| !server.name.is_empty());
        Self {
            name: named.map_or_else(|| registered_name.to_owned(), |server| server.name.clone()),
            title: implementation.and_then(|server| server.title.clone()),
            version: implementation.map(|server| server.version.clone()).unwrap_or_default(),
            instructions: info.and_then(|info| info.instructions.clone()),
            protocol_version: info.map(|info| info.protocol_version.to_string()).unwrap_or_default(),
            has_resources: info.is_some_and(|info| info.capabilities.resources.is_some()),
            has_prompts: info.is_some_and(|info| info.capabilities.prompts.is_some()),
        }
    }
}
