//! The answer to the first request of a connection, `initialize` or `server/discover`, read with what is odd in it.
//!
//! Members in another form than the protocol's are converted, missing ones get what that means, and the rest is left
//! out: PHP writes `[]` for an empty object, and programs without an SDK leave out what no client has used.

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    CacheScope, ClientRequest, Implementation, MetaObject, ProtocolVersion, RequestId, ServerCapabilities,
};
use serde_json::{Map, Value, json};

use super::odd_members::{fits, leave_out_odd};
use crate::connections::mcp_client::parameters::kind;

/// The key of the server's name in the `_meta` of an answer to `server/discover`.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The handshake of one connection, as far as its transport knows it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Handshake(Arc<Mutex<HandshakeState>>);

#[derive(Default)]
struct HandshakeState {
    asked: Option<(RequestId, FirstRequest)>,
    failure: Option<String>,
}

/// The first request of a connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FirstRequest {
    /// `initialize`, for this revision of the protocol.
    Initialize(ProtocolVersion),
    /// `server/discover`.
    Discover,
}

impl Handshake {
    /// Records that `request` is sent, if it is a first one.
    pub(crate) fn expect(&self, id: &RequestId, request: &ClientRequest) {
        if let Some(first) = FirstRequest::of(request) {
            self.0.lock().asked = Some((id.clone(), first));
        }
    }

    /// The first request, while its answer has not come.
    pub(crate) fn asked(&self) -> Option<(RequestId, FirstRequest)> {
        self.0.lock().asked.clone()
    }

    /// Records that the answer has come.
    pub(super) fn is_answered(&self) {
        self.0.lock().asked = None;
    }

    /// Records a failure that rmcp does not pass on.
    pub(crate) fn fails(&self, why: String) {
        self.0.lock().failure.get_or_insert(why);
    }

    /// Takes this failure.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.lock().failure.take()
    }
}

impl FirstRequest {
    /// The first request that this is.
    pub(crate) fn of(request: &ClientRequest) -> Option<Self> {
        match request {
            ClientRequest::InitializeRequest(request) => {
                Some(Self::Initialize(request.params.protocol_version.clone()))
            }
            ClientRequest::DiscoverRequest(_) => Some(Self::Discover),
            _ => None,
        }
    }

    /// Gives the result the form of the protocol. The error says what it is instead.
    pub(super) fn fix(&self, result: &mut Value) -> Result<(), String> {
        let Value::Object(members) = result else {
            return Err(format!("its result is {}, not an object", kind(result)));
        };
        let mut fixed = Map::new();
        fixed.insert("capabilities".to_owned(), capabilities(members.shift_remove("capabilities")));
        if let Some(instructions) = members.shift_remove("instructions").and_then(text) {
            fixed.insert("instructions".to_owned(), instructions.into());
        }
        let mut meta = members.shift_remove("_meta").filter(fits::<MetaObject>).unwrap_or_else(|| json!({}));
        let info = members.shift_remove("serverInfo").or_else(|| members.shift_remove("server_info"));
        match self {
            Self::Initialize(asked) => {
                let revision = members
                    .shift_remove("protocolVersion")
                    .or_else(|| members.shift_remove("protocol_version"));
                fixed.insert("protocolVersion".to_owned(), json!(revision_of(revision, asked)));
                fixed.insert("serverInfo".to_owned(), server_info(info));
            }
            Self::Discover => {
                fixed.extend(discovered(members));
                let info = meta.get_mut(SERVER_INFO).map(Value::take).or(info);
                meta[SERVER_INFO] = server_info(info);
            }
        }
        fixed.insert("_meta".to_owned(), meta);
        *result = Value::Object(fixed);
        Ok(())
    }
}

/// The members that only an answer to `server/discover` has.
fn discovered(members: &mut Map<String, Value>) -> Map<String, Value> {
    let is_text = |version: &Value| version.is_string();
    let supported = match members.shift_remove("supportedVersions") {
        Some(Value::Array(versions)) => versions.into_iter().filter(is_text).collect(),
        Some(version @ Value::String(_)) => vec![version],
        // It has answered a request that only this revision has.
        _ => vec![json!(ProtocolVersion::NO_INITIALIZE)],
    };
    let or = |given: Option<Value>, is_good: fn(&Value) -> bool, default: Value| {
        given.filter(is_good).unwrap_or(default)
    };
    let scope = or(members.shift_remove("cacheScope"), fits::<CacheScope>, json!(CacheScope::Private));
    let kind = or(members.shift_remove("resultType"), Value::is_string, json!("complete"));
    let lifetime = or(members.shift_remove("ttlMs"), Value::is_u64, json!(0));
    Map::from_iter([
        ("supportedVersions".to_owned(), Value::Array(supported)),
        ("cacheScope".to_owned(), scope),
        ("resultType".to_owned(), kind),
        ("ttlMs".to_owned(), lifetime),
    ])
}

