//! Sandboxes that the server of a team claims for a session of one of its users, who gets no credentials for the cluster.
//!
//! ```text
//! claim: connection ─→ reports ─→ sandbox ┄ open: the server keeps the claim ─→ closed: it deletes the claim
//!                                    └ the server has ended: `resume` at the next one
//! ```

use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ClaimError;
use crate::ground::files::{ConnectionUse, FrontSocket};
use crate::ground::text::plain;

/// The time beyond that for a claim, for which the server may be asked: it deletes a claim that is late.
const GRACE: Duration = Duration::from_secs(60);
/// The time for which a server may be away when it is asked for a sandbox: it may be starting again.
const AWAY: Duration = Duration::from_secs(60);
/// The pause before a server that is away is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// The time that the server may take to delete a claim. It goes on with it afterwards.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest answer, in bytes.
const ANSWER_BYTES: u64 = 64 * 1024;

/// Has the server of a team claim sandboxes.
#[derive(Debug)]
pub(crate) struct FrontClaims {
    /// The pool's name, for people: the server knows it.
    pool: String,
    /// The kernel that the sandboxes are for; `None` for that of sessions that choose none.
    kernel: Option<String>,
    /// The time that a sandbox may take to be ready.
    patience: Duration,
    /// The server, once the session has one.
    front: OnceLock<FrontSocket>,
}

/// A sandbox that is ours and ready. Dropping it has its claim deleted.
pub(crate) struct FrontClaim {
    pub(crate) sandbox: String,
    pub(crate) namespace: String,
    /// The address of its pod.
    pub(crate) address: IpAddr,
    /// Whether it may have volumes, so that it is not given up while nobody uses it.
    pub(crate) has_volumes: bool,
    stop: DropGuard,
    task: JoinHandle<()>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum SandboxQuestion<'a> {
    Claim {
        #[serde(skip_serializing_if = "Option::is_none")]
        kernel: Option<&'a str>,
    },
    Resume {
        claim: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        kernel: Option<&'a str>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SandboxAnswer {
    Report(String),
    Sandbox(SandboxPlace),
    /// The name of the claim that is kept again.
    Resumed(String),
    Refused(String),
}

#[derive(Deserialize)]
struct SandboxPlace {
    claim: String,
    sandbox: String,
    namespace: String,
    address: IpAddr,
    has_volumes: bool,
}

/// A connection to the server, which keeps the claim that was made there as long as it is open.
struct FrontConnection {
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
}

/// A claim that the server keeps.
struct FrontLease {
    front: FrontSocket,
    claim: String,
    kernel: Option<String>,
}

impl FrontClaims {
    pub(crate) fn new(pool: String, kernel: Option<String>, patience: Duration) -> Self {
        Self { pool, kernel, patience, front: OnceLock::new() }
    }

    /// The time that a sandbox may take to be ready.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The pool's name.
    pub(crate) fn pool(&self) -> &str {
        &self.pool
    }

    /// Has the server at this socket claim the sandboxes.
    pub(crate) fn ask_at(&self, front: FrontSocket) {
        // A session has one server, to its end.
        self.front.set(front).ok();
    }

    /// Has a sandbox claimed, and waits until it is ready.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub(crate) async fn claim(
        &self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<FrontClaim, ClaimError> {
        let no_front = || ClaimError::Front("this is no session of a team server".to_owned());
        let front = self.front.get().ok_or_else(no_front)?;
        let asking = tokio::time::timeout(self.patience + GRACE, self.ask(front, report)).await;
        let late = |_| Err(ClaimError::Front("it does not answer in time".to_owned()));
        let (connection, place) = asking.unwrap_or_else(late)?;
        let SandboxPlace { claim, sandbox, namespace, address, has_volumes } = place;
        let lease = FrontLease { front: front.clone(), claim, kernel: self.kernel.clone() };
        let stop = CancellationToken::new();
        let task = tokio::spawn(lease.keep(connection, stop.clone()));
        Ok(FrontClaim { sandbox, namespace, address, has_volumes, stop: stop.drop_guard(), task })
    }

