//! Calls that go on while no request waits for them: cells that their model has left, and what a client that is gone has
//! begun.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::model::{CallToolResult, Task};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::ongoing_call::OngoingCall;
use super::queue::SessionQueue;
use super::reply;
use super::unfetched_answers::{UndeliveredReason, UnfetchedAnswer, prepend, text_of};
use crate::approval::ApprovalRequest;

/// The number of calls that are kept. The oldest that are done are given up first.
const KEPT: usize = 64;

/// The time that a request may take to stop waiting for a cell.
const GIVING_WAY: Duration = Duration::from_secs(5);

/// The interval of looks meanwhile.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Of how many cells, the newest, the answer can be fetched again.
const FETCHED: usize = 4;

/// The interval at which a request looks for questions of other calls.
const QUESTION_INTERVAL: Duration = Duration::from_millis(50);

/// The calls, oldest first.
#[derive(Default)]
pub(super) struct LeftCalls {
    state: Mutex<State>,
    /// Notified when a call or a question comes.
    came: Notify,
}

#[derive(Default)]
struct State {
    calls: Vec<OngoingCall>,
    /// The number of the newest cell.
    newest: u64,
    /// Questions of calls for which no request waits, which were shown and not answered.
    questions: Vec<ApprovalRequest>,
    /// The cells for which a request waits, and what has it stop.
    awaited: BTreeMap<u64, CancellationToken>,
    /// The cells whose answers nobody has fetched in time.
    given_up: BTreeSet<u64>,
    /// The answers that were fetched, the newest last.
    fetched: VecDeque<(u64, CallToolResult)>,
}

/// A cell that a request waits for. Put it back with [`LeftCalls::put`] if it is left again.
pub(super) struct Awaited<'a> {
    left: &'a LeftCalls,
    cell: u64,
}

/// Questions that a request asks for calls for which no request waits. What is left of them when this is dropped can be
/// asked by another one.
pub(super) struct LentQuestions<'a> {
    left: &'a LeftCalls,
    pub(super) questions: VecDeque<ApprovalRequest>,
}

impl Drop for LentQuestions<'_> {
    fn drop(&mut self) {
        self.left.give_back(self.questions.drain(..));
    }
}

