//! The token of a JupyterHub's user, which the server of a team makes for one session of that user.
//!
//! The session asks for it when it needs one, by a connection that it keeps: the server takes the token back when that ends.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use http::header::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::ground::files::{ConnectionUse, FrontSocket};
use crate::ground::text::{Redactor, plain};

/// The time that the server may take: it asks the Hub a few times.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest answer, in bytes.
const ANSWER_BYTES: u64 = 64 * 1024;

/// The part of a token's life, one in so many, for which it is not shown any more if there can be another.
const RENEWED_PART: u32 = 6;

/// The source of a token, as a redacted text names it.
const SOURCE: &str = "token of the JupyterHub";

/// The tokens of one user of a Hub, one after the other. `Debug` shows none.
pub(crate) struct FrontHubToken {
    /// The user's name at the Hub.
    user: String,
    /// The server that gives them, once the session has one.
    front: OnceLock<FrontSocket>,
    redactor: Redactor,
    held: Mutex<HeldHubToken>,
}

#[derive(Default)]
struct HeldHubToken {
    connection: Option<FrontConnection>,
    token: Option<ShownToken>,
}

/// A connection to the server, which takes the tokens back that it has given there when it ends.
struct FrontConnection {
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
}

/// A token in the form of the header `Authorization`.
struct ShownToken {
    header: HeaderValue,
    renewed_at: Instant,
    ends_at: Instant,
}

#[derive(Serialize)]
struct HubTokenQuestion<'a> {
    user: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum HubTokenAnswer {
    Token { token: String, seconds: u64 },
    Refused(String),
}

impl FrontHubToken {
    pub(crate) fn new(user: String, redactor: Redactor) -> Self {
        Self { user, front: OnceLock::new(), redactor, held: Mutex::default() }
    }

    /// Has the server at this socket give the tokens.
    pub(crate) fn ask_at(&self, front: FrontSocket) {
        // A session has one server, to its end.
        self.front.set(front).ok();
    }

    /// The header `Authorization`, with a token that is valid for a while.
    ///
    /// # Errors
    /// There is none: the reason, in words.
    pub(super) async fn header(&self) -> Result<HeaderValue, String> {
        let mut held = self.held.lock().await;
        let now = Instant::now();
        let shown = held.token.as_ref().filter(|token| now < token.ends_at);
        let shown = shown.map(|token| (token.header.clone(), now < token.renewed_at));
        match shown {
            Some((header, true)) => Ok(header),
            Some((header, false)) => Ok(self.next(&mut held).await.unwrap_or_else(|why| {
                tracing::warn!(%why, "the token of the JupyterHub is not renewed, and used until it expires");
                header
            })),
            None => self.next(&mut held).await,
        }
    }

    /// The header with another token than this one, which was refused.
    ///
    /// # Errors
    /// See [`header`](Self::header).
    pub(super) async fn after(&self, refused: &HeaderValue) -> Result<HeaderValue, String> {
        let mut held = self.held.lock().await;
        match &held.token {
            // Another request was refused before.
            Some(token) if token.header != *refused => Ok(token.header.clone()),
            _ => {
                held.token = None;
                self.next(&mut held).await
            }
        }
    }

    async fn next(&self, held: &mut HeldHubToken) -> Result<HeaderValue, String> {
        let front = self.front.get().ok_or("this is no session of a team server, which alone has it")?;
        let begun = Instant::now();
        let had_connection = held.connection.is_some();
        let mut answer = self.ask(front, held).await;
        // The server was restarted since the last question.
        if answer.is_err() && had_connection {
            answer = self.ask(front, held).await;
        }
        let answer = answer.map_err(|error| format!("the team server cannot be asked for it: {error}"))?;
        let (text, life) = match answer {
            HubTokenAnswer::Token { token, seconds } => (token, Duration::from_secs(seconds)),
            HubTokenAnswer::Refused(why) => return Err(plain(&why)),
        };
        self.redactor.note(SOURCE, &text);
        let header = HeaderValue::from_str(&format!("token {text}"));
        let mut header = header.map_err(|_| "the team server gives one that no header can hold")?;
        header.set_sensitive(true);
        held.token = Some(ShownToken {
            header: header.clone(),
            renewed_at: begun + life - life / RENEWED_PART,
            ends_at: begun + life,
        });
        Ok(header)
    }

