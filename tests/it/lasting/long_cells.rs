//! Requests that stop waiting for their cells.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Kept, kill};
use crate::support::{Ipybox, PATIENCE, Place, kernel_python};

async fn start(place: &Place, flags: &[&str], capabilities: Value) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap(), "--long-cells"], flags].concat();
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize_with(capabilities).await;
    // The kernel is ready then, and no cell has been counted.
    ipybox.reset().await;
    ipybox
}

/// A cell that prints `words`, waits for the file `name`, and prints `more`.
fn steps(words: &str, name: &str, more: &str) -> String {
    format!(
        "import pathlib, time\nprint({words:?})\nwhile not pathlib.Path({name:?}).exists(): time.sleep(0.01)\nprint({more:?})"
    )
}

async fn cell(ipybox: &mut Ipybox, code: &str, wait: f64) -> String {
    ipybox.call("execute_ipython_cell", json!({"code": code, "wait": wait})).await.ok()
}

async fn wait_for(ipybox: &mut Ipybox, cell: &str, timeout: f64) -> String {
    ipybox.call("wait_for_cell", json!({"cell": cell, "timeout": timeout})).await.ok()
}

/// Sends a cell, and waits until an answer about it begins with these words. Those before say that it has not begun, or has
/// not printed.
async fn begin(ipybox: &mut Ipybox, code: &str, id: &str, words: &str) -> String {
    let sent = Instant::now();
    let mut text = cell(ipybox, code, 0.1).await;
    while !text.starts_with(words) {
        let has_no_words = text.starts_with(&format!("[`{id}` has not begun"))
            || text.starts_with(&format!("[`{id}` still runs"));
        assert!(has_no_words && sent.elapsed() < PATIENCE, "no {words:?}: {text}");
        text = wait_for(ipybox, id, 0.1).await;
    }
    text
}

#[tokio::test]
async fn output_of_a_cell_comes_in_parts_and_each_part_once() {
    let place = Place::new();
    let mut ipybox = start(&place, &[], json!({})).await;
    assert_eq!(cell(&mut ipybox, "1 + 1", 30.0).await, "2");
    let code = steps("first", "go", "second")
        + "\nwhile not pathlib.Path('on').exists(): time.sleep(0.01)\nprint('third')\n3";
    let text = begin(&mut ipybox, &code, "cell-2", "first\n\n[`cell-2` still runs, ").await;
    assert!(
        text.contains(" s after it was sent. Its code may run for 3600 s. `wait_for_cell` returns"),
        "{text}"
    );
    let text = wait_for(&mut ipybox, "cell-2", 0.0).await;
    assert!(text.starts_with("[`cell-2` still runs, "), "{text}");
    place.write("go", "");
    let mut text = String::new();
    while text.is_empty() || text.starts_with('[') {
        text = wait_for(&mut ipybox, "cell-2", 0.1).await;
    }
    assert!(text.starts_with("second\n\n[`cell-2` still runs, "), "{text}");
    place.write("on", "");
    assert_eq!(wait_for(&mut ipybox, "cell-2", 60.0).await, "third\n3");
    assert_eq!(
        wait_for(&mut ipybox, "cell-2", 60.0).await,
        "[`cell-2` was answered before. Its answer again:]\n\nthird\n3"
    );
    let never_left = ipybox.call("wait_for_cell", json!({"cell": "cell-1"})).await.error();
    assert_eq!(never_left, "`cell-1` has been answered, and none waits for its answer");
    ipybox.stop().await;
}

