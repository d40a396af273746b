//! Output as it is produced, code that is cancelled, and code that takes too long.
//! Needs Python 3.10 or newer and a package index; keeps its files in `target/examples`.
//!
//! ```sh
//! cargo run --example streaming
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::Path;
use std::time::Duration;

use ipybox::{Code, CodeExecutionError, CodeExecutionEvent, CodeExecutor};

const SLOW: &str = "
import time
for step in [1, 2, 3]:
    print('step', step)
    time.sleep(0.5)
'done'";

const ENDLESS: &str = "
count = 0
while True:
    count += 1
    print('for ever')
    time.sleep(60)";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/examples");
    let executor = CodeExecutor::builder()
        .working_dir(directory.join("workspace"))
        .state_dir(directory.join("state"))
        .start()
        .await?;

    let mut execution = executor.stream(Code::new(SLOW).with_chunks());
    while let Some(event) = execution.next().await {
        match event? {
            CodeExecutionEvent::Chunk(chunk) => print!("{}", chunk.text),
            CodeExecutionEvent::Result(result) => {
                println!("\nin all {} characters", result.text.unwrap_or_default().len());
            }
            _ => {}
        }
    }

    let mut execution = executor.stream(Code::new(ENDLESS).with_chunks());
    while let Some(event) = execution.next().await {
        match event {
            // It has begun, and that is enough.
            Ok(CodeExecutionEvent::Chunk(_)) => executor.cancel(),
            Err(CodeExecutionError::Cancelled { kernel, .. }) => println!("cancelled; variables: {kernel:?}"),
            other => drop(other?),
        }
    }

    let code = Code::new("time.sleep(60)").timeout(Duration::from_secs(1));
    match executor.execute(code).await {
        Err(CodeExecutionError::TimedOut { after, kernel, .. }) => {
            println!("timed out after {after:?}; variables: {kernel:?}");
        }
        other => drop(other?),
    }

    let count = executor.execute("count").await?;
    println!("the loop was entered {} time", count.text.unwrap_or_default());
    executor.stop().await;
    Ok(())
}
