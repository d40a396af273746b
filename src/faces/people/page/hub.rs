//! Between the session and the browsers: passes what the session says to all browsers, and what people answer back.

use std::io;
use std::sync::Arc;

use futures::StreamExt as _;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{broadcast, mpsc};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::sync::CancellationToken;

use super::scene::PageScene;
use super::{OnNews, PageNews};
use crate::faces::people::{PersonMessage, SessionMessage};

/// The longest line of a session, in bytes: arguments may be long.
const LINE_BYTES: usize = 64 * 1024 * 1024;

/// The number of events that may wait for a browser. One that misses some is shown everything anew.
const EVENTS: usize = 1024;

/// The common state of all browsers.
#[derive(Debug)]
pub(super) struct BrowserHub {
    scene: Mutex<PageScene>,
    events: broadcast::Sender<Arc<str>>,
    /// Without a limit: people say little, and none of it may be lost.
    says: mpsc::UnboundedSender<PersonMessage>,
    browsers: Mutex<usize>,
}

/// A browser that shows the page, as long as this lives.
pub(super) struct WatchingBrowser {
    hub: Arc<BrowserHub>,
    events: broadcast::Receiver<Arc<str>>,
    /// The text that it is shown first.
    first: Option<Arc<str>>,
}

impl BrowserHub {
    /// Hears the session until it ends, or `stop` is cancelled.
    pub(super) fn start<S>(
        stream: S,
        session: Option<String>,
        on_news: Arc<OnNews>,
        ended: CancellationToken,
        stop: CancellationToken,
    ) -> Arc<Self>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (input, output) = tokio::io::split(stream);
        let (says, said) = mpsc::unbounded_channel();
        let scene = Mutex::new(PageScene::of(session));
        let browsers = Mutex::default();
        let hub = Arc::new(Self { scene, events: broadcast::Sender::new(EVENTS), says, browsers });
        for first in [PersonMessage::AskAll, PersonMessage::History] {
            // Its receiver is below.
            hub.says.send(first).ok();
        }
        let hearing = Arc::clone(&hub);
        tokio::spawn(async move {
            let done = tokio::select! {
                done = hearing.hear(input, &*on_news) => done,
                done = say(output, said) => done,
                () = stop.cancelled() => Ok(()),
            };
            if let Err(error) = done {
                tracing::error!(%error, "the connection of the approval page to its session has failed: the page has ended");
            }
            let over = hearing.scene().end();
            hearing.broadcast(&over);
            ended.cancel();
        });
        hub
    }

    async fn hear(&self, input: impl AsyncRead + Unpin, on_news: &OnNews) -> io::Result<()> {
        let mut lines = FramedRead::new(input, LinesCodec::new_with_max_length(LINE_BYTES));
        while let Some(line) = lines.next().await {
            let heard: SessionMessage = serde_json::from_str(&line.map_err(io::Error::other)?)?;
            if let SessionMessage::Question { call, .. } = &heard {
                on_news(PageNews::Question(super::row::line(call)));
            }
            // Sent while the scene is locked, so that a new browser misses nothing and hears nothing twice.
            let mut scene = self.scene();
            if let Some(event) = scene.take(heard) {
                self.broadcast(&event);
            }
        }
        Ok(())
    }

    fn broadcast(&self, event: &Value) {
        // Without browsers nobody listens.
        self.events.send(line(event)).ok();
    }

    /// A browser begins to show the page.
    pub(super) fn watch(self: &Arc<Self>) -> WatchingBrowser {
        {
            let mut browsers = self.count();
            *browsers += 1;
            self.looked_at(*browsers);
        }
        let (first, events) = self.first();
        WatchingBrowser { hub: Arc::clone(self), events, first: Some(first) }
    }

    /// Everything, and the events from then on. Neither the scene nor the count of browsers changes in between.
    fn first(&self) -> (Arc<str>, broadcast::Receiver<Arc<str>>) {
        let browsers = self.count();
        let scene = self.scene();
        let mut all = scene.all();
        all["browsers"] = json!(*browsers);
        (line(&all), self.events.subscribe())
    }

    /// The number of browsers that show the page.
    pub(super) fn browsers(&self) -> usize {
        *self.count()
    }

    /// Says something to the session. Returns whether it will hear that.
    pub(super) fn say(&self, said: PersonMessage) -> bool {
        self.says.send(said).is_ok()
    }

    pub(super) fn scene(&self) -> MutexGuard<'_, PageScene> {
        self.scene.lock()
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.browsers.lock()
    }

    /// Reports how many browsers there are.
    fn looked_at(&self, browsers: usize) {
        if !self.say(PersonMessage::Look { is_looking: browsers > 0 }) {
            tracing::debug!("could not report to the session how many browsers show the page");
        }
        self.broadcast(&json!({"event": "browsers", "count": browsers}));
    }
}

impl WatchingBrowser {
    /// The next line for the browser; `None` if there is no more.
    pub(super) async fn next(&mut self) -> Option<Arc<str>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                let (all, events) = self.hub.first();
                self.events = events;
                Some(all)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The number of browsers, for this one.
    pub(super) fn browsers(&self) -> Arc<str> {
        line(&json!({"event": "browsers", "count": self.hub.browsers()}))
    }
}

impl Drop for WatchingBrowser {
    fn drop(&mut self) {
        let mut browsers = self.hub.count();
        *browsers -= 1;
        self.hub.looked_at(*browsers);
    }
}

fn line(event: &Value) -> Arc<str> {
    format!("{event}\n").into()
}

/// Says to the session what people say.
async fn say(
    mut output: impl AsyncWrite + Unpin,
    mut said: mpsc::UnboundedReceiver<PersonMessage>,
) -> io::Result<()> {
    while let Some(said) = said.recv().await {
        let mut line = serde_json::to_vec(&said)?;
        line.push(b'\n');
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}
