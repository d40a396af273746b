//! Tool results and resource contents, in our own types. Pure.

mod encoded;
mod identity;
mod texts;

use std::fmt;

use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult, Resource, ResourceContents, Role,
};
use serde_json::{Value, json};

use self::encoded::{DecodedData, UNKNOWN};
pub(crate) use self::identity::ServerIdentity;
use crate::connections::mcp_client::messages::ROLES;

/// The content that a tool returned, or a resource holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ToolOutput {
    /// The structured result, if there is one.
    pub(crate) structured: Option<Value>,
    /// The content, in the server's order.
    pub(crate) content: Vec<ToolContent>,
}

/// A piece of content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolContent {
    Text(String),
    Image {
        media_type: String,
        data: Vec<u8>,
    },
    Audio {
        media_type: String,
        data: Vec<u8>,
    },
    /// A resource whose content came with the result.
    Resource {
        uri: String,
        media_type: Option<String>,
        body: ResourceBody,
    },
    /// A resource that has to be read.
    Link(Box<Resource>),
    /// A piece that cannot be passed on, described.
    Unusable(String),
}

/// The content of a resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ResourceBody {
    Text(String),
    Bytes(Vec<u8>),
}

impl ToolOutput {
    /// Whether the content has any text.
    pub(crate) fn has_text(&self) -> bool {
        match self.content.as_slice() {
            [] => false,
            [ToolContent::Text(text)] => !text.is_empty(),
            [ToolContent::Resource { body: ResourceBody::Text(text), .. }] => !text.is_empty(),
            [ToolContent::Link(resource)] => !resource.uri.is_empty(),
            _ => true,
        }
    }

    /// The structured result, or else the content as text, or null if there is nothing.
    pub(crate) fn value(&self) -> Value {
        match &self.structured {
            Some(value) => value.clone(),
            None => Some(self.to_string()).filter(|text| !text.is_empty()).into(),
        }
    }
}

impl fmt::Display for ToolOutput {
    /// The content as one text: text unchanged, all else described in brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, content) in self.content.iter().enumerate() {
            let newline = if number == 0 { "" } else { "\n" };
            write!(formatter, "{newline}{content}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ToolContent {
    /// Text as it is; all else by its type and size, in brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut note = |what: &str, media_type: &str, data: &[u8]| {
            write!(formatter, "[{what}: {media_type}, {} bytes]", data.len())
        };
        match self {
            Self::Text(text) | Self::Resource { body: ResourceBody::Text(text), .. } => {
                formatter.write_str(text)
            }
            Self::Image { media_type, data } => note("image", media_type, data),
            Self::Audio { media_type, data } => note("audio", media_type, data),
            Self::Resource { uri, media_type, body: ResourceBody::Bytes(data) } => {
                let name = if uri.is_empty() { "resource" } else { uri };
                note(name, media_type.as_deref().unwrap_or(UNKNOWN), data)
            }
            Self::Link(resource) => formatter.write_str(&resource.uri),
            Self::Unusable(why) => write!(formatter, "[{why}]"),
        }
    }
}

impl ToolContent {
    /// Its binary data, if it is any.
    pub(crate) fn data(&self) -> Option<&[u8]> {
        match self {
            Self::Image { data, .. } | Self::Audio { data, .. } => Some(data),
            Self::Resource { body: ResourceBody::Bytes(data), .. } => Some(data),
            _ => None,
        }
    }

    fn read(block: ContentBlock) -> Self {
        match block {
            ContentBlock::Text(text) => Self::Text(text.text),
            ContentBlock::Image(image) => match DecodedData::read(&image.data) {
                Some(read) => {
                    Self::Image { media_type: read.certain_type(&image.mime_type), data: read.data }
                }
                None => Self::not_base64(&format!("image: {}", image.mime_type)),
            },
            ContentBlock::Audio(audio) => match DecodedData::read(&audio.data) {
                Some(read) => {
                    Self::Audio { media_type: read.certain_type(&audio.mime_type), data: read.data }
                }
                None => Self::not_base64(&format!("audio: {}", audio.mime_type)),
            },
            ContentBlock::ResourceLink(resource) => Self::Link(Box::new(resource)),
            ContentBlock::Resource(embedded) => Self::read_resource(embedded.resource),
            _ => Self::Unusable("content of a type that ipybox does not know".to_owned()),
        }
    }

