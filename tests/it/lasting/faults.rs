//! Parts of a lasting session that are killed, or in the way.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

use super::{Kept, kill};
use crate::support::{copy_program, descendants, eventually, is_running, kernel_python};

#[tokio::test]
async fn a_keeper_that_is_killed_leaves_nothing() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("import subprocess\nchild = subprocess.Popen(['sleep', '600'])").await.ok();
    let keeper = kept.keeper();
    let family = descendants(keeper);
    assert!(family.len() >= 2, "{family:?}");
    let running = client.start_cell("while True: pass").await;
    send(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    assert_eq!(running.response().await, None);
    assert_eq!(client.ended().await.code(), Some(1));
    assert!(client.log().contains("has ended"), "{}", client.log());
    for id in family {
        eventually("what it has started is gone", || !is_running(id)).await;
    }
    assert!(kept.sessions().is_empty());
    let mut client = kept.client(&[]).await;
    let text = client.cell("1").await.ok();
    assert!(text.contains("has ended, because its process was killed") && text.ends_with("\n1"), "{text}");
    assert_eq!(std::fs::read_dir(kept.states().join("sessions")).unwrap().count(), 1);
    client.stop().await;
}

#[tokio::test]
async fn a_stderr_that_is_not_read_stops_no_session() {
    let kept = Kept::new();
    let fifo = kept.temporary().join("unread");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let launcher = ["sh", "-c", "exec \"$@\" 2<>\"$0\"", fifo.to_str().unwrap()];
    let python = kernel_python();
    let flags = ["--keep-session", "120s", "--python", python.to_str().unwrap()];
    let mut client = kept.start_by(&launcher, &flags, &[]).await;
    client.initialize().await;
    // Each is logged, which is more than a pipe holds.
    for _ in 0..1_000 {
        client.send_line(r#"{"id": "no version", "method": "ping"}"#).await;
    }
    assert_eq!(client.cell("1 + 1").await.ok(), "2");
    let log = kept.sessions()[0]["log"].as_str().unwrap().to_owned();
    eventually("the log is long", || std::fs::metadata(&log).is_ok_and(|log| log.len() > 100_000)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(client.cell("2 + 2").await.ok(), "4");
    send(Pid::from_raw(kept.keeper()), Signal::SIGKILL).unwrap();
    assert_eq!(client.ended().await.code(), Some(1));
}

#[tokio::test]
async fn the_death_of_a_kernel_while_nobody_is_there_is_reported() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    let kernel: i32 = client.cell("import os\nx = 1\nprint(os.getpid())").await.ok().parse().unwrap();
    kill(client).await;
    kept.left_session().await;
    send(Pid::from_raw(kernel), Signal::SIGKILL).unwrap();
    let mut client = kept.client(&[]).await;
    let text = client.cell("1").await.ok();
    assert!(text.contains("[This session was taken over") && text.contains("SIGKILL"), "{text}");
    assert!(text.contains("The session has no variables.") && text.ends_with("\n1"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn what_is_left_of_others_is_in_nobodys_way() {
    let kept = Kept::new();
    let sessions = kept.states().join("sessions");
    // A stale socket, a socket that answers nothing, a description that is none.
    for name in ["stale", "dumb", "wrong"] {
        std::fs::create_dir_all(sessions.join(name)).unwrap();
        std::fs::write(sessions.join(name).join("session.json"), "{\"workspace\": 5}").unwrap();
    }
    drop(UnixListener::bind(sessions.join("stale/socket")).unwrap());
    let _dumb = UnixListener::bind(sessions.join("dumb/socket")).unwrap();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    kill(client).await;
    kept.left_session().await;

    // A keeper that does not answer any more.
    let keeper = kept.keeper();
    send(Pid::from_raw(keeper), Signal::SIGSTOP).unwrap();
    let mut client = kept.client(&[]).await;
    let text = client.cell("x").await.error();
    assert!(text.contains("NameError") && text.contains("does not answer, and was not taken over"), "{text}");
    send(Pid::from_raw(keeper), Signal::SIGCONT).unwrap();
    client.stop().await;
    assert!(is_running(keeper));
}

#[tokio::test]
async fn another_program_never_speaks_to_an_older_session() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    client.stop().await;
    let session = kept.left_session().await;
    let newer = kept.temporary().join("ipybox");
    copy_program(env!("CARGO_BIN_EXE_ipybox"), &newer);
    let python = crate::support::kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--keep-session", "120s"];
    let launcher = ["sh", "-c", "shift; exec \"$0\" \"$@\"", newer.to_str().unwrap()];
    let mut client = kept.start_by(&launcher, &flags, &[]).await;
    client.initialize().await;
    let text = client.cell("x").await.error();
    assert!(text.contains("begun with another version of ipybox is kept"), "{text}");
    assert!(text.contains(session["id"].as_str().unwrap()) && text.contains("NameError"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn a_keeper_that_is_asked_to_end_says_so_and_one_that_does_not_answer_can_be_ended() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    client.stop().await;
    kept.left_session().await;
    let keeper = kept.keeper();
    send(Pid::from_raw(keeper), Signal::SIGTERM).unwrap();
    eventually("it ends", || !is_running(keeper)).await;
    let mut client = kept.client(&[]).await;
    let text = client.cell("1").await.ok();
    assert!(text.contains("because its process was asked to end"), "{text}");
    client.stop().await;
    let session = kept.left_session().await;
    let keeper = kept.keeper();
    let family = descendants(keeper);
    send(Pid::from_raw(keeper), Signal::SIGSTOP).unwrap();
    let [listed] = kept.sessions().try_into().unwrap();
    assert_eq!((&listed["answers"], &listed["id"]), (&false.into(), &session["id"]));
    assert!(kept.run(&["end", session["id"].as_str().unwrap()]).status.success());
    for id in family.into_iter().chain([keeper]) {
        eventually("all of it has ended", || !is_running(id)).await;
    }
    assert!(kept.sessions().is_empty());
}

#[tokio::test]
async fn the_next_start_ends_a_session_that_should_have_ended_and_does_not_answer() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    client.stop().await;
    let left = kept.left_session().await;
    let (keeper, id) = (kept.keeper(), left["id"].as_str().unwrap());
    let family = descendants(keeper);
    send(Pid::from_raw(keeper), Signal::SIGSTOP).unwrap();
    let file = kept.states().join("sessions").join(id).join("session.json");
    let mut description: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    description["alone_since"] = 1.into();
    std::fs::write(&file, description.to_string()).unwrap();
    // One that could not take it over.
    let other = kept.client(&["--kernel-memory-limit", "2048M"]).await;
    for process in family.into_iter().chain([keeper]) {
        eventually("it is gone", || !is_running(process)).await;
    }
    eventually("the reason is written", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("did not end by itself"))
    })
    .await;
    other.stop().await;
    let mut client = kept.client(&[]).await;
    let text = client.cell("1").await.ok();
    assert!(
        text.contains("has ended, because no client took it over, and it did not end by itself"),
        "{text}"
    );
    client.stop().await;
}

#[tokio::test]
async fn a_session_with_thousands_of_variables_is_taken_over() {
    let kept = Kept::new();
    let names: Vec<String> =
        (0..5_000).map(|number| format!("SERVICE_{number}_PORT_8080_TCP_ADDR")).collect();
    let variables: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "10.0.0.1")).collect();
    let python = crate::support::kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--keep-session", "120s"];
    for (code, answer) in [("x = 1\nx", "1"), ("x + 1", "2")] {
        let mut client = kept.start_with(&flags, &variables).await;
        client.initialize().await;
        let text = client.cell(code).await.ok();
        assert!(text.lines().last() == Some(answer), "{text}");
        client.stop().await;
        kept.left_session().await;
    }
}

