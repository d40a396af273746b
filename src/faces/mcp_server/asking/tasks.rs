//! Calls that are tasks (the extension `io.modelcontextprotocol/tasks`): the client asks now and then how they are, and
//! answers their questions.
//!
//! rmcp's `TaskManager` has no place for a call that outlives its client, and either ends its work after a time or keeps its
//! result for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ElicitRequest, InputRequest,
    InputResponses, JsonObject, Task, TaskPayload, TaskStatus,
};
use rmcp::task_manager::current_timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::WaitingRequest;
use super::parking::{answer, requests_of, sheets_of};
use crate::faces::mcp_server::left_calls::LeftCalls;
use crate::faces::mcp_server::ongoing_call::{FollowedCall, Next, OngoingCall};
use crate::faces::mcp_server::questions::Sheet;
use crate::faces::mcp_server::unfetched_answers::{UndeliveredReason, UnfetchedAnswer};

/// The time that a call may take before it becomes a task. Shorter ones cost no further requests.
const TASK_AFTER: Duration = Duration::from_secs(5);

/// The interval at which a client should ask, in milliseconds.
const POLL_MS: u64 = 1_000;

/// The number of tasks that are kept. Those whose results have been fetched go first; if there is none, a call stays a request.
const KEPT: usize = 64;

/// After this time without a question about it, the result of a task comes with the next answer.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The tasks, oldest first.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct Tasks {
    kept: Mutex<Vec<Kept>>,
}

struct Kept {
    ongoing: OngoingCall,
    task: Task,
    /// The end of the task.
    end: Option<TaskPayload>,
    questions: BTreeMap<String, Sheet>,
    is_cancelled: bool,
    /// Whether the client has its result: fetched, or with another answer.
    is_delivered: bool,
    last_asked: Instant,
    connection: u64,
}

impl Tasks {
    /// Follows a call until its end, or until it becomes a task: when it has a question, or takes long.
    pub(in crate::faces::mcp_server) async fn work(
        &self,
        mut ongoing: OngoingCall,
        connection: u64,
        waiting: WaitingRequest<'_>,
    ) -> FollowedCall<CallToolResponse> {
        let mut at = Instant::now() + TASK_AFTER;
        loop {
            let is_wanted = !waiting.cancelled.is_cancelled();
            tokio::select! {
                biased;
                // First, since the end of a connection cancels its requests too.
                () = waiting.leave.come() => return FollowedCall::Left(Box::new(ongoing)),
                next = ongoing.next(waiting.cancelled) => match next {
                    Next::Done(done) => return FollowedCall::Answered(done.map(CallToolResult::into)),
                    // Nobody would see the questions of a call that is cancelled.
                    Next::Questions if !is_wanted => drop(ongoing.take_questions()),
                    Next::Questions => {}
                },
                lent = waiting.left.questions(), if is_wanted => drop(lent),
                () = tokio::time::sleep_until(at), if is_wanted => {}
            }
            if waiting.cancelled.is_cancelled() {
                continue;
            }
            ongoing = match self.keep(ongoing, connection) {
                Ok(task) => {
                    return FollowedCall::Answered(Ok(CallToolResponse::Task(CreateTaskResult::new(task))));
                }
                Err(ongoing) => *ongoing,
            };
            at = Instant::now() + Duration::from_millis(POLL_MS);
        }
    }

    /// The state of a task, with the questions that wait for an answer.
    pub(in crate::faces::mcp_server) fn get(
        &self,
        id: &str,
        connection: u64,
        left: &LeftCalls,
    ) -> Result<DetailedTask, ErrorData> {
        let mut kept = self.kept.lock();
        let kept = find(&mut kept, id, left)?;
        kept.connection = connection;
        kept.last_asked = Instant::now();
        kept.look(left);
        if let Some(end) = &kept.end {
            kept.is_delivered |= !kept.is_cancelled;
            return Ok(DetailedTask::new(kept.task.clone(), end.clone()));
        }
        kept.ongoing.attend(true);
        kept.questions.extend(sheets_of(&mut kept.ongoing.take_questions()));
        kept.questions.extend(sheets_of(&mut left.questions_now()));
        kept.questions.retain(|_, question| !question.is_closed());
        let mut requests = BTreeMap::new();
        for (key, question) in &kept.questions {
            let form = question.form(None).map_err(|error| ErrorData::internal_error(error, None))?;
            // Its time begins anew: the client is still there.
            question.hand_out();
            requests.insert(key.clone(), InputRequest::Elicitation(ElicitRequest::new(form)));
        }
        let payload = if requests.is_empty() {
            TaskPayload::Working
        } else {
            TaskPayload::InputRequired { input_requests: requests }
        };
        kept.touch(payload.status());
        let about = kept.ongoing.about();
        kept.task.status_message = Some(format!("{}: {} s", about.call, about.begun.elapsed().as_secs()));
        Ok(DetailedTask::new(kept.task.clone(), payload))
    }

    /// Answers the questions of a task that have a response.
    pub(in crate::faces::mcp_server) fn update(
        &self,
        id: &str,
        responses: &InputResponses,
        left: &LeftCalls,
    ) -> Result<(), ErrorData> {
        let mut kept = self.kept.lock();
        let kept = find(&mut kept, id, left)?;
        answer(&mut kept.questions, Some(responses));
        Ok(())
    }

