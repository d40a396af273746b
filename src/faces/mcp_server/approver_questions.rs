//! The questions of a session to approvers, as lines of JSON for the server that asks them.
//!
//! ```text
//! gate ─→ questions ══ connection ══ `ipybox team` ─→ approvers
//! ```
//!
//! A question outlives its connection: a later one is asked the same, by the same id.

use std::collections::BTreeMap;
use std::io;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::codec::{FramedRead, LinesCodec};

use super::streams::ClientStreams;
use crate::approval::{ApproverDecision, ApproverQuestion, ApproverReply};
use crate::faces::people::ShownCall;
use crate::ground::files::{ConnectionUse, FrontSocket};

/// The longest question, in bytes: nobody reads more.
const QUESTION_BYTES: usize = 512 * 1024;

/// The time between two tries to connect.
const RETRY: Duration = Duration::from_millis(500);

/// The longest line of the server, in bytes.
const LINE_BYTES: usize = 64 * 1024;

/// The questions that wait for approvers.
pub(crate) struct ApproverQuestions {
    asked: mpsc::Receiver<ApproverQuestion>,
    open: BTreeMap<String, OpenApproval>,
}

/// A question that no approver has answered.
struct OpenApproval {
    question: SentQuestion,
    until: Instant,
    answer: oneshot::Sender<ApproverReply>,
}

/// A message to the server.
#[derive(Serialize)]
#[serde(tag = "say", rename_all = "snake_case")]
enum ApproverMessage<'a> {
    /// Somebody has to decide about this.
    Ask {
        #[serde(flatten)]
        question: &'a SentQuestion,
        /// The time that is left.
        left_ms: u64,
    },
    /// Nobody waits for the answer.
    Withdraw { question: &'a str },
    /// The answer has come, and counts.
    Taken { question: &'a str },
}

#[derive(Serialize)]
struct SentQuestion {
    question: String,
    approvers: Vec<String>,
    includes_user: bool,
    rule: String,
    call: ShownCall,
}

/// A message of the server.
#[derive(Deserialize)]
#[serde(tag = "hear", rename_all = "snake_case")]
enum ServerMessage {
    /// An approver has decided.
    Answer {
        question: String,
        is_allowed: bool,
        by: String,
        #[serde(default)]
        undone: Option<String>,
    },
    /// Nobody is asked.
    Refused { question: String, why: String },
}

/// The next thing that happens to the questions.
enum NextEvent {
    Asked(Box<ApproverQuestion>),
    Over(String),
    Heard(ServerMessage),
    Ended,
}

impl ApproverQuestions {
    /// Those that come by `asked`.
    pub(super) fn new(asked: mpsc::Receiver<ApproverQuestion>) -> Self {
        Self { asked, open: BTreeMap::new() }
    }

    /// Asks at the socket of the server as long as this is polled. Never resolves.
    pub(crate) async fn ask_at(mut self, socket: &FrontSocket) {
        loop {
            // Who asks nothing needs no connection.
            self.wait().await;
            let asked = match socket.connect(ConnectionUse::Approvers).await {
                Ok((input, output)) => self.serve(ClientStreams { input, output }).await,
                Err(error) => Err(error),
            };
            if let Err(error) = asked {
                tracing::debug!(%error, "approvers cannot be asked now");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Waits until a question waits. Never resolves when the session has ended.
    async fn wait(&mut self) {
        self.open.retain(|_, open| !open.answer.is_closed());
        while self.open.is_empty() {
            match self.asked.recv().await {
                Some(question) => drop(self.add(question)),
                None => return std::future::pending().await,
            }
        }
    }

    /// Asks by a connection, until no question waits or the connection ends.
    async fn serve<R, W>(
        &mut self,
        ClientStreams { input, mut output }: ClientStreams<R, W>,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut lines = FramedRead::new(input, LinesCodec::new_with_max_length(LINE_BYTES));
        for open in self.open.values() {
            say(&mut output, &open.message()).await?;
        }
        while !self.open.is_empty() {
            let next = tokio::select! {
                Some(question) = self.asked.recv() => NextEvent::Asked(Box::new(question)),
                id = over(&mut self.open) => NextEvent::Over(id),
                line = lines.next() => match line {
                    Some(line) => NextEvent::Heard(serde_json::from_str(&line.map_err(io::Error::other)?)?),
                    None => NextEvent::Ended,
                },
            };
            match next {
                NextEvent::Asked(question) => {
                    let added = self.add(*question);
                    if let Some(open) = added.and_then(|id| self.open.get(&id)) {
                        say(&mut output, &open.message()).await?;
                    }
                }
                NextEvent::Over(id) => {
                    self.open.remove(&id);
                    say(&mut output, &ApproverMessage::Withdraw { question: &id }).await?;
                }
                NextEvent::Heard(heard) => {
                    if let Some(id) = self.take(heard) {
                        say(&mut output, &ApproverMessage::Taken { question: &id }).await?;
                    }
                }
                NextEvent::Ended => return Ok(()),
            }
        }
        Ok(())
    }

    /// Adds a question; its id, if it can be asked.
    fn add(&mut self, asked: ApproverQuestion) -> Option<String> {
        let ApproverQuestion { action, approvers, rule, until, answer } = asked;
        let question = SentQuestion {
            question: uuid::Uuid::new_v4().to_string(),
            approvers: approvers.names.clone(),
            includes_user: approvers.includes_user,
            rule: rule.as_deref().unwrap_or_default().to_owned(),
            call: ShownCall::of(&action),
        };
        if serde_json::to_vec(&question).map_or(usize::MAX, |json| json.len()) > QUESTION_BYTES {
            let why = "the call is too long to be shown; pass fewer values, or hand over a file".to_owned();
            // The gate waits for it, or nobody does.
            answer.send(ApproverReply::Unasked(why)).ok();
            return None;
        }
        let id = question.question.clone();
        self.open.insert(id.clone(), OpenApproval { question, until, answer });
        Some(id)
    }

    /// Takes what the server says; the id of a question whose answer counts.
    fn take(&mut self, heard: ServerMessage) -> Option<String> {
        let (id, reply) = match heard {
            ServerMessage::Answer { question, is_allowed, by, undone } => {
                let decision = ApproverDecision { by, question: question.clone(), undone };
                (question, ApproverReply::Decided { is_allowed, decision })
            }
            ServerMessage::Refused { question, why } => (question, ApproverReply::Unasked(why)),
        };
        let open = self.open.remove(&id)?;
        open.answer.send(reply).is_ok().then_some(id)
    }
}

impl OpenApproval {
    fn message(&self) -> ApproverMessage<'_> {
        let left = self.until.saturating_duration_since(Instant::now()).as_millis();
        let left_ms = u64::try_from(left).unwrap_or(u64::MAX);
        ApproverMessage::Ask { question: &self.question, left_ms }
    }
}

/// Waits until nobody waits for the answer to a question; its id.
async fn over(open: &mut BTreeMap<String, OpenApproval>) -> String {
    std::future::poll_fn(|context| {
        let over =
            open.iter_mut().find_map(|(id, open)| open.answer.poll_closed(context).is_ready().then_some(id));
        over.map_or(Poll::Pending, |id| Poll::Ready(id.clone()))
    })
    .await
}

async fn say(output: &mut (impl AsyncWrite + Unpin), message: &ApproverMessage<'_>) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line).await
}
