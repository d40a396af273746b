//! The sandboxes of a cluster in which the kernels of users run, claimed by the server.
//!
//! ```text
//! session ═ socket ═ TeamSandboxes ─→ quota: how many the user has ─→ claimer ═ HTTP ═ the cluster
//! session ════════════ WebSocket ════════════ `ipybox pod` in the sandbox
//! ```
//!
//! The credentials, by which all sandboxes could be deleted, stay here. A connection of a session is one claim, which is kept as
//! long as the connection is open and then deleted; over it the session asks about its sandbox, and has it suspended and woken. If
//! the server ends first, the session goes on, and has the next server keep the claim.

mod claimer;
mod quota;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

pub use self::claimer::{
    ClaimReport, ClaimerSettings, KeptClaim, KnownClaim, OpenClaimer, SandboxClaimer, SandboxOwner,
    SandboxPlace, TakenSandbox,
};
use self::quota::{QuotaRefusal, SandboxQuota, SandboxSlot};
use crate::front::RateLimits;
use crate::kernels::KernelTable;
use crate::login::SecureUrl;
use crate::socket::line;
use crate::users::TeamAccount;

/// The longest question of a session, in bytes.
const QUESTION_BYTES: usize = 4 * 1024;
/// The time that a question may take.
const QUESTION_TIME: Duration = Duration::from_secs(5);
/// The number of sandboxes that a user's sessions may ask for in a minute.
const CLAIMS_PER_MINUTE: u32 = 60;
/// The number of questions about their sandboxes that a user's sessions may ask in a minute. More wait.
const QUESTIONS_PER_MINUTE: u32 = 120;
/// The number of lines of progress that wait for a session which does not read. More are left out.
const REPORTS: usize = 16;
/// The time after which the cluster deletes a claim that is not kept, as the flag has it.
const LEASE: Duration = Duration::from_secs(300);
/// The time that a sandbox may take to be ready, as the flag has it.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The longest value of a label.
const LABEL_CHARACTERS: usize = 63;

/// Why the kernels of users could not run in sandboxes of a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxSetupError {
    /// There is no client for the cluster, or no credentials.
    #[error("have kernels in sandboxes of `kernels.pool`: {0}")]
    Claimer(String),
    /// Users have the id of the server, which has the credentials.
    #[error(
        "keep the cluster's credentials from users: they have the server's own id of the system (`users.share_id`)\n\
         hint: run the server as root, which gives each user one"
    )]
    Shared,
    /// Users could read the credentials.
    #[error(
        "keep the cluster's credentials from users: all users of the system can read `{}`\n\
         hint: take the right from them: `chmod o-r`; in a pod, mount the token of the service account with `defaultMode: 0400`, \
         or let the container run with `runAsUser: 0`", path.display()
    )]
    Readable {
        /// The file.
        path: PathBuf,
    },
}

/// Claims sandboxes for the sessions of users.
pub(crate) struct TeamSandboxes {
    /// The kernels by name; that of sessions that choose none under `None`.
    kernels: BTreeMap<Option<String>, SandboxKernel>,
    claimer: Arc<dyn SandboxClaimer>,
    quota: SandboxQuota,
    claims: RateLimits,
    questions: RateLimits,
}

/// A kernel that users can have.
struct SandboxKernel {
    pool: String,
    /// The number of its sandboxes that a user may have.
    most: usize,
    /// The key of the configuration that limits it.
    key: String,
}

/// The first question of a connection.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum SandboxQuestion {
    /// For a sandbox.
    Claim(ClaimQuestion),
    /// To keep a claim that a server before this one has made.
    Resume(ResumeQuestion),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimQuestion {
    #[serde(default)]
    kernel: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResumeQuestion {
    claim: String,
    #[serde(default)]
    kernel: Option<String>,
}

/// A further question, about the sandbox of the connection's claim.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptQuestion {
    HasVolumes,
    Suspend,
    Wake,
    /// Is the pod at this address gone?
    Gone(IpAddr),
}

