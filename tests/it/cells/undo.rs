//! Undone cells: the kernel is as it was before them.

use std::time::Duration;

use ipybox::{CodeExecutor, KernelClient};
use serde_json::{Value, json};

use super::leaks::{HELD, no_more_than, numbers};
use crate::support::{Ipybox, Place, eventually, kernel_python, probe};

async fn undo(ipybox: &mut Ipybox, cells: usize) -> String {
    ipybox.call("reset", json!({"cells": cells})).await.ok()
}

async fn refusal(ipybox: &mut Ipybox, cells: usize) -> String {
    ipybox.call("reset", json!({"cells": cells})).await.error()
}

#[tokio::test]
pub(crate) async fn an_undone_cell_has_changed_nothing_in_the_kernel() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let prepare = "import os, random, tempfile\nos.mkdir('inner')\nkept = tempfile.TemporaryDirectory()\n\
                   x = [1]; random.seed(1)";
    ipybox.cell(prepare).await.ok();
    let wrong = "import json\nx.append(2); os.chdir('inner'); y = 3\nkept.cleanup if False else None\nrandom.random()";
    let number = ipybox.cell(wrong).await.ok();
    let text = undo(&mut ipybox, 1).await;
    assert!(text.starts_with("The kernel is as it was before `import json`, which is undone."), "{text}");
    let look = "print(x, 'y' in globals(), 'json' in globals(), os.path.basename(os.getcwd()) == 'inner', \
                os.path.isdir(kept.name), random.random())";
    assert_eq!(ipybox.cell(look).await.ok(), format!("[1] False False False True {number}"));
    // It counts on where it was.
    let text = ipybox.cell("1 / 0").await.error();
    assert!(text.contains("Cell In[3]"), "{text}");
    // Again, and further.
    undo(&mut ipybox, 2).await;
    assert_eq!(ipybox.cell(look).await.ok(), format!("[1] False False False True {number}"));
    ipybox.cell("x.append(4)").await.ok();
    let text = undo(&mut ipybox, 3).await;
    assert!(text.contains("before `import os, random, tempfile`: the last 3 cells are undone."), "{text}");
    assert!(ipybox.cell("x").await.error().contains("NameError"));
    let text = refusal(&mut ipybox, 9).await;
    assert_eq!(text, "Failed to undo 9 cells: there are 1");
    ipybox.call("reset", json!({})).await.ok();
    assert_eq!(refusal(&mut ipybox, 1).await, "Failed to undo 1 cells: there are 0");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_kernel_that_died_is_brought_back() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import os, signal, time\nloaded = list(range(1000))").await.ok();
    let text = ipybox.cell("os.kill(os.getpid(), signal.SIGKILL)").await.error();
    let offer = "`reset(cells=1)` brings the variables back as they were before `os.kill(os.getpid(), signal.SIGKILL)`.";
    assert!(text.contains(offer), "{text}");
    undo(&mut ipybox, 1).await;
    assert_eq!(ipybox.cell("len(loaded)").await.ok(), "1000");
    // After a cell in the fresh kernel, too; and whoever has missed the offer gets it again.
    ipybox.cell("os.kill(os.getpid(), signal.SIGKILL)").await.error();
    let text = ipybox.cell("'loaded' in globals()").await.ok();
    assert!(text.contains("`reset(cells=2)` brings") && text.ends_with("False"), "{text}");
    undo(&mut ipybox, 2).await;
    assert_eq!(ipybox.cell("len(loaded)").await.ok(), "1000");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_running_cell_is_stopped_and_undone() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import tempfile, time\nkept = tempfile.TemporaryDirectory(); x = 1").await.ok();
    let running = ipybox.start_cell("x = 2; open('runs', 'w').close()\nwhile True: time.sleep(1)").await;
    let runs = place.workspace().join("runs");
    eventually("the cell runs", || runs.exists()).await;
    // What cannot be undone stops nothing.
    assert!(refusal(&mut ipybox, 5).await.contains("there are 2"));
    let text = undo(&mut ipybox, 1).await;
    assert!(text.contains("- new: `runs`"), "{text}");
    assert!(running.answer().await.error().contains("was stopped by a reset"));
    assert_eq!(ipybox.cell("import os; print(x, os.path.isdir(kept.name))").await.ok(), "1 True");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn calls_go_on_after_an_undo_and_are_named() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let echo = |text: &str| format!("print(echo.run(echo.Params(text='{text}')))");
    let import =
        "from mcptools.probe import add, echo\nimport os\nold = os.environ['IPYBOX_TOOL_SERVER_TOKEN']";
    ipybox.cell(&format!("{import}\nopen('before', 'w').close()\n{}", echo("early"))).await.ok();
    let late =
        "print(add.run(add.Params(a=1, b=2)))\nopen('after', 'w').close(); open('before', 'a').write('1')";
    ipybox.cell(&format!("new = os.environ['IPYBOX_TOOL_SERVER_TOKEN']\n{late}")).await.ok();
    let text = undo(&mut ipybox, 1).await;
    for line in ["\n- called: `probe.add(", "\n- new: `after`", "\n- changed: `before`"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("early"), "{text}");
    assert_eq!(ipybox.cell(&echo("again")).await.ok(), "again");
    let differs = "print('new' in globals(), old == os.environ['IPYBOX_TOOL_SERVER_TOKEN'])";
    assert_eq!(ipybox.cell(differs).await.ok(), "False False");
    // The tool only reads.
    let text = undo(&mut ipybox, 2).await;
    assert!(!text.contains("echo("), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_state_that_is_missing_has_a_reason() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import threading; x = 1").await.ok();
    ipybox.cell("x = 2\nevent = threading.Event(); thread = threading.Thread(target=event.wait, name='waits')\nthread.start()").await.ok();
    ipybox.cell("x = 3").await.ok();
    let text = refusal(&mut ipybox, 1).await;
    let expected = "Failed to undo `x = 3`: its state was not kept: the thread `waits` runs (`event`, `thread`)\n\
                    hint: `reset(cells=2)` goes back to the state before `x = 2`";
    assert_eq!(text, expected);
    assert_eq!(ipybox.cell("print(x, thread.is_alive())").await.ok(), "3 True");
    undo(&mut ipybox, 3).await;
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    // What belongs to the kernel that has ended is named.
    ipybox.cell("import asyncio, socket\none, other = socket.socketpair()\ntask = asyncio.create_task(asyncio.sleep(1000), name='long')").await.ok();
    ipybox.cell("y = 1").await.ok();
    let text = undo(&mut ipybox, 1).await;
    assert!(text.contains("open socket(s) (`one`, `other`) are closed"), "{text}");
    assert!(text.contains("asyncio tasks have ended: `long`"), "{text}");
    assert_eq!(ipybox.cell("await asyncio.sleep(0); 'y' in globals()").await.ok(), "False");
    ipybox.stop().await;

    let mut ipybox = place.ipybox_with(&["--undo-memory", "0"]).await;
    ipybox.cell("x = 1").await.ok();
    let text = refusal(&mut ipybox, 1).await;
    assert!(text.contains("no states are kept\nhint: `--undo-memory 512M`"), "{text}");
    for (arguments, words) in [
        (json!({"cells": 0.5}), "0.5 is not a whole number from 1 on"),
        (json!({"cells": 1, "to": "cell-1"}), "pass one of them"),
        (json!({"to": "In[1]"}), "`In[1]` is no id such as `cell-3`"),
    ] {
        let text = ipybox.call("reset", arguments).await.error();
        assert!(text.contains(words), "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn states_stay_within_their_memory() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--undo-memory", "100M"]).await;
    ipybox.cell("x = bytearray(b'1') * 150_000_000").await.ok();
    ipybox.cell("y = 1").await.ok();
    // What is only shared costs nothing.
    assert!(undo(&mut ipybox, 1).await.contains("`y = 1`"));
    ipybox.cell("x[:] = bytes(150_000_000)").await.ok();
    ipybox.logged("states of the kernel take too much memory").await;
    ipybox.cell("y = 2").await.ok();
    let text = refusal(&mut ipybox, 2).await;
    assert!(text.contains("`x[:] = bytes(150_000_000)`: its state was not kept: states took"), "{text}");
    assert!(text.contains("and `--undo-memory` is 100 MiB"), "{text}");
    undo(&mut ipybox, 1).await;
    assert_eq!(ipybox.cell("x[0], len(x)").await.ok(), "(0, 150000000)");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_records_know_what_was_undone() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let flags =
        ["--notebook", "n.ipynb", "--audit-log", log.to_str().unwrap(), "--long-cells", "--checkpoint"];
    let mut ipybox = place.ipybox_with(&flags).await;
    for code in ["x = 1", "x = 2", "x = 3"] {
        ipybox.cell(code).await.ok();
    }
    let text = ipybox.call("reset", json!({"to": "cell-2"})).await.ok();
    assert!(text.contains("before `cell-2` (`x = 2`): the last 2 cells are undone."), "{text}");
    assert!(ipybox.call("reset", json!({"to": "cell-2"})).await.error().contains("none of the last cells"));
    assert_eq!(ipybox.cell("y = x; x").await.ok(), "1");
    eventually("variables are saved", || place.everything_in_states().contains("\"name\": \"y\"")).await;
    ipybox.stop().await;
    let lines = std::fs::read_to_string(log).unwrap();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = events.iter().find(|event| event["event"] == "undo").expect(&lines);
    assert_eq!([&event["cell"], &event["cells"], &event["parent"]], [&json!(2), &json!(2), &json!(1)]);
    let notebook: Value = serde_json::from_str(&place.read("n.ipynb")).unwrap();
    let words = notebook["cells"][4]["source"].to_string();
    assert!(words.contains("Undone: the variables are as they were before `cell-2` (`x = 2`)."), "{words}");
    assert_eq!(notebook["cells"][5]["execution_count"], json!(2));
    // The next session has what the kernel had.
    let mut ipybox = place.ipybox_with(&["--checkpoint"]).await;
    let restored =
        ipybox.cell("import ipybox_checkpoint; ipybox_checkpoint.restore(); print(x, y)").await.ok();
    assert!(restored.ends_with("1 1"), "{restored}");
    ipybox.stop().await;
}

