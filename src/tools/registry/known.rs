//! The commands for the registered servers of a workspace outside of a session: log in and out, list, try, remove.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, json};

use super::records::ServerChange;
use super::{PackageDirectory, Registry};
use crate::approval::StandingAnswers;
use crate::approval::provenance::Label;
use crate::config::{Config, Settings};
use crate::connections::mcp_client::{self, Connector, LoginError, ServerParameters, ServerReach};
use crate::connections::oauth::{self, KnownLogin, LoginOpener, VisitedPage};
use crate::ground::text::{describe, listed, nearest, without_user};

/// The servers of a workspace.
pub struct KnownServers {
    registry: Registry,
    connector: Connector,
    answers: StandingAnswers,
    state_directory: PathBuf,
    workspace: PathBuf,
}

/// Why something cannot be done with a server.
#[derive(Debug, thiserror::Error)]
pub enum KnownServerError {
    /// The workspace or its state cannot be used.
    #[error("use the workspace")]
    Workspace(#[from] crate::config::Error),
    /// No server has the name.
    #[error("find the MCP server `{name}`: {}", unknown(name, known))]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The URL cannot be a server's.
    #[error("use `{url}` as the URL of an MCP server: {why}")]
    Url {
        /// The URL.
        url: String,
        /// The fault of it.
        why: String,
    },
    /// The login failed, or could not be forgotten.
    #[error("{what} {server}: {why}")]
    Login {
        /// The action that was to be done.
        what: &'static str,
        /// Its name or URL.
        server: String,
        /// Why, complete.
        why: String,
    },
    /// The server cannot be used.
    #[error("use the MCP server `{name}`: {why}")]
    Server {
        /// Its name.
        name: String,
        /// Why, complete.
        why: String,
    },
    /// The kept registrations cannot be read or written.
    #[error("read or write the registrations")]
    Store(#[from] io::Error),
}

/// A registered server, as a list shows it.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct KnownServer {
    /// Its name.
    pub name: String,
    /// Its command line or URL; placeholders are not filled.
    pub target: String,
    /// The number of its tools when it was registered; `None` if it is not registered yet.
    pub tools: Option<usize>,
    /// The login to it, if there is or was one.
    pub login: Option<LoginState>,
    /// The user's label for its data.
    pub label: Option<Label>,
}

/// The login to a server.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct LoginState {
    /// Whether there is a token.
    pub is_logged_in: bool,
    /// Until when the token holds (RFC 3339), if that is known.
    pub expires_at: Option<String>,
    /// Whether the token is renewed without the user.
    pub is_renewed: bool,
    /// The authorization server.
    pub issuer: Option<String>,
    /// The scopes that were granted.
    pub scopes: Vec<String>,
    /// Whether the server has asked for a login, or for more scopes, since.
    pub is_asked_for: bool,
}

/// Sends the user to an authorization URL, and returns the redirect URI if the user has brought it; see
/// [`KnownServers::login`].
pub type OpenPage<'a> = &'a (dyn Fn(String) -> BoxFuture<'a, Result<Option<String>, String>> + Send + Sync);

/// Adapts [`OpenPage`].
struct ByFunction<'a>(OpenPage<'a>);

impl LoginOpener for ByFunction<'_> {
    fn open<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<VisitedPage, String>> {
        Box::pin(async move {
            Ok((self.0)(url.to_owned()).await?.map_or(VisitedPage::Opened, VisitedPage::Pasted))
        })
    }
}

/// A server that a user has named.
struct NamedServer {
    name: String,
    parameters: ServerParameters,
}

impl KnownServers {
    /// The servers of `workspace`; `state_dir` is as in [`Settings`].
    ///
    /// # Errors
    /// The workspace or its state cannot be used.
    pub fn open(workspace: &Path, state_dir: Option<PathBuf>) -> Result<Self, KnownServerError> {
        let canonical = workspace.canonicalize();
        let source = |source| crate::config::Error::Workspace { path: workspace.to_owned(), source };
        let workspace = canonical.map_err(source)?;
        let config = Config::new(Settings { workspace, state_dir, ..Settings::default() })?;
        let connector = config.connector().in_foreground();
        let state_directory = config.state_dir.clone();
        let registry = Registry::in_directory(&state_directory, connector.clone());
        registry.settle(config.workspace());
        let answers = StandingAnswers::of_workspace(&state_directory);
        Ok(Self { registry, connector, answers, state_directory, workspace: config.workspace().to_owned() })
    }

