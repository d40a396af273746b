//! The only way out of a sandbox's network: a proxy on the host that lets allowed domains through.
//!
//! It serves HTTP `CONNECT`, plain HTTP and SOCKS5 on one listener, which is usually a socket from inside of the
//! sandbox. All that arrives there is hostile. It decides by name, port and address, and never looks into what is
//! tunnelled: TLS is not terminated.
//!
//! ```text
//! accept → first byte ┬ 5    → socks ┐
//!                     └ else → http  ┴→ dial ┬ filter: the name
//!                                            ├ resolve once
//!                                            └ filter: the addresses → connect to one of those that are left
//! ```
//!
//! Not closed: who tunnels to an allowed name may say another one in TLS (SNI) or in the tunnelled request's `Host`.
//! Where one address serves many customers, as with content delivery networks, allowing one name allows all that the
//! network serves to such a connection.
//!
//! It does not chain: a host that reaches the internet through a proxy of its own (`HTTPS_PROXY`) cannot give the
//! sandbox a way out by this one, since then the other proxy would resolve the names.

mod dial;
mod filter;
mod http;
mod idle;
mod socks;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::dial::ProxyDialer;
pub(crate) use self::dial::{NameResolver, system_resolver};
pub(crate) use self::filter::HostFilter;
use self::idle::watched;

/// Connections at a time; more wait in the listener's queue. Programs that download in parallel open some dozens.
const MOST_CONNECTIONS: usize = 256;

/// The time that a client may take to say what it wants.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The time that a connection may be silent. Streams of events and WebSockets are silent for minutes.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// The time to wait before the next try when no connection can be accepted, as when descriptors have run out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// The first byte of a SOCKS5 connection. No HTTP method begins with it.
const SOCKS_VERSION: u8 = 5;

/// A proxy that is being served. It ends when it is dropped; [`Proxy::stop`] also waits for that.
#[derive(Debug)]
pub(crate) struct Proxy {
    tasks: TaskTracker,
    stop: DropGuard,
}

impl Proxy {
    /// Serves `filter` on `listener`. If the listener comes from the sandbox, its other end there has to be closed: who
    /// still has it there could make it block, and a thread of this runtime with it.
    ///
    /// Names are looked up by `resolver`, which is [`system_resolver`] outside of tests.
    pub(crate) fn start(listener: TcpListener, filter: HostFilter, resolver: NameResolver) -> Self {
        Self::with_limits(listener, filter, resolver, Limits::default())
    }

    fn with_limits(
        listener: TcpListener,
        filter: HostFilter,
        resolver: NameResolver,
        limits: Limits,
    ) -> Self {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let server = Arc::new(ProxyServer {
            dialer: ProxyDialer::new(filter, resolver),
            limits,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        tasks.spawn(async move { server.stop.run_until_cancelled(server.accept(listener)).await });
        Self { tasks, stop: stop.drop_guard() }
    }

    /// Closes the listener and all connections.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    connections: usize,
    handshake: Duration,
    idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: MOST_CONNECTIONS, handshake: HANDSHAKE, idle: IDLE }
    }
}

/// The common state of all connections.
#[derive(Debug)]
struct ProxyServer {
    dialer: ProxyDialer,
    limits: Limits,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl ProxyServer {
    async fn accept(self: &Arc<Self>, listener: TcpListener) {
        let permits = Arc::new(Semaphore::new(self.limits.connections));
        let mut is_failing = false;
        // Nobody closes the semaphore.
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    is_failing = false;
                    self.spawn(stream, permit);
                }
                Err(error) => {
                    // Once, since whoever is inside could fill the log.
                    if !is_failing {
                        tracing::warn!(%error, "the sandbox's proxy accepts no connections");
                    }
                    is_failing = true;
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn spawn(self: &Arc<Self>, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let server = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = server.stop.cancelled() => {}
                // Clients that go away are everyday life.
                served = server.serve(stream) => if let Err(error) = served {
                    tracing::debug!(%error, "connection to the sandbox's proxy failed");
                },
            }
            drop(permit);
        });
    }

    async fn serve(self: &Arc<Self>, stream: TcpStream) -> io::Result<()> {
        let Limits { handshake, idle, .. } = self.limits;
        let mut first = [0];
        if timely(handshake, stream.peek(&mut first)).await? == 0 {
            return Ok(());
        }
        let (client, silence) = watched(stream);
        let served = async {
            match first {
                [SOCKS_VERSION] => socks::serve(client, &self.dialer, handshake).await,
                _ => http::serve(client, self).await,
            }
        };
        tokio::select! {
            () = silence.lasts(idle) => Err(io::Error::new(io::ErrorKind::TimedOut, "it was silent")),
            served = served => served,
        }
    }
}

/// Waits for `work`, but no longer than `limit`.
async fn timely<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await?
}

#[cfg(test)]
mod tests;
