//! Requests to an identity provider: bounded in time and size, to secure URLs, without redirects.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, StatusCode};
use reqwest::{Client, ClientBuilder, RequestBuilder, redirect};
use serde_json::Value;
use url::Url;
use url::form_urlencoded;

use super::{ProviderFault, SecureUrl};

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes. Sets of keys with their certificates have some ten thousand.
const LONGEST_ANSWER: usize = 512 * 1024;

/// Prepares the client for identity providers: it follows no redirects, which could lead secrets astray.
pub fn configure_client(builder: ClientBuilder) -> ClientBuilder {
    builder.redirect(redirect::Policy::none()).timeout(TIMEOUT)
}

/// The client for the requests to all identity providers.
#[derive(Debug, Clone)]
pub(crate) struct ProviderHttp(Client);

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct ProviderAnswer {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

/// The credentials of a request.
pub(crate) enum RequestCredentials<'c> {
    None,
    /// The user's own token.
    Bearer(&'c str),
    /// The identifier and the secret of a client, form-encoded (RFC 6749, 2.3.1).
    Client {
        id: &'c str,
        secret: &'c str,
    },
}

impl ProviderHttp {
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    pub(super) async fn get(
        &self,
        url: &SecureUrl,
        credentials: RequestCredentials<'_>,
    ) -> Result<ProviderAnswer, ProviderFault> {
        send(url, authorized(self.0.get(url.url().clone()), &credentials)).await
    }

    /// Posts a form.
    pub(crate) async fn post(
        &self,
        url: &SecureUrl,
        credentials: RequestCredentials<'_>,
        fields: &[(&str, &str)],
    ) -> Result<ProviderAnswer, ProviderFault> {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request =
            self.0.post(url.url().clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        send(url, authorized(request.body(form), &credentials)).await
    }

    /// Sends a document in JSON, if there is one.
    pub(crate) async fn send_json(
        &self,
        method: Method,
        url: &SecureUrl,
        credentials: RequestCredentials<'_>,
        document: Option<&Value>,
    ) -> Result<ProviderAnswer, ProviderFault> {
        let request = authorized(self.0.request(method, url.url().clone()), &credentials);
        let request = request.header(CONTENT_TYPE, "application/json");
        send(url, document.map(Value::to_string).into_iter().fold(request, RequestBuilder::body)).await
    }
}

fn authorized(request: RequestBuilder, credentials: &RequestCredentials<'_>) -> RequestBuilder {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    match credentials {
        RequestCredentials::None => request,
        RequestCredentials::Bearer(token) => request.bearer_auth(token),
        RequestCredentials::Client { id, secret } => request.basic_auth(encoded(id), Some(encoded(secret))),
    }
}

async fn send(url: &SecureUrl, request: RequestBuilder) -> Result<ProviderAnswer, ProviderFault> {
    let answer = async {
        let unreachable = |error: reqwest::Error| fault(url, format!("cannot be reached: {}", causes(error)));
        let request = request.header(ACCEPT, "application/json");
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(fault(url, format!("answers with more than {LONGEST_ANSWER} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_redirection() {
            return Err(fault(url, "leads to another address; write that one"));
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(fault(url, format!("answers {status}")));
        }
        Ok(ProviderAnswer { status, body })
    };
    tokio::select! {
        // The client's own timeout depends on who made it, and may be over in the same moment.
        biased;
        () = tokio::time::sleep(TIMEOUT) => {
            Err(fault(url, format!("does not answer within {} s", TIMEOUT.as_secs())))
        }
        answer = answer => answer,
    }
}

/// A fault of the provider at this URL, which is shown without its query.
pub(super) fn fault(url: &SecureUrl, why: impl Into<String>) -> ProviderFault {
    let mut shown: Url = url.url().clone();
    shown.set_query(None);
    ProviderFault::new(shown, why)
}

fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Texts take everything.
        write!(text, ": {error}").ok();
        cause = error.source();
    }
    text
}