#[tokio::test]
async fn an_error_at_the_start_is_shown() {
    let kept = Kept::new();
    let mut client = kept.start(&["--keep-session", "60", "--approval-policy", "missing.toml"]).await;
    assert_eq!(client.ended().await.code(), Some(1));
    assert!(client.log().contains("missing.toml"), "{}", client.log());
    assert!(kept.sessions().is_empty());
    assert_eq!(std::fs::read_dir(kept.states().join("sessions")).unwrap().count(), 0);
}

#[tokio::test]
async fn more_than_may_be_kept_end_the_oldest() {
    let kept = Kept::new();
    // Each is another session, since its flags differ.
    for number in 0..9 {
        let limit = format!("{}M", 2048 + number);
        let mut client = kept.client(&["--kernel-memory-limit", &limit]).await;
        client.cell("x = 1").await.ok();
        client.stop().await;
        eventually("it is left", || kept.sessions().iter().all(|session| session["is_attended"] == false))
            .await;
    }
    eventually("the oldest ends", || kept.sessions().len() == 8).await;
    let mut client = kept.client(&["--kernel-memory-limit", "2048M"]).await;
    let text = client.cell("x").await.error();
    assert!(text.contains("because more than 8 sessions were kept without a client"), "{text}");
    client.stop().await;
}

/// The clients that take one session over.
#[cfg(target_os = "linux")]
const TAKEOVERS: usize = 100;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn many_takeovers_leave_nothing_behind() {
    let kept = Kept::new();
    // States are more with each cell, up to their number.
    let flags = ["--undo-memory", "0"];
    let mut client = kept.client(&flags).await;
    client.cell("count = 0").await.ok();
    let keeper = kept.keeper();
    let open = || {
        let files = std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().count();
        (files, descendants(keeper).len())
    };
    let mut before = open();
    for number in 1..=TAKEOVERS {
        if number % 2 == 0 {
            client.stop().await;
        } else {
            kill(client).await;
        }
        kept.all_left().await;
        client = kept.client(&flags).await;
        let text = client.cell("count += 1\nprint(count)").await.ok();
        assert!(text.ends_with(&format!("\n{number}")), "{number}: {text}");
        if number == 10 {
            before = open();
        }
    }
    // Some come and go by themselves.
    let most = (before.0 + TAKEOVERS / 3, before.1 + TAKEOVERS / 3);
    eventually("no takeover leaves a file or a process", || open().0 < most.0 && open().1 < most.1).await;
    assert_eq!(kept.sessions().len(), 1);
    client.stop().await;
}
