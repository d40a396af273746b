//! Servers that are not ready when nobody waits for them any more.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A server that is ready when its file is there, and how often it was started.
struct Slow {
    place: TempDir,
    connector: Connector,
}

impl Slow {
    fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap(), connector: connector(Path::new("/")) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn parameters(&self, timeout: f64) -> ServerParameters {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/connections/mcp_client/tests/fake_server.py");
        let args = json!([script, "waiting", self.file("started"), self.file("ready")]);
        parameters(json!({"command": "python3", "args": args, "timeout": timeout}))
    }

    async fn try_for(&self, timeout: f64) -> Result<Connection, Error> {
        self.connector.connect("slow", &self.parameters(timeout)).await
    }

    /// How often it was started, once it was.
    async fn starts(&self) -> usize {
        let deadline = Instant::now() + SOON;
        loop {
            let started = std::fs::read_to_string(self.file("started")).unwrap_or_default();
            if !started.is_empty() {
                return started.lines().count();
            }
            assert!(Instant::now() < deadline, "it was not started");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Has it start, and waits no longer than until it does.
    async fn give_up(&self) -> String {
        tokio::select! {
            _ = self.try_for(60.0) => panic!("it was ready"),
            _ = self.starts() => {}
        }
        self.try_for(0.1).await.err().unwrap().to_string()
    }

    fn make_ready(&self, problem: &str) {
        std::fs::write(self.file("new"), problem).unwrap();
        std::fs::rename(self.file("new"), self.file("ready")).unwrap();
    }
}

#[tokio::test]
async fn a_server_that_is_not_ready_in_time_goes_on_to_start_and_the_next_attempt_joins_it() {
    let slow = Slow::new();
    let message = slow.give_up().await;
    assert!(message.contains("not ready after 0.1 s, and goes on to start in the background"), "{message}");
    slow.make_ready("");
    let connection = slow.try_for(60.0).await.unwrap();
    assert_eq!(text(&connection, "echo", json!({"text": "hi"})).await, "hi");
    assert_eq!(slow.starts().await, 1);
    // Whoever comes later gets one of their own.
    let other = slow.try_for(60.0).await.unwrap();
    assert_eq!(slow.starts().await, 2);
    drop((connection, other));
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_any_more_goes_on() {
    let slow = Slow::new();
    tokio::select! {
        _ = slow.try_for(60.0) => panic!("it was ready"),
        _ = slow.starts() => {}
    }
    slow.make_ready("");
    slow.try_for(60.0).await.unwrap();
    assert_eq!(slow.starts().await, 1);
}

#[tokio::test]
async fn the_failure_of_a_start_that_was_to_go_on_is_reported_once() {
    let slow = Slow::new();
    slow.give_up().await;
    slow.make_ready("broken");
    let message = slow.try_for(60.0).await.err().unwrap().to_string();
    assert!(message.contains("the download is broken") && message.contains("exit status: 1"), "{message}");
    slow.make_ready("");
    slow.try_for(60.0).await.unwrap();
    assert_eq!(slow.starts().await, 2);
}

#[tokio::test]
async fn two_who_wait_for_the_same_server_get_one_each() {
    let slow = Slow::new();
    let ready = async {
        slow.starts().await;
        slow.make_ready("");
    };
    let (first, second, ()) = tokio::join!(slow.try_for(60.0), slow.try_for(60.0), ready);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.is_alive() && second.is_alive());
}

#[tokio::test]
async fn a_connection_that_nobody_took_is_closed_with_the_starts() {
    let slow = Slow::new();
    slow.give_up().await;
    slow.make_ready("");
    slow.connector.end_starts();
    slow.connector.starts_ended().await;
    slow.try_for(60.0).await.unwrap();
    assert_eq!(slow.starts().await, 2);
}

#[tokio::test]
async fn a_reset_ends_the_wait_for_a_start() {
    let slow = Slow::new();
    let ending = async {
        slow.starts().await;
        slow.connector.end_starts();
    };
    let (ended, ()) = tokio::join!(slow.try_for(60.0), ending);
    assert!(matches!(ended, Err(Error::StartEnded)), "{:?}", ended.err());
    slow.connector.starts_ended().await;
    assert_eq!(slow.starts().await, 1);
}

#[tokio::test]
async fn a_registration_ends_what_else_starts_under_its_name() {
    let slow = Slow::new();
    slow.give_up().await;
    slow.connector.end_other_starts("slow", &slow.parameters(1.0));
    slow.connector.end_other_starts("other", &fake("ok"));
    slow.make_ready("");
    slow.try_for(60.0).await.unwrap();
    assert_eq!(slow.starts().await, 1);
    slow.connector.end_other_starts("slow", &fake("ok"));
    slow.connector.starts_ended().await;
}

#[tokio::test]
async fn an_installer_whose_start_is_ended_may_clean_up() {
    let place = tempfile::tempdir().unwrap();
    let begun = place.path().join("begun");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/connections/mcp_client/tests/fake_server.py");
    let server = parameters(json!({"command": "python3", "args": [script, "installing", begun]}));
    let connector = connector(Path::new("/"));
    let wait_until_begun = async {
        let deadline = Instant::now() + SOON;
        while !begun.exists() {
            assert!(Instant::now() < deadline, "it was not started");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        _ = connector.connect("slow", &server) => panic!("it was ready"),
        () = wait_until_begun => {}
    }
    connector.end_starts();
    let deadline = Instant::now() + SOON;
    while begun.exists() {
        assert!(Instant::now() < deadline, "it was killed while it cleaned up");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn without_a_session_a_server_that_is_not_ready_in_time_ends() {
    let slow = Slow::new();
    slow.give_up().await;
    let connector = slow.connector.clone().in_foreground();
    let message = connector.connect("slow", &slow.parameters(0.1)).await.err().unwrap().to_string();
    assert!(
        message.contains("did not answer `initialize` within 0.1 s") && message.contains("`timeout`"),
        "{message}"
    );
    slow.make_ready("");
    slow.try_for(60.0).await.unwrap();
    assert_eq!(slow.starts().await, 2);
}
