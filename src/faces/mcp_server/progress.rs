//! Progress notifications for one request.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at};

use crate::faces::people::page::ApprovalPage;
use crate::kernels::kernel::plain;
use crate::session::StartPhase;

/// The least time between two notifications: faster output is sent together.
const INTERVAL: Duration = Duration::from_millis(200);

/// The longest time without a notification: clients give up on requests without progress, the SDKs by default
/// after 60 seconds.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The number of characters of output that are read for a message. Progress bars write much and show little.
const UNSENT_CHARS: usize = 20_000;

/// The longest message, in characters: the newest output matters, and the answer has all of it.
const MESSAGE_CHARS: usize = 2_000;

/// Sends progress notifications to the client of a request.
pub(super) struct ProgressNotifier {
    listener: ProgressListener,
    /// The page on which calls are decided.
    page: Option<Arc<ApprovalPage>>,
    sent: f64,
    begun: Instant,
    /// Ticks when nothing has been sent for [`HEARTBEAT`].
    silence: Interval,
}

/// The client that gets the notifications, and its progress token; without one no notification is sent.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgressListener(Arc<Mutex<Option<ProgressClient>>>);

/// A client, and the token that it has sent.
pub(super) type ProgressClient = (Peer<RoleServer>, ProgressToken);

impl ProgressListener {
    /// The client of a request, if it sent a token.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        Self(Arc::new(Mutex::new(listener_of(context))))
    }

    /// Replaces the client.
    pub(super) fn set(&self, client: Option<ProgressClient>) {
        *self.0.lock() = client;
    }

    fn get(&self) -> Option<ProgressClient> {
        self.0.lock().clone()
    }
}

/// The client of a request and its progress token, if it sent one.
pub(super) fn listener_of(context: &RequestContext<RoleServer>) -> Option<ProgressClient> {
    Some((context.peer.clone(), context.meta.get_progress_token()?))
}

impl ProgressNotifier {
    /// For a request whose client wants notifications, or may want them later.
    pub(super) fn wanted_by(
        listener: ProgressListener,
        may_come_later: bool,
        page: Option<Arc<ApprovalPage>>,
    ) -> Option<Self> {
        if !may_come_later {
            listener.get()?;
        }
        let begun = Instant::now();
        let silence = interval_at(begun + HEARTBEAT, HEARTBEAT);
        Some(Self { listener, page, sent: 0.0, begun, silence })
    }

    /// Runs `work` and meanwhile sends each new value of `phases`, and that calls wait for approval, which
    /// `questions` counts.
    pub(super) async fn report_while<T>(
        progress: Option<Self>,
        mut phases: watch::Receiver<String>,
        mut questions: watch::Receiver<usize>,
        work: impl Future<Output = T>,
    ) -> T {
        let Some(mut progress) = progress else { return work.await };
        let reporting = async {
            let mut ticks = ticks();
            let mut unsent = None;
            loop {
                tokio::select! {
                    Ok(()) = phases.changed() => unsent = Some(phases.borrow_and_update().clone()),
                    _ = ticks.tick(), if unsent.is_some() => progress.send(unsent.take().unwrap_or_default()).await,
                    Ok(()) = questions.changed() => progress.send_waiting(&mut questions).await,
                    _ = progress.silence.tick() => progress.beat().await,
                }
            }
        };
        tokio::select! {
            result = work => result,
            () = reporting => unreachable!("reporting never ends by itself"),
        }
    }

    /// Sends what a cell waits for, then what it prints and how far servers are with its calls, until `chunks` ends.
    /// `questions` counts the calls that wait for approval.
    pub(super) async fn report_cell(
        mut self,
        mut phase: watch::Receiver<StartPhase>,
        mut servers: watch::Receiver<String>,
        mut questions: watch::Receiver<usize>,
        mut chunks: mpsc::Receiver<String>,
    ) {
        let mut unsent = String::new();
        let mut ticks = ticks();
        phase.mark_changed();
        servers.mark_unchanged();
        let mut of_servers = None;
        loop {
            tokio::select! {
                chunk = chunks.recv() => match chunk {
                    Some(chunk) => append(&mut unsent, &chunk),
                    None => break,
                },
                Ok(()) = phase.changed() => {
                    let preparing = match &*phase.borrow_and_update() {
                        StartPhase::Preparing(words) => Some(words.clone()),
                        StartPhase::Ready => None,
                    };
                    if let Some(words) = preparing {
                        self.send(words).await;
                    }
                }
                Ok(()) = questions.changed() => self.send_waiting(&mut questions).await,
                Ok(()) = servers.changed() => {
                    of_servers = Some(servers.borrow_and_update().clone());
                }
                _ = ticks.tick(), if !unsent.is_empty() || of_servers.is_some() => {
                    self.send_output(&std::mem::take(&mut unsent)).await;
                    if let Some(words) = of_servers.take() {
                        self.send(words).await;
                    }
                }
                _ = self.silence.tick() => self.beat().await,
            }
        }
        self.send_output(&unsent).await;
    }

    /// Sends the newest output.
    async fn send_output(&mut self, output: &str) {
        let shown = plain(output);
        let shown = shown.trim_matches('\n');
        if !shown.trim().is_empty() {
            self.send(newest(shown, MESSAGE_CHARS).to_owned()).await;
        }
    }

    /// Sends that the request is still running.
    async fn beat(&mut self) {
        self.send(format!("still running after {} s", self.begun.elapsed().as_secs())).await;
    }

    /// Sends how many calls wait, if any do, and where they are decided.
    async fn send_waiting(&mut self, questions: &mut watch::Receiver<usize>) {
        let calls = match *questions.borrow_and_update() {
            0 => return,
            1 => "a call".to_owned(),
            count => format!("{count} calls"),
        };
        let place = match &self.page {
            Some(page) if page.is_open() => format!(", on the page {}", page.url()),
            Some(page) => format!(", on the page {}, which asks for the code {}", page.url(), page.code()),
            None => String::new(),
        };
        self.send(format!("waiting for approval of {calls}{place}")).await;
    }

    /// Sends one notification.
    pub(super) async fn send(&mut self, message: String) {
        self.sent += 1.0;
        self.silence.reset();
        let Some((peer, token)) = self.listener.get() else { return };
        let notification = ProgressNotificationParam::new(token, self.sent).with_message(message);
        if let Err(error) = pin!(peer.notify_progress(notification)).await {
            // The client is gone; cancellation ends the request itself.
            tracing::debug!(%error, "could not notify of progress");
        }
    }
}

/// Ticks at once, and then no faster than what is sent may follow each other.
fn ticks() -> Interval {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Appends `chunk` and keeps at least the last [`UNSENT_CHARS`].
fn append(text: &mut String, chunk: &str) {
    text.push_str(chunk);
    // Seldom, so that small chunks do not move the text each time.
    if text.len() > 8 * UNSENT_CHARS {
        *text = newest(text, UNSENT_CHARS).to_owned();
    }
}

/// The last `count` characters of `text`.
fn newest(text: &str, count: usize) -> &str {
    text.char_indices().nth_back(count - 1).map_or(text, |(begin, _)| &text[begin..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_output_is_reported() {
        let mut text = String::new();
        append(&mut text, &"a".repeat(8 * UNSENT_CHARS));
        append(&mut text, "éé");
        assert!(text.ends_with("aéé") && text.chars().count() == UNSENT_CHARS, "{}", text.len());
        assert_eq!(newest("aé", 1), "é");
        assert_eq!(newest("aé", 5), "aé");
    }
}
