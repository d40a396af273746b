//! From parameters to a live connection.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{RunningService, serve_client_with_ct};
use rmcp::transport::IntoTransport;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::connection::Connection;
use super::failure::Failure;
use super::filled::{FilledHttp, FilledStdio};
use super::sse::SseTransport;
use super::stdio::{LastWords, Process};
use super::{Error, HttpParameters, HttpTransport, ServerParameters, StdioParameters, http};
use crate::env::{Secrets, Variables};

/// How long a server may take from its start to the answer to `initialize`.
///
/// Servers that `npx` or `uvx` have to download first take longest.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server that exits during the handshake has for its last messages.
const EXIT_GRACE: Duration = Duration::from_secs(1);
/// What servers are asked when they are connected to.
const METHOD: &str = "initialize";

/// Connects to MCP servers on behalf of one workspace.
#[derive(Clone)]
pub(crate) struct Connector {
    variables: Arc<Variables>,
    workspace: PathBuf,
    connect_timeout: Duration,
    /// Made on first use: reading the machine's certificates takes some milliseconds.
    http: Arc<OnceLock<reqwest::Client>>,
}

impl Connector {
    /// A connector that fills placeholders from `variables` and starts servers in `workspace`.
    pub(crate) fn new(variables: Arc<Variables>, workspace: PathBuf) -> Self {
        Self { variables, workspace, connect_timeout: CONNECT_TIMEOUT, http: Arc::default() }
    }

    /// Sets how long a server may take to answer `initialize`. Default: 30 s.
    pub(crate) fn with_connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Connects to the server that is registered as `name`. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error`] when a placeholder cannot be filled or the server cannot be started or reached, ends,
    /// does not answer in time, or answers with an error.
    pub(crate) async fn connect(
        &self,
        name: &str,
        parameters: &ServerParameters,
    ) -> Result<Connection, Error> {
        let connection = match parameters {
            ServerParameters::Stdio(parameters) => self.connect_stdio(name, parameters).await,
            ServerParameters::Http(parameters) => self.connect_http(name, parameters).await,
        }?;
        let server = connection.identity();
        tracing::info!(name, server = server.name, version = server.version, "connected to an MCP server");
        Ok(connection)
    }

    async fn connect_stdio(&self, name: &str, parameters: &StdioParameters) -> Result<Connection, Error> {
        let (filled, secrets) = FilledStdio::fill(parameters, &self.variables)?;
        let (mut process, pipes) =
            Process::start(name, &filled, &self.workspace, &self.variables, secrets.clone())?;
        let stop = CancellationToken::new();
        let mut handshake = Box::pin(self.handshake(pipes, &stop));
        let result = tokio::select! {
            result = &mut handshake => result,
            () = process.exited() => {
                // As in the keeper: what it started may hold its stdout.
                process.kill();
                timeout(EXIT_GRACE, &mut handshake).await.unwrap_or(Err(Unready::Failed(Failure::Closed)))
            }
        };
        drop(handshake);
        match result {
            Ok(service) => Ok(Connection::new(name, service, Some(process), secrets, stop)),
            Err(unready) => {
                let last_words = process.end().await;
                let last_words =
                    if matches!(unready, Unready::Silent) { last_words.without_status() } else { last_words };
                Err(self.error(unready, &secrets, last_words))
            }
        }
    }

    async fn connect_http(&self, name: &str, parameters: &HttpParameters) -> Result<Connection, Error> {
        let (filled, secrets) = FilledHttp::fill(parameters, &self.variables)?;
        let client = self.http_client()?;
        let stop = CancellationToken::new();
        let result = match filled.transport {
            HttpTransport::Streamable => self.handshake(http::transport(client, &filled), &stop).await,
            HttpTransport::Sse => {
                match timeout(self.connect_timeout, SseTransport::connect(client, &filled)).await {
                    Ok(Ok(transport)) => self.handshake(transport, &stop).await,
                    Ok(Err(failure)) => Err(Unready::Failed((&failure).into())),
                    Err(_) => Err(Unready::Silent),
                }
            }
        };
        match result {
            Ok(service) => Ok(Connection::new(name, service, None, secrets, stop)),
            Err(unready) => Err(self.error(unready, &secrets, LastWords::default())),
        }
    }

    /// `initialize` and what belongs to it, within the connect timeout.
    async fn handshake<T, E, A>(
        &self,
        transport: T,
        stop: &CancellationToken,
    ) -> Result<RunningService<RoleClient, Client>, Unready>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        // rmcp cancels its token whenever it ends; the keeper must see who wanted the end.
        let token = stop.child_token();
        match timeout(self.connect_timeout, serve_client_with_ct(Client, transport, token)).await {
            Ok(Ok(service)) => Ok(service),
            Ok(Err(error)) => Err(Unready::Failed(error.into())),
            Err(_) => Err(Unready::Silent),
        }
    }

    fn http_client(&self) -> Result<reqwest::Client, Error> {
        if let Some(client) = self.http.get() {
            return Ok(client.clone());
        }
        let client = http::client()?;
        Ok(self.http.get_or_init(|| client).clone())
    }

    fn error(&self, unready: Unready, secrets: &Secrets, last_words: LastWords) -> Error {
        let method = METHOD;
        match unready {
            Unready::Silent => Error::Silent { method, after: self.connect_timeout, last_words },
            Unready::Failed(Failure::Closed) => Error::Ended { method, last_words },
            Unready::Failed(Failure::Answered { code, message }) => {
                Error::Refused { method, code, message: secrets.clean(&message) }
            }
            Unready::Failed(
                Failure::NotDelivered { reason } | Failure::Broken { reason } | Failure::Unusable { reason },
            ) => Error::Unusable { method, reason: secrets.clean(&reason), last_words },
        }
    }
}

/// Why a server is not ready for calls.
enum Unready {
    Silent,
    Failed(Failure),
}
