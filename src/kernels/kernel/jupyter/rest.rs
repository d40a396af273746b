//! The REST API: kernel specs, and the life of kernels.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use http::header::AUTHORIZATION;
use reqwest::{Method, redirect};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Error, JupyterServer};
use crate::ground::text::plain;

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a request may take that starts no kernel. Ending one takes 5 seconds and more if it does not react.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout for checking a kernel.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer. Kernel specs come with their icons' addresses and are a kilobyte each.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The number of kernel specs that an error lists, and the length of their names.
const SPECS_LISTED: usize = 20;
const SPEC_BYTES_MAX: usize = 100;

/// The number of characters of an error's text that are shown.
const MESSAGE_CHARS: usize = 1000;

/// A kernel's name on its server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct KernelId(String);

/// It becomes a segment of URL paths, so it may only have letters, digits, `-` and `_`.
impl TryFrom<String> for KernelId {
    type Error = &'static str;

    fn try_from(id: String) -> Result<Self, Self::Error> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if (1..=128).contains(&id.len()) && id.bytes().all(is_name) {
            Ok(Self(id))
        } else {
            Err("no kernel id")
        }
    }
}

impl KernelId {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Deserialize)]
struct KernelSpecs {
    default: Option<String>,
    kernelspecs: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct ListedKernel {
    id: KernelId,
}

/// A server's error response. Servers use different fields of it.
#[derive(Default, Deserialize)]
struct JupyterFailure {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    traceback: Traceback,
}

/// A traceback, as one text or in lines.
#[derive(Deserialize)]
#[serde(untagged)]
enum Traceback {
    Text(String),
    Pieces(Vec<String>),
}

impl Default for Traceback {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Traceback {
    /// The exception; the lines above it show paths of the server.
    fn last_line(&self) -> Option<String> {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Pieces(pieces) => pieces.concat(),
        };
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// An HTTP client that never follows a redirect: our headers are for the server alone, and a
/// redirect leads to a login page.
///
/// On loopback, where tunnels end, no proxy must see the token.
pub(super) fn client(
    tls: &rustls::ClientConfig,
    is_loopback: bool,
) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder();
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    builder
        .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // A kept connection may have died with a network, and a request on it would wait for its timeout.
        .pool_max_idle_per_host(0)
        .redirect(redirect::Policy::none())
        .tls_backend_preconfigured(tls.clone())
        .build()
}

impl JupyterServer {
    /// Asks for the kernel spec `name`, or for the server's default, and returns its name.
    pub(crate) async fn kernel_spec(&self, name: Option<&str>) -> Result<String, Error> {
        let what = "ask for the kernel specs";
        let specs: KernelSpecs = self.get(what, &["api", "kernelspecs"]).await?;
        let name = name.or(specs.default.as_deref()).unwrap_or_default().to_owned();
        if specs.kernelspecs.contains_key(&name) {
            return Ok(name);
        }
        let known = specs.kernelspecs.keys().filter(|name| name.len() <= SPEC_BYTES_MAX);
        let known: Vec<_> =
            known.take(SPECS_LISTED).map(|name| format!("`{}`", self.access.redacted(name))).collect();
        let known = match known.as_slice() {
            [] => "it has none at all; install one there: `python -m ipykernel install`".to_owned(),
            known => format!("choose one by `--kernel-name`; it has {}", known.join(", ")),
        };
        Err(Error::NoSuchKernelSpec { server: self.name().to_owned(), name, known })
    }

    /// Starts a kernel. Dropping the future may leave it running.
    pub(crate) async fn start_kernel(
        &self,
        spec: &str,
        variables: &BTreeMap<String, String>,
        timeout: Duration,
    ) -> Result<KernelId, Error> {
        let mut body = json!({ "name": spec });
        if !variables.is_empty() {
            body["env"] = json!(variables);
        }
        let request = self.request(Method::POST, &["api", "kernels"]).timeout(timeout).body(body.to_string());
        let what = "start a kernel";
        let (status, body) = self.send(request).await?;
        let kernel: ListedKernel = self.read(what, status, &body)?;
        Ok(kernel.id)
    }

