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
mod hosted;
mod hub;
mod key;
mod routes;
mod row;
mod scene;
mod waiting_changes;
mod words;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::hosted::{hosted_guarded, hosted_parts, hosted_person};
use self::hub::BrowserHub;
use self::key::PageLock;
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
pub struct ApprovalPage {
    address: SocketAddr,
    lock: Arc<PageLock>,
    hub: Arc<BrowserHub>,
    ended: CancellationToken,
    /// A client has refused to open it.
    is_unopened: AtomicBool,
    _stop: DropGuard,
}

impl ApprovalPage {
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
        let lock = Arc::new(PageLock::new().map_err(|_| Error::NoChance)?);
        let on_news: Arc<OnNews> = Arc::new(on_news);
        let stop = CancellationToken::new();
        let ended = CancellationToken::new();
        let hub = BrowserHub::start(stream, session, Arc::clone(&on_news), ended.clone(), stop.clone());
        let router = routes::router(address, Arc::clone(&hub), Arc::clone(&lock), on_news);
        let limits = ListenerLimits::of_browsers("approval page", STOP_GRACE);
        tokio::spawn(listener::serve(listener, router, limits, stop.clone()));
        let is_unopened = AtomicBool::new(false);
        Ok(Self { address, lock, hub, ended, is_unopened, _stop: stop.drop_guard() })
    }

    /// The address of the page. There is no secret in it.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The code that opens the page now, for the user alone.
    pub fn code(&self) -> String {
        self.lock.code()
    }

    /// Says whether a client may be asked to open the page.
    pub(crate) fn takes_invitations(&self) -> bool {
        !self.has_ended() && !self.is_unopened.load(Ordering::Relaxed)
    }

    /// From now on no client is asked to open the page: one that said that it can has not done so.
    pub(crate) fn take_no_invitations(&self) {
        self.is_unopened.store(true, Ordering::Relaxed);
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