/// The revision that the server speaks: as it names it, or the one that it was asked for.
fn revision_of(named: Option<Value>, asked: &ProtocolVersion) -> ProtocolVersion {
    let named = named.as_ref().and_then(Value::as_str).map(str::trim).filter(|named| !named.is_empty());
    let named = named.and_then(|named| serde_json::from_value::<ProtocolVersion>(json!(named)).ok());
    // A revision that is not known may have other rules. That it has `initialize` shows in this answer.
    let is_usable =
        |named: &ProtocolVersion| named.has_initialize() || ProtocolVersion::KNOWN_VERSIONS.contains(named);
    named.filter(is_usable).unwrap_or_else(|| asked.clone())
}

/// The capabilities of the server. One that says nothing about them may have tools, which are listed in any case.
fn capabilities(given: Option<Value>) -> Value {
    let mut capabilities = match given {
        Some(Value::Object(capabilities)) => capabilities,
        // Their names alone.
        Some(Value::Array(names)) => {
            names.iter().filter_map(|name| Some((name.as_str()?.to_owned(), json!({})))).collect()
        }
        _ => Map::new(),
    };
    capabilities.retain(|name, capability| {
        let is_of_members = matches!(name.as_str(), "experimental" | "extensions");
        match capability {
            Value::Null | Value::Bool(false) => return false,
            Value::Object(members) if is_of_members => {
                members.values_mut().filter(|value| !value.is_object()).for_each(|value| *value = json!({}));
            }
            Value::Object(members) => members.values_mut().for_each(fix_flag),
            // Many forms of "it is there".
            odd => *odd = json!({}),
        }
        true
    });
    leave_out_odd::<ServerCapabilities>(&mut capabilities, &[]);
    Value::Object(capabilities)
}

/// Texts and numbers in the place of `true` and `false`.
fn fix_flag(flag: &mut Value) {
    match flag.to_string().trim_matches('"').to_lowercase().as_str() {
        "true" | "1" | "yes" => *flag = json!(true),
        "false" | "0" | "no" | "" => *flag = json!(false),
        _ => *flag = Value::Null,
    }
}

/// The name and version of the server: without a name, it has that of its registration.
fn server_info(given: Option<Value>) -> Value {
    let mut info = match given {
        Some(Value::Object(info)) => info,
        Some(name @ Value::String(_)) => Map::from_iter([("name".to_owned(), name)]),
        _ => Map::new(),
    };
    for needed in ["name", "version"] {
        let said = info.shift_remove(needed).and_then(text).unwrap_or_default();
        info.insert(needed.to_owned(), said.into());
    }
    leave_out_odd::<Implementation>(&mut info, &["name", "version"]);
    Value::Object(info)
}

