//! The page of people who have logged in elsewhere: `ipybox team` keeps their logins, and speaks for the sessions.

use std::sync::Arc;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::guard::PageHost;
use super::hub::BrowserHub;
use super::routes;

/// By which the page's script knows that its users log in: with a token, or also at an identity provider.
const BODY: &str = "<body data-login>";
const PROVIDER_BODY: &str = "<body data-login=\"provider\">";

/// The page and its parts, also for those who have not logged in yet: they do so with a token, or at an identity provider, if
/// there is one.
pub fn hosted_parts(has_provider: bool) -> Router {
    let body = if has_provider { PROVIDER_BODY } else { BODY };
    routes::parts(include_str!("page.html").replacen("<body>", body, 1).into())
}

/// Has a router answer requests of the page with this origin alone, with the headers of all answers of the page.
pub fn hosted_guarded(origin: &str, router: Router) -> Router {
    routes::guarded(PageHost::at(origin), router)
}

/// The requests of one person, for whom the sessions speak on `stream`. They end with it.
pub fn hosted_person(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Router {
    let ended = CancellationToken::new();
    let stop = CancellationToken::new();
    routes::hosted(BrowserHub::start(stream, None, Arc::new(|_| {}), ended, stop))
}
