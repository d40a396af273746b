//! Why requests over HTTP fail, in words for people. No URL, which may hold a secret, gets into them.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::time::{Instant, timeout_at};

use super::lost_session;
use crate::connections::oauth::AccessToken;
use crate::ground::text::{Secrets, describe, shortened};

/// The error of a Streamable HTTP transport.
pub(crate) type HttpError = StreamableHttpError<RequestFailure>;

/// Why a request over HTTP has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestFailure {
    /// It could not be sent, or its answer not be read.
    #[error("{}", request_error(.0))]
    Request(reqwest::Error),
    /// The server demands other credentials.
    #[error("{0}")]
    Refused(AccessRefusal),
    /// The server answered with a status that is no success.
    #[error("{0}")]
    Status(BadStatus),
    /// The server does not know the session, and has not looked at the request. This is what it answered.
    #[error("the server no longer knows the session: {0}")]
    LostSession(String),
}

/// A status that is no success, and how the answer's body begins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{}", status(*.code), if body.is_empty() { "" } else { "\n" }, body)]
pub(crate) struct BadStatus {
    pub(crate) code: StatusCode,
    pub(crate) body: String,
}

impl BadStatus {
    /// Reads the answer.
    pub(crate) async fn read(response: Response) -> Self {
        let code = response.status();
        let body = beginning(response).await;
        Self { code, body: String::from_utf8_lossy(&body).trim().to_owned() }
    }

    /// Says whether the body names a session that the server does not know. It has not looked at the request then, unless
    /// the status is for errors of the server itself.
    pub(crate) fn names_lost_session(&self) -> bool {
        !self.code.is_server_error() && lost_session::is_named(&self.body)
    }

    /// Says whether the address of the session is gone, as the protocol has it.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.code, StatusCode::NOT_FOUND | StatusCode::GONE)
    }

    /// The failure of a request whose session the server does not know.
    pub(crate) fn lost_session(self) -> RequestFailure {
        RequestFailure::LostSession(if self.body.is_empty() {
            format!("HTTP {}", self.code)
        } else {
            format!("HTTP {}: {}", self.code, self.body)
        })
    }
}

/// A server's refusal of credentials, or of a request without any. The server has not acted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessRefusal {
    /// 401, or 403 for want of scopes.
    pub(crate) status: StatusCode,
    /// The header `WWW-Authenticate`.
    pub(crate) challenge: Option<String>,
    /// Why there is no other token, if there was one.
    pub(crate) why: Option<String>,
    /// The token that was refused.
    pub(crate) token: Option<AccessToken>,
    /// The command by which a user can log in; if there is none, the credentials are in `headers`.
    pub(crate) command: Option<Arc<str>>,
}

impl AccessRefusal {
    /// The scopes that the server asks for.
    pub(crate) fn scopes(&self) -> Vec<String> {
        let scope = self.challenge.as_deref().and_then(|challenge| parameter(challenge, "scope"));
        scope.into_iter().flat_map(str::split_whitespace).map(str::to_owned).collect()
    }
}

impl std::fmt::Display for AccessRefusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&refused(self))
    }
}

impl From<reqwest::Error> for RequestFailure {
    fn from(error: reqwest::Error) -> Self {
        Self::Request(error.without_url())
    }
}

/// The error as text for people, without URLs.
pub(crate) fn explain(error: &HttpError) -> String {
    match error {
        StreamableHttpError::Client(error) => error.to_string(),
        StreamableHttpError::HttpStatus(error) => {
            StatusCode::from_u16(error.status).map_or_else(|_| error.to_string(), status)
        }
        StreamableHttpError::UnexpectedServerResponse(response) => response.to_string(),
        StreamableHttpError::UnexpectedContentType(found) => content_type(found.as_deref()),
        other => other.to_string(),
    }
}

/// Why a request failed, with advice.
fn request_error(error: &reqwest::Error) -> String {
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
fn refused(refusal: &AccessRefusal) -> String {
    let AccessRefusal { status, challenge, why, command, .. } = refusal;
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
        // The reason is known, and credentials would not help.
        None if why.is_some() => return format!("the server answered HTTP {status}{wants}"),
        None if has_login => "without the header `Authorization` ipybox would log in. Other ".to_owned(),
        None => String::new(),
    };
    format!("the server answered HTTP {status}{wants}\nhint: {login}{CREDENTIALS}")
}

const CREDENTIALS: &str = "credentials go into `headers`, for example `\"Authorization\": \"Bearer ${TOKEN}\"`, with the variable set in ipybox's \
     environment or the workspace's `.env`";

/// The value of a parameter in a challenge, if it can be shown.
fn parameter<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = challenge.split_once(&format!("{name}=\""))?;
    let value = value.split('"').next()?;
    let is_plain =
        value.len() <= 200 && value.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ');
    is_plain.then_some(value)
}

/// The status, with advice.
pub(crate) fn status(status: StatusCode) -> String {
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
pub(crate) fn content_type(found: Option<&str>) -> String {
    let found = found.unwrap_or("none");
    format!("the server answered with the content type `{found}`; is this the URL of an MCP server?")
}

/// The longest part of a reason that is shown, in characters: an error page explains no more.
const REASON_CHARS: usize = 500;

/// The reason of a failure, short and without secrets, in this order: a part of a secret would not be recognised.
pub(crate) fn shown(reason: &str, secrets: &Secrets) -> String {
    shortened(&secrets.clean(reason), REASON_CHARS)
}

/// The number of bytes of an answer that are read if it is no MCP message.
const BEGINNING_BYTES: usize = 64 * 1024;

/// The time for which they are awaited.
const BEGINNING_TIME: Duration = Duration::from_secs(5);

/// The beginning of an answer's body, as far as it comes.
pub(crate) async fn beginning(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let deadline = Instant::now() + BEGINNING_TIME;
    while let Ok(Ok(Some(chunk))) = timeout_at(deadline, response.chunk()).await
        && body.len() < BEGINNING_BYTES
    {
        let room = (BEGINNING_BYTES - body.len()).min(chunk.len());
        body.extend_from_slice(&chunk[..room]);
    }
    body
}
