//! Live connections to registered MCP servers: opened at the first call, kept, opened again when dead.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{LOGINS, RegisteredServer, ServerLookup, log_in};
use crate::approval::{CallAttempt, CheckedCall, DenialReason, Gate, OpenCall, Permit};
use crate::connections::mcp_client::{
    self, AccessRefusal, CallError, Connection, Connector, ListKind, ReceivedResult,
};
use crate::ground::budget::members_weight;
use crate::ground::text::{describe, listed, nearest};
use crate::kernels::sandbox::ExposedPlaces;

/// The largest arguments that are copied for a retry, in bytes.
const COPIED_BYTES: usize = 1024 * 1024;

/// The time that a server may take to list the tools that it has changed.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a tool call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No server is registered under the name.
    #[error(
        "no MCP server is registered as `{name}`\n\
         hint: {hint}"
    )]
    NotRegistered { name: String, hint: String },
    /// The registry could not be read.
    #[error("the registry of MCP servers cannot be read")]
    Lookup(#[source] io::Error),
    /// The name refers to another server than the approved one.
    #[error("the MCP server `{name}` was registered anew while the call waited for approval; call again")]
    Changed { name: String },
    /// The server could not be reached.
    #[error("the MCP server `{name}` cannot be connected to")]
    Connect { name: String, source: Box<mcp_client::Error> },
    /// The connections were closed meanwhile.
    #[error("the connection to the MCP server `{name}` was closed by a reset")]
    Reset { name: String },
    /// It was permitted, and is denied now that it was to run.
    #[error(transparent)]
    Denied(#[from] DenialReason),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The call failed, and the server had no such tool when it was registered.
    #[error(
        "{error}\n\
         hint: {hint}"
    )]
    UnknownTool { error: Box<CallError>, hint: String },
}

impl Error {
    /// Whether the server itself has answered with an error.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::UnknownTool { .. } | Self::Call(CallError::Tool(_) | CallError::Protocol { .. }))
    }
}

/// A request to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolRequest {
    /// Call the tool.
    Tool,
    /// Read the resource whose URI is the argument `uri`.
    Resource,
    /// List what the server has.
    List(ListKind),
    /// Get the prompt whose name is the argument `name`, with the `arguments` beside it.
    Prompt,
}

impl PoolRequest {
    async fn make(self, call: CheckedCall, connection: &Connection) -> Result<ReceivedResult, CallError> {
        let (tool, mut arguments) = call.into_parts();
        match self {
            Self::Tool => connection.call(&tool, arguments).await,
            Self::Resource => {
                let uri = arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
                connection.read_resource(uri).await
            }
            Self::List(kind) => connection.list_for_code(kind).await,
            Self::Prompt => {
                let name = arguments.remove("name");
                let given = arguments.remove("arguments");
                let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
                let given = match given {
                    Some(Value::Object(given)) => given,
                    _ => Map::new(),
                };
                connection.get_prompt(name, given).await
            }
        }
    }
}

/// A permitted request to a server, as that was registered when permission was requested.
pub(crate) struct PermittedRequest<'a> {
    pub(crate) server: &'a Arc<RegisteredServer>,
    pub(crate) permit: &'a mut Permit,
    /// Is that of another decision once the permit does not hold any more.
    pub(crate) on_record: &'a mut OpenCall,
    pub(crate) kind: PoolRequest,
    pub(crate) gate: &'a Gate,
}

impl PermittedRequest<'_> {
    async fn begin(&mut self) -> Result<(), DenialReason> {
        self.gate.begin(self.permit, self.on_record, &self.gate.approver()).await
    }

    /// Makes the request, if it is permitted now too.
    async fn make(&mut self, attempt: CallAttempt, connection: &Connection) -> Result<ReceivedResult, Error> {
        let approver = self.gate.approver();
        let call = self.gate.attempt(self.permit, self.on_record, &approver, attempt).await?;
        Ok(self.kind.make(call, connection).await?)
    }
}

/// The slot of one server's connection.
#[derive(Default)]
struct Slot {
    /// Held while connecting, so that simultaneous calls share one connection.
    place: AsyncMutex<Option<OpenConnection>>,
    /// Cancelled when the connection is closed: stops connecting.
    closed: CancellationToken,
}

/// A connection, and its server.
#[derive(Clone)]
pub(crate) struct OpenConnection {
    server: Arc<RegisteredServer>,
    connection: Arc<Connection>,
}

