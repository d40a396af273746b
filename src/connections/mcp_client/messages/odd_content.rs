//! Contents of tools, resources and prompts in another form than the protocol's: pure. What is in them is worth more than its
//! form, so nothing is left out: what cannot be read otherwise is shown as it came.

use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::{Map, Value, json};

use super::odd_members::{fits, fix, name_link, wrap};

/// Members that kinds of content cannot do without.
const CONTENT: [&str; 7] = ["type", "text", "data", "mimeType", "resource", "uri", "name"];

/// The key of a prompt's roles in `_meta`, where one of them is none of the protocol's.
pub(crate) const ROLES: &str = "ipybox/roles";

/// Reads the result of a tool that is no object, or has another form: the one of the first revision, `toolResult`, or none.
pub(super) fn fix_result(result: &mut Value) {
    let is_content = |item: &Value| item.get("type").is_some_and(Value::is_string);
    match result {
        Value::Array(items) if !items.is_empty() && items.iter().all(is_content) => {
            *result = json!({"content": items});
        }
        Value::String(_) | Value::Array(_) => {
            *result = json!({"content": [{"type": "text", "text": as_text(result)}]})
        }
        _ => {}
    }
    let Value::Object(members) = result else { return };
    if ["content", "structuredContent", "isError"].iter().any(|known| members.contains_key(*known)) {
        return;
    }
    match members.shift_remove("toolResult") {
        Some(inner @ Value::Object(_)) if inner.get("content").is_some() => *result = inner,
        Some(Value::Null) | None
            if members.keys().all(|name| matches!(name.as_str(), "_meta" | "resultType")) => {}
        Some(object @ Value::Object(_)) => drop(members.insert("structuredContent".to_owned(), object)),
        Some(other) if !other.is_null() => {
            members.insert("content".to_owned(), json!([{"type": "text", "text": as_text(&other)}]));
        }
        _ => *result = json!({"structuredContent": members}),
    }
}

/// A piece of content. Whether it can be read then, which it always can.
pub(super) fn fix_content(content: &mut Value) -> bool {
    name_link(content);
    if !fits::<ContentBlock>(content) {
        let sent = as_text(content);
        complete(content);
        if !fix::<ContentBlock>(content, &CONTENT) {
            *content = json!({"type": "text", "text": sent});
        }
    }
    true
}

/// Gives a piece of content the members that its type has.
fn complete(content: &mut Value) {
    let Value::Object(members) = content else { return };
    let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
    let kind = match kind {
        "image_url" | "input_image" => "image",
        "input_audio" => "audio",
        "" if members.get("text").is_some_and(Value::is_string) => "text",
        "" if members.contains_key("resource") => "resource",
        kind => kind,
    }
    .to_owned();
    if matches!(kind.as_str(), "image" | "audio") {
        let at = |pointer: &str| content.pointer(pointer).and_then(Value::as_str);
        let data = ["/data", "/source/data", "/image_url/url", "/image_url", "/url", "/blob"]
            .into_iter()
            .find_map(at);
        let named = ["/mimeType", "/mime_type", "/mediaType", "/media_type", "/source/media_type"];
        let media_type = named.into_iter().find_map(at).unwrap_or_default();
        if let Some(data) = data.filter(|data| !data.starts_with("http")) {
            *content = json!({"type": kind, "data": data, "mimeType": media_type});
        }
        return;
    }
    if let Some(resource) = members.get_mut("resource").filter(|_| kind == "resource") {
        fix_contents(resource);
    }
    members.insert("type".to_owned(), kind.into());
}

/// The contents of a resource: a text or data, which may lack the URI.
pub(super) fn fix_contents(contents: &mut Value) -> bool {
    if !fits::<ResourceContents>(contents) {
        let sent = as_text(contents);
        if let Value::Object(members) = contents {
            if !members.get("uri").is_some_and(Value::is_string) {
                members.insert("uri".to_owned(), json!(""));
            }
            if let Some(text) = members.get_mut("text").filter(|text| !text.is_string() && !text.is_null()) {
                *text = json!(text.to_string());
            }
            if let Some(data @ Value::String(_)) = members.shift_remove("data") {
                members.entry("blob").or_insert(data);
            }
        }
        if !fix::<ResourceContents>(contents, &["uri", "text", "blob"]) {
            *contents = json!({"uri": "", "text": sent});
        }
    }
    true
}

/// The messages of a prompt: each has one content and a role, of which the protocol knows two. Others are kept in `_meta`.
pub(super) fn fix_messages(members: &mut Map<String, Value>) {
    wrap(members, "messages");
    let Some(Value::Array(messages)) = members.get_mut("messages") else { return };
    let mut fixed = Vec::new();
    let mut roles = Vec::new();
    for message in std::mem::take(messages) {
        let (role, contents) = parts(message);
        let known = if role == "assistant" { "assistant" } else { "user" };
        for mut content in contents {
            fix_content(&mut content);
            fixed.push(json!({"role": known, "content": content}));
            roles.push(json!(role));
        }
    }
    *messages = fixed;
    if roles.iter().any(|role| role != "user" && role != "assistant") {
        let meta = members.entry("_meta").or_insert(Value::Null);
        if !meta.is_object() {
            *meta = json!({});
        }
        meta[ROLES] = Value::Array(roles);
    }
}

