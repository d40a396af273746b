//! The connections of a kept session to the server of its team, by which people decide away from the session's client.
//!
//! The session connects: the server may be started anew, and never has to look for sessions. What waited then is asked again.

use std::io;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::sync::CancellationToken;

use crate::faces::mcp_server::{ApproverQuestions, ClientStreams, ServedSession};
use crate::ground::files::{ConnectionUse, FrontSocket};

/// The time between two tries to connect.
const RETRY: Duration = Duration::from_millis(500);

/// A kept session that has people decide by the server of its team.
pub(super) struct FacingSession<'a> {
    pub(super) serving: &'a ServedSession,
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

    async fn connect(
        &self,
        want: ConnectionUse,
    ) -> io::Result<ClientStreams<BufReader<OwnedReadHalf>, OwnedWriteHalf>> {
        let (input, output) = self.socket.connect(want).await?;
        Ok(ClientStreams { input, output })
    }

    async fn ask_approvers(&self, mut questions: ApproverQuestions) {
        loop {
            // A session that asks nothing needs no connection.
            questions.wait().await;
            let asked = match self.connect(ConnectionUse::Approvers).await {
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
            let shown = match self.connect(ConnectionUse::OwnPage).await {
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
