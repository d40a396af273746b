//! Sends what the SDK exports, by the HTTP client that everything else uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::redirect;
use tokio::runtime::Handle;

use super::settings::CollectorEndpoint;
use crate::ground::text::describe;
use crate::ground::web::{self, RequestProxies};

/// The part of an answer that is read, in bytes: it says how many spans were refused.
const ANSWER_BYTES: usize = 64 * 1024;

/// A client of one collector. The SDK's threads call it, and wait; the runtime does the work.
#[derive(Debug, Clone)]
pub(super) struct CollectorClient {
    http: reqwest::Client,
    runtime: Handle,
    endpoint: CollectorEndpoint,
    what: &'static str,
    has_warned: Arc<AtomicBool>,
    /// Whether nothing is tried again: the program ends.
    is_last: Arc<AtomicBool>,
}

impl CollectorClient {
    /// Sends `what`, in words. After `is_last` is set, what fails is not tried again.
    ///
    /// # Errors
    /// The client cannot be set up; the error is a text.
    pub(super) fn new(
        what: &'static str,
        endpoint: CollectorEndpoint,
        is_last: Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let trusted = match &endpoint.certificate {
            Some(path) => {
                let unreadable =
                    |why: String| format!("the certificates in `{}` cannot be read: {why}", path.display());
                let text = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
                reqwest::Certificate::from_pem_bundle(&text).map_err(|error| unreadable(describe(&error)))?
            }
            None => Vec::new(),
        };
        // The headers of a request are for this collector alone.
        let configure = |builder: reqwest::ClientBuilder| {
            let builder = builder.redirect(redirect::Policy::none()).timeout(endpoint.timeout);
            if trusted.is_empty() { builder } else { builder.tls_certs_merge(trusted.clone()) }
        };
        let http = web::client(RequestProxies::to(&endpoint.url), configure)?;
        let runtime = Handle::current();
        let has_warned = Arc::default();
        Ok(Self { http, runtime, endpoint, what, has_warned, is_last })
    }

    async fn send(self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let sending = self.http.post(self.endpoint.url.clone()).headers(parts.headers).body(body).send();
        let mut answer = sending.await.map_err(reqwest::Error::without_url)?;
        let mut response = Response::builder().status(answer.status());
        if let Some(after) = answer.headers().get("retry-after") {
            response = response.header("retry-after", after);
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
            if body.len() + chunk.len() > ANSWER_BYTES {
                return Err("the answer is too long".into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(response.body(body.into())?)
    }

    /// Says once that a collector does not take what it is sent.
    fn warn(&self, why: &str) {
        if self.has_warned.swap(true, Ordering::Relaxed) {
            return tracing::debug!(why, "{} could not be sent", self.what);
        }
        let collector = self.endpoint.url.origin().ascii_serialization();
        tracing::warn!(
            %collector, why,
            "{} could not be sent; what the collector does not take is lost, and this is not said again",
            self.what
        );
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(self.clone().send(request)).await;
        let sent = sent.map_err(|_| HttpError::from("the program ends")).flatten();
        match &sent {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.warn(&format!("it answered HTTP {}", response.status())),
            Err(error) => self.warn(&describe(error.as_ref())),
        }
        if self.is_last.load(Ordering::Relaxed) && sent.is_err() {
            // The SDK tries again what got no answer.
            return Ok(Response::builder().status(400).body(Bytes::new())?);
        }
        sent
    }
}
