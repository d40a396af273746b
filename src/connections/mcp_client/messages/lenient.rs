//! Reads answers of which a part has a form that MCP does not have: the rest is worth reading. Pure, but for the log.
//!
//! Members that can be missing are left out, missing ones get what they mean, and content of an unknown kind becomes text.
//! Servers send icons without a source, annotations as texts, tools without a schema, links without a name; a tool has
//! run, whatever its answer looks like.

use rmcp::model::{ErrorData, InputRequiredResult, Prompt, PromptMessage, Resource, ResourceTemplate, Tool};
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Map, Value, json};

use super::odd_content::{fix_content, fix_contents, fix_messages, fix_result};
use super::odd_members::{fits, fix, leave_out_odd, name_link, wrap};
use super::result_kind::ResultKind;

/// The code of an error whose own code is no number: "internal error" of JSON-RPC.
const NO_CODE: i32 = -32603;

/// The values that some servers write for no error, beside a result.
const NO_ERRORS: [&str; 4] = ["false", r#""""#, "{}", "[]"];

/// Gives an answer the form of JSON-RPC: servers leave out the version, write `null` for members that the answer does not
/// have, and have errors of a form of their own.
pub(super) fn fix_answer(answer: &mut Value) {
    let Value::Object(members) = answer else { return };
    members.insert("jsonrpc".to_owned(), json!("2.0"));
    for of_request in ["method", "params"] {
        members.shift_remove(of_request);
    }
    let has_result = members.get("result").is_some_and(|result| !result.is_null());
    let is_none =
        |error: &Value| error.is_null() || (has_result && NO_ERRORS.contains(&error.to_string().as_str()));
    if members.get("error").is_none_or(is_none) {
        members.shift_remove("error");
    } else {
        members.shift_remove("result");
        members.entry("error").and_modify(fix_error);
    }
}

/// Makes an error of what a server calls one, with all that it says.
fn fix_error(error: &mut Value) {
    if fits::<ErrorData>(error) {
        return;
    }
    let code = error["code"].as_f64().map_or(NO_CODE, |code| code as i32);
    let message = match (&error["message"], &error["code"], &*error) {
        (Value::String(message), Value::Number(_) | Value::Null, _) | (_, _, Value::String(message)) => {
            message.clone()
        }
        _ => error.to_string(),
    };
    *error = json!({"code": code, "message": message});
}

/// A result, or what the server needs before it has one.
pub(crate) enum LenientResult<T> {
    Result(T),
    InputRequired(InputRequiredResult),
}

/// Reads a result that should be of this kind, but may name another one (MCP 2026-07-28, `resultType`). What it has does not
/// say: all members of a tool's result are optional.
///
/// # Errors
/// The kind is unknown, what has to be there is not, or has another form.
pub(crate) fn read<T: DeserializeOwned>(
    kind: ResultKind,
    mut result: Value,
) -> serde_json::Result<LenientResult<T>> {
    match result["resultType"].as_str() {
        None | Some("complete") => read_complete(kind, result).map(LenientResult::Result),
        Some("input_required") => match serde_json::from_value(result) {
            Ok(needed) => Ok(LenientResult::InputRequired(needed)),
            Err(_) => Err(serde_json::Error::custom("the server asks for input of an unknown kind or form")),
        },
        Some(other) => {
            let unknown = serde_json::Error::custom(format!("it has a result of the unknown kind `{other}`"));
            // In earlier revisions it is a member as any other.
            if let Some(members) = result.as_object_mut() {
                members.shift_remove("resultType");
            }
            serde_json::from_value(result).map(LenientResult::Result).map_err(|_| unknown)
        }
    }
}

/// Reads a result of this kind, and leaves out or replaces what is odd in it.
fn read_complete<T: DeserializeOwned>(kind: ResultKind, mut result: Value) -> serde_json::Result<T> {
    if let ResultKind::Call = kind {
        fix_result(&mut result);
    }
    if let Value::Object(members) = &mut result {
        let list = match kind {
            ResultKind::Call => {
                wrap(members, "content");
                fix_list(members, "content", fix_content)
            }
            ResultKind::Prompt => {
                fix_messages(members);
                fix_list(members, "messages", |message| fix::<PromptMessage>(message, &["role", "content"]))
            }
            ResultKind::Resource => {
                if let Some(contents) = members.shift_remove("content") {
                    members.entry("contents").or_insert(contents);
                }
                wrap(members, "contents");
                fix_list(members, "contents", fix_contents)
            }
            ResultKind::Tools => fix_list(members, "tools", fix_tool),
            ResultKind::Resources => fix_list(members, "resources", fix_named::<Resource>),
            ResultKind::ResourceTemplates => {
                fix_list(members, "resourceTemplates", fix_named::<ResourceTemplate>)
            }
            ResultKind::Prompts => fix_list(members, "prompts", fix_named::<Prompt>),
        };
        for (name, value) in members.iter_mut() {
            match (name.as_str(), &value) {
                ("isError", Value::Bool(_) | Value::Null)
                | ("nextCursor", Value::String(_) | Value::Null) => {}
                ("isError", odd) => {
                    *value = (!matches!(odd.to_string().trim_matches('"'), "" | "0" | "false")).into()
                }
                ("nextCursor", odd) => *value = odd.to_string().into(),
                _ => {}
            }
        }
        leave_out_odd::<T>(members, &[list, "isError", "nextCursor"]);
    }
    serde_json::from_value(result)
}

/// Fixes the items of the list `name`, which is empty if there is none, and returns its name. Items that cannot be
/// fixed are left out.
fn fix_list(
    members: &mut Map<String, Value>,
    name: &'static str,
    fix: fn(&mut Value) -> bool,
) -> &'static str {
    match members.get_mut(name) {
        Some(Value::Array(items)) => {
            let count = items.len();
            items.retain_mut(fix);
            let left_out = count - items.len();
            if left_out > 0 {
                tracing::warn!(list = name, left_out, "an MCP server sent items that cannot be read");
            }
        }
        // Anything else is no list.
        Some(Value::Null) | None => drop(members.insert(name.to_owned(), json!([]))),
        Some(_) => {}
    }
    name
}

