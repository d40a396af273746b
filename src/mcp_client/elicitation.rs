//! What servers ask the user (MCP, elicitation): forms and pages.

use futures::future::BoxFuture;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ErrorCode, ErrorData};
use serde_json::{Map, Value, json};

use crate::text::plain;

/// The longest question of a server, in characters, and the longest form, in bytes: a user reads them in a dialog.
const QUESTION_CHARS: usize = 4_000;
const FORM_BYTES: usize = 32 * 1024;

/// Asks the user on behalf of servers.
pub(crate) trait Asker: Send + Sync {
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
    asker: &dyn Asker,
) -> Result<ElicitResult, ErrorData> {
    let question = read(request)?;
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

fn read(request: ElicitRequestParams) -> Result<Question, ErrorData> {
    let invalid =
        |why: &str| ErrorData::invalid_params(format!("`elicitation/create` is refused: {why}"), None);
    match request {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema =
                serde_json::to_value(requested_schema).map_err(|error| invalid(&error.to_string()))?;
            match schema.to_string().len() > FORM_BYTES {
                true => Err(invalid("the form is too long to be shown to a user")),
                false => Ok(Question::Form { message: shown(&message), schema }),
            }
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            let parsed = url::Url::parse(&url).map_err(|_| invalid("its `url` is not a URL"))?;
            let is_page =
                parsed.scheme() == "https" || parsed.scheme() == "http" && crate::web::is_loopback(&parsed);
            match is_page {
                true => Ok(Question::Page { message: shown(&message), url: parsed.to_string() }),
                false => Err(invalid("its `url` is not the address of a web page (`https`)")),
            }
        }
        _ => Err(invalid("its mode is unknown")),
    }
}

/// The message, short and without control characters.
fn shown(message: &str) -> String {
    let message = plain(message);
    let mut characters = message.chars();
    let short: String = characters.by_ref().take(QUESTION_CHARS).collect();
    if characters.next().is_some() { format!("{short}…") } else { short }
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
            read(serde_json::from_value(request).unwrap())
        };
        for url in ["https://example.com/x?y=1", "http://localhost:1/"] {
            assert!(page(url).is_ok(), "{url}");
        }
        for url in
            ["javascript:alert(1)", "file:///etc/passwd", "http://example.com/", "data:text/html,x", "x"]
        {
            assert!(page(url).is_err(), "{url}");
        }
    }
}
