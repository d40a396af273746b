//! Answers the approval requests of a tool server in another process.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, SinkExt as _, Stream, StreamExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response, header};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{self, Error as SocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use super::super::wire::{self, ServerMessage};
use super::authority;
use crate::approval::{ApprovalRequest, UserAnswer, UserReply};
use crate::ground::text::describe;

/// The time that connecting may take. The server itself waits up to 5 s for another client to leave.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest message: an approval request with its arguments, of which a tool server accepts 40 MiB.
const MESSAGE_LIMIT_BYTES: usize = 80 * 1024 * 1024;
/// More requests than a tool server sends at a time, so that they never wait in the socket, which would delay
/// pings too.
const REQUESTS_CAPACITY: usize = 1024;
/// A tool server pings every 20 s: one that has been silent for so long is gone.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// The time that the server may take to answer our close frame.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to the approval channel of a [`ToolServer`](crate::ToolServer) in another process: a [`Stream`] of
/// [`ApprovalRequest`]s.
///
/// Requests may be answered in any order, from any task. Dropped requests are rejected, and so are those that
/// are open when the connection ends; answers are too late then. A tool server has one client at a time.
///
/// ```no_run
/// use ipybox::ApprovalClient;
///
/// # async fn example(host_token: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let client = ApprovalClient::connect("localhost", 8900, host_token).await?;
/// client
///     .on_request(async |request| {
///         println!("accepted: {request}");
///         request.accept();
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct ApprovalClient {
    requests: mpsc::Receiver<Result<ApprovalRequest, ApprovalClientError>>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// Why the connection to a tool server ended or could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalClientError {
    /// The tool server cannot be reached.
    #[error("reach the tool server at {address}: {reason}")]
    Unreachable {
        /// The address at which it should be.
        address: String,
        /// Why.
        reason: String,
    },
    /// The tool server refuses the client: for instance the token is not the host token.
    #[error("connect to the tool server's approval channel (status {status}): {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The message of the tool server.
        message: String,
    },
    /// The tool server has closed the connection: with code 1008 if another client is connected.
    #[error("stay connected to the tool server: it closed the connection (code {code}): {reason}")]
    Closed {
        /// The WebSocket close code.
        code: u16,
        /// The message of the tool server.
        reason: String,
    },
    /// The connection broke.
    #[error("stay connected to the tool server: {reason}")]
    Lost {
        /// Why.
        reason: String,
    },
}

impl ApprovalClient {
    /// Connects to the tool server at `host` and `port`, by its host token. Once this returns, the server
    /// sends its approval requests here.
    ///
    /// # Errors
    /// [`ApprovalClientError`]. That another client is connected shows later, by [`ApprovalClientError::Closed`].
    pub async fn connect(host: &str, port: u16, host_token: &str) -> Result<Self, ApprovalClientError> {
        let address = authority(host, port);
        let connected = timeout(CONNECT_TIMEOUT, open(&address, host, port, host_token)).await;
        let socket = connected.map_err(|_| ApprovalClientError::Unreachable {
            reason: format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
            address,
        })??;
        let (sender, requests) = mpsc::channel(REQUESTS_CAPACITY);
        let stop = CancellationToken::new();
        let attendant = Attendant { socket, open: HashMap::new(), requests: sender };
        let task = tokio::spawn(attendant.run(stop.clone()));
        Ok(Self { requests, stop, task: Some(task) })
    }

    /// The next request; `None` once the server has stopped or the connection has ended with an error. Cancellation safe.
    pub async fn next(&mut self) -> Option<Result<ApprovalRequest, ApprovalClientError>> {
        self.requests.recv().await
    }

    /// Hands each request to `callback` until the server stops. Calls of it may overlap: a request need not wait until
    /// the one before it is answered.
    ///
    /// Calls that are under way at the end are dropped. Dropping the future ends the connection.
    ///
    /// # Errors
    /// [`ApprovalClientError`] when the connection ends otherwise.
    pub async fn on_request<F, Answered>(mut self, mut callback: F) -> Result<(), ApprovalClientError>
    where
        F: FnMut(ApprovalRequest) -> Answered,
        Answered: Future<Output = ()>,
    {
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                request = self.next() => match request {
                    Some(request) => under_way.push(callback(request?)),
                    None => return Ok(()),
                },
                Some(()) = under_way.next() => {}
            }
        }
    }

    /// Sends the answers that were given, rejects what is open, and ends the connection.
    ///
    /// Dropping the client ends it too, at once, and may lose an answer that was given just before.
    pub async fn disconnect(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the approval client's task failed");
        }
    }
}

impl Stream for ApprovalClient {
    type Item = Result<ApprovalRequest, ApprovalClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.requests.poll_recv(context)
    }
}

impl Drop for ApprovalClient {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl std::fmt::Debug for ApprovalClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ApprovalClient").finish_non_exhaustive()
    }
}

