//! Calls that wait for their client to come back with answers (MCP 2026-07-28, multi round-trip requests).
//!
//! The client is not trusted: the request state is an unguessable name of a call that is kept here, the call
//! must have the same tool and arguments, and it can be resumed once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ElicitRequest, ElicitResult, InputRequest,
    InputRequiredResult, InputResponses, JsonObject,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::WaitingRequest;
use crate::approval::ApprovalRequest;
use crate::faces::mcp_server::ongoing_call::{FollowedCall, Next, OngoingCall};
use crate::faces::mcp_server::progress::listener_of;
use crate::faces::mcp_server::questions::{Given, Sheet};
use crate::faces::mcp_server::queue::SessionQueue;
use crate::faces::mcp_server::unfetched_answers::{UndeliveredReason, UnfetchedAnswer};

/// The number of calls that may wait for their clients. Clients that never come back must not fill memory.
const PARKED_CALLS: usize = 64;

/// The waiting calls.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct Parking {
    calls: Mutex<HashMap<String, Parked>>,
}

struct Parked {
    ongoing: OngoingCall,
    tool: String,
    arguments: Option<JsonObject>,
    questions: BTreeMap<String, Sheet>,
    /// The number of rounds that its client has been asked.
    rounds: u32,
    /// Greater than that of all calls parked before.
    number: u64,
    /// Whether its result was sent with another answer.
    is_sent: bool,
}

impl Parking {
    /// Runs the work until its end, until approval is needed, or until it is time to `leave`.
    pub(in crate::faces::mcp_server) async fn work(
        &self,
        ongoing: OngoingCall,
        request: &CallToolRequestParams,
        waiting: WaitingRequest<'_>,
    ) -> FollowedCall<CallToolResponse> {
        self.go_on(ongoing, BTreeMap::new(), 0, request, waiting).await
    }

    /// Resumes a call whose client has come back.
    pub(in crate::faces::mcp_server) async fn resume(
        &self,
        state: &str,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        waiting: WaitingRequest<'_>,
    ) -> FollowedCall<CallToolResponse> {
        let Parked { ongoing, mut questions, rounds, .. } = match self.take(state, request) {
            Ok(parked) => parked,
            Err(error) => return FollowedCall::Answered(Err(error)),
        };
        ongoing.attend(true);
        ongoing.send_progress_to(listener_of(context));
        answer(&mut questions, request.input_responses.as_ref());
        self.go_on(ongoing, questions, rounds, request, waiting).await
    }

    /// Takes out the calls that wait for a client which is gone; their questions can be asked again.
    pub(in crate::faces::mcp_server) fn abandon(&self) -> Vec<OngoingCall> {
        let calls = std::mem::take(&mut *self.calls.lock());
        let mut parked: Vec<Parked> = calls.into_values().filter(|parked| !parked.is_sent).collect();
        parked.sort_by_key(|parked| parked.number);
        let leave = |Parked { mut ongoing, questions, .. }: Parked| {
            ongoing.give_back(requests_of(questions));
            ongoing
        };
        parked.into_iter().map(leave).collect()
    }

    /// Whether a cell is not done that came before a request which arrived at `arrived` in the same `queue`.
    pub(in crate::faces::mcp_server) fn is_open_in(&self, queue: &SessionQueue, arrived: Instant) -> bool {
        let is_open = |parked: &Parked| {
            parked.ongoing.about().begun < arrived && !parked.is_sent && parked.ongoing.is_open_in(queue)
        };
        self.calls.lock().values().any(is_open)
    }

    /// The results of calls whose clients have not come back, each once. A client that comes back later still
    /// gets its result.
    pub(in crate::faces::mcp_server) fn done_meanwhile(&self) -> Vec<UnfetchedAnswer> {
        let mut calls = self.calls.lock();
        let mut parked: Vec<&mut Parked> = calls.values_mut().filter(|parked| !parked.is_sent).collect();
        parked.sort_by_key(|parked| parked.number);
        let done = |parked: &mut Parked| {
            let text = parked.ongoing.text()?;
            parked.is_sent = true;
            let call = parked.ongoing.about().call.clone();
            Some(UnfetchedAnswer { call, text, why: UndeliveredReason::NotTakenUp, after: Duration::ZERO })
        };
        parked.into_iter().filter_map(done).collect()
    }

