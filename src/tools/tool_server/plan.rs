//! `POST /plan`: the calls that code in the kernel announces before its cell runs. They are only proposed to a user: the gate
//! decides about each when it comes.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{AnswerForm, CallAnswer};
use super::body::{BodyText, RefusedBody};
use super::call::{SharedRoutes, ToolCall, action, check_name, resolve};
use crate::approval::Grant;
use crate::tools::servers::PoolRequest;

/// The largest request body with a plan.
const PLAN_LIMIT_BYTES: usize = 64 * 1024;

/// The most different calls of a plan: a user reads them all.
const MOST_CALLS: usize = 20;

/// The calls of a cell. Each is written as the grant that would cover it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedCalls {
    calls: Vec<Grant>,
}

/// Answers whether this session takes plans at all.
pub(super) async fn run(State(shared): State<SharedRoutes>, text: BodyText) -> Result<Response, RefusedBody> {
    let text = text.within("body with a plan", PLAN_LIMIT_BYTES)?;
    let (PlannedCalls { calls }, text) = text.parse().await?;
    if calls.len() > MOST_CALLS {
        return Err(RefusedBody::Many { what: "calls in a plan", limit: MOST_CALLS });
    }
    for grant in &calls {
        check_name("name of the server", grant.server_name())?;
        check_name("name of the tool", grant.tool_name())?;
    }
    let is_taken = shared.gate.takes_plans() && !shared.tape.is_replay();
    if is_taken && shared.gate.awaits_plan() {
        plan(&shared, calls).await;
    }
    drop(text);
    Ok(CallAnswer::Result(Value::Bool(is_taken)).into_response(AnswerForm::Json).await)
}

async fn plan(shared: &SharedRoutes, calls: Vec<Grant>) {
    let mut planned = Vec::new();
    for grant in calls {
        let server_name = grant.server_name().to_owned();
        let tool_name = grant.tool_name().to_owned();
        // The call of an unknown server fails when it comes.
        if let Ok(server) = resolve(shared, &server_name, &tool_name, PoolRequest::Tool).await {
            let call = ToolCall::new(server_name, tool_name, grant.fixed());
            planned.push((grant, action(&server, call, PoolRequest::Tool)));
        }
    }
    shared.gate.plan(planned).await;
}
