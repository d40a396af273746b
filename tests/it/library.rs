//! The library as an application uses it: an executor, its stream, approval of each call.

use std::time::{Duration, Instant};

use ipybox::{
    ApprovalEffect, ApprovalPolicy, ApprovalRequest, AuditSettings, Code, CodeExecution, CodeExecutionError,
    CodeExecutionEvent, CodeExecutionResult, CodeExecutor, CodeExecutorBuilder, ConfigError, KernelClient,
    KernelState, Registry, StartError, Target, generate_mcp_sources,
};

use crate::support::{PATIENCE, Place, eventually, is_running, kernel_python, probe};

fn builder(place: &Place) -> CodeExecutorBuilder {
    CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .approval_timeout(PATIENCE)
}

/// A builder that knows the server `probe`.
async fn with_probe(place: &Place) -> CodeExecutorBuilder {
    let registry = Registry::new();
    let modules =
        generate_mcp_sources(&registry, "probe", &probe(), place.workspace().join("mcptools")).await;
    assert!(modules.unwrap().contains(&"echo".to_owned()));
    builder(place).registry(&registry)
}

async fn next(execution: &mut CodeExecution) -> CodeExecutionEvent {
    let event = tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event");
    event.expect("the stream has not ended").expect("no error")
}

async fn next_request(execution: &mut CodeExecution) -> ApprovalRequest {
    match next(execution).await {
        CodeExecutionEvent::ApprovalRequest(request) => request,
        other => panic!("expected an approval request, not {other:?}"),
    }
}

async fn next_result(execution: &mut CodeExecution) -> CodeExecutionResult {
    match next(execution).await {
        CodeExecutionEvent::Result(result) => result,
        other => panic!("expected the result, not {other:?}"),
    }
}

async fn next_error(execution: &mut CodeExecution) -> CodeExecutionError {
    let event = tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event");
    let error = event.expect("the stream has not ended").expect_err("an error");
    assert!(execution.next().await.is_none(), "the error ends the stream");
    error
}

const ECHO: &str = "from mcptools.probe import echo\nprint(echo.run(echo.Params(text='hi')))";

#[tokio::test]
async fn stopping_completes_the_audit_log() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let mut settings = AuditSettings::default();
    settings.file = Some(log.clone());
    let executor = with_probe(&place).await.audit(settings).start().await.unwrap();
    executor.execute(ECHO).await.unwrap();
    let started = place.workspace().join("started");
    let code = format!("open({started:?}, 'w').close()\nwhile True: pass");
    let running = executor.execute(code);
    let stopping = async {
        eventually("the cell runs", || started.exists()).await;
        executor.stop().await;
        // Nothing is written after it has stopped.
        std::fs::read_to_string(&log).unwrap()
    };
    let (ended, log) = tokio::join!(running, stopping);
    ended.unwrap_err();
    let event = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["event"].as_str().unwrap().to_owned()
    };
    let events: Vec<String> = log.lines().map(event).collect();
    assert_eq!(
        events,
        ["cell_started", "decision", "call_ended", "cell_ended", "cell_started", "cell_ended"],
        "{log}"
    );
}

#[tokio::test]
async fn code_runs_and_keeps_its_state() {
    let place = Place::new();
    let executor = builder(&place).start().await.unwrap();
    executor.execute("x = 41").await.unwrap();
    assert_eq!(executor.execute("x + 1").await.unwrap().text.as_deref(), Some("42"));
    assert_eq!(executor.execute("pass").await.unwrap().text, None);
    executor.reset().await.unwrap();
    let error = executor.execute("print('before')\nx").await.unwrap_err();
    assert_eq!(error.output().unwrap().text.as_deref(), Some("before"));
    let CodeExecutionError::Raised { name, traceback, .. } = error else { panic!("{error}") };
    assert!(name == "NameError" && traceback.contains("name 'x' is not defined"), "{traceback}");
    executor.stop().await;
    let error = executor.execute("1").await.unwrap_err();
    assert!(matches!(error, CodeExecutionError::Unavailable(_)), "{error}");
}

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
    let executor =
        with_probe(&place).await.approval_timeout(Duration::from_millis(200)).start().await.unwrap();
    let mut execution = executor.stream(ECHO);
    assert!(next_request(&mut execution).await.reject());
    let error = next_error(&mut execution).await.to_string();
    assert!(error.contains("ApprovalRejectedError: the call of `probe.echo` was rejected"), "{error}");

    let mut execution = executor.stream(ECHO);
    drop(next_request(&mut execution).await);
    assert!(next_error(&mut execution).await.to_string().contains("ApprovalRejectedError"));

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
    let timeout = Duration::from_secs(3);
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
    let code = Code::new(format!("{ECHO}\nwhile True: pass")).timeout(Duration::from_secs(3));
    let mut execution = executor.stream(code);
    assert!(next_request(&mut execution).await.accept());
    let error = next_error(&mut execution).await;
    assert!(matches!(error, CodeExecutionError::TimedOut { kernel: KernelState::Kept, .. }), "{error}");
    assert_eq!(error.output().unwrap().text.as_deref(), Some("hi"));
    executor.stop().await;
}

