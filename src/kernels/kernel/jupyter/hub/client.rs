//! The [REST API](https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html) of a JupyterHub.

use std::collections::BTreeMap;

use http::StatusCode;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::super::{AccessError, Error, JupyterAccess, JupyterServer};
use super::HubError;

/// The words of a Hub for a server that does not run. Older ones say them with the status 503.
const NO_SERVER: &str = "JupyterHub server no longer running";

/// The options for the start of a server, as the Hub's spawner takes them.
pub(crate) type HubOptions = serde_json::Map<String, Value>;

/// The choice of one server among those of a Hub.
#[derive(Debug, Clone, Default)]
pub(crate) struct HubServerName {
    /// The named server; `None` for the user's default one.
    pub(crate) server: Option<String>,
    /// The user, if it is another one than the token's.
    pub(crate) user: Option<String>,
    /// The options for its start; empty for those of the last start.
    pub(crate) options: HubOptions,
}

/// A client of a Hub, for one server of a user.
#[derive(Debug)]
pub(in super::super) struct HubClient {
    /// The transport, with the Hub's URL as its base.
    pub(super) http: JupyterServer,
    name: HubServerName,
    /// The user's name, once the Hub has said it.
    user: OnceCell<String>,
}

/// The state of a server.
pub(super) enum HubServerState {
    /// At this address.
    Ready(Box<JupyterAccess>),
    Spawning,
    Stopping,
    Stopped,
    /// The token may not read it.
    Unknown,
}

/// The Hub's answer to a request to start a server.
pub(super) enum HubStart {
    Asked,
    /// It has failed at once.
    Failed(String),
    /// It runs already, or is starting or stopping.
    Busy,
}

#[derive(Deserialize)]
struct TokenOwner {
    name: String,
    kind: String,
}

#[derive(Deserialize)]
struct UserModel {
    servers: Option<BTreeMap<String, ServerModel>>,
}

#[derive(Deserialize)]
struct ServerModel {
    #[serde(default)]
    ready: bool,
    pending: Option<String>,
    url: Option<String>,
}

impl HubClient {
    pub(super) fn new(access: JupyterAccess, name: HubServerName) -> Result<Self, AccessError> {
        Ok(Self { http: JupyterServer::new(access)?, name, user: OnceCell::new() })
    }

    pub(super) fn name(&self) -> &str {
        self.http.name()
    }

    fn hub(&self) -> String {
        self.name().to_owned()
    }

    /// The name of the user whose server it is.
    pub(super) async fn user(&self) -> Result<String, HubError> {
        self.user.get_or_try_init(|| self.ask_user()).await.cloned()
    }

