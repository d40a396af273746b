//! The connections of a kept session to the server of its team, by which people decide away from the session's client.
//!
//! The session connects: the server may be started anew, and never has to look for sessions. What waited then is asked again.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::sync::CancellationToken;

use super::greeting::line;
use crate::faces::mcp_server::{ApproverQuestions, ClientStreams, ServedSession};

/// The time between two tries to connect.
const RETRY: Duration = Duration::from_millis(500);

/// The socket of the server, and the session's token for it.
#[derive(Debug, Clone)]
pub(super) struct FrontSocket {
    pub(super) path: PathBuf,
    pub(super) token: String,
}

/// A session's purpose of a connection.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum ConnectionUse {
    /// Questions to approvers whom rules name.
    Approvers,
    /// The user's own page: the session speaks as to any page.
    OwnPage,
}

#[derive(Serialize)]
struct ApprovalGreeting<'a> {
    want: ConnectionUse,
    token: &'a str,
    session: &'a str,
}

impl FrontSocket {
    async fn connect(
        &self,
        want: ConnectionUse,
        session: &str,
    ) -> io::Result<ClientStreams<BufReader<OwnedReadHalf>, OwnedWriteHalf>> {
        let stream = UnixStream::connect(&self.path).await?;
        // Where users have ids of their own, no program of this one can listen there.
        let peer = stream.peer_cred()?.uid();
        if peer != 0 && peer != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
        }
        let (input, mut output) = stream.into_split();
        output.write_all(&line(&ApprovalGreeting { want, token: &self.token, session })?).await?;
        Ok(ClientStreams { input: BufReader::new(input), output })
    }
}

/// A kept session that has people decide by the server of its team.
pub(super) struct FacingSession<'a> {
    pub(super) serving: &'a ServedSession,
    pub(super) id: String,
    pub(super) socket: FrontSocket,
    pub(super) stop: CancellationToken,
}

impl FacingSession<'_> {
    /// Has people decide as long as this is polled. Never resolves.
    pub(super) async fn face_server(&self) {
        // There is one such line, and this is it.
        let Some(questions) = self.serving.approver_questions() else { return std::future::pending().await };
        tokio::join!(self.ask_approvers(questions), self.show_own_page());
    }

    async fn ask_approvers(&self, mut questions: ApproverQuestions) {
        loop {
            // A session that asks nothing needs no connection.
            questions.wait().await;
            let asked = match self.socket.connect(ConnectionUse::Approvers, &self.id).await {
                Ok(streams) => questions.serve(streams).await,
                Err(error) => Err(error),
            };
            if let Err(error) = asked {
                tracing::debug!(%error, "approvers cannot be asked now");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn show_own_page(&self) {
        loop {
            let shown = match self.socket.connect(ConnectionUse::OwnPage, &self.id).await {
                Ok(streams) => self.serving.show_questions(streams, self.stop.child_token()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = shown {
                tracing::debug!(%error, "the user's page cannot be reached now");
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
