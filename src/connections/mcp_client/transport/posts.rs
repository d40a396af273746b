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
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, JsonRpcError, JsonRpcMessage,
    RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::time::{Instant, sleep_until};

use super::authorized::AuthorizedClient;
use super::events::{StreamEvent, events};
use crate::connections::mcp_client::failure::http_failure::{self, BadStatus, HttpError, RequestFailure};
use crate::connections::mcp_client::failure::lost_session;
use crate::connections::mcp_client::messages::{ExpectedAnswers, IncompleteMessage, outgoing};

/// The accepted content types.
const ACCEPTED: &str = "application/json, text/event-stream";
/// The beginning of an answer that is no message, as far as it is kept, in bytes. Less is shown: a part of a secret would not
/// be recognised.
const SAID_BYTES: usize = 16 * 1024;
/// Types that servers give JSON, beside its own and none.
const OTHERS_OF_JSON: [&str; 3] = ["text/plain", "text/json", "application/octet-stream"];
/// The shortest time between the beginning of a stream and the opening of the next one in its place.
pub(super) const REOPEN_DELAY: Duration = Duration::from_millis(500);

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Errors for a request that a server may answer with a 404, and that are about more than the session.
const NOT_FOUND: [ErrorCode; 3] =
    [ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_PARAMS, ErrorCode::RESOURCE_NOT_FOUND];

/// The part of a connection that a request belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionPart {
    /// Its first request.
    First,
    /// The notification that ends the handshake.
    Initialized,
    /// A session with an id.
    Session,
    /// A connection to a server that gives sessions no id.
    NoSession,
}

/// Sends the requests of one connection.
#[derive(Clone)]
pub(crate) struct HttpPosts {
    authorized: AuthorizedClient,
    answers: ExpectedAnswers,
}

impl HttpPosts {
    pub(crate) fn new(authorized: AuthorizedClient, answers: ExpectedAnswers) -> Self {
        Self { authorized, answers }
    }

    /// Sends `request` in the session.
    async fn send(
        &self,
        request: RequestBuilder,
        session: Option<&str>,
        headers: Headers,
    ) -> Result<Response, HttpError> {
        let request = request.headers(headers.into_iter().collect());
        self.authorized.send(request, session).await.map_err(StreamableHttpError::Client)
    }

