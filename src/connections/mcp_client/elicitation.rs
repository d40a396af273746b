//! What servers ask the user (MCP, elicitation): forms and pages.

use futures::future::BoxFuture;
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ErrorCode, ErrorData, ProgressNotificationParam,
};
use serde_json::{Map, Value, json};

use crate::ground::text::visible::line;
use crate::ground::text::{plain, shortened};

/// The longest question of a server, in characters, and the longest form, in bytes: a user reads them in a dialog.
const QUESTION_CHARS: usize = 4_000;
const FORM_BYTES: usize = 32 * 1024;

/// The user, to whom servers speak while they work on calls.
pub(crate) trait Asker: Send + Sync {
    /// Shows how far the server `name` is with a call.
    fn show_progress(&self, name: &str, progress: &str);

    /// Asks the question of the server `name`. Returns what was filled in, which is nothing for a page.
    fn ask<'a>(
        &'a self,
        name: &'a str,
        question: Question,
    ) -> BoxFuture<'a, Result<Map<String, Value>, NotAnswered>>;
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Question {
    /// A form.
    Form {
        /// What is asked.
        message: String,
        /// The fields, as JSON Schema (MCP, `requestedSchema`).
        schema: Value,
    },
    /// A page to visit.
    Page {
        /// Why.
        message: String,
        /// Its URL.
        url: String,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAnswered {
    /// The user said no.
    Declined,
    /// Nobody has answered in time.
    Silent,
    /// Nobody can be asked; the text says why, and what to do.
    Nobody(String),
}

/// Asks the user, and makes the answer of it.
pub(super) async fn ask(
    name: &str,
    request: ElicitRequestParams,
    is_local: bool,
    asker: &dyn Asker,
) -> Result<ElicitResult, ErrorData> {
    let question = read(request, is_local)?;
    let schema = match &question {
        Question::Form { schema, .. } => Some(schema.clone()),
        Question::Page { .. } => None,
    };
    match asker.ask(name, question).await {
        Ok(content) => {
            let result = ElicitResult::new(ElicitationAction::Accept);
            Ok(match schema {
                Some(schema) => result.with_content(Value::Object(with_defaults(content, &schema))),
                None => result,
            })
        }
        Err(NotAnswered::Declined) => Ok(ElicitResult::new(ElicitationAction::Decline)),
        Err(NotAnswered::Silent) => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        Err(NotAnswered::Nobody(why)) => {
            let text = format!("`elicitation/create` is refused: {why}");
            Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None))
        }
    }
}

/// How far a server is: `3/10 pages`.
pub(super) fn progress(progress: &ProgressNotificationParam) -> String {
    let count = match progress.total {
        Some(total) => format!("{}/{total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match progress.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => shown(&format!("{count} {message}")),
        None => count,
    }
}

fn read(request: ElicitRequestParams, is_local: bool) -> Result<Question, ErrorData> {
    let invalid =
        |why: &str| ErrorData::invalid_params(format!("`elicitation/create` is refused: {why}"), None);
    match request {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema =
                serde_json::to_value(requested_schema).map_err(|error| invalid(&error.to_string()))?;
            match schema.to_string().len() > FORM_BYTES {
                true => Err(invalid("the form is too long to be shown to a user")),
                false => Ok(Question::Form { message: shown(&message), schema: with_plain_texts(schema) }),
            }
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            let parsed = url::Url::parse(&url).map_err(|_| invalid("its `url` is not a URL"))?;
            match is_page(&parsed, is_local) {
                true => Ok(Question::Page { message: shown(&message), url: parsed.to_string() }),
                false => Err(invalid("its `url` is not the address of a web page (`https`)")),
            }
        }
        _ => Err(invalid("its mode is unknown")),
    }
}

/// The message, short and without control characters.
fn shown(message: &str) -> String {
    let lines = plain(message);
    let lines: Vec<String> = lines.lines().map(line).collect();
    shortened(&lines.join("\n"), QUESTION_CHARS)
}

/// The schema, with texts for people without control characters.
fn with_plain_texts(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(members) => {
            for (name, value) in members {
                *value = match value.take() {
                    Value::String(text) if ["title", "description"].contains(&name.as_str()) => {
                        json!(line(&plain(&text)))
                    }
                    value => with_plain_texts(value),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = with_plain_texts(item.take())),
        _ => {}
    }
    schema
}

/// Whether a user may be sent to `url`: a page of the internet, or of this machine if the server is on it.
fn is_page(url: &url::Url, is_local: bool) -> bool {
    let address = match url.host() {
        Some(url::Host::Ipv4(address)) => Some(address.into()),
        Some(url::Host::Ipv6(address)) => Some(address.into()),
        _ => None,
    };
    !crate::ground::web::has_user(url)
        && match (url.scheme(), crate::ground::web::is_loopback(url)) {
            ("http" | "https", true) => is_local,
            ("https", false) => address.and_then(crate::ground::web::closed).is_none(),
            _ => false,
        }
}

/// What was filled in, with the defaults of the fields that were left out (SEP-1034).
fn with_defaults(mut content: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = field.get("default")
            && content.get(name).is_none_or(Value::is_null)
        {
            content.insert(name.clone(), default.clone());
        }
    }
    content
}

impl Question {
    /// The arguments by which an approval request shows it.
    pub(crate) fn arguments(&self) -> Map<String, Value> {
        let (message, key, value) = match self {
            Self::Form { message, schema } => (message, "requestedSchema", schema.clone()),
            Self::Page { message, url } => (message, "url", json!(url)),
        };
        Map::from_iter([("message".to_owned(), json!(message)), (key.to_owned(), value)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_left_out_have_their_defaults() {
        let schema =
            json!({"properties": {"a": {"default": 1}, "b": {"default": "x"}, "c": {"type": "string"}}});
        let content = json!({"a": 2, "b": null}).as_object().unwrap().clone();
        assert_eq!(Value::Object(with_defaults(content, &schema)), json!({"a": 2, "b": "x"}));
    }

    #[test]
    fn only_web_pages_are_opened() {
        let page = |url: &str| {
            let request = json!({"mode": "url", "message": "m", "url": url, "elicitationId": "1"});
            read(serde_json::from_value(request).unwrap(), true)
        };
        for url in ["https://example.com/x?y=1", "http://localhost:1/"] {
            assert!(page(url).is_ok(), "{url}");
        }
        for url in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "http://example.com/",
            "data:text/html,x",
            "https://a@example.com/",
            "https://10.0.0.1/",
            "x",
        ] {
            assert!(page(url).is_err(), "{url}");
        }
    }
}
