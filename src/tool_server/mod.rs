//! The HTTP server that code in the kernel sends its tool calls to.
//!
//! The kernel names a registered server, a tool and arguments; everything else (what the name stands
//! for, its secrets, whether the call may run) is decided on this side. The listener is on a loopback
//! address, and each kernel has a token of its own.

mod pool;
mod routes;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::serve::ListenerExt as _;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::pool::Pool;
use crate::approval::{Gate, Target, ToolAnnotations};
use crate::audit::Audit;
use crate::mcp::{Connection, Connector, ServerParameters};

/// The Python package that generated code imports.
const RUNTIME: &str = include_str!("ipybox_runtime.py");

/// Why the tool server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host is not this machine's loopback interface.
    #[error(
        "listen on `{host}`: the tool server is for this machine only\n\
         hint: use `localhost`, `127.0.0.1` or `::1`"
    )]
    NotLoopback {
        /// The host that was asked for.
        host: String,
    },
    /// The host has no address.
    #[error("find the address of the tool server host `{host}`")]
    Resolve {
        /// The host that was asked for.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The port is taken, say.
    #[error("listen on {address} for tool calls")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Finds what a registered server's name stands for.
pub(crate) trait ServerLookup: Send + Sync {
    /// What is registered as `name`; `None` if nothing is.
    fn find(&self, name: &str) -> io::Result<Option<Registered>>;
}

/// What a server's name stands for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Registered {
    /// How to reach it.
    pub(crate) parameters: ServerParameters,
    /// What it said of its tools when it was registered, by their names.
    pub(crate) annotations: BTreeMap<String, ToolAnnotations>,
}

impl Registered {
    /// A SHA-256 of how to reach it, in hexadecimal digits; placeholders are not filled.
    fn fingerprint(&self) -> String {
        use sha2::Digest as _;
        format!("{:x}", sha2::Sha256::digest(Value::Object(self.parameters.to_json()).to_string()))
    }

    /// What a user should know of it when asked for approval.
    fn target(&self) -> Target {
        match &self.parameters {
            ServerParameters::Stdio(_) => Target::Command(self.parameters.summary()),
            ServerParameters::Http(_) => Target::Url(self.parameters.summary()),
        }
    }
}

/// A running tool server.
pub(crate) struct ToolServer {
    address: SocketAddr,
    token: Arc<RwLock<Token>>,
    pool: Arc<Pool>,
    gate: Arc<Gate>,
    audit: Audit,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The secret that a kernel shows with each call.
pub(crate) struct Token(String);

impl Token {
    fn new() -> Self {
        Self(format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()))
    }

    /// Compares without telling by its duration how much was right.
    fn matches(&self, shown: &[u8]) -> bool {
        use subtle::ConstantTimeEq as _;
        self.0.as_bytes().ct_eq(shown).into()
    }
}

impl ToolServer {
    /// Starts to listen on `host`, which must be a loopback address, and on `port`, or a free one if it is 0.
    pub(crate) async fn start(
        host: &str,
        port: u16,
        servers: Arc<dyn ServerLookup>,
        connector: Connector,
        gate: Arc<Gate>,
        audit: Audit,
    ) -> Result<Self, Error> {
        let listener = listen(host, port).await?;
        let address =
            listener.local_addr().map_err(|source| Error::Resolve { host: host.to_owned(), source })?;
        let token = Arc::new(RwLock::new(Token::new()));
        let pool = Arc::new(Pool::new(servers, connector));
        let app = routes::router(Arc::clone(&pool), Arc::clone(&token), Arc::clone(&gate), audit.clone());
        // Small answers must not wait for acknowledgements of earlier ones.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "could not set TCP_NODELAY");
            }
        });
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move {
                tokio::select! {
                    served = axum::serve(listener, app).into_future() => {
                        if let Err(error) = served {
                            tracing::error!(%error, "the tool server failed");
                        }
                    }
                    () = stop.cancelled() => {}
                }
            }
        });
        Ok(Self { address, token, pool, gate, audit, stop, task: Mutex::new(Some(task)) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a new token for a new kernel; the one before is worth nothing from now on.
    pub(crate) fn renew_token(&self) -> String {
        let mut token = self.token.write().unwrap_or_else(PoisonError::into_inner);
        *token = Token::new();
        token.0.clone()
    }

    /// Decides about what the kernel asks for.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Where it is recorded what the kernel asks for.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Keeps a live connection to what `name` stands for now, for the first call of its tools.
    pub(crate) async fn adopt(&self, name: &str, server: Registered, connection: Connection) {
        self.pool.adopt(name, server, connection).await;
    }

    /// Closes the connections to MCP servers; the next calls open them again.
    pub(crate) async fn close_connections(&self) {
        self.pool.close_all().await;
    }

    /// Stops listening and closes all connections.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = futures::future::OptionFuture::from(task).await {
            tracing::error!(%error, "the tool server's task failed");
        }
        self.pool.close_all().await;
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn listen(host: &str, port: u16) -> Result<TcpListener, Error> {
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> =
        resolved.map_err(|source| Error::Resolve { host: host.to_owned(), source })?.collect();
    let not_loopback = || Error::NotLoopback { host: host.to_owned() };
    if !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(not_loopback());
    }
    // IPv4 first: `localhost` is both, and IPv6 may be off.
    let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    let address = *address.ok_or_else(not_loopback)?;
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Where [`write_runtime`] puts the Python package: a directory for `PYTHONPATH`.
pub(crate) fn runtime_directory(private_directory: &Path) -> PathBuf {
    private_directory.join("runtime")
}

/// Writes what generated code imports, and makes the workspace's `mcptools` importable from every directory.
pub(crate) fn write_runtime(private_directory: &Path, workspace: &Path) -> io::Result<()> {
    let directory = runtime_directory(private_directory);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("ipybox_runtime.py"), RUNTIME)?;
    // A namespace package: the workspace itself must not be on the path, where its files would hide modules.
    match std::os::unix::fs::symlink(workspace.join("mcptools"), directory.join("mcptools")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
