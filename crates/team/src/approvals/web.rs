//! The way of a browser to an identity provider, and back.
//!
//! Both requests can come from other sites: the first one begins nothing but a login of the browser's own, and the second one
//! counts once, for the browser that has begun.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::browsers::random;
use super::routes::{APPROVALS_PATH, ApprovalSite, cookies};
use crate::login::{TeamUser, TokenLoginError, WebLoginAttempt, WebLoginError};

/// The path of the way back.
const CALLBACK: &str = "/approvals/callback";
/// The time that a login may take.
const ATTEMPT: Duration = Duration::from_secs(600);
/// The number of logins that have begun; the oldest one makes room.
const MOST: usize = 1024;
/// The time for which a login holds: the provider is not asked meanwhile, whether the user may still log in.
const LIFETIME: Duration = Duration::from_secs(3600);
/// The longest code, in bytes.
const LONGEST_CODE: usize = 8192;

/// Browsers send a cookie with `SameSite=Strict` only if the page before was one of this host: so a page of it leads on.
const BACK: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>ipybox</title>\
                    <meta http-equiv=\"refresh\" content=\"0;url=/approvals/\"><p><a href=\"/approvals/\">Go on</a></p></html>";

/// The logins that have begun, by the hashes of their browsers' cookies.
#[derive(Default)]
pub(super) struct WebAttempts(Mutex<HashMap<[u8; 32], (WebLoginAttempt, Instant)>>);

impl WebAttempts {
    /// Begins a login at an issuer: what it needs, and the cookie of its browser. `None` if the system has no random numbers.
    fn begin(&self, issuer: &str) -> Option<(WebLoginAttempt, String)> {
        let issuer = issuer.to_owned();
        let attempt = WebLoginAttempt { issuer, state: random()?, nonce: random()?, verifier: random()? };
        let cookie = random()?;
        let mut begun = self.0.lock();
        begun.retain(|_, (_, since)| since.elapsed() < ATTEMPT);
        if begun.len() >= MOST
            && let Some(oldest) = begun.iter().min_by_key(|(_, (_, since))| *since).map(|(hash, _)| *hash)
        {
            begun.remove(&oldest);
        }
        begun.insert(Sha256::digest(&cookie).into(), (attempt.clone(), Instant::now()));
        Some((attempt, cookie))
    }

    /// The login of the browser with this cookie. It is over with that.
    fn take(&self, cookie: &str) -> Option<WebLoginAttempt> {
        let hash: [u8; 32] = Sha256::digest(cookie).into();
        let (attempt, since) = self.0.lock().remove(&hash)?;
        (since.elapsed() < ATTEMPT).then_some(attempt)
    }
}

#[derive(Deserialize)]
struct LoginQuery {
    issuer: Option<String>,
}

/// The parameters that a provider sends a browser back with (RFC 6749, RFC 9207).
#[derive(Deserialize)]
struct CallbackQuery {
    state: Option<String>,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

/// The routes of logins.
pub(super) fn routes(site: &Arc<ApprovalSite>) -> Router {
    let login = format!("{APPROVALS_PATH}login");
    Router::new().route(&login, get(begin)).route(CALLBACK, get(end)).with_state(Arc::clone(site))
}

async fn begin(
    State(site): State<Arc<ApprovalSite>>,
    headers: HeaderMap,
    Query(query): Query<LoginQuery>,
) -> Response {
    if !is_ours(&site, &headers) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "This is not the address of the page.");
    }
    let issuers: Vec<&str> = site.authenticator.web_issuers().collect();
    let issuer = match (&query.issuer, issuers.as_slice()) {
        (Some(wanted), _) => issuers.iter().copied().find(|issuer| issuer == wanted),
        (None, [only]) => Some(*only),
        (None, all) if !all.is_empty() => return closed(Html(choice(all)).into_response()),
        (None, _) => None,
    };
    let Some(issuer) = issuer else {
        return plain(StatusCode::NOT_FOUND, "Browsers do not log in at that identity provider here.");
    };
    let Some((attempt, cookie)) = site.attempts.begin(issuer) else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "There are no random numbers.");
    };
    match site.authenticator.web_login(&attempt, &callback(&site)).await {
        Ok(url) => {
            // The way back begins at the provider, from which `Strict` would not be sent.
            let cookie = format!(
                "{}={cookie}; HttpOnly; SameSite=Lax; Path=/; Max-Age={}{}",
                site.attempt_cookie(),
                ATTEMPT.as_secs(),
                site.secure()
            );
            let set = [(header::SET_COOKIE, cookie)];
            closed((set, Redirect::to(url.as_str())).into_response())
        }
        Err(error) => failed(&error),
    }
}

