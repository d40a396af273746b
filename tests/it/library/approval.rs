//! Approval by an application: requests in the stream of an executor, and their answers.

use std::time::{Duration, Instant};

use ipybox::{
    ApprovalEffect, ApprovalPolicy, Code, CodeExecutionError, CodeExecutionEvent, KernelState, Target,
};

use super::session::{ECHO, next, next_error, next_request, next_result, with_probe};
use crate::support::{PATIENCE, Place};

#[tokio::test]
async fn a_request_shows_what_will_run_and_acceptance_runs_it() {
    let place = Place::new();
    let executor = with_probe(&place).await.start().await.unwrap();
    let mut execution = executor.stream(ECHO);
    let request = next_request(&mut execution).await;
    assert_eq!(request.to_string(), "probe.echo(text='hi')");
    assert_eq!((request.server_name(), request.tool_name()), ("probe", "echo"));
    assert_eq!(request.tool_args()["text"], "hi");
    let Target::Command(command) = request.target() else { panic!("{:?}", request.target()) };
    assert!(command.contains("probe.py"), "{command}");
    assert!(request.annotations().is_some());
    assert!(request.accept());
    assert_eq!(next_result(&mut execution).await.text.as_deref(), Some("hi"));
    assert!(execution.next().await.is_none());
    executor.stop().await;
}

#[tokio::test]
async fn what_is_rejected_dropped_or_expired_does_not_run() {
    let place = Place::new();
    let executor = with_probe(&place).await.start().await.unwrap();
    let mut execution = executor.stream(ECHO);
    assert!(next_request(&mut execution).await.reject());
    let error = next_error(&mut execution).await.to_string();
    assert!(error.contains("ApprovalRejectedError: the call of `probe.echo` was rejected"), "{error}");

    let mut execution = executor.stream(ECHO);
    drop(next_request(&mut execution).await);
    assert!(next_error(&mut execution).await.to_string().contains("ApprovalRejectedError"));
    executor.stop().await;

    let place = Place::new();
    let executor =
        with_probe(&place).await.approval_timeout(Duration::from_millis(200)).start().await.unwrap();
    let mut execution = executor.stream(ECHO);
    let request = next_request(&mut execution).await;
    let error = next_error(&mut execution).await.to_string();
    assert!(error.contains("ApprovalTimeoutError"), "{error}");
    assert!(!request.accept());
    executor.stop().await;
}

