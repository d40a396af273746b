//! The answer to a request of code that calls tools, as JSON, or as JSON with binary data behind it.

use std::borrow::Cow;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::approval::DenialReason;
use crate::connections::mcp_client::{ReceivedResult, Resource, ResourceBody, ToolContent, ToolOutput};
use crate::ground::budget::{Lease, apart};

/// The media type of JSON on the first line, followed by the binary data, whose lengths are the members
/// `bytes`. This way data of many megabytes are not encoded as JSON a second time.
const WITH_BYTES: &str = "application/vnd.ipybox.answer";

const JSON: &str = "application/json";

/// The form in which the caller reads an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// JSON, with binary data as Base64.
    Json,
    /// [`WITH_BYTES`].
    WithBytes,
}

/// The answer to a valid request.
#[derive(Debug)]
pub(super) enum CallAnswer {
    /// The result of a tool, or the contents of a resource.
    Received(ReceivedResult),
    /// An answer of a recording, as code got it.
    Known(Value),
    /// A result of ipybox itself: `true` for a command that may run, the inferred classes.
    Result(Value),
    /// Why there is no result.
    Error { kind: ErrorKind, message: String },
}

/// Which exception the request raises in Python.
#[derive(Debug, Clone, Copy)]
pub(super) enum ErrorKind {
    Tool,
    /// As `Tool`, but the server has not answered.
    Unreached,
    Rejected,
    Timeout,
}

/// An answer as the body of a response.
pub(super) struct WrittenAnswer {
    pub(super) bytes: Vec<u8>,
    media_type: &'static str,
    lease: Option<Lease>,
}

impl CallAnswer {
    pub(super) fn failed(message: String) -> Self {
        Self::Error { kind: ErrorKind::Tool, message }
    }

    pub(super) async fn into_response(self, form: AnswerForm) -> Response {
        match self.written(form).await {
            Ok(written) => ([(CONTENT_TYPE, written.media_type)], Bytes::from_owner(written)).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }

    /// The answer as bytes, with the lease of their memory.
    pub(super) async fn written(self, form: AnswerForm) -> std::io::Result<WrittenAnswer> {
        apart(self.weight(), move || {
            let mut written = self.to_bytes(form);
            if let Self::Received(ReceivedResult { mut lease, .. }) = self {
                lease.shrink(written.bytes.len());
                written.lease = Some(lease);
            }
            written
        })
        .await
    }

    /// About the memory that its data takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Received(received) => received.weight,
            Self::Known(_) | Self::Result(_) | Self::Error { .. } => 0,
        }
    }

    /// Whether the request may not run.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Error { kind: ErrorKind::Rejected | ErrorKind::Timeout, .. })
    }

    /// The answer as a value, with binary data as Base64.
    pub(super) fn to_json(&self) -> Value {
        // What is written here is JSON.
        serde_json::from_slice(&self.to_bytes(AnswerForm::Json).bytes).unwrap_or_default()
    }

    /// The answer as JSON, with binary data after it or, as Base64, in it.
    pub(super) fn to_bytes(&self, form: AnswerForm) -> WrittenAnswer {
        let json = match self {
            Self::Received(received) => serde_json::to_vec(&Output::new(&received.output, form)),
            Self::Known(answer) => serde_json::to_vec(answer),
            Self::Result(value) => serde_json::to_vec(&json!({"result": value})),
            Self::Error { kind, message } => {
                let kind = match kind {
                    ErrorKind::Tool | ErrorKind::Unreached => "tool",
                    ErrorKind::Rejected => "rejected",
                    ErrorKind::Timeout => "timeout",
                };
                serde_json::to_vec(&json!({"error": {"kind": kind, "message": message}}))
            }
        };
        // All that is written here can be encoded as JSON.
        let mut written = WrittenAnswer { bytes: json.unwrap_or_default(), media_type: JSON, lease: None };
        if let (Self::Received(ReceivedResult { output, .. }), AnswerForm::WithBytes) = (self, form) {
            written.add(output);
        }
        written
    }
}

