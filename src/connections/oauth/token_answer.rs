//! Answers of token endpoints as providers give them, in the form of RFC 6749 §5.1. Pure.

use serde_json::{Map, Value, json};
use url::form_urlencoded;

/// The type of a token whose answer names none.
const BEARER: &str = "Bearer";

/// The members of an answer, whatever media type it has: JSON, or a form, as GitHub answers.
pub(super) fn members(body: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(body).ok().or_else(|| form(body))
}

/// The members of a form. Other texts, such as HTML, have no names for all that they hold.
fn form(body: &[u8]) -> Option<Map<String, Value>> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let members: Map<String, Value> = form_urlencoded::parse(text.as_bytes())
        .map(|(name, value)| (name.into_owned(), value.into_owned().into()))
        .collect();
    let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_answer = members.contains_key("access_token") || members.contains_key("error");
    (is_answer && members.keys().all(is_name)).then_some(members)
}

/// Gives the members of an answer with a token the types of RFC 6749. What says nothing is left out: an empty refresh
/// token, for instance, would replace one that can be used.
pub(super) fn tidy(members: &mut Map<String, Value>) {
    let known = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    members.retain(|name, value| !matches!(name.as_str(), "refresh_token" | "token_type") || known(value));
    members.entry("token_type").or_insert_with(|| json!(BEARER));
    if let Some(value) = members.get_mut("expires_in") {
        *value = lifetime(value).map_or(Value::Null, Value::from);
    }
    if let Some(value) = members.get_mut("scope") {
        *value = scopes(value).map_or(Value::Null, Value::from);
    }
    members.retain(|_, value| !value.is_null());
}

/// The lifetime of a token, in seconds; `None` if that is not said, as by zero, which no token would be given for.
fn lifetime(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::String(text) => text.trim().parse().ok()?,
        other => other.as_f64()?,
    };
    // Longer than a century is without end.
    (1.0..3.2e9).contains(&seconds).then_some(seconds as u64)
}

/// The scopes as one text.
fn scopes(value: &Value) -> Option<String> {
    let text = match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        other => other.as_str()?.to_owned(),
    };
    Some(text.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())
}

/// The code of an error, as a text or in an object.
pub(super) fn error_code(members: &Map<String, Value>) -> Option<&str> {
    match members.get("error")? {
        Value::Object(error) => {
            ["code", "type", "status", "message"].iter().find_map(|name| error.get(*name)?.as_str())
        }
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Value) {
        let mut members = members(body.as_bytes()).unwrap();
        tidy(&mut members);
        assert_eq!(Value::Object(members), expected, "{body}");
    }

    #[test]
    fn members_get_the_types_of_the_standard() {
        for (given, expected) in [
            (json!(3600), Some(3600)),
            (json!(3600.0), Some(3600)),
            (json!(3599.9), Some(3599)),
            (json!("3600"), Some(3600)),
            (json!(" 3600.0 "), Some(3600)),
            (json!(-1), None),
            (json!("-1"), None),
            (json!(0), None),
            (json!(null), None),
            (json!(""), None),
            (json!("never"), None),
            (json!([]), None),
            (json!(1e300), None),
        ] {
            let answer = json!({"access_token": "t", "token_type": "bearer", "expires_in": given});
            let mut wanted = json!({"access_token": "t", "token_type": "bearer"});
            if let Some(seconds) = expected {
                wanted["expires_in"] = json!(seconds);
            }
            check(&answer.to_string(), wanted);
        }
        for (given, expected) in [
            (json!("a  b"), Some("a b")),
            (json!(["a", "b"]), Some("a b")),
            (json!(""), None),
            (json!([]), None),
            (json!(null), None),
            (json!(5), None),
        ] {
            let answer = json!({"access_token": "t", "token_type": "BEARER", "scope": given});
            let mut wanted = json!({"access_token": "t", "token_type": "BEARER"});
            if let Some(scopes) = expected {
                wanted["scope"] = json!(scopes);
            }
            check(&answer.to_string(), wanted);
        }
    }

    #[test]
    fn what_is_empty_replaces_nothing() {
        for empty in [json!(""), json!(null), json!(" "), json!(false)] {
            let answer = json!({"access_token": "t", "refresh_token": empty, "token_type": empty});
            check(&answer.to_string(), json!({"access_token": "t", "token_type": "Bearer"}));
        }
    }

    #[test]
    fn a_form_is_an_answer_and_a_page_is_none() {
        check(
            "access_token=gho_1&scope=repo%2Cgist&token_type=bearer\n",
            json!({"access_token": "gho_1", "scope": "repo,gist", "token_type": "bearer"}),
        );
        let refused = members(b"error=bad_verification_code&error_description=It+is+wrong.").unwrap();
        assert_eq!(error_code(&refused), Some("bad_verification_code"));
        for other in ["<a href='?x=1&error=2'>access_token=t</a>", "", "access token", "a=b", "\u{feff}"] {
            assert_eq!(members(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn errors_may_be_objects() {
        let members = |error: Value| Map::from_iter([("error".to_owned(), error)]);
        assert_eq!(
            error_code(&members(json!({"code": "invalid_grant", "message": "no"}))),
            Some("invalid_grant")
        );
        assert_eq!(error_code(&members(json!({"code": 400, "message": "no"}))), Some("no"));
        assert_eq!(error_code(&members(json!(5))), None);
    }
}
