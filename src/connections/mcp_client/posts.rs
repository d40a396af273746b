//! Sends the HTTP requests of Streamable HTTP for rmcp, which implements the protocol.
//!
//! rmcp's own client reads and parses a whole answer before its size can be checked; drops an answer that it
//! cannot parse, and an error without the request's id (the Python SDK refuses with the id `server-error`, examples
//! of the TypeScript SDK without any), so that the call waits for ever; and its errors have URLs, which may hold secrets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _, future};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcError, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::time::{Instant, sleep_until};

use super::answers::Answers;
use super::authorized::Authorized;
use super::events::{Event, events};
use super::http_failure::{self, HttpError, RequestFailure};
use super::incoming::Incoming;
use super::outgoing;

/// The accepted content types.
const ACCEPTED: &str = "application/json, text/event-stream";
/// How long after the beginning of a stream the next one is opened in its place at the earliest.
pub(super) const REOPEN_DELAY: Duration = Duration::from_millis(500);

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Sends the requests of one connection.
#[derive(Clone)]
pub(super) struct Posts {
    authorized: Authorized,
    answers: Answers,
}

impl Posts {
    pub(super) fn new(authorized: Authorized, answers: Answers) -> Self {
        Self { authorized, answers }
    }

    /// Sends `request` in the session.
    async fn send(
        &self,
        request: RequestBuilder,
        session: Option<&str>,
        headers: Headers,
    ) -> Result<Response, HttpError> {
        let mut request = request.headers(headers.into_iter().collect());
        if let Some(session) = session {
            request = request.header(HEADER_SESSION_ID, session);
        }
        self.authorized.send(request).await.map_err(StreamableHttpError::Client)
    }