    /// Interrupts a task. Its client need not ask again, so that its result comes with the next answer.
    pub(in crate::faces::mcp_server) fn cancel(&self, id: &str, left: &LeftCalls) -> Result<(), ErrorData> {
        let mut kept = self.kept.lock();
        let kept = find(&mut kept, id, left)?;
        if kept.end.is_none() {
            kept.is_cancelled = true;
            kept.ongoing.interrupt();
            left.give_back(requests_of(std::mem::take(&mut kept.questions)));
        }
        Ok(())
    }

    /// The results that no client has fetched and that none will, each once.
    pub(in crate::faces::mcp_server) fn done_meanwhile(&self, left: &LeftCalls) -> Vec<UnfetchedAnswer> {
        let mut kept = self.kept.lock();
        kept.iter_mut().for_each(|kept| kept.look(left));
        kept.iter_mut().filter_map(Kept::forgotten).collect()
    }

    /// Takes out the tasks of a client that is gone whose results it does not have; their questions can be asked again.
    pub(in crate::faces::mcp_server) fn abandon(&self, connection: u64) -> Vec<OngoingCall> {
        let is_open = |kept: &mut Kept| kept.connection == connection && !kept.is_delivered;
        let open: Vec<Kept> = self.kept.lock().extract_if(.., is_open).collect();
        let leave = |Kept { mut ongoing, questions, task, .. }: Kept| {
            ongoing.give_back(requests_of(questions));
            ongoing.name_task(task);
            ongoing
        };
        open.into_iter().map(leave).collect()
    }

    /// Keeps a call as a task, or gives it back if there are too many.
    fn keep(&self, ongoing: OngoingCall, connection: u64) -> Result<Task, Box<OngoingCall>> {
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT {
            match kept.iter().position(|kept| kept.end.is_some() && kept.is_delivered) {
                Some(oldest) => drop(kept.remove(oldest)),
                None => return Err(Box::new(ongoing)),
            }
        }
        // What comes later comes by the task.
        ongoing.send_progress_to(None);
        ongoing.attend(true);
        let now = current_timestamp();
        let id = uuid::Uuid::new_v4().to_string();
        let task = Task::new(id, TaskStatus::Working, now.clone(), now).with_poll_interval_ms(POLL_MS);
        kept.push(Kept::new(ongoing, task.clone(), connection));
        Ok(task)
    }
}

/// The task with this id. One of a client that is gone may be asked about by the next one.
fn find<'a>(kept: &'a mut Vec<Kept>, id: &str, left: &LeftCalls) -> Result<&'a mut Kept, ErrorData> {
    if !kept.iter().any(|kept| kept.task.task_id == id)
        && let Some((ongoing, task)) = left.take_task(id)
    {
        kept.push(Kept::new(ongoing, task, 0));
    }
    kept.iter_mut().find(|kept| kept.task.task_id == id).ok_or_else(|| {
        let message = format!(
            "there is no task `{id}`: its result was fetched long ago, or came with the answer to another call"
        );
        ErrorData::invalid_params(message, None)
    })
}

impl Kept {
    fn new(ongoing: OngoingCall, task: Task, connection: u64) -> Self {
        let (end, questions, last_asked) = (None, BTreeMap::new(), Instant::now());
        Self {
            ongoing,
            task,
            end,
            questions,
            is_cancelled: false,
            is_delivered: false,
            last_asked,
            connection,
        }
    }

    /// Notices that the work is done.
    fn look(&mut self, left: &LeftCalls) {
        if self.end.is_some() {
            return;
        }
        let end = match self.ongoing.look() {
            None => return,
            Some(_) if self.is_cancelled => TaskPayload::Cancelled,
            Some(Ok(result)) => TaskPayload::Completed { result: object(result) },
            Some(Err(error)) => TaskPayload::Failed { error: object(error) },
        };
        self.touch(end.status());
        self.task.status_message = None;
        self.end = Some(end);
        // Those of other calls are asked by others.
        left.give_back(requests_of(std::mem::take(&mut self.questions)));
    }

    fn touch(&mut self, status: TaskStatus) {
        if self.task.status != status {
            self.task.status = status;
            self.task.last_updated_at = current_timestamp();
        }
    }

    /// The result, if its client does not ask for it any more.
    fn forgotten(&mut self) -> Option<UnfetchedAnswer> {
        let is_forgotten = self.is_cancelled || self.last_asked.elapsed() > FORGOTTEN_AFTER;
        if self.end.is_none() || self.is_delivered || !is_forgotten {
            return None;
        }
        self.is_delivered = true;
        let text = self.ongoing.text()?;
        let why =
            if self.is_cancelled { UndeliveredReason::Cancelled } else { UndeliveredReason::NotFetched };
        let about = self.ongoing.about();
        Some(UnfetchedAnswer { call: about.call.clone(), text, why, after: about.begun.elapsed() })
    }
}

fn object(value: &impl Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        other => unreachable!("an answer is a JSON object, not {other:?}"),
    }
}
