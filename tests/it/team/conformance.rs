//! The official conformance suite for servers, as far as its scenarios need nothing of the suite's own server.

use std::process::Command;

use super::support::TeamPlace;
use crate::support::{repository, tool};

#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_that_apply_pass() {
    let place = TeamPlace::new("[users]\nmax_sessions = 64\nrequests_per_minute = 100000\n");
    let own = format!("allowed_origins = [\"http://127.0.0.1:{}\"]\n[login]", place.port);
    place.change("[login]", &own);
    let token = place.token("ann");
    let server = place.serve();
    let mut command = Command::new(tool("mcp1/bin/python"));
    command.arg(repository().join("tests/conformance/server.py"));
    command.arg("--suite").arg(tool("npm")).arg("--node").arg(tool("bin/node"));
    command.args(["--url", &format!("http://127.0.0.1:{}/mcp", place.port), "--token", &token]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    server.stop().await;
}
