//! The metadata that an identity provider publishes (RFC 8414, OpenID Connect Discovery).

use http::StatusCode;
use serde::Deserialize;

use super::config::IssuerUrl;
use super::provider_http::{ProviderHttp, RequestCredentials, fault};
use super::{ProviderFault, SecureUrl};

/// The longest part of a foreign text in an error, in characters.
const SHOWN: usize = 200;

/// The endpoints of an issuer.
#[derive(Debug, Clone)]
pub(crate) struct IssuerMetadata {
    pub(super) jwks_uri: Option<SecureUrl>,
    pub(super) introspection_endpoint: Option<SecureUrl>,
    pub(super) authorization_endpoint: Option<SecureUrl>,
    pub(crate) token_endpoint: Option<SecureUrl>,
    /// Whether a browser always comes back with `iss` (RFC 9207).
    pub(super) answers_with_iss: bool,
}

#[derive(Deserialize)]
struct WrittenMetadata {
    issuer: String,
    #[serde(default)]
    jwks_uri: Option<String>,
    #[serde(default)]
    introspection_endpoint: Option<String>,
    #[serde(default)]
    authorization_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl IssuerMetadata {
    /// Asks the issuer, at the places of both standards.
    pub(crate) async fn fetch(http: &ProviderHttp, issuer: &IssuerUrl) -> Result<Self, ProviderFault> {
        for place in places(issuer) {
            let answer = http.get(&place, RequestCredentials::None).await?;
            if answer.status == StatusCode::OK {
                return Self::parse(issuer, &place, &answer.body);
            }
        }
        let nowhere = "publishes no metadata; check the URL, or name its keys with `jwks_uri`";
        Err(fault(issuer.secure(), nowhere))
    }

    fn parse(issuer: &IssuerUrl, place: &SecureUrl, json: &[u8]) -> Result<Self, ProviderFault> {
        let written: WrittenMetadata = serde_json::from_slice(json)
            .map_err(|_| fault(place, "answers with something that is no metadata"))?;
        if written.issuer != issuer.as_str() {
            let other: String = written.issuer.chars().take(SHOWN).collect();
            let why = format!(
                "is the metadata of the issuer {other:?}; write it like this, with or without a slash"
            );
            return Err(fault(place, why));
        }
        let endpoint = |name: &str, url: Option<String>| {
            url.map(|url| Self::endpoint(issuer, place, name, url)).transpose()
        };
        Ok(Self {
            jwks_uri: endpoint("jwks_uri", written.jwks_uri)?,
            introspection_endpoint: endpoint("introspection_endpoint", written.introspection_endpoint)?,
            authorization_endpoint: endpoint("authorization_endpoint", written.authorization_endpoint)?,
            token_endpoint: endpoint("token_endpoint", written.token_endpoint)?,
            answers_with_iss: written.authorization_response_iss_parameter_supported,
        })
    }

    fn endpoint(
        issuer: &IssuerUrl,
        place: &SecureUrl,
        name: &str,
        url: String,
    ) -> Result<SecureUrl, ProviderFault> {
        let url = SecureUrl::try_from(url)
            .map_err(|error| fault(place, format!("has a `{name}` that is {error}")))?;
        // A provider elsewhere must not lead to services of this machine without encryption.
        if url.url().scheme() == "http" && !issuer.secure().is_loopback() {
            return Err(fault(place, format!("has a `{name}` that is not encrypted")));
        }
        Ok(url)
    }
}

/// The places of an issuer's metadata, in the order in which MCP clients ask for them.
fn places(issuer: &IssuerUrl) -> Vec<SecureUrl> {
    let url = issuer.secure().url();
    let path = url.path().trim_end_matches('/');
    let paths = match path {
        "" => vec![
            "/.well-known/oauth-authorization-server".to_owned(),
            "/.well-known/openid-configuration".to_owned(),
        ],
        path => vec![
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ],
    };
    paths.iter().map(|path| issuer.secure().with_path(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(url: &str) -> IssuerUrl {
        IssuerUrl::try_from(SecureUrl::try_from(url.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn metadata_is_sought_at_the_places_of_both_standards() {
        let of = |url| places(&issuer(url)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            of("https://id.example/"),
            [
                "https://id.example/.well-known/oauth-authorization-server",
                "https://id.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            of("https://id.example/realms/a"),
            [
                "https://id.example/.well-known/oauth-authorization-server/realms/a",
                "https://id.example/.well-known/openid-configuration/realms/a",
                "https://id.example/realms/a/.well-known/openid-configuration",
            ]
        );
    }

    #[test]
    fn metadata_of_another_issuer_or_with_open_endpoints_is_refused() {
        let parse = |issuer_url: &str, json: &str| {
            let place = SecureUrl::try_from("https://id.example/m?secret".to_owned()).unwrap();
            IssuerMetadata::parse(&issuer(issuer_url), &place, json.as_bytes())
                .map_err(|error| error.to_string())
        };
        let good = r#"{"issuer": "https://id.example", "jwks_uri": "https://keys.example/?a=b"}"#;
        assert_eq!(
            parse("https://id.example", good).unwrap().jwks_uri.unwrap().as_str(),
            "https://keys.example/?a=b"
        );
        let error = parse("https://id.example/", good).unwrap_err();
        assert!(error.contains(r#"of the issuer "https://id.example"; write it like this"#), "{error}");
        assert!(!error.contains("secret"), "{error}");
        for url in ["http://keys.example", "http://127.0.0.1:1/", "file:///etc/passwd"] {
            let json = format!(r#"{{"issuer": "https://id.example", "jwks_uri": "{url}"}}"#);
            let error = parse("https://id.example", &json).unwrap_err();
            assert!(error.contains("has a `jwks_uri` that is not encrypted"), "{error}");
        }
        let local = r#"{"issuer": "http://localhost:1", "jwks_uri": "http://127.0.0.1:1/"}"#;
        assert!(parse("http://localhost:1", local).is_ok());
    }
}
