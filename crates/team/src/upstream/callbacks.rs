//! The page to which browsers bring the answers of authorization servers, for the sessions that wait for them.
//!
//! A session says which `state` it has sent a browser away with, and redeems the code itself: only it has the secret that the code
//! is bound to (PKCE). The page names the session's user, and passes an answer on once somebody has agreed; where browsers log in to
//! this server, that is the session's user: a link that is passed on lends nobody's account.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use url::form_urlencoded;

use crate::approvals::APPROVALS_PATH;
use crate::config::TeamConfig;
use crate::socket::line;
use crate::users::TeamAccount;

/// The path of the page.
pub(crate) const CALLBACK_PATH: &str = "/oauth/callback";
/// The longest line of a session, in bytes.
const LINE_BYTES: usize = 16 * 1024;
/// The longest answer of an authorization server, in bytes.
const QUERY_BYTES: usize = 32 * 1024;
/// The fewest characters of a `state` that nobody guesses.
const FEWEST: usize = 20;
/// The number of sessions of a user that may wait for a browser.
const MOST_OF_A_USER: usize = 32;
/// The time that a browser waits to hear how the login has ended.
const PAGE_TIME: Duration = Duration::from_secs(45);

/// The key of the user as whom a browser has logged in.
pub(crate) type BrowserKey = Box<dyn Fn(&HeaderMap) -> Option<String> + Send + Sync>;

/// The logins for which sessions wait.
pub(crate) struct LoginCallbacks {
    /// By the hashes of their states.
    waiting: Mutex<HashMap<[u8; 32], WaitingLogin>>,
    /// The origin of the page.
    origin: String,
    /// `None` if browsers do not log in here.
    browser: Option<BrowserKey>,
}

struct WaitingLogin {
    account: TeamAccount,
    server: String,
    arrived: mpsc::Sender<ArrivedQuery>,
}

/// An answer that a browser has brought.
struct ArrivedQuery {
    query: String,
    page: oneshot::Sender<Option<String>>,
}

/// A session's login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BegunLogin {
    state: String,
    /// The host of the server that it is a login for.
    server: String,
}

#[derive(Serialize)]
struct BroughtQuery<'a> {
    query: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndedLogin {
    /// Why nobody is logged in; `None` if somebody is.
    failed: Option<String>,
}

impl LoginCallbacks {
    pub(crate) fn new(config: &TeamConfig, browser: Option<BrowserKey>) -> Self {
        let origin = config.login.resource.url().origin().ascii_serialization();
        Self { waiting: Mutex::default(), origin, browser }
    }

    /// The address of the page.
    pub(crate) fn address(&self) -> String {
        format!("{}{CALLBACK_PATH}", self.origin)
    }

    pub(crate) fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route(CALLBACK_PATH, get(ask).post(pass_on))
            .layer(DefaultBodyLimit::max(QUERY_BYTES))
            .with_state(self)
    }

    /// Waits for the browser of a session's login, as long as the session does.
    pub(crate) async fn hear(
        &self,
        mut input: impl AsyncBufRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
        account: TeamAccount,
    ) -> io::Result<()> {
        let Some(begun) = line(&mut input, LINE_BYTES).await? else { return Ok(()) };
        let BegunLogin { state, server } = serde_json::from_slice(&begun)?;
        let (arrived, mut arriving) = mpsc::channel(1);
        let _entry = self.begin(&state, WaitingLogin { account, server, arrived })?;
        output.write_all(b"{}\n").await?;
        let ArrivedQuery { query, page } = tokio::select! {
            Some(arrived) = arriving.recv() => arrived,
            // It gives up, or says what it should not say now.
            gone = line(&mut input, LINE_BYTES) => return gone.map(drop),
        };
        output
            .write_all(format!("{}\n", serde_json::to_string(&BroughtQuery { query: &query })?).as_bytes())
            .await?;
        let Some(ended) = line(&mut input, LINE_BYTES).await? else { return Ok(()) };
        let EndedLogin { failed } = serde_json::from_slice(&ended)?;
        // The browser may be gone.
        page.send(failed).ok();
        Ok(())
    }

    /// The page that asks whether an answer is to be passed on; `None` if no login waits for it.
    fn question(&self, query: &str) -> Option<String> {
        let waiting = self.waiting.lock();
        let WaitingLogin { account, server, .. } = waiting.get(&hash(&state_in(query)?))?;
        let TeamAccount { name, issuer, .. } = account;
        Some(format!(
            "<h1>Log in to {}?</h1><p>Code and agents of <b>{}</b> ({}) will act there with your account. Go on only if that is \
             you, and if you have begun this login.</p><form method=\"post\" action=\"{CALLBACK_PATH}\"><input type=\"hidden\" \
             name=\"query\" value=\"{}\"><button type=\"submit\">Log in</button></form>",
            escaped(server),
            escaped(name),
            escaped(issuer),
            escaped(query)
        ))
    }

    /// Takes the login that waits for a query, if its user sends it.
    fn take(&self, query: &str, headers: &HeaderMap) -> Result<WaitingLogin, NoLogin> {
        let state_hash = hash(&state_in(query).ok_or(NoLogin::Over)?);
        let browser = self.browser.as_ref().map(|key| key(headers));
        let mut waiting = self.waiting.lock();
        let login = waiting.get(&state_hash).ok_or(NoLogin::Over)?;
        if browser.is_some_and(|key| key.as_ref() != Some(&login.account.key)) {
            return Err(NoLogin::Stranger);
        }
        waiting.remove(&state_hash).ok_or(NoLogin::Over)
    }

    fn begin(&self, state: &str, login: WaitingLogin) -> io::Result<CallbackEntry<'_>> {
        let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let state_hash = hash(state);
        let mut waiting = self.waiting.lock();
        let own = waiting.values().filter(|other| other.account.key == login.account.key).count();
        if state.len() < FEWEST || waiting.contains_key(&state_hash) {
            return refused("its state is no secret of its own");
        }
        if own >= MOST_OF_A_USER {
            return refused("too many logins of the user wait");
        }
        waiting.insert(state_hash, login);
        Ok(CallbackEntry { callbacks: self, state_hash })
    }
}

