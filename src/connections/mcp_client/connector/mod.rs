//! From parameters to a live connection.

mod logins;
mod starts;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use rmcp::model::ProtocolVersion;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use self::logins::LoginError;
use self::starts::{ServerStart, ServerStarts};
use crate::connections::mcp_client::client::{ClientSide, UserAsker};
use crate::connections::mcp_client::connection::Connection;
use crate::connections::mcp_client::connection::lifecycle::{self, METHOD, TransportLender};
use crate::connections::mcp_client::failure::http_failure::shown;
use crate::connections::mcp_client::failure::{Error, LastWords};
use crate::connections::mcp_client::messages::ExpectedAnswers;
use crate::connections::mcp_client::parameters::{
    HttpParameters, HttpTransport, ServerParameters, ServerReach, StdioParameters,
};
use crate::connections::mcp_client::requests::McpFailure;
use crate::connections::mcp_client::requests::traced_server::TracedServer;
use crate::connections::mcp_client::transport::{
    AuthorizedClient, FilledHttp, FilledStdio, ServerPipes, ServerProcess, SseTransport, StartGuard,
    ThrottledTransport, http,
};
use crate::connections::oauth::Accounts;
use crate::ground::env::{Variables, is_program, on_path};
use crate::ground::files::FrontSocket;
use crate::ground::telemetry::Context;
use crate::ground::text::Secrets;
use crate::ground::web::RequestProxies;
use crate::kernels::sandbox::ExposedPlaces;

/// The default timeout for a server to be ready: `npx` and `uvx` may have to download it.
pub(crate) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(120);
/// The time that a server may take to start in the background before it counts as hung: no caller waits for it,
/// and even slow downloads end.
const START_LIMIT: Duration = Duration::from_secs(30 * 60);
/// The time that the end of a session waits for servers that were starting: clients kill us two seconds after they
/// closed our input.
const END_GRACE: Duration = Duration::from_millis(1500);
/// The interval of reports about the server's output to callers that wait for its start.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The time that a server which exits during the handshake has for its last messages.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// Receives progress texts for the waiting caller.
pub(crate) type StartProgress<'a> = &'a (dyn Fn(&str) + Sync);

/// Connects to MCP servers on behalf of one workspace.
///
/// Clones share the servers that are starting.
#[derive(Clone)]
pub(crate) struct Connector {
    variables: Arc<Variables>,
    workspace: PathBuf,
    /// Clones share it.
    guard: Arc<RwLock<StartGuard>>,
    connect_timeout: Duration,
    goes_on: bool,
    starts: Arc<ServerStarts>,
    accounts: Arc<Accounts>,
    /// Asks the user on behalf of servers.
    asker: Option<Arc<dyn UserAsker>>,
    /// The flags after `ipybox login NAME` for a login that is kept where this looks for it.
    login_flags: Arc<str>,
    /// Made on first use: reading the machine's certificates takes some milliseconds.
    http: Arc<OnceLock<reqwest::Client>>,
    /// The same for servers on this machine, which no proxy reaches.
    loopback: Arc<OnceLock<reqwest::Client>>,
}

impl Connector {
    /// A connector that fills placeholders from `variables` and starts servers as `guard` permits it.
    pub(crate) fn new(variables: Arc<Variables>, workspace: PathBuf, guard: StartGuard) -> Self {
        let accounts = Arc::new(Accounts::new(None, None, variables.redactor().clone()));
        Self {
            variables,
            workspace,
            accounts,
            asker: None,
            login_flags: Arc::from(""),
            guard: Arc::new(RwLock::new(guard)),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            goes_on: true,
            starts: Arc::default(),
            http: Arc::default(),
            loopback: Arc::default(),
        }
    }

    /// Logs what is wrong with the `.env` that placeholders are filled from.
    pub(crate) fn warn_of_dotenv(&self) {
        for problem in self.variables.problems() {
            tracing::warn!("{problem}");
        }
    }

    /// Sets the timeout for a server's answer to `initialize`. Default: [`DEFAULT_CONNECT_TIMEOUT`].
    pub(crate) fn with_connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Lets servers ask the user.
    pub(crate) fn asking(self, asker: Arc<dyn UserAsker>) -> Self {
        Self { asker: Some(asker), ..self }
    }

