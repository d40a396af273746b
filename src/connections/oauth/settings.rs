//! The settings by which ipybox is known to the authorization server of one MCP server.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The Client ID Metadata Document of ipybox, published with its documentation.
pub(crate) const CLIENT_METADATA_URL: &str =
    concat!(env!("CARGO_PKG_HOMEPAGE"), "oauth/client-metadata.json");

/// The `oauth` parameters of a server, placeholders filled. It has no `Debug`: it holds secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OauthSettings {
    /// The way to get tokens.
    pub(crate) grant: TokenGrant,
    /// The scopes to ask for; if empty, those that the server names.
    pub(crate) scopes: Vec<String>,
    /// The authorization server; any that the server names if it is `None`.
    pub(crate) issuer: Option<String>,
    /// Whether its authorization server may have a private address.
    pub(crate) private_addresses: bool,
    /// Whether requests leave out the parameter `resource`, which some authorization servers refuse.
    pub(crate) omits_resource: bool,
}

/// The way to get tokens.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum TokenGrant {
    /// A user logs in.
    Code {
        /// The client that is registered already, and its secret.
        client: Option<(String, Option<String>)>,
        /// The client's metadata document; `None` to use none.
        client_metadata_url: Option<String>,
        /// The address to which the browser is sent afterwards; on a free port if it is `None`.
        redirect_uri: Option<String>,
    },
    /// The client logs in as itself.
    Client(MachineClient),
    /// An enterprise's identity provider vouches for the user.
    Enterprise(Box<IdentityProvider>),
    /// The server of a team has the user's.
    Team,
}

/// A client that authenticates without a user.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum MachineClient {
    /// By its secret.
    Secret { client_id: String, client_secret: String },
    /// By an assertion that it signs.
    Key { client_id: String, private_key: String, algorithm: SigningAlgorithm },
}

/// Algorithms of JSON Web Signatures (RFC 7518).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SigningAlgorithm {
    Es256,
    Es384,
    Rs256,
    Rs384,
    Rs512,
}

/// An identity provider that exchanges an ID token for an assertion (ID-JAG).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct IdentityProvider {
    pub(crate) issuer: String,
    pub(crate) token_endpoint: String,
    /// The client there.
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<String>,
    pub(crate) id_token: String,
    /// The client at the server's own authorization server.
    pub(crate) resource_client_id: String,
    pub(crate) resource_client_secret: Option<String>,
}

impl Default for OauthSettings {
    fn default() -> Self {
        let client_metadata_url = Some(CLIENT_METADATA_URL.to_owned());
        let grant = TokenGrant::Code { client: None, client_metadata_url, redirect_uri: None };
        Self { grant, scopes: Vec::new(), issuer: None, private_addresses: false, omits_resource: false }
    }
}

impl OauthSettings {
    /// Whether a user has to log in.
    pub(crate) fn needs_user(&self) -> bool {
        matches!(self.grant, TokenGrant::Code { .. })
    }

    /// Whether a secret of the user's goes to the authorization server.
    pub(super) fn has_secret(&self) -> bool {
        !matches!(&self.grant, TokenGrant::Code { client: None | Some((_, None)), .. } | TokenGrant::Team)
    }

    /// The secret of a client that is registered already.
    pub(super) fn client_secret(&self) -> Option<String> {
        match &self.grant {
            TokenGrant::Code { client: Some((_, secret)), .. } => secret.clone(),
            _ => None,
        }
    }

    /// The mark that distinguishes the accounts of one server, as a part of a file name: who the client is.
    pub(super) fn key(&self, server: &reqwest::Url) -> String {
        let client: Value = match &self.grant {
            TokenGrant::Code { client: None, .. } => Value::Null,
            TokenGrant::Code { client: Some((id, _)), .. } => json!(id),
            TokenGrant::Client(
                MachineClient::Secret { client_id, .. } | MachineClient::Key { client_id, .. },
            ) => {
                json!(["client", client_id])
            }
            TokenGrant::Team => json!(["team"]),
            TokenGrant::Enterprise(provider) => json!(["enterprise", provider.issuer, provider.client_id]),
        };
        let digest = Sha256::digest(json!([server.as_str(), client]).to_string());
        format!("{digest:x}").chars().take(32).collect()
    }
}

impl SigningAlgorithm {
    /// Their names in JSON Web Signatures.
    pub(crate) const NAMES: [(&str, Self); 5] = [
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
    ];

    pub(crate) fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, algorithm)| *algorithm == self);
        known.map_or("", |(name, _)| name)
    }
}
