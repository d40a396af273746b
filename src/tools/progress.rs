//! Progress notifications for one request.

use std::pin::pin;
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::executor::Phase;

/// The least time between two notifications: what comes faster is sent together.
const INTERVAL: Duration = Duration::from_millis(200);

/// The longest message, in characters: the newest output is what matters, and the answer has it all.
const MESSAGE_CHARS: usize = 2_000;

/// Tells the client of a request how it is getting on.
pub(super) struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    sent: f64,
}

impl Progress {
    /// For a request whose client gave a progress token.
    pub(super) fn wanted_by(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self { peer: context.peer.clone(), token, sent: 0.0 })
    }

    /// Runs `work` and tells `phases` meanwhile, each as it becomes the newest.
    pub(super) async fn tell_while<T>(
        progress: Option<Self>,
        mut phases: watch::Receiver<String>,
        work: impl Future<Output = T>,
    ) -> T {
        let Some(mut progress) = progress else { return work.await };
        let tell = async {
            while phases.changed().await.is_ok() {
                let phase = phases.borrow_and_update().clone();
                progress.send(phase).await;
                tokio::time::sleep(INTERVAL).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = work => result,
            () = tell => unreachable!("telling never ends by itself"),
        }
    }

    /// Tells what a cell waits for, then what it prints, until `chunks` ends.
    pub(super) async fn tell_cell(
        mut self,
        mut phase: watch::Receiver<Phase>,
        mut chunks: mpsc::Receiver<String>,
    ) {
        let mut unsent = String::new();
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        phase.mark_changed();
        loop {
            tokio::select! {
                chunk = chunks.recv() => match chunk {
                    Some(chunk) => append(&mut unsent, &chunk),
                    None => break,
                },
                Ok(()) = phase.changed() => {
                    let preparing = match &*phase.borrow_and_update() {
                        Phase::Preparing(words) => Some(words.clone()),
                        Phase::Ready => None,
                    };
                    if let Some(words) = preparing {
                        self.send(words).await;
                    }
                }
                _ = ticks.tick(), if !unsent.is_empty() => self.send(std::mem::take(&mut unsent)).await,
            }
        }
        if !unsent.is_empty() {
            self.send(unsent).await;
        }
    }

    /// Tells the client one thing.
    pub(super) async fn send(&mut self, message: String) {
        self.sent += 1.0;
        let notification =
            ProgressNotificationParam::new(self.token.clone(), self.sent).with_message(message);
        if let Err(error) = pin!(self.peer.notify_progress(notification)).await {
            // A client that is gone needs no progress; the request itself ends by its cancellation.
            tracing::debug!(%error, "could not notify of progress");
        }
    }
}

/// Appends `chunk` and keeps the last [`MESSAGE_CHARS`].
fn append(text: &mut String, chunk: &str) {
    text.push_str(chunk);
    if let Some((start, _)) = text.char_indices().rev().nth(MESSAGE_CHARS) {
        text.drain(..start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_output_is_told() {
        let mut text = String::new();
        append(&mut text, &"a".repeat(MESSAGE_CHARS));
        append(&mut text, "éé");
        assert!(text.ends_with("aéé") && text.chars().count() <= MESSAGE_CHARS + 1, "{}", text.len());
    }
}