impl LeftCalls {
    /// The number of a new cell.
    pub(super) fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.newest += 1;
        state.newest
    }

    /// Keeps a call.
    pub(super) fn put(&self, ongoing: OngoingCall) {
        // Nobody is there to take them; its questions wait for whoever comes.
        ongoing.send_progress_to(None);
        ongoing.attend(true);
        self.came.notify_waiters();
        let mut state = self.state.lock();
        let place = state.calls.partition_point(|call| call.about().begun <= ongoing.about().begun);
        state.calls.insert(place, ongoing);
        if state.calls.len() > KEPT {
            let oldest = state.calls.iter().position(OngoingCall::is_done).unwrap_or_default();
            let given_up = state.calls.remove(oldest);
            state.given_up.extend(number_of(&given_up));
            tracing::warn!(call = %given_up.about().call, "too many answers were not fetched; the oldest is given up");
        }
    }

    /// Waits until calls for which no request waits have questions, and lends them. Cancellation safe.
    pub(super) async fn questions(&self) -> LentQuestions<'_> {
        loop {
            let mut came = std::pin::pin!(self.came.notified());
            came.as_mut().enable();
            let (questions, has_calls) = self.take_questions();
            if !questions.is_empty() {
                return LentQuestions { left: self, questions };
            }
            if has_calls { tokio::time::sleep(QUESTION_INTERVAL).await } else { came.await }
        }
    }

    /// The questions of calls for which no request waits, which the caller asks.
    pub(super) fn questions_now(&self) -> VecDeque<ApprovalRequest> {
        self.take_questions().0
    }

    /// Takes questions back, to be asked by another request.
    pub(super) fn give_back(&self, questions: impl Iterator<Item = ApprovalRequest>) {
        let questions: Vec<_> = questions.inspect(ApprovalRequest::take_back).collect();
        if !questions.is_empty() {
            self.state.lock().questions.extend(questions);
            self.came.notify_waiters();
        }
    }

    /// Takes out a call that was the task of a client which is gone.
    pub(super) fn take_task(&self, id: &str) -> Option<(OngoingCall, Task)> {
        let mut state = self.state.lock();
        let task_of = |call: &OngoingCall| call.about().task.clone().filter(|task| task.task_id == id);
        let (place, task) =
            state.calls.iter().enumerate().find_map(|(place, call)| Some((place, task_of(call)?)))?;
        Some((state.calls.remove(place), task))
    }

    /// The questions, and whether there are calls that may have some later.
    fn take_questions(&self) -> (VecDeque<ApprovalRequest>, bool) {
        let mut state = self.state.lock();
        let mut questions: VecDeque<_> = std::mem::take(&mut state.questions).into();
        for call in &mut state.calls {
            questions.extend(call.take_questions());
        }
        questions.retain(|question| !question.is_closed());
        (questions, state.calls.iter().any(|call| !call.is_done()))
    }

    /// Takes out a cell, for a request that waits for it until `given_up` is cancelled: the next one that wants to wait
    /// for it does that, since the client of this one may be gone without a word.
    ///
    /// # Errors
    /// Nobody can wait for it; the text says why, and which there are.
    pub(super) async fn take(
        &self,
        cell: u64,
        given_up: &CancellationToken,
    ) -> Result<(OngoingCall, Awaited<'_>), String> {
        let earlier = self.state.lock().awaited.get(&cell).cloned();
        if let Some(earlier) = earlier {
            earlier.cancel();
            let deadline = Instant::now() + GIVING_WAY;
            while self.state.lock().awaited.contains_key(&cell) && Instant::now() < deadline {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
        let mut state = self.state.lock();
        let place = state.calls.iter().position(|call| number_of(call) == Some(cell));
        let Some(place) = place else { return Err(state.why_not(cell)) };
        let ongoing = state.calls.remove(place);
        state.awaited.insert(cell, given_up.clone());
        Ok((ongoing, Awaited { left: self, cell }))
    }

    /// Keeps what was fetched for a cell, should its client have given up on that without a word and fetch it again.
    pub(super) fn note_fetched(&self, cell: u64, answer: &CallToolResult) {
        let mut again = match answer.is_error {
            Some(true) => reply::failure(text_of(answer)),
            _ => reply::success(text_of(answer)),
        };
        prepend(&[format!("[`{}` was answered before. Its answer again:]", id(cell))], &mut again);
        let mut state = self.state.lock();
        state.fetched.push_back((cell, again));
        if state.fetched.len() > FETCHED {
            state.fetched.pop_front();
        }
    }

    /// The result that was fetched for a cell.
    pub(super) fn fetched(&self, cell: u64) -> Option<CallToolResult> {
        let state = self.state.lock();
        state.fetched.iter().find(|(number, _)| *number == cell).map(|(_, answer)| answer.clone())
    }

    /// The answers that came meanwhile, of calls that no request can wait for, each once.
    pub(super) fn done_meanwhile(&self) -> Vec<UnfetchedAnswer> {
        let is_done = |call: &mut OngoingCall| number_of(call).is_none() && call.is_done();
        let done = |mut call: OngoingCall| {
            let (text, about) = (call.text()?, call.about());
            let (call, after) = (about.call.clone(), about.begun.elapsed());
            Some(UnfetchedAnswer { call, text, why: UndeliveredReason::ClientGone, after })
        };
        self.state.lock().calls.extract_if(.., is_done).filter_map(done).collect()
    }

    /// Whether a cell is not done that came before a request in the same `queue`.
    pub(super) fn is_open_in(&self, queue: &SessionQueue) -> bool {
        let is_open = |call: &OngoingCall| number_of(call).is_none() && call.is_open_in(queue);
        self.state.lock().calls.iter().any(is_open)
    }

    /// Each call with what became of it, in words.
    pub(super) fn summary(&self) -> Vec<String> {
        let words = |call: &OngoingCall| {
            let name = match number_of(call) {
                Some(cell) => format!("`{}`, {}", id(cell), call.about().call),
                None => call.about().call.clone(),
            };
            let seconds = call.about().begun.elapsed().as_secs();
            match (call.is_done(), call.is_asking(), number_of(call)) {
                (true, _, Some(_)) => format!("{name}: ended; `wait_for_cell` returns its answer"),
                (true, _, None) => format!("{name}: ended; its answer follows"),
                (false, true, _) => format!("{name}: waits for approval, {seconds} s after it was sent"),
                (false, false, _) => format!("{name}: has not ended, {seconds} s after it was sent"),
            }
        };
        self.state.lock().calls.iter().map(words).collect()
    }
}

impl State {
    fn why_not(&self, cell: u64) -> String {
        let id = id(cell);
        if self.awaited.contains_key(&cell) {
            return format!("another call waits for `{id}`");
        }
        let why = match cell {
            _ if self.given_up.contains(&cell) => {
                format!("the answer of `{id}` was given up: more than {KEPT} were not fetched")
            }
            1.. if cell <= self.newest => format!("`{id}` has been answered"),
            _ => format!("there is no cell `{id}`"),
        };
        let others: Vec<String> =
            self.calls.iter().filter_map(number_of).map(|cell| format!("`{}`", self::id(cell))).collect();
        if others.is_empty() {
            format!("{why}, and none waits for its answer")
        } else {
            format!("{why}; there are {}", others.join(", "))
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.left.state.lock().awaited.remove(&self.cell);
    }
}

/// The number of a cell that a request can wait for.
fn number_of(call: &OngoingCall) -> Option<u64> {
    call.about().cell.as_ref().map(|(number, _)| *number)
}

/// The name of a cell for models.
pub(super) fn id(cell: u64) -> String {
    format!("cell-{cell}")
}

/// The number in the id of a cell.
pub(super) fn number_in(id: &str) -> Option<u64> {
    id.trim().strip_prefix("cell-")?.parse().ok()
}