    /// Sends the kernel's process a SIGINT, or the interrupt that its kernel spec defines.
    pub(crate) async fn interrupt_kernel(&self, kernel: &KernelId) -> Result<(), Error> {
        let request = self.request(Method::POST, &["api", "kernels", kernel.as_str(), "interrupt"]);
        self.send_to_kernel("interrupt the kernel", request).await
    }

    /// Replaces the kernel's process by a fresh one of the same name.
    pub(crate) async fn restart_kernel(&self, kernel: &KernelId, timeout: Duration) -> Result<(), Error> {
        let request = self.request(Method::POST, &["api", "kernels", kernel.as_str(), "restart"]);
        self.send_to_kernel("restart the kernel", request.timeout(timeout)).await
    }

    /// Ends the kernel. One that is gone already is no error.
    pub(crate) async fn delete_kernel(&self, kernel: &KernelId) -> Result<(), Error> {
        self.ending.lock().insert(kernel.clone());
        let request = self.request(Method::DELETE, &["api", "kernels", kernel.as_str()]);
        match self.send_to_kernel("delete the kernel", request).await {
            Err(error) if !error.is_end() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.ending.lock().remove(kernel);
        Ok(())
    }

    /// Checks whether the server still has the kernel.
    pub(crate) async fn check_kernel(&self, kernel: &KernelId) -> Result<(), Error> {
        let request = self.request(Method::GET, &["api", "kernels", kernel.as_str()]).timeout(LOOK_TIMEOUT);
        self.send_to_kernel("ask for the kernel", request).await
    }

    async fn send_to_kernel(
        &self,
        what: &'static str,
        request: reqwest::RequestBuilder,
    ) -> Result<(), Error> {
        let (status, body) = self.send(request).await?;
        let error = match status {
            status if status.is_success() => return Ok(()),
            // Without the routes of its proxy a Hub answers with a page.
            StatusCode::NOT_FOUND if self.hub.is_none() || !message(&body).is_empty() => {
                return Err(Error::KernelGone { server: self.name().to_owned() });
            }
            status => self.refusal(what, status, &body),
        };
        match &self.hub {
            Some(hub) if hub.is_stopped().await => {
                Err(Error::ServerStopped { server: self.name().to_owned() })
            }
            _ => Err(error),
        }
    }

    /// Checks that it answers us.
    pub(super) async fn look(&self) -> Result<(), Error> {
        self.get::<KernelSpecs>("ask for the kernel specs", &["api", "kernelspecs"]).await.map(drop)
    }

    /// The number of its kernels, but for those that it is about to end for us.
    pub(super) async fn count_kernels(&self) -> Result<usize, Error> {
        let kernels: Vec<ListedKernel> = self.get("ask for the kernels", &["api", "kernels"]).await?;
        let ending = self.ending.lock();
        Ok(kernels.iter().filter(|kernel| !ending.contains(&kernel.id)).count())
    }

    async fn get<T: DeserializeOwned>(&self, what: &'static str, path: &[&str]) -> Result<T, Error> {
        let (status, body) = self.send(self.request(Method::GET, path)).await?;
        self.read(what, status, &body)
    }

    pub(super) fn request(&self, method: Method, path: &[&str]) -> reqwest::RequestBuilder {
        self.stream(method, path, "application/json")
            .timeout(REQUEST_TIMEOUT)
            .header(http::header::CONTENT_TYPE, "application/json")
    }

    /// A request without a timeout.
    pub(super) fn stream(
        &self,
        method: Method,
        path: &[&str],
        accepted: &'static str,
    ) -> reqwest::RequestBuilder {
        self.http
            .request(method, self.access.url(path))
            .headers(self.access.headers().all())
            .header(http::header::ACCEPT, accepted)
    }

    /// Sends a request; once more with another token if the server of a team gives it, and this one was refused.
    pub(super) async fn send(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), Error> {
        let Some(shown) = self.authorization().await? else { return self.receive(request).await };
        let again = request.try_clone();
        let answer = self.receive(request.header(AUTHORIZATION, &shown)).await?;
        match (answer.0, again) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(again)) => {
                let another = self.authorization_after(&shown).await?;
                let another = another.map(|value| (AUTHORIZATION, value));
                self.receive(again.headers(another.into_iter().collect())).await
            }
            _ => Ok(answer),
        }
    }

