//! A call as a client knows it that asks about it as a task.

use std::time::Duration;

use rmcp::model::{JsonObject, Task, TaskPayload, TaskStatus};
use rmcp::task_manager::current_timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::WorkResult;
use super::unfetched_answers::UndeliveredReason;

/// After this time without a question about it, the result of a task comes with the next answer.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// A call as its client knows it.
pub(super) struct CallTask {
    pub(super) task: Task,
    /// The end of the task.
    pub(super) end: Option<TaskPayload>,
    pub(super) is_cancelled: bool,
    pub(super) last_asked: Instant,
    pub(super) connection: u64,
}

impl CallTask {
    /// The task, about which the client of this connection asks.
    pub(super) fn new(task: Task, connection: u64) -> Self {
        Self { task, end: None, is_cancelled: false, last_asked: Instant::now(), connection }
    }

    /// Whether the client of this connection has asked last.
    pub(super) fn is_of(&self, connection: u64) -> bool {
        self.connection == connection
    }

    /// Why its client will not fetch the result; `None` if it may.
    pub(super) fn why_unfetched(&self) -> Option<UndeliveredReason> {
        let is_forgotten = self.last_asked.elapsed() > FORGOTTEN_AFTER;
        if self.is_cancelled {
            Some(UndeliveredReason::Cancelled)
        } else {
            is_forgotten.then_some(UndeliveredReason::NotFetched)
        }
    }

    /// Notes how the work has ended.
    pub(super) fn end(&mut self, answer: &WorkResult) {
        let end = match answer {
            _ if self.is_cancelled => TaskPayload::Cancelled,
            Ok(result) => TaskPayload::Completed { result: object(result) },
            Err(error) => TaskPayload::Failed { error: object(error) },
        };
        self.touch(end.status());
        self.task.status_message = None;
        self.end = Some(end);
    }

    /// Notes the status that the client is told.
    pub(super) fn touch(&mut self, status: TaskStatus) {
        if self.task.status != status {
            self.task.status = status;
            self.task.last_updated_at = current_timestamp();
        }
    }
}

fn object(value: &impl Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        other => unreachable!("an answer is a JSON object, not {other:?}"),
    }
}
