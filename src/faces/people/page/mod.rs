//! A page in the browser on which people decide about calls, and see what a session does.
//!
//! ```text
//! session ── lines of JSON (`people`) ── hub ── HTTP on loopback ── browser
//! ```
//!
//! It is one more face for people, beside the prompt: it speaks to its session as `ipybox attach` does, and decides nothing.

mod cell;
mod diff;
mod guard;
mod hub;
mod key;
mod routes;
mod scene;
mod view;
mod words;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::hub::Hub;
use self::key::Lock;
use crate::ground::web::listener::{self, ListenerLimits};

/// The time that browsers may take to read how the session has ended.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The page cannot listen.
    #[error("listen on this machine for the approval page")]
    Listen(#[source] io::Error),
    /// The secrets of the page cannot be made.
    #[error("make the code of the approval page: the system gives no random numbers")]
    NoChance,
}

/// News for whoever has opened the page, to be passed on to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageNews {
    /// A browser has the page now; the next one needs this code.
    Entered(String),
    /// There were many wrong codes. The code is the same as before.
    Guessed,
    /// A call waits.
    Question(String),
}

/// Receives the news.
pub(crate) type OnNews = dyn Fn(PageNews) + Send + Sync;

/// A page, as long as this lives.
#[derive(Debug)]
pub struct Page {
    address: SocketAddr,
    lock: Arc<Lock>,
    hub: Arc<Hub>,
    ended: CancellationToken,
    _stop: DropGuard,
}

impl Page {
    /// Serves a page for the session that speaks on `stream`, on a free port of this machine. If it is a kept one, the
    /// page shows its id, `session`. `on_news` gets new codes too, which are for the user alone.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn open<S>(
        stream: S,
        session: Option<String>,
        on_news: impl Fn(PageNews) + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.map_err(Error::Listen)?;
        let address = listener.local_addr().map_err(Error::Listen)?;
        let lock = Arc::new(Lock::new().map_err(|_| Error::NoChance)?);
        let on_news: Arc<OnNews> = Arc::new(on_news);
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let hub = Hub::start(stream, session, Arc::clone(&on_news), ended.clone(), stop.clone());
        let router = routes::router(address, Arc::clone(&hub), Arc::clone(&lock), on_news);
        let limits = ListenerLimits::of_browsers("approval page", STOP_GRACE);
        tokio::spawn(listener::serve(listener, router, limits, stop.clone()));
        Ok(Self { address, lock, hub, ended, _stop: stop.drop_guard() })
    }

    /// The address of the page. There is no secret in it.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The code that opens the page now, for the user alone.
    pub fn code(&self) -> String {
        self.lock.code()
    }

    /// Whether a browser shows the page, and the session still speaks to it.
    pub fn is_open(&self) -> bool {
        !self.has_ended() && self.hub.browsers() > 0
    }

    /// Whether the session no longer speaks to the page.
    pub fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the session has ended, or the connection to it.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}
