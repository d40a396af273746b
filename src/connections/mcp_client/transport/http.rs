//! The HTTP client that both HTTP transports use: allowed redirects, and how long a server may be gone.

use std::sync::Arc;

use reqwest::{Client, StatusCode, redirect};
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};

use super::authorized::AuthorizedClient;
use super::filled::FilledHttp;
use super::posts::{HttpPosts, REOPEN_DELAY};
use crate::connections::mcp_client::failure::Error;
use crate::connections::mcp_client::messages::ExpectedAnswers;
use crate::ground::web::{self, RequestProxies};

/// The times that a broken event stream is reopened before the server counts as gone: about 8 s in all.
const STREAM_RETRIES: usize = 4;
/// More concurrent calls than this wait for one another. Cells may well start a hundred threads.
const CONCURRENT_REQUESTS: usize = 128;
/// The most redirects that one request may follow.
const REDIRECTS: usize = 5;

/// An HTTP client for MCP servers. It follows redirects on the same origin only.
pub(crate) fn client(proxies: RequestProxies) -> Result<Client, Error> {
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
pub(crate) fn transport(
    authorized: AuthorizedClient,
    parameters: &FilledHttp,
    answers: ExpectedAnswers,
) -> StreamableHttpClientTransport<HttpPosts> {
    let mut retries = ExponentialBackoff::default();
    retries.max_times = Some(STREAM_RETRIES);
    retries.base_duration = REOPEN_DELAY;
    let headers = parameters.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut config = StreamableHttpClientTransportConfig::with_uri(parameters.url.as_str())
        .custom_headers(headers)
        .max_concurrent_requests(CONCURRENT_REQUESTS);
    config.retry_config = Arc::new(retries);
    StreamableHttpClientTransport::with_client(HttpPosts::new(authorized, answers), config)
}
