//! Recordings of applications.

use ipybox::{CodeExecutor, ReplayError, ReplayOptions, describe, replay, replay_until};
use serde_json::json;

use crate::support::{Place, kernel_python, probe};

#[tokio::test]
async fn an_application_records_a_session_and_plays_its_server_in_another_one() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let builder = || {
        let builder = CodeExecutor::builder().working_dir(place.workspace()).state_dir(place.states());
        builder.python(kernel_python()).seed(7)
    };
    let code = "import random\nfrom mcptools.probe import echo\nprint(echo.run(text=str(random.random())))";
    let executor = builder().record(&file).start().await.unwrap();
    executor.register_mcp_server("probe", &probe()).await.unwrap();
    let recorded = executor.execute(code).await.unwrap().text;
    executor.stop().await;

    let executor = builder().start().await.unwrap();
    let played = json!({"command": env!("CARGO_BIN_EXE_ipybox"), "args": ["play", file]});
    executor.register_mcp_server("probe", &played).await.unwrap();
    assert_eq!(executor.execute(code).await.unwrap().text, recorded, "the seed is the same");
    executor.stop().await;

    let options = || {
        let mut options = ReplayOptions::new(&file);
        options.workspace = place.workspace();
        options.state_dir = Some(place.states());
        options.python = Some(kernel_python());
        options
    };
    let report = replay(options()).await.unwrap();
    assert!(report.is_same() && report.cells.len() == 1, "{}", report.text());
    let ended = replay_until(options(), std::future::ready(())).await;
    assert!(matches!(ended, Err(ReplayError::Ended)));

    let exists = builder().record(&file).start().await.unwrap_err();
    assert!(describe(&exists).contains("it exists"), "{exists}");
}
