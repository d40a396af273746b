//! The meaning of other clients' keys here.

use serde_json::Value;

/// Our own keys. A similar key is a mistake.
pub(super) const OWN: &[&str] =
    &["command", "args", "env", "cwd", "url", "headers", "type", "timeout", "trust_workspace", "oauth"];

/// No client waits longer for a server: a larger number is one of milliseconds.
pub(super) const MOST_SECONDS: f64 = 3_600.0;

/// The meaning of a key.
#[derive(Clone, Copy)]
pub(super) enum EntryKey {
    /// The value of our key.
    Text(&'static str),
    /// Texts by name, added to those of our key.
    Texts(&'static str),
    /// The names of variables that have the values of our key.
    FromVariables(&'static str),
    /// The transport; or a URL, if the key itself names the transport.
    Transport { url_key: Option<&'static str> },
    /// A token for the header `Authorization`, or the variable that has it.
    Bearer,
    /// The time that the server may take to start, in units of `1 / per_second` s.
    Start { per_second: f64 },
    /// A time in seconds or milliseconds.
    Timeout,
    /// The login.
    Login,
    /// Scopes to ask for when logging in.
    Scopes,
    /// Options of requests, of which we know the headers.
    Nested,
    /// It has no meaning here.
    Ignored(IgnoredKey),
}

/// Why a key is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IgnoredKey {
    NoMeaning,
    Approval,
    Filter,
    Disabled,
    EnvFile,
    Helper,
}

impl IgnoredKey {
    pub(super) const ALL: [Self; 6] =
        [Self::NoMeaning, Self::Approval, Self::Filter, Self::Disabled, Self::EnvFile, Self::Helper];

    /// Continues a sentence that names the keys.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::NoMeaning => "",
            Self::Approval => {
                ", which give no permission here: ipybox's own approval decides about each call"
            }
            Self::Filter => ": all tools of the server can be called",
            Self::Disabled => ": the server is registered all the same",
            Self::EnvFile => {
                ", which is not read: name its variables in `env` as `${VARIABLE}`, which ipybox fills from its \
                 environment and the workspace's `.env`"
            }
            Self::Helper => {
                ", which is not run: ipybox logs in by OAuth (`ipybox login`). Give another token by `headers`, for example \
                 `\"Authorization\": \"Bearer ${TOKEN}\"`"
            }
        }
    }
}

/// Whether a key is a remark of whoever wrote the file, or a member that they have taken out by renaming it.
pub(super) fn is_comment(key: &str) -> bool {
    let is_marked = ["_", "//", "#", "$"].iter().any(|mark| key.starts_with(mark));
    is_marked || key.to_lowercase().contains("comment") || ["note", "notes", "readme"].contains(&key)
}

/// Whether an entry among servers is no server: a remark, or one that is taken out.
pub(crate) fn is_comment_entry(name: &str, entry: &Value) -> bool {
    name.starts_with("//") || name.starts_with('#') || is_comment(name) && !entry.is_object()
}

/// Whether a value says nothing: clients write all members that they know, most of them empty.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The meaning of `key`; `None` for a key that no known client has.
pub(super) fn meaning(key: &str) -> Option<EntryKey> {
    Some(match key {
        _ if is_comment(key) => EntryKey::Ignored(IgnoredKey::NoMeaning),
        "command" | "cmd" => EntryKey::Text("command"),
        "args" | "arguments" => EntryKey::Text("args"),
        "cwd" | "workingDirectory" | "working_directory" | "workingDir" | "workdir" => EntryKey::Text("cwd"),
        "url" | "URL" | "serverUrl" | "serverURL" | "server_url" | "baseUrl" | "baseURL" | "base_url"
        | "mcpUrl" | "mcp_url" | "uri" | "endpoint" => EntryKey::Text("url"),
        "httpUrl" | "http_url" => EntryKey::Transport { url_key: Some("streamable_http") },
        "sseUrl" | "sse_url" => EntryKey::Transport { url_key: Some("sse") },
        "type" | "transport" | "transportType" | "transport_type" => EntryKey::Transport { url_key: None },
        "trust_workspace" => EntryKey::Text("trust_workspace"),
        "env" | "envs" | "environment" => EntryKey::Texts("env"),
        "env_vars" | "envVars" | "env_keys" => EntryKey::FromVariables("env"),
        "headers" | "http_headers" | "httpHeaders" => EntryKey::Texts("headers"),
        "env_http_headers" => EntryKey::FromVariables("headers"),
        "bearer_token_env_var"
        | "bearer_token"
        | "bearerToken"
        | "authorization_token"
        | "authorization"
        | "authToken"
        | "auth_token" => EntryKey::Bearer,
        "startup_timeout_sec" => EntryKey::Start { per_second: 1.0 },
        "startup_timeout_ms" | "timeoutMs" | "timeout_ms" | "initTimeout" | "connectionTimeout" => {
            EntryKey::Start { per_second: 1000.0 }
        }
        "timeout" => EntryKey::Timeout,
        "requestOptions" | "requestInit" => EntryKey::Nested,
        "autoApprove"
        | "alwaysAllow"
        | "autoApproveTools"
        | "trust"
        | "permissions"
        | "default_tools_approval_mode"
        | "approval"
        | "require_approval" => EntryKey::Ignored(IgnoredKey::Approval),
        "includeTools" | "excludeTools" | "enabledTools" | "disabledTools" | "enabled_tools"
        | "disabled_tools" | "allowedTools" | "allowed_tools" | "available_tools" | "tools" => {
            EntryKey::Ignored(IgnoredKey::Filter)
        }
        _ if DISABLED.contains(&key) || ENABLED.contains(&key) => EntryKey::Ignored(IgnoredKey::Disabled),
        "envFile" | "env_file" => EntryKey::Ignored(IgnoredKey::EnvFile),
        "oauth" | "auth" => EntryKey::Login,
        "oauth_scopes" | "scopes" => EntryKey::Scopes,
        "headersHelper" | "authProviderType" => EntryKey::Ignored(IgnoredKey::Helper),
        _ if KNOWN_WITHOUT_MEANING.contains(&key) => EntryKey::Ignored(IgnoredKey::NoMeaning),
        _ => return None,
    })
}

/// Keys by which clients turn a server off, by `true` or by `false`.
pub(crate) const DISABLED: &[&str] = &["disabled", "disable", "isDisabled", "is_disabled"];
pub(crate) const ENABLED: &[&str] =
    &["enabled", "isActive", "is_active", "active", "isEnabled", "is_enabled"];

/// Keys that look like misspelt keys of ours.
const KNOWN_WITHOUT_MEANING: &[&str] = &["name", "dev", "id", "tags", "title", "icon", "source", "cache"];

/// Values of `type` that say no more than that there is a server: those of lists of servers for models.
pub(super) const ANY_TRANSPORT: [&str; 2] = ["url", "mcp"];

/// Our name for a transport.
pub(super) fn transport(name: &str) -> Option<&'static str> {
    let name: String = name.chars().filter(|letter| letter.is_alphanumeric()).collect();
    match name.to_lowercase().as_str() {
        "stdio" | "local" | "command" => Some("stdio"),
        "http" | "streamablehttp" | "httpstream" | "remote" => Some("streamable_http"),
        "sse" | "httpsse" => Some("sse"),
        _ => None,
    }
}