#[tokio::test]
async fn calls_are_asked_for_one_after_the_other_while_output_goes_on() {
    let place = Place::new();
    let executor = with_probe(&place).await.start().await.unwrap();
    let code = "
from mcptools.probe import add
total = 0
for i in range(3):
    print('step', i)
    total = add.run(add.Params(a=total, b=i)).total
print('total', total)";
    let mut execution = executor.stream(Code::new(code).with_chunks());
    let (mut chunks, mut requests) = (String::new(), Vec::new());
    let text = loop {
        match next(&mut execution).await {
            CodeExecutionEvent::Chunk(chunk) => chunks.push_str(&chunk.text),
            CodeExecutionEvent::ApprovalRequest(request) => {
                requests.push(request.to_string());
                assert!(request.accept());
            }
            CodeExecutionEvent::Result(result) => break result.text.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(requests, ["probe.add(a=0, b=0)", "probe.add(a=0, b=1)", "probe.add(a=1, b=2)"]);
    assert_eq!(text, "step 0\nstep 1\nstep 2\ntotal 3");
    assert_eq!(chunks.trim_end(), text);
    executor.stop().await;
}

#[tokio::test]
async fn output_comes_while_a_call_waits() {
    let place = Place::new();
    let executor = with_probe(&place).await.start().await.unwrap();
    let code = "
import threading, time
from mcptools.probe import echo
printing = threading.Thread(target=lambda: [print('tick', i, flush=True) or time.sleep(0.3) for i in range(5)])
printing.start()
echo.run(text='x')
printing.join()";
    let mut execution = executor.stream(Code::new(code).with_chunks());
    let (mut waiting, mut chunks) = (None, String::new());
    while waiting.is_none() || !chunks.contains("tick 4") {
        match next(&mut execution).await {
            CodeExecutionEvent::ApprovalRequest(request) => waiting = Some(request),
            CodeExecutionEvent::Chunk(chunk) => chunks.push_str(&chunk.text),
            other => panic!("{other:?}"),
        }
    }
    assert!(waiting.unwrap().accept());
    while !matches!(next(&mut execution).await, CodeExecutionEvent::Result(_)) {}
    executor.stop().await;
}

#[tokio::test]
async fn waiting_for_approval_does_not_count() {
    let place = Place::new();
    let executor = with_probe(&place).await.start().await.unwrap();
    executor.execute(ECHO).await.unwrap();
    let timeout = Duration::from_secs(5);
    let mut execution = executor.stream(Code::new(ECHO).timeout(timeout));
    let request = next_request(&mut execution).await;
    // The code's own time would be over twice.
    let begun = Instant::now();
    while begun.elapsed() < 2 * timeout {
        assert!(
            tokio::time::timeout(2 * timeout - begun.elapsed().min(2 * timeout), execution.next())
                .await
                .is_err()
        );
    }
    assert!(request.accept());
    assert_eq!(next_result(&mut execution).await.text.as_deref(), Some("hi"));
    // And afterwards it counts again.
    let code = Code::new(format!("{ECHO}\nwhile True: pass")).timeout(timeout);
    let mut execution = executor.stream(code);
    assert!(next_request(&mut execution).await.accept());
    let error = next_error(&mut execution).await;
    assert!(matches!(error, CodeExecutionError::TimedOut { kernel: KernelState::Kept, .. }), "{error}");
    assert_eq!(error.output().unwrap().text.as_deref(), Some("hi"));
    executor.stop().await;
}

#[tokio::test]
async fn code_that_pesters_times_out() {
    let place = Place::new();
    let executor =
        with_probe(&place).await.approval_timeout(Duration::from_millis(200)).start().await.unwrap();
    let loops = "
import threading, time
from mcptools.probe import echo
def ask():
    while True:
        try:
            echo.run(text='x')
        except Exception:
            pass
";
    // In the second one a request waits at every moment.
    let beside = "threading.Thread(target=ask, daemon=True).start()\ntime.sleep(0.1)\nask()";
    for calls in ["ask()", beside] {
        let code = Code::new(format!("{loops}{calls}")).timeout(Duration::from_secs(1));
        let mut execution = executor.stream(code);
        // Nobody answers.
        let mut unanswered = Vec::new();
        let error = loop {
            match tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event").unwrap() {
                Ok(CodeExecutionEvent::ApprovalRequest(request)) => unanswered.push(request),
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
            assert!(unanswered.len() < 100);
        };
        assert!(matches!(error, CodeExecutionError::TimedOut { .. }), "{error}");
    }
    executor.stop().await;
}

#[tokio::test]
async fn code_is_cancelled_while_it_waits_for_approval() {
    let place = Place::new();
    let executor = with_probe(&place).await.start().await.unwrap();
    executor.execute("x = 1").await.unwrap();
    let mut execution = executor.stream(ECHO);
    let request = next_request(&mut execution).await;
    executor.cancel();
    let error = next_error(&mut execution).await;
    assert!(matches!(error, CodeExecutionError::Cancelled { kernel: KernelState::Kept, .. }), "{error}");
    assert!(!request.accept());
    // A stream that is dropped cancels its code, and the next code runs.
    let mut execution = executor.stream(ECHO);
    let _request = next_request(&mut execution).await;
    drop(execution);
    assert_eq!(executor.execute("x").await.unwrap().text.as_deref(), Some("1"));
    executor.stop().await;
}

#[tokio::test]
async fn a_policy_decides_without_asking() {
    let place = Place::new();
    let executor = with_probe(&place)
        .await
        .approval_policy(ApprovalPolicy::always(ApprovalEffect::Deny))
        .start()
        .await
        .unwrap();
    let error = executor.execute(ECHO).await.unwrap_err().to_string();
    assert!(error.contains("denied by the approval policy"), "{error}");
    executor.stop().await;
    let executor = with_probe(&place).await.approve_tool_calls(false).start().await.unwrap();
    assert_eq!(next_result(&mut executor.stream(ECHO)).await.text.as_deref(), Some("hi"));
    executor.stop().await;
}

#[tokio::test]
async fn an_answer_for_the_session_answers_the_next_question() {
    let place = Place::new();
    let executor = with_probe(&place).await.start().await.unwrap();
    let mut execution = executor.stream(ECHO);
    assert!(next_request(&mut execution).await.accept_for_session());
    next_result(&mut execution).await;
    assert_eq!(next_result(&mut executor.stream(ECHO)).await.text.as_deref(), Some("hi"));
    let mut execution = executor.stream("from mcptools.probe import add\nadd.run(add.Params(a=1))");
    assert!(next_request(&mut execution).await.reject());
    next_error(&mut execution).await;
    executor.stop().await;
}
