//! The library as an application uses it: executors and kernels without tools, how they start, run code and end.

use std::time::Duration;

use ipybox::{
    ApprovalRequest, AuditSettings, Code, CodeExecution, CodeExecutionError, CodeExecutionEvent,
    CodeExecutor, ConfigError, KernelClient, Registry, StartError, describe,
};

use super::session::{ECHO, builder, next, next_error, with_probe};
use crate::support::{Place, eventually, is_running, kernel_python, probe, test_server};

#[tokio::test]
async fn servers_of_a_configuration_file_are_there_for_the_first_code() {
    let place = Place::new();
    let args = serde_json::json!([test_server("catalog.py"), "hub", "2", "--secret", "HUB_TOKEN"]);
    let hub = serde_json::json!({"command": "python3", "args": args, "env": {"HUB_TOKEN": "t1t2t3t4"}});
    place.write("servers.json", &serde_json::json!({"mcpServers": {"hub": hub}}).to_string());
    let file = place.workspace().join("servers.json");
    let executor = builder(&place).registry(&Registry::new()).mcp_config(file).start().await.unwrap();
    let code = "from mcptools.hub import hub_1\nprint(hub_1.run(query='a'))";
    let result = executor.execute(code).await.unwrap();
    assert_eq!(result.text.as_deref(), Some("hub_1: a, secret of 8"));
    assert!(result.notes[0].contains("`hub` (2 tools)"), "{:?}", result.notes);
    executor.stop().await;
    let missing = builder(&place).mcp_config("/nowhere/servers.json").start().await.unwrap_err();
    assert!(missing.to_string().contains("/nowhere/servers.json"), "{missing}");
}

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
        [
            "session_started",
            "cell_started",
            "decision",
            "call_ended",
            "cell_ended",
            "cell_started",
            "cell_ended",
            "session_ended"
        ],
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
    let error = sandboxed().sandbox_install_domains(["https://example.com/x"]).start().await.unwrap_err();
    assert!(matches!(error, StartError::Config(ConfigError::InstallDomain { .. })), "{error}");
    assert!(describe(&error).contains("write the host alone, like `example.com`"), "{error}");
    let error = builder(&place).python("/nowhere/python").start().await.unwrap_err();
    assert!(matches!(error, StartError::Environment(_)), "{error}");
    assert!(describe(&error).contains("/nowhere/python"), "{error}");
    let error = builder(&place).tool_server_host("0.0.0.0").start().await.unwrap_err();
    assert!(matches!(error, StartError::ToolServer(_)), "{error}");
    let error = builder(&place).kernel_init_timeout(Duration::from_millis(1)).start().await.unwrap_err();
    assert!(matches!(error, StartError::Kernel(_)), "{error}");
    assert!(describe(&error).contains("not ready after 0.001 seconds"), "{error}");
}

#[tokio::test]
async fn a_start_that_fails_completes_the_audit_log() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let mut settings = AuditSettings::default();
    settings.file = Some(log.clone());
    with_probe(&place).await.audit(settings).python("/nowhere/python").start().await.unwrap_err();
    let log = std::fs::read_to_string(&log).unwrap();
    let events: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["event"], "session_ended", "{log}");
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
