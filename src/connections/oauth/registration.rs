//! Dynamic registration of a client (RFC 7591): ipybox takes the way to authenticate that the authorization server has.

use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use rmcp::transport::auth::AuthorizationManager;
use serde_json::{Map, Value, json};

use super::server::AuthorizationServer;
use super::{Error, with_causes};

/// The name under which ipybox is registered.
pub(super) const CLIENT_NAME: &str = "ipybox";

/// The member of metadata that lists how clients authenticate.
const METHODS: &str = "token_endpoint_auth_methods_supported";

/// The methods of a client's authentication, the best first: a program on a user's machine keeps no secret; one in the body of a
/// request needs no escaping.
const PREFERRED: [&str; 3] = ["none", "client_secret_post", "client_secret_basic"];

/// A client that was registered.
pub(super) struct RegisteredClient {
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    /// The method by which it authenticates, by its name in RFC 7591.
    pub(super) method: String,
}

/// Has the client of `manager` authenticate in this way, whichever others the authorization server has.
pub(super) fn authenticate_by(
    method: Option<&str>,
    found: &AuthorizationServer,
    manager: &mut AuthorizationManager,
) {
    let Some(method) = method else { return };
    let mut metadata = found.metadata.clone();
    metadata.additional_fields.insert(METHODS.to_owned(), json!([method]));
    manager.set_metadata(metadata);
}

/// Registers a client. An authorization server that does not say which ways it has is asked for one after the other.
pub(super) async fn register(
    found: &AuthorizationServer,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<RegisteredClient, Error> {
    let Some(endpoint) = &found.metadata.registration_endpoint else {
        return Err(Error::Registration("Dynamic client registration not supported".to_owned()));
    };
    found.http.reachable().check("its registration endpoint", endpoint)?;
    let mut refusal = "it has no way for a client to authenticate that ipybox has".to_owned();
    for method in methods(found) {
        let answer = found.http.send(request(endpoint, method, redirect_uri, scopes)?).await;
        let answer = answer.map_err(|error| Error::Registration(with_causes(error.as_ref())))?;
        if answer.status().is_success() {
            return read(&answer, method);
        }
        let is_judged = answer.status() == StatusCode::BAD_REQUEST;
        let text = String::from_utf8_lossy(answer.body());
        refusal = super::foreign(&format!("HTTP {}: {text}", answer.status()));
        if !is_judged {
            break;
        }
    }
    Err(Error::Registration(refusal))
}

/// The ways to ask for, in their order.
fn methods(found: &AuthorizationServer) -> Vec<&'static str> {
    let Some(published) = found.metadata.additional_fields.get(METHODS).and_then(Value::as_array) else {
        return PREFERRED.to_vec();
    };
    let is_published = |method: &&str| published.iter().any(|each| each == method);
    let (mut ways, others): (Vec<_>, Vec<_>) = PREFERRED.into_iter().partition(is_published);
    // Many servers take public clients, and do not say so.
    ways.extend(others.into_iter().filter(|method| *method == "none"));
    ways
}

fn request(
    endpoint: &str,
    method: &str,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<http::Request<Vec<u8>>, Error> {
    let mut body = json!({
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": method,
        "response_types": ["code"],
        "application_type": if redirect_uri.starts_with("https:") { "web" } else { "native" },
    });
    if !scopes.is_empty() {
        body["scope"] = json!(scopes.join(" "));
    }
    http::Request::post(endpoint)
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| Error::Registration(error.to_string()))
}

/// Reads the answer, which may name another way than was asked for.
fn read(answer: &Response<Vec<u8>>, asked: &str) -> Result<RegisteredClient, Error> {
    let members: Map<String, Value> = serde_json::from_slice(answer.body()).unwrap_or_default();
    let text = |name: &str| members.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(client_id) = text("client_id") else {
        return Err(Error::Registration("its answer names no `client_id`".to_owned()));
    };
    // A public client may have a secret that says nothing.
    let client_secret = text("client_secret").map(str::to_owned);
    let method = match (text("token_endpoint_auth_method"), &client_secret) {
        (Some(method), _) if PREFERRED.contains(&method) => method,
        (_, None) => "none",
        (_, Some(_)) if asked == "none" => "client_secret_basic",
        (_, Some(_)) => asked,
    };
    let client_secret = client_secret.filter(|_| method != "none");
    Ok(RegisteredClient { client_id: client_id.to_owned(), client_secret, method: method.to_owned() })
}
