//! Output of threads, tasks and programs, and streams that code has replaced.

use std::time::Instant;

use crate::support::{PATIENCE, Place, eventually};

/// The late output in an answer, and the cell's own.
fn parts(text: &str) -> (String, String) {
    let begin = "[Output of earlier cells, after they had ended:]\n";
    let end = "\n[End of the output of earlier cells]";
    let Some(rest) = text.strip_prefix(begin) else { return (String::new(), text.to_owned()) };
    let (late, own) = rest.split_once(end).unwrap_or_else(|| panic!("no end: {text}"));
    (late.to_owned(), own.trim_start().to_owned())
}

#[tokio::test]
pub(crate) async fn late_output_of_threads_and_tasks_is_marked() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import asyncio, threading, time
def work():
    done.wait()
    print('from the thread')
done = threading.Event()
worker = threading.Thread(target=work)
worker.start()
async def task():
    while not done.is_set(): await asyncio.sleep(0.01)
    print('from the task')
background = asyncio.create_task(task())
print('started')";
    assert_eq!(ipybox.cell(code).await.ok(), "started");
    // While another cell runs.
    let (late, own) =
        parts(&ipybox.cell("print('own'); done.set(); await background; worker.join()").await.ok());
    assert_eq!(own, "own");
    assert!(late.contains("from the thread") && late.contains("from the task"), "{late}");
    assert_eq!(ipybox.cell("1").await.ok(), "1");

    // Between cells, by a thread, a task and a child process.
    let code = "
import os, subprocess
def work():
    ended.wait(); print('from the thread', flush=True); open(place + '/thread', 'w')
ended = threading.Event()
threading.Thread(target=work).start()
async def task():
    while not ended.is_set(): await asyncio.sleep(0.01)
    print('from the task', flush=True); open(place + '/task', 'w')
background = asyncio.create_task(task())
child = subprocess.Popen(['sh', '-c', 'while ! test -e ended; do sleep 0.1; done; echo from the child; touch child'], cwd=place)
def when_ended():
    while not os.path.exists(place + '/ended'): time.sleep(0.01)
    ended.set()
threading.Thread(target=when_ended).start()
print('started')";
    let workspace = place.workspace();
    assert_eq!(ipybox.cell(&format!("place = {workspace:?}{code}")).await.ok(), "started");
    place.write("ended", "");
    let printed = || ["thread", "task", "child"].iter().all(|name| workspace.join(name).exists());
    eventually("all have printed", printed).await;
    // The kernel reads what the child has written, and nothing shows when it has.
    let mut late = String::new();
    let deadline = Instant::now() + PATIENCE;
    while !["thread", "task", "child"].iter().all(|source| late.contains(&format!("from the {source}"))) {
        assert!(Instant::now() < deadline, "{late}");
        let (more, own) = parts(&ipybox.cell("'own'").await.ok());
        assert_eq!(own, "'own'");
        late += &more;
    }
    // The answer of a cell that fails has late output too.
    let code = "go = threading.Event(); worker = threading.Thread(target=lambda: (go.wait(), print('late')))";
    ipybox.cell(&format!("{code}; worker.start()")).await.ok();
    let (late, own) = parts(&ipybox.cell("go.set(); worker.join(); 1 / 0").await.error());
    assert_eq!(late, "late");
    assert!(own.ends_with("division by zero"), "{own}");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_no_cell_has_started_is_shown_with_the_one_that_runs() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import _thread, contextvars
printed = _thread.allocate_lock(); printed.acquire()
_thread.start_new_thread(lambda: (print('from a thread without a context'), printed.release()), ())
contextvars.Context().run(print, 'from an empty context')
contextvars.Context().run(display, 'shown')
done = printed.acquire()";
    let text = ipybox.cell(code).await.ok();
    for words in ["from a thread without a context", "from an empty context", "'shown'"] {
        assert!(text.contains(words), "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn streams_that_code_has_wrapped_or_replaced_go_on() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (code, expected) in [
        (
            "import gc, io, os, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer); print('wrapped')",
            "wrapped",
        ),
        ("sys.stdout = sys.__stdout__; gc.collect(); print('back', flush=True)", "back"),
        ("!echo program", "program"),
        ("sys.stdout.detach(); print('detached', flush=True)", "detached"),
        ("sys.stdout = os.fdopen(os.dup(1), 'w'); print('another')", "another"),
        ("sys.stdout = sys.__stdout__; _ = sys.stdout.buffer.write(b'bytes')", "bytes"),
    ] {
        assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn a_kernel_goes_on_without_its_streams() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import sys; sys.stdout = None; sys.stderr = None").await.ok();
    assert_eq!(ipybox.cell("1").await.ok(), "1");
    assert!(ipybox.cell("1 / 0").await.error().contains("ZeroDivisionError"));
    ipybox.cell("sys.stdout = sys.__stdout__").await.ok();
    assert_eq!(ipybox.cell("print('back')").await.ok(), "back");
    ipybox.stop().await;
}