#[tokio::test]
async fn an_executor_that_is_dropped_ends_its_streams_and_processes() {
    let place = Place::new();
    let executor = builder(&place).start().await.unwrap();
    let code = Code::new("import os; print(os.getpid(), flush=True)\nwhile True: pass");
    let mut execution = executor.stream(code.timeout(Duration::MAX).with_chunks());
    let CodeExecutionEvent::Chunk(chunk) = next(&mut execution).await else { panic!("no chunk") };
    let kernel: i32 = chunk.text.trim().parse().unwrap();
    drop(executor);
    let error = next_error(&mut execution).await;
    assert!(matches!(error, CodeExecutionError::Unavailable(_)), "{error}");
    eventually("the kernel is gone", || !is_running(kernel)).await;
}

#[tokio::test]
async fn code_that_pesters_times_out() {
    let place = Place::new();
    let executor =
        with_probe(&place).await.approval_timeout(Duration::from_millis(200)).start().await.unwrap();
    let code = "
from mcptools.probe import echo
asked = 0
while True:
    try:
        echo.run(text='x')
    except Exception:
        asked += 1";
    let mut execution = executor.stream(Code::new(code).timeout(Duration::from_secs(1)));
    // Nobody answers.
    let mut unanswered = Vec::new();
    let error = loop {
        match tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event").unwrap() {
            Ok(CodeExecutionEvent::ApprovalRequest(request)) => unanswered.push(request),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CodeExecutionError::TimedOut { .. }), "{error}");
    assert!(unanswered.len() < 100, "{}", unanswered.len());
    executor.stop().await;
}

#[tokio::test]
async fn a_server_is_registered_by_the_executor_too() {
    let place = Place::new();
    let executor = builder(&place).start().await.unwrap();
    assert_eq!(executor.working_dir(), place.workspace());
    let modules = executor.register_mcp_server("probe", &probe()).await.unwrap();
    assert!(modules.contains(&"echo".to_owned()));
    assert_eq!(executor.execute(ECHO).await.unwrap().text.as_deref(), Some("hi"));
    let error = executor.register_mcp_server("ipybox", &probe()).await.unwrap_err().to_string();
    assert!(error.contains("choose another"), "{error}");
    let python = executor.execute("import sys; print(sys.executable)").await.unwrap();
    assert_eq!(python.text.unwrap(), executor.python().await.unwrap().display().to_string());
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

#[tokio::test]
async fn images_and_variables_go_where_the_application_wants_them() {
    let place = Place::new();
    let images = place.temporary().join("pictures");
    let executor =
        builder(&place).images_dir(&images).kernel_env([("TEST_VAR", "value")]).start().await.unwrap();
    let code = "
import os, base64
from IPython.display import Image, display
display(Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')))
print(os.environ['TEST_VAR'], os.getcwd())";
    let result = executor.execute(code).await.unwrap();
    assert_eq!(result.text.unwrap(), format!("value {}", place.workspace().display()));
    assert!(result.images.len() == 1 && result.images[0].starts_with(&images) && result.images[0].exists());
    executor.stop().await;
}

#[tokio::test]
async fn a_kernel_alone_has_no_tools() {
    let place = Place::new();
    let _modules = with_probe(&place).await;
    let client = KernelClient::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .start()
        .await
        .unwrap();
    assert_eq!(client.execute("1 + 1").await.unwrap().text.as_deref(), Some("2"));
    let error = client.execute(ECHO).await.unwrap_err().to_string();
    assert!(error.contains("is not set: tools can only be called from code that ipybox runs"), "{error}");
    client.reset().await.unwrap();
    client.stop().await;
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let place = Place::new();
    let sandboxed = || builder(&place).sandbox(true);
    let error = sandboxed().gateway_program("/nowhere/ipybox").start().await.unwrap_err();
    assert!(matches!(error, StartError::Config(ConfigError::Gateway { .. })), "{error}");
    let error = sandboxed().sandbox_config("missing.json").start().await.unwrap_err();
    assert!(error.to_string().contains("missing.json"), "{error}");
    let error = builder(&place).python("/nowhere/python").start().await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/python"), "{error}");
    let error = builder(&place).tool_server_host("0.0.0.0").start().await.unwrap_err();
    assert!(matches!(error, StartError::ToolServer(_)), "{error}");
    let error = builder(&place).kernel_init_timeout(Duration::from_millis(1)).start().await.unwrap_err();
    assert!(error.to_string().contains("not ready after 0.001 seconds"), "{error}");
}

/// Futures and streams can be used from any task.
#[test]
fn everything_is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    fn check_value<T: Send + Sync>(_: &T) {}
    check::<CodeExecutor>();
    check::<CodeExecution>();
    check::<ApprovalRequest>();
    check::<CodeExecutionError>();
    check::<Registry>();
    fn futures(executor: &CodeExecutor) {
        check_value(&executor.execute("1"));
        check_value(&executor.reset());
        check_value(&executor.stop());
        check_value(&executor.install_package("x"));
        check_value(&CodeExecutor::start());
    }
    let _compiles = futures;
}
