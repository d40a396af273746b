use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::kernels::sandbox::domain::DomainRule;

/// A proxy, and a server on loopback that plays the internet.
struct Network {
    proxy: Proxy,
    address: SocketAddr,
    /// The port of the server, which answers each request with what it has read.
    port: u16,
}

/// All names are `addresses`.
fn resolver(addresses: &[&str]) -> NameResolver {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Arc::new(move |_| {
        let addresses = addresses.clone();
        Box::pin(async move { Ok(addresses) })
    })
}

/// Reads the head of a message, and answers with it.
async fn mirror(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", head.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.write_all(&head).await.unwrap();
}

/// `PORT` in a rule is the port of the server.
async fn network(allowed: &[&str], addresses: &[&str], limits: Limits) -> Network {
    let internet = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = internet.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = internet.accept().await {
            tokio::spawn(mirror(stream));
        }
    });
    let rule = |rule: &&str| DomainRule::parse(&rule.replace("PORT", &port.to_string())).unwrap();
    let filter = HostFilter { allowed: allowed.iter().map(rule).collect(), ..HostFilter::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = Proxy::with_limits(listener, filter, resolver(addresses), limits);
    Network { proxy, address, port }
}

/// The rules of most tests: by name, by address, and `localhost`.
async fn usual() -> Network {
    let allowed = ["web.example", "127.0.0.1:PORT", "app.localhost:PORT", "closed.example:1"];
    network(&allowed, &["127.0.0.1"], Limits::default()).await
}

impl Network {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// The answer to `bytes`, until it is whole or the connection ends.
    async fn say(&self, bytes: &[u8], is_whole: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        hear_until(&mut stream, is_whole).await
    }

    /// Says `request`, in which `PORT` is the server's.
    #[track_caller]
    fn check(&self, request: &str, expected: &[&str]) -> impl Future<Output = ()> {
        let port = self.port.to_string();
        let request = request.replace("PORT", &port);
        let expected: Vec<String> = expected.iter().map(|text| text.replace("PORT", &port)).collect();
        let place = std::panic::Location::caller();
        async move {
            let has_all = |heard: &[u8]| {
                let heard = String::from_utf8_lossy(heard);
                expected.iter().all(|text| heard.contains(text.as_str()))
            };
            let answer = self.say(request.as_bytes(), has_all).await;
            let answer = String::from_utf8_lossy(&answer);
            for text in &expected {
                assert!(answer.contains(text.as_str()), "{place}: {request}→ {answer}(without {text})");
            }
        }
    }
}

/// How long anything may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(300);

/// After so long a silence there is no more.
const SILENCE: Duration = Duration::from_millis(1500);

/// All that comes until the connection ends or is silent.
async fn hear(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = hear_until(stream, |heard| !heard.is_empty()).await;
    let mut rest = Vec::new();
    // Its end need not come.
    tokio::time::timeout(SILENCE, stream.read_to_end(&mut rest)).await.ok();
    heard.append(&mut rest);
    heard
}

/// The bytes that come, until they are whole or the connection ends.
async fn hear_until(stream: &mut TcpStream, is_whole: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    while !is_whole(&heard) {
        match tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await {
            Ok(Ok(count)) if count > 0 => heard.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    heard
}

/// Whether the mirror has answered to a tunnel's `hello`.
fn has_hello(heard: &[u8]) -> bool {
    heard.ends_with(b"hello\r\n\r\n")
}

/// Whether there is the mirror's head, and the one that it has read.
fn has_two_heads(heard: &[u8]) -> bool {
    heard.windows(4).filter(|four| *four == b"\r\n\r\n").count() == 2
}

/// Whether there is the beginning that has the code of a SOCKS proxy.
fn has_code(heard: &[u8]) -> bool {
    heard.len() >= 4
}

fn socks(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 5, 1, 0, kind], address, &port.to_be_bytes()].concat()
}