    /// The client for a connection to the server `name`, which has this address if it is not a program.
    fn client(&self, name: &str, url: Option<&reqwest::Url>) -> ClientSide {
        let is_local = url.is_none_or(crate::ground::web::is_loopback);
        let traced = TracedServer::new(name, url, self.variables.redactor());
        let asker = self.asker.clone();
        let revision = ProtocolVersion::LATEST_WITH_INITIALIZE;
        ClientSide { name: Arc::from(name), asker, state: Arc::default(), is_local, traced, revision }
    }

    /// Keeps logins in this state directory, rather than in memory. `flags` name it for `ipybox login`. The server of a team is
    /// asked for its user's tokens.
    pub(crate) fn with_accounts_in(self, state: PathBuf, flags: &str, front: Option<FrontSocket>) -> Self {
        let accounts = Accounts::new(Some(state), front, self.variables.redactor().clone());
        Self { accounts: Arc::new(accounts), login_flags: Arc::from(flags), ..self }
    }

    /// Ends a server that is not ready in time, rather than let it start in the background.
    pub(crate) fn in_foreground(self) -> Self {
        Self { goes_on: false, ..self }
    }

    /// Keeps servers away from these places too, also for clones.
    pub(crate) fn keep_apart(&self, exposed: ExposedPlaces) {
        self.guard.write().expose(exposed);
    }

    /// Whether a server may be started at all, as far as that shows without starting it.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect), of its parameters.
    pub(crate) fn check(&self, name: &str, parameters: &ServerParameters) -> Result<(), Error> {
        let ServerReach::Stdio(parameters) = &parameters.reach else { return Ok(()) };
        let guard = self.guard.read().clone();
        let (filled, secrets) = FilledStdio::fill(parameters, &self.variables, &self.workspace)?;
        guard.start(name, &filled, &self.workspace, &self.variables, &secrets).map(drop)
    }

    /// Whether this command exists for starting servers.
    pub(crate) fn has_program(&self, command: &str) -> bool {
        if command.contains('/') {
            is_program(&self.workspace.join(command))
        } else {
            on_path(command, self.variables.in_process("PATH").unwrap_or_default()).is_some()
        }
    }

    /// Connects to the server that is registered as `name`.
    ///
    /// A program that is not ready in time goes on to start, also if the future is dropped, and the next call
    /// for the same server joins it. It ends by [`end_starts`](Self::end_starts), or with the last clone of
    /// this.
    ///
    /// # Errors
    /// [`Error`] when a placeholder cannot be filled or the server cannot be started or reached, ends,
    /// does not answer in time, or answers with an error.
    pub(crate) async fn connect(
        &self,
        name: &str,
        parameters: &ServerParameters,
    ) -> Result<Connection, Error> {
        self.connect_reporting(name, parameters, &|_| {}).await
    }

    /// As [`connect`](Self::connect); output of the program is reported to `progress` meanwhile.
    pub(crate) async fn connect_reporting(
        &self,
        name: &str,
        parameters: &ServerParameters,
        progress: StartProgress<'_>,
    ) -> Result<Connection, Error> {
        let limit = parameters.timeout.unwrap_or(self.connect_timeout);
        let connection = match &parameters.reach {
            ServerReach::Stdio(parameters) => self.connect_stdio(name, parameters, limit, progress).await,
            ServerReach::Http(parameters) => Box::pin(self.connect_http(name, parameters, limit)).await,
        };
        if let Err(Error::Unauthorized { refusal }) = &connection {
            self.note(name, parameters, refusal).await;
        }
        let connection = connection?;
        let server = connection.identity();
        tracing::info!(name, server = server.name, version = server.version, "connected to an MCP server");
        Ok(connection)
    }

    /// Ends other starts of `name`, which has these parameters now. Does not wait.
    pub(crate) fn end_other_starts(&self, name: &str, parameters: &ServerParameters) {
        let kept = match &parameters.reach {
            ServerReach::Stdio(parameters) => Some(parameters),
            ServerReach::Http(_) => None,
        };
        self.starts.end_others(name, kept);
    }

