//! The body of a request of code in the kernel: read within a memory budget, and parsed off the runtime's
//! threads.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;

use crate::ground::budget::{BudgetExcess, CALLS, JsonScan, Lease, apart, take_turns};

/// The time to wait for the next chunk of a body.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// A JSON body, with the memory lease for it and its parsed form.
pub(super) struct BodyText {
    bytes: Vec<u8>,
    weight: usize,
    pub(super) lease: Lease,
}

/// Why a body is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum RefusedBody {
    #[error("the body must be JSON: `Content-Type: application/json`")]
    NoJson,
    #[error("the call is refused: {0}")]
    Excess(BudgetExcess),
    #[error("the call is refused: nothing more of it has come for {} s", PIECE_TIMEOUT.as_secs())]
    Slow,
    #[error("the body could not be read")]
    Broken(#[source] axum::Error),
    #[error("the body is not what is asked for here: {path}")]
    Content { path: String, source: serde_json::Error },
    #[error("the {what} is refused: it has more than {limit} bytes")]
    Long { what: &'static str, limit: usize },
    #[error("the body is refused: it has more than {limit} {what}")]
    Many { what: &'static str, limit: usize },
    #[error(transparent)]
    Bug(#[from] std::io::Error),
}

impl<S: Send + Sync> FromRequest<S> for BodyText {
    type Rejection = RefusedBody;

    async fn from_request(request: Request, _: &S) -> Result<Self, RefusedBody> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
            return Err(RefusedBody::NoJson);
        }
        Self::read(request.into_body()).await
    }
}

impl BodyText {
    async fn read(body: Body) -> Result<Self, RefusedBody> {
        let mut pieces = body.into_data_stream();
        let mut bytes = Vec::new();
        let mut scan = JsonScan::default();
        let mut lease = CALLS.lease();
        loop {
            let next = tokio::time::timeout(PIECE_TIMEOUT, pieces.next()).await;
            let Some(piece) = next.map_err(|_| RefusedBody::Slow)? else { break };
            let piece = piece.map_err(RefusedBody::Broken)?;
            scan.read(&piece);
            take_turns(scan.bytes() - piece.len(), scan.bytes()).await;
            scan.excess()
                .map_or(Ok(()), Err)
                .and_then(|()| lease.grow(scan.weight()))
                .map_err(RefusedBody::Excess)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(Self { bytes, weight: scan.weight(), lease })
    }

    /// Refuses a `what` of more than `limit` bytes.
    pub(super) fn within(self, what: &'static str, limit: usize) -> Result<Self, RefusedBody> {
        if self.bytes.len() > limit { Err(RefusedBody::Long { what, limit }) } else { Ok(self) }
    }

    /// Extends the lease for parsing these texts, which are in the body, as JSON.
    pub(super) fn add<'a>(&mut self, texts: impl Iterator<Item = &'a str>) -> Result<(), RefusedBody> {
        let mut weight = self.weight;
        for text in texts {
            let mut scan = JsonScan::default();
            scan.read(text.as_bytes());
            weight = weight.saturating_add(scan.weight());
        }
        self.lease.grow(weight.saturating_mul(2)).map_err(RefusedBody::Excess)
    }

    /// Parses it as a `T`.
    pub(super) async fn parse<T: DeserializeOwned + Send + 'static>(self) -> Result<(T, Self), RefusedBody> {
        let parsing = apart(self.weight, move || (read(&self.bytes), self));
        let (parsed, text) = parsing.await?;
        Ok((parsed?, text))
    }
}

/// Parses a document; the error has the path of the invalid value.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RefusedBody> {
    let mut document = serde_json::Deserializer::from_slice(bytes);
    let content = serde_path_to_error::deserialize(&mut document).map_err(|error| RefusedBody::Content {
        path: error.path().to_string(),
        source: error.into_inner(),
    })?;
    let end = document.end();
    end.map_err(|source| RefusedBody::Content { path: ".".to_owned(), source })?;
    Ok(content)
}

impl IntoResponse for RefusedBody {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Excess(BudgetExcess::Spent(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Excess(_) | Self::Long { .. } | Self::Many { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Content { source, .. } if source.is_data() => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Broken(_) | Self::Content { .. } => StatusCode::BAD_REQUEST,
            Self::Bug(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, crate::ground::text::describe(&self)).into_response()
    }
}
