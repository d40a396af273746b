//! The [REST API](https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html) of a JupyterHub, as a service of it
//! uses it: tokens of users are made and taken back.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::names::HubName;
use crate::login::{
    ClientSecret, ProviderAnswer, ProviderFault, ProviderHttp, RequestCredentials, SecureUrl,
};

/// The life of a token, in seconds.
pub(super) const LIFE_SECONDS: u64 = 3600;
/// The scopes of a token: its user's own servers.
const SCOPES: [&str; 2] = ["access:servers!user", "servers!user"];
/// The scope by which a service makes, lists and takes back tokens of users.
const TOKENS: &str = "tokens";
/// The number of characters of the Hub's words that are shown.
const WORDS_CHARS: usize = 300;

/// Why the Hub gives no token of a user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubServiceError {
    /// It cannot be asked now.
    #[error("the JupyterHub cannot be asked: {0}")]
    Away(#[from] ProviderFault),
    /// It does not know the service.
    #[error(
        "the JupyterHub does not take the token in the team server's `{variable}`, which is to be that of a service"
    )]
    Token { variable: String },
    /// The service may not make tokens.
    #[error("the service of the team server lacks the scope `{scope}` at the JupyterHub")]
    Scope { scope: &'static str },
    /// There is no such user, and the service may not make one.
    #[error(
        "the JupyterHub has no user `{user}`: let `{user}` log in there once, its administrator add them, or give the team \
         server's service the scope `admin:users`"
    )]
    NoUser { user: HubName },
    /// It refuses a request.
    #[error("{what}: the JupyterHub answers {status}: {words}")]
    Refused { what: &'static str, status: StatusCode, words: String },
}

/// A token of a user.
#[derive(Deserialize)]
pub(super) struct HubToken {
    /// Its id, by which it is taken back.
    pub(super) id: String,
    pub(super) token: String,
}

/// A service of the Hub.
pub(super) struct HubService {
    http: ProviderHttp,
    /// The Hub's URL, without its own path.
    base: SecureUrl,
    token: ClientSecret,
    /// The variable with the token.
    variable: String,
    /// The beginning of the notes of all tokens that this server has made, also before it was restarted.
    notes: String,
    /// The note of those that it has made since.
    note: String,
}

#[derive(Deserialize)]
struct ServiceModel {
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Deserialize)]
struct TokenList {
    api_tokens: Vec<ListedToken>,
}

#[derive(Deserialize)]
struct ListedToken {
    id: String,
    #[serde(default)]
    note: Option<String>,
}

impl HubServiceError {
    /// Whether another attempt may succeed.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    fn refused(what: &'static str, answer: &ProviderAnswer) -> Self {
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let words = said["message"].as_str().unwrap_or("no reason");
        let words = words.chars().filter(|letter| !letter.is_control()).take(WORDS_CHARS).collect();
        Self::Refused { what, status: answer.status, words }
    }
}

impl HubService {
    /// A service with this token, for the team server at the URL `resource`; `run` names this run of it.
    pub(super) fn new(
        http: ProviderHttp,
        url: &SecureUrl,
        variable: &str,
        token: ClientSecret,
        resource: &SecureUrl,
        run: &str,
    ) -> Self {
        let base = base_of(url);
        let notes = format!("ipybox at {resource} (");
        let note = format!("{notes}{run})");
        Self { http, base, token, variable: variable.to_owned(), notes, note }
    }

    /// Makes a token of a user, who is made too if there is none and the service may.
    pub(super) async fn make_token(&self, user: &HubName) -> Result<HubToken, HubServiceError> {
        let what = "make a token of the user";
        let wanted = json!({"note": self.note, "expires_in": LIFE_SECONDS, "scopes": SCOPES});
        let path = ["users", user.as_str(), "tokens"];
        let mut answer = self.ask(Method::POST, &path, Some(&wanted)).await?;
        if matches!(answer.status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) {
            // So it answers about a user that there is not, too.
            self.make_user(user).await?;
            answer = self.ask(Method::POST, &path, Some(&wanted)).await?;
        }
        let made = answer.status.is_success().then(|| serde_json::from_slice(&answer.body).ok()).flatten();
        made.ok_or_else(|| HubServiceError::refused(what, &answer))
    }

