//! The store of logins: tokens are in the vault, the rest, no secret, in `logins.json` of the state directory.
//!
//! Several processes may use the same login: each reads it anew before it renews a token, under a lock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oauth2::TokenResponse as _;
use parking_lot::Mutex;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Error;
use super::token::expires_at;
use crate::ground::env::vault::Vault;
use crate::ground::files::{FileStamp, Journal, JournalNote, StateFile, create_private_directory, lock};
use crate::ground::web::bare;

/// The time to wait for another process that renews the same token.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The secrets of a login.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LoginSecrets {
    /// The tokens, and for which client and issuer.
    pub(super) credentials: StoredCredentials,
    /// The client's secret, if it was given one when it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    /// The method by which the client authenticates, if it was registered for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<String>,
    /// The endpoint that the tokens came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token_endpoint: Option<String>,
}

/// The description of a login, without its secrets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct KnownLogin {
    /// The server's URL, without user name, password and query.
    pub(crate) server: String,
    /// Whether there is a token.
    #[serde(default)]
    pub(crate) is_logged_in: bool,
    /// Until when the token holds, in seconds since 1970; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<u64>,
    /// Whether the token is renewed without a user.
    #[serde(default)]
    pub(crate) is_renewed: bool,
    /// The authorization server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) issuer: Option<String>,
    /// The scopes that were granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
    /// The request that the server refused last, until the next login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<RefusedAccess>,
}

/// A request that a server has refused for want of a login, or of scopes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RefusedAccess {
    /// The name under which it is registered, or was to be.
    pub(crate) name: String,
    /// Its parameters; placeholders are not filled.
    pub(crate) parameters: Map<String, Value>,
    /// The header `WWW-Authenticate` of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) challenge: Option<String>,
    /// The scopes that it asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct LoginDocument {
    logins: BTreeMap<String, KnownLogin>,
}

/// A login that begins or ends, as the journal notes it.
#[derive(Serialize, Deserialize)]
struct LoginChange {
    key: String,
}

/// The store of one login. Its methods block.
pub(crate) struct LoginStore {
    key: String,
    server: String,
    place: LoginPlace,
}

enum LoginPlace {
    Directory(PathBuf),
    Memory(Mutex<Option<Box<LoginSecrets>>>),
}

impl LoginStore {
    pub(super) fn new(key: String, server: String, directory: Option<&Path>) -> Self {
        let place = directory.map_or_else(
            || LoginPlace::Memory(Mutex::default()),
            |path| LoginPlace::Directory(path.to_owned()),
        );
        Self { key, server, place }
    }

    /// All logins of a state directory, and requests refused for want of one.
    pub(crate) fn known(directory: &Path) -> io::Result<Vec<KnownLogin>> {
        Ok(file_of(directory).read::<LoginDocument>()?.logins.into_values().collect())
    }

    /// The secrets, if there is a login. The keyring is not asked otherwise: it may ask the user for a password.
    pub(super) fn load(&self) -> io::Result<Option<LoginSecrets>> {
        match &self.place {
            LoginPlace::Directory(directory) => {
                if !self.look()?.is_some_and(|login| login.is_logged_in) {
                    return Ok(None);
                }
                let Some(text) = Vault::in_directory(directory).get(&self.entry())? else { return Ok(None) };
                // What an earlier version has left there is as good as none.
                Ok(serde_json::from_str(&text).ok())
            }
            LoginPlace::Memory(secret) => Ok(secret.lock().as_deref().cloned()),
        }
    }

    pub(super) fn save(&self, secret: LoginSecrets) -> io::Result<()> {
        match &self.place {
            LoginPlace::Directory(directory) => {
                create_private_directory(directory)?;
                let is_first = !self.look()?.is_some_and(|login| login.is_logged_in);
                let note = is_first.then(|| self.note_change(directory)).transpose()?;
                Vault::in_directory(directory).put(&self.entry(), &serde_json::to_string(&secret)?)?;
                self.change(directory, |login| login.has(&secret))?;
                note.into_iter().for_each(JournalNote::remove);
                Ok(())
            }
            LoginPlace::Memory(place) => {
                *place.lock() = Some(Box::new(secret));
                Ok(())
            }
        }
    }

