//! Both sides of a standalone tool server.

use futures::{SinkExt as _, StreamExt as _};
use ipybox::{ApprovalClient, ApprovalRequest, ToolRunner, ToolRunnerError, ToolServer};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::{PATIENCE, probe};

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// A server that asks before each call.
pub(crate) async fn asking() -> ToolServer {
    ToolServer::builder().port(0).approval_required(true).approval_timeout(PATIENCE).start().await.unwrap()
}

/// A runner of `probe`, which is registered.
pub(crate) async fn probe_at(server: &ToolServer) -> ToolRunner {
    let runner = runner(server, "probe");
    runner.register(&probe()).await.unwrap();
    runner
}

pub(crate) fn runner(server: &ToolServer, name: &str) -> ToolRunner {
    let runner = ToolRunner::new(name).host("127.0.0.1").port(server.address().port());
    runner.token(server.token()).host_token(server.host_token())
}

pub(crate) async fn client(server: &ToolServer) -> ApprovalClient {
    ApprovalClient::connect("localhost", server.address().port(), server.host_token()).await.unwrap()
}

pub(crate) async fn next(client: &mut ApprovalClient) -> ApprovalRequest {
    timeout(PATIENCE, client.next()).await.expect("a request").expect("the stream goes on").unwrap()
}

/// Calls `echo` in the background.
pub(crate) fn echo(
    runner: &ToolRunner,
    text: &str,
) -> tokio::task::JoinHandle<Result<Value, ToolRunnerError>> {
    let (runner, arguments) = (runner.clone(), json!({"text": text}));
    tokio::spawn(async move { runner.run("echo", &arguments).await })
}

/// Any HTTP request; the status, and the text of the answer.
pub(crate) async fn send(
    server: &ToolServer,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let mut head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// The approval channel as any client opens it.
pub(crate) async fn open(server: &ToolServer, headers: &[(&str, &str)]) -> Result<Socket, SocketError> {
    let mut request = format!("ws://{}/approval", server.address()).into_client_request().unwrap();
    for (name, value) in headers {
        let name: tokio_tungstenite::tungstenite::http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(server.address()).await.unwrap();
    client_async(request, stream).await.map(|(socket, _)| socket)
}

pub(crate) async fn open_as_host(server: &ToolServer) -> Socket {
    let bearer = format!("Bearer {}", server.host_token());
    open(server, &[("authorization", &bearer)]).await.unwrap()
}

pub(crate) async fn receive_json(socket: &mut Socket) -> Value {
    loop {
        let message = timeout(PATIENCE, socket.next()).await.expect("a message").unwrap().unwrap();
        if let Message::Text(text) = message {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

pub(crate) async fn send_json(socket: &mut Socket, message: Value) {
    socket.send(Message::text(message.to_string())).await.unwrap();
}
