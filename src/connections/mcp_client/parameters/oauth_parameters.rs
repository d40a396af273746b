//! The parameter `oauth` of an HTTP server: how ipybox is known to its authorization server.

use serde_json::{Map, Value, json};

use super::fields::ParameterFields;
use super::parameters_error::ParametersError;
use crate::connections::oauth::SigningAlgorithm;

#[rustfmt::skip]
const KEYS: &[&str] = &[
    "oauth.client_id", "oauth.client_secret", "oauth.client_metadata_url", "oauth.issuer",
    "oauth.redirect_uri", "oauth.scopes", "oauth.grant", "oauth.private_key",
    "oauth.signing_algorithm", "oauth.identity_provider", "oauth.private_addresses",
    "oauth.resource",
];
/// The keys whose values are not, or not always, texts.
#[rustfmt::skip]
const NOT_TEXTS: [&str; 5] = [
    "oauth.scopes", "oauth.identity_provider", "oauth.private_addresses", "oauth.client_metadata_url",
    "oauth.resource",
];
const PROVIDER_KEYS: &[&str] = &[
    "oauth.identity_provider.issuer",
    "oauth.identity_provider.token_endpoint",
    "oauth.identity_provider.client_id",
    "oauth.identity_provider.client_secret",
    "oauth.identity_provider.id_token",
];

/// The keys whose values are secrets.
const SECRETS: [&str; 3] = ["client_secret", "private_key", "id_token"];

/// Whether and how ipybox logs in to an HTTP server. Placeholders are unfilled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LoginMethod {
    /// If the server asks for it, as a client that registers itself.
    #[default]
    Default,
    /// Not at all.
    Off,
    /// As these parameters say, whose types are checked.
    With(Map<String, Value>),
}

/// The way to get tokens, by the value of `grant`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantKind {
    Code,
    Client,
    Enterprise,
    Team,
}

impl GrantKind {
    pub(crate) fn of(parameters: &Map<String, Value>) -> Result<Self, ParametersError> {
        match parameters.get("grant").and_then(Value::as_str) {
            None | Some("authorization_code") => Ok(Self::Code),
            Some("client_credentials") => Ok(Self::Client),
            Some("enterprise") => Ok(Self::Enterprise),
            Some("team") => Ok(Self::Team),
            Some(found) => Err(ParametersError::Choice {
                key: "oauth.grant",
                found: found.to_owned(),
                expected: "`authorization_code`, `client_credentials`, `enterprise` or `team`",
            }),
        }
    }
}

impl LoginMethod {
    /// The values that may be secrets, with their keys.
    pub(crate) fn secrets(&mut self) -> impl Iterator<Item = (&'static str, &mut String)> {
        let parameters = match self {
            Self::With(parameters) => Some(parameters),
            Self::Default | Self::Off => None,
        };
        let (own, nested): (Vec<_>, Vec<_>) =
            parameters.into_iter().flatten().partition(|(_, value)| value.is_string());
        let nested = nested.into_iter().filter_map(|(_, value)| value.as_object_mut()).flatten();
        own.into_iter().chain(nested).filter_map(|(key, value)| {
            let key = SECRETS.iter().find(|secret| *secret == key)?;
            match value {
                Value::String(text) => Some((*key, text)),
                _ => None,
            }
        })
    }

    /// Reads the value of `oauth`.
    pub(crate) fn parse(value: Option<&Value>) -> Result<Self, ParametersError> {
        let object = match value {
            None | Some(Value::Null | Value::Bool(true)) => return Ok(Self::Default),
            Some(Value::Bool(false)) => return Ok(Self::Off),
            Some(Value::Object(object)) => object,
            Some(other) => return Err(super::fields::wrong_type("oauth", "an object or `false`", other)),
        };
        let parameters: Map<String, Value> = object
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        check(&parameters)?;
        Ok(if parameters.is_empty() { Self::Default } else { Self::With(parameters) })
    }

    /// The text that [`parse`](Self::parse) reads as this, if it is not the default.
    pub(crate) fn to_json(&self) -> Option<Value> {
        match self {
            Self::Default => None,
            Self::Off => Some(json!(false)),
            Self::With(parameters) => Some(Value::Object(parameters.clone())),
        }
    }
}

/// Checks types, names, and what belongs together.
fn check(parameters: &Map<String, Value>) -> Result<(), ParametersError> {
    let named = prefixed("oauth", parameters);
    let fields = ParameterFields::new(&named);
    fields.only(KEYS, "`oauth`")?;
    let required = |key| fields.required_text(key).map(drop);
    for key in KEYS.iter().filter(|key| !NOT_TEXTS.contains(key) && fields.has(key)) {
        required(*key)?;
    }
    check_urls(parameters)?;
    fields.flag("oauth.private_addresses")?;
    fields.flag("oauth.resource")?;
    fields.texts("oauth.scopes")?;
    if parameters.get("client_metadata_url") != Some(&json!(false)) {
        fields.text("oauth.client_metadata_url")?;
    }
    if let Some(found) = fields.text("oauth.signing_algorithm")?
        && !SigningAlgorithm::NAMES.iter().any(|(name, _)| *name == found)
    {
        let expected = "`ES256`, `ES384`, `RS256`, `RS384` or `RS512`";
        return Err(ParametersError::Choice { key: "oauth.signing_algorithm", found, expected });
    }
    let only_with = |key: &'static str, grant: &'static str| {
        if fields.has(key) { Err(ParametersError::OnlyWith { key, grant }) } else { Ok(()) }
    };
    let grant = GrantKind::of(parameters)?;
    if grant == GrantKind::Team {
        return fields.only(&["oauth.grant"], "`oauth` with `\"grant\": \"team\"`");
    }
    if grant != GrantKind::Client {
        only_with("oauth.private_key", "client_credentials")?;
        only_with("oauth.signing_algorithm", "client_credentials")?;
    }
    if grant != GrantKind::Enterprise {
        only_with("oauth.identity_provider", "enterprise")?;
    }
    if grant != GrantKind::Code {
        only_with("oauth.redirect_uri", "authorization_code")?;
        only_with("oauth.client_metadata_url", "authorization_code")?;
        required("oauth.client_id")?;
    }
    if fields.has("oauth.client_secret") {
        required("oauth.client_id")?;
    }
    match grant {
        GrantKind::Client if fields.has("oauth.private_key") => {
            if fields.has("oauth.client_secret") {
                Err(ParametersError::Contradiction {
                    first: "oauth.client_secret".to_owned(),
                    second: "oauth.private_key".to_owned(),
                })
            } else {
                Ok(())
            }
        }
        GrantKind::Client => required("oauth.client_secret"),
        GrantKind::Enterprise => check_provider(parameters.get("identity_provider")),
        GrantKind::Code | GrantKind::Team => Ok(()),
    }
}