    async fn ask(&self, front: &FrontSocket, held: &mut HeldHubToken) -> io::Result<HubTokenAnswer> {
        // A connection on which something has failed is not used again.
        let open = held.connection.take();
        let asking = async {
            let mut connection = match open {
                Some(open) => open,
                None => {
                    let (input, output) = front.connect(ConnectionUse::Hub).await?;
                    FrontConnection { input, output }
                }
            };
            let question = serde_json::to_string(&HubTokenQuestion { user: &self.user })?;
            connection.output.write_all(format!("{question}\n").as_bytes()).await?;
            let mut answer = Vec::new();
            (&mut connection.input).take(ANSWER_BYTES).read_until(b'\n', &mut answer).await?;
            if answer.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it gives no answer"));
            }
            Ok((connection, serde_json::from_slice(&answer)?))
        };
        let asked = tokio::time::timeout(PATIENCE, asking).await;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time");
        let (connection, answer) = asked.map_err(late)??;
        held.connection = Some(connection);
        Ok(answer)
    }
}

impl std::fmt::Debug for FrontHubToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FrontHubToken").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// A server that gives token after token, of so many seconds, and hangs up after so many.
    async fn give(listener: &UnixListener, first: usize, count: usize, seconds: u64) {
        let (stream, _) = listener.accept().await.unwrap();
        let (input, mut output) = stream.into_split();
        let mut lines = BufReader::new(input).lines();
        let greeting = lines.next_line().await.unwrap().unwrap();
        assert!(greeting.contains(r#""want":"hub""#), "{greeting}");
        for number in first..first + count {
            assert_eq!(lines.next_line().await.unwrap().unwrap(), r#"{"user":"ann"}"#);
            let answer = format!("{{\"token\":{{\"token\":\"t{number}\",\"seconds\":{seconds}}}}}\n");
            output.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    fn token_at(path: &std::path::Path) -> FrontHubToken {
        let token = FrontHubToken::new("ann".to_owned(), Redactor::default());
        token.ask_at(FrontSocket {
            path: path.to_owned(),
            token: "of the session".to_owned(),
            session: "0123abcd".to_owned(),
            callback: String::new(),
            publishers: None,
        });
        token
    }

    /// Has time pass.
    async fn pass(seconds: u64) {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn a_token_is_used_until_shortly_before_its_end_and_longer_only_if_there_is_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let token = token_at(&path);
        let giving = tokio::spawn(async move { give(&listener, 1, 2, 3600).await });
        assert_eq!(token.header().await.unwrap(), "token t1");
        pass(2900).await;
        assert_eq!(token.header().await.unwrap(), "token t1");
        pass(200).await;
        assert_eq!(token.header().await.unwrap(), "token t2");
        giving.await.unwrap();
        // Nobody listens any more.
        pass(3100).await;
        assert_eq!(token.header().await.unwrap(), "token t2");
        pass(600).await;
        let error = token.header().await.unwrap_err();
        assert!(error.contains("the team server cannot be asked"), "{error}");
    }

    #[tokio::test]
    async fn another_token_is_asked_for_once_when_one_is_refused_also_of_a_new_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let token = token_at(&path);
        let giving = tokio::spawn(async move {
            give(&listener, 1, 2, 3600).await;
            give(&listener, 3, 1, 3600).await;
        });
        let first = token.header().await.unwrap();
        let second = token.after(&first).await.unwrap();
        assert_eq!((&first, &second), (&"token t1".parse().unwrap(), &"token t2".parse().unwrap()));
        assert_eq!(token.after(&first).await.unwrap(), second);
        assert_eq!(token.after(&second).await.unwrap(), "token t3");
        assert!(!format!("{token:?}").contains("t3"));
        giving.await.unwrap();
    }

    #[tokio::test]
    async fn the_reason_of_a_refusal_is_told_without_control_characters() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let token = token_at(&path);
        let refusing = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"{\"refused\":\"no \\u001b[31muser\"}\n").await.unwrap();
            stream
        });
        assert_eq!(token.header().await.unwrap_err(), "no user");
        drop(refusing.await.unwrap());
        let alone = FrontHubToken::new("ann".to_owned(), Redactor::default());
        assert!(alone.header().await.unwrap_err().contains("no session of a team server"));
    }
}
