//! A kernel that runs elsewhere, spoken to over a WebSocket.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message as Frame};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::death::Manner;
use super::message::{Content, Message};
use super::wire::{Parts, SUBPROTOCOL};
use super::{Death, Error, Event, Limits};
use crate::sandbox::{Seat, SeatControl};

/// The longest message. Text comes in pieces of 64 Ki characters; images are whole. Code in the kernel can send what
/// takes many times its size when it is read.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a gateway is given to close the connection of a kernel that it has been told to kill.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// How long after the end of a connection the sandbox may take to end with it.
const SANDBOX_END: Duration = Duration::from_millis(500);

/// A kernel in a sandbox.
pub(super) struct RelayedKernel {
    socket: WebSocketStream<UnixStream>,
    control: SeatControl,
    limits: Limits,
}

/// How both ends use their WebSocket.
pub(crate) fn websocket() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
}

impl RelayedKernel {
    /// Opens the connection to a kernel whose start has been asked for.
    pub(super) async fn open(seat: Seat, limits: Limits) -> Result<Self, Error> {
        let (stream, control) = seat.split();
        let mut request =
            "ws://localhost/api/kernels/kernel/channels".into_client_request().map_err(failed)?;
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        let (socket, _) =
            client_async_with_config(request, stream, Some(websocket())).await.map_err(failed)?;
        Ok(Self { socket, control, limits })
    }

    pub(super) async fn send(&mut self, parts: &Parts) -> Result<(), Error> {
        self.socket.send(Frame::Binary(parts.encode())).await.map_err(failed)
    }

    /// The next message or the kernel's end. Cancellation safe.
    pub(super) async fn next(&mut self) -> Result<Event, Error> {
        let bytes: Bytes = loop {
            match self.socket.next().await {
                Some(Ok(Frame::Binary(bytes))) => break bytes,
                Some(Ok(Frame::Text(_))) => return Ok(Event::Torn),
                Some(Ok(_)) => {}
                Some(Err(error @ tungstenite::Error::Capacity(_))) => return Err(failed(error)),
                Some(Err(_)) | None => return self.sandbox_end().await,
            }
        };
        let message = Parts::decode(&bytes).and_then(|parts| Message::decode(&parts));
        Ok(match message {
            Ok((Message { content: Content::Dead(end), .. }, _)) => Event::Died(Death {
                manner: Manner::Process(ExitStatus::from_raw(end.wait_status)),
                stderr: end.stderr,
                limits: self.limits,
            }),
            Ok((message, _)) => Event::Message(message),
            Err(error) => {
                tracing::debug!(%error, "ignored a message of the kernel");
                Event::Torn
            }
        })
    }

    /// A connection ends without a word only if the whole sandbox does.
    async fn sandbox_end(&mut self) -> Result<Event, Error> {
        match tokio::time::timeout(SANDBOX_END, self.control.sandbox_ended()).await {
            Ok(end) => Ok(Event::Died(Death {
                manner: Manner::Process(end.status),
                stderr: end.stderr,
                limits: self.limits,
            })),
            Err(_) => Err(Error::Connection("the gateway in the sandbox closed the connection".into())),
        }
    }

    /// Sends a signal to the kernel and all that it started.
    pub(super) fn signal(&self, signal: Signal) {
        self.control.signal(signal);
    }

    /// Kills the kernel and all that it started. `false` if the gateway does not say that it is done.
    pub(super) async fn kill(mut self) -> bool {
        self.signal(Signal::KILL);
        let closed = async { while let Some(Ok(_)) = self.socket.next().await {} };
        tokio::time::timeout(KILL_GRACE, closed).await.is_ok()
    }
}

fn failed(error: tungstenite::Error) -> Error {
    Error::Connection(Box::new(error))
}