#[tokio::test]
async fn connect_opens_tunnels_to_what_is_allowed() {
    let network = usual().await;
    for host in ["web.example", "WEB.example.", "127.0.0.1", "127.1", "app.localhost", "[::ffff:127.0.0.1]"] {
        let mut stream = network.connect().await;
        let request = format!("CONNECT {host}:{0} HTTP/1.1\r\nHost: {host}:{0}\r\n\r\n", network.port);
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\n";
        let mut answered = vec![0; head.len()];
        stream.read_exact(&mut answered).await.unwrap();
        assert_eq!(answered, head, "{host}");
        stream.write_all(b"hello\r\n\r\n").await.unwrap();
        let heard = hear_until(&mut stream, has_hello).await;
        assert!(has_hello(&heard), "{host}: {}", String::from_utf8_lossy(&heard));
    }
}

#[tokio::test]
async fn what_is_refused_is_explained() {
    let network = usual().await;
    let blocked = ["HTTP/1.1 403 `", "x-proxy-error: blocked-by-ipybox-sandbox"];
    for (request, reason) in [
        (
            "CONNECT example.org:443 HTTP/1.1\r\n\r\n",
            "`example.org` (port 443) is not among `allowedDomains` of the sandbox",
        ),
        ("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", "`127.0.0.1` (port 1) is not among"),
        ("CONNECT [::1]:PORT HTTP/1.1\r\n\r\n", "`[::1]` (port PORT) is not among"),
        ("CONNECT 2130706433:1 HTTP/1.1\r\n\r\n", "`127.0.0.1` (port 1) is not among"),
        ("CONNECT web.example:1 HTTP/1.1\r\n\r\n", "`web.example` leads to a loopback address"),
        (
            "GET http://example.org/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
            "`example.org` (port 80) is not among",
        ),
    ] {
        network.check(request, &[&blocked, &[reason][..]].concat()).await;
    }
    for (request, reason) in [
        ("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n", "send the full URL"),
        ("CONNECT web.example HTTP/1.1\r\n\r\n", "send the full URL"),
        ("CONNECT web.example:0 HTTP/1.1\r\n\r\n", "send the full URL"),
        ("GET https://web.example/ HTTP/1.1\r\n\r\n", "by `CONNECT`"),
        ("GET ftp://web.example/ HTTP/1.1\r\n\r\n", "by `CONNECT`"),
        ("CONNECT a..b:1 HTTP/1.1\r\n\r\n", "no host name"),
    ] {
        network.check(request, &["HTTP/1.1 400 ", "x-proxy-error: bad-request", reason]).await;
    }
    network.check("CONNECT app.localhost:PORT0 HTTP/1.1\r\n\r\n", &["HTTP/1.1 400"]).await;
}

#[tokio::test]
async fn what_does_not_answer_is_reported_as_such() {
    let network = network(&["127.0.0.1", "void.example"], &[], Limits::default()).await;
    network
        .check("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", &["502", "host-unreachable", "cannot be reached"])
        .await;
    network
        .check("CONNECT void.example:1 HTTP/1.1\r\n\r\n", &["502", "host-not-found", "cannot be resolved"])
        .await;
}

#[tokio::test]
async fn plain_requests_are_sent_on_without_what_is_for_the_proxy() {
    let network = usual().await;
    let request = "POST http://me@web.example:PORT/a?b HTTP/1.1\r\nHost: other.example\r\nX-Own: 1\r\nX-Hop: 1\r\n\
                   Connection: x-hop\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\r\n";
    let request = request.replace("PORT", &network.port.to_string());
    let answer = String::from_utf8(network.say(request.as_bytes(), has_two_heads).await).unwrap();
    let (head, sent) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(sent.starts_with("POST /a?b HTTP/1.1\r\n"), "{answer}");
    assert!(sent.contains(&format!("web.example:{}\r\n", network.port)), "{answer}");
    assert!(sent.contains("X-Own: 1"), "{answer}");
    for gone in ["other.example", "x-hop", "proxy-", "trailers", "me@"] {
        assert!(!sent.to_lowercase().contains(gone), "{gone} in {answer}");
    }
}