async fn end(
    State(site): State<Arc<ApprovalSite>>,
    headers: HeaderMap,
    Query(query): Query<CallbackQuery>,
) -> Response {
    if !is_ours(&site, &headers) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "This is not the address of the page.");
    }
    let name = site.attempt_cookie();
    let attempt = cookies(&headers, &name).find_map(|cookie| site.attempts.take(cookie));
    let state = query.state.unwrap_or_default();
    let is_same = |attempt: &WebLoginAttempt| bool::from(state.as_bytes().ct_eq(attempt.state.as_bytes()));
    let Some(attempt) = attempt.filter(is_same) else {
        return plain(
            StatusCode::FORBIDDEN,
            "This browser has not begun this login, or it is over. Log in again.",
        );
    };
    let code = query.code.filter(|code| query.error.is_none() && code.len() <= LONGEST_CODE);
    let Some(code) = code else {
        return plain(StatusCode::FORBIDDEN, "The identity provider did not log you in.");
    };
    let user =
        match site.authenticator.web_user(&attempt, query.iss.as_deref(), &code, &callback(&site)).await {
            Ok(user) => TeamUser { expires_at: Some(SystemTime::now() + LIFETIME), ..user },
            Err(error) => return failed(&error),
        };
    let Some(cookie) = site.begin(user, None) else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "There are no random numbers.");
    };
    closed(([(header::SET_COOKIE, cookie)], Html(BACK)).into_response())
}

/// A page with a link for each issuer.
fn choice(issuers: &[&str]) -> String {
    let link = |issuer: &&str| {
        let query =
            url::form_urlencoded::Serializer::new(String::new()).append_pair("issuer", issuer).finish();
        let shown = issuer.replace('&', "&amp;").replace('<', "&lt;");
        format!("<li><a href=\"login?{query}\">{shown}</a>")
    };
    let links: String = issuers.iter().map(link).collect();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>ipybox</title>\
         <h1>Log in at an identity provider</h1><ul>{links}</ul></html>"
    )
}

fn callback(site: &ApprovalSite) -> String {
    format!("{}{CALLBACK}", site.origin)
}

/// Whether the browser knows this server by its own name.
fn is_ours(site: &ApprovalSite, headers: &HeaderMap) -> bool {
    let host = site.origin.split_once("://").map_or("", |(_, host)| host);
    let mut sent = headers.get_all(header::HOST).iter();
    sent.next().is_some_and(|name| name.as_bytes() == host.as_bytes()) && sent.next().is_none()
}

fn failed(error: &WebLoginError) -> Response {
    tracing::warn!(%error, "a browser could not log in");
    let status = match error {
        WebLoginError::Unknown => StatusCode::NOT_FOUND,
        WebLoginError::Token(TokenLoginError::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::FORBIDDEN,
    };
    plain(status, "The login has failed; the log of the server says why.")
}

fn plain(status: StatusCode, words: &'static str) -> Response {
    closed((status, words).into_response())
}

/// Adds what keeps an answer from others: nobody frames it or keeps it, and it tells no other site its address.
fn closed(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_ended_once_by_the_browser_that_has_begun_it() {
        let attempts = WebAttempts::default();
        let (first, cookie) = attempts.begin("https://id.example").unwrap();
        let (second, other) = attempts.begin("https://id.example").unwrap();
        assert!(first.state != second.state && first.nonce != first.verifier);
        assert_eq!(attempts.take(&cookie).unwrap().state, first.state);
        assert!(attempts.take(&cookie).is_none() && attempts.take("x").is_none());
        for _ in 0..MOST {
            attempts.begin("https://id.example").unwrap();
        }
        assert!(attempts.take(&other).is_none());
    }

    #[test]
    fn each_of_several_issuers_has_a_link_and_none_is_markup() {
        let page = choice(&["https://id.example/?a=<b>&c=\"", "https://other.example"]);
        assert!(
            page.contains("<a href=\"login?issuer=https%3A%2F%2Fid.example%2F%3Fa%3D%3Cb%3E%26c%3D%22\">"),
            "{page}"
        );
        assert!(
            page.contains(">https://id.example/?a=&lt;b>&amp;c=\"</a>") && page.contains("other.example</a>"),
            "{page}"
        );
    }
}