async fn open(
    address: &str,
    host: &str,
    port: u16,
    token: &str,
) -> Result<WebSocketStream<TcpStream>, ApprovalClientError> {
    let unreachable = |error: &dyn std::error::Error| ApprovalClientError::Unreachable {
        address: address.to_owned(),
        reason: describe(error),
    };
    let mut request =
        format!("ws://{address}/approval").into_client_request().map_err(|error| unreachable(&error))?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| unreachable(&error))?;
    value.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, value);
    let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(&error))?;
    stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_LIMIT_BYTES))
        .max_frame_size(Some(MESSAGE_LIMIT_BYTES));
    match client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(SocketError::Http(response)) => Err(refused(&response)),
        Err(error) => Err(unreachable(&error)),
    }
}

fn refused(response: &Response<Option<Vec<u8>>>) -> ApprovalClientError {
    let body = response.body().as_deref().unwrap_or_default();
    let message = String::from_utf8_lossy(body).into_owned();
    ApprovalClientError::Refused { status: response.status().as_u16(), message }
}

/// Owns the socket: turns messages into requests, and their answers into messages.
struct Attendant {
    socket: WebSocketStream<TcpStream>,
    /// Open requests by id.
    open: HashMap<String, oneshot::Receiver<UserReply>>,
    requests: mpsc::Sender<Result<ApprovalRequest, ApprovalClientError>>,
}

impl Attendant {
    async fn run(mut self, stop: CancellationToken) {
        let ended = self.converse(&stop).await;
        // Answers to open requests are too late from here on.
        self.open.clear();
        if let Err(error) = ended {
            tracing::warn!(error = describe(&error), "the approval client is disconnected");
            // If the queue is full, the reader has been absent for long; the end of the stream is enough
            // then.
            self.requests.try_send(Err(error)).ok();
        }
    }

    async fn converse(&mut self, stop: &CancellationToken) -> Result<(), ApprovalClientError> {
        let mut heard = Instant::now();
        loop {
            // Answers first, so that none given before the end is lost.
            tokio::select! {
                biased;
                (id, answer) = answered(&mut self.open) => {
                    self.open.remove(&id);
                    self.send(wire::answer(&id, answer)).await?;
                }
                message = self.socket.next() => {
                    heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => self.hear(&text).await?,
                        Some(Ok(Message::Close(frame))) => return farewell(frame),
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Err(lost(&error)),
                        None => return Err(ApprovalClientError::Lost { reason: "it is gone".to_owned() }),
                    }
                }
                () = tokio::time::sleep_until(heard + SILENCE_LIMIT) => {
                    let reason = format!("it said nothing for {} s", SILENCE_LIMIT.as_secs());
                    return Err(ApprovalClientError::Lost { reason });
                }
                () = stop.cancelled() => {
                    self.take_leave().await;
                    return Ok(());
                }
            }
        }
    }

    async fn hear(&mut self, text: &str) -> Result<(), ApprovalClientError> {
        match wire::read_server_message(text) {
            Ok(ServerMessage::Question { id, action }) => {
                let (request, answer) = ApprovalRequest::of_another_process(*action);
                // Without room, or a reader, it is dropped, and thereby rejected.
                self.requests.try_send(Ok(request)).ok();
                self.open.insert(id, answer);
                Ok(())
            }
            Ok(ServerMessage::Withdrawn { id }) => {
                self.open.remove(&id);
                Ok(())
            }
            Ok(ServerMessage::Error { message }) => {
                tracing::debug!(message, "the tool server could not use an answer");
                Ok(())
            }
            // An error response rejects the request.
            Err(fault) => self.send(fault.to_message()).await,
        }
    }

    async fn send(&mut self, text: String) -> Result<(), ApprovalClientError> {
        self.socket.send(Message::text(text)).await.map_err(|error| lost(&error))
    }

    async fn take_leave(&mut self) {
        let leaving = async {
            if self.socket.close(None).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        };
        if timeout(FAREWELL_TIMEOUT, leaving).await.is_err() {
            tracing::debug!("the tool server did not answer the farewell");
        }
    }
}

/// The next answer and its request's id. A dropped request is rejected.
async fn answered(open: &mut HashMap<String, oneshot::Receiver<UserReply>>) -> (String, UserReply) {
    std::future::poll_fn(|context| {
        let answered = open.iter_mut().find_map(|(id, answer)| match answer.poll_unpin(context) {
            Poll::Ready(answer) => Some((id.clone(), answer.unwrap_or(UserAnswer::No.into()))),
            Poll::Pending => None,
        });
        answered.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// A close code of a server that stops is no error; others are.
fn farewell(frame: Option<CloseFrame>) -> Result<(), ApprovalClientError> {
    match frame {
        Some(CloseFrame { code: CloseCode::Normal | CloseCode::Away, .. }) | None => Ok(()),
        Some(CloseFrame { code, reason }) => {
            Err(ApprovalClientError::Closed { code: code.into(), reason: reason.to_string() })
        }
    }
}

fn lost(error: &tungstenite::Error) -> ApprovalClientError {
    ApprovalClientError::Lost { reason: describe(error) }
}