    fn read_resource(contents: ResourceContents) -> Self {
        match contents {
            ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                Self::Resource { uri, media_type: mime_type, body: ResourceBody::Text(text) }
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                match DecodedData::read(&blob) {
                    Some(read) => {
                        let media_type = read.media_type(mime_type.as_deref()).or(mime_type);
                        Self::Resource { uri, media_type, body: ResourceBody::Bytes(read.data) }
                    }
                    None => Self::not_base64(&uri),
                }
            }
            _ => Self::Unusable("a resource of a type that ipybox does not know".to_owned()),
        }
    }

    fn not_base64(what: &str) -> Self {
        Self::Unusable(format!("{what}, whose data is not Base64"))
    }
}

/// The output of `result`, or the text of the error that the tool reports.
pub(super) fn read(result: CallToolResult) -> Result<ToolOutput, String> {
    let is_error = result.is_error == Some(true);
    let output = ToolOutput {
        // Some servers write `null` for a structured result that they do not have.
        structured: result.structured_content.filter(|value| !value.is_null()),
        content: result.content.into_iter().map(ToolContent::read).collect(),
    };
    if !is_error {
        return Ok(output);
    }
    let text = Some(output.to_string()).filter(|text| !text.trim().is_empty());
    let structured = || output.structured.as_ref().map(Value::to_string);
    Err(text.or_else(structured).unwrap_or_else(|| "the tool reports an error without a message".to_owned()))
}

/// The messages of a prompt: the roles are the structured result, and the content has a piece for each of them.
pub(super) fn read_prompt(result: GetPromptResult) -> ToolOutput {
    let role = |role: &Role| match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let known: Vec<_> = result.messages.iter().map(|message| role(&message.role)).collect();
    let odd = result.meta.as_ref().and_then(|meta| meta.get(ROLES)?.as_array());
    let odd = odd.filter(|roles| roles.len() == known.len() && roles.iter().all(Value::is_string));
    ToolOutput {
        structured: Some(odd.map_or_else(|| json!({ "roles": known }), |roles| json!({ "roles": roles }))),
        content: result.messages.into_iter().map(|message| ToolContent::read(message.content)).collect(),
    }
}