#[tokio::test]
async fn cells_queue_or_are_refused_and_keep_their_answers() {
    let place = Place::new();
    let mut ipybox = start(&place, &[], json!({})).await;
    begin(&mut ipybox, &steps("one", "go", "ONE"), "cell-1", "one\n\n[`cell-1` still runs").await;
    let text = cell(&mut ipybox, "raise ValueError('two')", 0.1).await;
    assert!(text.starts_with("[`cell-2` has not begun: it waits for the cells before it"), "{text}");
    let refused = json!({"code": "print('never')", "if_busy": "refuse"});
    let text = ipybox.call("execute_ipython_cell", refused.clone()).await.error();
    assert!(text.starts_with("Not run: another cell has not ended.\n`cell-1`"), "{text}");
    place.write("go", "");
    assert_eq!(ipybox.cell("print('three')").await.ok(), "three");
    let failed = ipybox.call("wait_for_cell", json!({"cell": "cell-2"})).await.error();
    assert!(failed.contains("ValueError: two"), "{failed}");
    let unknown = ipybox.call("wait_for_cell", json!({"cell": "cell-9"})).await.error();
    assert_eq!(unknown, "there is no cell `cell-9`; there are `cell-1`");
    assert_eq!(wait_for(&mut ipybox, "cell-1", 1.0).await, "ONE");
    assert_eq!(ipybox.call("execute_ipython_cell", refused).await.ok(), "never");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_cell_is_interrupted_while_nobody_or_another_request_waits() {
    let place = Place::new();
    let mut ipybox = start(&place, &[], json!({})).await;
    let code =
        "try:\n    print('begun', flush=True)\n    while True: pass\nfinally:\n    print('cleaned up')";
    begin(&mut ipybox, code, "cell-1", "begun\n\n[`cell-1` still runs").await;
    let waiting = ipybox.start_call("wait_for_cell", json!({"cell": "cell-1", "timeout": 600})).await;
    ipybox.has_begun_what_was_asked().await;
    // The newest request waits: the client of an earlier one may have given up without a word.
    let second = ipybox.start_call("wait_for_cell", json!({"cell": "cell-1", "timeout": 600})).await;
    let text = waiting.answer().await.ok();
    assert!(text.contains("`cell-1` still runs"), "{text}");
    // Cancelling the wait leaves the cell alone.
    ipybox.cancel(&second).await;
    let text = wait_for(&mut ipybox, "cell-1", 0.1).await;
    assert!(text.contains("`cell-1` still runs"), "{text}");
    // Somebody who waits keeps nobody from stopping it.
    let waiting = ipybox.start_call("wait_for_cell", json!({"cell": "cell-1", "timeout": 600})).await;
    ipybox.has_begun_what_was_asked().await;
    let interrupt = json!({"cell": "cell-1", "interrupt": true});
    let text = ipybox.call("wait_for_cell", interrupt).await.error();
    assert!(waiting.answer().await.ok().contains("`cell-1` still runs"));
    assert!(text.contains("cleaned up") && text.contains("KeyboardInterrupt"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let place = Place::new();
    let mut ipybox = start(&place, &[], json!({})).await;
    for (arguments, expected) in [
        (json!({"code": "1", "wait": 0}), "the argument `wait` cannot be used: 0 is not a positive number"),
        (json!({"code": "1", "wait": "x"}), "the argument `wait` cannot be used"),
        (json!({"code": "1", "if_busy": "drop"}), "the argument `if_busy` cannot be used"),
    ] {
        let text = ipybox.call("execute_ipython_cell", arguments).await.error();
        assert!(text.contains(expected), "{text}");
    }
    for (arguments, expected) in [
        (json!({}), "missing field `cell`"),
        (json!({"cell": "7"}), "`7` is no id such as `cell-3`"),
        (json!({"cell": "cell-1", "timeout": -1}), "the argument `timeout` cannot be used: -1 is no number"),
    ] {
        let text = ipybox.call("wait_for_cell", arguments).await.error();
        assert!(text.contains(expected), "{text}");
    }
    ipybox.stop().await;

    let mut ipybox = place.ipybox().await;
    let tools = ipybox.request("tools/list", json!({})).await.response().await.unwrap();
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 4);
    let text = ipybox.call("execute_ipython_cell", json!({"code": "1", "wait": 1})).await.error();
    assert!(text.contains("started without `--long-cells`"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_user_is_asked_by_whichever_request_waits() {
    let place = Place::new();
    let flags = ["--approval", "ask", "--approve-shell-cmds", "--approval-timeout", "20"];
    let mut ipybox = start(&place, &flags, json!({"elicitation": {}})).await;
    let asking = ipybox.start_call("execute_ipython_cell", json!({"code": "!echo asked", "wait": 15})).await;
    ipybox.question().await;
    let text = asking.answer().await.ok();
    assert!(text.contains("`cell-1` waits for approval"), "{text}");
    // Longer than the user has to answer a question that is shown.
    tokio::time::sleep(Duration::from_secs(21)).await;
    let waiting = ipybox.start_call("wait_for_cell", json!({"cell": "cell-1"})).await;
    assert!(ipybox.decide("allow once").await.contains("echo asked"));
    assert_eq!(waiting.answer().await.ok(), "asked");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_answer_waits_across_clients() {
    let kept = Kept::new();
    let mut client = kept.client(&["--long-cells"]).await;
    client.reset().await;
    begin(&mut client, &steps("begun", "go", "done"), "cell-1", "begun\n\n[`cell-1` still runs").await;
    kill(client).await;
    kept.write("go", "");
    let mut client = kept.client(&["--long-cells"]).await;
    let text = wait_for(&mut client, "cell-1", 60.0).await;
    assert!(text.contains("[This session was taken over") && text.contains("- `cell-1`, "), "{text}");
    assert!(text.ends_with("\ndone"), "{text}");
    client.stop().await;
}
