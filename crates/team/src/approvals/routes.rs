//! The requests of browsers below `/approvals/`.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::ApprovalPages;
use super::board::QuestionBoard;
use super::browsers::{BrowserLogin, BrowserLogins};
use super::page::speak;
use super::web::{self, WebAttempts};
use crate::login::{LocalToken, TeamUser, TokenLoginError, UserAuthenticator, UserIdentity};
use crate::users::user_key;

/// The path of the page.
pub(crate) const APPROVALS_PATH: &str = "/approvals/";

/// The page for browsers that log in.
pub(crate) struct ApprovalSite {
    board: Arc<QuestionBoard>,
    logins: BrowserLogins,
    pub(super) attempts: WebAttempts,
    pub(super) authenticator: Arc<UserAuthenticator>,
    hooks: ApprovalPages,
    pub(super) origin: String,
    cookie: String,
    /// The pages of users, by their keys.
    open: Mutex<HashMap<String, UserPage>>,
}

/// The page of a user who has logged in.
struct UserPage {
    router: Router,
    over: CancellationToken,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnteredToken {
    code: String,
}

impl ApprovalSite {
    pub(super) fn new(
        board: Arc<QuestionBoard>,
        authenticator: Arc<UserAuthenticator>,
        hooks: ApprovalPages,
        origin: String,
    ) -> Self {
        let cookie = match origin.strip_prefix("http://") {
            // Browsers send the cookies of all ports of a host to each of them.
            Some(host) => format!("ipybox-approvals-{}", host.rsplit(':').next().unwrap_or_default()),
            // Nothing but this host can set one of this name.
            None => "__Host-ipybox-approvals".to_owned(),
        };
        let logins = BrowserLogins::default();
        let attempts = WebAttempts::default();
        Self { board, logins, attempts, authenticator, hooks, origin, cookie, open: Mutex::default() }
    }

    /// The routes of browsers.
    pub(crate) fn routes(self: Arc<Self>) -> Router {
        let known = Router::new()
            .route("/enter", post(enter))
            .route("/leave", post(leave))
            .fallback(person)
            .with_state(Arc::clone(&self));
        let parts = (self.hooks.parts)(self.authenticator.web_issuers().next().is_some());
        let inside = (self.hooks.guarded)(&self.origin, known.merge(parts));
        let path = APPROVALS_PATH.trim_end_matches('/');
        Router::new()
            .route(path, get(|| async { Redirect::permanent(APPROVALS_PATH) }))
            .merge(web::routes(&self))
            .nest(APPROVALS_PATH, inside)
    }

    /// The values of the cookie of a request.
    fn cookies<'r>(&'r self, headers: &'r HeaderMap) -> impl Iterator<Item = &'r str> {
        cookies(headers, &self.cookie)
    }

    /// The name of the cookie of browsers that are about to log in.
    pub(super) fn attempt_cookie(&self) -> String {
        format!("{}-attempt", self.cookie)
    }

    /// The user of a request.
    fn user(&self, headers: &HeaderMap) -> Option<TeamUser> {
        self.cookies(headers).find_map(|cookie| self.valid(self.logins.find(cookie)?))
    }

    /// The key of a request's user.
    pub(crate) fn user_key(&self, headers: &HeaderMap) -> Option<String> {
        self.user(headers).map(|user| user_key(&user.identity))
    }

    /// The user of a login, as of now: a token may have been taken away, and groups may have changed.
    fn valid(&self, login: BrowserLogin) -> Option<TeamUser> {
        match &login.token {
            Some(token) => self.authenticator.user_of(token).ok(),
            None => Some(login.user),
        }
    }

    /// The user, as long as a browser is logged in.
    fn current(&self, identity: &UserIdentity) -> Option<TeamUser> {
        self.logins.of(identity).into_iter().find_map(|login| self.valid(login))
    }

    /// The page of a user.
    fn page(self: &Arc<Self>, user: &TeamUser) -> Router {
        let mut open = self.open.lock();
        open.retain(|_, page| !page.over.is_cancelled());
        let page = open.entry(user_key(&user.identity)).or_insert_with(|| {
            let over = CancellationToken::new();
            let site = Arc::clone(self);
            let identity = user.identity.clone();
            let current = move || site.current(&identity);
            let stream = speak(Arc::clone(&self.board), current, over.clone());
            UserPage { router: (self.hooks.person)(stream), over }
        });
        page.router.clone()
    }

    /// Logs a browser in: the header with its cookie.
    pub(super) fn begin(&self, user: TeamUser, token: Option<LocalToken>) -> Option<HeaderValue> {
        tracing::info!(user = %user_key(&user.identity), "a browser has logged in");
        let cookie = self.logins.begin(user, token)?;
        HeaderValue::from_str(&self.set_cookie(&cookie)).ok()
    }

    fn set_cookie(&self, value: &str) -> String {
        format!("{}={value}; HttpOnly; SameSite=Strict; Path=/{}", self.cookie, self.secure())
    }

    /// The mark of cookies that are sent encrypted alone.
    pub(super) fn secure(&self) -> &'static str {
        if self.origin.starts_with("https://") { "; Secure" } else { "" }
    }
}

/// The values of the cookies of a name.
pub(super) fn cookies<'r>(headers: &'r HeaderMap, name: &'r str) -> impl Iterator<Item = &'r str> {
    let sent = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|cookies| cookies.split(';')).filter_map(move |cookie| {
        let (its_name, value) = cookie.trim().split_once('=')?;
        (its_name == name).then_some(value)
    })
}

/// Takes the token of a user.
async fn enter(
    State(site): State<Arc<ApprovalSite>>,
    entered: Result<Json<EnteredToken>, JsonRejection>,
) -> Result<Response, JsonRejection> {
    let Json(EnteredToken { code }) = entered?;
    let (user, token) = match site.authenticator.local_user(code.trim()) {
        Ok(known) => known,
        Err(TokenLoginError::Unavailable(_)) => {
            return Ok((StatusCode::SERVICE_UNAVAILABLE, "The tokens cannot be read.").into_response());
        }
        Err(_) => return Ok((StatusCode::FORBIDDEN, "That is no valid token.").into_response()),
    };
    Ok(match site.begin(user, Some(token)) {
        Some(cookie) => ([(header::SET_COOKIE, cookie)], Json(json!({"key": ""}))).into_response(),
        None => (StatusCode::INTERNAL_SERVER_ERROR, "There are no random numbers.").into_response(),
    })
}

/// Ends the login of a browser.
async fn leave(State(site): State<Arc<ApprovalSite>>, headers: HeaderMap) -> Response {
    for cookie in site.cookies(&headers) {
        site.logins.end(cookie);
    }
    // Pages look who is there.
    site.board.changed();
    let ended = format!("{}; Max-Age=0", site.set_cookie(""));
    ([(header::SET_COOKIE, ended)], Json(json!({}))).into_response()
}

/// Answers the request of a user who has logged in.
async fn person(State(site): State<Arc<ApprovalSite>>, request: Request) -> Response {
    let Some(user) = site.user(request.headers()) else {
        return (StatusCode::UNAUTHORIZED, "Log in first.").into_response();
    };
    match TowerToHyperService::new(site.page(&user)).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