/// The contents of the resource at `uri`, which they have where they have none of their own.
pub(super) fn read_resource(result: ReadResourceResult, uri: &str) -> ToolOutput {
    let named = |mut content: ToolContent| {
        if let ToolContent::Resource { uri: own, .. } = &mut content
            && own.is_empty()
        {
            uri.clone_into(own);
        }
        content
    };
    let content = result.contents.into_iter().map(ToolContent::read_resource).map(named).collect();
    ToolOutput { structured: None, content }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(result: Value) -> Result<ToolOutput, String> {
        read(serde_json::from_value(result).unwrap())
    }

    #[track_caller]
    fn check_value(result: Value, expected: Value) {
        assert_eq!(output(result.clone()).unwrap().value(), expected, "{result}");
    }

    #[track_caller]
    fn check_content(block: Value, expected: ToolContent, described: &str) {
        let output = output(json!({"content": [block]})).unwrap();
        assert_eq!(output.content, [expected]);
        assert_eq!(output.to_string(), described);
    }

    #[test]
    fn structured_content_is_the_value_and_the_content_stays() {
        let content = json!([{"type": "text", "text": "x"}]);
        check_value(json!({"content": content, "structuredContent": {"a": 1}}), json!({"a": 1}));
        check_value(json!({"content": [], "structuredContent": {}}), json!({}));
        check_value(json!({"content": content, "structuredContent": null}), json!("x"));
        let both = output(json!({"content": content, "structuredContent": {"a": 1}})).unwrap();
        assert_eq!(both.content, [ToolContent::Text("x".to_owned())]);
    }

    #[test]
    fn text_blocks_are_joined_by_newlines() {
        let a_and_b = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        check_value(json!({"content": a_and_b}), json!("a\nb"));
        check_value(json!({"content": []}), Value::Null);
        check_value(json!({"content": [{"type": "text", "text": ""}]}), Value::Null);
    }

    #[test]
    fn binary_content_is_decoded() {
        let image = |data: &str| json!({"type": "image", "data": data, "mimeType": "image/png"});
        let png =
            |data: &[u8]| ToolContent::Image { media_type: "image/png".to_owned(), data: data.to_vec() };
        check_content(image("AAA="), png(&[0, 0]), "[image: image/png, 2 bytes]");
        check_content(image("AAA"), png(&[0, 0]), "[image: image/png, 2 bytes]");
        check_content(image("AA\nA="), png(&[0, 0]), "[image: image/png, 2 bytes]");
        check_content(image("data:image/png;base64,AAA="), png(&[0, 0]), "[image: image/png, 2 bytes]");
        let jpeg = json!({"type": "image", "data": "_9j_", "mimeType": ""});
        let expected =
            ToolContent::Image { media_type: "image/jpeg".to_owned(), data: vec![0xff, 0xd8, 0xff] };
        check_content(jpeg, expected, "[image: image/jpeg, 3 bytes]");
        let unusable = ToolContent::Unusable("image: image/png, whose data is not Base64".to_owned());
        check_content(image("?"), unusable, "[image: image/png, whose data is not Base64]");
        let audio = ToolContent::Audio { media_type: "audio/wav".to_owned(), data: Vec::new() };
        let block = json!({"type": "audio", "data": "", "mimeType": "audio/wav"});
        check_content(block, audio, "[audio: audio/wav, 0 bytes]");
    }

    #[test]
    fn resources_keep_their_uri_and_type() {
        let embedded = |resource: Value| json!({"type": "resource", "resource": resource});
        let resource = |uri: &str, media_type: Option<&str>, body| ToolContent::Resource {
            uri: uri.to_owned(),
            media_type: media_type.map(str::to_owned),
            body,
        };
        let text = embedded(json!({"uri": "file:///a", "text": "inside"}));
        check_content(text, resource("file:///a", None, ResourceBody::Text("inside".to_owned())), "inside");
        let blob = embedded(json!({"uri": "file:///b", "blob": "AAAA", "mimeType": "application/pdf"}));
        let expected = resource("file:///b", Some("application/pdf"), ResourceBody::Bytes(vec![0; 3]));
        check_content(blob, expected, "[file:///b: application/pdf, 3 bytes]");
        let link = json!({"type": "resource_link", "uri": "https://a/b", "name": "b"});
        check_content(link, ToolContent::Link(Box::new(Resource::new("https://a/b", "b"))), "https://a/b");
    }

    #[test]
    fn contents_without_a_uri_have_that_of_the_request() {
        let contents = json!([{"uri": "", "text": "a"}, {"uri": "b://c", "text": "b"}]);
        let result = serde_json::from_value(json!({"contents": contents})).unwrap();
        let resource = |uri: &str, text: &str| ToolContent::Resource {
            uri: uri.to_owned(),
            media_type: None,
            body: ResourceBody::Text(text.to_owned()),
        };
        assert_eq!(read_resource(result, "a://b").content, [resource("a://b", "a"), resource("b://c", "b")]);
    }

    #[test]
    fn an_error_is_the_servers_text() {
        let content = json!([{"type": "text", "text": "no such file"}]);
        let check = |result: Value, expected: &str| assert_eq!(output(result).unwrap_err(), expected);
        check(json!({"content": content, "isError": true}), "no such file");
        check(json!({"content": [], "isError": true, "structuredContent": {"why": 1}}), r#"{"why":1}"#);
        check(json!({"content": [], "isError": true}), "the tool reports an error without a message");
    }
}