fn fix_tool(tool: &mut Value) -> bool {
    if let Value::Object(members) = tool
        && !members.get("inputSchema").is_some_and(Value::is_object)
    {
        members.insert("inputSchema".to_owned(), json!({"type": "object"}));
    }
    fix::<Tool>(tool, &["name", "inputSchema"])
}

fn fix_named<T: DeserializeOwned>(item: &mut Value) -> bool {
    name_link(item);
    fix::<T>(item, &["name", "uri", "uriTemplate"])
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        CallToolResult, GetPromptResult, ListPromptsResult, ListResourcesResult, ListToolsResult,
    };

    use super::*;

    /// The result as it is read, as JSON.
    fn fixed<T: DeserializeOwned + serde::Serialize>(kind: ResultKind, result: Value) -> Value {
        serde_json::to_value(read_complete::<T>(kind, result).unwrap()).unwrap()
    }

    #[test]
    fn a_tool_with_oddities_is_kept_without_them() {
        let tools = json!({"nextCursor": 7, "tools": [
            {"name": "a", "icons": [{"sizes": "48x48"}], "annotations": {"readOnlyHint": "true"}, "description": "A"},
            {"name": "b", "inputSchema": {"type": "object", "properties": {}}, "title": 5},
            {"description": "it has no name"},
            "no tool",
        ]});
        let read = fixed::<ListToolsResult>(ResultKind::Tools, tools);
        let expected = json!([
            {"name": "a", "description": "A", "inputSchema": {"type": "object"}},
            {"name": "b", "inputSchema": {"type": "object", "properties": {}}},
        ]);
        assert_eq!((&read["tools"], &read["nextCursor"]), (&expected, &json!("7")));
    }

    #[test]
    fn good_content_survives_beside_odd_content() {
        let result = json!({"isError": "true", "content": [
            {"type": "text", "text": "good", "annotations": {"priority": "high"}},
            {"type": "hologram", "data": 1, "depth": 2},
            {"type": "resource_link", "uri": "a://b"},
            {"type": "text", "text": 5},
        ]});
        let read = fixed::<CallToolResult>(ResultKind::Call, result);
        assert_eq!(read["content"][0], json!({"type": "text", "text": "good"}));
        assert_eq!(read["content"][1]["text"], r#"{"type":"hologram","data":1,"depth":2}"#);
        assert_eq!(
            (&read["content"][2]["name"], &read["content"][2]["uri"]),
            (&json!("a://b"), &json!("a://b"))
        );
        assert_eq!(read["content"][3]["text"], r#"{"type":"text","text":5}"#);
        assert_eq!(read["isError"], true);
        let read =
            fixed::<CallToolResult>(ResultKind::Call, json!({"structuredContent": {"a": 1}, "isError": 0}));
        assert_eq!((&read["structuredContent"], &read["isError"]), (&json!({"a": 1}), &json!(false)));
    }

    #[test]
    fn content_without_its_list_is_content() {
        for (content, expected) in [(json!("a"), "a"), (json!({"type": "text", "text": "b"}), "b")] {
            let read = fixed::<CallToolResult>(ResultKind::Call, json!({"content": content}));
            assert_eq!(read["content"], json!([{"type": "text", "text": expected}]));
        }
        read_complete::<CallToolResult>(ResultKind::Call, json!({"content": 7})).unwrap_err();
    }

    #[track_caller]
    fn check_answer(mut answer: Value, expected: Value) {
        fix_answer(&mut answer);
        assert_eq!(answer, expected);
    }

    #[test]
    fn answers_get_the_form_of_json_rpc() {
        let result = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        for error in [json!(null), json!(false), json!(""), json!({})] {
            check_answer(
                json!({"id": 1, "result": {}, "error": error, "method": null, "params": null}),
                result.clone(),
            );
        }
        let failed = |code: i32, message: &str| json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}});
        for (error, expected) in [
            (json!({"code": -1, "message": "why"}), failed(-1, "why")),
            (json!({"code": -1.0, "message": "why"}), failed(-1, "why")),
            (json!({"message": "why"}), failed(NO_CODE, "why")),
            (json!("why"), failed(NO_CODE, "why")),
            (json!({"code": "E1", "message": "why"}), failed(NO_CODE, r#"{"code":"E1","message":"why"}"#)),
            (json!({"code": 5}), failed(5, r#"{"code":5}"#)),
            (json!({}), failed(NO_CODE, "{}")),
        ] {
            check_answer(json!({"id": 1, "result": null, "error": error}), expected);
        }
        check_answer(
            json!({"id": 1, "result": {"content": []}, "error": {"code": 1, "message": "both"}}),
            failed(1, "both"),
        );
        check_answer(json!([]), json!([]));
    }

    #[test]
    fn resources_and_prompts_are_fixed_alike() {
        let resources = json!({"resources": [{"uri": "a://b", "size": "5 kB"}, {}]});
        let read = fixed::<ListResourcesResult>(ResultKind::Resources, resources);
        assert_eq!(read["resources"], json!([{"uri": "a://b", "name": "a://b"}]));
        let prompts = json!({"prompts": [{"name": "p", "arguments": "none"}], "_meta": 5});
        assert_eq!(
            fixed::<ListPromptsResult>(ResultKind::Prompts, prompts)["prompts"],
            json!([{"name": "p"}])
        );
        let prompt = json!({"messages": [{"role": "user", "content": {"type": "hologram"}}]});
        let read = fixed::<GetPromptResult>(ResultKind::Prompt, prompt);
        assert_eq!(read["messages"][0]["content"]["text"], r#"{"type":"hologram"}"#);
    }

    #[test]
    fn another_kind_of_result_is_not_an_empty_one() {
        let read = |result| read::<CallToolResult>(ResultKind::Call, result);
        for kind in [json!("complete"), json!(null)] {
            assert!(matches!(read(json!({"resultType": kind})), Ok(LenientResult::Result(_))));
        }
        let ask = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {
            "type": "object", "properties": {}}}});
        for requests in [json!({}), json!({"a": ask})] {
            let needed =
                json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"});
            let Ok(LenientResult::InputRequired(needed)) = read(needed) else { panic!("it needs input") };
            assert_eq!(needed.request_state.as_deref(), Some("s"));
        }
        for requests in [json!([ask]), json!({"a": ask, "b": {"method": "weather/get"}})] {
            let needed =
                json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"});
            assert!(read(needed).is_err());
        }
        for result in [json!({"resultType": "input_required"}), json!({"resultType": "task", "task": {}})] {
            assert!(read(result).is_err());
        }
        let of_its_own = json!({"resultType": "page", "content": [{"type": "text", "text": "1"}]});
        assert!(matches!(read(of_its_own), Ok(LenientResult::Result(_))));
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for result in [json!(5), json!({"tools": "many"}), json!([])] {
            read_complete::<ListToolsResult>(ResultKind::Tools, result).unwrap_err();
        }
    }
}
