//! MCP servers that take longer to start than anybody waits for them: nothing is lost, nor left behind.

use std::time::Duration;

use ipybox::{CodeExecutor, ToolServer};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::standalone::runner;
use crate::support::{
    Ipybox, Place, descendants, eventually, is_running, kernel_python, probe, test_server, tool,
};

/// A server whose download ends when the test says so.
struct Slow(TempDir);

impl Slow {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn parameters(&self, timeout: f64) -> Value {
        let args = json!([test_server("slow.py"), self.0.path()]);
        json!({"command": tool("mcp1/bin/python"), "args": args, "timeout": timeout})
    }

    fn starts(&self) -> usize {
        std::fs::read_to_string(self.0.path().join("started")).unwrap_or_default().lines().count()
    }

    /// Whether its download is under way, or was killed.
    fn is_locked(&self) -> bool {
        self.0.path().join("lock").exists()
    }

    async fn started(&self) {
        eventually("the server starts", || self.starts() > 0).await;
    }

    fn set_ready(&self, is_ready: bool) {
        let file = self.0.path().join("ready");
        if is_ready { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
    }
}

const CALL: &str = "from mcptools.slow import add\nadd.run(a=1, b=2).total";

#[tokio::test]
async fn a_registration_that_takes_too_long_is_joined_by_the_next() {
    let (place, slow) = (Place::new(), Slow::new());
    let mut ipybox = place.ipybox().await;
    let error = ipybox.register("slow", slow.parameters(0.1)).await.error();
    assert!(error.contains("not ready after 0.1 s, and goes on to start in the background"), "{error}");
    assert!(error.contains("hint: do the same again"), "{error}");
    slow.started().await;
    slow.set_ready(true);
    let modules = ipybox.register("slow", slow.parameters(280.0)).await.ok();
    assert!(modules.contains("slow.add.run(a: int, b: int = 5)"), "{modules}");
    assert_eq!(slow.starts(), 1);
    assert_eq!(ipybox.cell(CALL).await.ok(), "3");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_registration_that_was_cancelled_goes_on() {
    let (place, slow) = (Place::new(), Slow::new());
    let mut ipybox = place.ipybox().await;
    let arguments = json!({"server_name": "slow", "server_params": slow.parameters(280.0)});
    let registering = ipybox.start_call("register_mcp_server", arguments).await;
    slow.started().await;
    ipybox.cancel(&registering).await;
    slow.set_ready(true);
    ipybox.register("slow", slow.parameters(280.0)).await.ok();
    assert_eq!(slow.starts(), 1);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_call_waits_as_long_as_a_registration_and_joins_the_start_too() {
    let (place, slow) = (Place::new(), Slow::new());
    let mut ipybox = place.ipybox_with(&["--connect-timeout", "0.1"]).await;
    slow.set_ready(true);
    ipybox.register("slow", slow.parameters(280.0)).await.ok();
    ipybox.reset().await;
    slow.set_ready(false);
    let mut impatient = slow.parameters(280.0);
    impatient.as_object_mut().unwrap().remove("timeout");
    // The flag's limit holds for both.
    let error = ipybox.register("slow", impatient).await.error();
    assert!(error.contains("not ready after 0.1 s"), "{error}");
    let call = ipybox.start_cell(CALL).await;
    eventually("the server starts again", || slow.starts() == 2).await;
    slow.set_ready(true);
    assert_eq!(call.answer().await.ok(), "3");
    assert_eq!(slow.starts(), 2);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_registration_reports_all_the_time_what_it_waits_for() {
    let (place, slow) = (Place::new(), Slow::new());
    let mut ipybox = place.ipybox().await;
    let arguments = json!({"server_name": "slow", "server_params": slow.parameters(280.0)});
    let call =
        json!({"name": "register_mcp_server", "arguments": arguments, "_meta": {"progressToken": "token"}});
    let registering = ipybox.request("tools/call", call).await;
    let count = |ipybox: &Ipybox, words: &str| {
        ipybox.progress().iter().filter(|message| message.contains(words)).count()
    };
    eventually("the server's words are reported", || count(&ipybox, "MCP server `slow`: downloading") > 0)
        .await;
    eventually("it is reported again that it goes on", || count(&ipybox, "still running after") > 1).await;
    slow.set_ready(true);
    registering.answer().await.ok();
    ipybox.stop().await;
}

#[tokio::test]
async fn what_still_starts_ends_with_the_session_and_cleans_up() {
    let (place, slow) = (Place::new(), Slow::new());
    let mut ipybox = place.ipybox().await;
    ipybox.register("slow", slow.parameters(0.1)).await.error();
    slow.started().await;
    let processes = descendants(ipybox.id());
    ipybox.stop().await;
    // ipybox does not wait for it, but lets it.
    eventually("all processes end", || !processes.iter().any(|&id| is_running(id))).await;
    assert!(!slow.is_locked(), "it was killed");
}

#[tokio::test]
async fn what_still_starts_cleans_up_even_if_ipybox_is_killed() {
    let (place, slow) = (Place::new(), Slow::new());
    let mut ipybox = place.ipybox().await;
    ipybox.register("slow", slow.parameters(0.1)).await.error();
    slow.started().await;
    let processes = descendants(ipybox.id());
    ipybox.signal(Signal::SIGKILL);
    ipybox.ended().await;
    eventually("all processes end", || !processes.iter().any(|&id| is_running(id))).await;
    assert!(!slow.is_locked(), "it was killed");
}

#[tokio::test]
async fn a_reset_ends_what_still_starts() {
    let (place, slow) = (Place::new(), Slow::new());
    let mut ipybox = place.ipybox().await;
    ipybox.register("slow", slow.parameters(0.1)).await.error();
    slow.started().await;
    ipybox.reset().await;
    eventually("it has cleaned up", || !slow.is_locked()).await;
    slow.set_ready(true);
    ipybox.register("slow", slow.parameters(280.0)).await.ok();
    assert_eq!(slow.starts(), 2);
    ipybox.stop().await;
}

#[tokio::test]
async fn an_application_joins_a_start_too() {
    let (place, slow) = (Place::new(), Slow::new());
    let executor = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .connect_timeout(Duration::from_millis(100));
    let executor = executor.start().await.unwrap();
    let mut server = slow.parameters(0.0);
    server.as_object_mut().unwrap().remove("timeout");
    let error = executor.register_mcp_server("slow", &server).await.unwrap_err().to_string();
    assert!(error.contains("goes on to start in the background"), "{error}");
    slow.started().await;
    slow.set_ready(true);
    executor.register_mcp_server("slow", &slow.parameters(280.0)).await.unwrap();
    assert_eq!(slow.starts(), 1);
    executor.stop().await;
}

#[tokio::test]
async fn without_a_session_what_is_not_ready_in_time_ends_and_cleans_up() {
    let (place, slow) = (Place::new(), Slow::new());
    let root = place.temporary().join("root");
    let generating = |timeout| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.args(["apigen", "--server-name", "slow", "--root-dir"]).arg(&root);
        command.args(["--server-params", &slow.parameters(timeout).to_string()]).output()
    };
    // The server has begun by then, on any machine that runs Python within 10 seconds.
    let output = generating(10.0).await.unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("within 10 s"), "{message}");
    assert_eq!(slow.starts(), 1);
    eventually("it has cleaned up", || !slow.is_locked()).await;
    slow.set_ready(true);
    assert!(generating(280.0).await.unwrap().status.success());
}

#[tokio::test]
async fn a_tool_server_ends_the_start_of_what_is_replaced() {
    let slow = Slow::new();
    let server = ToolServer::builder().port(0).start().await.unwrap();
    let runner = runner(&server, "slow");
    runner.register(&slow.parameters(0.1)).await.unwrap();
    let error = runner.run("add", &json!({"a": 1, "b": 2})).await.unwrap_err().to_string();
    assert!(error.contains("goes on to start in the background"), "{error}");
    slow.started().await;
    runner.register(&json!({"mcpServers": {"slow": probe()}})).await.unwrap();
    eventually("the start has ended, and cleaned up", || !slow.is_locked()).await;
    runner.run("add", &json!({"a": 1, "b": 2})).await.unwrap();
    server.stop().await;
}