    /// Ends starts of `name`. Does not wait.
    pub(crate) fn end_starts_of(&self, name: &str) {
        self.starts.end_others(name, None);
    }

    /// Ends all servers that are starting. Does not wait.
    pub(crate) fn end_starts(&self) {
        self.starts.end_all();
    }

    /// Waits until all servers whose start was ended have exited, but not longer than clients wait for us.
    /// The remaining ones got SIGTERM, and are killed a minute later.
    pub(crate) async fn starts_ended(&self) {
        if timeout(END_GRACE, self.accounts.settled()).await.is_err() {
            tracing::warn!("the token for an MCP server was being renewed; its login may have ended");
        }
        if timeout(END_GRACE, self.starts.ended()).await.is_err() {
            tracing::info!("an MCP server that was starting has yet to clean up");
        }
    }

    async fn connect_stdio(
        &self,
        name: &str,
        parameters: &StdioParameters,
        limit: Duration,
        progress: StartProgress<'_>,
    ) -> Result<Connection, Error> {
        let begun = Instant::now();
        loop {
            let start = match self.starts.find(name, parameters) {
                Some(start) => start,
                None => self.begin(name, parameters, limit)?,
            };
            if timeout(limit.saturating_sub(begun.elapsed()), followed(&start, progress)).await.is_err() {
                return Err(self.give_up(name, start, limit).await);
            }
            if start.is_ended() {
                return Err(Error::StartEnded);
            }
            // Otherwise another caller waited for it too, and has it.
            if let Some(outcome) = self.starts.take(&start) {
                return outcome;
            }
        }
    }

    /// Starts a server in the background.
    fn begin(
        &self,
        name: &str,
        parameters: &StdioParameters,
        limit: Duration,
    ) -> Result<Arc<ServerStart>, Error> {
        let (filled, secrets) = FilledStdio::fill(parameters, &self.variables, &self.workspace)?;
        let guard = self.guard.read().clone();
        let start = guard.start(name, &filled, &self.workspace, &self.variables, &secrets)?;
        let answers = ExpectedAnswers::default();
        let (process, pipes) = ServerProcess::start(name, &filled, start, secrets.clone(), answers.clone())?;
        let account = process.account().clone();
        let starting = StartingServer { client: self.client(name, None), process, pipes, answers, secrets };
        let context = Context::current();
        Ok(self.starts.begin(name, parameters, account, |stop| {
            context.around(starting.connect(limit.max(START_LIMIT), stop))
        }))
    }

    /// The error for a server that is not ready in time.
    async fn give_up(&self, name: &str, start: Arc<ServerStart>, after: Duration) -> Error {
        let last_words = start.account().words();
        if self.goes_on {
            start.promise();
            return Error::StillStarting { after, last_words };
        }
        // Others may be starting beside it.
        self.end_starts_of(name);
        self.starts_ended().await;
        Error::Silent { method: METHOD, after, last_words }
    }

    async fn connect_http(
        &self,
        name: &str,
        parameters: &HttpParameters,
        limit: Duration,
    ) -> Result<Connection, Error> {
        let (filled, secrets) = FilledHttp::fill(parameters, &self.variables)?;
        let http = self.http_client(&filled.url)?;
        let client = self.client(name, Some(&filled.url));
        let account = filled.login.clone().map(|login| self.accounts.with(&filled.url, login));
        let command = Arc::from(format!("ipybox login {name}{}", self.login_flags));
        let authorized = AuthorizedClient { client: http, account, command };
        let stop = CancellationToken::new();
        let answers = ExpectedAnswers::default();
        let connecting = async {
            match filled.transport {
                HttpTransport::Streamable => {
                    let transport = || {
                        let transport = http::transport(authorized.clone(), &filled, answers.clone());
                        ThrottledTransport::new(transport, answers.clone())
                    };
                    lifecycle::begin(&client, transport, answers.handshake(), &stop).await
                }
                HttpTransport::Sse => {
                    let connected = SseTransport::connect(authorized, &filled, answers.clone()).await;
                    let lender =
                        TransportLender::new(connected.map_err(|failure| McpFailure::from(&failure))?);
                    let transport = || ThrottledTransport::new(lender.lend(), answers.clone());
                    lifecycle::begin(&client, transport, answers.handshake(), &stop).await
                }
            }
        };
        match timeout(limit, connecting).await {
            Ok(Ok(service)) => Ok(Connection::new(client, service, None, secrets, stop)),
            Ok(Err(failure)) => Err(error(failure, &secrets, LastWords::default())),
            Err(_) => Err(Error::Silent { method: METHOD, after: limit, last_words: LastWords::default() }),
        }
    }

