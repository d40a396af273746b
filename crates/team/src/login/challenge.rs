//! Metadata of the protected resource (RFC 9728), and the answer to a request without a user (RFC 6750).

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER as RETRY_AFTER_HEADER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response};
use serde_json::{Value, json};

use super::error::RETRY_AFTER;
use super::{LoginConfig, TokenLoginError};

/// The path below which RFC 9728 has the metadata; that of the resource follows.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The texts that lead a client to the login.
#[derive(Debug, Clone)]
pub(super) struct LoginSigns {
    metadata: Value,
    metadata_path: String,
    metadata_url: String,
    scope: String,
}

impl LoginSigns {
    pub(super) fn new(config: &LoginConfig) -> Self {
        let resource = config.resource.url();
        let metadata_path = format!("{WELL_KNOWN}{}", resource.path().trim_end_matches('/'));
        // A JupyterHub is no authorization server that a client could find out about.
        let servers = config.issuers.iter().filter(|issuer| issuer.jupyterhub.is_none());
        let servers: Vec<&str> = servers.map(|issuer| issuer.issuer.as_str()).collect();
        let mut metadata = json!({
            "resource": config.resource.as_str(),
            "resource_name": "ipybox",
            "bearer_methods_supported": ["header"],
        });
        if !servers.is_empty() {
            metadata["authorization_servers"] = json!(servers);
        }
        if !config.required_scopes.is_empty() {
            metadata["scopes_supported"] = json!(config.required_scopes);
        }
        Self {
            metadata,
            metadata_url: format!("{}{metadata_path}", config.resource.origin()),
            metadata_path,
            scope: config.required_scopes.join(" "),
        }
    }

    pub(super) fn metadata(&self) -> &Value {
        &self.metadata
    }

    pub(super) fn metadata_path(&self) -> &str {
        &self.metadata_path
    }

    /// The value of `WWW-Authenticate`; none where a login would not help.
    pub(super) fn challenge(&self, error: &TokenLoginError) -> Option<HeaderValue> {
        let mut parameters = Vec::new();
        match error {
            TokenLoginError::Unavailable(_) => return None,
            TokenLoginError::Missing => {}
            refused => {
                parameters.extend(refused.code().map(|code| format!("error=\"{code}\"")));
                parameters.push(format!("error_description=\"{}\"", quotable(&refused.public_text())));
            }
        }
        // The texts of a configuration are checked: a scope has no quotes, and a URL that was parsed none.
        if !self.scope.is_empty() {
            parameters.push(format!("scope=\"{}\"", self.scope));
        }
        parameters.push(format!("resource_metadata=\"{}\"", self.metadata_url));
        HeaderValue::from_str(&format!("Bearer {}", parameters.join(", "))).ok()
    }

    pub(super) fn refusal(&self, error: &TokenLoginError) -> Response<String> {
        let body = json!({
            "error": error.code().unwrap_or("unauthorized"),
            "error_description": error.public_text(),
        });
        let mut response = Response::new(body.to_string());
        *response.status_mut() = error.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(challenge) = self.challenge(error) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if matches!(error, TokenLoginError::Unavailable(_)) {
            headers.insert(RETRY_AFTER_HEADER, HeaderValue::from(RETRY_AFTER.as_secs()));
        }
        response
    }
}

/// The text as far as `error_description` may hold it (RFC 6750, 3): ASCII without quotes and backslashes.
fn quotable(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '`' | '"' => '\'',
            '…' => '.',
            ' '..='~' if character != '\\' => character,
            _ => '?',
        })
        .collect()
}