impl WrittenAnswer {
    /// Appends the binary data, if any. The JSON before it has no line breaks.
    fn add(&mut self, output: &ToolOutput) {
        for data in output.content.iter().filter_map(ToolContent::data).filter(|data| !data.is_empty()) {
            if self.media_type == JSON {
                self.media_type = WITH_BYTES;
                self.bytes.push(b'\n');
            }
            self.bytes.extend_from_slice(data);
        }
    }
}

impl AsRef<[u8]> for WrittenAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<DenialReason> for CallAnswer {
    fn from(denied: DenialReason) -> Self {
        let kind = match denied {
            DenialReason::Expired { .. } => ErrorKind::Timeout,
            _ => ErrorKind::Rejected,
        };
        Self::Error { kind, message: denied.to_string() }
    }
}

/// `result`, and if that is not everything, `content` in MCP's form. It borrows its data: a copy would be as
/// large.
#[derive(Serialize)]
struct Output<'a> {
    result: WholeResult<'a>,
    /// Whether `result` is no text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_structured: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    content: Vec<Block<'a>>,
}

/// The structured result, or else the content as text, or null if there is nothing.
#[derive(Serialize)]
#[serde(untagged)]
enum WholeResult<'a> {
    Structured(&'a Value),
    #[serde(serialize_with = "as_text")]
    Text(&'a ToolOutput),
    Nothing,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text { text: Cow<'a, str> },
    ResourceLink(&'a Resource),
    Image(Binary<'a>),
    Audio(Binary<'a>),
    Resource { resource: Held<'a> },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Binary<'a> {
    mime_type: &'a str,
    #[serde(flatten)]
    data: Payload<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Held<'a> {
    uri: &'a str,
    mime_type: Option<&'a str>,
    #[serde(flatten)]
    data: Payload<'a>,
}

/// One member: text, Base64, or the number of bytes after the JSON.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Payload<'a> {
    Text(&'a str),
    #[serde(serialize_with = "as_base64")]
    Data(&'a [u8]),
    #[serde(serialize_with = "as_base64")]
    Blob(&'a [u8]),
    Bytes(usize),
}

impl<'a> Output<'a> {
    fn new(output: &'a ToolOutput, form: AnswerForm) -> Self {
        let is_structured = output.structured.is_some();
        let result = match (&output.structured, output.has_text()) {
            (Some(value), _) => WholeResult::Structured(value),
            (None, true) => WholeResult::Text(output),
            (None, false) => WholeResult::Nothing,
        };
        let says_everything = match output.content.as_slice() {
            [] => true,
            [ToolContent::Text(_)] => !is_structured,
            _ => false,
        };
        let content = if says_everything { &[] } else { output.content.as_slice() };
        Self {
            result,
            is_structured,
            content: content.iter().map(|content| Block::new(content, form)).collect(),
        }
    }
}

impl<'a> Block<'a> {
    fn new(content: &'a ToolContent, form: AnswerForm) -> Self {
        let binary = |mime_type: &'a str, data: &'a [u8]| {
            let data =
                if form == AnswerForm::WithBytes { Payload::Bytes(data.len()) } else { Payload::Data(data) };
            Binary { mime_type, data }
        };
        match content {
            ToolContent::Text(text) => Self::Text { text: Cow::Borrowed(text) },
            ToolContent::Unusable(_) => Self::Text { text: Cow::Owned(content.to_string()) },
            ToolContent::Link(resource) => Self::ResourceLink(resource),
            ToolContent::Image { media_type, data } => Self::Image(binary(media_type, data)),
            ToolContent::Audio { media_type, data } => Self::Audio(binary(media_type, data)),
            ToolContent::Resource { uri, media_type, body } => {
                let data = match (body, form) {
                    (ResourceBody::Text(text), _) => Payload::Text(text),
                    (ResourceBody::Bytes(data), AnswerForm::WithBytes) => Payload::Bytes(data.len()),
                    (ResourceBody::Bytes(data), AnswerForm::Json) => Payload::Blob(data),
                };
                Self::Resource { resource: Held { uri, mime_type: media_type.as_deref(), data } }
            }
        }
    }
}

fn as_text<S: Serializer>(output: &&ToolOutput, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(*output)
}

fn as_base64<S: Serializer>(data: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(data, &BASE64))
}

impl<S: Sync> FromRequestParts<S> for AnswerForm {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let is_wanted = parts.headers.get(ACCEPT).is_some_and(|accepted| accepted == WITH_BYTES);
        Ok(if is_wanted { Self::WithBytes } else { Self::Json })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::budget::ANSWERS;

    fn png() -> ToolContent {
        ToolContent::Image { media_type: "image/png".to_owned(), data: vec![0, 10, 255] }
    }

    fn answer(structured: Option<Value>, content: Vec<ToolContent>) -> CallAnswer {
        let output = ToolOutput { structured, content };
        CallAnswer::Received(ReceivedResult { output, weight: 0, lease: ANSWERS.lease() })
    }

    fn json(answer: &CallAnswer) -> Value {
        serde_json::from_slice(&answer.to_bytes(AnswerForm::Json).bytes).unwrap()
    }

    #[test]
    fn an_answer_says_no_more_than_it_must() {
        let text = || ToolContent::Text("x".to_owned());
        let check = |answer: CallAnswer, expected: Value| assert_eq!(json(&answer), expected);
        check(answer(None, vec![]), json!({"result": null}));
        check(answer(None, vec![text()]), json!({"result": "x"}));
        let one = json!({"type": "text", "text": "x"});
        check(answer(None, vec![text(), text()]), json!({"result": "x\nx", "content": [one, one]}));
        let structured = json!({"a": 1});
        let expected = json!({"result": structured, "is_structured": true, "content": [one]});
        check(answer(Some(structured), vec![text()]), expected);
    }

    #[tokio::test]
    async fn binary_data_follows_the_json_for_callers_that_want_it_so() {
        let pdf = ToolContent::Resource {
            uri: "file:///a".to_owned(),
            media_type: None,
            body: ResourceBody::Bytes(b"%PDF".to_vec()),
        };
        let response = answer(None, vec![png(), pdf.clone()]).into_response(AnswerForm::WithBytes).await;
        assert_eq!(response.headers()[CONTENT_TYPE], WITH_BYTES);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let end = body.iter().position(|byte| *byte == b'\n').unwrap();
        let json: Value = serde_json::from_slice(&body[..end]).unwrap();
        assert_eq!(json["content"][0], json!({"type": "image", "mimeType": "image/png", "bytes": 3}));
        assert_eq!(json["content"][1]["resource"]["bytes"], 4);
        assert_eq!(body[end + 1..], *b"\0\x0a\xff%PDF");

        let answer = answer(None, vec![png(), pdf]);
        let json = serde_json::from_slice::<Value>(&answer.to_bytes(AnswerForm::Json).bytes).unwrap();
        assert_eq!(json["content"][0]["data"], "AAr/");
        assert_eq!(json["content"][1]["resource"]["blob"], "JVBERg==");
    }

    #[test]
    fn links_are_passed_on_as_they_are() {
        let link = json!({"uri": "file:///a", "name": "a", "size": 7, "mimeType": "text/plain"});
        let content = ToolContent::Link(Box::new(serde_json::from_value(link).unwrap()));
        let json = json(&answer(None, vec![content]));
        assert_eq!(json["result"], "file:///a");
        let block = &json["content"][0];
        assert_eq!((&block["type"], &block["size"]), (&json!("resource_link"), &json!(7)));
    }
}
