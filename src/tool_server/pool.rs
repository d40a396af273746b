//! Live connections to registered MCP servers: opened at the first call, kept, opened again when dead.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::ServerLookup;
use crate::mcp::{self, CallError, Connection, Connector, ToolOutput};

/// Why a tool call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// No server is registered under the name.
    #[error(
        "no MCP server is registered as `{name}`\n\
         hint: register it with the tool `register_mcp_server`"
    )]
    NotRegistered { name: String },
    /// The registry could not be read.
    #[error("the registry of MCP servers cannot be read")]
    Lookup(#[source] io::Error),
    /// The server could not be reached.
    #[error("the MCP server `{name}` cannot be connected to")]
    Connect { name: String, source: mcp::Error },
    /// The connections were closed meanwhile.
    #[error("the connection to the MCP server `{name}` was closed by a reset")]
    Reset { name: String },
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A place for one server's connection. Its lock is held while connecting, so that calls that come
/// at once share one connection.
type Slot = Arc<AsyncMutex<Option<Arc<Connection>>>>;

/// The connections by server name.
pub(super) struct Pool {
    servers: Arc<dyn ServerLookup>,
    connector: Connector,
    slots: Mutex<HashMap<String, Slot>>,
    /// Cancelled when all connections are closed: ends the opening of others.
    generation: Mutex<CancellationToken>,
}

impl Pool {
    pub(super) fn new(servers: Arc<dyn ServerLookup>, connector: Connector) -> Self {
        Self { servers, connector, slots: Mutex::default(), generation: Mutex::default() }
    }

    /// Calls `tool` of the server registered as `server`.
    ///
    /// Dropping the future tells the server that the call is cancelled.
    pub(super) async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutput, Error> {
        let connection = self.connection(server).await?;
        match connection.call(tool, arguments.clone()).await {
            // A server that was stopped since the last call shows it only now.
            Err(CallError::Disconnected { may_have_run: false, .. }) => {
                let connection = self.connection(server).await?;
                Ok(connection.call(tool, arguments).await?)
            }
            called => Ok(called?),
        }
    }

    /// Takes over a connection that is open already.
    pub(super) async fn adopt(&self, server: &str, connection: Connection) {
        let old = self.slot(server).lock().await.replace(Arc::new(connection));
        if let Some(old) = old {
            old.close().await;
        }
    }

    /// Closes all connections, all at the same time.
    pub(super) async fn close_all(&self) {
        std::mem::take(&mut *self.generation.lock().unwrap_or_else(PoisonError::into_inner)).cancel();
        let slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        let closing = slots.into_values().map(|slot| async move {
            if let Some(connection) = slot.lock().await.take() {
                connection.close().await;
            }
        });
        futures::future::join_all(closing).await;
    }

    fn slot(&self, server: &str) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(server.to_owned()).or_default())
    }

    async fn connection(&self, server: &str) -> Result<Arc<Connection>, Error> {
        if let Some(slot) = self.existing_slot(server)
            && let Some(connection) = live(&*slot.lock().await)
        {
            return Ok(connection);
        }
        // Looked up before a slot is made, so that made-up names leave nothing behind.
        let Some(parameters) = self.servers.find(server).map_err(Error::Lookup)? else {
            return Err(Error::NotRegistered { name: server.to_owned() });
        };
        let slot = self.slot(server);
        let mut place = slot.lock().await;
        if let Some(connection) = live(&place) {
            return Ok(connection);
        }
        if let Some(dead) = place.take() {
            tracing::warn!(server, "the MCP server has died; connecting again");
            dead.close().await;
        }
        let generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connection = tokio::select! {
            connection = self.connector.connect(server, &parameters) => connection,
            () = generation.cancelled() => return Err(Error::Reset { name: server.to_owned() }),
        };
        let connection =
            Arc::new(connection.map_err(|source| Error::Connect { name: server.to_owned(), source })?);
        *place = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn existing_slot(&self, server: &str) -> Option<Slot> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).get(server).cloned()
    }
}

fn live(place: &Option<Arc<Connection>>) -> Option<Arc<Connection>> {
    place.as_ref().filter(|connection| connection.is_alive()).cloned()
}
