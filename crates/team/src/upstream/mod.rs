//! Servers that users reach as themselves.
//!
//! ```text
//! request of a user ─→ subjects: the user's token ─┐
//! session ═ socket ═ UpstreamServers ──────────────┴→ exchange ═ HTTP ═ identity provider
//! ```
//!
//! A session asks for a token when it needs one. It gets that of the upstream server, and never that of the user, which stays
//! here. Where users log in themselves, the session does so, and `callbacks` passes on what the browser brings back.

mod callbacks;
mod config;
mod exchange;
mod subjects;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};
use url::Url;

pub(crate) use self::callbacks::{BrowserKey, LoginCallbacks};
pub use self::config::{AuthorizationTable, ExchangeTable, UpstreamTable};
pub(crate) use self::config::{UpstreamMistake, mistake};
use self::exchange::TokenExchange;
pub(crate) use self::subjects::SubjectTokens;
use crate::front::RateLimits;
use crate::login::{LoginConfig, ProviderHttp, SecretError};
use crate::socket::line;
use crate::storage::replace;
use crate::users::TeamAccount;

/// The longest question of a session, in bytes.
const QUESTION_BYTES: usize = 16 * 1024;
/// The number of tokens that a user's sessions may ask for in a minute: a session asks again when a token has expired.
const TOKENS_PER_MINUTE: u32 = 60;

/// The servers that users reach as themselves.
pub(crate) struct UpstreamServers {
    servers: Vec<UpstreamServer>,
    pub(crate) subjects: Arc<SubjectTokens>,
    rates: RateLimits,
}

struct UpstreamServer {
    name: String,
    url: Url,
    exchange: TokenExchange,
}

/// A session's question for a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpstreamQuestion {
    url: Url,
}

/// The answer to it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum UpstreamAnswer {
    Token {
        token: String,
        seconds: u64,
    },
    /// There is none, whoever asks again.
    Refused(String),
    /// There is none now.
    Unavailable(String),
}

impl UpstreamServers {
    /// The servers of the tables; `None` if there are none.
    ///
    /// # Errors
    /// The secret of a client is missing.
    pub(crate) fn open(
        tables: &[UpstreamTable],
        login: &LoginConfig,
        client: reqwest::Client,
        secret: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SecretError> {
        let http = ProviderHttp::new(client);
        let mut servers = Vec::new();
        for table in tables {
            if let Some(exchange) = TokenExchange::new(table, login, &http, &secret)? {
                let url = table.secure_url().url().clone();
                servers.push(UpstreamServer { name: table.name.clone(), url, exchange });
            }
        }
        if servers.is_empty() {
            return Ok(None);
        }
        let issuers = servers.iter().map(|server: &UpstreamServer| server.exchange.issuer().to_string());
        let subjects = Arc::new(SubjectTokens::of(issuers.collect()));
        Ok(Some(Self { servers, subjects, rates: RateLimits::new(TOKENS_PER_MINUTE) }))
    }

    /// Writes the file by which sessions know the servers, as `--mcp-config` reads it.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let entry = |server: &UpstreamServer| json!({"type": "http", "url": server.url.as_str(), "oauth": {"grant": "team"}});
        let servers: Map<String, Value> =
            self.servers.iter().map(|server| (server.name.clone(), entry(server))).collect();
        replace(path, json!({"mcpServers": servers}).to_string().as_bytes())?;
        // It has no secret, and the processes of users read it.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
    }

    /// Asks the providers of each server, for `doctor`: the names of the servers, with what is wrong.
    pub(crate) async fn check(&self) -> Vec<(String, Result<(), String>)> {
        let mut checks = Vec::new();
        for server in &self.servers {
            let checked = server.exchange.check().await.map_err(|fault| fault.to_string());
            checks.push((server.name.clone(), checked));
        }
        checks
    }

    /// Answers the question of a user's session.
    pub(crate) async fn hear(
        &self,
        mut input: impl AsyncBufRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
        account: &TeamAccount,
    ) -> io::Result<()> {
        let Some(question) = line(&mut input, QUESTION_BYTES).await? else { return Ok(()) };
        let UpstreamQuestion { url } = serde_json::from_slice(&question)?;
        let answer = self.answer(&url, account).await;
        output.write_all(format!("{}\n", serde_json::to_string(&answer)?).as_bytes()).await
    }

    async fn answer(&self, url: &Url, account: &TeamAccount) -> UpstreamAnswer {
        let Some(server) = self.servers.iter().find(|server| server.url == *url) else {
            let why = "no `[[upstream]]` of the team server's configuration has this URL";
            return UpstreamAnswer::Refused(why.to_owned());
        };
        let UpstreamServer { name, exchange, .. } = server;
        if exchange.issuer().as_str() != account.issuer {
            return UpstreamAnswer::Refused(format!(
                "`{name}` is for users who log in at `{}`, and this one has logged in at `{}`",
                exchange.issuer(),
                account.issuer
            ));
        }
        let Some(subject) = self.subjects.valid(&account.key) else {
            return UpstreamAnswer::Refused(format!(
                "the token by which the user has logged in to the team server has expired, or the server was restarted, so \
                 that `{name}` cannot be reached as the user; it takes a new request of the user, who may have to log in \
                 again there"
            ));
        };
        if self.rates.take(&account.key).is_err() {
            return UpstreamAnswer::Unavailable(format!(
                "too many tokens were asked for; `{name}` has to wait"
            ));
        }
        match exchange.token(&subject).await {
            Ok(token) => UpstreamAnswer::Token { token: token.token, seconds: token.life.as_secs() },
            Err(error) => {
                let user = &account.key;
                tracing::warn!(%user, server = %name, %error, "a user has no token for an upstream server");
                if error.is_of_subject() {
                    self.subjects.forget(user, &subject);
                }
                let why = format!("the user's token could not be exchanged for one of `{name}`: {error}");
                if error.is_outage() {
                    UpstreamAnswer::Unavailable(why)
                } else {
                    UpstreamAnswer::Refused(why)
                }
            }
        }
    }
}
