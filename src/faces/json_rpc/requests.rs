//! Approval requests that the other program has not answered yet.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::wire::RpcFailure;
use crate::approval::{ApprovalBatch, ApprovalRequest, Grant};

/// The requests by number.
#[derive(Default)]
pub(super) struct RpcRequests(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    last: u64,
    open: HashMap<u64, ApprovalRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RpcAnswer {
    Accept,
    AcceptForSession,
    AcceptAlways,
    AcceptWith,
    Grant,
    Reject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RpcAnswered {
    request: u64,
    answer: RpcAnswer,
    /// The values of a form, for `accept_with`.
    #[serde(default)]
    content: Map<String, Value>,
    /// For `grant`.
    grant: Option<Grant>,
}

fn batch(batch: &ApprovalBatch) -> Value {
    json!({"id": batch.id(), "title": batch.title(), "size": batch.size()})
}

impl RpcRequests {
    /// Keeps the request until it is answered, and writes it.
    pub(super) fn hand_over(&self, request: ApprovalRequest) -> Value {
        let members = [
            ("type", json!("approval_request")),
            ("server_name", json!(request.server_name())),
            ("tool_name", json!(request.tool_name())),
            ("tool_args", json!(request.tool_args())),
            ("target", json!(request.target())),
            ("annotations", json!(request.annotations())),
            ("batch", request.batch().map_or(Value::Null, batch)),
            ("provenance", json!(request.provenance())),
            ("text", json!(request.to_string())),
            ("proposed_grant", json!(request.proposed_grant())),
            ("proposed_grant_text", json!(request.proposed_grant().map(Grant::to_string))),
            ("outside_of_grants", json!(request.outside_of_grants())),
        ];
        let mut written: Map<_, _> =
            members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mut requests = self.0.lock();
        // Nobody answers those that have expired or whose code has ended.
        requests.open.retain(|_, request| !request.is_closed());
        requests.last += 1;
        let number = requests.last;
        requests.open.insert(number, request);
        written.insert("request".to_owned(), number.into());
        Value::Object(written)
    }

    /// Answers a request; whether the answer came in time.
    pub(super) fn answer(
        &self,
        RpcAnswered { request, answer, content, grant }: RpcAnswered,
    ) -> Result<Value, RpcFailure> {
        let Some(request) = self.0.lock().open.remove(&request) else { return Ok(json!(false)) };
        let in_time = match answer {
            RpcAnswer::Accept => request.accept(),
            RpcAnswer::AcceptForSession => request.accept_for_session(),
            RpcAnswer::AcceptAlways => request.accept_always(),
            RpcAnswer::AcceptWith => request.accept_with(content),
            RpcAnswer::Grant => match grant {
                Some(grant) => {
                    request.grant(grant).map_err(|outside| RpcFailure::of("outside_grant", &outside))?
                }
                None => request.reject(),
            },
            RpcAnswer::Reject => request.reject(),
        };
        Ok(json!(in_time))
    }
}
