//! A server from its start to its end.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::actions::ActionCheck;
use crate::approvals::{ApprovalPages, ApprovalParts, ApprovalSetupError, ApprovalSite, TeamApprovals};
use crate::config::{ConfigError, TeamConfig};
use crate::front::{FrontListener, FrontParts, ListenError, metrics_routes, routes, serve};
use crate::hub::{HubSetupError, TeamHub};
use crate::login::{LoginSetupError, UserAuthenticator};
use crate::retention::RetentionTask;
use crate::sandboxes::{OpenClaimer, SandboxSetupError, TeamSandboxes};
use crate::sessions::{SessionDirectory, SessionRecords};
use crate::socket::{SessionHearing, SessionSocket, SocketFiles, UserPlaces};
use crate::upstream::{BrowserKey, LoginCallbacks, UpstreamServers};
use crate::users::{AccountError, SessionStarter, SocketWay, UserAccounts, UserSystem};

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration is of no use.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Users could not log in.
    #[error(transparent)]
    Login(#[from] LoginSetupError),
    /// There is no place for users.
    #[error(transparent)]
    Accounts(#[from] AccountError),
    /// Nobody could decide about calls.
    #[error(transparent)]
    Approvals(#[from] ApprovalSetupError),
    /// Kernels could not run at the JupyterHub.
    #[error(transparent)]
    Hub(#[from] HubSetupError),
    /// Kernels could not run in sandboxes of the cluster.
    #[error(transparent)]
    Sandboxes(#[from] SandboxSetupError),
    /// Sessions could not ask it.
    #[error("let sessions ask by the socket `{}`", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Code would run without a sandbox.
    #[error("run code in a sandbox, without which no team is served: {0}")]
    Sandbox(String),
    /// The system does not help.
    #[error("serve a team")]
    System(#[from] std::io::Error),
}

/// A server that is about to serve.
pub struct TeamServer {
    listener: FrontListener,
    metrics: Option<FrontListener>,
    socket: SessionSocket,
    config: TeamConfig,
    parts: FrontParts,
    retention: RetentionTask,
    /// Keeps other servers away from the state.
    lock: File,
}

impl TeamServer {
    /// Prepares a server. Sessions are served by `program`, which is `ipybox`; `client` speaks to identity providers
    /// ([`configure_client`](crate::login::configure_client));
    /// `system` does what the program does for users on the machine, `check_action` knows the form of actions, and
    /// `open_claimer` the client of a cluster.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn open(
        config: TeamConfig,
        program: PathBuf,
        client: reqwest::Client,
        system: UserSystem,
        pages: ApprovalPages,
        check_action: ActionCheck,
        open_claimer: OpenClaimer,
    ) -> Result<Self, ServeError> {
        let secret = |name: &str| std::env::var(name).ok();
        let authenticator = Arc::new(UserAuthenticator::new(config.login.clone(), client.clone(), secret)?);
        let accounts = Arc::new(UserAccounts::open(&config.server.state_dir, &config.users, system)?);
        let lock = accounts.lock()?;
        let records = Arc::new(SessionRecords::open(accounts.sessions(), config.users.max_sessions)?);
        let upstream = UpstreamServers::open(&config.upstream, &config.login, client.clone(), secret);
        let upstream = upstream.map_err(LoginSetupError::from)?.map(Arc::new);
        let server = &config.server;
        let hub = TeamHub::open(
            &config.kernels,
            &config.login.resource,
            &server.state_dir,
            client.clone(),
            secret,
        )?;
        let hub = hub.map(Arc::new);
        let sandboxes = sandboxes(&config, open_claimer, &accounts).await?;
        let approvals = match &config.approvals {
            Some(table) => {
                let parts = ApprovalParts {
                    accounts: Arc::clone(&accounts),
                    authenticator: Arc::clone(&authenticator),
                    client,
                    pages,
                    check_action,
                };
                Some(TeamApprovals::open(&config, table, parts)?)
            }
            None => None,
        };
        let (hearing, site) = approvals.map(|approvals| (approvals.hearing, approvals.site)).unzip();
        let subjects = upstream.as_ref().map(|upstream| Arc::clone(&upstream.subjects));
        let browser = site
            .clone()
            .map(|site: Arc<ApprovalSite>| -> BrowserKey { Box::new(move |headers| site.user_key(headers)) });
        let callbacks = Arc::new(LoginCallbacks::new(&config, browser));
        let files = SocketFiles::of(&accounts);
        let failed = |source| ServeError::Socket { path: files.socket(), source };
        let tokens = Arc::new(files.tokens().map_err(failed)?);
        let hearing = SessionHearing {
            tokens,
            places: UserPlaces::default(),
            accounts: Arc::clone(&accounts),
            approvals: hearing,
            upstream,
            callbacks: Arc::clone(&callbacks),
            hub: hub.clone(),
            sandboxes,
        };
        let (way, socket) = socket(&config, hearing, &files)?;
        let starter = || {
            SessionStarter::new(program.clone(), config.sessions.clone(), config.packages.clone())
                .with_socket(way.clone())
                .with_hub(hub.clone())
                .with_kernels(config.kernels.clone())
        };
        let actions = published(&config, starter(), &accounts)?;
        let starter = Arc::new(starter());
        if config.kernels.is_local() {
            starter.check(&accounts.probe()?).await.map_err(ServeError::Sandbox)?;
        }
        let directory = Arc::new(SessionDirectory::new(Arc::clone(&starter), records));
        let listener = FrontListener::bind(&config.server).await?;
        let metrics = match config.server.metrics {
            Some(address) => Some(FrontListener::plain(address).await?),
            None => None,
        };
        let parts = FrontParts {
            authenticator,
            approvals: site,
            subjects,
            hub,
            callbacks,
            accounts,
            directory,
            actions,
        };
        let accounts = Arc::clone(&parts.accounts);
        let retention = RetentionTask { accounts, starter, settings: config.retention };
        Ok(Self { listener, metrics, socket, config, parts, retention, lock })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The system does not say it.
    pub fn address(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.address()
    }

    /// Serves until SIGTERM, SIGINT or SIGHUP. Calls that run then get the time of `server.drain`; sessions go on.
    ///
    /// # Errors
    /// The system's signals cannot be heard.
    pub async fn serve(self) -> Result<(), ServeError> {
        let Self { listener, metrics, socket, config, parts, retention, lock } = self;
        let draining = CancellationToken::new();
        let ending = CancellationToken::new();
        end_on_signals(&draining)?;
        let hub = parts.hub.clone();
        let directories: Vec<_> = parts.actions.iter().chain([&parts.directory]).cloned().collect();
        let (router, state) = routes(&config, parts, draining.clone(), ending.clone());
        let metrics = metrics.map(|listener| {
            tokio::spawn(serve(listener, metrics_routes(Arc::clone(&state)), ending.clone()))
        });
        let socket = tokio::spawn(socket.serve(ending.clone()));
        let serving = tokio::spawn(serve(listener, router, ending.clone()));
        let removing = tokio::spawn(draining.clone().run_until_cancelled_owned(retention.apply_daily()));
        let hub = hub.map(|hub| {
            let ending = ending.clone();
            // What it does not get done, the next server does.
            tokio::spawn(async move { ending.run_until_cancelled(hub.take_back_left()).await })
        });
        draining.cancelled().await;
        let ended = futures::future::join_all(directories.iter().map(|served| served.calls_have_ended()));
        if tokio::time::timeout(config.server.drain, ended).await.is_err() {
            tracing::warn!(
                "calls were open for longer than `server.drain`; their answers come with the next ones"
            );
        }
        futures::future::join_all(directories.iter().map(|served| served.close())).await;
        ending.cancel();
        removing.await.map_err(std::io::Error::other)?;
        if let Some(task) = hub {
            task.await.map_err(std::io::Error::other)?;
        }
        for task in metrics.into_iter().chain([socket, serving]) {
            task.await.map_err(std::io::Error::other)?;
        }
        drop(lock);
        Ok(())
    }
}

/// The sandboxes in which kernels run, if they do.
async fn sandboxes(
    config: &TeamConfig,
    open_claimer: OpenClaimer,
    accounts: &UserAccounts,
) -> Result<Option<Arc<TeamSandboxes>>, SandboxSetupError> {
    let TeamConfig { kernels, users, login, .. } = config;
    let opened = TeamSandboxes::open(kernels, users.max_sessions, &login.resource, open_claimer)?;
    let Some(sandboxes) = opened else { return Ok(None) };
    sandboxes.prepare(accounts.has_ids()).await?;
    Ok(Some(Arc::new(sandboxes)))
}

/// The processes that serve published actions, if anything is published.
fn published(
    config: &TeamConfig,
    starter: SessionStarter,
    accounts: &UserAccounts,
) -> Result<Option<Arc<SessionDirectory>>, ServeError> {
    if config.actions.is_none() {
        return Ok(None);
    }
    let records = SessionRecords::open(accounts.action_sessions(), config.users.max_sessions)?;
    let starter = starter.with_published(accounts.actions());
    Ok(Some(Arc::new(SessionDirectory::new(Arc::new(starter), Arc::new(records)))))
}

/// The socket at which sessions ask, and their way there.
fn socket(
    config: &TeamConfig,
    hearing: SessionHearing,
    files: &SocketFiles,
) -> Result<(SocketWay, SessionSocket), ServeError> {
    let failed = |source| ServeError::Socket { path: files.socket(), source };
    let way = SocketWay {
        socket: files.socket(),
        tokens: Arc::clone(&hearing.tokens),
        callback: hearing.callbacks.address(),
        approvals: config.approvals.as_ref().map(|table| table.wait),
        publishers: config.actions.clone(),
        upstream: hearing.upstream.as_ref().map(|_| files.upstream()),
    };
    if let Some(upstream) = &hearing.upstream {
        upstream.write(&files.upstream()).map_err(failed)?;
    }
    Ok((way, SessionSocket::open(&files.socket(), hearing).map_err(failed)?))
}

/// Cancels `draining` on the signals that ask a program to end.
fn end_on_signals(draining: &CancellationToken) -> std::io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signals = signal(kind)?;
        let draining = draining.clone();
        // Ends with the runtime: it is a listener of the whole process.
        tokio::spawn(async move {
            signals.recv().await;
            tracing::info!(signal = kind.as_raw_value(), "ending");
            draining.cancel();
        });
    }
    Ok(())
}
