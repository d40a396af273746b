//! How ipybox ends: cleanly, quickly, with nothing left behind.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Ipybox, PATIENT_EXIT, Place, eventually, is_running, probe};

/// Less than any grace period.
const SHORT: Duration = Duration::from_secs(4);

/// Starts a process in the kernel's group and returns its id and the kernel's.
async fn grandchild(ipybox: &mut Ipybox) -> [i32; 2] {
    let code =
        "import os, subprocess\nchild = subprocess.Popen(['sleep', '600'])\nprint(os.getpid(), child.pid)";
    let text = ipybox.cell(code).await.ok();
    let ids: Vec<i32> = text.split_whitespace().map(|id| id.parse().unwrap()).collect();
    ids.try_into().unwrap()
}

async fn all_gone(ids: &[i32]) {
    for &id in ids {
        eventually("the process is gone", || !is_running(id)).await;
    }
}

fn temporary_files(place: &Place) -> usize {
    std::fs::read_dir(place.temporary()).unwrap().count()
}

#[tokio::test]
async fn closing_stdin_ends_it_with_nothing_left() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let server: i32 = ipybox
        .cell("from mcptools.probe import pid\nprint(pid.run(pid.Params()))")
        .await
        .ok()
        .parse()
        .unwrap();
    let ids = grandchild(&mut ipybox).await;
    ipybox.close_input();
    assert_eq!(ipybox.ended().await.code(), Some(0), "{}", ipybox.log());
    all_gone(&[ids[0], ids[1], server]).await;
    assert_eq!(temporary_files(&place), 0);
}

#[tokio::test]
async fn signals_end_it_cleanly_also_while_a_cell_runs() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut attempts = 0;
        while !ends_quickly(signal).await {
            attempts += 1;
            assert!(attempts < 10, "{signal}: it is never quick");
        }
    }
}

/// Ends ipybox by a signal while a cell runs; checks that nothing is left, and says whether that was quick.
async fn ends_quickly(signal: Signal) -> bool {
    let place = Place::new();
    let begin = Instant::now();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    let ids = grandchild(&mut ipybox).await;
    let _running = ipybox.start_cell("open('started', 'w')\nwhile True: pass").await;
    let started = place.workspace().join("started");
    eventually("the cell runs", || started.exists()).await;
    let start = begin.elapsed();
    let begin = Instant::now();
    ipybox.signal(signal);
    assert_eq!(ipybox.ended().await.code(), Some(0), "{signal}: {}", ipybox.log());
    // It takes a tenth of the start, unless it waits for one of the grace periods, which are 5 seconds or more: on a machine
    // that is slow at times, only the one or the other is short.
    let took = begin.elapsed();
    all_gone(&ids).await;
    assert_eq!(temporary_files(&place), 0, "{signal}");
    took < SHORT || took < 3 * start
}

#[tokio::test]
async fn killing_it_leaves_no_orphan() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let ids = grandchild(&mut ipybox).await;
    ipybox.signal(Signal::SIGKILL);
    ipybox.ended().await;
    all_gone(&ids).await;
    eventually("the temporary files are gone", || temporary_files(&place) == 0).await;
}

#[tokio::test]
async fn killing_it_leaves_no_orphan_even_if_code_holds_the_interpreter_lock() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let ids = grandchild(&mut ipybox).await;
    // One long call in C that never lets another thread of the interpreter run.
    let _running = ipybox.start_cell("open('started', 'w').close()\nsum(range(10**14))").await;
    let started = place.workspace().join("started");
    eventually("the cell runs", || started.exists()).await;
    ipybox.signal(Signal::SIGKILL);
    ipybox.ended().await;
    all_gone(&ids).await;
}

#[tokio::test]
async fn killing_it_ends_mcp_servers_that_do_not_end_by_themselves() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // A wrapper that ignores the end of its input, around a server that does not.
    let marker = place.workspace().join("id");
    let probe = probe();
    let script = format!(
        "echo $$ > {}; {} {} --transport stdio; sleep 600",
        marker.display(),
        probe["command"].as_str().unwrap(),
        probe["args"][0].as_str().unwrap()
    );
    ipybox.register("stubborn", serde_json::json!({"command": "sh", "args": ["-c", script]})).await.ok();
    let id: i32 = place.read("id").trim().parse().unwrap();
    assert!(is_running(id));
    ipybox.signal(Signal::SIGKILL);
    ipybox.ended().await;
    all_gone(&[id]).await;
}

#[tokio::test]
async fn killing_it_before_there_is_a_kernel_leaves_no_files() {
    let place = Place::new();
    let mut ipybox = place.start(&["--python", "/nonexistent"]).await;
    ipybox.initialize().await;
    eventually("there are temporary files", || temporary_files(&place) > 0).await;
    ipybox.signal(Signal::SIGKILL);
    ipybox.ended().await;
    eventually("the temporary files are gone", || temporary_files(&place) == 0).await;
}

#[tokio::test]
async fn ending_before_a_session_began_is_clean() {
    let place = Place::new();
    let mut ipybox = place.start(&[]).await;
    ipybox.close_input();
    assert_eq!(ipybox.ended().await.code(), Some(0), "{}", ipybox.log());
    let mut ipybox = place.start(&[]).await;
    // The signal must find the handler in place, which it is once the log says so.
    ipybox.initialize().await;
    ipybox.signal(Signal::SIGTERM);
    assert_eq!(ipybox.ended().await.code(), Some(0), "{}", ipybox.log());
    assert_eq!(temporary_files(&place), 0);
}
