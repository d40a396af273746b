//! The user of a request, the session that it is for, and the limits of both.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use super::FrontState;
use super::rate::RateLimits;
use crate::config::TeamConfig;
use crate::hub::TeamHub;
use crate::login::UserAuthenticator;
use crate::sessions::{SessionRecords, SessionSlot};
use crate::upstream::SubjectTokens;
use crate::users::{UserAccounts, UserPlace};

/// The header with the id of a session.
const SESSION_ID: &str = "mcp-session-id";
/// The time that a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The user of a request, and what is the user's.
#[derive(Clone)]
pub(crate) struct RequestUser {
    pub(crate) place: Arc<UserPlace>,
    pub(crate) slot: Arc<SessionSlot>,
}

/// The rules that requests are admitted by.
pub(crate) struct RequestAdmission {
    authenticator: Arc<UserAuthenticator>,
    accounts: Arc<UserAccounts>,
    records: Arc<SessionRecords>,
    sessions: Arc<LocalSessionManager>,
    rates: Arc<RateLimits>,
    /// The tokens of users, if they are exchanged.
    subjects: Option<Arc<SubjectTokens>>,
    /// The JupyterHub at which users have servers, if they have.
    hub: Option<Arc<TeamHub>>,
    /// The names of the server that a request may have as `Host`.
    hosts: Vec<String>,
    origins: Vec<String>,
    max_request_bytes: usize,
}

impl RequestAdmission {
    pub(crate) fn new(
        config: &TeamConfig,
        authenticator: Arc<UserAuthenticator>,
        accounts: Arc<UserAccounts>,
        records: Arc<SessionRecords>,
        sessions: Arc<LocalSessionManager>,
        rates: Arc<RateLimits>,
    ) -> Self {
        let listen = config.server.listen;
        let mut hosts =
            vec![config.login.resource.url().authority().to_ascii_lowercase(), listen.to_string()];
        if listen.ip().is_loopback() {
            hosts.push(format!("localhost:{}", listen.port()));
        }
        let origins = config.server.allowed_origins.iter().map(|origin| origin.to_ascii_lowercase());
        Self {
            authenticator,
            accounts,
            records,
            sessions,
            rates,
            subjects: None,
            hub: None,
            hosts,
            origins: origins.collect(),
            max_request_bytes: config.server.max_request_bytes,
        }
    }

    /// Keeps the tokens of users.
    pub(crate) fn with_subjects(self, subjects: Option<Arc<SubjectTokens>>) -> Self {
        Self { subjects, ..self }
    }

    /// Notes the users' names at this JupyterHub.
    pub(crate) fn with_hub(self, hub: Option<Arc<TeamHub>>) -> Self {
        Self { hub, ..self }
    }

    pub(crate) fn authenticator(&self) -> &UserAuthenticator {
        &self.authenticator
    }

    /// Refuses what a web page in a browser may have sent in the name of somebody.
    fn check_source(&self, request: &Parts) -> Result<(), RequestRefusal> {
        let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| request.uri.authority().map(|authority| authority.as_str()));
        let host = host.unwrap_or_default().to_ascii_lowercase();
        if !self.hosts.contains(&host) {
            let text = "this is not the name of the server: see `login.resource` in its configuration\n";
            return Err((StatusCode::MISDIRECTED_REQUEST, text).into());
        }
        let origins = request.headers.get_all(header::ORIGIN);
        let allowed = |origin: &HeaderValue| {
            let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
            self.origins.contains(&origin)
        };
        if !origins.iter().all(allowed) {
            let text = "web pages of this origin may not send requests: see `server.allowed_origins`\n";
            return Err((StatusCode::FORBIDDEN, text).into());
        }
        Ok(())
    }

    /// The user of a request, and the place of the session that it is for.
    async fn user(&self, request: &Parts) -> Result<RequestUser, RequestRefusal> {
        let Parts { uri, headers, .. } = request;
        let user = self.authenticator.authenticate(uri, headers).await.map_err(|error| {
            tracing::debug!(%error, "a request has no user");
            self.authenticator.refusal(&error).into_response()
        })?;
        let place = self.accounts.place(&user).map_err(|error| {
            tracing::error!(error = %crate::describe(&error), "a user has no place");
            (StatusCode::SERVICE_UNAVAILABLE, "the server has no place for you: its operator can read why\n")
                .into_response()
        })?;
        self.rates.take(&place.key).map_err(|wait| {
            let wait = [(header::RETRY_AFTER, wait.as_secs().max(1).to_string())];
            (StatusCode::TOO_MANY_REQUESTS, wait, "too many requests: wait a moment\n").into_response()
        })?;
        let id = session_id(headers)?;
        if let Some(id) = &id
            && !self.records.is_owned(id, &place.key)
        {
            // The same for a session of somebody else as for one that there is not.
            return Err((StatusCode::NOT_FOUND, "there is no such session: begin one\n").into());
        }
        if let Some(subjects) = &self.subjects
            && let Some(token) = self.authenticator.provider_token(uri, headers)
        {
            subjects.note(&place.key, &user.identity.issuer, token, user.expires_at);
        }
        if let Some(hub) = &self.hub {
            hub.note(&place.key, &user);
        }
        let slot = self.records.slot(&place.key, id.as_deref());
        Ok(RequestUser { place, slot })
    }

    /// Notes the session that a response begins.
    async fn note_session(&self, id: &HeaderValue, user: &RequestUser) {
        let Ok(id) = id.to_str() else { return };
        for surplus in self.records.bind(id, &user.slot) {
            tracing::info!(user = %user.place.key, "the oldest of too many sessions of a user is closed");
            if let Err(error) = self.sessions.close_session(&surplus.into()).await {
                tracing::debug!(%error, "a session could not be closed");
            }
        }
    }
}

