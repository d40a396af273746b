//! Servers of protocol revision 2025-03-26, which are their own authorization servers and publish no metadata of the
//! protected resource: their `issuer` may have a path, while the metadata is at the root of the server.

use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationMetadata};

use super::http::OauthHttp;

/// The metadata of such a server, in place of `error`, which rmcp has for any issuer that is not the root.
///
/// # Errors
/// `error`, if the server is none of them.
pub(super) async fn metadata(
    http: &OauthHttp,
    server: &Url,
    challenge: Option<&str>,
    error: AuthError,
) -> Result<AuthorizationMetadata, AuthError> {
    let AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } = &error else {
        return Err(error);
    };
    let is_ours = |issuer: &str| Url::parse(issuer).is_ok_and(|issuer| issuer.origin() == server.origin());
    let names_resource = challenge.is_some_and(|challenge| challenge.contains("resource_metadata"));
    if !is_ours(expected_issuer) || !is_ours(received_issuer) || names_resource {
        return Err(error);
    }
    for path in [
        format!("/.well-known/oauth-protected-resource{}", server.path()),
        "/.well-known/oauth-protected-resource".to_owned(),
    ] {
        if get(http, server, &path).await.is_some() {
            return Err(error);
        }
    }
    let found = get(http, server, "/.well-known/oauth-authorization-server").await;
    let found = found.and_then(|body| serde_json::from_slice::<AuthorizationMetadata>(&body).ok());
    found.filter(|metadata| metadata.issuer.as_ref() == Some(received_issuer)).ok_or(error)
}

/// The document at the path of the server, if there is one.
pub(super) async fn get(http: &OauthHttp, server: &Url, path: &str) -> Option<Vec<u8>> {
    let url = server.join(path).ok()?;
    let request = http::Request::get(url.as_str()).body(Vec::new()).ok()?;
    let answer = http.send(request).await.ok()?;
    (answer.status() == http::StatusCode::OK).then(|| answer.into_body())
}
