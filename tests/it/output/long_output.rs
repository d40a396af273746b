//! Output that is too long for a reply: nothing of it is lost, and it costs the server no memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Place, eventually, peak_kib};

/// The file that a reply names for the whole of its output.
fn whole(text: &str) -> PathBuf {
    let (_, after) = text.split_once(" characters are in ").unwrap_or_else(|| panic!("no file: {text}"));
    PathBuf::from(after.split_once(']').unwrap().0)
}

#[tokio::test]
async fn long_output_arrives_whole_in_a_file() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.cell("for i in range(1_000_000): print(i)").await.ok();
    assert!(text.starts_with("0\n1\n") && text.contains("\n999999\n\n[Output truncated"), "{text}");
    assert!(text.len() < 6_000);
    let file = std::fs::read_to_string(whole(&text)).unwrap();
    assert!(file.lines().map(|line| line.parse::<u32>().unwrap()).eq(0..1_000_000));
    assert!(whole(&text).starts_with(place.workspace().join(".ipybox/outputs")));

    let much = json!({"code": "print('begin' + 'x' * 100_000_000 + 'end')", "timeout": 280});
    let text = ipybox.call("execute_ipython_cell", much).await.ok();
    assert!(text.starts_with("beginxx") && text.contains("xxend\n"), "{} bytes", text.len());
    let file = std::fs::read_to_string(whole(&text)).unwrap();
    assert_eq!(file, format!("begin{}end\n", "x".repeat(100_000_000)));

    let text = ipybox.cell("'begin' + 'y' * 10_000_000 + 'end'").await.ok();
    let file = std::fs::read_to_string(whole(&text)).unwrap();
    assert_eq!(file.trim_end(), format!("'begin{}end'", "y".repeat(10_000_000)));

    // Errors and images are never cut away.
    let code = "
import matplotlib.pyplot as plt
plt.plot([1]); plt.show()
print('x' * 10_000)
1 / 0";
    let text = ipybox.cell(code).await.error();
    assert!(text.contains("Generated images") && text.ends_with("division by zero"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn output_holds_what_was_printed_however_slowly_it_is_read() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // ipykernel, on Jupyter's servers, says so in the output where it takes longer than this, ten seconds otherwise.
    let code = "
import sys
sys.stdout.flush_timeout = sys.stderr.flush_timeout = 0.0001
for _ in range(5): print('x' * 999_999)";
    let text = ipybox.cell(code).await.ok();
    let file = std::fs::read_to_string(whole(&text)).unwrap();
    assert_eq!(file.len(), 5_000_000, "{}", file.trim_matches(['x', '\n']));
    assert!(file.lines().all(|line| line.len() == 999_999));
    ipybox.stop().await;
}

#[tokio::test]
async fn code_that_prints_waits_for_a_server_that_does_not_read() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import os, sys, time
sys.stdout.flush_timeout = sys.stderr.flush_timeout = 0.01
lines = open('lines', 'wb', buffering=0)
while not os.path.exists('go'): time.sleep(0.01)
for _ in range(100):
    print('x' * 999_999); lines.write(b'x')";
    let arguments = json!({"code": code, "timeout": 280});
    let running = ipybox.start_call("execute_ipython_cell", arguments).await;
    let lines = place.workspace().join("lines");
    eventually("the code runs", || lines.exists()).await;
    ipybox.signal(Signal::SIGSTOP);
    place.write("go", "");
    let (mut count, mut since) = (0, Instant::now());
    eventually("the code waits", || {
        let now = lines.metadata().unwrap().len();
        if now > count {
            (count, since) = (now, Instant::now());
        }
        count > 0 && since.elapsed() > Duration::from_secs(2)
    })
    .await;
    assert!(count < 100, "it has printed everything");
    ipybox.signal(Signal::SIGCONT);
    let text = running.answer().await.ok();
    let file = std::fs::read_to_string(whole(&text)).unwrap();
    assert_eq!(file.len(), 100_000_000, "{}", file.trim_matches(['x', '\n']));
    ipybox.stop().await;
}

#[tokio::test]
async fn output_that_cannot_be_saved_is_reported() {
    let place = Place::new();
    place.write(".ipybox", "a file where a directory should be");
    let mut ipybox = place.ipybox().await;
    let text = ipybox.cell("print('x' * 10_000)").await.ok();
    assert!(
        text.contains("could not be saved in `.ipybox/outputs/`") && text.contains("truncated"),
        "{text}"
    );
    ipybox.stop().await;
}

#[tokio::test]
async fn output_costs_no_memory_and_arrives_whole() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("print('x' * 100_000)").await.ok();
    let before = peak_kib(&ipybox).await;
    let code = "line = 'x' * 999_999\nfor _ in range(100): print(line)";
    let text = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 280})).await.ok();
    assert_eq!(std::fs::metadata(whole(&text)).unwrap().len(), 100_000_000);
    let text = ipybox.cell("'y' * 100_000_000").await.ok();
    assert_eq!(std::fs::metadata(whole(&text)).unwrap().len(), 100_000_003);
    let grown = peak_kib(&ipybox).await - before;
    assert!(grown < 64 * 1024, "the server grew by {grown} KiB");
    ipybox.stop().await;
}
