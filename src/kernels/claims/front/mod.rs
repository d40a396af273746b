//! Sandboxes that the server of a team claims for a session of one of its users, who gets no credentials for the cluster.
//!
//! ```text
//! claim: connection ─→ reports ─→ sandbox ┄ open: the server keeps the claim, suspends it … ─→ closed: it deletes the claim
//!                                    └ the server has ended: `resume` at the next one
//! ```

mod connection;

use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::connection::{
    ClaimedPlace, FrontConnection, KeptQuestion, RELEASE_TIMEOUT, SandboxAnswer, SandboxQuestion,
};
use super::ClaimError;
use crate::ground::files::FrontSocket;
use crate::ground::text::plain;

/// The time beyond that for a claim, for which the server may be asked: it deletes a claim that is late.
const GRACE: Duration = Duration::from_secs(60);
/// The time for which a server may be away when it is asked for a sandbox: it may be starting again.
const AWAY: Duration = Duration::from_secs(60);
/// The time for a short question about a sandbox. The server asks the cluster, and may be starting again.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a server that is away is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of lines of progress that wait for whoever has asked. More are left out.
const REPORTS: usize = 16;

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

/// A sandbox whose claim is kept by the server, with a pod or suspended. Dropping it has the claim deleted.
pub(crate) struct FrontClaim {
    sandbox: String,
    namespace: String,
    inquiry: FrontInquiry,
    stop: DropGuard,
    task: JoinHandle<()>,
}

/// A question about the sandbox, and who has asked it.
struct AskedQuestion {
    question: KeptQuestion,
    reports: mpsc::Sender<String>,
    answer: oneshot::Sender<SandboxAnswer>,
}

/// Asks the server about a sandbox.
#[derive(Clone)]
pub(crate) struct FrontInquiry(mpsc::Sender<AskedQuestion>);

/// A claim that the server keeps.
struct FrontLease {
    front: FrontSocket,
    claim: String,
    kernel: Option<String>,
    questions: mpsc::Receiver<AskedQuestion>,
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

    /// Has a sandbox claimed, waits until it is ready, and returns it with the address of its pod.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub(crate) async fn claim(
        &self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(FrontClaim, IpAddr), ClaimError> {
        let no_front = || ClaimError::Front("this is no session of a team server".to_owned());
        let front = self.front.get().ok_or_else(no_front)?;
        let asking = tokio::time::timeout(self.patience + GRACE, self.ask(front, report)).await;
        let (connection, place) = asking.unwrap_or_else(|_| Err(late()))?;
        let ClaimedPlace { claim, sandbox, namespace, address } = place;
        let (inquiry, questions) = mpsc::channel(1);
        let lease = FrontLease { front: front.clone(), claim, kernel: self.kernel.clone(), questions };
        let stop = CancellationToken::new();
        let task = tokio::spawn(lease.keep(connection, stop.clone()));
        let claim =
            FrontClaim { sandbox, namespace, inquiry: FrontInquiry(inquiry), stop: stop.drop_guard(), task };
        Ok((claim, address))
    }

