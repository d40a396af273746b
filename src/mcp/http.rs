//! Streamable HTTP, and the HTTP client that both HTTP transports use.
//!
//! The protocol is rmcp's. Ours are the policies: whom redirects may lead to, how long a server may be
//! gone, and that no URL, which may hold a secret, gets into an error or a log line.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId};
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::Error;
use super::filled::FilledHttp;
use crate::describe::describe;

/// How long one TCP and TLS connection may take to come about.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest server-sent event, in bytes: as much as a stdio server may send in one message.
pub(super) const EVENT_LIMIT: usize = 256 * 1024 * 1024;
/// How often a broken event stream is taken up again before the server counts as gone: about 8 s in all.
const STREAM_RETRIES: usize = 4;
const STREAM_RETRY_DELAY: Duration = Duration::from_millis(500);
/// More concurrent calls than this wait for one another. Cells may well start a hundred threads.
const CONCURRENT_REQUESTS: usize = 128;
/// How many redirects one request may follow.
const REDIRECTS: usize = 5;

/// The error of a Streamable HTTP transport.
pub(super) type HttpError = StreamableHttpError<reqwest::Error>;

/// An HTTP client for MCP servers. It follows redirects on the same origin only.
pub(super) fn client() -> Result<Client, Error> {
    // An error means that a provider is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    let builder = || {
        Client::builder()
            .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(TCP_TIMEOUT)
            .redirect(same_origin_redirects())
    };
    builder().build().or_else(|error| {
        // A machine without CA certificates can still reach servers by plain HTTP.
        tracing::debug!(error = describe(&error), "no TLS trust anchors");
        let without_anchors = builder().tls_certs_only([]).build();
        without_anchors.map_err(|error| Error::HttpClient { reason: describe(&error) })
    })
}

/// Follows 307 and 308 on the same origin: others would lose the message's body or send our headers away.
fn same_origin_redirects() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let keeps_body =
            matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let first = attempt.previous().first();
        let is_same_origin = first.is_some_and(|first| first.origin() == attempt.url().origin());
        if keeps_body && is_same_origin && attempt.previous().len() <= REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// The Streamable HTTP transport to the server.
pub(super) fn transport(
    client: Client,
    parameters: &FilledHttp,
) -> StreamableHttpClientTransport<DiscreetClient> {
    let mut retries = ExponentialBackoff::default();
    retries.max_times = Some(STREAM_RETRIES);
    retries.base_duration = STREAM_RETRY_DELAY;
    let headers = parameters.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut config = StreamableHttpClientTransportConfig::with_uri(parameters.url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(EVENT_LIMIT)
        .max_concurrent_requests(CONCURRENT_REQUESTS);
    config.retry_config = Arc::new(retries);
    StreamableHttpClientTransport::with_client(DiscreetClient(client), config)
}

/// What happened, without URLs and in words for people.
pub(super) fn explain(error: &HttpError) -> String {
    match error {
        StreamableHttpError::Client(error) => describe(error),
        StreamableHttpError::AuthRequired(_) => status(StatusCode::UNAUTHORIZED),
        StreamableHttpError::InsufficientScope(_) => status(StatusCode::FORBIDDEN),
        StreamableHttpError::HttpStatus(error) => {
            StatusCode::from_u16(error.status).map_or_else(|_| error.to_string(), status)
        }
        StreamableHttpError::UnexpectedServerResponse(response) => explain_response(response),
        StreamableHttpError::UnexpectedContentType(found) => content_type(found.as_deref()),
        other => other.to_string(),
    }
}

/// The status with the advice that it calls for.
pub(super) fn status(status: StatusCode) -> String {
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "\nhint: credentials go into `headers`, for example `\"Authorization\": \"Bearer ${TOKEN}\"`"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            "\nhint: is this the URL of an MCP endpoint, and is `type` right?"
        }
        status if status.is_redirection() => {
            "\nhint: the server redirects to another address; give that one as `url`"
        }
        _ => "",
    };
    format!("the server answered HTTP {status}{advice}")
}

/// What to say of an answer that is of none of MCP's content types.
pub(super) fn content_type(found: Option<&str>) -> String {
    let found = found.unwrap_or("none");
    format!("the server answered with the content type `{found}`; is this the URL of an MCP server?")
}

/// Takes apart rmcp's `HTTP 404 Not Found: <body>`.
fn explain_response(response: &str) -> String {
    let Some((head, body)) = response.strip_prefix("HTTP ").and_then(|rest| rest.split_once(": ")) else {
        return shortened(response);
    };
    let code = head.split(' ').next().and_then(|code| StatusCode::from_bytes(code.as_bytes()).ok());
    match (code.map(status), body.trim()) {
        (None, _) => shortened(response),
        (Some(status), "") => status,
        (Some(status), body) => format!("{status}\n{}", shortened(body)),
    }
}

/// The longest part of an answer's body that is shown, in characters: an error page explains no more.
const BODY_CHARS: usize = 300;

pub(super) fn shortened(text: &str) -> String {
    let mut characters = text.chars();
    let short: String = characters.by_ref().take(BODY_CHARS).collect();
    if characters.next().is_some() { format!("{short}…") } else { short }
}

/// reqwest's client, as rmcp uses it, with two repairs.
///
/// Its errors have no URLs: rmcp logs them, and URLs may hold secrets. And an error without an id that
/// answers a request gets the request's id: servers refuse lost sessions with such errors (the
/// TypeScript SDK's examples do), rmcp drops what has no id, and the call would wait for ever.
#[derive(Clone)]
pub(super) struct DiscreetClient(Client);

fn discreet(error: HttpError) -> HttpError {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    }
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

fn correlated(
    mut response: StreamableHttpPostResponse,
    asked: Option<RequestId>,
) -> StreamableHttpPostResponse {
    if let StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _) = &mut response
        && error.id.is_none()
    {
        error.id = asked;
    }
    response
}

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl StreamableHttpClient for DiscreetClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let asked = request_id(&message);
        let posted = self.0.post_message(uri, message, session, token, headers).await;
        posted.map(|response| correlated(response, asked)).map_err(discreet)
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let asked = request_id(&message);
        let posted =
            self.0.post_message_with_max_sse_event_size(uri, message, session, token, headers, limit);
        posted.await.map(|response| correlated(response, asked)).map_err(discreet)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        self.0.delete_session(uri, session, token, headers).await.map_err(discreet)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, HttpError> {
        self.0.get_stream(uri, session, last_event, token, headers).await.map_err(discreet)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<Events, HttpError> {
        let stream =
            self.0.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, limit);
        stream.await.map_err(discreet)
    }
}
