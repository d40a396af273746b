//! Sessions that outlive their clients, sessions beside each other, and cells for which no request waits.

mod attach;
mod conversations;
mod faults;
mod handles;
mod long_cells;
mod takeover;
mod tasks;

use std::ops::Deref;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, environment, eventually, kernel_python};

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
        let mut client = self.started(flags, &[]).await;
        client.initialize_with(capabilities).await;
        client
    }

    /// A client that names the conversation as Claude Code does.
    async fn client_of(&self, conversation: &str) -> Ipybox {
        let mut client = self.started(&[], &[("CLAUDE_CODE_SESSION_ID", conversation)]).await;
        client.initialize().await;
        client
    }

    async fn started(&self, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
        let python = kernel_python();
        let python = python.to_str().unwrap();
        let keep = ["--keep-session", "120s"];
        let keep = if flags.contains(&keep[0]) { &[][..] } else { &keep };
        self.0.start_with(&[keep, &["--python", python], flags].concat(), variables).await
    }

    /// Waits until no session has a client.
    async fn all_left(&self) {
        self.all_left_but(0).await;
    }

    /// Waits until only so many sessions have a client.
    async fn all_left_but(&self, attended: usize) {
        let has_client = |session: &&Value| session["is_attended"] == true;
        eventually("the sessions are left", || self.sessions().iter().filter(has_client).count() == attended)
            .await;
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
        let mut left = None;
        eventually("the session is left", || {
            left = self.sessions().into_iter().next().filter(|session| session["is_attended"] == false);
            left.is_some()
        })
        .await;
        assert_eq!(self.sessions().len(), 1, "{:?}", self.sessions());
        left.unwrap()
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

#[tokio::test]
async fn a_kept_session_shows_its_limits_and_what_is_used_of_them() {
    let kept = Kept::new();
    let mut client = kept.client(&["--limit-disk", "64M"]).await;
    assert_eq!(client.cell("1 + 1").await.ok(), "2");
    let sessions = kept.sessions();
    let limit = &sessions[0]["limits"][0];
    assert_eq!((limit["name"].as_str(), limit["limit"].as_u64()), (Some("disk"), Some(64 << 20)));
    assert!(limit["used"].is_u64() && limit["is_whole"] == true, "{limit}");
    let shown = kept.run(&["show", sessions[0]["id"].as_str().unwrap()]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("Limit      ") && shown.contains(" MB of 67 MB of disk\n"), "{shown}");
    client.stop().await;
}

/// Kills a client as a client kills its server, and waits until it has ended.
async fn kill(mut client: Ipybox) {
    client.signal(nix::sys::signal::Signal::SIGKILL);
    client.ended().await;
}
