//! Members of objects that have another form than the protocol's: pure, but for the log. Those that can be missing are left out,
//! and those that are missing get what they mean.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Leaves out what is odd in `item` and is not `needed`. Whether it can be read then.
pub(super) fn fix<T: DeserializeOwned>(item: &mut Value, needed: &[&str]) -> bool {
    if let Value::Object(members) = item {
        leave_out_odd::<T>(members, needed);
    }
    fits::<T>(item)
}

/// Leaves out each member that is not `needed` and without which `T` can be read.
pub(super) fn leave_out_odd<T: DeserializeOwned>(members: &mut Map<String, Value>, needed: &[&str]) {
    if fits::<T>(&Value::Object(members.clone())) {
        return;
    }
    let is_needed = |name: &String| needed.contains(&name.as_str());
    let least: Map<String, Value> = members
        .iter()
        .filter(|(name, _)| is_needed(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    members.retain(|name, value| {
        let with_it = || {
            let mut with_it = least.clone();
            with_it.insert(name.clone(), value.clone());
            Value::Object(with_it)
        };
        let is_kept = is_needed(name) || fits::<T>(&with_it());
        if !is_kept {
            // Not a warning: there may be one for each item.
            tracing::debug!(member = name, "an MCP server sent a member of an unknown form; it is left out");
        }
        is_kept
    });
}

pub(crate) fn fits<T: DeserializeOwned>(value: &Value) -> bool {
    T::deserialize(value.clone()).is_ok()
}

/// Makes a list of a single item that stands where a list belongs.
pub(super) fn wrap(members: &mut Map<String, Value>, name: &str) {
    if let Some(item @ (Value::Object(_) | Value::String(_))) = members.get_mut(name) {
        *item = json!([item.take()]);
    }
}

/// Calls an item that has a URI and no name by its URI.
pub(super) fn name_link(item: &mut Value) {
    let Value::Object(members) = item else { return };
    let uri =
        members.get("uri").or_else(|| members.get("uriTemplate")).filter(|uri| uri.is_string()).cloned();
    if let Some(uri) = uri
        && !members.get("name").is_some_and(Value::is_string)
    {
        members.insert("name".to_owned(), uri);
    }
}