/// The id of the session that a request names.
fn session_id(headers: &HeaderMap) -> Result<Option<String>, RequestRefusal> {
    let refused = || (StatusCode::BAD_REQUEST, "`Mcp-Session-Id` is no id of a session\n").into_response();
    let mut ids = headers.get_all(SESSION_ID).iter();
    match (ids.next(), ids.next()) {
        (None, _) => Ok(None),
        (Some(id), None) => Ok(Some(id.to_str().map_err(|_| refused())?.to_owned())),
        _ => Err(refused().into()),
    }
}

/// The answer to a request that is not admitted.
pub(crate) struct RequestRefusal(Box<Response>);

impl<R: IntoResponse> From<R> for RequestRefusal {
    fn from(response: R) -> Self {
        Self(Box::new(response.into_response()))
    }
}

/// Lets a request of a user pass.
pub(crate) async fn admit(State(state): State<Arc<FrontState>>, request: Request, next: Next) -> Response {
    let response = admitted(&state, request, next).await.unwrap_or_else(|refusal| *refusal.0);
    state.metrics.count(response.status());
    response
}

async fn admitted(state: &FrontState, request: Request, next: Next) -> Result<Response, RequestRefusal> {
    let admission = &state.admission;
    let (mut parts, body) = request.into_parts();
    admission.check_source(&parts)?;
    let user = admission.user(&parts).await?;
    if state.draining.is_cancelled() {
        let retry = [(header::RETRY_AFTER, "1")];
        return Err((StatusCode::SERVICE_UNAVAILABLE, retry, "the server is ending\n").into());
    }
    let is_deletion = parts.method == Method::DELETE;
    let has_session = parts.headers.contains_key(SESSION_ID);
    let body = read(&parts, body, admission.max_request_bytes).await?;
    tracing::debug!(user = %user.place.key, method = %parts.method, "request");
    // For nobody behind this: identity ends here.
    parts.headers.remove(header::AUTHORIZATION);
    parts.extensions.insert(user.clone());
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if is_deletion && response.status() == StatusCode::ACCEPTED {
        // Clients take it for something that is yet to be done.
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if !has_session && let Some(id) = response.headers().get(SESSION_ID).cloned() {
        admission.note_session(&id, &user).await;
    }
    Ok(response)
}

/// Reads the body of a request, which may come slowly, but not for ever.
async fn read(parts: &Parts, body: Body, most: usize) -> Result<Body, RequestRefusal> {
    if parts.method != Method::POST {
        return Ok(body);
    }
    let too_large = || {
        let text = format!("a request has at most {most} bytes: see `server.max_request_bytes`\n");
        (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
    };
    let length =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > most) {
        return Err(too_large().into());
    }
    let slow =
        |_| (StatusCode::REQUEST_TIMEOUT, "the request did not come to its end in time\n").into_response();
    let body: Result<Bytes, _> =
        tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, most)).await.map_err(slow)?;
    Ok(Body::from(body.map_err(|_| too_large())?))
}
