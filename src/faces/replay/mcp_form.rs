//! Recorded servers and answers in the form of MCP. Pure.

use rmcp::model::{Prompt, ResourceTemplate, Tool};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::tools::recording::RecordedServer;
use ipybox_codegen as codegen;

/// The lists that a played server offers.
pub(super) struct PlayedLists {
    pub(super) tools: Vec<Tool>,
    /// `None` if the server has no resources.
    pub(super) templates: Option<Vec<ResourceTemplate>>,
    /// `None` if it has no prompts.
    pub(super) prompts: Option<Vec<Prompt>>,
}

impl PlayedLists {
    pub(super) fn of(server: &RecordedServer) -> serde_json::Result<Self> {
        let tools = server.tools.iter().map(|known| tool(server, known));
        let templates = server.others.resources.as_ref().map(|known| all(known.iter().map(template)));
        let prompts = server.others.prompts.as_ref().map(|known| all(known.iter().map(prompt)));
        Ok(Self { tools: all(tools)?, templates: templates.transpose()?, prompts: prompts.transpose()? })
    }
}

fn all<T: DeserializeOwned>(values: impl Iterator<Item = Value>) -> serde_json::Result<Vec<T>> {
    values.map(serde_json::from_value).collect()
}

/// An object of the members that are there.
fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let given = members.into_iter().filter_map(|(name, member)| Some((name.to_owned(), member?)));
    Value::Object(given.collect())
}

fn tool(server: &RecordedServer, tool: &codegen::Tool) -> Value {
    let annotations = server.annotations.get(&tool.name).map(|hints| {
        object([
            ("readOnlyHint", hints.read_only.map(Value::from)),
            ("destructiveHint", hints.destructive.map(Value::from)),
            ("idempotentHint", hints.idempotent.map(Value::from)),
            ("openWorldHint", hints.open_world.map(Value::from)),
        ])
    });
    object([
        ("name", Some(tool.name.clone().into())),
        ("title", tool.title.clone().map(Value::from)),
        ("description", tool.description.clone().map(Value::from)),
        ("inputSchema", Some(tool.input_schema.clone().into())),
        ("outputSchema", tool.output_schema.clone().map(Value::from)),
        ("annotations", annotations),
    ])
}

fn template(template: &codegen::ResourceTemplate) -> Value {
    object([
        ("uriTemplate", Some(template.uri_template.clone().into())),
        ("name", Some(template.name.clone().into())),
        ("title", template.title.clone().map(Value::from)),
        ("description", template.description.clone().map(Value::from)),
    ])
}

fn prompt(prompt: &codegen::Prompt) -> Value {
    let argument = |argument: &codegen::PromptArgument| {
        object([
            ("name", Some(argument.name.clone().into())),
            ("description", argument.description.clone().map(Value::from)),
            ("required", Some(argument.is_required.into())),
        ])
    };
    object([
        ("name", Some(prompt.name.clone().into())),
        ("title", prompt.title.clone().map(Value::from)),
        ("description", prompt.description.clone().map(Value::from)),
        ("arguments", Some(prompt.arguments.iter().map(argument).collect())),
    ])
}

/// The message of an answer that is an error.
fn error(answer: &Value) -> Option<&str> {
    answer["error"]["message"].as_str()
}

/// The result of a tool.
pub(super) fn result(answer: &Value) -> Value {
    if let Some(message) = error(answer) {
        return json!({"content": [{"type": "text", "text": message}], "isError": true});
    }
    let recorded = &answer["result"];
    let is_structured = answer["is_structured"] == true;
    let content = match (&answer["content"], recorded) {
        (Value::Array(content), _) => json!(content),
        (_, Value::Null) => json!([]),
        (_, Value::String(text)) if !is_structured => json!([{"type": "text", "text": text}]),
        // For clients that know no structured results.
        (_, value) => json!([{"type": "text", "text": value.to_string()}]),
    };
    let mut result = json!({"content": content, "isError": false});
    if is_structured {
        result["structuredContent"] = recorded.clone();
    }
    result
}

/// The contents of a resource.
pub(super) fn contents(mut answer: Value) -> Result<Value, String> {
    let blocks = blocks(&mut answer)?;
    let contents = blocks.into_iter().map(|mut block| {
        let Value::Object(mut members) = block["resource"].take() else { return Value::Null };
        members.retain(|_, member| !member.is_null());
        Value::Object(members)
    });
    Ok(json!({"contents": contents.collect::<Vec<_>>()}))
}

/// The messages of a prompt.
pub(super) fn messages(mut answer: Value) -> Result<Value, String> {
    let blocks = blocks(&mut answer)?;
    let roles = answer["result"]["roles"].as_array().cloned().unwrap_or_default();
    let message = |(role, block): (Value, Value)| json!({"role": role, "content": block});
    let messages: Vec<Value> = roles.into_iter().zip(blocks).map(message).collect();
    Ok(json!({"messages": messages}))
}

/// The list of resources.
pub(super) fn resources(mut answer: Value) -> Result<Value, String> {
    match error(&answer) {
        Some(message) => Err(message.to_owned()),
        None => Ok(Value::Object(Map::from_iter([("resources".to_owned(), answer["result"].take())]))),
    }
}

fn blocks(answer: &mut Value) -> Result<Vec<Value>, String> {
    if let Some(message) = error(answer) {
        return Err(message.to_owned());
    }
    match answer["content"].take() {
        Value::Array(blocks) => Ok(blocks),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_tools_are_results() {
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        assert_eq!(result(&json!({"result": "a"})), json!({"content": text("a"), "isError": false}));
        assert_eq!(result(&json!({"result": null})), json!({"content": [], "isError": false}));
        let structured = result(&json!({"result": {"a": 1}, "is_structured": true}));
        assert_eq!(
            structured,
            json!({"content": text("{\"a\":1}"), "isError": false, "structuredContent": {"a": 1}})
        );
        let failed = result(&json!({"error": {"kind": "tool", "message": "no"}}));
        assert_eq!(failed, json!({"content": text("no"), "isError": true}));
    }

    #[test]
    fn answers_of_resources_and_prompts_are_contents_and_messages() {
        let resource = json!({"uri": "a:b", "mimeType": null, "text": "x"});
        let answer = json!({"result": "x", "content": [{"type": "resource", "resource": resource}]});
        assert_eq!(contents(answer).unwrap(), json!({"contents": [{"uri": "a:b", "text": "x"}]}));
        let block = json!({"type": "text", "text": "hi"});
        let answer = json!({"result": {"roles": ["user"]}, "is_structured": true, "content": [block]});
        assert_eq!(messages(answer).unwrap(), json!({"messages": [{"role": "user", "content": block}]}));
        let failed = || json!({"error": {"kind": "tool", "message": "no"}});
        for found in [contents(failed()), messages(failed()), resources(failed())] {
            assert_eq!(found.unwrap_err(), "no");
        }
    }
}
