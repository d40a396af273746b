//! Executors for the tests of the library, and the events of their streams.

use ipybox::{
    ApprovalRequest, CodeExecution, CodeExecutionError, CodeExecutionEvent, CodeExecutionResult,
    CodeExecutor, CodeExecutorBuilder, Registry, generate_mcp_sources,
};

use crate::support::{PATIENCE, Place, kernel_python, probe};

pub(super) fn builder(place: &Place) -> CodeExecutorBuilder {
    CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .approval_timeout(PATIENCE)
}

/// A builder that knows the server `probe`.
pub(super) async fn with_probe(place: &Place) -> CodeExecutorBuilder {
    let registry = Registry::new();
    let modules =
        generate_mcp_sources(&registry, "probe", &probe(), place.workspace().join("mcptools")).await;
    assert!(modules.unwrap().contains(&"echo".to_owned()));
    builder(place).registry(&registry)
}

pub(super) async fn next(execution: &mut CodeExecution) -> CodeExecutionEvent {
    let event = tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event");
    event.expect("the stream has not ended").expect("no error")
}

pub(super) async fn next_request(execution: &mut CodeExecution) -> ApprovalRequest {
    match next(execution).await {
        CodeExecutionEvent::ApprovalRequest(request) => request,
        other => panic!("expected an approval request, not {other:?}"),
    }
}

pub(super) async fn next_result(execution: &mut CodeExecution) -> CodeExecutionResult {
    match next(execution).await {
        CodeExecutionEvent::Result(result) => result,
        other => panic!("expected the result, not {other:?}"),
    }
}

pub(super) async fn next_error(execution: &mut CodeExecution) -> CodeExecutionError {
    let event = tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event");
    let error = event.expect("the stream has not ended").expect_err("an error");
    assert!(execution.next().await.is_none(), "the error ends the stream");
    error
}

pub(super) const ECHO: &str = "from mcptools.probe import echo\nprint(echo.run(echo.Params(text='hi')))";
