//! Jupyter servers that are none, or mean harm: the session ends its attempt with a reason, the token goes to nobody else, and
//! memory is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Place, peak_kib};

/// The way in which a server treats a request.
#[derive(Debug, Clone)]
enum Manner {
    /// Answers with this, and closes the connection.
    Answers(String),
    /// Answers with the head, and then this for ever.
    Floods(&'static str, &'static [u8]),
    /// Answers a byte at a time, for ever.
    Drips,
    /// As Jupyter answers, with this id of a new kernel; the connection to the kernel gets the last answer.
    Starts(&'static str, String),
}

const TOKEN: &str = "the-token-of-this-server";

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn json(body: &str) -> String {
    response("200 OK", "Content-Type: application/json\r\n", body)
}

/// Reads the head of a request. Returns its first line.
async fn heard(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned())
}

async fn answer(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    let Some(line) = heard(&mut stream).await else { return Ok(()) };
    match manner {
        Manner::Answers(answer) => stream.write_all(answer.as_bytes()).await?,
        Manner::Floods(head, flood) => {
            stream.write_all(head.as_bytes()).await?;
            loop {
                stream.write_all(flood).await?;
            }
        }
        Manner::Drips => {
            for byte in b"HTTP/1.1 200 OK\r\nX: ".iter().chain(std::iter::repeat(&b'x')) {
                stream.write_all(&[*byte]).await?;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        Manner::Starts(id, connection) => {
            let answer = if line.contains("/api/kernelspecs") {
                json(r#"{"default": "python3", "kernelspecs": {"python3": {"name": "python3"}}}"#)
            } else if line.contains("/channels") {
                connection
            } else if line.starts_with("POST") {
                let body = serde_json::json!({"id": id, "name": "python3"}).to_string();
                response("201 Created", "Content-Type: application/json\r\n", &body)
            } else {
                response("204 No Content", "", "")
            };
            stream.write_all(answer.as_bytes()).await?;
        }
    }
    Ok(())
}

/// A server of this manner; its URL, and how many connections it has had.
async fn serve(manner: Manner) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let manner = manner.clone();
            // Whoever has had enough closes the connection.
            tokio::spawn(async move { answer(stream, manner).await.ok() });
        }
    });
    (url, count)
}

#[tokio::test]
async fn no_answer_of_a_server_costs_the_token_memory_or_an_end() {
    let (elsewhere, led) = serve(Manner::Answers(json("{}"))).await;
    let away = |status: &str| response(status, &format!("Location: {elsewhere}api\r\n"), "");
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Accept: d3Jvbmc=\r\n\r\n";
    let begun = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let endless = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    for manner in [
        Manner::Answers(away("302 Found")),
        Manner::Answers(away("307 Temporary Redirect")),
        Manner::Answers(away("308 Permanent Redirect")),
        Manner::Answers(json(&deep)),
        Manner::Answers(json(r#"{"default": "\u001b[2J", "kernelspecs": {}}"#)),
        Manner::Answers("\0\u{1}not HTTP at all".to_owned()),
        Manner::Floods(endless, &[b'x'; 65536]),
        Manner::Floods(begun, b"X-Header: yes\r\n"),
        Manner::Drips,
        Manner::Starts("a", away("302 Found")),
        Manner::Starts("a", away("301 Moved Permanently")),
        Manner::Starts("a", upgrade.to_owned()),
        Manner::Starts("../../elsewhere?x=", away("302 Found")),
        Manner::Starts("a\r\nX-Injected: yes", away("302 Found")),
    ] {
        check_use(manner, ["--kernel-gateway-url", "--kernel-gateway-token-env"]).await;
    }
    assert_eq!(led.load(Ordering::SeqCst), 0, "a redirect was followed");
}

#[tokio::test]
async fn no_answer_of_a_hub_costs_the_token_memory_or_an_end() {
    let (elsewhere, led) = serve(Manner::Answers(json("{}"))).await;
    let away = |status: &str| response(status, &format!("Location: {elsewhere}api\r\n"), "");
    let servers = serde_json::json!({"": {"ready": true, "url": format!("{elsewhere}user/me/")}});
    let user = serde_json::json!({"name": "me", "kind": "user", "servers": servers});
    let endless = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    for manner in [
        Manner::Answers(away("302 Found")),
        Manner::Answers(away("307 Temporary Redirect")),
        Manner::Answers(away("308 Permanent Redirect")),
        Manner::Answers(json(&user.to_string())),
        Manner::Answers(json(r#"{"name": "\u001b[2J", "kind": "service"}"#)),
        Manner::Floods(endless, &[b'x'; 65536]),
    ] {
        check_use(manner, ["--kernel-hub-url", "--kernel-hub-token-env"]).await;
    }
    assert_eq!(led.load(Ordering::SeqCst), 0, "the token's requests were led elsewhere");
}

/// A session whose server or Hub is of this manner ends its attempt, without the token in its words.
async fn check_use(manner: Manner, [url_flag, token_flag]: [&str; 2]) {
    let place = Place::new();
    let (url, _) = serve(manner.clone()).await;
    let flags = [url_flag, url.as_str(), token_flag, "GATEWAY"];
    let mut ipybox = place.start_with(&flags, &[("GATEWAY", TOKEN)]).await;
    ipybox.initialize().await;
    let error = ipybox.cell("1").await.error();
    assert!(!error.contains('\u{1b}') && !error.contains(TOKEN), "{manner:?}: {error}");
    assert!(peak_kib(&ipybox).await < 150_000, "{manner:?}");
    assert!(!ipybox.log().contains(TOKEN), "{manner:?}");
    ipybox.stop().await;
}
