//! The JupyterHub whose servers run the kernels of users, each at a server of the user's own.
//!
//! ```text
//! request of a user ─→ names: whose server at the Hub
//! session ═ socket ═ TeamHub ─→ service ═ HTTP ═ the Hub: tokens of that user
//! ```
//!
//! The service's own token, which may do much more, stays here. A session asks for one of its user's when it needs it; all that it
//! has got are taken back when its connection ends, or when the next front starts.

mod names;
mod service;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};

use self::names::HubNames;
pub(crate) use self::names::{HubName, HubNameError};
use self::service::{HubService, HubServiceError, HubToken, LIFE_SECONDS};
use crate::front::RateLimits;
use crate::kernels::KernelTable;
use crate::login::{ClaimedName, ClientSecret, ProviderHttp, SecureUrl, TeamUser, UserIdentity};
use crate::socket::line;
use crate::users::TeamAccount;

/// The longest question of a session, in bytes.
const QUESTION_BYTES: usize = 4 * 1024;
/// The number of tokens that a user's sessions may ask for in a minute: one for each, and another when it was refused.
const TOKENS_PER_MINUTE: u32 = 60;
/// The pause before a Hub that is away is asked again.
const PAUSE: Duration = Duration::from_secs(15);
/// The number of bytes by which the runs of a server differ.
const RUN_BYTES: usize = 4;

/// Why the kernels of users could not run at the Hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubSetupError {
    /// There is no token of the service.
    #[error(
        "ask the JupyterHub: the environment variable `{0}`, which `kernels.hub_token_env` names, is not set\n\
         hint: set it to the token of a service of the JupyterHub"
    )]
    NoToken(String),
    /// It cannot be known whose the names at the Hub are.
    #[error("read whose the users of the JupyterHub are, in `{}`", path.display())]
    Names {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system has no random numbers.
    #[error("name this run of the server")]
    Random,
}

/// The Hub, and who is who there.
pub(crate) struct TeamHub {
    url: SecureUrl,
    service: HubService,
    names: HubNames,
    /// The names that the newest requests of users have claimed, by the keys of the users.
    claimed: Mutex<HashMap<String, ClaimingUser>>,
    rates: RateLimits,
}

#[derive(Clone)]
struct ClaimingUser {
    identity: UserIdentity,
    name: ClaimedName,
}

/// A session's question for a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HubQuestion {
    user: HubName,
}

/// The answer to it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum HubAnswer {
    Token { token: String, seconds: u64 },
    Refused(String),
}

/// A token that a session has.
struct GivenToken {
    user: HubName,
    id: String,
}