/// The role of a message, and its contents.
fn parts(message: Value) -> (String, Vec<Value>) {
    const USER: &str = "user";
    let mut members = match message {
        Value::Object(members) => members,
        other => return (USER.to_owned(), vec![other]),
    };
    let role = members.shift_remove("role").and_then(|role| role.as_str().map(str::to_owned));
    let contents = match members.shift_remove("content") {
        Some(Value::Array(contents)) if !contents.is_empty() => contents,
        Some(content) => vec![content],
        None => vec![Value::Object(members)],
    };
    (role.unwrap_or_else(|| USER.to_owned()), contents)
}

/// The value as a text.
fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fix: impl Fn(&mut Value), given: Value, expected: Value) {
        let mut fixed = given.clone();
        fix(&mut fixed);
        assert_eq!(fixed, expected, "{given}");
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    #[test]
    fn a_result_in_an_old_form_or_none_is_kept() {
        for (given, expected) in [
            (json!({"toolResult": "a"}), json!({"content": [text("a")]})),
            (json!({"toolResult": 5}), json!({"content": [text("5")]})),
            (json!({"toolResult": [1, 2]}), json!({"content": [text("[1,2]")]})),
            (json!({"toolResult": {"a": 1}}), json!({"structuredContent": {"a": 1}})),
            (json!({"toolResult": {"content": [text("a")]}}), json!({"content": [text("a")]})),
            (json!({"toolResult": {"a": 1}, "content": []}), json!({"toolResult": {"a": 1}, "content": []})),
            (json!({"answer": 42}), json!({"structuredContent": {"answer": 42}})),
            (json!("a"), json!({"content": [text("a")]})),
            (json!([text("a")]), json!({"content": [text("a")]})),
            (json!([1, 2]), json!({"content": [text("[1,2]")]})),
            (json!({}), json!({})),
            (json!({"_meta": {}}), json!({"_meta": {}})),
            (json!(5), json!(5)),
        ] {
            check(fix_result, given, expected);
        }
    }

    #[test]
    fn images_in_other_forms_are_images() {
        let image =
            |data: &str, media_type: &str| json!({"type": "image", "data": data, "mimeType": media_type});
        for given in [
            json!({"type": "image", "data": "AAAA"}),
            json!({"type": "image", "data": "AAAA", "mimeType": null}),
            json!({"type": "image", "url": "AAAA"}),
            json!({"type": "image_url", "image_url": {"url": "AAAA"}}),
            json!({"type": "input_image", "image_url": "AAAA"}),
        ] {
            check(|given| assert!(fix_content(given)), given, image("AAAA", ""));
        }
        let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
        check(
            |given| assert!(fix_content(given)),
            json!({"type": "image", "source": source}),
            image("AAAA", "image/png"),
        );
        let link = json!({"type": "image", "url": "https://a/b.png"});
        check(|given| assert!(fix_content(given)), link.clone(), text(&link.to_string()));
    }

    #[test]
    fn content_without_a_type_shows_it() {
        check(|given| assert!(fix_content(given)), json!({"text": "a"}), text("a"));
        let resource = json!({"resource": {"text": "a"}});
        let expected = json!({"resource": {"text": "a", "uri": ""}, "type": "resource"});
        check(|given| assert!(fix_content(given)), resource, expected);
        check(|given| assert!(fix_content(given)), json!({"a": 1}), text(r#"{"a":1}"#));
    }

    #[test]
    fn contents_of_resources_are_kept_in_each_form() {
        for (given, expected) in [
            (json!({"text": "a"}), json!({"text": "a", "uri": ""})),
            (json!({"uri": null, "blob": "AAAA"}), json!({"uri": "", "blob": "AAAA"})),
            (json!({"uri": "a://b", "text": {"a": 1}}), json!({"uri": "a://b", "text": r#"{"a":1}"#})),
            (json!({"uri": "a://b", "data": "AAAA"}), json!({"uri": "a://b", "blob": "AAAA"})),
            (json!({"uri": "a://b", "text": "a", "mimeType": 5}), json!({"uri": "a://b", "text": "a"})),
            (json!("a"), json!({"uri": "", "text": "a"})),
            (json!({"a": 1}), json!({"uri": "", "text": r#"{"a":1}"#})),
        ] {
            check(|given| assert!(fix_contents(given)), given, expected);
        }
    }

    #[test]
    fn messages_keep_their_role_whatever_it_is() {
        let read = |messages: Value| {
            let mut members = Map::from_iter([("messages".to_owned(), messages)]);
            fix_messages(&mut members);
            Value::Object(members)
        };
        let message = |role: &str, said: &str| json!({"role": role, "content": text(said)});
        assert_eq!(
            read(json!([message("system", "a"), message("assistant", "b"), {"content": "c"}])),
            json!({
                "messages": [message("user", "a"), message("assistant", "b"), message("user", "c")],
                "_meta": {ROLES: ["system", "assistant", "user"]},
            })
        );
        assert_eq!(read(json!("a")), json!({"messages": [message("user", "a")]}));
        let parts = json!([{"role": "assistant", "content": [text("a"), text("b")]}]);
        assert_eq!(read(parts), json!({"messages": [message("assistant", "a"), message("assistant", "b")]}));
        assert_eq!(read(json!([{"role": "user", "text": "a"}])), json!({"messages": [message("user", "a")]}));
    }
}
