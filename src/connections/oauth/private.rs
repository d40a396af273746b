//! Authorization servers at private addresses, such as `http://10.0.0.1`. rmcp looks for them only with an HTTP client of its
//! own, which has none of our limits.

use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationMetadata};

use super::earlier::get;
use super::http::OauthHttp;

/// The metadata of such a server, in place of `error`, which rmcp has if it passed over all that the resource names.
///
/// # Errors
/// `error`, if there are none.
pub(super) async fn metadata(http: &OauthHttp, error: AuthError) -> Result<AuthorizationMetadata, AuthError> {
    let AuthError::AuthorizationServersUnavailable { authorization_servers, .. } = &error else {
        return Err(error);
    };
    for issuer in authorization_servers {
        let Ok(server) = Url::parse(issuer) else { continue };
        if !http.reachable().is_private(&server) {
            continue;
        }
        for path in places(server.path().trim_end_matches('/')) {
            let found = get(http, &server, &path).await;
            let found = found.and_then(|body| serde_json::from_slice::<AuthorizationMetadata>(&body).ok());
            // RFC 8414 §3.3: they are those of the server that was asked for.
            if let Some(metadata) = found.filter(|metadata| is_of(metadata, issuer)) {
                return Ok(metadata);
            }
        }
    }
    Err(error)
}

fn is_of(metadata: &AuthorizationMetadata, issuer: &str) -> bool {
    let found = metadata.issuer.as_deref();
    found.is_some_and(|found| found.trim_end_matches('/') == issuer.trim_end_matches('/'))
}

/// The places of the metadata of an issuer with this path (RFC 8414 §3.1, OpenID Connect Discovery §4).
fn places(path: &str) -> [String; 3] {
    [
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
        format!("{path}/.well-known/openid-configuration"),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, UdpSocket};

    use axum::Json;
    use axum::routing::get;
    use serde_json::json;

    use super::super::http::{OauthClients, ReachableAddresses};
    use super::*;
    use crate::ground::text::Redactor;
    use crate::ground::web::{ClosedAddress, closed};

    /// A private address of this machine, if it has one.
    fn private_address() -> Option<IpAddr> {
        [("0.0.0.0:0", "10.255.255.254:9"), ("[::]:0", "[fd00::1]:9")].into_iter().find_map(|(from, to)| {
            let socket = UdpSocket::bind(from).ok()?;
            socket.connect(to).ok()?;
            let address = socket.local_addr().ok()?.ip();
            (closed(address) == Some(ClosedAddress::Private)).then_some(address)
        })
    }

    async fn found(server: &str, private: bool, issuer: &str) -> Option<String> {
        let server = Url::parse(server).unwrap();
        let reachable = ReachableAddresses::from(&server, private);
        let http =
            OauthHttp::new(OauthClients::new(&server, reachable).unwrap(), reachable, Redactor::default());
        let error = AuthError::AuthorizationServersUnavailable {
            resource_metadata_url: server,
            authorization_servers: vec!["https://as.invalid/".to_owned(), issuer.to_owned()],
        };
        metadata(&http, error).await.ok().map(|metadata| metadata.token_endpoint)
    }

    #[tokio::test]
    async fn authorization_servers_at_private_addresses_are_found() {
        let Some(address) = private_address() else {
            assert!(std::env::var_os("CI").is_none(), "this machine has no private address to serve at");
            return;
        };
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let published = |issuer: String| {
            let token_endpoint = format!("{origin}/token");
            Json(
                json!({"issuer": issuer, "token_endpoint": token_endpoint, "authorization_endpoint": issuer}),
            )
        };
        let (root, other) = (published(origin.clone()), published("http://10.0.0.9".to_owned()));
        let router = axum::Router::new()
            .route("/.well-known/oauth-authorization-server", get(async || root))
            .route("/.well-known/oauth-authorization-server/other", get(async || other));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let expected = Some(format!("{origin}/token"));
        assert_eq!(found("https://mcp.example.com/mcp", true, &origin).await, expected);
        assert_eq!(found(&format!("{origin}/mcp"), false, &origin).await, expected);
        assert_eq!(found("https://mcp.example.com/mcp", false, &origin).await, None);
        assert_eq!(found("https://mcp.example.com/mcp", true, &format!("{origin}/other")).await, None);
        serving.abort();
    }
}
