//! A TCP relay on loopback that is as slow and as unreliable as a test wants the network to be.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::free_port;

/// How many pieces are under way in one direction before the sender has to wait, as in a real network's buffers.
const PIECES: usize = 256;

const PIECE_BYTES: usize = 16 * 1024;

/// What the network is like.
#[derive(Clone, Copy, Default)]
struct Weather {
    /// Of each direction.
    delay: Duration,
    /// Nothing moves.
    stalled: bool,
    /// Nobody answers.
    refusing: bool,
    /// Nothing moves in the connections before this one, whatever comes.
    stranded: usize,
    /// The connections before this one are reset.
    reset: usize,
}

impl Weather {
    fn moves(&self, connection: usize) -> bool {
        !self.stalled && connection >= self.stranded
    }
}

/// Relays connections to one address. Dropped, it resets them and is gone.
pub(crate) struct Relay {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    /// How many connections there have been.
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn start(target: SocketAddr) -> Self {
        // It listens there again after it has refused.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (weather, seen) = watch::channel(Weather::default());
        let connections = Arc::default();
        let task = tokio::spawn(listen(listener, target, seen, Arc::clone(&connections)));
        Self { address, weather, connections, task }
    }

    /// Where to connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays what is said from now on, by this much in each direction.
    pub(crate) fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Nothing moves until it is repaired; nobody is notified. What was said meanwhile arrives then, by retransmission.
    pub(crate) fn stall(&self) {
        self.weather.send_modify(|weather| weather.stalled = true);
    }

    /// The connections that there are stay open and never move again; new ones do: an address translator forgot them,
    /// or the user is in another network now.
    pub(crate) fn strand(&self) {
        let connections = self.connections();
        self.weather.send_modify(|weather| weather.stranded = connections);
    }

    /// Ends the connections that there are, by an RST to both sides; new ones are taken.
    pub(crate) fn reset(&self) {
        let connections = self.connections();
        self.weather.send_modify(|weather| weather.reset = connections);
    }

    /// Takes no new connections until it is repaired.
    pub(crate) fn refuse(&self) {
        self.weather.send_modify(|weather| weather.refusing = true);
    }

    /// All is well again, but for the delay and what has been stranded.
    pub(crate) fn repair(&self) {
        self.weather.send_modify(|weather| (weather.stalled, weather.refusing) = (false, false));
    }

    /// How many connections it has taken so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes connections for as long as the relay is there.
async fn listen(
    listener: TcpListener,
    target: SocketAddr,
    mut weather: watch::Receiver<Weather>,
    connections: Arc<AtomicUsize>,
) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    let mut relayed = JoinSet::new();
    loop {
        let refusing = weather.borrow_and_update().refusing;
        if refusing {
            // A port at which nobody listens is what refuses.
            listener = None;
        } else if listener.is_none() {
            listener = Some(TcpListener::bind(address).await.expect("the port is still free"));
        }
        tokio::select! {
            accepted = accept(listener.as_ref()) => {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                relayed.spawn(relay(accepted, target, number, weather.clone()));
            }
            changed = weather.changed() => if changed.is_err() { return },
            Some(ended) = relayed.join_next() => ended.expect("no connection panics"),
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    match listener {
        Some(listener) => listener.accept().await.expect("connections can be taken").0,
        None => std::future::pending().await,
    }
}

/// Relays one connection until both sides have closed it, or one of them, or the test, resets it.
async fn relay(
    mut near: TcpStream,
    target: SocketAddr,
    number: usize,
    mut weather: watch::Receiver<Weather>,
) {
    let reset = |stream: &TcpStream| rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    // What is dropped with this set, sends an RST: also when the relay itself is dropped.
    reset(&near).expect("a socket can be set to linger");
    let is_reset = |weather: &Weather| weather.reset > number;
    match weather.wait_for(|weather| weather.moves(number) || is_reset(weather)).await {
        Ok(weather) if !is_reset(&weather) => {}
        _ => return,
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    reset(&far).expect("a socket can be set to linger");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("a socket can be set not to wait");
    }
    let (near_in, near_out) = near.split();
    let (far_in, far_out) = far.split();
    let there = carry(near_in, far_out, number, weather.clone());
    let back = carry(far_in, near_out, number, weather.clone());
    let closed = tokio::select! {
        both = async { tokio::try_join!(there, back) } => both.is_ok(),
        // The relay is gone, or has been asked to.
        _ = weather.wait_for(is_reset) => false,
    };
    if closed {
        for stream in [&near, &far] {
            rustix::net::sockopt::set_socket_linger(stream, None).expect("a socket can be set not to linger");
        }
    }
}

/// Carries what one side says to the other, each piece after the delay, until there is no more.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    number: usize,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let delay = weather.clone();
    let listen = async move {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let length = from.read(&mut piece).await?;
            piece.truncate(length);
            let due = Instant::now() + delay.borrow().delay;
            // The last piece is empty, and takes its time as well. Nobody receives it if the other side has failed.
            if sender.send((due, piece)).await.is_err() || length == 0 {
                return Ok(());
            }
        }
    };
    let speak = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            if weather.wait_for(|weather| weather.moves(number)).await.is_err() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            to.write_all(&piece).await?;
            if piece.is_empty() {
                to.shutdown().await?;
            }
        }
        Ok(())
    };
    tokio::try_join!(listen, speak).map(|((), ())| ())
}
