//! The side that clients reach: HTTP with a login, and MCP behind it.
//!
//! ```text
//! listener ─→ admission (who is it? whose session? how much?) ─→ rmcp's Streamable HTTP ─→ sessions
//!         └─→ open: health, metadata of the login
//! ```

mod admission;
mod listener;
mod metrics;
mod rate;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any_service, get};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

pub(crate) use self::admission::RequestUser;
use self::admission::{RequestAdmission, admit};
pub use self::listener::ListenError;
pub(crate) use self::listener::{FrontListener, serve};
use self::metrics::FrontMetrics;
pub(crate) use self::rate::RateLimits;
pub(crate) use self::tls::tls_problem;
use crate::approvals::ApprovalSite;
use crate::config::{ACTIONS_PATH, MCP_PATH, TeamConfig};
use crate::hub::TeamHub;
use crate::login::UserAuthenticator;
use crate::sessions::{SessionDirectory, SessionRecords, TeamHandler};
use crate::upstream::{LoginCallbacks, SubjectTokens};
use crate::users::UserAccounts;

/// The time for which a client's session is remembered without a request; after it, the client finds it again by its record.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// The state that all requests share.
pub(crate) struct FrontState {
    pub(crate) admission: RequestAdmission,
    pub(crate) metrics: Arc<FrontMetrics>,
    pub(crate) draining: CancellationToken,
}

/// The parts that a front consists of.
pub(crate) struct FrontParts {
    pub(crate) authenticator: Arc<UserAuthenticator>,
    pub(crate) approvals: Option<Arc<ApprovalSite>>,
    /// The tokens of users, if they are exchanged.
    pub(crate) subjects: Option<Arc<SubjectTokens>>,
    /// The JupyterHub at which users have servers, if they have.
    pub(crate) hub: Option<Arc<TeamHub>>,
    pub(crate) callbacks: Arc<LoginCallbacks>,
    pub(crate) accounts: Arc<UserAccounts>,
    pub(crate) directory: Arc<SessionDirectory>,
    /// The processes that serve published actions, if anything is published.
    pub(crate) actions: Option<Arc<SessionDirectory>>,
}

/// The routes of a server. Cancelling `draining` has it take no new requests, cancelling `ending` ends all streams.
pub(crate) fn routes(
    config: &TeamConfig,
    parts: FrontParts,
    draining: CancellationToken,
    ending: CancellationToken,
) -> (Router, Arc<FrontState>) {
    let FrontParts { authenticator, approvals, subjects, hub, callbacks, accounts, directory, actions } =
        parts;
    let rates = Arc::new(RateLimits::new(config.users.requests_per_minute));
    let metrics = Arc::new(FrontMetrics::default());
    let guard = |path: &str, directory: Arc<SessionDirectory>| {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(REMEMBERED);
        let sessions = Arc::new(sessions);
        let mut mcp = StreamableHttpServerConfig::default()
            // RequestAdmission looks at both, for all routes.
            .disable_allowed_hosts()
            .with_cancellation_token(ending.clone())
            .with_max_request_body_bytes(config.server.max_request_bytes);
        let records = Arc::clone(directory.records());
        mcp.session_store = Some(Arc::<SessionRecords>::clone(&records));
        let service = StreamableHttpService::new(
            move || Ok(TeamHandler::new(Arc::clone(&directory))),
            Arc::clone(&sessions),
            mcp,
        );
        let authenticator = Arc::clone(&authenticator);
        let accounts = Arc::clone(&accounts);
        let rates = Arc::clone(&rates);
        let state = Arc::new(FrontState {
            admission: RequestAdmission::new(config, authenticator, accounts, records, sessions, rates)
                .with_subjects(subjects.clone())
                .with_hub(hub.clone()),
            metrics: Arc::clone(&metrics),
            draining: draining.clone(),
        });
        let layer = axum::middleware::from_fn_with_state(Arc::clone(&state), admit);
        (Router::new().route(path, any_service(service)).layer(layer), state)
    };
    let (guarded, state) = guard(MCP_PATH, directory);
    let guarded = match actions {
        Some(actions) => guarded.merge(guard(ACTIONS_PATH, actions).0),
        None => guarded,
    };
    let metadata_path = state.admission.authenticator().metadata_path().to_owned();
    let open = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/.well-known/oauth-protected-resource", get(metadata))
        .route(&metadata_path, get(metadata))
        .with_state(Arc::clone(&state));
    let router = guarded.merge(open).merge(callbacks.routes());
    let router = match approvals {
        Some(site) => router.merge(site.routes()),
        None => router,
    };
    (router, state)
}

/// The page of metrics, for an address of its own.
pub(crate) fn metrics_routes(state: Arc<FrontState>) -> Router {
    Router::new().route("/metrics", get(metrics::show)).with_state(state)
}

async fn ready(State(state): State<Arc<FrontState>>) -> Response {
    if state.draining.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "ending\n").into_response()
    } else {
        "ok\n".into_response()
    }
}

/// The metadata of the protected resource (RFC 9728), from which clients learn where to log in.
async fn metadata(State(state): State<Arc<FrontState>>) -> Response {
    axum::Json(state.admission.authenticator().resource_metadata()).into_response()
}
