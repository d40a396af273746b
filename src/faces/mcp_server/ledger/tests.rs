use std::time::{Duration, Instant};

use rmcp::model::CallToolRequestParams;
use serde_json::Map;

use super::*;
use crate::approval::{Action, Target};
use crate::kernels::output::UnreadText;

fn ledger() -> Arc<CallLedger> {
    Arc::default()
}

fn about(cell: Option<u64>) -> CallSubject {
    let cell = cell.map(|number| (number, Arc::new(UnreadText::new(0))));
    let (call, begun) = ("`tool`".to_owned(), Instant::now());
    CallSubject { call, begun, queue: None, cell, limit: Duration::ZERO }
}

/// A call that is done when `answer` is.
fn begin(
    ledger: &Arc<CallLedger>,
    cell: Option<u64>,
    answer: impl Future<Output = ()> + Send + 'static,
) -> AwaitedCall {
    let work = async move {
        answer.await;
        Ok(CallToolResult::success(Vec::new()))
    };
    ledger.begin(work, None, CancellationToken::new(), ProgressListener::default(), about(cell))
}

fn request(tool: &str) -> ApprovalRequest {
    let target = Target::Command("c".to_owned());
    ApprovalRequest::for_tests(Action::new("s".to_owned(), tool.to_owned(), Map::new(), target))
}

fn ask(call: &AwaitedCall, tool: &str) {
    call.ledger.change(|state| state.call(call.number).unwrap().questions.push_back(request(tool)));
}

fn tools(questions: &VecDeque<ApprovalRequest>) -> Vec<&str> {
    questions.iter().map(ApprovalRequest::tool_name).collect()
}

fn is_there(ledger: &CallLedger, number: u64) -> bool {
    ledger.state.lock().call(number).is_some()
}

#[tokio::test]
async fn what_is_not_answered_can_be_asked_again_by_whoever_is_there() {
    let ledger = ledger();
    let calls = ["own", "leaving", "ended"].map(|tool| {
        let call = begin(&ledger, None, std::future::pending());
        call.ask_together();
        ask(&call, tool);
        call
    });
    let [own, leaving, ended] = calls;
    let taken = own.take_together().unwrap();
    assert_eq!(tools(&taken.questions), ["own", "leaving", "ended"]);
    // Their questions are being asked just now.
    leaving.leave();
    drop(ended);
    drop(taken);
    let other = begin(&ledger, None, std::future::pending());
    other.questions_come().await;
    let taken = other.take_together().unwrap();
    assert_eq!(tools(&taken.questions), ["own", "leaving"]);
    drop(taken);
    assert_eq!(tools(&other.left_questions().await), ["leaving"]);
    // Of those of others alone none is asked.
    assert!(other.take_together().is_none());
    assert_eq!(tools(&own.take_together().unwrap().questions), ["own"]);
}

#[tokio::test]
async fn the_end_of_a_call_wakes_whoever_waits_for_it() {
    let ledger = ledger();
    let (end, ended) = tokio::sync::oneshot::channel();
    let call = begin(&ledger, None, async { ended.await.unwrap() });
    let cancelled = CancellationToken::new();
    let mut coming = std::pin::pin!(call.come(&cancelled));
    assert!(futures::poll!(coming.as_mut()).is_pending());
    end.send(()).unwrap();
    assert!(matches!(coming.await, CallEvent::Done(Ok(_))));
    assert!(!is_there(&ledger, call.number));
}

#[tokio::test]
async fn a_panic_is_the_answer_of_a_call() {
    let call = begin(&ledger(), None, async { panic!("on purpose") });
    assert!(call.answer().await.unwrap_err().message.contains("panic"));
}

#[tokio::test]
async fn a_request_that_ends_without_its_answer_ends_its_call() {
    let ledger = ledger();
    let call = begin(&ledger, None, std::future::pending());
    let (number, handle) = (call.number, Arc::clone(&call.handle));
    drop(call);
    assert!(handle.is_interrupted() && !is_there(&ledger, number));
}

#[tokio::test]
async fn the_next_request_for_a_cell_takes_the_place_of_the_one_that_waits() {
    let ledger = ledger();
    let cell = ledger.new_cell();
    begin(&ledger, Some(cell), std::future::pending()).leave();
    let given_up = CancellationToken::new();
    let first = ledger.take(cell, &given_up).await.unwrap();
    let giving_way = async {
        given_up.cancelled().await;
        first.leave();
    };
    let next = CancellationToken::new();
    let (second, ()) = tokio::join!(ledger.take(cell, &next), giving_way);
    let refusal = ledger.take(99, &given_up).await.err().unwrap();
    assert_eq!(refusal, "there is no cell `cell-99`, and none waits for its answer");
    drop(second.unwrap());
    let refusal = ledger.take(cell, &given_up).await.err().unwrap();
    assert_eq!(refusal, "`cell-1` has been answered, and none waits for its answer");
}

#[tokio::test]
async fn of_too_many_calls_the_oldest_that_is_done_is_given_up() {
    let ledger = ledger();
    let calls: Vec<u64> = (0..MOST_CALLS as u64)
        .map(|number| {
            let call = begin(&ledger, Some(ledger.new_cell()), std::future::pending());
            let id = call.number;
            if number == 5 {
                ledger.change(|state| state.call(id).unwrap().answer = Some(Err(bug())));
            }
            if number % 2 == 0 {
                call.leave();
            } else {
                call.park(SentSheets::default(), 1, &CallToolRequestParams::new("tool"));
            }
            id
        })
        .collect();
    let tasked = begin(&ledger, None, std::future::pending()).become_task(1).unwrap_err();
    assert!(calls.iter().all(|call| is_there(&ledger, *call)), "a task pushes none out");
    tasked.leave();
    let kept: Vec<bool> = calls.iter().map(|call| is_there(&ledger, *call)).collect();
    assert_eq!(kept.iter().position(|is_kept| !is_kept), Some(5));
    let refusal = ledger.take(6, &CancellationToken::new()).await.err().unwrap();
    assert!(
        refusal.starts_with("the answer of `cell-6` was given up: more than 192 were not fetched"),
        "{refusal}"
    );
    // Then the oldest of all.
    begin(&ledger, None, std::future::pending()).leave();
    assert!(!is_there(&ledger, calls[0]) && is_there(&ledger, calls[1]));
}