impl OpenConnection {
    pub(crate) fn new(server: RegisteredServer, connection: Connection) -> Self {
        Self { server: Arc::new(server), connection: Arc::new(connection) }
    }

    /// Closes the connection, which no call uses.
    pub(crate) async fn close(self) {
        self.connection.close().await;
    }
}

/// The connections by server name.
pub(crate) struct ConnectionPool {
    servers: Arc<dyn ServerLookup>,
    connector: Connector,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

impl ConnectionPool {
    pub(crate) fn new(servers: Arc<dyn ServerLookup>, connector: Connector) -> Self {
        Self { servers, connector, slots: Mutex::default() }
    }

    /// Whether this command exists for starting servers.
    pub(crate) fn has_program(&self, command: &str) -> bool {
        self.connector.has_program(command)
    }

    /// Keeps servers away from these places too.
    pub(crate) fn keep_apart(&self, exposed: ExposedPlaces) {
        self.connector.keep_apart(exposed);
    }

    /// The lookup of names.
    pub(crate) fn servers(&self) -> Arc<dyn ServerLookup> {
        Arc::clone(&self.servers)
    }

    /// The server named `name`: that of its live connection, else the registered one.
    pub(crate) async fn resolve(&self, name: &str) -> Result<Arc<RegisteredServer>, Error> {
        if let Some(slot) = self.existing_slot(name)
            && let Some(open) = live(&*slot.place.lock().await)
        {
            return Ok(open.server);
        }
        self.look_up(name).map(Arc::new)
    }

    /// Sends a permitted request; retries once if the server certainly has not received it and it is not large. Each time the
    /// gate checks the permit when the connection is there.
    ///
    /// Dropping the future notifies the server that the request is cancelled.
    pub(crate) async fn request(&self, mut sending: PermittedRequest<'_>) -> Result<ReceivedResult, Error> {
        let context = sending.permit.context();
        context.around(self.send(&mut sending)).await
    }

    async fn send(&self, sending: &mut PermittedRequest<'_>) -> Result<ReceivedResult, Error> {
        sending.begin().await?;
        let server = sending.server;
        let kind = sending.kind;
        let gate = sending.gate;
        let name = sending.permit.action().server_name.clone();
        let mut connection = self.connection_of_user(&name, server, gate).await?;
        // The memory budget allows one more copy of small arguments only.
        let is_small = members_weight(&sending.permit.action().tool_args) <= COPIED_BYTES;
        if !is_small && !connection.is_reached().await {
            connection = self.connection(&name, server).await?;
        }
        let attempt = if is_small { CallAttempt::Repeatable } else { CallAttempt::Last };
        let answer = match sending.make(attempt, &connection).await {
            // The end of a server since the last call shows only now.
            Err(Error::Call(CallError::Disconnected { may_have_run: false, .. })) if is_small => {
                let connection = self.connection(&name, server).await?;
                sending.make(CallAttempt::Last, &connection).await
            }
            // A login that has ended, or gives too little, shows only now too.
            Err(Error::Call(CallError::Refused(refusal))) if is_small => {
                Box::pin(self.repeated(sending, &name, refusal)).await
            }
            answer => answer,
        };
        if let Err(Error::Call(CallError::Refused(refusal))) = &answer {
            self.connector.note(&name, &server.parameters, refusal).await;
        }
        answer.map_err(|error| match (error, kind) {
            (Error::Call(error @ (CallError::Tool(_) | CallError::Protocol { .. })), PoolRequest::Tool) => {
                match unknown_tool(&name, &sending.permit.action().tool_name, server) {
                    Some(hint) => Error::UnknownTool { error: Box::new(error), hint },
                    None => error.into(),
                }
            }
            (error, _) => error,
        })
    }

    /// Makes a refused request again, after each login of the user.
    async fn repeated(
        &self,
        sending: &mut PermittedRequest<'_>,
        name: &str,
        mut refusal: AccessRefusal,
    ) -> Result<ReceivedResult, Error> {
        for _ in 0..LOGINS {
            let asked = refusal.scopes();
            self.log_in(name, sending.server, sending.gate, refusal).await.map_err(CallError::Refused)?;
            let mut again = self.make_once(sending, name).await;
            // A server may forget a session with the login that it was begun with.
            if let Err(Error::Call(CallError::Disconnected { may_have_run: false, .. })) = &again {
                again = self.make_once(sending, name).await;
            }
            match again {
                // The same demand once more: it cannot be met.
                Err(Error::Call(CallError::Refused(next))) if next.scopes() != asked => refusal = next,
                again => return again,
            }
        }
        Err(CallError::Refused(refusal).into())
    }