    /// Logs the user in to a server, by its name or URL. `scopes` are asked for beside those that were granted.
    ///
    /// `open` sends the user to the page; the browser then brings the answer to this process, unless `open` returns it.
    ///
    /// # Errors
    /// There is no such server, or no login came of it.
    pub async fn login(
        &self,
        target: &str,
        scopes: &[String],
        open: OpenPage<'_>,
        timeout: Duration,
    ) -> Result<String, KnownServerError> {
        let NamedServer { name, parameters } = self.find(target)?;
        let login = self.connector.log_in(&parameters, None, scopes, &ByFunction(open), timeout).await;
        login.map_err(|error| failed("log in to", target, &error))?;
        Ok(name)
    }

    /// Forgets the login to a server, by its name or URL. Returns whether there was one.
    ///
    /// # Errors
    /// There is no such server, or what is kept cannot be changed.
    pub async fn logout(&self, target: &str) -> Result<bool, KnownServerError> {
        let NamedServer { parameters, .. } = self.find(target)?;
        self.connector.log_out(&parameters).await.map_err(|error| failed("log out of", target, &error))
    }

    /// All registered servers, and those that were not registered for want of a login.
    ///
    /// # Errors
    /// What is kept cannot be read.
    pub fn list(&self) -> Result<Vec<KnownServer>, KnownServerError> {
        let logins = oauth::LoginStore::known(&self.state_directory)?;
        let labels = self.answers.labels();
        let mut servers = Vec::new();
        for (name, tools) in self.registry.records.servers.tools()? {
            let Some(stored) = self.registry.records.servers.get(&name)? else { continue };
            let login = login_of(&stored.parameters, &logins).map(LoginState::of);
            let label = labels.of(&name);
            servers.push(KnownServer {
                label,
                name,
                target: stored.parameters.summary(),
                tools: Some(tools),
                login,
            });
        }
        for login in &logins {
            let (name, target) = match &login.refused {
                Some(refused) => (refused.name.clone(), login_target(refused)),
                // A login by the URL, before the server is registered.
                None => (login.server.clone(), login.server.clone()),
            };
            let is_listed = |server: &KnownServer| {
                server.name == name || server.target == target || login.is_of(&server.target)
            };
            if !servers.iter().any(is_listed) {
                let label = labels.of(&name);
                let login = Some(LoginState::of(login));
                servers.push(KnownServer { name, target, tools: None, login, label });
            }
        }
        Ok(servers)
    }

    /// Connects to a registered server, and returns how many tools it has.
    ///
    /// # Errors
    /// There is no such server, or it does not answer.
    pub async fn test(&self, name: &str) -> Result<usize, KnownServerError> {
        let NamedServer { name, parameters } = self.find(name)?;
        let failed =
            |error: mcp_client::Error| KnownServerError::Server { name: name.clone(), why: describe(&error) };
        let connection = self.connector.connect(&name, &parameters).await.map_err(failed)?;
        let tools = connection.list_tools().await;
        connection.close().await;
        Ok(tools.map_err(failed)?.len())
    }

    /// Says what the data of a registered server is, for the questions and policies of sessions that begin later.
    ///
    /// # Errors
    /// There is no such server, or what is kept cannot be changed.
    pub fn label(&self, name: &str, label: Option<Label>) -> Result<(), KnownServerError> {
        let NamedServer { name, .. } = self.find(name)?;
        Ok(self.answers.label(&name, label)?)
    }

    /// Removes a registration with its package, its login, its label and its secrets.
    ///
    /// # Errors
    /// There is no such server, or what is kept cannot be changed. What then is left of it is removed later.
    pub async fn remove(&self, name: &str) -> Result<(), KnownServerError> {
        let NamedServer { name: server, parameters } = self.find(name)?;
        let packages = PackageDirectory::of_workspace(&self.workspace);
        let change = ServerChange::Removal { server, packages, parameters: parameters.to_json() };
        let records = Arc::clone(&self.registry.records);
        let connector = self.connector.clone();
        let removing = tokio::task::spawn_blocking(move || records.remove(&change, &connector));
        Ok(removing.await.unwrap_or_else(|panic| Err(panic.into()))?)
    }

