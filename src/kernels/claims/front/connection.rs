//! The lines between a session and the server of its team about one sandbox. The server's half is in `crates/team/src/sandboxes`.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::ground::files::{ConnectionUse, FrontSocket};
use crate::ground::text::plain;

/// The time that the server may take to delete a claim. It goes on with it afterwards.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest answer, in bytes.
const ANSWER_BYTES: u64 = 64 * 1024;

/// The first question of a connection.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SandboxQuestion<'a> {
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

/// A further question, about the sandbox whose claim is kept.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeptQuestion {
    HasVolumes,
    Suspend,
    Wake,
    /// Is the pod at this address gone?
    Gone(IpAddr),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SandboxAnswer {
    Report(String),
    Sandbox(ClaimedPlace),
    /// The name of the claim that is kept again.
    Resumed(String),
    HasVolumes(bool),
    Suspended,
    /// The address of the pod.
    Awake(IpAddr),
    /// Why the pod is gone, if that is known.
    Gone(Option<String>),
    /// There is no such sandbox any more.
    Missing,
    Refused(String),
}

#[derive(Deserialize)]
pub(super) struct ClaimedPlace {
    pub(super) claim: String,
    pub(super) sandbox: String,
    pub(super) namespace: String,
    pub(super) address: IpAddr,
}

/// A connection to the server, which keeps the claim that was made there as long as it is open.
pub(super) struct FrontConnection {
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
}

impl FrontConnection {
    /// Asks the first question, and waits for its last answer.
    pub(super) async fn open(
        front: &FrontSocket,
        question: &SandboxQuestion<'_>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> io::Result<(Self, SandboxAnswer)> {
        let (input, output) = front.connect(ConnectionUse::Sandbox).await?;
        let mut connection = Self { input, output };
        let answer = connection.ask(question, report).await?;
        Ok((connection, answer))
    }

    /// Asks, and waits for the last answer.
    pub(super) async fn ask(
        &mut self,
        question: &impl Serialize,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> io::Result<SandboxAnswer> {
        let question = serde_json::to_string(question)? + "\n";
        self.output.write_all(question.as_bytes()).await?;
        loop {
            let mut answer = Vec::new();
            (&mut self.input).take(ANSWER_BYTES).read_until(b'\n', &mut answer).await?;
            if answer.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it gives no answer"));
            }
            match serde_json::from_slice(&answer) {
                Ok(SandboxAnswer::Report(text)) => report(&plain(&text)),
                Ok(last) => return Ok(last),
                // A server of another version, which keeps the claim nevertheless.
                Err(error) => {
                    return Ok(SandboxAnswer::Refused(format!("the team server's answer: {error}")));
                }
            }
        }
    }

    /// Waits for the end of the connection: unasked, the server says nothing more. Cancellation safe.
    pub(super) async fn until_end(&mut self) {
        let mut rest = [0; 64];
        while self.input.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    }

    /// Has the server delete the claim, and waits until it has done so: a further one may need its place.
    pub(super) async fn close(mut self) {
        // The server may have ended at the same time.
        self.output.shutdown().await.ok();
        if tokio::time::timeout(RELEASE_TIMEOUT, self.until_end()).await.is_err() {
            tracing::warn!("the team server takes long to delete a claim");
        }
    }
}