    /// Forgets the login. Returns whether there was one.
    pub(super) fn clear(&self) -> io::Result<bool> {
        match &self.place {
            LoginPlace::Directory(directory) => {
                let note = self.note_change(directory)?;
                file_of(directory)
                    .change(|document: &mut LoginDocument| drop(document.logins.remove(&self.key)))?;
                let was_there = Vault::in_directory(directory).remove(&self.entry())?;
                note.remove();
                Ok(was_there)
            }
            LoginPlace::Memory(place) => Ok(place.lock().take().is_some()),
        }
    }

    /// Forgets tokens that are of no use any more, and keeps for whom they were.
    pub(super) fn end(&self) -> io::Result<()> {
        match &self.place {
            LoginPlace::Directory(directory) => {
                let note = self.note_change(directory)?;
                self.change(directory, |login| login.is_logged_in = false)?;
                Vault::in_directory(directory).remove(&self.entry())?;
                note.remove();
                Ok(())
            }
            LoginPlace::Memory(_) => self.clear().map(drop),
        }
    }

    /// Notes the authorization server that has the client's secret.
    pub(super) fn pin(&self, issuer: String) -> io::Result<()> {
        let LoginPlace::Directory(directory) = &self.place else { return Ok(()) };
        if self.look()?.is_some_and(|login| login.issuer.as_ref() == Some(&issuer)) {
            return Ok(());
        }
        create_private_directory(directory)?;
        self.change(directory, |login| login.issuer = Some(issuer))
    }

    /// Checks that what is kept can be read, and changed.
    pub(super) fn check(&self) -> io::Result<()> {
        let LoginPlace::Directory(directory) = &self.place else { return Ok(()) };
        create_private_directory(directory)?;
        self.load()?;
        self.change(directory, |_| {})
    }

    /// The version of what is kept: another process may have logged in or out.
    pub(super) fn stamp(&self) -> Option<FileStamp> {
        match &self.place {
            LoginPlace::Directory(directory) => file_of(directory).stamp().ok().flatten(),
            LoginPlace::Memory(_) => None,
        }
    }

    /// Reads the description of the login.
    pub(super) fn look(&self) -> io::Result<Option<KnownLogin>> {
        match &self.place {
            LoginPlace::Directory(directory) => {
                Ok(file_of(directory).read::<LoginDocument>()?.logins.remove(&self.key))
            }
            LoginPlace::Memory(_) => Ok(None),
        }
    }

    /// Notes what the server has refused, for `ipybox login` in another process.
    pub(super) fn note(&self, refused: RefusedAccess) -> io::Result<()> {
        let LoginPlace::Directory(directory) = &self.place else { return Ok(()) };
        let is_known = self.look()?.and_then(|login| login.refused).as_ref() == Some(&refused);
        if is_known {
            return Ok(());
        }
        create_private_directory(directory)?;
        self.change(directory, |login| login.refused = Some(refused))
    }

    /// Waits for other processes that renew the token.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        let LoginPlace::Directory(directory) = &self.place else { return Ok(None) };
        lock(&directory.join(format!("login-{}.lock", self.key)), LOCK_TIMEOUT).map(Some)
    }

    fn change(&self, directory: &Path, change: impl FnOnce(&mut KnownLogin)) -> io::Result<()> {
        file_of(directory).change(|document: &mut LoginDocument| {
            let login = document.logins.entry(self.key.clone()).or_default();
            login.server.clone_from(&self.server);
            change(login);
        })
    }

    /// Notes that a login begins or ends: its tokens are in the vault only if `logins.json` says that there are some.
    fn note_change(&self, directory: &Path) -> io::Result<JournalNote> {
        journal_in(directory).note(&LoginChange { key: self.key.clone() })
    }

    /// Removes the tokens of logins that a process had not noted, or had forgotten already, when it died.
    pub(super) fn settle(directory: &Path) -> io::Result<()> {
        for (note, LoginChange { key }) in journal_in(directory).left()? {
            let store = Self::new(key, String::new(), Some(directory));
            if !store.look()?.is_some_and(|login| login.is_logged_in) {
                Vault::in_directory(directory).remove(&store.entry())?;
            }
            note.remove();
        }
        Ok(())
    }

    fn entry(&self) -> String {
        format!("login {}", self.key)
    }
}