    async fn ask_user(&self) -> Result<String, HubError> {
        let (status, body) = self.send(Method::GET, &["hub", "api", "user"]).await?;
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(HubError::Token { hub: self.hub(), status });
        }
        let owner: Option<TokenOwner> = if status.is_success() { parse(&body) } else { None };
        let TokenOwner { name, kind } = owner.ok_or_else(|| self.not_hub(status))?;
        match &self.name.user {
            Some(user) => Ok(user.clone()),
            None if kind == "service" => {
                Err(HubError::Service { hub: self.hub(), service: self.http.shown(&name) })
            }
            None => Ok(name),
        }
    }

    /// The state of the server.
    pub(super) async fn state(&self, user: &str) -> Result<HubServerState, HubError> {
        let (status, body) = self.send(Method::GET, &["hub", "api", "users", user]).await?;
        match status {
            StatusCode::FORBIDDEN => return Ok(HubServerState::Unknown),
            StatusCode::NOT_FOUND if parse::<Value>(&body).is_some() => {
                return Err(HubError::NoUser { hub: self.hub(), user: self.http.shown(user) });
            }
            // A proxy whose Hub restarts.
            status if status.is_server_error() => {
                return Err(HubError::Unreachable {
                    hub: self.hub(),
                    reason: format!("it answers {status}"),
                });
            }
            _ => {}
        }
        let model: Option<UserModel> = if status.is_success() { parse(&body) } else { None };
        let model = model.ok_or_else(|| self.not_hub(status))?;
        let Some(servers) = model.servers else { return Ok(HubServerState::Unknown) };
        let Some(server) = servers.get(self.name.server.as_deref().unwrap_or_default()) else {
            return Ok(HubServerState::Stopped);
        };
        Ok(match server.pending.as_deref() {
            Some("spawn" | "check") => HubServerState::Spawning,
            Some(_) => HubServerState::Stopping,
            None if server.ready => {
                HubServerState::Ready(Box::new(self.access_at(server.url.as_deref(), user)?))
            }
            None => HubServerState::Stopped,
        })
    }

    /// The address that the Hub names, if our credentials may go there.
    fn access_at(&self, url: Option<&str>, user: &str) -> Result<JupyterAccess, HubError> {
        let Some(url) = url else { return Ok(self.access_of_server(user)) };
        let elsewhere = || HubError::Elsewhere { hub: self.hub(), url: self.http.shown(url) };
        self.http.access.at_hub(url).ok_or_else(elsewhere)
    }

    /// Whether the Hub says that the server does not run.
    pub(in super::super) async fn is_stopped(&self) -> bool {
        let Ok(user) = self.user().await else { return false };
        match self.state(&user).await {
            Ok(HubServerState::Stopped) => true,
            // It still says so to requests for the server, to which the proxy leads us if there is none.
            Ok(HubServerState::Unknown) => self.has_no_route(&user).await,
            _ => false,
        }
    }

    async fn has_no_route(&self, user: &str) -> bool {
        let path = ["hub", "user", user].into_iter().chain(self.name.server.as_deref());
        let path: Vec<_> = path.chain(["api"]).collect();
        let answer = self.send(Method::GET, &path).await;
        answer.is_ok_and(|(status, body)| {
            let says_so = self.http.message(&body).starts_with(NO_SERVER);
            status == StatusCode::FAILED_DEPENDENCY || status == StatusCode::SERVICE_UNAVAILABLE && says_so
        })
    }

    /// Has the Hub start the server.
    pub(super) async fn start(&self, user: &str) -> Result<HubStart, HubError> {
        let what = "start the Jupyter server";
        let request = self.http.request(Method::POST, &self.server_path(user));
        let options = &self.name.options;
        // The whole body is the options, for Hubs before 6 too.
        let request = if options.is_empty() { request } else { request.body(json!(options).to_string()) };
        let (status, body) = self.answer(request).await?;
        let message = self.http.message(&body);
        if status.is_success() {
            return Ok(HubStart::Asked);
        }
        let is_busy = message.contains("is already running") || message.contains("is pending");
        let hub = self.hub();
        match status {
            StatusCode::BAD_REQUEST if is_busy => Ok(HubStart::Busy),
            StatusCode::FORBIDDEN => {
                Err(HubError::Scope { what, hub, status, message, scope: "servers!user" })
            }
            status if status.is_server_error() && !message.is_empty() => Ok(HubStart::Failed(message)),
            status if message.is_empty() => Err(self.not_hub(status)),
            status => Err(HubError::Refused { what, hub, status, message }),
        }
    }

    /// Has the Hub stop the server. One that does not run is no error.
    pub(super) async fn stop(&self, user: &str) -> Result<(), HubError> {
        let (status, body) = self.send(Method::DELETE, &self.server_path(user)).await?;
        if status.is_success() || status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        let message = self.http.message(&body);
        Err(HubError::Refused { what: "stop the Jupyter server", hub: self.hub(), status, message })
    }

    pub(super) fn server_path<'a>(&'a self, user: &'a str) -> Vec<&'a str> {
        let mut path = vec!["hub", "api", "users", user];
        match &self.name.server {
            Some(server) => path.extend(["servers", server]),
            None => path.push("server"),
        }
        path
    }

    /// The usual address of the server, with our credentials.
    pub(super) fn access_of_server(&self, user: &str) -> JupyterAccess {
        let path = ["user", user].into_iter().chain(self.name.server.as_deref());
        self.http.access.below(&path.collect::<Vec<_>>())
    }

    async fn send(&self, method: Method, path: &[&str]) -> Result<(StatusCode, Vec<u8>), HubError> {
        self.answer(self.http.request(method, path)).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<(StatusCode, Vec<u8>), HubError> {
        self.http.send(request).await.map_err(|error| match error {
            Error::Unreachable { reason, .. } => HubError::Unreachable { hub: self.hub(), reason },
            error => HubError::Server(error),
        })
    }

    fn not_hub(&self, status: StatusCode) -> HubError {
        let status = match status {
            status if status.is_success() => format!("{status} and something else than it should"),
            status if status.is_redirection() => format!("{status}, to lead us elsewhere"),
            status => status.to_string(),
        };
        HubError::NotHub { hub: self.hub(), status }
    }
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}
