//! A policy allows a call, denies another, and leaves a third to the application.
//! Needs Python 3.10 or newer and a package index; keeps its files in `target/examples`.
//!
//! ```sh
//! cargo run --example approval_policy
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::Path;

use ipybox::{ApprovalPolicy, CodeExecutionEvent, CodeExecutor};
use serde_json::json;

const POLICY: &str = r#"
default = "ask"

[[rule]]
tool = "convert_time"
arguments = [{ pointer = "/target_timezone", equals = "Asia/Tokyo" }]
effect = "allow"

[[rule]]
name = "nobody needs to know how late it is"
tool = "get_*"
effect = "deny"
"#;

const CODE: &str = r#"
from mcptools.time import convert_time, get_current_time

for city in ["Asia/Tokyo", "Asia/Dubai"]:
    noon = convert_time.run(source_timezone="UTC", time="12:00", target_timezone=city)
    print("12:00 in UTC is", noon.target.datetime[11:16], "in", city)
try:
    get_current_time.run(timezone="UTC")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/examples");
    let executor = CodeExecutor::builder()
        .working_dir(directory.join("workspace"))
        .state_dir(directory.join("state"))
        .approval_policy(ApprovalPolicy::parse(POLICY)?)
        .start()
        .await?;

    executor.install_package("mcp-server-time").await?;
    let server = json!({"command": executor.python().await?, "args": ["-m", "mcp_server_time"]});
    executor.register_mcp_server("time", &server).await?;

    let mut execution = executor.stream(CODE);
    while let Some(event) = execution.next().await {
        match event? {
            CodeExecutionEvent::ApprovalRequest(request) => {
                println!("The policy asks about {request}");
                request.accept();
            }
            CodeExecutionEvent::Result(result) => println!("{}", result.text.unwrap_or_default()),
            _ => {}
        }
    }
    executor.stop().await;
    Ok(())
}