/// Why a browser's answer is not passed on.
enum NoLogin {
    Over,
    /// The browser is not that of the session's user.
    Stranger,
}

/// A login that waits, as long as this lives.
struct CallbackEntry<'c> {
    callbacks: &'c LoginCallbacks,
    state_hash: [u8; 32],
}

impl Drop for CallbackEntry<'_> {
    fn drop(&mut self) {
        self.callbacks.waiting.lock().remove(&self.state_hash);
    }
}

fn hash(state: &str) -> [u8; 32] {
    Sha256::digest(state).into()
}

/// The only `state` of a query.
fn state_in(query: &str) -> Option<String> {
    let mut states = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "state");
    match (states.next(), states.next()) {
        (Some((_, state)), None) => Some(state.into_owned()),
        _ => None,
    }
}

/// Asks whether an answer is to be passed on.
async fn ask(State(callbacks): State<Arc<LoginCallbacks>>, RawQuery(query): RawQuery) -> Response {
    let query = query.filter(|query| query.len() <= QUERY_BYTES / 4).unwrap_or_default();
    match callbacks.question(&query) {
        Some(text) => page(StatusCode::OK, &text),
        None => {
            page(StatusCode::NOT_FOUND, "<p>No login waits for this: it is over, or was another one.</p>")
        }
    }
}

/// Passes an answer on, once, and shows how the login has ended.
async fn pass_on(State(callbacks): State<Arc<LoginCallbacks>>, headers: HeaderMap, form: Bytes) -> Response {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_own = origins.next().is_some_and(|origin| origin == callbacks.origin.as_str());
    if !is_own || origins.next().is_some() {
        return page(StatusCode::FORBIDDEN, "<p>This page of ipybox alone may ask for it.</p>");
    }
    let query = form_urlencoded::parse(&form).find(|(name, _)| name == "query");
    let query = query.map(|(_, query)| query.into_owned()).unwrap_or_default();
    let over = || page(StatusCode::GONE, "<p>This login is over.</p>");
    let login = match callbacks.take(&query, &headers) {
        Ok(login) => login,
        Err(NoLogin::Over) => return over(),
        Err(NoLogin::Stranger) => {
            let question = callbacks.question(&query).unwrap_or_default();
            let text = format!(
                "<p>This browser is not logged in here as that user. <a href=\"{APPROVALS_PATH}\" target=\"_blank\">Log in</a> \
                 first, then go on here.</p>{question}"
            );
            return page(StatusCode::FORBIDDEN, &text);
        }
    };
    let (sender, ended) = oneshot::channel();
    if login.arrived.send(ArrivedQuery { query, page: sender }).await.is_err() {
        return over();
    }
    match tokio::time::timeout(PAGE_TIME, ended).await {
        Ok(Ok(None)) => page(StatusCode::OK, "<p>ipybox is logged in. You can close this page.</p>"),
        Ok(Ok(Some(why))) => {
            page(StatusCode::OK, &format!("<p>ipybox is not logged in: {}</p>", escaped(&why)))
        }
        Ok(Err(_)) | Err(_) => over(),
    }
}

fn page(status: StatusCode, text: &str) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; form-action 'self'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
        // With none, the form would have no origin. The address has a code.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>ipybox</title>{text}</html>\n"
    );
    (status, headers, Html(html)).into_response()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_there_once() {
        assert_eq!(state_in("code=c&state=a%20b").as_deref(), Some("a b"));
        assert_eq!((state_in("code=c"), state_in("state=a&state=a"), state_in("")), (None, None, None));
    }

    #[test]
    fn names_are_text_on_the_page() {
        assert_eq!(escaped("<b a='\"'>&"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
    }
}
