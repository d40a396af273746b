//! The HTTP client that both HTTP transports use, and its error texts.
//!
//! It sets the policies: allowed redirects, how long a server may be gone, and that no URL, which may hold a
//! secret, gets into an error or a log line.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, redirect};
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig, StreamableHttpError,
};

use super::Error;
use super::answers::Answers;
use super::authorized::{Authorized, Refusal, RequestFailure};
use super::filled::FilledHttp;
use super::posts::Posts;
use crate::text::{describe, shortened};
use crate::web::{self, Proxies};

/// How often a broken event stream is reopened before the server counts as gone: about 8 s in all.
const STREAM_RETRIES: usize = 4;
const STREAM_RETRY_DELAY: Duration = Duration::from_millis(500);
/// More concurrent calls than this wait for one another. Cells may well start a hundred threads.
const CONCURRENT_REQUESTS: usize = 128;
/// How many redirects one request may follow.
const REDIRECTS: usize = 5;

/// The error of a Streamable HTTP transport.
pub(super) type HttpError = StreamableHttpError<RequestFailure>;

/// An HTTP client for MCP servers. It follows redirects on the same origin only.
pub(super) fn client(proxies: Proxies) -> Result<Client, Error> {
    web::client(proxies, |builder| builder.redirect(same_origin_redirects()))
        .map_err(|reason| Error::HttpClient { reason })
}

/// Follows 307 and 308 on the same origin: other redirects would lose the body, or send our headers to
/// another origin.
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
    authorized: Authorized,
    parameters: &FilledHttp,
    answers: Answers,
) -> StreamableHttpClientTransport<Posts> {
    let mut retries = ExponentialBackoff::default();
    retries.max_times = Some(STREAM_RETRIES);
    retries.base_duration = STREAM_RETRY_DELAY;
    let headers = parameters.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut config = StreamableHttpClientTransportConfig::with_uri(parameters.url.as_str())
        .custom_headers(headers)
        .max_concurrent_requests(CONCURRENT_REQUESTS);
    config.retry_config = Arc::new(retries);
    StreamableHttpClientTransport::with_client(Posts::new(authorized, answers), config)
}

/// The error as text for people, without URLs.
pub(super) fn explain(error: &HttpError) -> String {
    match error {
        StreamableHttpError::Client(error) => error.to_string(),
        StreamableHttpError::HttpStatus(error) => {
            StatusCode::from_u16(error.status).map_or_else(|_| error.to_string(), status)
        }
        StreamableHttpError::UnexpectedServerResponse(response) => explain_response(response),
        StreamableHttpError::UnexpectedContentType(found) => content_type(found.as_deref()),
        other => other.to_string(),
    }
}

/// Why a request failed, with advice.
pub(super) fn request_error(error: &reqwest::Error) -> String {
    let text = describe(error);
    let is_untrusted = text.contains("invalid peer certificate");
    let advice = if is_untrusted {
        "\nhint: ipybox trusts the system's certificates, or those in the file that `SSL_CERT_FILE` names in its environment"
    } else {
        ""
    };
    text + advice
}

/// A refusal of credentials, with advice.
pub(super) fn refused(refusal: &Refusal) -> String {
    let Refusal { status, challenge, why, command, .. } = refusal;
    let challenge = challenge.as_deref().unwrap_or_default();
    let scope = parameter(challenge, "scope").filter(|_| challenge.contains("insufficient_scope"));
    let wants = match (scope, why) {
        (_, Some(why)) => format!(": {why}"),
        (Some(scope), None) => format!(": the token lacks the scope `{scope}`"),
        (None, None) if command.is_some() => ": it asks for a login".to_owned(),
        (None, None) => String::new(),
    };
    let has_login = challenge.contains("resource_metadata=") || challenge.contains("authorization_uri=");
    let login = match command {
        Some(command) => format!("let the user run `{command}`, and then do the same again. Other "),
        // What is wrong is said, and credentials would not mend it.
        None if why.is_some() => return format!("the server answered HTTP {status}{wants}"),
        None if has_login => "without the header `Authorization` ipybox would log in. Other ".to_owned(),
        None => String::new(),
    };
    format!("the server answered HTTP {status}{wants}\nhint: {login}{CREDENTIALS}")
}

const CREDENTIALS: &str = "credentials go into `headers`, for example `\"Authorization\": \"Bearer ${TOKEN}\"`, with the variable set in ipybox's \
     environment or the workspace's `.env`";

/// The value of a parameter in a challenge, if it can be shown.
pub(super) fn parameter<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = challenge.split_once(&format!("{name}=\""))?;
    let value = value.split('"').next()?;
    let is_plain =
        value.len() <= 200 && value.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ');
    is_plain.then_some(value)
}

/// The status, with advice.
pub(super) fn status(status: StatusCode) -> String {
    let advice = match status {
        StatusCode::FORBIDDEN => &format!("\nhint: {CREDENTIALS}"),
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

/// The error for an answer with another content type than MCP's.
pub(super) fn content_type(found: Option<&str>) -> String {
    let found = found.unwrap_or("none");
    format!("the server answered with the content type `{found}`; is this the URL of an MCP server?")
}

/// Parses rmcp's `HTTP 404 Not Found: <body>`.
fn explain_response(response: &str) -> String {
    let Some((head, body)) = response.strip_prefix("HTTP ").and_then(|rest| rest.split_once(": ")) else {
        return shortened(response, BODY_CHARS);
    };
    let code = head.split(' ').next().and_then(|code| StatusCode::from_bytes(code.as_bytes()).ok());
    match (code.map(status), body.trim()) {
        (None, _) => shortened(response, BODY_CHARS),
        (Some(status), "") => status,
        (Some(status), body) => format!("{status}\n{}", shortened(body, BODY_CHARS)),
    }
}

/// The longest part of an answer's body that is shown, in characters: an error page explains no more.
pub(super) const BODY_CHARS: usize = 300;

/// How many bytes of an answer are read if it is no MCP message.
const BEGINNING_BYTES: usize = 64 * 1024;

/// The beginning of an answer's body, as far as it comes.
pub(super) async fn beginning(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await
        && body.len() < BEGINNING_BYTES
    {
        let room = (BEGINNING_BYTES - body.len()).min(chunk.len());
        body.extend_from_slice(&chunk[..room]);
    }
    body
}
