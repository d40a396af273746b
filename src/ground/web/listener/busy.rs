//! A request's knowledge of its connection: whose it is, and how to keep it from being closed for another.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::Extensions;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::connections::{BusyConnection, ListenerConnection};
use super::peer::ListenerPeer;

/// The peer that has sent a request with these extensions.
pub(crate) fn peer_of(extensions: &Extensions) -> ListenerPeer {
    extensions.get::<Arc<ListenerConnection>>().map_or(ListenerPeer::User, |connection| connection.peer())
}

/// While this lives, the connection of a request is not closed for another.
pub(crate) struct BusyRequest(Option<Arc<BusyConnection>>);

impl BusyRequest {
    /// For a request with these extensions, which has shown that it may be made. Without a connection, as for calls of a
    /// remote kernel, it has no effect.
    pub(crate) fn begin(extensions: &Extensions) -> Self {
        Self(extensions.get::<Arc<ListenerConnection>>().map(|connection| Arc::new(connection.hold())))
    }

    /// Keeps the connection busy until all of the answer has been written.
    pub(crate) fn until_written(self, response: Response) -> Response {
        match self.0 {
            Some(held) => response.map(|body| Body::new(Answering { body, held })),
            None => response,
        }
    }
}

struct Answering {
    body: Body,
    held: Arc<BusyConnection>,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let next = Pin::new(&mut self.body).poll_frame(context);
        let held = &self.held;
        // Bytes are dropped when they have been written.
        next.map_ok(|frame| {
            frame.map_data(|bytes| Bytes::from_owner(BodyPart { bytes, _held: Arc::clone(held) }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of the body.
struct BodyPart {
    bytes: Bytes,
    _held: Arc<BusyConnection>,
}

impl AsRef<[u8]> for BodyPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