    /// The server that `target` names: a registered one, one that has asked for a login, or any URL.
    fn find(&self, target: &str) -> Result<NamedServer, KnownServerError> {
        let is_url = target.contains("://");
        let shown = without_user(target);
        let mut known = Vec::new();
        for name in self.registry.records.servers.names()? {
            let Some(stored) = self.registry.records.servers.get(&name)? else { continue };
            if name == target || is_url && stored.parameters.summary() == shown {
                return Ok(NamedServer { name, parameters: stored.parameters });
            }
            known.push(name);
        }
        for login in oauth::LoginStore::known(&self.state_directory)? {
            let Some(refused) = login.refused else { continue };
            let Ok(parameters) = ServerParameters::parse(&refused.parameters) else { continue };
            if refused.name == target || is_url && parameters.summary() == shown {
                return Ok(NamedServer { name: refused.name, parameters });
            }
            known.push(refused.name);
        }
        if !is_url {
            return Err(KnownServerError::Unknown { name: target.to_owned(), known });
        }
        let mut object = Map::from_iter([("url".to_owned(), json!(target))]);
        let parsed = ServerParameters::parse(&object).or_else(|error| {
            object.insert("type".to_owned(), json!("streamable_http"));
            ServerParameters::parse(&object).map_err(|_| error)
        });
        let parameters =
            parsed.map_err(|error| KnownServerError::Url { url: shown.clone(), why: describe(&error) })?;
        Ok(NamedServer { name: shown, parameters })
    }
}

impl LoginState {
    fn of(login: &KnownLogin) -> Self {
        let expires_at = login.expires_at.and_then(|seconds| i64::try_from(seconds).ok());
        let expires_at = expires_at.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
        Self {
            is_logged_in: login.is_logged_in,
            expires_at: expires_at.map(|time| time.to_rfc3339_opts(SecondsFormat::Secs, true)),
            is_renewed: login.is_renewed,
            issuer: login.issuer.clone(),
            scopes: login.scopes.clone(),
            is_asked_for: login.refused.is_some(),
        }
    }
}

impl std::fmt::Display for LoginState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.is_logged_in {
            return formatter.write_str("login needed");
        }
        formatter.write_str(if self.is_asked_for { "more scopes needed" } else { "logged in" })?;
        match (&self.expires_at, self.is_renewed) {
            (Some(time), true) => write!(formatter, ", token until {time}, then renewed"),
            (Some(time), false) => write!(formatter, " until {time}"),
            (None, _) => Ok(()),
        }
    }
}

/// The login to the server with these parameters.
fn login_of<'a>(parameters: &ServerParameters, logins: &'a [KnownLogin]) -> Option<&'a KnownLogin> {
    let ServerReach::Http(http) = &parameters.reach else { return None };
    logins.iter().find(|login| {
        let is_refused = |refused: &oauth::RefusedAccess| refused.parameters == parameters.to_json();
        login.is_of(&http.url) || login.refused.as_ref().is_some_and(is_refused)
    })
}

fn login_target(refused: &oauth::RefusedAccess) -> String {
    ServerParameters::parse(&refused.parameters).map(|parameters| parameters.summary()).unwrap_or_default()
}

fn failed(what: &'static str, target: &str, error: &LoginError) -> KnownServerError {
    KnownServerError::Login { what, server: format!("`{}`", without_user(target)), why: describe(error) }
}

fn unknown(name: &str, known: &[String]) -> String {
    let near = nearest(name, known.iter().map(String::as_str));
    match (near.as_slice(), known) {
        (_, []) => "no server is registered in this workspace\nhint: give its URL, or name the workspace with `--workspace`".to_owned(),
        ([], _) => format!("registered are {}", listed(known.iter().map(String::as_str))),
        (near, _) => format!("did you mean {}?", listed(near.iter().copied())),
    }
}
