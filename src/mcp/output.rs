//! A tool's result → what Python code gets for it. Pure.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// What a tool returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolOutput {
    /// Its structured result.
    Structured(Value),
    /// Its content as text.
    Text(String),
    /// Neither.
    Nothing,
}

/// The output of `result`, or the text of the error that the tool reports.
pub(super) fn read(result: CallToolResult) -> Result<ToolOutput, String> {
    let text = text(&result.content);
    if result.is_error == Some(true) {
        let structured = || result.structured_content.as_ref().map(Value::to_string);
        let told = Some(text).filter(|text| !text.is_empty()).or_else(structured);
        return Err(told.unwrap_or_else(|| "the tool reports an error without a message".to_owned()));
    }
    // Some servers write `null` for a structured result that they do not have.
    Ok(match result.structured_content.filter(|value| !value.is_null()) {
        Some(value) => ToolOutput::Structured(value),
        None if text.is_empty() => ToolOutput::Nothing,
        None => ToolOutput::Text(text),
    })
}

fn text(content: &[ContentBlock]) -> String {
    content.iter().map(block_text).collect::<Vec<_>>().join("\n")
}

/// The block's text; what has none is named in brackets, so that it is not lost in silence.
fn block_text(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => note("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => note("audio", &audio.mime_type, &audio.data),
        ContentBlock::ResourceLink(link) => link.uri.clone(),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                note(uri, mime_type.as_deref().unwrap_or("application/octet-stream"), blob)
            }
            _ => "[resource]".to_owned(),
        },
        _ => "[content of an unknown type]".to_owned(),
    }
}

fn note(what: &str, mime_type: &str, base64: &str) -> String {
    let bytes = base64.trim_end_matches('=').len() * 3 / 4;
    format!("[{what}: {mime_type}, {bytes} bytes]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(result: Value, expected: Result<ToolOutput, &str>) {
        let shown = result.to_string();
        let output = read(serde_json::from_value(result).unwrap());
        assert_eq!(output, expected.map_err(str::to_owned), "{shown}");
    }

    fn text(text: &str) -> Result<ToolOutput, &'static str> {
        Ok(ToolOutput::Text(text.to_owned()))
    }

    #[test]
    fn structured_content_wins() {
        let content = json!([{"type": "text", "text": "x"}]);
        let structured = |value| Ok(ToolOutput::Structured(value));
        check(json!({"content": content, "structuredContent": {"a": 1}}), structured(json!({"a": 1})));
        check(json!({"content": [], "structuredContent": {}}), structured(json!({})));
        check(json!({"content": content, "structuredContent": null}), text("x"));
    }

    #[test]
    fn text_blocks_are_joined_by_newlines() {
        let a_and_b = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        check(json!({"content": a_and_b}), text("a\nb"));
        check(json!({"content": []}), Ok(ToolOutput::Nothing));
        check(json!({"content": [{"type": "text", "text": ""}]}), Ok(ToolOutput::Nothing));
    }

    #[test]
    fn resources_count_as_text_and_binary_data_is_noted() {
        let one = |block: Value| json!({"content": [block]});
        let text_resource = json!({"uri": "file:///a", "text": "inside"});
        check(one(json!({"type": "resource", "resource": text_resource})), text("inside"));
        let blob = json!({"uri": "file:///b", "blob": "AAAA", "mimeType": "application/pdf"});
        check(
            one(json!({"type": "resource", "resource": blob})),
            text("[file:///b: application/pdf, 3 bytes]"),
        );
        check(one(json!({"type": "resource_link", "uri": "https://a/b", "name": "b"})), text("https://a/b"));
        check(
            one(json!({"type": "image", "data": "AAA=", "mimeType": "image/png"})),
            text("[image: image/png, 2 bytes]"),
        );
        check(
            one(json!({"type": "audio", "data": "", "mimeType": "audio/wav"})),
            text("[audio: audio/wav, 0 bytes]"),
        );
    }

    #[test]
    fn an_error_is_the_servers_text() {
        let content = json!([{"type": "text", "text": "no such file"}]);
        check(json!({"content": content, "isError": true}), Err("no such file"));
        check(json!({"content": [], "isError": true, "structuredContent": {"why": 1}}), Err(r#"{"why":1}"#));
        check(json!({"content": [], "isError": true}), Err("the tool reports an error without a message"));
    }
}