#[tokio::test]
async fn a_connection_serves_many_plain_requests() {
    let network = usual().await;
    let mut stream = network.connect().await;
    for path in ["first", "second"] {
        let request = format!("GET http://web.example:{}/{path} HTTP/1.1\r\nHost: x\r\n\r\n", network.port);
        stream.write_all(request.as_bytes()).await.unwrap();
        let heard = String::from_utf8(hear_until(&mut stream, has_two_heads).await).unwrap();
        assert!(heard.contains(&format!("GET /{path} ")), "{heard}");
    }
}

#[tokio::test]
async fn socks_opens_tunnels_to_what_is_allowed() {
    let network = usual().await;
    let mapped: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1];
    for (kind, address) in [
        (3, &b"\x0bweb.example"[..]),
        (3, b"\x0dapp.localhost"),
        (3, b"\x09127.0.0.1"),
        (1, &[127, 0, 0, 1]),
        (4, &mapped),
    ] {
        let hello = [&socks(kind, address, network.port)[..], b"hello\r\n\r\n"].concat();
        let heard = network.say(&hello, has_hello).await;
        assert_eq!(&heard[..12], [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0], "{address:?}");
        assert!(has_hello(&heard), "{address:?}");
    }
}

#[tokio::test]
async fn socks_refuses_by_its_codes() {
    let network = usual().await;
    let loopback = [&[0; 15][..], &[1]].concat();
    for (request, code) in [
        (socks(3, b"\x0bexample.org", 443), 2),
        (socks(3, b"\x0bweb.example", 1), 2),
        (socks(3, b"\x0eevil\0.example.", 1), 2),
        (socks(3, b"\x02\xff\xfe", 1), 2),
        (socks(3, b"\x00", 1), 2),
        (socks(1, &[127, 0, 0, 1], 1), 2),
        (socks(4, &loopback, network.port), 2),
        (socks(3, b"\x0bweb.example", 0), 2),
        (vec![5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80], 7),
        (vec![5, 1, 0, 5, 3, 0, 1, 127, 0, 0, 1, 0, 80], 7),
        (vec![5, 1, 0, 5, 1, 0, 9], 8),
    ] {
        let heard = network.say(&request, has_code).await;
        assert_eq!(heard[..4], [5, 0, 5, code], "{request:?}");
    }
    let mut stream = network.connect().await;
    stream.write_all(&[5, 1, 2]).await.unwrap();
    assert_eq!(hear(&mut stream).await, [5, 0xff]);
    let heard = network.say(&[4, 1, 0, 80, 127, 0, 0, 1, 0], has_code).await;
    assert_eq!(heard.first(), Some(&b'H'), "SOCKS4 is no HTTP");
}

#[tokio::test]
async fn of_many_addresses_only_those_that_are_open_are_dialled() {
    let network = network(
        &["web.example", "127.0.0.1:PORT"],
        &["127.0.0.2", "10.0.0.1", "127.0.0.1"],
        Limits::default(),
    )
    .await;
    network.check("GET http://web.example:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n", &["200 OK"]).await;
}