    /// Makes a request on the living connection, or on a new one.
    async fn make_once(
        &self,
        sending: &mut PermittedRequest<'_>,
        name: &str,
    ) -> Result<ReceivedResult, Error> {
        match self.connection(name, sending.server).await {
            Ok(connection) => sending.make(CallAttempt::Repeatable, &connection).await,
            Err(error) => Err(CallError::Unusable { reason: describe(&error) }.into()),
        }
    }

    /// As [`connection`](Self::connection); a user logs in if the server asks for it.
    async fn connection_of_user(
        &self,
        name: &str,
        server: &Arc<RegisteredServer>,
        gate: &Gate,
    ) -> Result<Arc<Connection>, Error> {
        let connect_error = |refusal| {
            let source = Box::new(mcp_client::Error::Unauthorized { refusal });
            Error::Connect { name: name.to_owned(), source }
        };
        match self.connection(name, server).await {
            Err(Error::Connect { source, name: failed }) => match *source {
                mcp_client::Error::Unauthorized { refusal } => {
                    Box::pin(self.log_in(name, server, gate, refusal)).await.map_err(connect_error)?;
                    self.connection(name, server).await
                }
                source => Err(Error::Connect { source: Box::new(source), name: failed }),
            },
            connected => connected,
        }
    }

    /// Has the user of the current cell log in to the server that has answered with `refusal`.
    async fn log_in(
        &self,
        name: &str,
        server: &RegisteredServer,
        gate: &Gate,
        refusal: AccessRefusal,
    ) -> Result<(), AccessRefusal> {
        log_in(&self.connector, gate, &gate.approver(), name, &server.parameters, refusal).await
    }

    /// The links of logins that no answer has had yet, as notes for the author of the code.
    pub(crate) fn take_offers(&self) -> Vec<String> {
        self.connector.take_offers()
    }

    /// The changes of the tools of the servers that announce them, as notes for the author of the code.
    pub(crate) async fn changes(&self) -> Vec<String> {
        let slots: Vec<_> = {
            let slots = self.slots.lock();
            slots.iter().map(|(name, slot)| (name.clone(), Arc::clone(slot))).collect()
        };
        let notes = slots.iter().map(|(name, slot)| self.changes_of(name, slot));
        futures::future::join_all(notes).await.into_iter().flatten().collect()
    }

    async fn changes_of(&self, name: &str, slot: &Slot) -> Option<String> {
        let open = slot.place.try_lock().ok().and_then(|place| live(&place))?;
        if !open.connection.has_changed() {
            return None;
        }
        let Ok(Ok(tools)) = timeout(CHANGES_TIMEOUT, open.connection.list_tools()).await else {
            // Otherwise every cell might wait for it.
            open.connection.ignore_changes();
            return None;
        };
        let servers = Arc::clone(&self.servers);
        let server = name.to_owned();
        let changes = tokio::task::spawn_blocking(move || servers.changes(&server, tools)).await;
        let changes = changes.unwrap_or_default().join(". ");
        (!changes.is_empty()).then(|| {
            format!(
                "The tools of the MCP server `{name}` have changed since it was registered ({changes}). Register it again \
                 to call them as they are now."
            )
        })
    }

    /// Takes over a connection that is open already.
    pub(crate) async fn adopt(&self, name: &str, open: OpenConnection) {
        let old = self.slot(name).place.lock().await.replace(open);
        if let Some(old) = old {
            old.connection.close().await;
        }
    }

    /// Closes the connection to `name`, which refers to another server now.
    pub(crate) async fn close(&self, name: &str) {
        let slot = self.slots.lock().remove(name);
        if let Some(slot) = slot {
            slot.close().await;
        }
        self.connector.end_starts_of(name);
    }

    /// Whether `name` has a live connection. One that is just being opened does not count.
    pub(crate) fn is_connected(&self, name: &str) -> bool {
        self.existing_slot(name)
            .is_some_and(|slot| slot.place.try_lock().is_ok_and(|place| live(&place).is_some()))
    }

