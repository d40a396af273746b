//! An access token, and when it is renewed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oauth2::TokenResponse as _;
use rmcp::transport::auth::StoredCredentials;

use super::token_request::check_token;

/// A token is renewed this long before it expires, and a tenth of its life if that is shorter.
const RENEWED_BEFORE: u64 = 30;

/// An access token.
#[derive(Clone)]
pub(crate) struct AccessToken {
    pub(super) secret: String,
    /// When to renew it, in seconds since 1970.
    renew_at: Option<u64>,
}

impl PartialEq for AccessToken {
    fn eq(&self, other: &Self) -> bool {
        self.secret == other.secret
    }
}

impl Eq for AccessToken {}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Token").finish_non_exhaustive()
    }
}

impl AccessToken {
    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.secret)
    }

    pub(super) fn of(credentials: &StoredCredentials) -> Option<Self> {
        let tokens = credentials.token_response.as_ref()?;
        let secret = tokens.access_token().secret().clone();
        // An earlier version may have kept another.
        check_token(&secret).ok()?;
        Some(Self { secret, renew_at: renew_at(expires_at(credentials), tokens.expires_in()) })
    }

    pub(super) fn lasting(secret: String, lifetime: Option<Duration>) -> Self {
        let expires_at = lifetime.map(|lifetime| now().saturating_add(lifetime.as_secs()));
        Self { secret, renew_at: renew_at(expires_at, lifetime) }
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.renew_at.is_none_or(|renew_at| now() < renew_at)
    }
}

fn renew_at(expires_at: Option<u64>, lifetime: Option<Duration>) -> Option<u64> {
    let margin = lifetime.map_or(RENEWED_BEFORE, |lifetime| RENEWED_BEFORE.min(lifetime.as_secs() / 10));
    expires_at.map(|at| at.saturating_sub(margin))
}

/// When the access token expires, in seconds since 1970.
pub(super) fn expires_at(credentials: &StoredCredentials) -> Option<u64> {
    let lifetime = credentials.token_response.as_ref()?.expires_in()?;
    Some(credentials.token_received_at?.saturating_add(lifetime.as_secs()))
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
