//! The tool server as a process of its own, or as a part of another program.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::access::{self, BearerToken, ServerTokens, TokenRole};
use super::announced::AnnouncedServers;
use super::approval_channel::ApprovalChannel;
use super::call::SharedRoutes;
use super::host_routes::{self, HostState};
use super::listener::ToolListener;
use super::{Error, routes};
use crate::approval::{ApprovalEffect, ApprovalPolicy, Audit, Gate, StandingAnswers};
use crate::config::{ApprovalSettings, connector_here};
use crate::connections::mcp_client::{Connector, DEFAULT_CONNECT_TIMEOUT};
use crate::tools::recording::CallTape;
use crate::tools::servers::{ByGate, ConnectionPool, ServerLookup};

/// The port of the reference implementation.
const DEFAULT_PORT: u16 = 8900;

/// An HTTP server that calls the tools of MCP servers for code in other processes, and asks for approval before.
///
/// There are two secrets. Code that calls tools has the *caller token*, which lets it name a registered
/// server, a tool and arguments. The host that started the server has the *host token*, which registers
/// servers ([`ToolRunner::register`](crate::ToolRunner::register)) and approves calls
/// ([`ApprovalClient`](crate::ApprovalClient)). Do not give the host token to code that must not approve its
/// own calls.
///
/// MCP servers are started in the current directory when one of their tools is called first; `${NAME}` placeholders in
/// their parameters are filled from the environment and the `.env` of that directory then. It must be a directory that
/// sandboxed code cannot write, since programs take configuration and code from where they start.
///
/// ```no_run
/// use ipybox::{ApprovalClient, ToolRunner, ToolServer};
/// use serde_json::json;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ToolServer::builder().port(0).approval_required(true).start().await?;
/// let port = server.address().port();
/// let mut approvals = ApprovalClient::connect("localhost", port, server.host_token()).await?;
/// tokio::spawn(async move {
///     while let Some(Ok(request)) = approvals.next().await {
///         println!("accepted: {request}");
///         request.accept();
///     }
/// });
///
/// let runner = ToolRunner::new("fetch").port(port).token(server.token()).host_token(server.host_token());
/// runner.register(&json!({"command": "uvx", "args": ["mcp-server-fetch"]})).await?;
/// println!("{}", runner.run("fetch", &json!({"url": "https://example.com"})).await?);
/// server.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct ToolServer {
    listener: ToolListener,
    pool: Arc<ConnectionPool>,
    channel: Arc<ApprovalChannel>,
    token: String,
    host_token: String,
}

/// The options of a [`ToolServer`], each with a default.
#[derive(Clone)]
#[must_use = "a builder does nothing before `start`"]
pub struct ToolServerBuilder {
    host: String,
    port: u16,
    policy: ApprovalPolicy,
    approval_timeout: Duration,
    connect_timeout: Duration,
    token: Option<String>,
    host_token: Option<String>,
    connector: Option<Connector>,
}

impl Default for ToolServerBuilder {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: DEFAULT_PORT,
            policy: ApprovalPolicy::always(ApprovalEffect::Allow),
            approval_timeout: ApprovalSettings::default().timeout,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            token: None,
            host_token: None,
            connector: None,
        }
    }
}

impl ToolServerBuilder {
    /// The host to listen on, a loopback address; default: `localhost`.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// The port to listen on, or 0 for a free one; default: 8900.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Whether every call needs approval; default: `false`, every call runs. Replaces the policy.
    pub fn approval_required(mut self, is_required: bool) -> Self {
        self.policy =
            ApprovalPolicy::always(if is_required { ApprovalEffect::Ask } else { ApprovalEffect::Allow });
        self
    }

