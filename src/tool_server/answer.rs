//! The answer to a request of code that calls tools, as JSON, or as JSON with binary data behind it.

use std::convert::Infallible;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::approval::Denied;
use crate::audit::Refusal;
use crate::describe::describe;
use crate::mcp::{Body, Content, ToolOutput};

/// The media type of JSON on the first line, and after it the bytes that its members `bytes` count, one after the other.
/// Data of many megabytes need not pass through JSON a second time so.
const WITH_BYTES: &str = "application/vnd.ipybox.answer";

/// The form in which the caller reads an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON, with binary data as Base64.
    Json,
    /// [`WITH_BYTES`].
    WithBytes,
}

/// The answer to a request that was understood.
#[derive(Debug)]
pub(super) enum Answer {
    /// What a tool returned, or a resource holds.
    Output(ToolOutput),
    /// What ipybox itself says: `true` for a command that may run, the inferred classes.
    Result(Value),
    /// Why there is no result.
    Error { kind: ErrorKind, message: String },
}

/// Which exception the request raises in Python.
#[derive(Debug, Clone, Copy)]
pub(super) enum ErrorKind {
    Tool,
    Rejected,
    Timeout,
}

impl Answer {
    pub(super) fn failed(message: String) -> Self {
        Self::Error { kind: ErrorKind::Tool, message }
    }

    pub(super) fn into_response(self, form: Form) -> Response {
        let mut bytes = (form == Form::WithBytes).then(Vec::new);
        let json = self.to_json(&mut bytes);
        match bytes.filter(|bytes| !bytes.is_empty()) {
            None => Json(json).into_response(),
            Some(bytes) => {
                // JSON as it is written here has no line breaks.
                let mut body = json.to_string().into_bytes();
                body.push(b'\n');
                body.extend(bytes);
                ([(CONTENT_TYPE, WITH_BYTES)], body).into_response()
            }
        }
    }

    /// The answer as JSON. Binary data goes to the end of `bytes`, if there is such a place, else into the JSON.
    pub(super) fn to_json(&self, bytes: &mut Option<Vec<u8>>) -> Value {
        match self {
            Self::Output(output) => output_json(output, bytes),
            Self::Result(value) => json!({"result": value}),
            Self::Error { kind, message } => {
                let kind = match kind {
                    ErrorKind::Tool => "tool",
                    ErrorKind::Rejected => "rejected",
                    ErrorKind::Timeout => "timeout",
                };
                json!({"error": {"kind": kind, "message": message}})
            }
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Denied(denied) => {
                let kind = match denied {
                    Denied::Expired { .. } => ErrorKind::Timeout,
                    _ => ErrorKind::Rejected,
                };
                Self::Error { kind, message: denied.to_string() }
            }
            refusal => Self::Error { kind: ErrorKind::Rejected, message: describe(&refusal) },
        }
    }
}

/// `result`, and where that does not say everything, `content` in MCP's form; `is_structured` if `result` is no text.
fn output_json(output: &ToolOutput, bytes: &mut Option<Vec<u8>>) -> Value {
    let mut answer = json!({"result": output.value()});
    let is_structured = output.structured.is_some();
    if is_structured {
        answer["is_structured"] = true.into();
    }
    let says_everything = match output.content.as_slice() {
        [] => true,
        [Content::Text(_)] => !is_structured,
        _ => false,
    };
    if !says_everything {
        answer["content"] = output.content.iter().map(|content| content_json(content, bytes)).collect();
    }
    answer
}

fn content_json(content: &Content, bytes: &mut Option<Vec<u8>>) -> Value {
    let (mut block, data) = match content {
        Content::Text(text) => return json!({"type": "text", "text": text}),
        Content::Unusable(_) => return json!({"type": "text", "text": content.described()}),
        Content::Link(resource) => {
            let mut block = json!(resource);
            block["type"] = "resource_link".into();
            return block;
        }
        Content::Image { media_type, data } => (json!({"type": "image", "mimeType": media_type}), data),
        Content::Audio { media_type, data } => (json!({"type": "audio", "mimeType": media_type}), data),
        Content::Resource { uri, media_type, body } => {
            let resource = |member: &str, value: Value| json!({"type": "resource", "resource": {"uri": uri, "mimeType": media_type, member: value}});
            return match (body, bytes) {
                (Body::Text(text), _) => resource("text", text.as_str().into()),
                (Body::Bytes(data), Some(bytes)) => {
                    bytes.extend(data);
                    resource("bytes", data.len().into())
                }
                (Body::Bytes(data), None) => resource("blob", BASE64.encode(data).into()),
            };
        }
    };
    match bytes {
        Some(bytes) => {
            bytes.extend(data);
            block["bytes"] = data.len().into();
        }
        None => block["data"] = BASE64.encode(data).into(),
    }
    block
}

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let is_wanted = parts.headers.get(ACCEPT).is_some_and(|accepted| accepted == WITH_BYTES);
        Ok(if is_wanted { Self::WithBytes } else { Self::Json })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png() -> Content {
        Content::Image { media_type: "image/png".to_owned(), data: vec![0, 10, 255] }
    }

    fn answer(structured: Option<Value>, content: Vec<Content>) -> Answer {
        Answer::Output(ToolOutput { structured, content })
    }

    #[test]
    fn an_answer_says_no_more_than_it_must() {
        let text = || Content::Text("x".to_owned());
        let check = |answer: Answer, expected: Value| assert_eq!(answer.to_json(&mut None), expected);
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
        let pdf = Content::Resource {
            uri: "file:///a".to_owned(),
            media_type: None,
            body: Body::Bytes(b"%PDF".to_vec()),
        };
        let response = answer(None, vec![png(), pdf.clone()]).into_response(Form::WithBytes);
        assert_eq!(response.headers()[CONTENT_TYPE], WITH_BYTES);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let end = body.iter().position(|byte| *byte == b'\n').unwrap();
        let json: Value = serde_json::from_slice(&body[..end]).unwrap();
        assert_eq!(json["content"][0], json!({"type": "image", "mimeType": "image/png", "bytes": 3}));
        assert_eq!(json["content"][1]["resource"]["bytes"], 4);
        assert_eq!(body[end + 1..], *b"\0\x0a\xff%PDF");

        let json = answer(None, vec![png(), pdf]).to_json(&mut None);
        assert_eq!(json["content"][0]["data"], "AAr/");
        assert_eq!(json["content"][1]["resource"]["blob"], "JVBERg==");
    }

    #[test]
    fn links_are_passed_on_as_they_are() {
        let link = json!({"uri": "file:///a", "name": "a", "size": 7, "mimeType": "text/plain"});
        let content = Content::Link(Box::new(serde_json::from_value(link).unwrap()));
        let json = answer(None, vec![content]).to_json(&mut None);
        assert_eq!(json["result"], "file:///a");
        let block = &json["content"][0];
        assert_eq!((&block["type"], &block["size"]), (&json!("resource_link"), &json!(7)));
    }
}
