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
use tokio_tungstenite::tungstenite::http::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _, protocol::WebSocketConfig};
use url::Url;

use self::dial::JupyterDialer;
use self::hub::HubClient;

pub(crate) use self::access::JupyterAccess;
pub(crate) use self::access_error::AccessError;
pub(crate) use self::dial::DuplexStream;
pub(crate) use self::error::Error;
pub(crate) use self::headers::{JupyterHeaders, header_name};
pub(crate) use self::hub::{HubError, HubServer, HubServerName, KernelServer};
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
        let mut url = self.access.url(&["api", "kernels", kernel.as_str(), "channels"]);
        url.query_pairs_mut().append_pair("session_id", session);
        self.open_socket(url, subprotocol, config, "open the channels of a kernel").await
    }

    /// Opens a WebSocket to the server itself, where it is no Jupyter server.
    pub(crate) async fn root_socket(
        &self,
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<Box<dyn DuplexStream>>, Error> {
        self.open_socket(self.access.url(&[]), None, config, "open a connection to the pod").await
    }

    async fn open_socket(
        &self,
        mut url: Url,
        subprotocol: Option<&'static str>,
        config: WebSocketConfig,
        purpose: &'static str,
    ) -> Result<WebSocketStream<Box<dyn DuplexStream>>, Error> {
        let stream = self.dialer.dial(&url).await.map_err(|reason| self.unreachable(reason))?;
        let is_secure = url.scheme() == "https";
        // Both are special schemes of the URL standard, so one can replace the other.
        url.set_scheme(if is_secure { "wss" } else { "ws" }).ok();
        let mut request =
            url.as_str().into_client_request().map_err(|error| self.unreachable(error.to_string()))?;
        self.access.headers().put_into(request.headers_mut());
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

    fn unreachable(&self, reason: String) -> Error {
        Error::Unreachable { server: self.name().to_owned(), reason }
    }
}