    /// Asks until there is an answer, also if the server starts again meanwhile.
    async fn ask(
        &self,
        front: &FrontSocket,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(FrontConnection, ClaimedPlace), ClaimError> {
        let question = SandboxQuestion::Claim { kernel: self.kernel.as_deref() };
        let mut away_since = None;
        loop {
            let error = match FrontConnection::open(front, &question, report).await {
                Ok((connection, SandboxAnswer::Sandbox(place))) => return Ok((connection, place)),
                Ok((_, SandboxAnswer::Refused(why))) => return Err(ClaimError::Refused(plain(&why))),
                Ok(_) => return Err(unexpected()),
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
    /// Its name, by which the router knows it.
    pub(crate) fn name(&self) -> &str {
        &self.sandbox
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether it has volumes, which are deleted with it.
    pub(crate) async fn has_volumes(&self) -> Result<bool, ClaimError> {
        match self.inquiry.ask(KeptQuestion::HasVolumes, QUESTION_TIMEOUT, &|_| {}).await? {
            SandboxAnswer::HasVolumes(has_volumes) => Ok(has_volumes),
            _ => Err(unexpected()),
        }
    }

    /// Suspends it: its pod ends.
    pub(crate) async fn suspend(&self) -> Result<(), ClaimError> {
        match self.inquiry.ask(KeptQuestion::Suspend, QUESTION_TIMEOUT, &|_| {}).await? {
            SandboxAnswer::Suspended => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Has it have a pod again, which may take the time `patience`, and returns the pod's address.
    ///
    /// # Errors
    /// It has none in time, or is gone.
    pub(crate) async fn wake(
        &self,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<IpAddr, ClaimError> {
        match self.inquiry.ask(KeptQuestion::Wake, patience + GRACE, report).await? {
            SandboxAnswer::Awake(address) => Ok(address),
            _ => Err(unexpected()),
        }
    }

    /// Asks the server about it, also while it is used.
    pub(crate) fn inquiry(&self) -> FrontInquiry {
        self.inquiry.clone()
    }

    /// Has the server delete the claim, and with it the sandbox.
    pub(crate) async fn release(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a claim is not given back");
        }
    }
}

impl FrontInquiry {
    /// Why its pod at this address is gone, in words, if that is known.
    pub(crate) async fn gone(&self, address: IpAddr) -> Option<String> {
        match self.ask(KeptQuestion::Gone(address), QUESTION_TIMEOUT, &|_| {}).await {
            Ok(SandboxAnswer::Gone(why)) => why.map(|why| plain(&why)),
            Err(ClaimError::NotFound { message }) => Some(message),
            _ => None,
        }
    }

    /// Asks, and waits for the last answer, which may take so long.
    async fn ask(
        &self,
        question: KeptQuestion,
        patience: Duration,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<SandboxAnswer, ClaimError> {
        let asking = tokio::time::timeout(patience, self.ask_until_answered(question, report)).await;
        match asking.unwrap_or_else(|_| Err(late()))? {
            SandboxAnswer::Refused(why) => Err(ClaimError::Refused(plain(&why))),
            SandboxAnswer::Missing => Err(gone()),
            answer => Ok(answer),
        }
    }

    /// Asks servers, one after the other, until one has answered.
    async fn ask_until_answered(
        &self,
        question: KeptQuestion,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<SandboxAnswer, ClaimError> {
        loop {
            let (reports, mut said) = mpsc::channel(REPORTS);
            let (answer, mut answered) = oneshot::channel();
            let asked = self.0.send(AskedQuestion { question, reports, answer }).await;
            asked.map_err(|_| gone())?;
            loop {
                tokio::select! {
                    Some(text) = said.recv() => report(&text),
                    answer = &mut answered => match answer {
                        Ok(answer) => return Ok(answer),
                        // The server has ended.
                        Err(_) => break,
                    },
                }
            }
        }
    }
}

impl FrontLease {
    /// Has servers keep the claim, one after the other, until `stop` is cancelled. Then it is deleted.
    async fn keep(mut self, connection: FrontConnection, stop: CancellationToken) {
        let mut open = Some(connection);
        loop {
            open = match open {
                Some(mut connection) => {
                    if stop.run_until_cancelled(self.answer_until_end(&mut connection)).await.is_none() {
                        return connection.close().await;
                    }
                    let claim = &self.claim;
                    tracing::info!(claim, "the team server has ended, which keeps the session's claim");
                    None
                }
                None => match stop.run_until_cancelled(self.resume()).await {
                    Some(Ok(connection)) => Some(connection),
                    Some(Err(why)) => {
                        let claim = &self.claim;
                        return tracing::warn!(claim, why, "the session's claim is not kept any more");
                    }
                    None => return self.give_back().await,
                },
            };
        }
    }

    /// Asks the server what there is to ask, until it has ended.
    async fn answer_until_end(&mut self, connection: &mut FrontConnection) {
        loop {
            let asked = tokio::select! {
                () = connection.until_end() => return,
                asked = self.questions.recv() => asked,
            };
            // Those who ask live as long as the claim.
            let Some(AskedQuestion { question, reports, answer }) = asked else {
                return connection.until_end().await;
            };
            let report = |text: &str| {
                // Progress, of which the next line tells more.
                reports.try_send(text.to_owned()).ok();
            };
            match connection.ask(&question, &report).await {
                // Whoever has asked may not wait any longer.
                Ok(said) => drop(answer.send(said)),
                Err(error) => return tracing::debug!(%error, "the team server does not answer"),
            }
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
        Ok(match FrontConnection::open(&self.front, &question, &|_| {}).await? {
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

fn late() -> ClaimError {
    ClaimError::Front("it does not answer in time".to_owned())
}

fn unexpected() -> ClaimError {
    ClaimError::Front("it answers something else".to_owned())
}

fn gone() -> ClaimError {
    ClaimError::NotFound { message: "the claim of this session's sandbox is gone".to_owned() }
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
