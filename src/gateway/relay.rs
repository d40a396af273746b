//! One kernel and its connection to the host: messages pass as they are.

use futures::{SinkExt as _, StreamExt as _};
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::{self, Message as Frame};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use crate::describe::describe;
use crate::kernel::{
    self, Content, Ended, Launch, LocalKernel, Message, Parts, SUBPROTOCOL, Said, websocket,
};

/// What `wait` says of a process that has ended with 1.
const FAILED: i32 = 1 << 8;

/// Starts a kernel and connects it with the host until one of them ends. The kernel is dead then.
///
/// Returns the connection, which is to be [closed](close) when nothing is left of the kernel.
pub(super) async fn relay(
    stream: UnixStream,
    launch: Launch,
    mut signals: mpsc::UnboundedReceiver<Signal>,
) -> Option<WebSocketStream<UnixStream>> {
    let mut socket = match accept_hdr_async_with_config(stream, choose_protocol, Some(websocket())).await {
        Ok(socket) => socket,
        Err(error) => {
            tracing::debug!(%error, "the host does not want the kernel any more");
            return None;
        }
    };
    let end = tokio::select! {
        kernel = LocalKernel::start(&launch) => match kernel {
            Ok(kernel) => pass_on(&mut socket, kernel, &mut signals).await,
            Err(error) => Some(failed(error)),
        },
        () = killed(&mut signals) => None,
    };
    if let Some(end) = end {
        let dead = Frame::Binary(Parts::of_death(&end).encode());
        if let Err(error) = socket.send(dead).await {
            tracing::debug!(%error, "could not tell the host that a kernel has ended");
        }
    }
    Some(socket)
}

/// Closes the connection. The host takes that for the end of the kernel.
pub(super) async fn close(socket: Option<WebSocketStream<UnixStream>>) {
    if let Some(mut socket) = socket {
        // The host may have gone first.
        socket.close(None).await.ok();
    }
}

/// The other side asks for the only protocol that we speak.
#[expect(
    clippy::result_large_err,
    clippy::unnecessary_wraps,
    reason = "the signature of tungstenite's callback"
)]
fn choose_protocol(_: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    Ok(response)
}

async fn killed(signals: &mut mpsc::UnboundedReceiver<Signal>) {
    while signals.recv().await.is_some_and(|signal| signal != Signal::KILL) {}
}

/// Passes messages on until the kernel has ended, and returns how; `None` if the host does not want to know.
async fn pass_on(
    socket: &mut WebSocketStream<UnixStream>,
    mut kernel: LocalKernel,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
) -> Option<Ended> {
    let end = loop {
        let passed = tokio::select! {
            // The host is served first, so that endless output can be interrupted.
            biased;
            signal = signals.recv() => match signal {
                Some(signal) => {
                    kernel.signal(signal);
                    Ok(())
                }
                None => break None,
            },
            frame = socket.next() => match frame {
                Some(Ok(Frame::Binary(bytes))) => match Parts::decode(&bytes) {
                    Ok(parts) => kernel.forward(parts).await,
                    Err(error) => Err(error),
                },
                Some(Ok(Frame::Close(_)) | Err(_)) | None => break None,
                Some(Ok(_)) => Ok(()),
            },
            said = kernel.next() => match said {
                Ok(Said::Message(parts)) => {
                    match kernel.understand(&parts) {
                        // Only we say that it has ended.
                        Ok(Message { content: Content::Dead(_), .. }) => {
                            tracing::debug!("a kernel that lives says that it has ended");
                            continue;
                        }
                        Ok(_) => {}
                        Err(error) => tracing::debug!(%error, "passing on what cannot be understood"),
                    }
                    if send(socket, signals, &kernel, parts.encode().into()).await.is_err() {
                        break None;
                    }
                    Ok(())
                }
                Ok(Said::Torn) => match send(socket, signals, &kernel, Frame::Text(String::new().into())).await {
                    Ok(()) => Ok(()),
                    Err(_) => break None,
                },
                Ok(Said::Died(death)) => {
                    break Some(Ended { wait_status: death.manner.wait_status(), stderr: death.stderr });
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = passed {
            break Some(failed(error));
        }
    };
    kernel.kill().await;
    end
}

/// Sends to the host, which may be slow; a kill must get through meanwhile.
async fn send(
    socket: &mut WebSocketStream<UnixStream>,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
    kernel: &LocalKernel,
    frame: Frame,
) -> Result<(), tungstenite::Error> {
    let sent = socket.send(frame);
    tokio::pin!(sent);
    loop {
        tokio::select! {
            sent = &mut sent => return sent,
            Some(signal) = signals.recv() => kernel.signal(signal),
        }
    }
}

/// What is said of a kernel that could not be started or spoken to.
fn failed(error: kernel::Error) -> Ended {
    match error {
        kernel::Error::DiedStarting(death) | kernel::Error::Ended(death) => {
            Ended { wait_status: death.manner.wait_status(), stderr: death.stderr }
        }
        error => Ended { wait_status: FAILED, stderr: format!("failed to {}", describe(&error)) },
    }
}