    /// Sends a request whose answer is not read here.
    pub(super) async fn send_stream(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, Error> {
        let authorization = self.authorization().await?.map(|value| (AUTHORIZATION, value));
        let request = request.headers(authorization.into_iter().collect());
        request.send().await.map_err(|error| self.unreachable(innermost(&error)))
    }

    async fn receive(&self, request: reqwest::RequestBuilder) -> Result<(StatusCode, Vec<u8>), Error> {
        let failed = |error: reqwest::Error| self.unreachable(innermost(&error));
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(self.unreachable(format!("its answer is longer than {BODY_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }

    fn read<T: DeserializeOwned>(
        &self,
        what: &'static str,
        status: StatusCode,
        body: &[u8],
    ) -> Result<T, Error> {
        if !status.is_success() {
            return Err(self.refusal(what, status, body));
        }
        serde_json::from_slice(body)
            .map_err(|_| self.not_jupyter(what, format!("{status} and something else than it should")))
    }

    /// The error for an unsuccessful status.
    pub(super) fn refusal(&self, what: &'static str, status: StatusCode, body: &[u8]) -> Error {
        let server = self.name().to_owned();
        let message = self.message(body);
        let has_token = !self.access.headers().is_empty();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.hub.is_some() => Error::Refused {
                what,
                server,
                status,
                advice: "the token has expired, or lacks JupyterHub's scope `access:servers!user`",
            },
            StatusCode::FORBIDDEN if message.contains("_xsrf") => Error::Refused {
                what,
                server,
                status,
                advice: "the server has no token, and takes requests of pages only; start it with a token, and name the \
                         variable that holds it by `--kernel-gateway-token-env`",
            },
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::Refused {
                what,
                server,
                status,
                advice: if has_token {
                    "the token is wrong or may not do this (`jupyter server list` on that machine prints a \
                     Jupyter Server's own), or the server does not answer to this host name \
                     (`--ServerApp.allow_remote_access=True`)"
                } else {
                    "it wants a token; name the variable that holds it by `--kernel-gateway-token-env`"
                },
            },
            status if status.is_redirection() => Error::Refused {
                what,
                server,
                status,
                advice: "it wants to lead us to another page, of a login perhaps: check the token and the URL with its base path",
            },
            StatusCode::NOT_FOUND => self.not_jupyter(what, status.to_string()),
            status if message.is_empty() => self.not_jupyter(what, status.to_string()),
            status => Error::Failed { what, server, status, message },
        }
    }

    /// A server's message about a failure; empty without one.
    pub(super) fn message(&self, body: &[u8]) -> String {
        self.shown(&message(body))
    }

    /// A text of the server without secrets and control characters, in a length to be shown.
    pub(super) fn shown(&self, text: &str) -> String {
        // In this order: a part of a secret would not be recognised.
        self.access.redacted(&plain(text)).chars().take(MESSAGE_CHARS).collect()
    }

    fn not_jupyter(&self, what: &'static str, status: String) -> Error {
        Error::NotJupyter { what, server: self.name().to_owned(), status }
    }
}

/// The innermost cause: the outer errors add nothing.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The error message in a body. One that is not JSON is dropped: Jupyter Server's pages contain the token.
fn message(body: &[u8]) -> String {
    let Ok(failure) = serde_json::from_slice::<JupyterFailure>(body) else { return String::new() };
    let mut texts: Vec<String> = [failure.message, failure.reason, failure.traceback.last_line()]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .collect();
    texts.dedup();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_message(body: &str, expected: &str) {
        assert_eq!(message(body.as_bytes()), expected);
    }

    #[test]
    fn a_servers_message_is_found_wherever_it_stands() {
        check_message(r#"{"message": "Forbidden", "reason": null}"#, "Forbidden");
        check_message(r#"{"reason": "Unauthorized", "message": ""}"#, "Unauthorized");
        check_message(
            r#"{"message": "m", "reason": "r", "traceback": "a\nKeyError: 1\n"}"#,
            "m: r: KeyError: 1",
        );
        check_message(r#"{"message": "m", "traceback": ["a\n", "KeyError: 1\n"]}"#, "m: KeyError: 1");
    }

    /// Jupyter Server's page for an unknown path contains the client's token.
    #[test]
    fn a_page_is_not_repeated() {
        check_message(r#"<body data-jupyter-api-token="secret">"#, "");
    }
}
