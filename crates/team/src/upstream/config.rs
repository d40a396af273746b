//! The tables `[[upstream]]` of the configuration: servers that users reach as themselves.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::login::{ClientAuthentication, IssuerConfig, IssuerUrl, LoginConfig, SecureUrl};

/// A server that each user reaches as oneself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTable {
    /// The name of its package in `mcptools`.
    pub name: String,
    /// Its URL.
    pub url: IssuerUrl,
    /// How a user's own token for it is had.
    pub exchange: ExchangeTable,
}

/// The exchange of a user's token for one of an upstream server (RFC 8693), by a client of the user's identity provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeTable {
    /// The identity provider, one of `login.issuer`. Default: the only one.
    #[serde(default)]
    pub issuer: Option<IssuerUrl>,
    /// The client that this server is there.
    pub client_id: String,
    /// The environment variable with that client's secret.
    pub client_secret_env: String,
    /// The way in which the client shows its secret.
    #[serde(default)]
    pub authentication: ClientAuthentication,
    /// The name of the upstream server at the provider, which is sent as `audience`. Default: the URL, as `resource`.
    #[serde(default)]
    pub audience: Option<String>,
    /// The scopes to ask for. Default: none, so that the provider decides.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The upstream server's own authorization server, which takes an assertion of the provider (ID-JAG). Default: tokens are
    /// the provider's.
    #[serde(default)]
    pub authorization_server: Option<AuthorizationTable>,
}

/// An authorization server that takes the assertions of an identity provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationTable {
    /// Its issuer, and the place of its metadata.
    pub issuer: IssuerUrl,
    /// The client that this server is there.
    pub client_id: String,
    /// The environment variable with that client's secret.
    pub client_secret_env: String,
    /// The way in which the client shows its secret.
    #[serde(default)]
    pub authentication: ClientAuthentication,
}

/// A mistake in a table.
pub(crate) struct UpstreamMistake {
    pub(crate) key: &'static str,
    pub(crate) why: String,
    pub(crate) remedy: &'static str,
}

impl UpstreamTable {
    /// The issuer whose users it is for.
    pub(super) fn issuer(&self, login: &LoginConfig) -> Option<IssuerUrl> {
        match (&self.exchange.issuer, login.issuers.as_slice()) {
            (Some(issuer), issuers) => {
                let known = |known: &&IssuerConfig| known.issuer == *issuer && known.jupyterhub.is_none();
                issuers.iter().find(known).map(|known| known.issuer.clone())
            }
            (None, [only]) if only.jupyterhub.is_none() => Some(only.issuer.clone()),
            (None, _) => None,
        }
    }

    pub(super) fn secure_url(&self) -> &SecureUrl {
        self.url.secure()
    }
}

/// The first mistake in the tables.
pub(crate) fn mistake(tables: &[UpstreamTable], login: &LoginConfig) -> Option<UpstreamMistake> {
    let mut seen = BTreeSet::new();
    tables.iter().find_map(|table| {
        let wrong = |key, why: &str, remedy| {
            Some(UpstreamMistake { key, why: format!("of `{}` {why}", table.name), remedy })
        };
        let ExchangeTable { audience, scopes, authorization_server, .. } = &table.exchange;
        if !is_package(&table.name) {
            return wrong("upstream.name", "is no name of a package", "use small letters, digits and `_`");
        }
        if !seen.insert(table.name.clone()) || !seen.insert(table.secure_url().url().to_string()) {
            return wrong("upstream", "is there twice, by its name or its URL", "write one table for it");
        }
        if table.issuer(login).is_none() {
            let remedy = "write the URL of an `issuer` of `[[login.issuer]]`, as it is written there";
            return wrong(
                "upstream.exchange.issuer",
                "names no identity provider that could exchange tokens",
                remedy,
            );
        }
        if scopes.iter().any(|scope| scope.is_empty() || scope.contains(char::is_whitespace)) {
            return wrong("upstream.exchange.scopes", "has one that is no word", "write a list of words");
        }
        if audience.is_some() && authorization_server.is_some() {
            let why = "would say nothing: an assertion is for the authorization server";
            return wrong("upstream.exchange.audience", why, "leave it out");
        }
        None
    })
}

fn is_package(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
