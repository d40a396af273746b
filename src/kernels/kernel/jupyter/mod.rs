//! A client of the servers that run kernels: Jupyter Server, Kernel Gateway, Enterprise Gateway.
//!
//! Kernels are asked for by the [REST
//! API](https://jupyter-server.readthedocs.io/en/latest/developers/rest-api.html) and have a WebSocket each
//! for messages, which are not parsed here.
//!
//! Reasons: `docs/decisions/jupyter.md`.

mod access;
mod access_error;
mod dial;
mod error;
mod front_token;
mod headers;
mod hub;
mod quick_ack;
mod rest;
mod tls;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _, protocol::WebSocketConfig};
use url::Url;

use self::dial::JupyterDialer;
use self::hub::HubClient;

pub(crate) use self::access::JupyterAccess;
pub(crate) use self::access_error::AccessError;
pub(crate) use self::dial::DuplexStream;
pub(crate) use self::error::Error;
pub(crate) use self::front_token::FrontHubToken;
pub(crate) use self::headers::{JupyterHeaders, header_name};
pub(crate) use self::hub::{HubError, HubOptions, HubServer, HubServerName, KernelServer};
pub(crate) use self::rest::KernelId;

/// A server that runs kernels.
#[derive(Debug)]
pub(crate) struct JupyterServer {
    access: JupyterAccess,
    http: reqwest::Client,
    dialer: JupyterDialer,
    /// Whether it is known to speak JSON only: Jupyter Server before 2.0, and Enterprise Gateway.
    is_json_only: AtomicBool,
    /// The kernels that it has been asked to end, and may still have.
    ending: Mutex<HashSet<KernelId>>,
    /// The Hub that has started it.
    hub: Option<Arc<HubClient>>,
}

/// A connection to the channels of a kernel.
pub(crate) struct JupyterChannels {
    pub(crate) socket: WebSocketStream<Box<dyn DuplexStream>>,
    /// Whether messages are binary, by the subprotocol that was asked for. They are JSON otherwise.
    pub(crate) is_binary: bool,
}

/// A WebSocket that is to be opened.
struct WantedSocket {
    url: Url,
    subprotocol: Option<&'static str>,
    authorization: Option<HeaderValue>,
    /// The words for what a refusal keeps us from.
    purpose: &'static str,
}

impl JupyterServer {
    /// A client that has sent no request yet.
    pub(crate) fn new(access: JupyterAccess) -> Result<Self, AccessError> {
        let tls = tls::config(access.roots())?;
        let is_loopback = access.is_loopback();
        let http =
            rest::client(&tls, is_loopback).map_err(|error| AccessError::HttpClient(error.to_string()))?;
        let dialer = JupyterDialer::new(Arc::new(tls), is_loopback);
        Ok(Self {
            access,
            http,
            dialer,
            is_json_only: AtomicBool::new(false),
            ending: Mutex::default(),
            hub: None,
        })
    }

    /// A client of a server that a Hub starts and stops.
    fn behind(access: JupyterAccess, hub: Arc<HubClient>) -> Result<Self, AccessError> {
        Ok(Self { hub: Some(hub), ..Self::new(access)? })
    }

    /// Its name for people.
    pub(crate) fn name(&self) -> &str {
        self.access.name()
    }

    /// Opens a connection to a kernel's channels. Messages from while a connection of the same `session` was
    /// broken come first, if the server keeps them.
    pub(crate) async fn channels(
        &self,
        kernel: &KernelId,
        session: &str,
        subprotocol: &'static str,
        config: WebSocketConfig,
    ) -> Result<JupyterChannels, Error> {
        if !self.is_json_only.load(Ordering::Relaxed) {
            match self.open(kernel, session, Some(subprotocol), config).await {
                Ok(socket) => return Ok(JupyterChannels { socket, is_binary: true }),
                Err(Error::NoSubprotocol) => self.is_json_only.store(true, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
        let socket = self.open(kernel, session, None, config).await?;
        Ok(JupyterChannels { socket, is_binary: false })
    }

    async fn open(
        &self,
        kernel: &KernelId,
        session: &str,
        subprotocol: Option<&'static str>,
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<Box<dyn DuplexStream>>, Error> {
        let shown = self.authorization().await?;
        let socket = self.try_to_open(kernel, session, subprotocol, config, shown.clone()).await;
        match (socket, shown) {
            (Err(error), Some(refused)) if error.is_of_credentials() => {
                let another = self.authorization_after(&refused).await?;
                self.try_to_open(kernel, session, subprotocol, config, another).await
            }
            (socket, _) => socket,
        }
    }

    async fn try_to_open(
        &self,
        kernel: &KernelId,
        session: &str,
        subprotocol: Option<&'static str>,
        config: WebSocketConfig,
        authorization: Option<HeaderValue>,
    ) -> Result<WebSocketStream<Box<dyn DuplexStream>>, Error> {
        let mut url = self.access.url(&["api", "kernels", kernel.as_str(), "channels"]);
        url.query_pairs_mut().append_pair("session_id", session);
        let purpose = "open the channels of a kernel";
        self.open_socket(WantedSocket { url, subprotocol, authorization, purpose }, config).await
    }

    /// Opens a WebSocket to the server itself, where it is no Jupyter server.
    pub(crate) async fn root_socket(
        &self,
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<Box<dyn DuplexStream>>, Error> {
        let url = self.access.url(&[]);
        let purpose = "open a connection to the pod";
        self.open_socket(WantedSocket { url, subprotocol: None, authorization: None, purpose }, config).await
    }

    async fn open_socket(
        &self,
        wanted: WantedSocket,
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<Box<dyn DuplexStream>>, Error> {
        let WantedSocket { mut url, subprotocol, authorization, purpose } = wanted;
        let stream = self.dialer.dial(&url).await.map_err(|reason| self.unreachable(reason))?;
        let is_secure = url.scheme() == "https";
        // Both are special schemes of the URL standard, so one can replace the other.
        url.set_scheme(if is_secure { "wss" } else { "ws" }).ok();
        let mut request =
            url.as_str().into_client_request().map_err(|error| self.unreachable(error.to_string()))?;
        self.access.headers().put_into(request.headers_mut());
        request.headers_mut().extend(authorization.map(|value| (AUTHORIZATION, value)));
        if let Some(subprotocol) = subprotocol {
            request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
        }
        let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
        opened.map(|(socket, _)| socket).map_err(|error| match error {
            tungstenite::Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
                SubProtocolError::NoSubProtocol,
            )) => Error::NoSubprotocol,
            tungstenite::Error::Http(response) => {
                let body = response.body().as_deref().unwrap_or_default();
                self.refusal(purpose, response.status(), body)
            }
            error => self.unreachable(error.to_string()),
        })
    }

    /// The header with a token that the server of a team gives; `None` if the headers of each request have one.
    async fn authorization(&self) -> Result<Option<HeaderValue>, Error> {
        let Some(token) = self.access.token() else { return Ok(None) };
        token.header().await.map(Some).map_err(|reason| self.without_token(reason))
    }

    /// The same with another token than one that was refused.
    async fn authorization_after(&self, refused: &HeaderValue) -> Result<Option<HeaderValue>, Error> {
        let Some(token) = self.access.token() else { return Ok(None) };
        token.after(refused).await.map(Some).map_err(|reason| self.without_token(reason))
    }

    fn without_token(&self, reason: String) -> Error {
        Error::NoToken { server: self.name().to_owned(), reason }
    }

    fn unreachable(&self, reason: String) -> Error {
        Error::Unreachable { server: self.name().to_owned(), reason }
    }
}