/// An executor that keeps states.
async fn executor(place: &Place) -> CodeExecutor {
    let builder = CodeExecutor::builder().working_dir(place.workspace()).state_dir(place.states());
    let builder = builder.kernel_exit_timeout(Duration::from_secs(3600));
    builder.python(kernel_python()).undo_memory(1 << 29).start().await.unwrap()
}

#[tokio::test]
async fn an_application_undoes_code_by_its_id() {
    let place = Place::new();
    let executor = executor(&place).await;
    let first = executor.execute("x = 1").await.unwrap();
    let second = executor.execute("x = 2").await.unwrap();
    let failed = executor.execute("1 / 0").await.unwrap_err();
    let third = &failed.output().unwrap().cell;
    assert_eq!([&first.cell, &second.cell, third], ["cell-1", "cell-2", "cell-3"]);
    executor.execute("open('made', 'w').close()").await.unwrap();
    // An id of the origin means nothing to a copy.
    let copied = executor.copy().await.unwrap();
    let refused = async |cell| copied.undo_to(cell).await.unwrap_err().to_string();
    assert_eq!(refused("cell-2").await, "undo `cell-2`: it is none of the last cells of this session");
    assert_eq!(refused("In[2]").await, "undo cells: `In[2]` is no id such as `cell-3`");
    assert_eq!(copied.execute("x").await.unwrap().cell, "cell-5");
    copied.stop().await;
    assert_eq!(executor.undo_to(&second.cell).await.unwrap(), ["new: `made`"]);
    assert_eq!(executor.execute("x").await.unwrap().text.unwrap(), "1");
    assert!(executor.undo_to(&second.cell).await.unwrap_err().to_string().contains("none of the last"));
    executor.stop().await;

    let builder = KernelClient::builder().working_dir(place.workspace()).python(kernel_python());
    let kernel = builder.undo_memory(1 << 29).start().await.unwrap();
    kernel.execute("x = 1").await.unwrap();
    let second = kernel.execute("x = 2").await.unwrap();
    assert_eq!(kernel.undo_to(&second.cell).await.unwrap(), Vec::<String>::new());
    assert_eq!(kernel.execute("x").await.unwrap().text.unwrap(), "1");
    kernel.stop().await;
}

