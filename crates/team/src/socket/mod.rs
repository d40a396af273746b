//! The socket at which sessions ask the server: about decisions, for tokens of their user, and for what a login has brought.
//!
//! A session connects, and says by a token whose it is. So a new server needs to know none of them.

mod tokens;

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

pub(crate) use self::tokens::SessionTokens;
use crate::approvals::{ApprovalHearing, AskingSession};
use crate::hub::TeamHub;
use crate::sandboxes::{self, TeamSandboxes};
use crate::upstream::{LoginCallbacks, UpstreamServers};
use crate::users::{TeamAccount, UserAccounts};

/// The longest greeting, in bytes.
const GREETING_BYTES: usize = 4 * 1024;
/// The time that a greeting may take.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// The number of connections at a time: four for each session, and one for each of its sandboxes.
const CONNECTIONS: usize = 4096;
/// The number of connections of one user at a time.
const CONNECTIONS_OF_USER: usize = 256;

/// Hears sessions.
pub(crate) struct SessionSocket {
    listener: UnixListener,
    hearing: Arc<SessionHearing>,
}

/// The parts of the server that hear sessions.
pub(crate) struct SessionHearing {
    pub(crate) tokens: Arc<SessionTokens>,
    pub(crate) places: UserPlaces,
    pub(crate) accounts: Arc<UserAccounts>,
    pub(crate) approvals: Option<ApprovalHearing>,
    pub(crate) upstream: Option<Arc<UpstreamServers>>,
    pub(crate) callbacks: Arc<LoginCallbacks>,
    pub(crate) hub: Option<Arc<TeamHub>>,
    pub(crate) sandboxes: Option<Arc<TeamSandboxes>>,
}

/// The places for connections that each user has.
#[derive(Default)]
pub(crate) struct UserPlaces(Mutex<HashMap<String, Arc<Semaphore>>>);

impl UserPlaces {
    /// A place for another connection of the user with this key.
    fn take(&self, user: &str) -> io::Result<OwnedSemaphorePermit> {
        let new = || Arc::new(Semaphore::new(CONNECTIONS_OF_USER));
        let places = Arc::clone(self.0.lock().entry(user.to_owned()).or_insert_with(new));
        places.try_acquire_owned().map_err(|_| io::Error::other("the user has too many connections"))
    }
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
    Upstream,
    Login,
    Hub,
    Sandbox,
}

/// The files by which sessions reach the server.
pub(crate) struct SocketFiles {
    directory: PathBuf,
}

impl SocketFiles {
    pub(crate) fn of(accounts: &UserAccounts) -> Self {
        Self { directory: accounts.approvals() }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// The file with the servers that users reach as themselves.
    pub(crate) fn upstream(&self) -> PathBuf {
        self.directory.join("upstream.json")
    }

    pub(crate) fn tokens(&self) -> io::Result<SessionTokens> {
        SessionTokens::open(&self.directory.join("secret"))
    }
}

impl SessionSocket {
    /// Listens where sessions connect.
    pub(crate) fn open(path: &Path, hearing: SessionHearing) -> io::Result<Self> {
        Ok(Self { listener: listen(path)?, hearing: Arc::new(hearing) })
    }

    /// Hears sessions until `stop` is cancelled.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let (Ok((stream, _)), Ok(place)) = (accepted, Arc::clone(&places).try_acquire_owned()) else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let hearing = Arc::clone(&self.hearing);
            let stop = stop.clone();
            tokio::spawn(async move {
                let heard = tokio::select! {
                    heard = hearing.hear(stream) => heard,
                    () = stop.cancelled() => Ok(()),
                };
                if let Err(error) = heard {
                    tracing::debug!(%error, "a session's connection has ended");
                }
                drop(place);
            });
        }
    }
}

impl SessionHearing {
    async fn hear(&self, stream: UnixStream) -> io::Result<()> {
        let peer = stream.peer_cred()?.uid();
        let (input, mut output) = stream.into_split();
        let mut input = BufReader::new(input);
        let first = line(&mut input, GREETING_BYTES);
        let first = tokio::time::timeout(GREETING_TIME, first).await??.unwrap_or_default();
        let SessionGreeting { want, token, session } = serde_json::from_slice(&first)?;
        let account = self.account(&token, peer)?;
        let _place = self.places.take(&account.key)?;
        let absent =
            || io::Error::new(io::ErrorKind::Unsupported, "the server's configuration has it no more");
        match want {
            ConnectionUse::Approvers | ConnectionUse::OwnPage => {
                let approvals = self.approvals.as_ref().ok_or_else(absent)?;
                let session = AskingSession { account, session };
                match want {
                    ConnectionUse::OwnPage => approvals.hear_own(input, output, session).await,
                    _ => approvals.hear_approvals(input, output, session).await,
                }
            }
            ConnectionUse::Upstream => {
                let upstream = self.upstream.as_ref().ok_or_else(absent)?;
                upstream.hear(input, output, &account).await
            }
            ConnectionUse::Hub => {
                let hub = self.hub.as_ref().ok_or_else(absent)?;
                hub.hear(input, output, &account).await
            }
            ConnectionUse::Sandbox => match &self.sandboxes {
                Some(sandboxes) => sandboxes.hear(input, output, &account).await,
                // Else the session would wait for another server.
                None => sandboxes::refuse(&mut output, "the team server has no pools any more").await,
            },
            ConnectionUse::Login => self.callbacks.hear(input, output, account).await,
        }
    }

    /// The user whose token a process shows, which is the user's.
    fn account(&self, token: &str, peer: u32) -> io::Result<TeamAccount> {
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "no session of a user");
        let key = self.tokens.user(token).ok_or_else(refused)?;
        let account = self.accounts.account(key)?;
        if account.id.is_some_and(|id| id != peer) { Err(refused()) } else { Ok(account) }
    }
}

/// Listens where sessions connect. Each needs a token: whoever can reach the path can connect.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// The next line, without its end; `None` at the end. A longer one is left out: the next one is returned.
pub(crate) async fn line(
    input: &mut (impl AsyncBufRead + Unpin),
    most: usize,
) -> io::Result<Option<Vec<u8>>> {
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