/// A line to a session. All but a report are the last one to their question.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum SandboxAnswer<'a> {
    Report(&'a str),
    Sandbox(&'a SandboxPlace),
    /// The name of the claim that is kept again.
    Resumed(&'a str),
    HasVolumes(bool),
    Suspended,
    /// The address of the pod.
    Awake(IpAddr),
    /// Why the pod is gone, if that is known.
    Gone(Option<String>),
    /// There is no such sandbox any more.
    Missing,
    Refused(&'a str),
}

/// A claim that a session has, and its place in the user's quota.
struct HeldClaim {
    claim: Box<dyn KeptClaim>,
    slot: SandboxSlot,
}

impl TeamSandboxes {
    /// The sandboxes of the table; `None` if it has no pool. The cluster is not asked anything yet.
    ///
    /// # Errors
    /// The settings are of no use.
    pub(crate) fn open(
        table: &KernelTable,
        most: usize,
        resource: &SecureUrl,
        open: OpenClaimer,
    ) -> Result<Option<Self>, SandboxSetupError> {
        let Some(pool) = &table.pool else { return Ok(None) };
        let by_sessions = || "users.max_sessions".to_owned();
        let unnamed = SandboxKernel { pool: pool.clone(), most, key: by_sessions() };
        let named = table.named.iter().map(|(name, named)| {
            let (most, key) = match named.max {
                Some(max) => (max.get(), format!("kernels.{name}.max")),
                None => (most, by_sessions()),
            };
            (Some(name.clone()), SandboxKernel { pool: named.pool.clone(), most, key })
        });
        let kernels: BTreeMap<_, _> = [(None, unnamed)].into_iter().chain(named).collect();
        let settings = ClaimerSettings {
            namespace: table.namespace.clone(),
            pools: kernels.values().map(|kernel| kernel.pool.clone()).collect(),
            instance: instance(resource),
            lease: table.claim_lease.unwrap_or(LEASE),
            timeout: table.claim_timeout.unwrap_or(TIMEOUT),
            suspends: table.idle_timeout.is_some(),
        };
        let claimer = open(settings).map_err(SandboxSetupError::Claimer)?;
        let quota = SandboxQuota::default();
        let [claims, questions] = [CLAIMS_PER_MINUTE, QUESTIONS_PER_MINUTE].map(RateLimits::new);
        Ok(Some(Self { kernels, claimer, quota, claims, questions }))
    }

    /// Finds the credentials, which users must not read: they need `ids` of their own of the system.
    pub(crate) async fn prepare(&self, has_ids: bool) -> Result<(), SandboxSetupError> {
        let files = self.claimer.find_credentials().await.map_err(SandboxSetupError::Claimer)?;
        if !has_ids {
            return Err(SandboxSetupError::Shared);
        }
        let mut files = files.into_iter().filter(|file| is_open_to_all(file));
        files.next().map_or(Ok(()), |path| Err(SandboxSetupError::Readable { path }))
    }

    /// Tries the cluster, for `doctor`.
    pub(crate) async fn check(&self) -> Result<(), String> {
        self.claimer.check().await
    }

    /// Answers the questions of a user's session, keeps its claim, and deletes that when the session has ended. If the server ends
    /// first, the claim stays.
    pub(crate) async fn hear(
        &self,
        mut input: impl AsyncBufRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
        account: &TeamAccount,
    ) -> io::Result<()> {
        let question = tokio::time::timeout(QUESTION_TIME, line(&mut input, QUESTION_BYTES)).await??;
        let Some(question) = question else { return Ok(()) };
        let held = match serde_json::from_slice(&question)? {
            SandboxQuestion::Claim(ClaimQuestion { kernel }) => {
                let owner = SandboxOwner { user: account.key.clone(), kernel };
                self.claim_for(&mut input, &mut output, &owner).await?
            }
            SandboxQuestion::Resume(ResumeQuestion { claim, kernel }) => {
                let owner = SandboxOwner { user: account.key.clone(), kernel };
                self.resume_for(&mut input, &mut output, &claim, &owner).await?
            }
        };
        let Some(HeldClaim { claim, slot }) = held else { return Ok(()) };
        let ended = self.answer_until_end(&mut input, &mut output, &*claim, &account.key).await;
        if claim.release().await {
            drop(slot);
        } else {
            slot.leave();
        }
        ended
    }

    async fn claim_for(
        &self,
        input: &mut (impl AsyncBufRead + Unpin),
        output: &mut (impl AsyncWrite + Unpin),
        owner: &SandboxOwner,
    ) -> io::Result<Option<HeldClaim>> {
        let (reports, mut said) = mpsc::channel(REPORTS);
        let report = report_to(reports);
        let claiming = self.claim(owner, &report);
        let Some(claimed) = with_reports(input, output, &mut said, claiming).await? else { return Ok(None) };
        match claimed {
            Ok((TakenSandbox { place, claim }, slot)) => {
                slot.name(&place.claim);
                // If it has ended, that is noticed next.
                say(output, &SandboxAnswer::Sandbox(&place)).await.ok();
                Ok(Some(HeldClaim { claim, slot }))
            }
            Err(why) => {
                // With its line breaks escaped: the session has chosen words in it.
                tracing::warn!(user = %owner.user, ?why, "a session has no sandbox");
                say(output, &SandboxAnswer::Refused(&why)).await.map(|()| None)
            }
        }
    }

    async fn claim(
        &self,
        owner: &SandboxOwner,
        report: &ClaimReport,
    ) -> Result<(TakenSandbox, SandboxSlot), String> {
        if self.claims.take(&owner.user).is_err() {
            return Err(
                "the user's sessions have asked for too many sandboxes\nhint: wait a minute".to_owned()
            );
        }
        let kernel = self.kernel(owner)?;
        let slot = self.quota.take(owner, kernel.most, &*self.claimer).await;
        let slot = slot.map_err(|refusal| match refusal {
            QuotaRefusal::Full => kernel.refusal(owner),
            QuotaRefusal::Unknown(why) => why,
        })?;
        let taken = self.claimer.claim(&kernel.pool, owner, report).await?;
        Ok((taken, slot))
    }

    async fn resume_for(
        &self,
        input: &mut (impl AsyncBufRead + Unpin),
        output: &mut (impl AsyncWrite + Unpin),
        claim: &str,
        owner: &SandboxOwner,
    ) -> io::Result<Option<HeldClaim>> {
        let resumed = tokio::select! {
            resumed = self.resume(claim, owner) => resumed?,
            ended = input.fill_buf() => return ended.map(|_| None),
        };
        match resumed {
            Ok(held) => {
                say(output, &SandboxAnswer::Resumed(claim)).await.ok();
                Ok(Some(held))
            }
            Err(why) => {
                tracing::warn!(user = %owner.user, ?why, "a session's claim is not kept any more");
                say(output, &SandboxAnswer::Refused(&why)).await.map(|()| None)
            }
        }
    }

    /// # Errors
    /// There is no such claim of the owner; an outer one if the cluster does not tell, and may later.
    async fn resume(&self, name: &str, owner: &SandboxOwner) -> io::Result<Result<HeldClaim, String>> {
        // A refusal would lose the sandbox.
        while let Err(pause) = self.claims.take(&owner.user) {
            tokio::time::sleep(pause).await;
        }
        let resumed = self.claimer.resume(name, owner).await.map_err(io::Error::other)?;
        let claim = resumed.ok_or_else(|| format!("there is no claim `{name}` of this user"));
        Ok(claim.map(|claim| HeldClaim { claim, slot: self.quota.resume(owner, name) }))
    }

    /// Answers what a session asks about its sandbox, until it has ended.
    async fn answer_until_end(
        &self,
        input: &mut (impl AsyncBufRead + Unpin),
        output: &mut (impl AsyncWrite + Unpin),
        claim: &dyn KeptClaim,
        user: &str,
    ) -> io::Result<()> {
        while let Some(question) = line(input, QUESTION_BYTES).await? {
            let (reports, mut said) = mpsc::channel(REPORTS);
            let report = report_to(reports);
            let answering = async {
                while let Err(pause) = self.questions.take(user) {
                    tokio::time::sleep(pause).await;
                }
                // A session of another version keeps its claim.
                let question = serde_json::from_slice(&question).map_err(|error| error.to_string())?;
                answer(claim, &question, &report).await
            };
            let Some(answered) = with_reports(input, output, &mut said, answering).await? else { break };
            match answered {
                Ok(answer) => say(output, &answer).await?,
                Err(why) => {
                    tracing::warn!(%user, ?why, "a question about a sandbox has no answer");
                    refuse(output, &why).await?;
                }
            }
        }
        Ok(())
    }

    fn kernel(&self, owner: &SandboxOwner) -> Result<&SandboxKernel, String> {
        self.kernels.get(&owner.kernel).ok_or_else(|| {
            let name = owner.kernel.as_deref().unwrap_or_default();
            let names: Vec<_> = self.kernels.keys().flatten().map(|name| format!("`{name}`")).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("the team server has no kernel of the name `{name}`; there is {there}")
        })
    }
}

impl SandboxKernel {
    fn refusal(&self, owner: &SandboxOwner) -> String {
        let Self { most, key, .. } = self;
        let kernel =
            owner.kernel.as_ref().map(|name| format!(" with the kernel `{name}`")).unwrap_or_default();
        format!(
            "the user has as many sandboxes{kernel} as `{key}` of the team server allows at a time: {most}\n\
             hint: end a session that has one, by `reset` with its name and `end=true`; or end it in its client"
        )
    }
}

/// The report that passes progress on, of which the next line tells more.
fn report_to(reports: mpsc::Sender<String>) -> impl Fn(&str) + Send + Sync {
    move |text| drop(reports.try_send(text.to_owned()))
}

/// Waits for an answer, and passes on what is reported meanwhile; `None` if the session waits no longer.
async fn with_reports<T>(
    input: &mut (impl AsyncBufRead + Unpin),
    output: &mut (impl AsyncWrite + Unpin),
    said: &mut mpsc::Receiver<String>,
    answering: impl Future<Output = T>,
) -> io::Result<Option<T>> {
    let mut answering = std::pin::pin!(answering);
    loop {
        tokio::select! {
            answer = &mut answering => return Ok(Some(answer)),
            Some(text) = said.recv() => say(output, &SandboxAnswer::Report(&text)).await?,
            ended = input.fill_buf() => return ended.map(|_| None),
        }
    }
}

async fn answer(
    claim: &dyn KeptClaim,
    question: &KeptQuestion,
    report: &ClaimReport,
) -> Result<SandboxAnswer<'static>, String> {
    Ok(match question {
        KeptQuestion::HasVolumes => SandboxAnswer::HasVolumes(claim.has_volumes().await?),
        KeptQuestion::Suspend => {
            claim.suspend().await?;
            SandboxAnswer::Suspended
        }
        KeptQuestion::Wake => claim.wake(report).await?.map_or(SandboxAnswer::Missing, SandboxAnswer::Awake),
        KeptQuestion::Gone(address) => SandboxAnswer::Gone(claim.gone(*address).await),
    })
}

/// Tells a session that its question is refused.
pub(crate) async fn refuse(output: &mut (impl AsyncWrite + Unpin), why: &str) -> io::Result<()> {
    say(output, &SandboxAnswer::Refused(why)).await
}

async fn say(output: &mut (impl AsyncWrite + Unpin), answer: &SandboxAnswer<'_>) -> io::Result<()> {
    let line = serde_json::to_string(answer)? + "\n";
    output.write_all(line.as_bytes()).await
}

/// The value of a label by which claims are those of the server at this URL: its host and port, or a hash if they cannot be one.
fn instance(resource: &SecureUrl) -> String {
    let url = resource.url();
    let mut name = url.host_str().unwrap_or_default().to_owned();
    if let Some(port) = url.port() {
        name.push_str(&format!("_{port}"));
    }
    let is_plain = |character: char| character.is_ascii_alphanumeric();
    let is_label = name.len() <= LABEL_CHARACTERS
        && name.starts_with(is_plain)
        && name.ends_with(is_plain)
        && name.chars().all(|character| is_plain(character) || matches!(character, '-' | '_' | '.'));
    if is_label {
        return name;
    }
    let hash = Sha256::digest(resource.as_str().as_bytes());
    hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether all users of the system can read a file.
fn is_open_to_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(file) = file.canonicalize() else { return false };
    let others = |path: &Path, right: u32| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & right != 0)
    };
    others(&file, 0o004) && file.ancestors().skip(1).all(|directory| others(directory, 0o001))
}