    async fn make_user(&self, user: &HubName) -> Result<(), HubServiceError> {
        self.check().await?;
        let answer = self.ask(Method::POST, &["users", user.as_str()], None).await?;
        match answer.status {
            StatusCode::FORBIDDEN => Err(HubServiceError::NoUser { user: user.clone() }),
            // Another session has made it meanwhile, or the service may make no tokens of this one: it is tried again.
            StatusCode::CONFLICT => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(HubServiceError::refused("make the user", &answer)),
        }
    }

    /// Takes a token back. One that has ended is none.
    pub(super) async fn take_back(&self, user: &HubName, id: &str) -> Result<(), HubServiceError> {
        let answer = self.ask(Method::DELETE, &["users", user.as_str(), "tokens", id], None).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(HubServiceError::refused("take a token back", &answer)),
        }
    }

    /// Takes the tokens of a user back that this server has made before it was started.
    pub(super) async fn take_back_left(&self, user: &HubName) -> Result<(), HubServiceError> {
        let what = "list the tokens of the user";
        let answer = self.ask(Method::GET, &["users", user.as_str(), "tokens"], None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        let listed = answer.status.is_success().then(|| serde_json::from_slice(&answer.body).ok()).flatten();
        let TokenList { api_tokens } = listed.ok_or_else(|| HubServiceError::refused(what, &answer))?;
        for ListedToken { id, note } in api_tokens {
            if note.is_some_and(|note| note.starts_with(&self.notes) && note != self.note) {
                self.take_back(user, &id).await?;
            }
        }
        Ok(())
    }

    /// Asks what the service may do.
    ///
    /// # Errors
    /// It may not make tokens, or the Hub does not know it.
    pub(super) async fn check(&self) -> Result<(), HubServiceError> {
        let answer = self.ask(Method::GET, &["user"], None).await?;
        if matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(HubServiceError::Token { variable: self.variable.clone() });
        }
        let known = answer.status.is_success().then(|| serde_json::from_slice(&answer.body).ok()).flatten();
        let ServiceModel { scopes } =
            known.ok_or_else(|| HubServiceError::refused("ask what the service may do", &answer))?;
        // Also for some users only: `tokens!group=lab`.
        let has = |wanted: &str| scopes.iter().any(|scope| scope.split('!').next() == Some(wanted));
        if has(TOKENS) { Ok(()) } else { Err(HubServiceError::Scope { scope: TOKENS }) }
    }

    async fn ask(
        &self,
        method: Method,
        path: &[&str],
        document: Option<&Value>,
    ) -> Result<ProviderAnswer, HubServiceError> {
        let url = self.base.below(&[&["hub", "api"], path].concat());
        let credentials = RequestCredentials::Bearer(self.token.text());
        Ok(self.http.send_json(method, &url, credentials, document).await?)
    }
}

/// The URL of a Hub, which may have been given with the Hub's own path.
fn base_of(url: &SecureUrl) -> SecureUrl {
    let path = url.url().path().trim_end_matches('/');
    url.with_path(path.strip_suffix("/hub").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_may_be_given_with_its_own_path_and_a_name_is_one_segment() {
        for (given, expected) in [
            ("https://host", "https://host/hub/api/users/a%20b"),
            ("https://host/hub/", "https://host/hub/api/users/a%20b"),
            ("https://host/lab/hub", "https://host/lab/hub/api/users/a%20b"),
            ("https://host/github/", "https://host/github/hub/api/users/a%20b"),
        ] {
            let base = base_of(&SecureUrl::try_from(given.to_owned()).unwrap());
            assert_eq!(base.below(&["hub", "api", "users", "a b"]).as_str(), expected);
        }
    }
}
