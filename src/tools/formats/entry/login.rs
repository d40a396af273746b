//! The keys of other clients for a login, as our parameter `oauth` has them. Pure.

use serde_json::{Map, Value, json};

/// Reads what other clients have as `oauth` or `auth`, and adds the keys without a meaning here to `ignored`.
pub(super) fn adopt(value: &Value, ignored: &mut Vec<String>) -> Value {
    let Value::Object(object) = value else { return value.clone() };
    let mut own = Map::new();
    let is_remark = |key: &str| key.starts_with("//") || key.starts_with(['_', '#']);
    for (key, value) in object.iter().filter(|(key, value)| !value.is_null() && !is_remark(key)) {
        let plain: String = key.chars().filter(|letter| letter.is_alphanumeric()).collect();
        let (key, value) = match plain.to_lowercase().as_str() {
            "clientid" => ("client_id", value.clone()),
            "clientsecret" => ("client_secret", value.clone()),
            "clientmetadataurl" => ("client_metadata_url", value.clone()),
            "scope" | "scopes" => ("scopes", list_of_words(value)),
            "callbackport" => ("redirect_uri", json!(format!("http://localhost:{value}/callback"))),
            "redirecturi" | "redirecturl" => ("redirect_uri", value.clone()),
            "token" | "bearertoken" | "accesstoken" => ("token", value.clone()),
            "enabled" if value == &json!(false) => return json!(false),
            "authservermetadataurl"
            | "authorizationurl"
            | "authorizationendpoint"
            | "tokenurl"
            | "tokenendpoint"
            | "registrationurl"
            | "audience"
            | "audiences"
            | "enabled"
            | "type"
            | "tokenparamname"
            | "provider" => {
                ignored.push(format!("oauth.{key}"));
                continue;
            }
            _ => (key.as_str(), value.clone()),
        };
        own.insert(key.to_owned(), value);
    }
    Value::Object(own)
}

/// A text with blanks between its words, as a list.
fn list_of_words(value: &Value) -> Value {
    match value {
        Value::String(words) => json!(words.split_whitespace().collect::<Vec<_>>()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::mcp_client::ServerParameters;

    #[test]
    fn other_clients_spellings_are_understood() {
        let mut ignored = Vec::new();
        let check = |value: Value, expected: Value, ignored: &mut Vec<String>| {
            let adopted = adopt(&value, ignored);
            let server = json!({"url": "https://a/mcp", "oauth": adopted});
            ServerParameters::parse(server.as_object().unwrap()).unwrap();
            assert_eq!(adopted, expected);
        };
        let claude = json!({"clientId": "a", "callbackPort": 8080, "authServerMetadataUrl": "https://x"});
        let expected = json!({"client_id": "a", "redirect_uri": "http://localhost:8080/callback"});
        check(claude, expected, &mut ignored);
        assert_eq!(ignored, ["oauth.authServerMetadataUrl"]);
        let cursor = json!({"CLIENT_ID": "a", "CLIENT_SECRET": "${env:S}", "scopes": ["r"]});
        check(cursor, json!({"client_id": "a", "client_secret": "${env:S}", "scopes": ["r"]}), &mut ignored);
        let gemini = json!({"enabled": true, "clientId": "a", "scopes": "r w"});
        check(gemini, json!({"client_id": "a", "scopes": ["r", "w"]}), &mut ignored);
        check(json!({"enabled": false}), json!(false), &mut ignored);
    }
}