    /// The content of a successful answer.
    async fn succeeded(
        &self,
        response: Response,
        asked: Option<RequestId>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let session = header(&response, HEADER_SESSION_ID);
        let kind = header(&response, CONTENT_TYPE.as_str());
        if is(kind.as_deref(), EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        if asked.is_none() {
            // The protocol demands 202 for messages without an answer; some servers answer 200, with a body
            // or without.
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !is(kind.as_deref(), JSON_MIME_TYPE) {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let message = correlated(self.message(response).await?, asked.clone());
        if answered(&message) != asked.as_ref() {
            return Err(unexpected("the server's answer is not the one to the request".to_owned()));
        }
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    /// The message that is the body.
    async fn message(&self, mut response: Response) -> Result<ServerJsonRpcMessage, HttpError> {
        let mut incoming = Incoming::default();
        while let Some(chunk) = response.chunk().await.map_err(discreet)? {
            incoming.push(&chunk).await;
            if incoming.is_endless() {
                break;
            }
        }
        let message = incoming.take();
        let excess = message.text.as_ref().err().copied();
        self.answers.admit(message).ok_or_else(|| {
            unexpected(match excess {
                Some(excess) => format!("the server's answer is refused: {excess}"),
                None => "the server's answer is no MCP message".to_owned(),
            })
        })
    }

    /// The events of the body, with their messages in the form for rmcp.
    fn events(&self, response: Response) -> Events {
        let answers = self.answers.clone();
        let events = events(response.bytes_stream().map_err(reqwest::Error::without_url));
        let events = events.and_then(move |event| {
            let answers = answers.clone();
            async move {
                answers.settle().await;
                Ok(sse(event, &answers))
            }
        });
        events.map_err(|broken| SseError::Body(Box::new(broken))).boxed()
    }
}

impl StreamableHttpClient for Posts {
    type Error = RequestFailure;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let asked = request_id(&message);
        let body = outgoing::encode(message).await.map_err(StreamableHttpError::Io)?;
        let request = self
            .authorized
            .client
            .post(uri.as_ref())
            .header(ACCEPT, ACCEPTED)
            .header(CONTENT_TYPE, JSON_MIME_TYPE);
        let response = self.send(request.body(body), session.as_deref(), headers).await?;
        match response.status() {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if session.is_some() => Err(StreamableHttpError::SessionExpired),
            status if status.is_success() => self.succeeded(response, asked).await,
            _ => refused(response, asked, session.is_some()).await,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _token: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        let request = self.authorized.client.delete(uri.as_ref());
        let response = self.send(request, Some(&session), headers).await?;
        match response.status() {
            // The server ends sessions by itself.
            StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            _ => response.error_for_status().map(drop).map_err(discreet),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _token: Option<String>,
        headers: Headers,
    ) -> Result<Events, HttpError> {
        let mut request = self.authorized.client.get(uri.as_ref()).header(ACCEPT, EVENT_STREAM_MIME_TYPE);
        if let Some(last_event) = last_event {
            request = request.header(HEADER_LAST_EVENT_ID, last_event);
        }
        let response = self.send(request, session.as_deref(), headers).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let response = response.error_for_status().map_err(discreet)?;
        let kind = header(&response, CONTENT_TYPE.as_str());
        match is(kind.as_deref(), EVENT_STREAM_MIME_TYPE) {
            true => Ok(lasting(self.events(response))),
            false => Err(StreamableHttpError::UnexpectedContentType(kind)),
        }
    }
}

/// Reports the end of a stream not before [`REOPEN_DELAY`]. rmcp opens a broken one again at once, and one that has ended as
/// soon as its server wants: without end, if each of them breaks.
fn lasting(events: Events) -> Events {
    let earliest = Instant::now() + REOPEN_DELAY;
    let events = events.or_else(move |error| async move {
        sleep_until(earliest).await;
        Err(error)
    });
    events.chain(stream::once(sleep_until(earliest)).filter_map(|()| future::ready(None))).boxed()
}

/// A refusal: an error of JSON-RPC, if it is one, else its status and how its body begins.
async fn refused(
    response: Response,
    asked: Option<RequestId>,
    is_in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let status = response.status();
    let is_json = is(header(&response, CONTENT_TYPE.as_str()).as_deref(), JSON_MIME_TYPE);
    let body = http_failure::beginning(response).await;
    let wants_credentials = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if is_json
        && !wants_credentials
        && let Ok(JsonRpcMessage::Error(mut error)) = serde_json::from_slice::<ServerJsonRpcMessage>(&body)
    {
        if is_in_session && status == StatusCode::BAD_REQUEST && is_lost_session(&error, asked.as_ref()) {
            return Err(StreamableHttpError::SessionExpired);
        }
        // It is about the request whatever its id is.
        error.id = asked.or(error.id);
        return Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), None));
    }
    Err(unexpected(format!("HTTP {status}: {}", String::from_utf8_lossy(&body))))
}

/// Whether the server refuses a request because it does not know its session. The request was not looked at.
///
/// The protocol demands a 404. Servers modelled on the TypeScript SDK's examples answer 400 with such an error instead,
/// for every request until there is a new session. What has the request's id answers the request: it has been handled.
fn is_lost_session(refusal: &JsonRpcError, asked: Option<&RequestId>) -> bool {
    (refusal.id.is_none() || refusal.id.as_ref() != asked)
        && refusal.error.code.0 == -32000
        && refusal.error.message.to_lowercase().contains("session")
}

/// An error without an id that answers a request gets the request's.
fn correlated(mut message: ServerJsonRpcMessage, asked: Option<RequestId>) -> ServerJsonRpcMessage {
    if let JsonRpcMessage::Error(error) = &mut message
        && error.id.is_none()
    {
        error.id = asked;
    }
    message
}

/// The request that a message answers.
fn answered(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

fn sse(event: Event, answers: &Answers) -> Sse {
    let is_message = event.is_message();
    let message = event.data.filter(|_| is_message).and_then(|data| answers.admit(data));
    let data = message.and_then(|message| serde_json::to_string(&message).ok());
    Sse { event: event.kind, data, id: event.id, retry: event.retry }
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn is(kind: Option<&str>, expected: &str) -> bool {
    kind.is_some_and(|kind| {
        kind.get(..expected.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(expected))
    })
}

fn unexpected(words: String) -> HttpError {
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(words))
}

fn discreet(error: reqwest::Error) -> HttpError {
    StreamableHttpError::Client(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_ends_at_once_is_not_opened_again_at_once() {
        let broken = || Err(SseError::Body("it broke".into()));
        for items in [vec![], vec![broken()], vec![Ok(Sse::default()), broken()]] {
            let begun = Instant::now();
            let count = items.len();
            let mut events = lasting(stream::iter(items).boxed());
            let mut seen = 0;
            while let Some(event) = events.next().await {
                seen += 1;
                assert_eq!(begun.elapsed().is_zero(), event.is_ok());
            }
            assert_eq!((seen, begun.elapsed()), (count, REOPEN_DELAY));
        }
    }
}
