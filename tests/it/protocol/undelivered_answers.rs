//! Answers that do not reach the client are repeated with the next one.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::support::{PATIENT_EXIT, Place, eventually};

/// A little longer than calls may be apart that a client sends at once.
const OVERTAKING: Duration = Duration::from_millis(1_200);

/// A cell that waits for a file after it has run `code`.
fn waiting(code: &str, file: &Path) -> String {
    format!("import pathlib, time\n{code}\nwhile not pathlib.Path({file:?}).exists(): time.sleep(0.01)")
}

#[tokio::test]
async fn output_of_a_cancelled_cell_comes_with_the_next_answer() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let started = place.workspace().join("started");
    let code = format!(
        "import time\ntry:\n    print('be' + 'fore')\n    open({started:?}, 'w').close()\n    time.sleep(600)\n\
         finally:\n    print('after' + 'wards')"
    );
    let running = ipybox.start_cell(&code).await;
    let queued = ipybox.start_cell("print('nev' + 'er')").await;
    eventually("the cell runs", || started.exists()).await;
    ipybox.cancel(&queued).await;
    ipybox.cancel(&running).await;
    let text = ipybox.cell("1 + 1").await.ok();
    assert!(text.starts_with("[Answer of an earlier call, cancelled after "), "{text}");
    let (first, rest) = text.split_once("[End of the earlier answer]").unwrap();
    assert!(first.contains(r#"`execute_ipython_cell`, "import time" …]"#), "{text}");
    assert!(first.contains("before\nafterwards\n") && first.contains("KeyboardInterrupt"), "{text}");
    assert!(rest.contains("cancelled before it began") && !rest.contains("never\n"), "{text}");
    assert!(text.ends_with("[End of the earlier answer]\n\n2"), "{text}");
    assert_eq!(ipybox.cell("2 + 2").await.ok(), "4");
    ipybox.stop().await;
}

#[tokio::test]
async fn long_output_of_a_cancelled_cell_is_in_a_file() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let started = place.workspace().join("started");
    let code = format!("print('x' * 20_000)\nopen({started:?}, 'w').close()\nwhile True: pass");
    let running =
        ipybox.start_call("execute_ipython_cell", json!({"code": code, "max_output_chars": 100_000})).await;
    eventually("the cell runs", || started.exists()).await;
    ipybox.cancel(&running).await;
    let text = ipybox.cell("1 + 1").await.ok();
    assert!(text.len() < 7_000 && text.ends_with("\n\n2"), "{text}");
    let file = text.split_once("[End of the earlier answer; the whole is in ").unwrap().1;
    let whole = std::fs::read_to_string(file.split_once(']').unwrap().0).unwrap();
    assert!(whole.starts_with(&"x".repeat(20_000)) && whole.contains("KeyboardInterrupt"), "{whole}");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_answer_is_repeated_in_short_if_another_call_came_meanwhile() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let go = place.workspace().join("go");
    let long = ipybox.start_cell(&waiting("print('begin', 'x' * 2_000, 'end')", &go)).await;
    // A pause for its own sake: it distinguishes this client from one that sends its calls at once.
    tokio::time::sleep(OVERTAKING).await;
    let next = ipybox.start_cell("1 + 1").await;
    ipybox.has_begun_what_was_asked().await;
    std::fs::write(go, "").unwrap();
    let long = long.answer().await.ok();
    assert!(long.starts_with("begin xxx") && long.ends_with("xxx end"), "{long}");
    let next = next.answer().await.ok();
    assert!(next.contains("which may not have reached you: `execute_ipython_cell`"), "{next}");
    assert!(next.contains("]\nbegin xxx") && next.contains("xxx end\n[End"), "{next}");
    assert!(next.len() < 900 && next.ends_with("\n\n2"), "{next}");
    let file = next.split_once("; the whole is in ").unwrap().1.split_once(']').unwrap().0;
    assert_eq!(std::fs::read_to_string(file).unwrap(), long);
    ipybox.stop().await;
}

#[tokio::test]
async fn answers_to_calls_that_are_sent_at_once_are_given_once() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let go = place.workspace().join("go");
    let first = ipybox.start_cell(&waiting("print('first')", &go)).await;
    let second = ipybox.start_cell("print('second')").await;
    tokio::time::sleep(OVERTAKING).await;
    std::fs::write(go, "").unwrap();
    assert_eq!(first.answer().await.ok(), "first");
    assert_eq!(second.answer().await.ok(), "second");
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_reset_shows_what_the_cell_that_it_ended_had_printed() {
    let place = Place::new();
    // An exit that is cut short is reported.
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    let started = place.workspace().join("started");
    let code = format!("print('so far')\nopen({started:?}, 'w').close()\nwhile True: pass");
    let _given_up = ipybox.start_cell(&code).await;
    eventually("the cell runs", || started.exists()).await;
    tokio::time::sleep(OVERTAKING).await;
    let text = ipybox.call("reset", json!({})).await.ok();
    assert!(text.contains("so far\n\nExecution was stopped by a reset"), "{text}");
    assert!(text.ends_with("]\n\nThe kernel was reset."), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_cell_without_code_repeats_the_last_answers() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.cell("print('x' * 4_000)\n1 / 0").await.error();
    let text = ipybox.cell("").await.ok();
    assert!(text.contains(r#" s: `execute_ipython_cell`, "1 + 1"]"#), "{text}");
    assert!(text.contains("]\n2\n[End of the earlier answer]\n\n[Answer of an earlier call"), "{text}");
    assert!(text.contains("ZeroDivisionError: division by zero\n[End of the earlier answer]"), "{text}");
    assert!(text.len() < 2_700, "{} bytes", text.len());
    assert_eq!(ipybox.cell("2 + 2").await.ok(), "4");
    ipybox.stop().await;
}
