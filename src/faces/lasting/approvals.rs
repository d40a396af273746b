//! The connections of a kept session to the server of its team, by which people decide away from the session's client.
//!
//! The session connects: the server may be started anew, and never has to look for sessions. What waited then is asked again.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::faces::mcp_server::{ClientStreams, ServedSession};
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
        tokio::join!(questions.ask_at(&self.socket), self.show_own_page());
    }

    async fn show_own_page(&self) {
        loop {
            let shown = match self.socket.connect(ConnectionUse::OwnPage).await {
                Ok((input, output)) => {
                    let streams = ClientStreams { input, output };
                    self.serving.show_questions(streams, self.stop.child_token()).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = shown {
                tracing::debug!(%error, "the user's page cannot be reached now");
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