    /// Decides which calls need approval, which run and which are denied. Default: every call runs.
    pub fn approval_policy(mut self, policy: ApprovalPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The time that an approval request waits for its answer once the approval client has it; default: 60
    /// seconds. The call fails then.
    pub fn approval_timeout(mut self, timeout: Duration) -> Self {
        self.approval_timeout = timeout;
        self
    }

    /// The time that a call waits for an MCP server to start; default: 120 seconds. One that is not
    /// ready then goes on to start, and the next call waits for it.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The caller token: at least 16 visible ASCII characters. Default: a random one.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The host token: at least 16 visible ASCII characters, and not the caller token. Default: a random one.
    pub fn host_token(mut self, token: impl Into<String>) -> Self {
        self.host_token = Some(token.into());
        self
    }

    /// Connects to the MCP servers; default: one that starts them in the current directory, with its variables.
    pub(crate) fn connector(mut self, connector: Connector) -> Self {
        self.connector = Some(connector);
        self
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// [`ToolServerError`](crate::ToolServerError) if the tokens cannot be used, the host is no loopback address, or the
    /// port is taken.
    pub async fn start(self) -> Result<ToolServer, Error> {
        let caller = token(self.token, "caller")?;
        let host = token(self.host_token, "host")?;
        if caller.matches(host.text().as_bytes()) {
            return Err(Error::SameTokens);
        }
        let token = caller.text().to_owned();
        let host_token = host.text().to_owned();
        let keys = Arc::new(ServerTokens::new(caller, host));

        let connector = self.connector.unwrap_or_else(connector_here);
        connector.warn_of_dotenv();
        let gate =
            Arc::new(Gate::new(self.policy, StandingAnswers::default(), self.approval_timeout, Audit::off()));
        let connector = connector.with_connect_timeout(self.connect_timeout).asking(Arc::new(ByGate {
            gate: Arc::clone(&gate),
            progress: watch::channel(String::new()).0,
            tape: CallTape::Off,
        }));
        let servers = Arc::new(AnnouncedServers::default());
        let pool = Arc::new(ConnectionPool::new(Arc::clone(&servers) as Arc<dyn ServerLookup>, connector));
        let stop = CancellationToken::new();
        let channel = Arc::new(ApprovalChannel::new(Arc::clone(&gate), stop.clone()));

        let of_callers = routes::router(SharedRoutes {
            pool: Arc::clone(&pool),
            gate,
            tape: CallTape::Off,
            actions: None,
        });
        let subjects = HostState { pool: Arc::clone(&pool), servers, channel: Arc::clone(&channel) };
        let of_host = host_routes::router(subjects);
        let router = access::guarded(of_callers, Arc::clone(&keys), TokenRole::Caller)
            .merge(access::guarded(of_host, keys, TokenRole::Host));
        let listener = ToolListener::start(&self.host, self.port, router, stop).await?;
        tracing::info!(address = %listener.address(), "the tool server listens");
        Ok(ToolServer { listener, pool, channel, token, host_token })
    }
}

impl ToolServer {
    /// A builder with the default of each option.
    pub fn builder() -> ToolServerBuilder {
        ToolServerBuilder::default()
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The caller token, for code that calls tools.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The host token, for registering servers and approving calls.
    pub fn host_token(&self) -> &str {
        &self.host_token
    }

    /// Waits until the server has been stopped.
    pub async fn join(&self) {
        self.listener.ended().await;
    }

    /// Stops listening, ends calls and the approval client's connection, and waits until all MCP servers have ended.
    ///
    /// Dropping the server does the same without waiting.
    pub async fn stop(&self) {
        self.listener.stop().await;
        self.channel.stopped().await;
        self.pool.stop().await;
    }
}

impl std::fmt::Debug for ToolServer {
    /// Without the tokens.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ToolServer").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ToolServerBuilder {
    /// Without the tokens.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ToolServerBuilder")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("policy", &self.policy)
            .field("approval_timeout", &self.approval_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

fn token(given: Option<String>, which: &'static str) -> Result<BearerToken, Error> {
    given
        .map_or_else(|| Ok(BearerToken::new()), |text| BearerToken::given(text).ok_or(Error::Token { which }))
}
