//! The connection to a pod: a place on another machine where `ipybox pod` runs kernels of our own for one session.
//!
//! ```text
//! PodLink ⇄ streams ⇄ carrier ⇄ WebSockets, one after the other ⇄ carrier ⇄ streams ⇄ ipybox pod
//! ```
//!
//! The bytes of each kernel's socket and pipe travel in streams, so that a kernel in a pod is one like those beside us. The
//! connection is whole as long as both ends live: a [`carrier`] sends again what a broken WebSocket has lost. A
//! pod is trusted with nothing: it gets no credentials, and what comes from it is bounded.
//!
//! Reasons: `docs/decisions/pods.md`.

mod bridge;
mod carrier;
mod control;
mod handshake;
mod kernel_state;
mod link;
mod protocol;
mod shared;
mod streams;

pub(crate) use self::bridge::stream_frames;
pub(crate) use self::carrier::{CarriedSocket, CarryEnd, LinkCarrier, socket_config};
pub(crate) use self::control::{PodControl, PodMeter, PodNews};
pub(crate) use self::handshake::{LinkKey, PodGreeting, accepted, refused};
pub(crate) use self::link::{PodDialer, PodError, PodLink};
pub(crate) use self::protocol::{PodAbout, PodForkRequest, PodNotice, PodRequest, SocketFrame, StreamHeader};
pub(crate) use self::streams::{
    PIECE_BYTES, StreamOpener, StreamSide, frames_of, next_message, open_streams, read_header, send_message,
};
