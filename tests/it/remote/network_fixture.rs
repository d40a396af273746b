//! The relay and the network namespace by which tests of remote kernels make a network fail.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::jupyter::{Jupyter, Server};
#[cfg(target_os = "linux")]
use crate::support::namespace::Namespace;
use crate::support::relay::Relay;
use crate::support::{PATIENCE, refusing};

/// Long enough for what is to arrive on loopback.
const MOMENT: Duration = Duration::from_millis(300);

/// A server that says everything back, and what is connected to it by a relay.
struct Echo {
    address: SocketAddr,
    relay: Relay,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(echo(listener));
        Self { address, relay: Relay::start(address).await }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.relay.address()).await.unwrap()
    }
}

async fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (mut from, mut to) = stream.split();
            // A connection that is reset ends with an error.
            drop(tokio::io::copy(&mut from, &mut to).await);
        });
    }
}

async fn say(stream: &mut TcpStream, word: &[u8]) {
    stream.write_all(word).await.unwrap();
}

async fn hears(stream: &mut TcpStream, word: &[u8]) {
    let mut heard = vec![0; word.len()];
    timeout(PATIENCE, stream.read_exact(&mut heard)).await.expect("an echo").unwrap();
    assert_eq!(heard, word);
}

async fn hears_nothing(stream: &mut TcpStream) {
    let heard = timeout(MOMENT, stream.read_u8()).await;
    assert!(heard.is_err(), "{heard:?}");
}

async fn is_reset(stream: &mut TcpStream) {
    let heard = timeout(PATIENCE, stream.read_u8()).await.expect("an end");
    assert_eq!(heard.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_relay_carries_everything_and_delays_both_directions() {
    let echo = Echo::start().await;
    let mut stream = echo.connect().await;
    let much: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut from, mut to) = stream.split();
    let mut heard = vec![0; much.len()];
    let (said, _) =
        timeout(PATIENCE, async { tokio::join!(to.write_all(&much), from.read_exact(&mut heard)) })
            .await
            .expect("an echo");
    said.unwrap();
    assert!(heard == much, "what was said differs from what was heard");

    echo.relay.delay(Duration::from_millis(50));
    let asked = Instant::now();
    say(&mut stream, b"slowly").await;
    hears(&mut stream, b"slowly").await;
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(100), "{took:?}");

    // The delay is of each piece, not between one and the next: then these would take ten times as long.
    echo.relay.delay(Duration::from_secs(1));
    let asked = Instant::now();
    for piece in [b"one", b"two"].repeat(10) {
        say(&mut stream, piece).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    hears(&mut stream, &b"onetwo".repeat(10)).await;
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");

    stream.shutdown().await.unwrap();
    assert_eq!(
        timeout(PATIENCE, stream.read(&mut [0])).await.unwrap().unwrap(),
        0,
        "a close is carried as well"
    );
    assert_eq!(echo.relay.connections(), 1);
}

#[tokio::test]
async fn a_stall_sends_nothing_and_loses_nothing() {
    let echo = Echo::start().await;
    let mut stream = echo.connect().await;
    say(&mut stream, b"before").await;
    hears(&mut stream, b"before").await;
    echo.relay.stall();
    say(&mut stream, b"meanwhile").await;
    hears_nothing(&mut stream).await;
    let mut other = echo.connect().await;
    say(&mut other, b"new").await;
    hears_nothing(&mut other).await;
    echo.relay.repair();
    hears(&mut stream, b"meanwhile").await;
    hears(&mut other, b"new").await;
    assert_eq!(echo.relay.connections(), 2);
}

#[tokio::test]
async fn what_is_stranded_never_moves_again_and_what_is_new_does() {
    let echo = Echo::start().await;
    let mut stream = echo.connect().await;
    say(&mut stream, b"before").await;
    hears(&mut stream, b"before").await;
    echo.relay.strand();
    say(&mut stream, b"lost").await;
    let mut other = echo.connect().await;
    say(&mut other, b"new").await;
    hears(&mut other, b"new").await;
    echo.relay.repair();
    hears_nothing(&mut stream).await;
    echo.relay.reset();
    is_reset(&mut stream).await;
    is_reset(&mut other).await;
}

#[tokio::test]
async fn a_reset_ends_connections_and_a_refusal_takes_none() {
    let echo = Echo::start().await;
    let mut stream = echo.connect().await;
    say(&mut stream, b"before").await;
    hears(&mut stream, b"before").await;
    echo.relay.reset();
    is_reset(&mut stream).await;
    let mut other = echo.connect().await;
    say(&mut other, b"after").await;
    hears(&mut other, b"after").await;

    echo.relay.refuse();
    let refused = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
    until(&echo, |connected| connected.as_ref().is_err_and(refused)).await;
    say(&mut other, b"still").await;
    hears(&mut other, b"still").await;
    echo.relay.repair();
    until(&echo, Result::is_ok).await;
}

/// Connects until that ends as it should.
async fn until(echo: &Echo, is_so: impl Fn(&std::io::Result<TcpStream>) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(&TcpStream::connect(echo.relay.address()).await) {
        assert!(Instant::now() < deadline, "{} does not answer as expected", echo.address);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_target_that_refuses_resets_what_the_relay_has_taken() {
    let (_closed, nobody) = refusing();
    let relay = Relay::start(nobody).await;
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    is_reset(&mut stream).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_namespace_is_another_machine_whose_cable_can_be_cut() {
    let Some(namespace) = Namespace::start() else { return };
    let jupyter = Jupyter::of(Server::EnterpriseGateway);
    let jupyter = jupyter.at(&namespace.launcher(), namespace.address()).start().await;
    assert_eq!(jupyter.ask("GET", "api").await.0, 200);

    let mut stream = TcpStream::connect(jupyter.address()).await.unwrap();
    namespace.cut();
    let request = format!("GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: token {}\r\n\r\n", jupyter.token());
    say(&mut stream, request.as_bytes()).await;
    hears_nothing(&mut stream).await;
    let connected = timeout(MOMENT, TcpStream::connect(jupyter.address())).await;
    assert!(connected.is_err(), "{connected:?}");
    namespace.repair();
    // By retransmission: nothing is lost for good.
    hears(&mut stream, b"HTTP/1.1 200 OK").await;

    let delay = Duration::from_millis(50);
    // A relay at the near end is as slow where the kernel cannot be.
    let relay = Relay::start(jupyter.address()).await;
    if !namespace.delay(delay) {
        relay.delay(delay);
    }
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    let asked = Instant::now();
    say(&mut stream, request.as_bytes()).await;
    hears(&mut stream, b"HTTP/1.1 200 OK").await;
    assert!(asked.elapsed() >= 2 * delay, "{:?}", asked.elapsed());
}
