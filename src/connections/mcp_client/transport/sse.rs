//! The HTTP+SSE transport of protocol revision 2024-11-05, which rmcp no longer has.
//!
//! One GET opens a stream of events; its first event names the endpoint to which messages are posted,
//! and all answers come over the stream. The end of the stream is the end of the connection.

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::authorized::AuthorizedClient;
use super::events::{BrokenStream, StreamEvent, events};
use super::filled::FilledHttp;
use super::pipes::READ_AHEAD;
use crate::connections::mcp_client::failure::http_failure::{self, BadStatus, RequestFailure};
use crate::connections::mcp_client::messages::{ExpectedAnswers, outgoing};

/// A connection over HTTP+SSE.
pub(crate) struct SseTransport {
    authorized: AuthorizedClient,
    endpoint: Url,
    headers: HeaderMap,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    reader: JoinHandle<()>,
}

/// A failure of HTTP+SSE. No variant holds a URL.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SseFailure {
    #[error(transparent)]
    Request(#[from] RequestFailure),
    #[error("{0}")]
    ContentType(String),
    #[error("the event stream is broken: {0}")]
    Stream(#[from] BrokenStream),
    #[error("the event stream ended before it named the endpoint; is this the URL of an SSE server?")]
    NoEndpoint,
    #[error("the server names an endpoint of another origin, which would get our headers")]
    ForeignEndpoint,
    #[error("the server names an endpoint that is not a URL")]
    InvalidEndpoint,
    #[error("a message could not be written as JSON")]
    Encode(#[from] std::io::Error),
}

impl SseTransport {
    /// Opens the stream and waits for the endpoint.
    pub(crate) async fn connect(
        authorized: AuthorizedClient,
        parameters: &FilledHttp,
        answers: ExpectedAnswers,
    ) -> Result<Self, SseFailure> {
        let FilledHttp { url, headers, .. } = parameters;
        let request =
            authorized.client.get(url.clone()).headers(headers.clone()).header(ACCEPT, "text/event-stream");
        let response = authorized.send(request, None).await?;
        if !response.status().is_success() {
            return Err(RequestFailure::Status(BadStatus::read(response).await).into());
        }
        let content_type =
            response.headers().get(CONTENT_TYPE).map(|found| String::from_utf8_lossy(found.as_bytes()));
        if !content_type.as_ref().is_some_and(|found| found.starts_with("text/event-stream")) {
            let found = content_type.map(std::borrow::Cow::into_owned);
            return Err(SseFailure::ContentType(http_failure::content_type(found.as_deref())));
        }
        // Relative endpoints are relative to where a redirect has led, which is on the same origin.
        let base = response.url().clone();
        let mut events = events(response.bytes_stream().map_err(reqwest::Error::without_url)).boxed();
        let endpoint = endpoint(&mut events, &base).await?;
        let (sender, messages) = mpsc::channel(READ_AHEAD);
        let reader = tokio::spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                answers.settle().await;
                if event.is_message()
                    && let Some(message) = event.data.and_then(|data| answers.admit(data))
                    && sender.send(message).await.is_err()
                {
                    break;
                }
            }
        });
        Ok(Self { authorized, endpoint, headers: headers.clone(), messages, reader })
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseFailure;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SseFailure>> + Send + 'static {
        let authorized = self.authorized.clone();
        let request = authorized.client.post(self.endpoint.clone()).headers(self.headers.clone());
        async move {
            let body = outgoing::encode(message).await?;
            let request = request.header(CONTENT_TYPE, "application/json").body(body);
            let response = authorized.send(request, None).await?;
            let is_taken = response.status().is_success();
            // The body of a success has no meaning; reading it makes the connection reusable.
            let answer = BadStatus::read(response).await;
            if is_taken {
                Ok(())
            } else if answer.is_gone() || answer.names_lost_session() {
                // The endpoint is that of the session, which ends with the stream.
                Err(answer.lost_session().into())
            } else {
                Err(RequestFailure::Status(answer).into())
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), SseFailure> {
        self.reader.abort();
        Ok(())
    }
}

impl Drop for SseTransport {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Waits for the event that names the endpoint, which must be of the origin of `base`.
async fn endpoint(
    events: &mut (impl Stream<Item = Result<StreamEvent, BrokenStream>> + Unpin),
    base: &Url,
) -> Result<Url, SseFailure> {
    while let Some(event) = events.try_next().await? {
        if event.kind.as_deref() == Some("endpoint") {
            let data = event.data.and_then(|data| data.text.ok()).map(|document| document.text);
            let path =
                String::from_utf8(data.unwrap_or_default()).map_err(|_| SseFailure::InvalidEndpoint)?;
            let endpoint = base.join(path.trim()).map_err(|_| SseFailure::InvalidEndpoint)?;
            let is_same_origin = endpoint.origin() == base.origin();
            return if is_same_origin { Ok(endpoint) } else { Err(SseFailure::ForeignEndpoint) };
        }
    }
    Err(SseFailure::NoEndpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check_endpoint(stream: &'static str, expected: Result<&str, &str>) {
        let base = Url::parse("http://localhost:1/a/sse").unwrap();
        let bytes = futures::stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from(stream))]);
        let mut events = events(bytes).boxed();
        let found = endpoint(&mut events, &base).await.map_err(|error| error.to_string());
        match (found, expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (found, expected) => panic!("{stream}: {found:?} is not {expected:?}"),
        }
    }

    #[tokio::test]
    async fn the_endpoint_is_of_the_same_origin() {
        check_endpoint("event: endpoint\ndata: /m?id=1\n\n", Ok("http://localhost:1/m?id=1")).await;
        check_endpoint("event: endpoint\ndata: m\n\n", Ok("http://localhost:1/a/m")).await;
        check_endpoint(": hello\n\nevent: endpoint\ndata: /m\n\n", Ok("http://localhost:1/m")).await;
        let other = "another origin";
        check_endpoint("event: endpoint\ndata: http://localhost:2/m\n\n", Err(other)).await;
        check_endpoint("event: endpoint\ndata: //evil/m\n\n", Err(other)).await;
        check_endpoint("event: endpoint\ndata: http://[\n\n", Err("not a URL")).await;
        check_endpoint("data: {}\n\n", Err("before it named the endpoint")).await;
    }
}