    fn http_client(&self, url: &reqwest::Url) -> Result<reqwest::Client, Error> {
        let proxies = RequestProxies::to(url);
        let kept = if proxies == RequestProxies::None { &self.loopback } else { &self.http };
        if let Some(client) = kept.get() {
            return Ok(client.clone());
        }
        let client = http::client(proxies)?;
        Ok(kept.get_or_init(|| client).clone())
    }
}

/// Waits for a start and reports the server's output meanwhile.
async fn followed(start: &ServerStart, progress: StartProgress<'_>) {
    let reporting = async {
        let mut reported = None;
        loop {
            tokio::time::sleep(REPORT_INTERVAL).await;
            let line = start.account().last_line();
            if let Some(line) = line.as_deref().filter(|_| line != reported) {
                progress(line);
            }
            reported = line;
        }
    };
    tokio::select! {
        () = start.done() => {}
        () = reporting => {}
    }
}

/// A process that has just been started, and what its connection needs.
struct StartingServer {
    client: ClientSide,
    process: ServerProcess,
    pipes: ServerPipes,
    answers: ExpectedAnswers,
    secrets: Secrets,
}

impl StartingServer {
    /// Connects to the server, which may take `limit`. `stop_start` ends the start.
    async fn connect(self, limit: Duration, stop_start: CancellationToken) -> Result<Connection, Error> {
        let Self { client, mut process, pipes, answers, secrets } = self;
        let stop = CancellationToken::new();
        let lender = TransportLender::new(pipes);
        let transport = || ThrottledTransport::new(lender.lend(), answers.clone());
        let mut connecting = Box::pin(lifecycle::begin(&client, transport, answers.handshake(), &stop));
        let result = tokio::select! {
            result = timeout(limit, &mut connecting) => result.map_err(|_| Unready::Silent),
            () = process.exited() => {
                // As in the keeper: its children may hold its stdout.
                process.kill();
                Ok(timeout(EXIT_GRACE, &mut connecting).await.unwrap_or(Err(McpFailure::Closed)))
            }
            () = stop_start.cancelled() => Err(Unready::Unwanted),
        };
        drop(connecting);
        match result {
            Ok(Ok(service)) => {
                process.has_started();
                Ok(Connection::new(client, service, Some(process), secrets, stop))
            }
            Ok(Err(McpFailure::Closed)) => Err(error(McpFailure::Closed, &secrets, process.end().await)),
            // We end it.
            Ok(Err(failure)) => Err(error(failure, &secrets, process.end().await.without_status())),
            Err(Unready::Silent) => {
                let last_words = process.end_start().await.without_status();
                Err(Error::Silent { method: METHOD, after: limit, last_words })
            }
            Err(Unready::Unwanted) => {
                process.end_start().await;
                Err(Error::StartEnded)
            }
        }
    }
}

fn error(failure: McpFailure, secrets: &Secrets, last_words: LastWords) -> Error {
    let method = METHOD;
    match failure {
        McpFailure::Closed => Error::Ended { method, last_words },
        McpFailure::Answered { code, message } => {
            Error::Refused { method, code, message: secrets.clean(&message) }
        }
        McpFailure::Refused(refusal) => Error::Unauthorized { refusal },
        McpFailure::NotDelivered { reason }
        | McpFailure::Broken { reason }
        | McpFailure::BadStatus { reason, .. }
        | McpFailure::Unusable { reason } => {
            Error::Unusable { method, reason: shown(&reason, secrets), last_words }
        }
    }
}

/// Why a program's start was ended.
enum Unready {
    Silent,
    Unwanted,
}
