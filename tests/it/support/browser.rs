//! Headless Chromium, driven by a program for Node.js.

use std::ffi::OsStr;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::{PATIENCE, environment, repository, tool};

/// A real browser.
pub(crate) struct Browser {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// What takes screenshots in the program.
    photographer: &'static str,
}

impl Browser {
    /// The browser of this program, which runs what each line of its input has.
    pub(crate) fn run_by(script: &str, photographer: &'static str, arguments: &[&OsStr]) -> Self {
        let mut child = Command::new(tool("bin/node"))
            .arg(repository().join(script))
            .arg(tool("npm"))
            .args(arguments)
            .env_clear()
            .envs(environment())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { _child: child, input, output, photographer }
    }

    /// Runs the body of a function, and returns its result.
    pub(crate) async fn run(&mut self, body: &str) -> Value {
        let line = format!("{}\n", json!({"do": body}));
        self.input.write_all(line.as_bytes()).await.unwrap();
        let answer = timeout(PATIENCE, self.output.next_line()).await.expect("the browser does not answer");
        let answer: Value = serde_json::from_str(&answer.unwrap().expect("the browser has ended")).unwrap();
        assert!(answer.get("error").is_none(), "{body}\n{}", answer["error"].as_str().unwrap_or_default());
        answer["ok"].clone()
    }

    /// A screenshot, if `IPYBOX_SCREENSHOTS` names a directory for them.
    pub(crate) async fn screenshot(&mut self, name: &str) {
        if let Some(directory) = std::env::var_os("IPYBOX_SCREENSHOTS") {
            let path = std::path::Path::new(&directory).join(format!("{name}.png"));
            let (path, photographer) = (path.to_str().unwrap(), self.photographer);
            self.run(&format!("await {photographer}.screenshot({{path: {path:?}}});")).await;
        }
    }
}