    /// The content of a successful answer.
    async fn succeeded(
        &self,
        response: Response,
        asked: Option<RequestId>,
        part: ConnectionPart,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let session = header(&response, HEADER_SESSION_ID);
        let kind = header(&response, CONTENT_TYPE.as_str());
        let Some(asked) = asked else {
            // The protocol demands 202 for messages without an answer; some servers answer 200, with a body
            // or without.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if is(kind.as_deref(), EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, Some(asked)), session));
        }
        if !may_be_json(kind.as_deref()) {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let mut message = self.message(response, kind.as_deref()).await?;
        if let JsonRpcMessage::Error(error) = &mut message {
            let answers_other = error.id.as_ref() != Some(&asked);
            if part != ConnectionPart::First && answers_other && lost_session::is_named(&error.error.message)
            {
                let said = error.error.message.to_string();
                return Err(StreamableHttpError::Client(RequestFailure::LostSession(said)));
            }
            // It is about the request whatever its id is.
            error.id = Some(asked.clone());
        }
        if answered(&message) != Some(&asked) {
            return Err(unexpected("the server's answer is not the one to the request".to_owned()));
        }
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    /// The message that is the body.
    async fn message(
        &self,
        mut response: Response,
        kind: Option<&str>,
    ) -> Result<ServerJsonRpcMessage, HttpError> {
        let mut incoming = IncompleteMessage::default();
        while let Some(chunk) = response.chunk().await.map_err(discreet)? {
            incoming.push(&chunk).await;
            if incoming.is_endless() {
                break;
            }
        }
        let message = incoming.take();
        if let Some(error) = message.error_without_id() {
            return Ok(JsonRpcMessage::Error(error));
        }
        let fault = match &message.text {
            Err(excess) => format!("the server's answer is refused: {excess}"),
            Ok(_) if message.id().is_some() => "the server's answer is no MCP message".to_owned(),
            Ok(document) => {
                let beginning = &document.text[..document.text.len().min(SAID_BYTES)];
                let said = String::from_utf8_lossy(beginning);
                if is(kind, JSON_MIME_TYPE) {
                    format!("the server's answer is no MCP message: {said}")
                } else {
                    format!("{}\n{said}", http_failure::content_type(kind))
                }
            }
        };
        self.answers.admit(message).ok_or_else(|| unexpected(fault))
    }

    /// The events of the body, with their messages in the form for rmcp. If the body answers a request, an error in it that
    /// names none is about that one.
    fn events(&self, response: Response, asked: Option<RequestId>) -> Events {
        let answers = self.answers.clone();
        let events = events(response.bytes_stream().map_err(reqwest::Error::without_url));
        let events = events.and_then(move |event| {
            let answers = answers.clone();
            let asked = asked.clone();
            async move {
                answers.settle().await;
                Ok(sse(event, &answers, asked))
            }
        });
        events.map_err(|broken| SseError::Body(Box::new(broken))).boxed()
    }
}

impl StreamableHttpClient for HttpPosts {
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
        let part = ConnectionPart::of(&message, session.is_some());
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
            status if status.is_success() => self.succeeded(response, asked, part).await,
            // Whether the connection works shows in the next request.
            _ if part == ConnectionPart::Initialized => {
                let status = BadStatus::read(response).await;
                tracing::warn!(status = %status.code, "an MCP server refused the notification `initialized`");
                self.answers.handshake().fails(status.to_string());
                Ok(StreamableHttpPostResponse::Accepted)
            }
            _ => refused(response, asked, part).await,
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
            // The server ends sessions by itself, or has forgotten this one.
            status if status.is_client_error() => Ok(()),
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
        if is(kind.as_deref(), EVENT_STREAM_MIME_TYPE) {
            Ok(lasting(self.events(response, None)))
        } else {
            Err(StreamableHttpError::UnexpectedContentType(kind))
        }
    }
}

impl ConnectionPart {
    fn of(message: &ClientJsonRpcMessage, has_session: bool) -> Self {
        match message {
            JsonRpcMessage::Request(request)
                if matches!(
                    request.request,
                    ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
                ) =>
            {
                Self::First
            }
            JsonRpcMessage::Notification(notification)
                if matches!(notification.notification, ClientNotification::InitializedNotification(_)) =>
            {
                Self::Initialized
            }
            _ if has_session => Self::Session,
            _ => Self::NoSession,
        }
    }

    /// Says whether such a refusal says that the server does not know the session, and has not looked at the request.
    /// `answer` is the error in it that has the request's id.
    fn has_lost_session(self, status: &BadStatus, answer: Option<&JsonRpcError>) -> bool {
        match self {
            Self::First | Self::Initialized => false,
            Self::Session
                if status.is_gone()
                    && answer.is_none_or(|answer| !NOT_FOUND.contains(&answer.error.code)) =>
            {
                true
            }
            _ => answer.is_none() && status.names_lost_session(),
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
    part: ConnectionPart,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let is_json = may_be_json(header(&response, CONTENT_TYPE.as_str()).as_deref());
    let status = BadStatus::read(response).await;
    let error = match serde_json::from_str::<ServerJsonRpcMessage>(&status.body) {
        Ok(JsonRpcMessage::Error(error)) if is_json => Some(error),
        _ => None,
    };
    // One with the request's id answers it: the request has been looked at.
    let answer = error.as_ref().filter(|error| error.id.is_some() && error.id == asked);
    if part.has_lost_session(&status, answer) {
        return Err(StreamableHttpError::Client(status.lost_session()));
    }
    match error {
        Some(mut error) if status.code != StatusCode::FORBIDDEN => {
            // It is about the request whatever its id is.
            error.id = asked.or(error.id);
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), None))
        }
        _ => Err(StreamableHttpError::Client(RequestFailure::Status(status))),
    }
}

/// The request that a message answers.
fn answered(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

fn sse(event: StreamEvent, answers: &ExpectedAnswers, asked: Option<RequestId>) -> Sse {
    let is_message = event.is_message();
    let mut message = event.data.filter(|_| is_message).and_then(|data| answers.admit(data));
    if let Some(JsonRpcMessage::Error(error)) = &mut message
        && !matches!(error.id, Some(RequestId::Number(_)))
    {
        // Our ids are numbers.
        error.id = asked.or(error.id.take());
    }
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

/// Says whether a body of this type may be JSON.
fn may_be_json(kind: Option<&str>) -> bool {
    is(kind, JSON_MIME_TYPE) || kind.is_none() || OTHERS_OF_JSON.iter().any(|other| is(kind, other))
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
