//! Calls the tools of a tool server in another process.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, redirect};
use serde::Deserialize;
use serde_json::{Value, json};

use super::authority;
use crate::ground::text::describe;

/// A tool server is on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_PORT: u16 = 8900;

/// Calls the tools of one MCP server through a [`ToolServer`](crate::ToolServer).
///
/// ```no_run
/// use ipybox::ToolRunner;
/// use serde_json::json;
///
/// # async fn example(token: &str) -> Result<(), ipybox::ToolRunnerError> {
/// let runner = ToolRunner::new("fetch").token(token);
/// let text = runner.run("fetch", &json!({"url": "https://example.com"})).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ToolRunner {
    server_name: String,
    host: String,
    port: u16,
    token: String,
    host_token: String,
    /// Made on first use, because making it can fail.
    http: OnceLock<Client>,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolRunnerError {
    /// The tool ran and failed, or its server could not be reached. The text is the server's, or the reason.
    #[error("{0}")]
    Tool(String),
    /// The call was rejected, or no user could be asked. It did not run.
    #[error("{0}")]
    Rejected(String),
    /// Nobody approved the call in time. It did not run.
    #[error("{0}")]
    Timeout(String),
    /// The tool server refuses the request: a wrong token (401, 403), parameters that describe no server
    /// (400), …
    #[error("get the request past the tool server (status {status}): {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The message of the tool server.
        message: String,
    },
    /// The tool server cannot be reached, or ended before it answered.
    #[error("reach the tool server at {address}: {reason}")]
    Unreachable {
        /// The address at which it should be.
        address: String,
        /// Why.
        reason: String,
    },
}

/// The whole result of a tool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolResult {
    /// The structured result if there is one, else the text, and `null` if there is nothing.
    pub value: Value,
    /// The content blocks in MCP's form, with images and other binary data in Base64.
    pub content: Vec<Value>,
}

/// The answer to `POST /run`: `error`, or else what the tool has returned.
#[derive(Deserialize)]
struct RunAnswer {
    #[serde(default)]
    result: Value,
    /// Left out where `result` is all that there is.
    content: Option<Vec<Value>>,
    error: Option<RunFailure>,
}

#[derive(Deserialize)]
struct RunFailure {
    kind: String,
    message: String,
}

impl ToolRunner {
    /// A runner for the tools of the server registered as `server_name`, at the tool server on `localhost:8900`.
    pub fn new(server_name: impl Into<String>) -> Self {
        Self {
            server_name: server_name.into(),
            host: "localhost".to_owned(),
            port: DEFAULT_PORT,
            token: String::new(),
            host_token: String::new(),
            http: OnceLock::new(),
        }
    }

    /// The host that the tool server listens on; default: `localhost`.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// The port that the tool server listens on; default: 8900.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The caller token, which [`run`](Self::run) needs.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = token.into();
        self
    }

    /// The host token, which [`register`](Self::register) and [`reset`](Self::reset) need.
    #[must_use]
    pub fn host_token(mut self, token: impl Into<String>) -> Self {
        self.host_token = token.into();
        self
    }

    /// Calls a tool with `tool_args`, a JSON object.
    ///
    /// Returns an object if the tool has structured output, else its text, and `null` if it returns nothing. Text names
    /// images and the like, which [`call`](Self::call) returns. There is no timeout: approval and the tool take the time
    /// that they take. Dropping the future cancels the call.
    ///
    /// # Errors
    /// [`ToolRunnerError`]; only after [`Tool`](ToolRunnerError::Tool) and
    /// [`Unreachable`](ToolRunnerError::Unreachable) the tool may have run.
    pub async fn run(&self, tool_name: &str, tool_args: &Value) -> Result<Value, ToolRunnerError> {
        Ok(self.call(tool_name, tool_args).await?.value)
    }

    /// Calls a tool as [`run`](Self::run) does, and returns all its content.
    ///
    /// # Errors
    /// As those of [`run`](Self::run).
    pub async fn call(&self, tool_name: &str, tool_args: &Value) -> Result<ToolResult, ToolRunnerError> {
        let call = json!({"server_name": self.server_name, "tool_name": tool_name, "tool_args": tool_args});
        let request = self.request(Method::POST, "run", &self.token)?;
        let body = self.send(with_json(request, &call)).await?;
        let answer: RunAnswer = serde_json::from_slice(&body).map_err(|error| self.unreachable(&error))?;
        if let Some(RunFailure { kind, message }) = answer.error {
            return Err(match kind.as_str() {
                "rejected" => ToolRunnerError::Rejected(message),
                "timeout" => ToolRunnerError::Timeout(message),
                _ => ToolRunnerError::Tool(message),
            });
        }
        let text = || answer.result.as_str().map(|text| json!({"type": "text", "text": text}));
        let content = answer.content.unwrap_or_else(|| text().into_iter().collect());
        Ok(ToolResult { value: answer.result, content })
    }

    /// Registers the server's parameters with the tool server: `command`, `args`, `env`, `cwd` of a program, or `url`,
    /// `headers`, `type` of a server behind a URL. They replace earlier ones. Needs the host token.
    ///
    /// # Errors
    /// [`ToolRunnerError::Refused`] with the reason if the name or the parameters are wrong.
    pub async fn register(&self, server_params: &Value) -> Result<(), ToolRunnerError> {
        let request =
            self.request(Method::PUT, &format!("servers/{}", self.server_name), &self.host_token)?;
        self.send(with_json(request, server_params)).await.map(drop)
    }

    /// Closes the tool server's connections to all MCP servers; the next calls open them again. Needs the host token.
    ///
    /// # Errors
    /// [`ToolRunnerError::Refused`] or [`ToolRunnerError::Unreachable`].
    pub async fn reset(&self) -> Result<(), ToolRunnerError> {
        self.send(self.request(Method::PUT, "reset", &self.host_token)?).await.map(drop)
    }

    fn request(&self, method: Method, path: &str, token: &str) -> Result<RequestBuilder, ToolRunnerError> {
        let http = match self.http.get() {
            Some(http) => http,
            None => {
                let client = client().map_err(|error| self.unreachable(&error))?;
                self.http.get_or_init(|| client)
            }
        };
        let url = format!("http://{}/{path}", authority(&self.host, self.port));
        Ok(http.request(method, url).bearer_auth(token))
    }

    /// The body of a success.
    async fn send(&self, request: RequestBuilder) -> Result<Vec<u8>, ToolRunnerError> {
        let unreachable = |error: reqwest::Error| self.unreachable(&error.without_url());
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unreachable)?;
        if status.is_success() {
            return Ok(body.into());
        }
        let message = String::from_utf8_lossy(&body).into_owned();
        Err(ToolRunnerError::Refused { status: status.as_u16(), message })
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> ToolRunnerError {
        let address = authority(&self.host, self.port);
        ToolRunnerError::Unreachable { address, reason: describe(error) }
    }
}

impl std::fmt::Debug for ToolRunner {
    /// Without the tokens.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ToolRunner")
            .field("server_name", &self.server_name)
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Goes straight to this machine: a proxy or a redirect would get the token.
fn client() -> Result<Client, reqwest::Error> {
    // The client wants a TLS provider even for plain HTTP. An error means that one is installed already.
    rustls::crypto::ring::default_provider().install_default().ok();
    Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .tls_certs_only([])
        .build()
}

fn with_json(request: RequestBuilder, body: &Value) -> RequestBuilder {
    request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body.to_string())
}
