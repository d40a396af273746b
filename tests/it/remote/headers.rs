//! Jupyter servers behind a proxy that wants headers of its own, as the routers of hosted sandboxes do.

use std::sync::Arc;

use ipybox::KernelClient;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::support::Place;
use crate::support::jupyter::{Jupyter, Server, TOKEN};

const ROUTER_TOKEN: &str = "Bearer the-token-of-the-router";
const SANDBOX: &str = "sandbox-4711";

/// A proxy before a Jupyter server. It lets requests through that have these headers, and takes them out.
struct Router {
    url: String,
    /// The first line of each request that was let through.
    passed: Arc<Mutex<Vec<String>>>,
}

impl Router {
    async fn before(jupyter: &Jupyter, wanted: &'static [(&'static str, &'static str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = jupyter.url_by(listener.local_addr().unwrap());
        let (passed, server) = (Arc::default(), jupyter.address());
        let router = Self { url, passed: Arc::clone(&passed) };
        // It ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let passed = Arc::clone(&passed);
                tokio::spawn(async move {
                    let mut client = client;
                    let Some(head) = admitted(&mut client, wanted).await else { return };
                    passed.lock().push(head.lines().next().unwrap_or_default().to_owned());
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    if server.write_all(head.as_bytes()).await.is_ok() {
                        // One that breaks ends the other.
                        copy_bidirectional(&mut client, &mut server).await.ok();
                    }
                });
            }
        });
        router
    }

    fn has_passed(&self, part: &str) -> bool {
        self.passed.lock().iter().any(|line| line.contains(part))
    }
}

/// The head of a request as the server gets it, with the server's own token; `None` if it was refused, in words that repeat
/// what it had.
async fn admitted(client: &mut TcpStream, wanted: &[(&str, &str)]) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let lines: Vec<&str> = head.trim_end().split("\r\n").collect();
    let values = |name: &str| -> Vec<&str> {
        let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
        headers.filter(|(its, _)| its.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    };
    let is_upgrade = !values("upgrade").is_empty();
    if !wanted.iter().all(|(name, value)| values(name) == [*value]) {
        let said =
            serde_json::json!({"message": format!("who is that? {}", lines[1..].join(" "))}).to_string();
        let length = said.len();
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{said}"
        );
        client.write_all(answer.as_bytes()).await.ok()?;
        return None;
    }
    let is_left_out = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        wanted.iter().any(|(wanted, _)| wanted.eq_ignore_ascii_case(&name))
            || name == "authorization"
            || (name == "connection" && !is_upgrade)
    };
    let kept = lines[1..].iter().filter(|line| !is_left_out(line));
    let mut sent: Vec<String> = [lines[0]].iter().chain(kept).map(|line| (*line).to_owned()).collect();
    sent.push(format!("Authorization: token {TOKEN}"));
    if !is_upgrade {
        sent.push("Connection: close".to_owned());
    }
    Some(sent.join("\r\n") + "\r\n\r\n")
}

const WANTED: &[(&str, &str)] =
    &[("Authorization", ROUTER_TOKEN), ("X-Sandbox-ID", SANDBOX), ("X-Sandbox-Port", "8888")];
const FLAGS: [&str; 6] = [
    "--kernel-gateway-header-env",
    "Authorization=ROUTER_TOKEN",
    "--kernel-gateway-header-env",
    "X-Sandbox-ID=SANDBOX_ID",
    "--kernel-gateway-header-env",
    "X-Sandbox-Port=SANDBOX_PORT",
];