    async fn go_on(
        &self,
        mut ongoing: OngoingCall,
        mut questions: BTreeMap<String, Sheet>,
        rounds: u32,
        request: &CallToolRequestParams,
        waiting: WaitingRequest<'_>,
    ) -> FollowedCall<CallToolResponse> {
        // Approval requests that the client has left unanswered are sent again with the next ones, or now.
        questions.retain(|_, question| !question.is_closed());
        while questions.is_empty() {
            let mut asked = tokio::select! {
                biased;
                // First, since the end of a connection cancels its requests too.
                () = waiting.leave.come() => return FollowedCall::Left(Box::new(ongoing)),
                next = ongoing.next(waiting.cancelled) => match next {
                    Next::Done(done) => return FollowedCall::Answered(done.map(CallToolResult::into)),
                    Next::Questions => ongoing.take_questions(),
                },
                mut lent = waiting.left.questions() => std::mem::take(&mut lent.questions),
            };
            questions.extend(sheets_of(&mut asked));
        }
        let rounds = rounds + 1;
        let mut forms = BTreeMap::new();
        for (key, question) in &questions {
            let form = match question.form(Some(rounds)) {
                Ok(form) => form,
                Err(error) => return FollowedCall::Answered(Err(ErrorData::internal_error(error, None))),
            };
            question.hand_out();
            forms.insert(key.clone(), InputRequest::Elicitation(ElicitRequest::new(form)));
        }
        // The client receives nothing before it comes back, if it does.
        ongoing.attend(false);
        ongoing.send_progress_to(None);
        let state = self.park(ongoing, questions, rounds, request);
        FollowedCall::Answered(Ok(InputRequiredResult::new(Some(forms), Some(state)).into()))
    }

    fn park(
        &self,
        ongoing: OngoingCall,
        questions: BTreeMap<String, Sheet>,
        rounds: u32,
        request: &CallToolRequestParams,
    ) -> String {
        let state = unguessable();
        let mut calls = self.calls.lock();
        if calls.len() >= PARKED_CALLS {
            // Finished calls first: their clients have not come back for the result.
            let oldest = calls.iter().min_by_key(|(_, parked)| (!parked.ongoing.is_done(), parked.number));
            if let Some(oldest) = oldest.map(|(state, _)| state.clone()) {
                tracing::warn!("too many calls wait for approval; the oldest is given up");
                calls.remove(&oldest);
            }
        }
        let number = calls.values().map(|parked| parked.number + 1).max().unwrap_or_default();
        let (tool, arguments) = (request.name.to_string(), request.arguments.clone());
        calls.insert(
            state.clone(),
            Parked { ongoing, tool, arguments, questions, rounds, number, is_sent: false },
        );
        state
    }

    fn take(&self, state: &str, request: &CallToolRequestParams) -> Result<Parked, ErrorData> {
        let mut calls = self.calls.lock();
        let Some(parked) = calls.get(state) else {
            let message = "no call waits under this `requestState`: it was taken up already, or given up";
            return Err(ErrorData::invalid_params(message, None));
        };
        if parked.tool != request.name || parked.arguments != request.arguments {
            let message = "`requestState` belongs to a call of another tool or with other arguments";
            return Err(ErrorData::invalid_params(message, None));
        }
        calls.remove(state).ok_or_else(|| ErrorData::internal_error("the call is gone", None))
    }
}

/// The approval requests as they are asked together, each of these with a name that nobody guesses.
pub(super) fn sheets_of(requests: &mut VecDeque<ApprovalRequest>) -> BTreeMap<String, Sheet> {
    std::iter::from_fn(|| Some((unguessable(), Sheet::next(requests)?))).collect()
}

pub(super) fn requests_of(sheets: BTreeMap<String, Sheet>) -> impl Iterator<Item = ApprovalRequest> {
    sheets.into_values().flat_map(Sheet::into_requests)
}

/// Answers the approval requests that have a response and leaves the others.
pub(super) fn answer(questions: &mut BTreeMap<String, Sheet>, responses: Option<&InputResponses>) {
    for (key, response) in responses.into_iter().flatten() {
        // Unknown keys are ignored.
        let Some(sheet) = questions.remove(key) else { continue };
        match serde_json::from_value::<ElicitResult>(response.clone()) {
            Ok(result) => {
                if let Given::Unclear(sheet) = sheet.give(&result) {
                    questions.insert(unguessable(), sheet);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the MCP client answered a question with something else");
                sheet.reject();
            }
        }
    }
}

fn unguessable() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
