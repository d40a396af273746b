//! Tokens that are got without a user: by the client's own credentials (RFC 6749 §4.4, RFC 7523), or by the assertion of an
//! enterprise's identity provider (ID-JAG).

use http::header::CONTENT_TYPE;
use oauth2::{ClientSecret, TokenResponse as _};
use rmcp::transport::auth::enterprise::{
    EmaAuthorizationServer, EmaClientAuthentication, EmaExchangeRequest,
};
use rmcp::transport::auth::{AuthorizationManager, ClientCredentialsConfig, OAuthTokenResponse};
use serde_json::Value;
use url::form_urlencoded;

use super::http::OauthHttp;
use super::server::{AuthorizationServer, KeptClient, ProtectedServer};
use super::token::{AccessToken, now};
use super::{Error, IdentityProvider, MachineClient, TokenGrant, foreign, jwt, team, with_causes};
use crate::ground::text::describe;

/// The type of the client's assertion, a JSON Web Token (RFC 7523 §2.2).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A token without a user, for a server that has answered with `challenge`.
pub(super) async fn token(server: &ProtectedServer, challenge: Option<&str>) -> Result<AccessToken, Error> {
    if let TokenGrant::Team = server.settings.grant {
        return team::token(server).await;
    }
    let (mut manager, resolved) = server.discover(challenge, KeptClient::default()).await?;
    server.check_issuer(&resolved).await?;
    let scopes = match server.settings.scopes.as_slice() {
        [] => manager.select_initial_scopes(&[]).await,
        scopes => scopes.to_vec(),
    };
    let metadata = &resolved.metadata;
    match &server.settings.grant {
        TokenGrant::Client(MachineClient::Secret { client_id, client_secret }) => {
            let config = ClientCredentialsConfig::ClientSecret {
                client_id: client_id.clone(),
                client_secret: client_secret.clone(),
                scopes,
                resource: Some(server.url.to_string()),
            };
            by_secret(&mut manager, &resolved.http, config).await
        }
        TokenGrant::Client(MachineClient::Key { client_id, private_key, algorithm }) => {
            let audience = metadata.issuer.as_deref().unwrap_or(&metadata.token_endpoint);
            let assertion = jwt::assertion(client_id, audience, private_key, *algorithm, now())?;
            by_assertion(server, &resolved, &assertion, &scopes).await
        }
        TokenGrant::Enterprise(provider) => by_provider(server, &resolved, provider, scopes).await,
        TokenGrant::Code { .. } | TokenGrant::Team => Err(Error::Ended("a user has to log in".to_owned())),
    }
}

async fn by_secret(
    manager: &mut AuthorizationManager,
    http: &OauthHttp,
    config: ClientCredentialsConfig,
) -> Result<AccessToken, Error> {
    // The tokens of a client are not kept: it can have new ones at any time.
    manager.set_credential_store(rmcp::transport::auth::InMemoryCredentialStore::new());
    let refused = |error| Error::Token(with_causes(&error));
    manager.validate_client_credentials_metadata(&config).map_err(refused)?;
    manager.configure_client_credentials(&config).map_err(refused)?;
    let tokens = manager.exchange_client_credentials(&config).await;
    let tokens = tokens.map_err(|error| Error::Token(http.why(&describe(&error))))?;
    Ok(AccessToken::lasting(tokens.access_token().secret().clone(), tokens.expires_in()))
}

async fn by_assertion(
    server: &ProtectedServer,
    resolved: &AuthorizationServer,
    assertion: &str,
    scopes: &[String],
) -> Result<AccessToken, Error> {
    let scopes = scopes.join(" ");
    let fields = [
        ("grant_type", "client_credentials"),
        ("client_assertion_type", ASSERTION_TYPE),
        ("client_assertion", assertion),
        ("resource", server.url.as_str()),
        ("scope", scopes.as_str()),
    ];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = http::Request::post(&resolved.metadata.token_endpoint)
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form.into_bytes())
        .map_err(|error| Error::Token(error.to_string()))?;
    let answer = resolved.http.send(request).await;
    let answer = answer.map_err(|error| Error::Unavailable(with_causes(error.as_ref())))?;
    if !answer.status().is_success() {
        return Err(Error::Token(refusal(answer.status(), answer.body())));
    }
    let tokens: OAuthTokenResponse = serde_json::from_slice(answer.body())
        .map_err(|_| Error::Token("its answer is not a token response".to_owned()))?;
    Ok(AccessToken::lasting(tokens.access_token().secret().clone(), tokens.expires_in()))
}

/// An error answer (RFC 6749 §5.2) as text.
fn refusal(status: http::StatusCode, body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| answer.get(key).and_then(Value::as_str);
    match (text("error"), text("error_description")) {
        (Some(error), Some(description)) => foreign(&format!("{error}: {description}")),
        (Some(error), None) => foreign(error),
        (None, _) => format!("HTTP {status}"),
    }
}

async fn by_provider(
    server: &ProtectedServer,
    resolved: &AuthorizationServer,
    provider: &IdentityProvider,
    scopes: Vec<String>,
) -> Result<AccessToken, Error> {
    let http = &*resolved.http;
    let metadata = &resolved.metadata;
    let authentication = |secret: &Option<String>, methods: Option<&Value>| match secret {
        None => EmaClientAuthentication::None,
        Some(secret) => {
            let secret = ClientSecret::new(secret.clone());
            let takes = |method: &str| {
                let methods = methods.and_then(Value::as_array);
                methods.is_some_and(|methods| methods.iter().any(|each| each == method))
            };
            if takes("client_secret_post") && !takes("client_secret_basic") {
                EmaClientAuthentication::ClientSecretPost(secret)
            } else {
                EmaClientAuthentication::ClientSecretBasic(secret)
            }
        }
    };
    let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported");
    let issuer = metadata.issuer.clone();
    let issuer =
        issuer.ok_or_else(|| Error::Discovery("the authorization server names no `issuer`".to_owned()))?;
    let identity =
        EmaAuthorizationServer::new(&provider.issuer, &provider.token_endpoint, &provider.client_id)
            .with_client_authentication(authentication(&provider.client_secret, None));
    let resource =
        EmaAuthorizationServer::new(issuer, &metadata.token_endpoint, &provider.resource_client_id)
            .with_client_authentication(authentication(&provider.resource_client_secret, methods));
    let exchange =
        EmaExchangeRequest::new_with_id_token(identity, resource, server.url.as_str(), &provider.id_token);
    let exchanged = exchange.with_scopes(scopes).exchange(http, http).await;
    let tokens = exchanged.map_err(|error| Error::Token(http.why(&describe(&error))))?;
    Ok(AccessToken::lasting(tokens.access_token.secret().clone(), tokens.expires_in))
}
