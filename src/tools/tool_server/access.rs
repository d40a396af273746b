//! Access control: one of two bearer tokens, from this machine only, and no browsers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use parking_lot::RwLock;
use subtle::ConstantTimeEq as _;

use crate::ground::web::listener::BusyRequest;

/// A given token must not be guessable; ours have 244 random bits in 64 characters.
const TOKEN_CHARS_MIN: usize = 16;

/// A bearer token.
pub(super) struct BearerToken(String);

impl BearerToken {
    /// A random one.
    pub(super) fn new() -> Self {
        Self(format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()))
    }

    /// One that a user has chosen; `None` if it is too short for a secret or cannot stand in a header.
    pub(super) fn given(text: String) -> Option<Self> {
        let is_usable = text.len() >= TOKEN_CHARS_MIN && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_usable.then_some(Self(text))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub(super) fn matches(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }
}

/// The token that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenRole {
    /// Code that calls tools.
    Caller,
    /// The host that started the server: registers MCP servers, and approves calls.
    Host,
}

/// The tokens of one tool server.
pub(super) struct ServerTokens {
    caller: RwLock<BearerToken>,
    /// `None` in an embedded server, whose host does not use HTTP.
    host: Option<BearerToken>,
}

impl ServerTokens {
    /// A random token for callers, and none for the host.
    pub(super) fn of_callers() -> Self {
        Self { caller: RwLock::new(BearerToken::new()), host: None }
    }

    pub(super) fn new(caller: BearerToken, host: BearerToken) -> Self {
        Self { caller: RwLock::new(caller), host: Some(host) }
    }

    /// Makes a new token for callers; the earlier one is invalid from now on.
    pub(super) fn renew_caller(&self) -> String {
        let mut token = self.caller.write();
        *token = BearerToken::new();
        token.0.clone()
    }

    fn role_of(&self, shown: &[u8]) -> Option<TokenRole> {
        let is_host = self.host.as_ref().is_some_and(|token| token.matches(shown));
        let is_caller = self.caller.read().matches(shown);
        match (is_host, is_caller) {
            (true, _) => Some(TokenRole::Host),
            (_, true) => Some(TokenRole::Caller),
            _ => None,
        }
    }
}

/// `router` for requests with the token of `role` and a loopback `Host`.
pub(super) fn guarded(router: Router, keys: Arc<ServerTokens>, role: TokenRole) -> Router {
    router.layer(middleware::from_fn_with_state(RouteGuard { keys, role }, authorize))
}

#[derive(Clone)]
struct RouteGuard {
    keys: Arc<ServerTokens>,
    role: TokenRole,
}

async fn authorize(State(guard): State<RouteGuard>, request: Request, next: Next) -> Response {
    if let Some(refusal) = refusal(&guard, request.headers()) {
        return refusal.into_response();
    }
    let busy = BusyRequest::begin(request.extensions());
    busy.until_written(next.run(request).await)
}

fn refusal(guard: &RouteGuard, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.as_bytes());
    let shown = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix(b"Bearer "));
    match shown.and_then(|shown| guard.keys.role_of(shown)) {
        None => return Some((StatusCode::UNAUTHORIZED, "the bearer token is missing or wrong")),
        Some(role) if role == guard.role => {}
        Some(_) => {
            let needed = match guard.role {
                TokenRole::Caller => "this needs the caller token; the host token calls no tools",
                TokenRole::Host => "this needs the host token; the caller token is for calling tools",
            };
            return Some((StatusCode::FORBIDDEN, needed));
        }
    }
    if !is_loopback_host(text(header::HOST)) {
        return Some((StatusCode::FORBIDDEN, "the `Host` header must name a loopback address"));
    }
    // Browsers let any page open a WebSocket to any address; only this header shows that it was a page.
    if headers.contains_key(header::ORIGIN) {
        return Some((StatusCode::FORBIDDEN, "requests of browsers (with an `Origin` header) are refused"));
    }
    None
}

/// Against DNS rebinding: a page whose name resolves to a loopback address still sends that name.
fn is_loopback_host(host: Option<&[u8]>) -> bool {
    let Some(host) = host.and_then(|host| std::str::from_utf8(host).ok()) else { return false };
    let Ok(authority) = host.parse::<axum::http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, expected: bool) {
        assert_eq!(is_loopback_host(Some(host.as_bytes())), expected, "{host}");
    }

    #[test]
    fn only_loopback_hosts_are_let_through() {
        check("localhost:8900", true);
        check("127.0.0.1", true);
        check("127.0.0.1:80", true);
        check("[::1]:80", true);
        check("evil.example:80", false);
        check("localhost.evil.example", false);
        check("10.0.0.1", false);
        check("", false);
        assert!(!is_loopback_host(None));
    }

    #[test]
    fn each_token_opens_what_is_its_own() {
        let token = |text: &str| BearerToken::given(text.to_owned()).unwrap();
        let keys = Arc::new(ServerTokens::new(token("caller-token-0123"), token("host-token-012345")));
        let status = |role, headers: &[(HeaderName, &str)]| {
            let headers =
                headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
            refusal(&RouteGuard { keys: Arc::clone(&keys), role }, &headers)
                .map(|(status, _)| status.as_u16())
        };
        let host = (header::HOST, "localhost:1");
        let caller = (header::AUTHORIZATION, "Bearer caller-token-0123");
        let ours = (header::AUTHORIZATION, "Bearer host-token-012345");
        assert_eq!(status(TokenRole::Caller, &[host.clone(), caller.clone()]), None);
        assert_eq!(status(TokenRole::Caller, &[host.clone(), ours.clone()]), Some(403));
        assert_eq!(status(TokenRole::Host, &[host.clone(), ours.clone()]), None);
        assert_eq!(status(TokenRole::Host, &[host.clone(), caller]), Some(403));
        assert_eq!(status(TokenRole::Host, std::slice::from_ref(&host)), Some(401));
        assert_eq!(status(TokenRole::Host, &[host.clone(), (header::AUTHORIZATION, "Bearer ")]), Some(401));
        assert_eq!(status(TokenRole::Host, std::slice::from_ref(&ours)), Some(403));
        assert_eq!(status(TokenRole::Host, &[host, ours, (header::ORIGIN, "http://localhost:1")]), Some(403));
    }

    #[test]
    fn what_is_no_secret_is_no_token() {
        for text in ["", "short", "with a space in it all", "0123456789abcde\n"] {
            assert!(BearerToken::given(text.to_owned()).is_none(), "{text:?}");
        }
    }
}
