//! The socket at which sessions ask: each connection is a session's, for its user's own questions or for those to approvers.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::board::{ConnectionQuestions, NotWaiting, QuestionBoard};
use super::question::{AskedApproval, QuestionAsker, WaitingQuestion};
use super::tokens::SessionTokens;
use super::webhook::ApprovalWebhook;
use crate::login::UserIdentity;
use crate::users::UserAccounts;

/// The longest line of a session, in bytes: longer questions are not shown.
const LINE_BYTES: usize = 1024 * 1024;
/// The longest greeting, in bytes.
const GREETING_BYTES: usize = 4 * 1024;
/// The time that a greeting may take.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// The number of connections at a time: two for each session.
const CONNECTIONS: usize = 4096;
/// The number of answers that wait for a session that does not read.
const ANSWERS: usize = 64;

/// Hears sessions.
pub(crate) struct ApprovalSocket {
    pub(crate) board: Arc<QuestionBoard>,
    pub(crate) tokens: Arc<SessionTokens>,
    pub(crate) accounts: Arc<UserAccounts>,
    pub(crate) webhook: Option<Arc<ApprovalWebhook>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionGreeting {
    want: ConnectionUse,
    token: String,
    session: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ConnectionUse {
    Approvers,
    OwnPage,
}

/// A message of a session about questions to approvers.
#[derive(Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
enum ApproverMessage {
    Ask(Box<AskedApproval>),
    Withdraw { question: String },
    Taken { question: String },
}

/// Listens where sessions connect. Each needs a token: whoever can reach the path can connect.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

impl ApprovalSocket {
    /// Hears sessions until `stop` is cancelled.
    pub(crate) async fn serve(self: Arc<Self>, listener: UnixListener, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let (Ok((stream, _)), Ok(place)) = (accepted, Arc::clone(&places).try_acquire_owned()) else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let socket = Arc::clone(&self);
            let stop = stop.clone();
            tokio::spawn(async move {
                let heard = tokio::select! {
                    heard = socket.hear(stream) => heard,
                    () = stop.cancelled() => Ok(()),
                };
                if let Err(error) = heard {
                    tracing::debug!(%error, "a session's connection for decisions has ended");
                }
                drop(place);
            });
        }
    }

    async fn hear(&self, stream: UnixStream) -> io::Result<()> {
        let peer = stream.peer_cred()?.uid();
        let (input, output) = stream.into_split();
        let mut input = BufReader::new(input);
        let first = line(&mut input, GREETING_BYTES);
        let first = tokio::time::timeout(GREETING_TIME, first).await??.unwrap_or_default();
        let SessionGreeting { want, token, session } = serde_json::from_slice(&first)?;
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "no session of a user");
        let key = self.tokens.user(&token).ok_or_else(refused)?;
        let account = self.accounts.account(key)?;
        if account.id.is_some_and(|id| id != peer) {
            return Err(refused());
        }
        let identity = UserIdentity { issuer: account.issuer, subject: account.subject };
        let asker = QuestionAsker { key: account.key, name: account.name, identity };
        let (answers, said) = mpsc::channel(ANSWERS);
        let session = AskingSession { asker, session, answers };
        let hearing = async {
            match want {
                ConnectionUse::Approvers => self.hear_approvals(input, session).await,
                ConnectionUse::OwnPage => self.hear_own(input, session).await,
            }
        };
        tokio::select! {
            heard = hearing => heard,
            written = say(output, said) => written,
        }
    }

    /// Hears questions to approvers.
    async fn hear_approvals(
        &self,
        mut input: impl AsyncBufRead + Unpin,
        session: AskingSession,
    ) -> io::Result<()> {
        let mut questions = ConnectionQuestions::of(&self.board);
        while let Some(words) = line(&mut input, LINE_BYTES).await? {
            match serde_json::from_slice(&words)? {
                ApproverMessage::Ask(asked) => {
                    let id = asked.question.clone();
                    match questions.add(id.clone(), session.to_approvers(*asked)) {
                        Ok(question) => {
                            if let Some(webhook) = &self.webhook {
                                webhook.announce(&question);
                            }
                        }
                        Err(NotWaiting::Decided(answer)) => session.tell(answer).await,
                        Err(NotWaiting::Refused(why)) => {
                            session.tell(json!({"hear": "refused", "question": id, "why": why})).await;
                        }
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

    /// Hears the questions to the session's own user, among all that a session tells a page.
    async fn hear_own(&self, mut input: impl AsyncBufRead + Unpin, session: AskingSession) -> io::Result<()> {
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

/// The session at the other end of a connection.
struct AskingSession {
    asker: QuestionAsker,
    session: String,
    answers: mpsc::Sender<Value>,
}

impl AskingSession {
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

/// The next line, without its end; `None` at the end. A longer one is left out: the next one is returned.
async fn line(input: &mut (impl AsyncBufRead + Unpin), most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let part = input.fill_buf().await?;
        if part.is_empty() {
            return Ok(None);
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = &part[..end.unwrap_or(part.len())];
        is_too_long |= line.len() + taken.len() > most;
        if !is_too_long {
            line.extend_from_slice(taken);
        }
        let used = end.map_or(part.len(), |end| end + 1);
        input.consume(used);
        match end {
            Some(_) if is_too_long => (line, is_too_long) = (Vec::new(), false),
            Some(_) => return Ok(Some(line)),
            None => {}
        }
    }
}

async fn say(mut output: impl AsyncWrite + Unpin, mut said: mpsc::Receiver<Value>) -> io::Result<()> {
    while let Some(message) = said.recv().await {
        output.write_all(format!("{message}\n").as_bytes()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_that_are_too_long_are_left_out() {
        let mut input = BufReader::with_capacity(4, "ab\n0123456789\n\nabcde\nhalf".as_bytes());
        let mut lines = Vec::new();
        while let Some(line) = line(&mut input, 5).await.unwrap() {
            lines.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(lines, ["ab", "", "abcde"]);
    }
}