    /// Closes all connections for good, and waits until no server is left, those included that were still starting.
    pub(crate) async fn stop(&self) {
        self.close_all().await;
        self.connector.starts_ended().await;
    }

    /// Closes all connections, all at the same time. Servers that were still starting end in the background.
    pub(crate) async fn close_all(&self) {
        let slots = std::mem::take(&mut *self.slots.lock());
        let closing = slots.into_values().map(|slot| async move { slot.close().await });
        futures::future::join_all(closing).await;
        self.connector.end_starts();
    }

    fn slot(&self, server: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        Arc::clone(slots.entry(server.to_owned()).or_default())
    }

    async fn connection(&self, name: &str, server: &Arc<RegisteredServer>) -> Result<Arc<Connection>, Error> {
        if let Some(slot) = self.existing_slot(name)
            && let Some(open) = live(&*slot.place.lock().await)
        {
            return the_same(name, &open.server, server).map(|()| open.connection);
        }
        // Looked up before a slot is made, so that made-up names leave nothing behind.
        the_same(name, &self.look_up(name)?, server)?;
        let slot = self.slot(name);
        let mut place = slot.place.lock().await;
        if let Some(open) = live(&place) {
            return the_same(name, &open.server, server).map(|()| open.connection);
        }
        // Looked up again: from here on a change of the registration waits for our lock and finds the
        // connection.
        the_same(name, &self.look_up(name)?, server)?;
        if let Some(dead) = place.take() {
            tracing::warn!(server = name, "the MCP server has died; connecting again");
            dead.connection.give_up().await;
        }
        let connection = tokio::select! {
            biased;
            () = slot.closed.cancelled() => {
                the_same(name, &self.look_up(name)?, server)?;
                return Err(Error::Reset { name: name.to_owned() });
            }
            connection = self.connector.connect(name, &server.parameters) => connection,
        };
        let connection = Arc::new(
            connection
                .map_err(|source| Error::Connect { name: name.to_owned(), source: Box::new(source) })?,
        );
        *place = Some(OpenConnection { server: Arc::clone(server), connection: Arc::clone(&connection) });
        Ok(connection)
    }

    fn look_up(&self, name: &str) -> Result<RegisteredServer, Error> {
        let found = self.servers.find(name).map_err(Error::Lookup)?;
        found.ok_or_else(|| {
            let known = self.servers.names().unwrap_or_default();
            Error::NotRegistered {
                name: name.to_owned(),
                hint: unknown_server(name, &known, self.servers.how_to_register()),
            }
        })
    }

    fn existing_slot(&self, server: &str) -> Option<Arc<Slot>> {
        self.slots.lock().get(server).cloned()
    }
}

impl Slot {
    /// Closes the slot for good: later calls get a new slot.
    async fn close(&self) {
        self.closed.cancel();
        if let Some(open) = self.place.lock().await.take() {
            open.connection.close().await;
        }
    }
}

/// The hint for a call of a server that is not registered.
fn unknown_server(name: &str, known: &[String], how_to_register: &str) -> String {
    let near = nearest(name, known.iter().map(String::as_str));
    let all = listed(known.iter().map(String::as_str));
    match (near.as_slice(), known) {
        (_, []) => how_to_register.to_owned(),
        ([], _) => format!("{how_to_register}; registered are {all}"),
        (near, _) => format!("did you mean {}? Registered are {all}", listed(near.iter().copied())),
    }
}

/// The hint for a call of a tool that `server` did not have when it was registered, if its tools are known.
fn unknown_tool(name: &str, tool: &str, server: &RegisteredServer) -> Option<String> {
    if server.annotations.is_empty() || server.annotations.contains_key(tool) {
        return None;
    }
    let known = || server.annotations.keys().map(String::as_str);
    let near = nearest(tool, known());
    Some(if near.is_empty() {
        format!("`{name}` was registered with the tools {}", listed(known()))
    } else {
        format!("`{name}` was registered without it; did you mean {}?", listed(near))
    })
}

fn live(place: &Option<OpenConnection>) -> Option<OpenConnection> {
    place.as_ref().filter(|open| open.connection.is_alive()).cloned()
}

/// Checks that the server is still the approved one.
fn the_same(name: &str, now: &RegisteredServer, approved: &RegisteredServer) -> Result<(), Error> {
    if now.parameters == approved.parameters { Ok(()) } else { Err(Error::Changed { name: name.to_owned() }) }
}
