//! Code in a sandbox: it works in its workspace, and can do nothing else. Needs Python 3.10 or newer, a package index, and
//! sandbox-runtime (`srt`) or bubblewrap (`bwrap`); `ipybox doctor` says what is missing.
//!
//! ```sh
//! cargo build
//! cargo run --example sandbox
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::path::Path;

use ipybox::{CodeExecutor, SandboxBackend};

const CODE: &str = r#"
import urllib.request
from pathlib import Path

def write(path):
    Path(path).write_text("from the sandbox")

def fetch(url):
    urllib.request.urlopen(url, timeout=5)

for what, action, target in [
    ("write to the workspace", write, "notes.txt"),
    ("write to the home directory", write, Path.home() / "notes.txt"),
    ("change what the host imports", write, "mcptools/notes.py"),
    ("reach the network", fetch, "https://example.com"),
]:
    try:
        action(target)
        print("can", what)
    except OSError:
        print("cannot", what)
"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/examples");
    let has_srt =
        std::env::var("PATH")?.split(':').any(|directory| Path::new(directory).join("srt").exists());
    let executor = CodeExecutor::builder()
        .working_dir(directory.join("workspace"))
        .state_dir(directory.join("state"))
        .sandbox_backend(if has_srt { SandboxBackend::Srt } else { SandboxBackend::Bubblewrap })
        // The program of this package; an application names the `ipybox` that it comes with, or has it on PATH.
        .gateway_program(std::env::current_exe()?.with_file_name("../ipybox"))
        .start()
        .await?;
    let result = executor.execute(CODE).await?;
    println!("{}", result.text.unwrap_or_default());
    executor.stop().await;
    Ok(())
}