/// A text, also one in parts or in another form.
fn text(given: Value) -> Option<String> {
    match given {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(parts) => {
            let parts: Vec<String> = parts.into_iter().filter_map(text).collect();
            Some(parts.join("\n")).filter(|text| !text.is_empty())
        }
        Value::Object(mut members) => members.shift_remove("text").filter(Value::is_string).and_then(text),
        Value::Null | Value::Bool(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{DiscoverResult, InitializeResult, ServerResult};

    use super::*;

    fn initialized(mut result: Value) -> InitializeResult {
        FirstRequest::Initialize(ProtocolVersion::V_2025_11_25).fix(&mut result).unwrap();
        match serde_json::from_value(result).unwrap() {
            ServerResult::InitializeResult(result) => result,
            other => panic!("{other:?}"),
        }
    }

    fn discovered(mut result: Value) -> DiscoverResult {
        FirstRequest::Discover.fix(&mut result).unwrap();
        match serde_json::from_value(result).unwrap() {
            ServerResult::DiscoverResult(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// An answer of this kind to `initialize`, with one member replaced, or left out if it is `None`.
    fn with(member: &str, value: Option<Value>) -> InitializeResult {
        let mut result = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": true}, "prompts": {}},
            "serverInfo": {"name": "n", "version": "1"},
            "instructions": "be kind",
        });
        match value {
            Some(value) => result[member] = value,
            None => drop(result.as_object_mut().unwrap().shift_remove(member)),
        }
        initialized(result)
    }

    #[test]
    fn capabilities_are_there_in_whatever_form() {
        for (given, tools, list_changed) in [
            (json!({"tools": []}), true, None),
            (json!({"tools": true}), true, None),
            (json!({"tools": "yes"}), true, None),
            (json!({"tools": {"listChanged": "true"}}), true, Some(true)),
            (json!({"tools": {"listChanged": 0}}), true, Some(false)),
            (json!({"tools": {"listChanged": {}}}), true, None),
            (json!({"tools": {"listChanged": null}, "experimental": [], "logging": true}), true, None),
            (json!({"tools": {}, "experimental": {"a": true}, "extensions": 5}), true, None),
            (json!(["tools", "prompts"]), true, None),
            (json!({"tools": null}), false, None),
            (json!({"tools": false}), false, None),
            (json!([]), false, None),
            (json!(null), false, None),
            (json!(true), false, None),
        ] {
            let read = with("capabilities", Some(given.clone())).capabilities.tools;
            assert_eq!(read.map(|tools| tools.list_changed), tools.then_some(list_changed), "{given}");
        }
        assert!(with("capabilities", None).capabilities.tools.is_none());
    }

    #[test]
    fn a_server_without_a_name_or_version_is_one() {
        for (given, name, version) in [
            (Some(json!({"name": "a"})), "a", ""),
            (Some(json!({"name": "a", "version": null})), "a", ""),
            (Some(json!({"name": "a", "version": 2.1})), "a", "2.1"),
            (Some(json!({"name": "a", "version": "1", "icons": "x.png", "title": 5})), "a", "1"),
            (Some(json!({"version": "1"})), "", "1"),
            (Some(json!("a")), "a", ""),
            (Some(json!([])), "", ""),
            (Some(json!(null)), "", ""),
            (None, "", ""),
        ] {
            let read = with("serverInfo", given.clone()).server_info;
            assert_eq!((read.name.as_str(), read.version.as_str()), (name, version), "{given:?}");
        }
    }

    #[test]
    fn a_revision_that_is_not_known_is_that_which_was_asked_for() {
        for (given, expected) in [
            (Some(json!("2025-03-26")), "2025-03-26"),
            (Some(json!(" 2024-11-05\n")), "2024-11-05"),
            (Some(json!("2024-10-07")), "2024-10-07"),
            (Some(json!("2026-07-28")), "2026-07-28"),
            (Some(json!("2099-01-01")), "2025-11-25"),
            (Some(json!("latest")), "2025-11-25"),
            (Some(json!("")), "2025-11-25"),
            (Some(json!(20250618)), "2025-11-25"),
            (Some(json!(null)), "2025-11-25"),
            (None, "2025-11-25"),
        ] {
            assert_eq!(
                with("protocolVersion", given.clone()).protocol_version.as_str(),
                expected,
                "{given:?}"
            );
        }
    }

    #[test]
    fn instructions_are_a_text() {
        for (given, expected) in [
            (Some(json!(["a", 5, "b"])), Some("a\n5\nb")),
            (Some(json!({"text": "a"})), Some("a")),
            (Some(json!([])), None),
            (Some(json!({})), None),
            (Some(json!(null)), None),
            (Some(json!(false)), None),
            (None, None),
        ] {
            assert_eq!(with("instructions", given.clone()).instructions.as_deref(), expected, "{given:?}");
        }
        with("_meta", Some(json!([])));
        with("resultType", Some(json!("complete")));
        with("supportedVersions", Some(json!(["2025-11-25"])));
    }

    #[test]
    fn an_answer_to_discover_needs_nothing_but_to_be_one() {
        let read = discovered(json!({}));
        assert_eq!(read.supported_versions, [ProtocolVersion::V_2026_07_28]);
        let read = discovered(json!({
            "supportedVersions": ["2026-07-28", 5], "capabilities": {"tools": []}, "ttlMs": -1, "cacheScope": "all",
            "resultType": null, "instructions": "be kind", "serverInfo": {"name": "a"},
        }));
        assert_eq!(
            (read.ttl_ms, read.cache_scope, read.instructions.as_deref()),
            (0, CacheScope::Private, Some("be kind"))
        );
        assert!(read.capabilities.tools.is_some());
        assert_eq!(read.meta.unwrap()[SERVER_INFO], json!({"name": "a", "version": ""}));
    }

    #[test]
    fn what_is_no_result_is_named() {
        for (result, expected) in
            [(json!("ok"), "a string"), (json!([]), "a list"), (json!(true), "a boolean")]
        {
            let refused = FirstRequest::Discover.fix(&mut result.clone()).unwrap_err();
            assert_eq!(refused, format!("its result is {expected}, not an object"));
        }
    }
}
