use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::JupyterHeaders;
use super::*;
use crate::ground::text::Redactor;

/// The answer of a Hub that says that a server runs, in whose place its proxy answers.
fn answer(request: &str) -> (&'static str, &'static str) {
    match request.split(" HTTP").next().unwrap_or_default() {
        "GET /hub/api/user" => ("200 OK", r#"{"name": "me", "kind": "user"}"#),
        "GET /hub/api/users/me" => ("200 OK", r#"{"servers": {"": {"ready": true, "url": "/user/me/"}}}"#),
        "GET /hub/api/users/me/server/progress" => {
            ("200 OK", "data: {\"message\": \"a seat is found\"}\n\ndata: {\"ready\": true}\n\n")
        }
        "POST /hub/api/users/me/server" => ("400 Bad Request", r#"{"message": "me is already running"}"#),
        _ => ("503 Service Unavailable", "<html>"),
    }
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let (status, body) = answer(&String::from_utf8_lossy(&head));
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await
}

#[tokio::test]
async fn a_server_that_is_said_to_be_ready_and_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let access = JupyterAccess::new(&url, JupyterHeaders::default(), None, Redactor::default()).unwrap();
    let hub = HubServer::new(access, HubServerName::default()).unwrap();
    let said = Mutex::new(Vec::new());
    let report = |words: &str| said.lock().push(words.to_owned());
    let error = hub.find(Duration::ZERO, &report).await.unwrap_err().to_string();
    for words in [format!("`{url}user/me`"), "is ready".to_owned(), "503 Service Unavailable".to_owned()] {
        assert!(error.contains(&words), "{error}");
    }
    let said = said.into_inner();
    let waiting = said.iter().filter(|words| words.starts_with("waiting for the Jupyter server"));
    assert_eq!(waiting.count(), 1, "{said:?}");
    serving.abort();
}