impl TeamHub {
    /// The Hub of the table; `None` if kernels run on this machine. It is not asked anything yet.
    ///
    /// # Errors
    /// See [`HubSetupError`].
    pub(crate) fn open(
        table: &KernelTable,
        resource: &SecureUrl,
        state_dir: &Path,
        client: reqwest::Client,
        secret: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, HubSetupError> {
        let (Some(url), Some(variable)) = (&table.hub_url, &table.hub_token_env) else { return Ok(None) };
        let token = ClientSecret::of(variable, &secret);
        let token = token.map_err(|_| HubSetupError::NoToken(variable.clone()))?;
        let path = state_dir.join("hub-users.json");
        let names = HubNames::open(path.clone());
        let names = names.map_err(|source| HubSetupError::Names { path, source })?;
        let mut run = [0; RUN_BYTES];
        SystemRandom::new().fill(&mut run).map_err(|_| HubSetupError::Random)?;
        let run = format!("{:08x}", u32::from_be_bytes(run));
        let service = HubService::new(ProviderHttp::new(client), url, variable, token, resource, &run);
        let rates = RateLimits::new(TOKENS_PER_MINUTE);
        Ok(Some(Self { url: url.clone(), service, names, claimed: Mutex::default(), rates }))
    }

    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Notes the name that a request of the user with this key claims.
    pub(crate) fn note(&self, key: &str, user: &TeamUser) {
        let claiming = ClaimingUser { identity: user.identity.clone(), name: user.hub_user.clone() };
        self.claimed.lock().insert(key.to_owned(), claiming);
    }

    /// The Hub's user whose server is that of the user with this key.
    ///
    /// # Errors
    /// The login names none, or one that is another identity's.
    pub(crate) fn user_of(&self, key: &str) -> Result<HubName, HubNameError> {
        let claiming = self.claimed.lock().get(key).cloned().ok_or(HubNameError::Unknown)?;
        let name = HubName::of(&claiming.name)?;
        self.names.claim(&name, &claiming.identity).inspect_err(|error| {
            tracing::warn!(user = %key, %error, "a user has no server at the JupyterHub");
        })?;
        Ok(name)
    }

    /// Answers the questions of a user's session, and takes back what it has got when it asks no more.
    pub(crate) async fn hear(
        &self,
        input: impl AsyncBufRead + Unpin,
        output: impl AsyncWrite + Unpin,
        account: &TeamAccount,
    ) -> io::Result<()> {
        let mut given = None;
        let heard = self.answer_all(input, output, account, &mut given).await;
        self.take_back(given).await;
        heard
    }

    async fn answer_all(
        &self,
        mut input: impl AsyncBufRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
        account: &TeamAccount,
        given: &mut Option<GivenToken>,
    ) -> io::Result<()> {
        while let Some(question) = line(&mut input, QUESTION_BYTES).await? {
            let HubQuestion { user } = serde_json::from_slice(&question)?;
            let (answer, earlier) = match self.token_for(account, &user).await {
                Ok(HubToken { id, token }) => {
                    let earlier = given.replace(GivenToken { user, id });
                    (HubAnswer::Token { token, seconds: LIFE_SECONDS }, earlier)
                }
                Err(why) => (HubAnswer::Refused(why), None),
            };
            let written = output.write_all(format!("{}\n", serde_json::to_string(&answer)?).as_bytes()).await;
            self.take_back(earlier).await;
            written?;
        }
        Ok(())
    }

    async fn token_for(&self, account: &TeamAccount, user: &HubName) -> Result<HubToken, String> {
        let identity = UserIdentity { issuer: account.issuer.clone(), subject: account.subject.clone() };
        if !self.names.belongs(user, &identity) {
            return Err(format!("`{user}` at the JupyterHub is not the user of this session"));
        }
        if self.rates.take(&account.key).is_err() {
            return Err("the user's sessions have asked for too many tokens of the JupyterHub".to_owned());
        }
        self.service.make_token(user).await.map_err(|error| {
            tracing::warn!(user = %account.key, %error, "a session has no token of the JupyterHub");
            error.to_string()
        })
    }

    async fn take_back(&self, given: Option<GivenToken>) {
        let Some(GivenToken { user, id }) = given else { return };
        if let Err(error) = self.service.take_back(&user, &id).await {
            tracing::warn!(%user, %error, "a token of the JupyterHub was not taken back, and ends by itself within an hour");
        }
    }

    /// Takes back the tokens that a server before this one has left. Sessions that go on ask for others.
    pub(crate) async fn take_back_left(&self) {
        let mut users = self.names.all();
        while let Some(user) = users.last() {
            match self.service.take_back_left(user).await {
                Ok(()) => drop(users.pop()),
                Err(error) if error.is_outage() => tokio::time::sleep(PAUSE).await,
                Err(error) => {
                    tracing::warn!(%error, "earlier tokens of the JupyterHub are not taken back, and end by themselves within an hour");
                    return;
                }
            }
        }
    }

    /// Asks the Hub whether it takes the service's token, for `doctor`.
    pub(crate) async fn check(&self) -> Result<(), String> {
        self.service.check().await.map_err(|error: HubServiceError| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::configure_client;

    fn hub(state_dir: &Path) -> TeamHub {
        // An error means that another test has done so.
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = configure_client(reqwest::Client::builder()).no_proxy().build().unwrap();
        let table = "hub_url = \"http://127.0.0.1:1/\"\nhub_token_env = \"HUB\"";
        let resource = SecureUrl::try_from("https://ipybox.example/mcp".to_owned()).unwrap();
        let secret = |name: &str| (name == "HUB").then(|| "of the service".to_owned());
        let table = toml::from_str(table).unwrap();
        TeamHub::open(&table, &resource, state_dir, client, secret).unwrap().unwrap()
    }

    fn account(subject: &str) -> TeamAccount {
        let account = serde_json::json!({
            "key": subject, "issuer": "local", "subject": subject, "name": subject, "id": null, "created": 0, "seen": 0,
        });
        serde_json::from_value(account).unwrap()
    }

    fn claims(hub: &TeamHub, subject: &str, name: &str) -> Result<HubName, HubNameError> {
        let user = TeamUser {
            identity: UserIdentity { issuer: "local".to_owned(), subject: subject.to_owned() },
            name: subject.to_owned(),
            hub_user: ClaimedName { claim: "sub".to_owned(), value: name.to_owned() },
            groups: Default::default(),
            scopes: Default::default(),
            expires_at: None,
        };
        hub.note(subject, &user);
        hub.user_of(subject)
    }

    #[tokio::test]
    async fn a_session_gets_no_token_of_a_user_that_is_not_its_own() {
        let state_dir = tempfile::tempdir().unwrap();
        let hub = hub(state_dir.path());
        assert!(matches!(hub.user_of("ann"), Err(HubNameError::Unknown)));
        claims(&hub, "ann", "Ann").unwrap();
        claims(&hub, "bob", "bob").unwrap();
        assert!(matches!(claims(&hub, "bob", "ANN"), Err(HubNameError::Taken(_))));
        for (subject, expected) in [("bob", "is not the user of this session"), ("ann", "cannot be reached")]
        {
            for name in ["ann", "nobody", "../ann"] {
                let mut output = Vec::new();
                let question = format!("{{\"user\": \"{name}\"}}\n");
                hub.hear(question.as_bytes(), &mut output, &account(subject)).await.unwrap();
                let answer = String::from_utf8(output).unwrap();
                let expected = if name == "ann" { expected } else { "is not the user of this session" };
                assert!(answer.starts_with("{\"refused\":") && answer.contains(expected), "{answer}");
                assert!(!answer.contains("of the service"), "{answer}");
            }
        }
    }
}
