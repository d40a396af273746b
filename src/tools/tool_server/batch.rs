//! `POST /batch`: calls that code announces together. All of them are decided about before the first one runs.
//!
//! ```text
//! calls → resolve each server → decide about all, side by side → run what is permitted, one after the other
//! ```
//!
//! The answers come in the order of the calls, each when its call has ended: its length in bytes on a line, then what
//! `/run` would answer. A caller that closes the connection cancels the call that runs, and none after it begins.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde::Deserialize;

use super::answer::{AnswerForm, CallAnswer};
use super::body::{BodyText, RefusedBody};
use super::call::{SharedRoutes, ToolCall, action, answer, check_name, perform, resolve, witnessed};
use crate::approval::{Action, DenialReason, OpenCall, Permit};
use crate::ground::budget::Lease;
use crate::tools::servers::{PoolRequest, RegisteredServer};

/// The number of calls that a batch may have.
const MOST_CALLS: usize = 1_000;

/// The longest title, in bytes.
const TITLE_BYTES: usize = 1_000;

/// The length of the answers of a batch together, in bytes. Calls for whose answers there is no room do not run: an
/// answer that is lost costs more than a call that is made later.
const ANSWERS_BYTES: usize = 64 * 1024 * 1024;

const MEDIA_TYPE: &str = "application/vnd.ipybox.answers";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallBatch {
    /// The purpose of the calls.
    title: String,
    calls: Vec<ToolCall>,
}

/// The state of a call that has been decided about.
enum BatchedCall {
    Permitted {
        server: Arc<RegisteredServer>,
        permit: Permit,
        on_record: OpenCall,
    },
    Denied {
        call: ToolCall,
        denied: DenialReason,
    },
    /// A replay decides about it.
    Replayed {
        server: Arc<RegisteredServer>,
        call: ToolCall,
    },
    Not(CallAnswer),
}

/// The calls that are yet to be answered.
struct Rest {
    shared: SharedRoutes,
    calls: VecDeque<BatchedCall>,
    form: AnswerForm,
    answered_bytes: usize,
    _lease: Lease,
}

pub(super) async fn run(
    State(shared): State<SharedRoutes>,
    form: AnswerForm,
    text: BodyText,
) -> Result<Response, RefusedBody> {
    let (CallBatch { title, calls }, BodyText { lease, .. }) = text.parse().await?;
    if calls.len() > MOST_CALLS {
        return Err(RefusedBody::Many { what: "calls in a batch", limit: MOST_CALLS });
    }
    if title.len() > TITLE_BYTES {
        return Err(RefusedBody::Long { what: "title of the batch", limit: TITLE_BYTES });
    }
    for call in &calls {
        check_name("name of the server", &call.server_name)?;
        check_name("name of the tool", &call.tool_name)?;
    }
    let calls = decide(&shared, &title, calls).await;
    let rest = Rest { shared, calls, form, answered_bytes: 0, _lease: lease };
    let answers = stream::unfold(rest, |mut rest| async move {
        let answer = rest.next().await?;
        Some((stream::iter(answer), rest))
    });
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], Body::from_stream(answers.flatten())).into_response())
}

/// Decides about all calls.
async fn decide(shared: &SharedRoutes, title: &str, calls: Vec<ToolCall>) -> VecDeque<BatchedCall> {
    if shared.tape.is_replay() {
        return replayed(shared, calls).await;
    }
    let mut servers = Vec::new();
    let mut actions = Vec::new();
    for call in calls {
        let server = resolve(shared, &call.server_name, &call.tool_name, PoolRequest::Tool).await;
        servers.push(match server {
            Ok(server) => {
                let of_record = shared.tape.is_on().then(|| call.clone());
                actions.push(action(&server, call, PoolRequest::Tool));
                Ok((server, of_record))
            }
            Err(unknown) => Err(unknown),
        });
    }
    let mut decisions = shared.gate.decide_batch(title, actions).await.into_iter();
    let decided = servers.into_iter().filter_map(|server| match server {
        Err(unknown) => Some(BatchedCall::Not(unknown)),
        Ok((server, of_record)) => Some(match (decisions.next()?, of_record) {
            (Ok((permit, on_record)), _) => BatchedCall::Permitted { server, permit, on_record },
            (Err(denied), Some(call)) => BatchedCall::Denied { call, denied },
            (Err(denied), None) => BatchedCall::Not(CallAnswer::from(denied)),
        }),
    });
    decided.collect()
}

/// The calls of a replay, which decides about each when its turn comes.
async fn replayed(shared: &SharedRoutes, calls: Vec<ToolCall>) -> VecDeque<BatchedCall> {
    let mut batched = VecDeque::new();
    for call in calls {
        let server = resolve(shared, &call.server_name, &call.tool_name, PoolRequest::Tool).await;
        batched.push_back(match server {
            Ok(server) => BatchedCall::Replayed { server, call },
            Err(unknown) => BatchedCall::Not(unknown),
        });
    }
    batched
}

impl Rest {
    /// The next answer, with its length before it.
    async fn next(&mut self) -> Option<[std::io::Result<Bytes>; 2]> {
        let answer = match self.calls.pop_front()? {
            BatchedCall::Not(answer) => answer,
            BatchedCall::Denied { call: ToolCall { server_name, tool_name, tool_args, .. }, denied } => {
                let witness = self.shared.tape.record(&server_name, &tool_name, &tool_args);
                let by = denied.by();
                witnessed(witness, CallAnswer::from(denied), by).await
            }
            BatchedCall::Replayed { server, call } => {
                answer(&self.shared, server, call, PoolRequest::Tool).await
            }
            BatchedCall::Permitted { on_record, .. } if self.answered_bytes > ANSWERS_BYTES => {
                let message = format!(
                    "the call did not run: the answers before it in this batch have more than {} MiB\nhint: make smaller \
                     batches",
                    ANSWERS_BYTES >> 20
                );
                on_record.error(&message);
                CallAnswer::failed(message)
            }
            BatchedCall::Permitted { server, permit, mut on_record } => {
                on_record.begin();
                let Action { server_name, tool_name, tool_args, .. } = permit.action();
                let witness = self.shared.tape.record(server_name, tool_name, tool_args);
                let by = permit.by();
                let answer = perform(&self.shared, &server, permit, on_record, PoolRequest::Tool).await;
                witnessed(witness, answer, by).await
            }
        };
        let written = match answer.written(self.form).await {
            Ok(written) => written,
            Err(error) => return Some([Err(error), Ok(Bytes::new())]),
        };
        self.answered_bytes += written.bytes.len();
        let length = format!("{}\n", written.bytes.len());
        Some([Ok(length.into()), Ok(Bytes::from_owner(written))])
    }
}
