//! The questions of sessions: each connection is a session's, for its user's own questions or for those to approvers.

use std::io;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::board::{ConnectionQuestions, NotWaiting, QuestionBoard, refusal_of};
use super::question::{AskedApproval, QuestionAsker, WaitingQuestion};
use super::webhook::ApprovalWebhook;
use crate::login::UserIdentity;
use crate::socket::line;
use crate::users::TeamAccount;

/// The longest line of a session, in bytes: longer questions are not shown.
const LINE_BYTES: usize = 1024 * 1024;
/// The number of answers that wait for a session that does not read.
const ANSWERS: usize = 64;

/// Hears the questions of sessions.
pub(crate) struct ApprovalHearing {
    pub(super) board: Arc<QuestionBoard>,
    pub(super) webhook: Option<Arc<ApprovalWebhook>>,
}

/// The session at the other end of a connection.
pub(crate) struct AskingSession {
    pub(crate) account: TeamAccount,
    pub(crate) session: String,
}

/// A message of a session about questions to approvers.
#[derive(Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
enum ApproverMessage {
    Ask(Box<AskedApproval>),
    Withdraw { question: String },
    Taken { question: String },
}

impl ApprovalHearing {
    /// Hears questions to approvers.
    pub(crate) async fn hear_approvals(
        &self,
        input: impl AsyncBufRead + Unpin,
        output: impl AsyncWrite + Unpin,
        session: AskingSession,
    ) -> io::Result<()> {
        let (session, said) = ConnectedSession::of(session);
        talk(self.ask_approvers(input, session), output, said).await
    }

    /// Hears the questions to the session's own user, among all that a session tells a page.
    pub(crate) async fn hear_own(
        &self,
        input: impl AsyncBufRead + Unpin,
        output: impl AsyncWrite + Unpin,
        session: AskingSession,
    ) -> io::Result<()> {
        let (session, said) = ConnectedSession::of(session);
        talk(self.ask_user(input, session), output, said).await
    }

    async fn ask_approvers(
        &self,
        mut input: impl AsyncBufRead + Unpin,
        session: ConnectedSession,
    ) -> io::Result<()> {
        let mut questions = ConnectionQuestions::of(&self.board);
        while let Some(words) = line(&mut input, LINE_BYTES).await? {
            match serde_json::from_slice(&words)? {
                ApproverMessage::Ask(asked) => {
                    let id = asked.question.clone();
                    let asked = self.board.as_asked(*asked);
                    let added =
                        asked.and_then(|asked| questions.add(id.clone(), session.to_approvers(asked)));
                    match added {
                        Ok(question) => {
                            if let Some(webhook) = &self.webhook {
                                webhook.announce(&question);
                            }
                        }
                        Err(NotWaiting::Decided(answer)) => session.tell(answer).await,
                        Err(NotWaiting::Refused(why)) => session.tell(refusal_of(&id, &why)).await,
                    }
                }
                ApproverMessage::Withdraw { question } => questions.end(&question, "taken back"),
                ApproverMessage::Taken { question } => {
                    tracing::debug!(%question, "a session has taken a decision");
                }
            }
        }
        Ok(())
    }

    async fn ask_user(
        &self,
        mut input: impl AsyncBufRead + Unpin,
        session: ConnectedSession,
    ) -> io::Result<()> {
        let mut questions = ConnectionQuestions::of(&self.board);
        session.tell(json!({"say": "ask_all"})).await;
        while let Some(words) = line(&mut input, LINE_BYTES).await? {
            let mut message: Map<String, Value> = serde_json::from_slice(&words)?;
            let number = message.get("question").and_then(Value::as_u64).unwrap_or_default().to_string();
            match message.get("hear").and_then(Value::as_str) {
                Some("question") => {
                    if let Some(question) = session.to_asker(std::mem::take(&mut message))
                        && let Err(NotWaiting::Refused(why)) = questions.add(number, question)
                    {
                        tracing::debug!(%why, "a question is not shown");
                    }
                }
                Some("decided") => {
                    let how = message.get("how").and_then(Value::as_str).unwrap_or("decided");
                    questions.end(&number, how);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The session, and what is said to it.
struct ConnectedSession {
    asker: QuestionAsker,
    session: String,
    answers: mpsc::Sender<Value>,
}

impl ConnectedSession {
    fn of(AskingSession { account, session }: AskingSession) -> (Self, mpsc::Receiver<Value>) {
        let identity = UserIdentity { issuer: account.issuer, subject: account.subject };
        let asker = QuestionAsker { key: account.key, name: account.name, identity };
        let (answers, said) = mpsc::channel(ANSWERS);
        (Self { asker, session, answers }, said)
    }

    fn to_approvers(&self, asked: AskedApproval) -> WaitingQuestion {
        let answers = self.answers.clone();
        WaitingQuestion::to_approvers(asked, self.asker.clone(), self.session.clone(), answers)
    }

    fn to_asker(&self, message: Map<String, Value>) -> Option<WaitingQuestion> {
        let answers = self.answers.clone();
        WaitingQuestion::to_asker(message, self.asker.clone(), self.session.clone(), answers)
    }

    async fn tell(&self, message: Value) {
        // It fails if the connection has ended.
        self.answers.send(message).await.ok();
    }
}

/// Hears a session and speaks to it, until one of both ends.
async fn talk(
    heard: impl Future<Output = io::Result<()>>,
    output: impl AsyncWrite + Unpin,
    said: mpsc::Receiver<Value>,
) -> io::Result<()> {
    tokio::select! {
        heard = heard => heard,
        written = say(output, said) => written,
    }
}

async fn say(mut output: impl AsyncWrite + Unpin, mut said: mpsc::Receiver<Value>) -> io::Result<()> {
    while let Some(message) = said.recv().await {
        output.write_all(format!("{message}\n").as_bytes()).await?;
    }
    Ok(())
}