fn journal_in(directory: &Path) -> Journal {
    Journal::in_directory(directory.join("logins.journal"))
}

impl KnownLogin {
    /// Whether it is a login to the server with this URL, which may have placeholders.
    pub(crate) fn is_of(&self, url: &str) -> bool {
        let parsed = reqwest::Url::parse(url).is_ok_and(|url| bare(&url).as_str() == self.server);
        parsed || url.split(['?', '#']).next() == Some(&self.server)
    }

    fn has(&mut self, secret: &LoginSecrets) {
        let tokens = secret.credentials.token_response.as_ref();
        self.is_logged_in = tokens.is_some();
        self.is_renewed = tokens.is_some_and(|tokens| tokens.refresh_token().is_some());
        self.expires_at = expires_at(&secret.credentials);
        self.issuer.clone_from(&secret.credentials.issuer);
        self.scopes.clone_from(&secret.credentials.granted_scopes);
        self.refused = None;
    }
}

fn file_of(directory: &Path) -> StateFile {
    StateFile::new(directory.join("logins.json"))
}

/// The store as rmcp wants it, for one client.
#[derive(Clone)]
pub(super) struct ForClient {
    pub(super) store: Arc<LoginStore>,
    pub(super) client_secret: Option<String>,
    pub(super) method: Option<String>,
    /// The endpoint that tokens come from; if it is `None`, from where those before came.
    pub(super) token_endpoint: Option<String>,
}

#[async_trait]
impl CredentialStore for ForClient {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(blocking(&self.store, LoginStore::load).await.map_err(failed)?.map(|secret| secret.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let Self { client_secret, method, token_endpoint, .. } = self.clone();
        let save = |store: &LoginStore| {
            let before = || store.load().ok().flatten().and_then(|secret| secret.token_endpoint);
            let token_endpoint = token_endpoint.or_else(before);
            store.save(LoginSecrets { credentials, client_secret, method, token_endpoint })
        };
        blocking(&self.store, save).await.map_err(failed)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        blocking(&self.store, LoginStore::clear).await.map(drop).map_err(failed)
    }
}

fn failed(error: Error) -> AuthError {
    AuthError::CredentialStoreError(crate::ground::text::describe(&error))
}

/// Does `work` off the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    store: &Arc<LoginStore>,
    work: impl FnOnce(&LoginStore) -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let store = Arc::clone(store);
    let done = tokio::task::spawn_blocking(move || work(&store)).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(Error::Store)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> LoginSecrets {
        let tokens = serde_json::json!({"access_token": "t1", "token_type": "bearer"});
        let credentials = StoredCredentials::new(
            "client".to_owned(),
            Some(serde_json::from_value(tokens).unwrap()),
            Vec::new(),
            None,
        );
        LoginSecrets { credentials, client_secret: None, method: None, token_endpoint: None }
    }

    #[test]
    fn tokens_that_a_process_left_when_it_died_are_removed_unless_they_are_of_a_login() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let store = LoginStore::new("key".to_owned(), "https://a.example/".to_owned(), Some(state));
        let kept = || Vault::in_directory(state).get("login key").unwrap();
        // It died between the vault and the document.
        drop(store.note_change(state).unwrap());
        Vault::in_directory(state).put("login key", "t0").unwrap();
        LoginStore::settle(state).unwrap();
        assert_eq!(kept(), None);
        // After the document.
        store.save(secret()).unwrap();
        drop(store.note_change(state).unwrap());
        LoginStore::settle(state).unwrap();
        assert!(kept().is_some() && store.load().unwrap().is_some());
        // Between the document and the vault, at the end.
        drop(store.note_change(state).unwrap());
        store.change(state, |login| login.is_logged_in = false).unwrap();
        LoginStore::settle(state).unwrap();
        assert_eq!(kept(), None);
        assert!(journal_in(state).is_empty());
    }
}
