//! Access to MCP servers behind OAuth: logging in, tokens that are refreshed, and where they are kept.
//!
//! ```text
//! Accounts ─→ Account ┬ login    registration → authorization URL → callback → code → tokens ┐
//!                     ├ team     the server of a team has the user's token
//!                     ├ machine  client credentials, or an identity provider's assertion → token ┴→ server  discovery
//!                     └ store    tokens in the vault, what is no secret in `logins.json`
//! ```
//!
//! rmcp knows the protocol: metadata, PKCE, resource indicators, issuers, refreshing. Ours are the addresses that it may
//! reach, the loopback callback, the store, the lock across processes, and the messages for users. A token leaves this
//! room only for a request to its server.
//!
//! Reasons: `docs/decisions/oauth.md`.

mod account;
mod callback;
mod callback_answer;
mod earlier;
mod front_callback;
mod http;
mod jwt;
mod login;
mod machine;
mod offer;
mod private;
mod published;
mod registration;
mod server;
mod settings;
mod store;
mod team;
#[cfg(test)]
mod tests;
mod token;
mod token_answer;
mod token_request;

use std::time::Duration;

pub(crate) use self::account::{Account, Accounts};
pub(crate) use self::callback::check_redirect_uri;
pub(crate) use self::login::{LoginOpener, RefusedRequest, VisitedPage};
pub(crate) use self::settings::{
    CLIENT_METADATA_URL, IdentityProvider, MachineClient, OauthSettings, SigningAlgorithm, TokenGrant,
};
pub(crate) use self::store::{KnownLogin, LoginStore, RefusedAccess};
pub(crate) use self::token::AccessToken;
use crate::ground::text::visible::line;
use crate::ground::text::{describe, one_line, shortened};

/// The longest part of a foreign error that is shown, in characters.
const FOREIGN_CHARS: usize = 400;

/// Why there is no token for a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A URL would carry a secret in clear text, or is no web page.
    #[error("{what} is `{url}`, which {why}")]
    Address {
        /// Which URL.
        what: &'static str,
        /// The URL, without its query.
        url: String,
        /// The fault of it.
        why: &'static str,
    },
    /// The server answers without a login.
    #[error("the server answers without a login, and says nothing of an authorization server")]
    NotNeeded,
    /// The documents of the server or its authorization server cannot be used.
    #[error("the authorization server cannot be found: {0}")]
    Discovery(String),
    /// The client cannot be registered.
    #[error(
        "ipybox could not be registered with the authorization server: {0}\n\
         hint: register a client there by hand, with the redirect URI `http://localhost:PORT/callback`, and give `oauth` in the \
         server's parameters: `{{\"client_id\": …, \"redirect_uri\": …}}`, and `client_secret` if it has one"
    )]
    Registration(String),
    /// The listener for the browser's answer could not be opened.
    #[error("`{uri}` cannot be listened on: {cause}")]
    Listen {
        /// The redirect URI.
        uri: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The user was not sent to the page.
    #[error("{0}")]
    NotOpened(String),
    /// The authorization server or its user said no.
    #[error("the authorization server refused: {0}{hint}", hint = resource_hint(.0))]
    Refused(String),
    /// The answer of the browser is not one to our question.
    #[error("the answer is not usable: {0}")]
    Answer(String),
    /// Nothing came back from the browser.
    #[error("nobody has logged in within {} s", after.as_secs())]
    Silent {
        /// The time that it was waited for.
        after: Duration,
    },
    /// The authorization server gave no token.
    #[error("the authorization server gave no token: {0}{hint}", hint = resource_hint(.0))]
    Token(String),
    /// The server of a team gave none.
    #[error("the team server gave no token: {0}")]
    Team(String),
    /// It is not the one that the user names, or that has the client's secret.
    #[error(
        "the server names the authorization server `{found}`, and not `{expected}`, to which the client belongs\n\
         hint: if that is right, set `issuer` in `oauth` to the new one"
    )]
    OtherIssuer {
        /// The one that is expected.
        expected: String,
        /// The one that the server names.
        found: String,
    },
    /// The tokens cannot be kept.
    #[error("the login cannot be kept: {0}")]
    NotKept(String),
    /// The login has ended: a new one is needed.
    #[error("the login has ended: {0}")]
    Ended(String),
    /// The token could not be renewed now.
    #[error("the token could not be renewed: {0}")]
    Unavailable(String),
    /// The key cannot sign.
    #[error("`private_key` cannot be used: {0}")]
    Key(String),
    /// The kept login cannot be read or written.
    #[error("the login cannot be kept")]
    Store(#[source] std::io::Error),
}

/// Errors by which authorization servers refuse the parameter `resource`: the code of RFC 8707, and those of Microsoft Entra.
const RESOURCE_ERRORS: [&str; 4] = ["invalid_target", "invalid_resource", "AADSTS901002", "AADSTS9010010"];

/// A hint for errors about the parameter `resource`, which MCP demands and some authorization servers refuse.
fn resource_hint(error: &str) -> &'static str {
    let is_named = error.contains("resource") && error.contains("parameter");
    if is_named || RESOURCE_ERRORS.iter().any(|code| error.contains(code)) {
        "\nhint: if the authorization server does not take the parameter `resource`, as Microsoft Entra, set \
         `\"resource\": false` in `oauth` of the server's parameters"
    } else {
        ""
    }
}

/// A text of a foreign server: short, on one line, and with nothing in it that is invisible.
fn foreign(text: &str) -> String {
    shortened(&line(&one_line(text)), FOREIGN_CHARS)
}

/// An error of rmcp with its causes, as a foreign text: it may hold what a server answered.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    foreign(&describe(error))
}