#[tokio::test]
async fn every_request_and_connection_has_the_headers_that_a_router_wants() {
    for server in Server::ALL {
        let place = Place::new();
        let jupyter = Jupyter::shared(server).await;
        let router = Router::before(jupyter, WANTED).await;
        // The id is in `.env`, the rest in the environment.
        place.write(".env", &format!("SANDBOX_ID={SANDBOX}\n"));
        let flags = [&["--kernel-gateway-url", &router.url, "--log-level", "DEBUG"][..], &FLAGS].concat();
        let variables = [("ROUTER_TOKEN", ROUTER_TOKEN), ("SANDBOX_PORT", "8888")];
        let mut ipybox = place.start_with(&flags, &variables).await;
        ipybox.initialize().await;
        assert_eq!(ipybox.cell("x = 20\nx + 1").await.ok(), "21");
        let endless = serde_json::json!({"code": "import time\ntime.sleep(600)", "timeout": 1});
        assert!(ipybox.call("execute_ipython_cell", endless).await.is_error);
        assert_eq!(ipybox.cell("x + 2").await.ok(), "22");
        let seen = "import os\n[name for name in os.environ if 'ROUTER' in name or 'SANDBOX' in name]";
        assert_eq!(ipybox.cell(seen).await.ok(), "[]");
        ipybox.reset().await;
        assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
        for part in ["api/kernelspecs", "POST ", "/channels?", "/interrupt"] {
            assert!(router.has_passed(part), "{part}: {:?}", router.passed.lock());
        }
        let log = ipybox.log();
        for secret in [ROUTER_TOKEN, "the-token-of-the-router", SANDBOX] {
            assert!(!log.contains(secret), "{log}");
        }
        ipybox.stop().await;
        assert!(router.has_passed("DELETE "), "{:?}", router.passed.lock());
    }
}

#[tokio::test]
async fn a_router_that_repeats_the_headers_makes_no_error_show_them() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::KernelGateway).await;
    let router = Router::before(jupyter, &[("X-Sandbox-ID", "another-sandbox")]).await;
    let flags = [&["--kernel-gateway-url", router.url.as_str()][..], &FLAGS].concat();
    let variables = [("ROUTER_TOKEN", ROUTER_TOKEN), ("SANDBOX_ID", SANDBOX), ("SANDBOX_PORT", "8888")];
    let mut ipybox = place.start_with(&flags, &variables).await;
    ipybox.initialize().await;
    let error = ipybox.cell("1").await.error();
    assert!(error.contains("who is that?") && error.contains("${ROUTER_TOKEN}"), "{error}");
    for text in [error, ipybox.log()] {
        assert!(!text.contains("the-token-of-the-router") && !text.contains(SANDBOX), "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn headers_that_cannot_be_sent_are_refused_at_the_start() {
    let place = Place::new();
    let url = ["--kernel-gateway-url", "http://127.0.0.1:9/"];
    for (header, variables, expected) in [
        ("X-Key=NOT_SET", &[][..], "the header `x-key` for the Jupyter server from `NOT_SET`: it is not set"),
        ("X-Key=a secret", &[], "the header `x-key` for the Jupyter server from a variable: that is no name"),
        ("X-Key", &[], "that is no name of one"),
        ("Authorization: Bearer secret", &[], "`Authorization…` is no name of one"),
        ("Host=KEY", &[("KEY", "secret")], "the header `host` to the Jupyter server: ipybox sets it itself"),
        ("X-Key=KEY", &[("KEY", "two\nsecret lines")], "has characters that no HTTP header can hold"),
    ] {
        let flags = [&url[..], &["--kernel-gateway-header-env", header]].concat();
        let mut ipybox = place.start_with(&flags, variables).await;
        assert_eq!(ipybox.ended().await.code(), Some(1), "{header}");
        let log = ipybox.log();
        assert!(log.contains(expected) && !log.contains("secret"), "{header}: {log}");
    }
    let token = ["--kernel-gateway-token-env", "KEY", "--kernel-gateway-header-env", "authorization=KEY"];
    let mut ipybox = place.start_with(&[&url[..], &token].concat(), &[("KEY", "secret")]).await;
    assert_eq!(ipybox.ended().await.code(), Some(1));
    let log = ipybox.log();
    assert!(log.contains("there is a header `Authorization` already") && !log.contains("secret"), "{log}");
}

#[tokio::test]
async fn the_library_sends_headers() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::JupyterServer).await;
    let router = Router::before(jupyter, &[("X-Api-Key", "the-key")]).await;
    let builder = || KernelClient::builder().working_dir(place.workspace()).state_dir(place.states());
    let with_key =
        builder().kernel_gateway_url(&router.url).kernel_gateway_headers([("x-api-key", "the-key")]);
    assert!(!format!("{with_key:?}").contains("the-key"));
    let client = with_key.start().await.unwrap();
    assert_eq!(client.execute("6 * 7").await.unwrap().text.as_deref(), Some("42"));
    client.stop().await;
    let error = builder().kernel_gateway_url(&router.url).start().await.unwrap_err();
    assert!(format!("{error:?}").contains("who is that?"), "{error:?}");
}