    /// Asks until there is an answer, also if the server starts again meanwhile.
    async fn ask(
        &self,
        front: &FrontSocket,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(FrontConnection, SandboxPlace), ClaimError> {
        let question = SandboxQuestion::Claim { kernel: self.kernel.as_deref() };
        let mut away_since = None;
        loop {
            let error = match FrontConnection::ask(front, &question, report).await {
                Ok((connection, SandboxAnswer::Sandbox(place))) => return Ok((connection, place)),
                Ok((_, SandboxAnswer::Refused(why))) => return Err(ClaimError::Refused(plain(&why))),
                Ok(_) => return Err(ClaimError::Front("it answers something else".to_owned())),
                Err(error) => error,
            };
            let since = *away_since.get_or_insert_with(Instant::now);
            if !is_passing(&error) || since.elapsed() > AWAY {
                return Err(ClaimError::Front(error.to_string()));
            }
            report("waiting for the team server");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl FrontClaim {
    /// Has the server delete the claim, and with it the sandbox.
    pub(crate) async fn release(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a claim is not given back");
        }
    }
}

impl FrontLease {
    /// Has servers keep the claim, one after the other, until `stop` is cancelled. Then it is deleted.
    async fn keep(self, connection: FrontConnection, stop: CancellationToken) {
        let mut open = Some(connection);
        loop {
            open = match open {
                Some(mut connection) => {
                    if stop.run_until_cancelled(connection.until_end()).await.is_none() {
                        return connection.close().await;
                    }
                    tracing::info!(
                        claim = self.claim,
                        "the team server has ended, which keeps the session's claim"
                    );
                    None
                }
                None => match stop.run_until_cancelled(self.resume()).await {
                    Some(Ok(connection)) => Some(connection),
                    Some(Err(why)) => {
                        return tracing::warn!(
                            claim = self.claim,
                            why,
                            "the session's claim is not kept any more"
                        );
                    }
                    None => return self.give_back().await,
                },
            };
        }
    }

    /// Has the next server keep the claim, as soon as there is one.
    ///
    /// # Errors
    /// It refuses: the reason, in words.
    async fn resume(&self) -> Result<FrontConnection, String> {
        loop {
            match self.resume_once().await {
                Ok(resumed) => return resumed,
                Err(error) => tracing::debug!(%error, "the team server cannot be asked"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn resume_once(&self) -> io::Result<Result<FrontConnection, String>> {
        let question = SandboxQuestion::Resume { claim: &self.claim, kernel: self.kernel.as_deref() };
        Ok(match FrontConnection::ask(&self.front, &question, &|_| {}).await? {
            (connection, SandboxAnswer::Resumed(claim)) if claim == self.claim => Ok(connection),
            (_, SandboxAnswer::Refused(why)) => Err(plain(&why)),
            _ => Err("it answers something else".to_owned()),
        })
    }

    /// Has a server delete the claim that none keeps, if there is one.
    async fn give_back(&self) {
        match tokio::time::timeout(RELEASE_TIMEOUT, self.resume_once()).await {
            Ok(Ok(Ok(connection))) => connection.close().await,
            _ => tracing::warn!(
                claim = self.claim,
                "a claim is not deleted; the cluster does it when its time is over"
            ),
        }
    }
}

impl FrontConnection {
    /// Asks, and waits for the last answer.
    async fn ask(
        front: &FrontSocket,
        question: &SandboxQuestion<'_>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> io::Result<(Self, SandboxAnswer)> {
        let (input, output) = front.connect(ConnectionUse::Sandbox).await?;
        let mut connection = Self { input, output };
        let question = serde_json::to_string(question)? + "\n";
        connection.output.write_all(question.as_bytes()).await?;
        loop {
            let mut answer = Vec::new();
            (&mut connection.input).take(ANSWER_BYTES).read_until(b'\n', &mut answer).await?;
            if answer.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it gives no answer"));
            }
            match serde_json::from_slice(&answer)? {
                SandboxAnswer::Report(text) => report(&plain(&text)),
                last => return Ok((connection, last)),
            }
        }
    }

    /// Waits for the end of the connection: the server says nothing more.
    async fn until_end(&mut self) {
        let mut rest = [0; 64];
        while self.input.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    }

    /// Has the server delete the claim, and waits until it has done so: a further one may need its place.
    async fn close(mut self) {
        // The server may have ended at the same time.
        self.output.shutdown().await.ok();
        if tokio::time::timeout(RELEASE_TIMEOUT, self.until_end()).await.is_err() {
            tracing::warn!("the team server takes long to delete a claim");
        }
    }
}

/// Whether a server that starts again may be the reason.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}
