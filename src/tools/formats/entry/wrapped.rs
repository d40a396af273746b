//! Finds the one server in what may be the whole configuration of a client.

use serde_json::{Map, Value};

use super::keys::{self, EntryKey, IgnoredKey};
use crate::connections::mcp_client::{ParametersError, wrong_type};

/// The keys under which clients have their servers by name.
const WRAPPERS: &[&str] =
    &["mcpServers", "mcp_servers", "servers", "context_servers", "extensions", "mcp", "mcp-servers"];

/// The entry of the server, and in `ignored` the keys beside it.
pub(super) fn find<'a>(
    name: &str,
    object: &'a Map<String, Value>,
    ignored: &mut Vec<(String, IgnoredKey)>,
) -> Result<&'a Map<String, Value>, ParametersError> {
    if is_server(object) {
        return Ok(object);
    }
    if let Some(wrapper) =
        WRAPPERS.iter().find(|key| matches!(object.get(**key), Some(Value::Object(_) | Value::Array(_))))
    {
        let beside = object.keys().filter(|key| key != wrapper);
        ignored.extend(beside.map(|key| (key.clone(), IgnoredKey::NoMeaning)));
        return match &object[*wrapper] {
            // `{"mcp": {"servers": {…}}}`, as in the settings of an editor.
            Value::Object(inner) if WRAPPERS.iter().any(|key| inner.contains_key(*key)) => {
                find(name, inner, ignored)
            }
            Value::Object(inner) => {
                choose(name, wrapper, inner.iter().map(|(name, entry)| (name.as_str(), entry)))
            }
            Value::Array(inner) => choose(
                name,
                wrapper,
                inner.iter().map(|entry| (entry["name"].as_str().unwrap_or("?"), entry)),
            ),
            _ => Ok(object),
        };
    }
    // A server under its name, without the key around it.
    if has_only_servers(object) {
        return choose(name, "server_params", object.iter().map(|(name, entry)| (name.as_str(), entry)));
    }
    Ok(object)
}

/// All servers in the configuration of a client, by the names that it has for them; `None` if nothing in it has servers.
pub(crate) fn all(object: &Map<String, Value>) -> Option<Vec<(String, Value)>> {
    let is_wrapper = |value: &&Value| !value.as_object().is_some_and(is_server);
    let wrapped = WRAPPERS.iter().find_map(|key| object.get(*key).filter(is_wrapper));
    // `{"mcp": {"servers": {…}}}`, and no server whose name is `servers`.
    let has_wrapper = |inner: &Map<String, Value>| {
        WRAPPERS
            .iter()
            .any(|key| inner.get(*key).and_then(Value::as_object).is_some_and(|one| !is_server(one)))
    };
    match wrapped {
        Some(Value::Object(inner)) if has_wrapper(inner) => all(inner),
        Some(Value::Object(inner)) => Some(entries(inner)),
        Some(Value::Array(inner)) => {
            let named = inner.iter().map(|entry| (entry["name"].as_str().unwrap_or_default(), entry));
            Some(named.map(|(name, entry)| (name.to_owned(), entry.clone())).collect())
        }
        Some(_) => None,
        None => has_only_servers(object).then(|| entries(object)),
    }
}

/// The members of an object that are no remarks.
fn entries(object: &Map<String, Value>) -> Vec<(String, Value)> {
    let entries = object.iter().filter(|(name, entry)| !keys::is_comment_entry(name, entry));
    entries.map(|(name, entry)| (name.clone(), entry.clone())).collect()
}

/// The only entry, or the one with the server's name.
fn choose<'a>(
    name: &str,
    wrapper: &str,
    entries: impl Iterator<Item = (&'a str, &'a Value)>,
) -> Result<&'a Map<String, Value>, ParametersError> {
    let entries: Vec<(&str, &Value)> =
        entries.filter(|(entry, value)| !keys::is_comment_entry(entry, value)).collect();
    let called_so = || entries.iter().find(|(entry, _)| *entry == name).copied();
    let only = || if let [only] = entries[..] { Some(only) } else { None };
    let Some((entry, value)) = only().or_else(called_so) else {
        let found = entries.iter().map(|(entry, _)| (*entry).to_owned()).collect();
        return Err(ParametersError::NotOneServer { wrapper: wrapper.to_owned(), found });
    };
    let wrong = || wrong_type(&format!("{wrapper}.{entry}"), "an object", value);
    value.as_object().ok_or_else(wrong)
}

/// Whether each of its members, of which there are some, is a server.
fn has_only_servers(object: &Map<String, Value>) -> bool {
    let mut entries = object.iter().filter(|(name, value)| !keys::is_comment_entry(name, value)).peekable();
    entries.peek().is_some() && entries.all(|(_, value)| value.as_object().is_some_and(is_server))
}

/// Whether one of its members says how to reach a server.
fn is_server(object: &Map<String, Value>) -> bool {
    object.iter().any(|(key, value)| {
        let is_reach = match keys::meaning(key) {
            Some(EntryKey::Text("command" | "url") | EntryKey::Transport { url_key: Some(_) }) => true,
            Some(EntryKey::Transport { url_key: None }) => value.is_object(),
            _ => false,
        };
        is_reach && !value.is_null()
    })
}