#[tokio::test]
async fn states_leave_nothing_behind() {
    let place = Place::new();
    let executor = executor(&place).await;
    executor.execute(HELD).await.unwrap();
    let held = async || executor.execute("held()").await.unwrap().text.unwrap();
    executor
        .execute("import atexit, tempfile; kept = tempfile.TemporaryDirectory(); print(kept.name)")
        .await
        .unwrap();
    let before = numbers(&held().await);
    for number in 0..10 {
        executor.execute(format!("x = {number}").as_str()).await.unwrap();
        assert_eq!(executor.undo(1).await.unwrap(), Vec::<String>::new());
        no_more_than(before, &held).await;
    }
    // The kernel that took the place does at its exit what the first one would have done.
    let kept = executor.execute("atexit.register(open, 'ran', 'w'); kept.name").await.unwrap().text.unwrap();
    executor.undo(1).await.unwrap();
    executor.execute("atexit.register(open, 'ran', 'w')").await.unwrap();
    assert!(std::path::Path::new(kept.trim_matches('\'')).exists());
    let refused = executor.undo(100).await.unwrap_err().to_string();
    assert!(refused.contains("undo 100 cells"), "{refused}");
    executor.stop().await;
    assert!(place.workspace().join("ran").exists());
    assert!(!std::path::Path::new(kept.trim_matches('\'')).exists());
    // Nobody has asked for states here.
    let kernel =
        KernelClient::builder().working_dir(place.workspace()).python(kernel_python()).start().await.unwrap();
    kernel.execute("x = 1").await.unwrap();
    assert!(kernel.undo(1).await.unwrap_err().to_string().contains("no states are kept"));
    kernel.stop().await;
}
