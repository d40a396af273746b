//! An identity provider on loopback, whose answers a test sets and whose requests it reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::TestKey;

/// The provider. It ends with the test's runtime.
pub(super) struct TestProvider {
    pub(super) url: String,
    state: Arc<ProviderState>,
}

struct ProviderState {
    answers: Mutex<HashMap<String, ProviderReply>>,
    requests: Mutex<Vec<ProviderRequest>>,
    /// A permit for each answer.
    answering: Semaphore,
}

#[derive(Clone)]
pub(super) enum ProviderReply {
    Json(Value),
    Text(String),
    Status(u16),
    Redirect(String),
    /// By the token that the form has, or that the request is authorized with.
    ByToken(HashMap<String, Value>),
}

#[derive(Clone)]
pub(super) struct ProviderRequest {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) form: HashMap<String, String>,
}

impl TestProvider {
    /// A provider with these keys.
    pub(super) async fn new(keys: &[&TestKey]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = ProviderState {
            answers: Mutex::default(),
            requests: Mutex::default(),
            answering: Semaphore::new(Semaphore::MAX_PERMITS),
        };
        let state = Arc::new(state);
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let provider = Self { url, state };
        let metadata = json!({
            "issuer": provider.url,
            "jwks_uri": format!("{}/keys", provider.url),
            "introspection_endpoint": format!("{}/introspect", provider.url),
        });
        provider.answers("/.well-known/oauth-authorization-server", ProviderReply::Json(metadata));
        provider.has_keys(keys);
        provider
    }

    pub(super) fn answers(&self, path: &str, reply: ProviderReply) {
        self.state.answers.lock().insert(path.to_owned(), reply);
    }

    pub(super) fn has_keys(&self, keys: &[&TestKey]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        self.answers("/keys", ProviderReply::Json(json!({"keys": keys})));
    }

    /// Every request fails from now on.
    pub(super) fn breaks(&self) {
        for reply in self.state.answers.lock().values_mut() {
            *reply = ProviderReply::Status(500);
        }
    }

    /// No request is answered until it [`Self::awakes`].
    pub(super) fn sleeps(&self) {
        self.state.answering.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(super) fn awakes(&self) {
        self.state.answering.add_permits(1000);
    }

    /// Returns when there were so many requests.
    pub(super) async fn is_asked(&self, path: &str, times: usize) {
        let asked = async {
            while self.requests(path).len() < times {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
    }

    pub(super) fn requests(&self, path: &str) -> Vec<ProviderRequest> {
        self.state.requests.lock().iter().filter(|request| request.path == path).cloned().collect()
    }
}

async fn answer(State(state): State<Arc<ProviderState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1024 * 1024).await.unwrap();
    let form: HashMap<String, String> = url::form_urlencoded::parse(&body).into_owned().collect();
    let path = parts.uri.path().to_owned();
    let request = ProviderRequest { path: path.clone(), headers: parts.headers, form };
    let bearer =
        request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().unwrap().strip_prefix("Bearer "));
    let token = request.form.get("token").cloned().or_else(|| bearer.map(str::to_owned));
    state.requests.lock().push(request);
    state.answering.acquire().await.unwrap().forget();
    let reply = state.answers.lock().get(&path).cloned();
    match reply {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(ProviderReply::Json(json)) => axum::Json(json).into_response(),
        Some(ProviderReply::Text(text)) => text.into_response(),
        Some(ProviderReply::Status(status)) => StatusCode::from_u16(status).unwrap().into_response(),
        Some(ProviderReply::Redirect(to)) => (StatusCode::FOUND, [(LOCATION, to)]).into_response(),
        Some(ProviderReply::ByToken(answers)) => match answers.get(&token.unwrap()) {
            Some(json) => axum::Json(json.clone()).into_response(),
            None if path == "/introspect" => axum::Json(json!({"active": false})).into_response(),
            None => StatusCode::FORBIDDEN.into_response(),
        },
    }
}
