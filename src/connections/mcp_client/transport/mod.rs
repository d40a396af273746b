//! Transports: the process of a server with its pipes, or HTTP to a server, and what of the parameters they need.
//!
//! ```text
//! parameters → filled ┬ guard → stdio → pipes ────────────────┬ throttle → rmcp
//!                     └ http, authorized ┬ posts ┬ events ────┘
//!                                        └ sse ──┘
//! ```

mod authorized;
mod events;
mod filled;
mod guard;
pub(super) mod http;
mod launcher;
mod pipes;
mod posts;
mod sse;
mod stdio;
mod throttle;

pub(super) use self::authorized::AuthorizedClient;
pub(super) use self::filled::{FilledHttp, FilledStdio};
pub(crate) use self::guard::StartGuard;
pub(crate) use self::launcher::chosen as chosen_arguments;
pub(super) use self::pipes::ServerPipes;
pub(super) use self::sse::{SseFailure, SseTransport};
pub(super) use self::stdio::{ServerOutput, ServerProcess};
pub(super) use self::throttle::ThrottledTransport;