fn check_provider(provider: Option<&Value>) -> Result<(), ParametersError> {
    let key = "oauth.identity_provider";
    let provider = match provider {
        None => return Err(ParametersError::Empty { key }),
        Some(Value::Object(provider)) => provider,
        Some(other) => return Err(super::fields::wrong_type(key, "an object", other)),
    };
    let named = prefixed(key, provider);
    let fields = ParameterFields::new(&named);
    fields.only(PROVIDER_KEYS, "`oauth.identity_provider`")?;
    for key in PROVIDER_KEYS.iter().filter(|key| !key.ends_with("client_secret") || fields.has(key)) {
        fields.required_text(key)?;
    }
    Ok(())
}

/// Checks the URLs that are known before placeholders are filled.
fn check_urls(parameters: &Map<String, Value>) -> Result<(), ParametersError> {
    let text = |name: &str| {
        let text = parameters.get(name).and_then(Value::as_str);
        text.filter(|text| !text.contains("${"))
    };
    let unusable = |key, why: &str| Err(ParametersError::Unusable { key, why: why.to_owned() });
    if let Some(Err(why)) = text("redirect_uri").map(crate::connections::oauth::check_redirect_uri) {
        return unusable("oauth.redirect_uri", why);
    }
    for (key, name) in [("oauth.client_metadata_url", "client_metadata_url"), ("oauth.issuer", "issuer")] {
        let is_secure = |url: url::Url| {
            url.scheme() == "https" || url.scheme() == "http" && crate::ground::web::is_loopback(&url)
        };
        if text(name).is_some_and(|text| !url::Url::parse(text).is_ok_and(is_secure)) {
            return unusable(key, "it is not an `https` URL");
        }
    }
    Ok(())
}

/// The object with its keys as errors name them.
fn prefixed(prefix: &str, object: &Map<String, Value>) -> Map<String, Value> {
    object.iter().map(|(key, value)| (format!("{prefix}.{key}"), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(value: Value, expected: &str) {
        let error = LoginMethod::parse(Some(&value)).unwrap_err().to_string();
        assert!(error.contains(expected), "{value}: {error}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        check_error(json!("yes"), "`oauth` must be an object or `false`, not a string");
        check_error(json!({"clientid": "a"}), "`oauth.clientid` is not a parameter of `oauth`");
        check_error(json!({"client_id": ""}), "`oauth.client_id` must not be empty");
        check_error(json!({"client_id": 1}), "`oauth.client_id` must be a string");
        check_error(json!({"client_secret": "s"}), "`oauth.client_id` must not be empty");
        check_error(json!({"scopes": "a b"}), "`oauth.scopes` must be a list of strings");
        check_error(json!({"grant": "password"}), "`oauth.grant` must be `authorization_code`");
        check_error(
            json!({"grant": "client_credentials", "client_id": "a"}),
            "`oauth.client_secret` must not be empty",
        );
        check_error(
            json!({"grant": "client_credentials", "client_id": "a", "client_secret": "s", "private_key": "k"}),
            "contradict each other",
        );
        check_error(
            json!({"grant": "client_credentials", "client_id": "a", "private_key": "k", "signing_algorithm": "none"}),
            "`oauth.signing_algorithm` must be `ES256`",
        );
        check_error(
            json!({"private_key": "k"}),
            "`oauth.private_key` goes with `\"grant\": \"client_credentials\"`",
        );
        check_error(
            json!({"grant": "enterprise", "client_id": "a"}),
            "`oauth.identity_provider` must not be empty",
        );
        check_error(
            json!({"grant": "enterprise", "client_id": "a", "identity_provider": {"issuer": "https://i"}}),
            "`oauth.identity_provider.token_endpoint` must not be empty",
        );
    }

    #[test]
    fn what_is_given_is_kept() {
        for value in [
            json!({"client_id": "a", "client_secret": "${S}", "scopes": ["x"], "redirect_uri": "http://localhost:1/c"}),
            json!({"client_metadata_url": false}),
            json!(false),
        ] {
            assert_eq!(LoginMethod::parse(Some(&value)).unwrap().to_json(), Some(value));
        }
        for value in [json!({}), json!(null), json!({"client_id": null}), json!(true)] {
            assert_eq!(LoginMethod::parse(Some(&value)).unwrap().to_json(), None, "{value}");
        }
    }
}
