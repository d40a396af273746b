//! Calls that are tasks (the extension `io.modelcontextprotocol/tasks`): the client asks now and then how they are, and
//! answers their questions.
//!
//! rmcp's `TaskManager` has no place for a call that outlives its client, and either ends its work after a time or keeps its
//! result for ever.

use rmcp::ErrorData;
use rmcp::model::{DetailedTask, InputResponses, Task, TaskPayload, TaskStatus};
use rmcp::task_manager::current_timestamp;
use tokio::time::Instant;

use super::awaited::AwaitedCall;
use super::call::{CallState, LedgerCall};
use super::call_task::CallTask;
use super::{CallLedger, LedgerState, MOST_CALLS};

/// The interval at which a client should ask, in milliseconds.
const POLL_MS: u64 = 1_000;

impl AwaitedCall {
    /// Has the client ask about the call as a task.
    ///
    /// # Errors
    /// There are too many calls for which no request waits.
    pub(in crate::faces::mcp_server) fn become_task(mut self, connection: u64) -> Result<Task, Self> {
        let made = self.ledger.change(|state| state.make_task(self.number, connection));
        let Some(task) = made else { return Err(self) };
        self.release();
        // What comes later comes by the task.
        self.handle.send_progress_to(None);
        self.handle.attend(true);
        Ok(task)
    }

    /// Waits until the call can become a task.
    pub(in crate::faces::mcp_server) async fn room_for_task(&self) {
        self.ledger.until(|state| state.make_room_for_task().then_some(())).await;
    }
}

impl CallLedger {
    /// The state of a task, with the questions that wait for an answer.
    pub(in crate::faces::mcp_server) fn task(
        &self,
        id: &str,
        connection: u64,
    ) -> Result<DetailedTask, ErrorData> {
        let mut state = self.state.lock();
        let (number, _) = state.find_task(id)?;
        state.look_at_task(number);
        // Its client sees those of calls for which no request waits, too.
        let others = if state.call(number).is_some_and(|call| call.is_done()) {
            Default::default()
        } else {
            state.take_left_questions()
        };
        let (_, call) = state.find_task(id)?;
        call.sent.add(others, call.handle.pages.opens);
        describe(call, connection)
    }

    /// Answers the questions of a task that have a response.
    pub(in crate::faces::mcp_server) fn update_task(
        &self,
        id: &str,
        responses: &InputResponses,
    ) -> Result<(), ErrorData> {
        let mut state = self.state.lock();
        state.find_task(id)?.1.sent.answer(Some(responses));
        Ok(())
    }

    /// Interrupts a task. Its client need not ask again, so that its result comes with the next answer.
    pub(in crate::faces::mcp_server) fn cancel_task(&self, id: &str) -> Result<(), ErrorData> {
        self.change(|state| {
            let (_, call) = state.find_task(id)?;
            if let CallState::Task(task) = &mut call.state
                && task.end.is_none()
            {
                task.is_cancelled = true;
                call.handle.interrupt();
                let questions: Vec<_> = call.sent.take_back().collect();
                state.questions.extend(questions);
            }
            Ok(())
        })
    }
}

impl LedgerState {
    /// Notices that the work of a task is done.
    pub(super) fn look_at_task(&mut self, number: u64) {
        let Some(call) = self.call(number) else { return };
        if let (CallState::Task(task), Some(answer)) = (&mut call.state, &call.answer)
            && task.end.is_none()
        {
            task.end(answer);
            // Those of other calls are asked by others.
            let questions: Vec<_> = call.sent.take_back().collect();
            self.questions.extend(questions);
        }
    }

    fn make_task(&mut self, number: u64, connection: u64) -> Option<Task> {
        if !self.make_room_for_task() {
            return None;
        }
        let call = self.call(number)?;
        let now = current_timestamp();
        let id = uuid::Uuid::new_v4().to_string();
        let task = Task::new(id, TaskStatus::Working, now.clone(), now).with_poll_interval_ms(POLL_MS);
        call.state = CallState::Task(CallTask::new(task.clone(), connection));
        Some(task)
    }

    /// Whether another call can be kept as a task. One whose client has its result makes room.
    fn make_room_for_task(&mut self) -> bool {
        let kept = self.calls.iter().filter(|call| !call.is_awaited());
        if kept.clone().count() < MOST_CALLS {
            return true;
        }
        let oldest = kept.filter(|call| call.is_delivered).map(|call| call.number).next();
        oldest.is_some_and(|oldest| self.remove(oldest).is_some())
    }

    /// The task with this id. One of a client that is gone may be asked about by the next one.
    fn find_task(&mut self, id: &str) -> Result<(u64, &mut LedgerCall), ErrorData> {
        let found = self.calls.iter_mut().find_map(|call| match &call.state {
            CallState::Task(task) if task.task.task_id == id => Some(call),
            CallState::Left(Some(task)) if task.task_id == id => {
                call.state = CallState::Task(CallTask::new(task.clone(), 0));
                Some(call)
            }
            _ => None,
        });
        found.map(|call| (call.number, call)).ok_or_else(|| {
            let message = format!(
                "there is no task `{id}`: its result was fetched long ago, or came with the answer to another call"
            );
            ErrorData::invalid_params(message, None)
        })
    }
}

/// The state of a task for its client, which asks on this connection.
fn describe(call: &mut LedgerCall, connection: u64) -> Result<DetailedTask, ErrorData> {
    let questions = call.take_questions();
    let LedgerCall { handle, state: CallState::Task(kept), sent, is_delivered, .. } = call else {
        return Err(ErrorData::internal_error("the call is no task", None));
    };
    kept.connection = connection;
    kept.last_asked = Instant::now();
    if let Some(end) = &kept.end {
        *is_delivered |= !kept.is_cancelled;
        return Ok(DetailedTask::new(kept.task.clone(), end.clone()));
    }
    handle.attend(true);
    sent.add(questions, handle.pages.opens);
    let payload = if sent.are_over() {
        TaskPayload::Working
    } else {
        // Their times begin anew: the client is still there.
        let forms = sent.forms(None).map_err(|error| ErrorData::internal_error(error, None))?;
        TaskPayload::InputRequired { input_requests: forms }
    };
    kept.touch(payload.status());
    let about = &handle.about;
    kept.task.status_message = Some(format!("{}: {} s", about.call, about.begun.elapsed().as_secs()));
    Ok(DetailedTask::new(kept.task.clone(), payload))
}
