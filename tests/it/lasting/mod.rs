//! Sessions that outlive their clients, sessions beside each other, and cells for which no request waits.

mod attach;
mod faults;
mod handles;
mod long_cells;
mod takeover;
mod tasks;

use std::ops::Deref;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, environment, kernel_python};

/// A place whose sessions are kept for a while, and ended with it.
struct Kept(Place);

impl Deref for Kept {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Kept {
    fn new() -> Self {
        Self(Place::new())
    }

    /// A client, with further flags.
    async fn client(&self, flags: &[&str]) -> Ipybox {
        self.client_with(flags, json!({})).await
    }

    /// A client with these capabilities.
    async fn client_with(&self, flags: &[&str], capabilities: Value) -> Ipybox {
        let python = kernel_python();
        let python = python.to_str().unwrap();
        let keep = ["--keep-session", "120s"];
        let keep = if flags.contains(&keep[0]) { &[][..] } else { &keep };
        let mut client = self.0.start(&[keep, &["--python", python], flags].concat()).await;
        client.initialize_with(capabilities).await;
        client
    }

    /// Runs `ipybox sessions`.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ipybox"))
            .arg("sessions")
            .args(arguments)
            .arg("--state-dir")
            .arg(self.states())
            .env_clear()
            .envs(environment())
            .output()
            .unwrap()
    }

    /// The sessions that live.
    fn sessions(&self) -> Vec<Value> {
        let output = self.run(&["--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The session that lives, once it has no client.
    async fn left_session(&self) -> Value {
        for _ in 0..2_000 {
            if let [session] = self.sessions().as_slice()
                && session["is_attended"] == false
            {
                return session.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no session was left: {:?}", self.sessions());
    }

    /// The process that holds the one session.
    fn keeper(&self) -> i32 {
        let sessions = self.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        sessions[0]["process"].as_i64().unwrap().try_into().unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for session in self.sessions() {
            self.run(&["end", session["id"].as_str().unwrap()]);
        }
    }
}

/// Kills a client as a client kills its server, and waits until it has ended.
async fn kill(mut client: Ipybox) {
    client.signal(nix::sys::signal::Signal::SIGKILL);
    client.ended().await;
}
