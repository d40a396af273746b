//! Code in a kernel calls the tools of a real MCP server, and somebody on the terminal allows each call or does not.
//! Needs Python 3.10 or newer and a package index; keeps its files in `target/examples`.
//!
//! ```sh
//! cargo run --example quickstart
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::io::Write as _;
use std::path::Path;

use ipybox::{ApprovalRequest, CodeExecutionEvent, CodeExecutor};
use serde_json::json;

const CODE: &str = r#"
from ipybox_runtime import ApprovalRejectedError
from mcptools.time import convert_time

for city in ["Asia/Tokyo", "Asia/Kolkata", "Asia/Dubai"]:
    try:
        noon = convert_time.run(source_timezone="UTC", time="12:00", target_timezone=city)
        print("12:00 in UTC is", noon.target.datetime[11:16], "in", city)
    except ApprovalRejectedError:
        print("Nobody may know about", city)
"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/examples");
    let executor = CodeExecutor::builder()
        .working_dir(directory.join("workspace"))
        .state_dir(directory.join("state"))
        .start()
        .await?;

    // The server is a Python program: the kernel's interpreter can run it too.
    executor.install_package("mcp-server-time").await?;
    let server = json!({"command": executor.python().await?, "args": ["-m", "mcp_server_time"]});
    executor.register_mcp_server("time", &server).await?;

    let mut execution = executor.stream(CODE);
    while let Some(event) = execution.next().await {
        match event? {
            CodeExecutionEvent::ApprovalRequest(request) => {
                let is_in_time = if is_approved(&request)? { request.accept() } else { request.reject() };
                if !is_in_time {
                    println!("Too late: the call has failed.");
                }
            }
            CodeExecutionEvent::Result(result) => println!("{}", result.text.unwrap_or_default()),
            _ => {}
        }
    }
    executor.stop().await;
    Ok(())
}

/// Asks on the terminal. An empty line is a yes, the end of the input a no.
fn is_approved(request: &ApprovalRequest) -> anyhow::Result<bool> {
    print!("Tool call: {request}\nApprove? (Y/n): ");
    std::io::stdout().flush()?;
    // Blocking is fine here: the code waits for this very answer.
    let answer = std::io::stdin().lines().next().transpose()?;
    Ok(answer.is_some_and(|answer| ["", "y", "Y"].contains(&answer.trim())))
}