#[tokio::test]
async fn a_name_is_resolved_once() {
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let resolver: NameResolver = Arc::new(move |_| {
        let first = seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let address: IpAddr = if first { "127.0.0.1" } else { "127.0.0.9" }.parse().unwrap();
        Box::pin(async move { Ok(vec![address]) })
    });
    let rules = ["web.example", "127.0.0.1"].map(|rule| DomainRule::parse(rule).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy =
        Proxy::start(listener, HostFilter { allowed: rules.into(), ..HostFilter::default() }, resolver);
    let network = Network { proxy, address, port: 1 };
    network.check("CONNECT web.example:1 HTTP/1.1\r\n\r\n", &["cannot be reached"]).await;
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// The addresses that attackers have names lead to: this machine, its networks and the metadata of clouds, in every way to write it.
const CLOSED: [&str; 16] = [
    "127.0.0.9",
    "0.0.0.0",
    "169.254.169.254",
    "100.100.100.200",
    "10.0.0.1",
    "192.168.0.1",
    "::",
    "::1",
    "::ffff:127.0.0.9",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fe80::1",
];

#[tokio::test]
async fn a_name_that_is_rebound_leads_only_to_what_is_open() {
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let turn = Arc::clone(&next);
    // First to a place that is open, then to all others, as if each answer held for a moment.
    let resolver: NameResolver = Arc::new(move |_| {
        let turn = turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let address = if turn == 0 { "127.0.0.1" } else { CLOSED[(turn - 1) % CLOSED.len()] };
        Box::pin(async move { Ok(vec![address.parse().unwrap()]) })
    });
    let usual = usual().await;
    let rules = ["web.example".to_owned(), format!("127.0.0.1:{}", usual.port)];
    let allowed = rules.iter().map(|rule| DomainRule::parse(rule).unwrap()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = Proxy::start(listener, HostFilter { allowed, ..HostFilter::default() }, resolver);
    let network = Network { proxy, address, port: usual.port };
    network.check("GET http://web.example:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n", &["200 OK"]).await;
    for _ in CLOSED {
        network.check("CONNECT web.example:PORT HTTP/1.1\r\n\r\n", &["403 `web.example` leads to"]).await;
    }
    for _ in CLOSED {
        let get = "GET http://web.example:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n";
        network.check(get, &["403 `web.example` leads to"]).await;
    }
    for closed in CLOSED {
        let answer = network.say(&socks(3, b"\x0bweb.example", network.port), has_code).await;
        assert_eq!(answer.get(2..4), Some(&[5, 2][..]), "{closed}: {answer:?}");
    }
    assert_eq!(next.load(std::sync::atomic::Ordering::SeqCst), 1 + 3 * CLOSED.len());
}

#[tokio::test]
async fn who_says_nothing_is_not_waited_for() {
    let limits = Limits { handshake: Duration::from_millis(100), ..Limits::default() };
    let network = network(&["web.example"], &[], limits).await;
    for beginning in ["", "GET http://web", "\x05", "\x05\x01\x00\x05\x01"] {
        let mut stream = network.connect().await;
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
        assert!(end.is_ok(), "{beginning:?} is waited for");
    }
}

#[tokio::test]
async fn silent_tunnels_are_closed() {
    let limits = Limits { idle: Duration::from_millis(200), ..Limits::default() };
    let network = network(&["127.0.0.1"], &[], limits).await;
    let mut stream = network.connect().await;
    stream.write_all(&socks(1, &[127, 0, 0, 1], network.port)).await.unwrap();
    let mut heard = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
    assert!(end.is_ok() && heard.len() == 12, "{heard:?}");
}

#[tokio::test]
async fn heads_have_a_limit() {
    let network = usual().await;
    let long = format!("GET http://web.example/ HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(LONG));
    let mut stream = network.connect().await;
    // The rest is not read, so writing it may fail.
    drop(stream.write_all(long.as_bytes()).await);
    let heard = String::from_utf8(hear(&mut stream).await).unwrap();
    assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 431"), "{heard}");
}

const LONG: usize = 1024 * 1024;

#[tokio::test]
async fn connections_have_a_limit_and_are_taken_when_others_end() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let network = network(&["127.0.0.1"], &[], limits).await;
    let hello = [&socks(1, &[127, 0, 0, 1], network.port)[..], b"hello\r\n\r\n"].concat();
    let first = network.connect().await;
    let mut waiting = network.connect().await;
    waiting.write_all(&hello).await.unwrap();
    let heard = tokio::time::timeout(SILENCE, waiting.read_u8()).await;
    assert!(heard.is_err(), "{heard:?}");
    drop(waiting);
    drop(first);
    assert!(has_hello(&network.say(&hello, has_hello).await));
}

#[tokio::test]
async fn stopping_ends_tunnels_and_the_listener() {
    let network = usual().await;
    let mut stream = network.connect().await;
    stream.write_all(&socks(1, &[127, 0, 0, 1], network.port)).await.unwrap();
    let mut replies = [0; 12];
    stream.read_exact(&mut replies).await.unwrap();
    network.proxy.stop().await;
    assert_eq!(stream.read(&mut replies).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(network.address).await.is_err());
}
