//! Questions of servers to the user (MCP, elicitation): forms and pages.

use futures::future::BoxFuture;
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ErrorCode, ErrorData, ProgressNotificationParam,
};
use serde_json::{Map, Value, json};

use crate::connections::mcp_client::requests::URL_BYTES;
use crate::ground::text::visible::{self, TextUse, line};
use crate::ground::text::{plain, shortened};
use crate::ground::web;

/// The longest question of a server, in characters, and the longest form, in bytes: a user reads them in a dialog.
const QUESTION_CHARS: usize = 4_000;
const FORM_BYTES: usize = 32 * 1024;

/// The user, to whom servers speak while they work on calls.
pub(crate) trait UserAsker: Send + Sync {
    /// Shows how far the server `name` is with a call.
    fn show_progress(&self, name: &str, progress: &str);

    /// Asks the question of the server `name`. Returns what was filled in, which is nothing for a page.
    fn ask<'a>(
        &'a self,
        name: &'a str,
        question: ElicitationQuestion,
    ) -> BoxFuture<'a, Result<Map<String, Value>, NotAnswered>>;
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ElicitationQuestion {
    /// A form.
    Form {
        /// The text of the question.
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
pub(crate) async fn ask(
    name: &str,
    request: ElicitRequestParams,
    is_local: bool,
    asker: &dyn UserAsker,
) -> Result<ElicitResult, ErrorData> {
    let question = read(request, is_local)?;
    let schema = match &question {
        ElicitationQuestion::Form { schema, .. } => Some(schema.clone()),
        ElicitationQuestion::Page { .. } => None,
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

/// The progress of a server: `3/10 pages`.
pub(crate) fn progress(progress: &ProgressNotificationParam) -> String {
    let count = match progress.total {
        Some(total) => format!("{}/{total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match progress.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => shown(&format!("{count} {message}")),
        None => count,
    }
}

fn read(request: ElicitRequestParams, is_local: bool) -> Result<ElicitationQuestion, ErrorData> {
    let invalid =
        |why: &str| ErrorData::invalid_params(format!("`elicitation/create` is refused: {why}"), None);
    match request {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema =
                serde_json::to_value(requested_schema).map_err(|error| invalid(&error.to_string()))?;
            if schema.to_string().len() > FORM_BYTES {
                return Err(invalid("the form is too long to be shown to a user"));
            }
            if let Some(text) = disguised(&schema) {
                let text = shortened(&as_shown(text), 100);
                return Err(invalid(&format!(
                    "`{text}`, a field's name or value, has characters that a user cannot see or could take for others"
                )));
            }
            Ok(ElicitationQuestion::Form { message: shown(&message), schema: with_plain_texts(schema) })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            if url.len() > URL_BYTES {
                return Err(invalid(&format!("its `url` is longer than {URL_BYTES} bytes")));
            }
            let parsed = url::Url::parse(&url).map_err(|_| invalid("its `url` is not a URL"))?;
            if is_page(&parsed, is_local) {
                Ok(ElicitationQuestion::Page { message: shown(&message), url: parsed.to_string() })
            } else {
                Err(invalid("its `url` is not the address of a web page (`https`)"))
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

/// A text of a form as people are shown it.
fn as_shown(text: &str) -> String {
    line(&plain(text))
}

/// The keywords whose texts are only shown.
const SHOWN: [&str; 3] = ["title", "description", "enumNames"];

/// A text that is shown in another form than it has, though the answer has to repeat it: all but those of [`SHOWN`], such as
/// the names of fields, the values to choose from, and defaults.
fn disguised(schema: &Value) -> Option<&str> {
    // Texts of other languages are as good as ours here: a long default may be prose.
    let in_text =
        |text: &str| text.split('\n').any(|line| visible::shown(&plain(line), TextUse::Text) != line);
    match schema {
        Value::String(text) => in_text(text).then_some(text),
        Value::Array(items) => items.iter().find_map(disguised),
        Value::Object(members) => members.iter().find_map(|(name, value)| match value {
            _ if in_text(name) => Some(name.as_str()),
            Value::String(_) | Value::Array(_) if SHOWN.contains(&name.as_str()) => None,
            value => disguised(value),
        }),
        _ => None,
    }
}

/// The schema, with texts for people without control characters.
fn with_plain_texts(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(members) => {
            for (name, value) in members {
                *value = match value.take() {
                    Value::String(text) if SHOWN.contains(&name.as_str()) => json!(as_shown(&text)),
                    Value::Array(texts) if SHOWN.contains(&name.as_str()) => {
                        let shown =
                            |text: Value| text.as_str().map_or(Value::Null, |text| json!(as_shown(text)));
                        texts.into_iter().map(shown).collect()
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
    !web::has_user(url)
        && match (url.scheme(), web::is_loopback(url)) {
            ("http" | "https", true) => is_local,
            ("https", false) => web::literal(url).and_then(web::closed).is_none(),
            _ => false,
        }
}

/// The filled fields, with the defaults of those that were left out (SEP-1034).
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

impl ElicitationQuestion {
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

    fn form(field: Value) -> Result<Value, String> {
        let schema = json!({"type": "object", "properties": {"field": field}});
        form_of(schema).map(|schema| schema["properties"]["field"].clone())
    }

    fn form_of(schema: Value) -> Result<Value, String> {
        let request = json!({"mode": "form", "message": "m", "requestedSchema": schema});
        match read(serde_json::from_value(request).unwrap(), true) {
            Ok(ElicitationQuestion::Form { schema, .. }) => Ok(schema),
            Ok(ElicitationQuestion::Page { .. }) => panic!("it is a form"),
            Err(error) => Err(error.message.into_owned()),
        }
    }

    #[test]
    fn forms_show_what_they_say() {
        let evil = "pay\u{202e}001\u{1b}[2J";
        let shown = "pay\\u202e001";
        let titled = |key: &str| json!({"type": "string", key: [{"const": "a", "title": evil}]});
        let named = form(
            json!({"type": "string", "title": evil, "description": evil, "enum": ["a"], "enumNames": [evil]}),
        );
        let named = named.unwrap();
        for text in [&named["title"], &named["description"], &named["enumNames"][0]] {
            assert_eq!(*text, json!(shown));
        }
        assert_eq!(form(titled("oneOf")).unwrap()["oneOf"][0]["title"], json!(shown));
        for field in [
            json!({"type": "string", "enum": [evil]}),
            json!({"type": "string", "default": evil}),
            json!({"type": "string", "oneOf": [{"const": evil, "title": "a"}]}),
            json!({"type": "array", "items": {"anyOf": [{"const": evil, "title": "a"}]}, "default": []}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": [evil]}),
        ] {
            let refused = form(field.clone()).unwrap_err();
            assert!(refused.contains(shown), "{field}: {refused}");
        }
        let mut properties = Map::new();
        properties.insert(evil.to_owned(), json!({"type": "string"}));
        let refused = form_of(json!({"type": "object", "properties": properties})).unwrap_err();
        assert!(refused.contains(shown), "{refused}");
        let names = json!({"type": "string", "enum": ["имя", "שם", "é"], "default": "two\nlines"});
        assert_eq!(form(names.clone()).unwrap(), names);
        // A field may have the name of a keyword.
        let schema = json!({"type": "object", "properties": {"title": {"type": "string", "title": evil}}});
        assert_eq!(form_of(schema).unwrap()["properties"]["title"]["title"], json!(shown));
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
            &format!("https://example.com/{}", "a".repeat(URL_BYTES)),
        ] {
            assert!(page(url).is_err(), "{url}");
        }
    }
}
