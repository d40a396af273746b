//! What Python does at its exit is done when a kernel ends, and takes a limited time.

use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Ipybox, PATIENT_EXIT, Place, eventually};

/// Opens files in all ways and closes none; Python writes them at its exit. Each writes what its name says.
const LEFT_OPEN: &str = "
import atexit, gzip, logging, logging.handlers, shelve, tempfile, threading, time, weakref, zipfile
plain = open('plain', 'w'); plain.write('plain')
packed = gzip.open('gzip', 'wt'); packed.write('gzip')
archive = zipfile.ZipFile('zip', 'w'); archive.writestr('zip', 'zip')
shelf = shelve.open('shelf', writeback=True); shelf['list'] = []; shelf['list'].append('shelf')
handler = logging.handlers.MemoryHandler(1000, target=logging.FileHandler('log'))
logging.getLogger('left').addHandler(handler); logging.getLogger('left').warning('log')
temporary = tempfile.TemporaryDirectory(dir='.')
write = lambda name: open(name, 'w').write(name)
exit_function = atexit.register(write, 'atexit')
class Owner:
    def __del__(self, write=write): write('del')
owners = [Owner()]; owners.append(owners); finalizer = weakref.finalize(owners[0], write, 'finalize')
def lines():
    with open('generator', 'w') as file:
        file.write('generator'); yield
generator = lines(); next(generator)
threading.Thread(target=lambda: [time.sleep(0.1), write('thread')]).start()
json_module = __import__('json'); json_module.left = open('attribute', 'w'); size = json_module.left.write('attribute')";

/// Runs it in the workspace, where a kernel on a Jupyter server of this machine is not by itself.
async fn leave_open(place: &Place, ipybox: &mut Ipybox) {
    let code = format!("import os; os.chdir({:?})\n{LEFT_OPEN}", place.workspace());
    ipybox.cell(&code).await.ok();
}

/// The names of the files whose content is their name.
const NAMED: [&str; 8] = ["atexit", "attribute", "del", "finalize", "generator", "gzip", "plain", "thread"];

/// Checks what `LEFT_OPEN` has left, by a fresh kernel.
async fn check(place: &Place, ipybox: &mut Ipybox) {
    let code = "
import gzip, os, shelve, zipfile
os.chdir(DIRECTORY)
read = lambda name: (gzip.open if name == 'gzip' else open)(name, 'rt').read()
names = ['atexit', 'attribute', 'del', 'finalize', 'generator', 'gzip', 'plain', 'thread']
print([name for name in names if not os.path.exists(name) or read(name) != name])
print(zipfile.ZipFile('zip').read('zip'), shelve.open('shelf')['list'], read('log'), [name for name in os.listdir() if name.startswith('tmp')])";
    let code = code.replace("DIRECTORY", &format!("{:?}", place.workspace()));
    let text = ipybox.cell(&code).await.ok();
    assert!(text.ends_with("[]\nb'zip' ['shelf'] log\n []"), "{text}");
}

#[tokio::test]
pub(crate) async fn what_python_does_at_its_exit_is_done_at_a_reset() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    leave_open(&place, &mut ipybox).await;
    assert_eq!(ipybox.call("reset", json!({})).await.ok(), "The kernel was reset.");
    check(&place, &mut ipybox).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_while_a_state_is_made_stops_no_exit() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    // So much that the kernel is still forking when the client goes.
    let code = "import atexit\natexit.register(lambda: open('left', 'w').close())\nnumbers = [str(n) for n in range(3_000_000)]";
    ipybox.cell(code).await.ok();
    ipybox.close_input();
    assert!(ipybox.ended().await.success(), "{}", ipybox.log());
    assert!(!ipybox.log().contains("cut short"), "{}", ipybox.log());
    assert_eq!(place.read("left"), "");
}

#[tokio::test]
pub(crate) async fn what_python_does_at_its_exit_is_done_when_the_client_goes() {
    for signal in [None, Some(Signal::SIGTERM)] {
        let place = Place::new();
        let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
        leave_open(&place, &mut ipybox).await;
        match signal {
            None => ipybox.close_input(),
            Some(signal) => ipybox.signal(signal),
        }
        assert!(ipybox.ended().await.success(), "{}", ipybox.log());
        assert!(!ipybox.log().contains("cut short"), "{}", ipybox.log());
        for name in NAMED.into_iter().filter(|name| *name != "gzip") {
            assert_eq!(place.read(name), name);
        }
    }
}

#[tokio::test]
pub(crate) async fn a_cell_that_runs_at_the_exit_is_interrupted_and_cleans_up() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    let code = |name: &str| {
        format!(
            "file = open('{name}', 'w')\nfile.write('{name}')\ntry:\n    open('{name} runs', 'w').close()\n    while True: pass\n\
             finally: open('{name} ends', 'w').write('ends')"
        )
    };
    for name in ["reset", "end"] {
        let running = ipybox.start_cell(&code(name)).await;
        let runs = place.workspace().join(format!("{name} runs"));
        eventually("the cell runs", || runs.exists()).await;
        if name == "reset" {
            let text = ipybox.call("reset", json!({})).await.ok();
            assert!(text.ends_with("The kernel was reset."), "{text}");
            let text = running.answer().await.error();
            assert!(text.contains("stopped by a reset") && !text.contains("KeyboardInterrupt"), "{text}");
        } else {
            ipybox.close_input();
            assert!(ipybox.ended().await.success());
        }
        assert_eq!(place.read(name), name);
        assert_eq!(place.read(&format!("{name} ends")), "ends");
    }
}

#[tokio::test]
async fn an_exit_that_takes_too_long_is_cut_short_and_reported() {
    let place = Place::new();
    // Files are written in the last part of it, in which a slow machine may stall.
    let mut ipybox = place.ipybox_with(&["--kernel-exit-timeout", "10s"]).await;
    let begin = Instant::now();
    ipybox.cell("1").await.ok();
    for stuck in [
        "import atexit\n@atexit.register\ndef loop():\n    while True: pass",
        "import threading, time\nthread = threading.Thread(target=time.sleep, args=[10**6]); thread.start()",
        "import multiprocessing, time\nchild = multiprocessing.get_context('fork').Process(target=time.sleep, args=[10**6]); child.start()",
        "import asyncio\nasync def stay():\n    while True:\n        try: await asyncio.sleep(10**6)\n        except asyncio.CancelledError: pass\n\
         task = asyncio.create_task(stay()); await asyncio.sleep(0)",
        // No interrupt gets through to a call in C.
        "import atexit\nexit_function = atexit.register(sum, range(10**14))",
    ] {
        ipybox.cell(&format!("file = open('file', 'w'); file.write({stuck:?})\n{stuck}")).await.ok();
        let text = ipybox.call("reset", json!({})).await.ok();
        assert!(text.contains("took too long and was cut short"), "{stuck}: {text}");
        let written = if stuck.contains("sum") { "" } else { stuck };
        assert_eq!(place.read("file"), written, "{stuck}");
    }
    assert!(ipybox.cell("1 + 1").await.ok().ends_with('2'));
    // Not for as long as the code would have liked.
    assert!(begin.elapsed().as_secs() < 10_000);
    ipybox.stop().await;
}

#[tokio::test]
async fn an_exit_has_the_time_that_it_was_given() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    // More than it has by default.
    let code = "
import atexit, time
def upload():
    time.sleep(3)
    open('uploaded', 'w').write('all')
atexit.register(upload);";
    ipybox.cell(code).await.ok();
    assert_eq!(ipybox.call("reset", json!({})).await.ok(), "The kernel was reset.");
    assert_eq!(place.read("uploaded"), "all");
    ipybox.stop().await;
    // Times that no timer takes are short and long ones.
    for timeout in ["1e-9s", "1e15h"] {
        let mut ipybox = place.ipybox_with(&["--kernel-exit-timeout", timeout]).await;
        ipybox.cell("1").await.ok();
        let text = ipybox.call("reset", json!({})).await.ok();
        assert!(text.starts_with("The kernel was reset."), "{timeout}: {text}");
        assert!(ipybox.cell("2").await.ok().ends_with('2'));
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn what_is_shown_at_the_exit_comes_with_the_next_answer() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    ipybox
        .cell("import atexit\natexit.register(print, 'good', 'bye')\natexit.register(lambda: 1 / 0);")
        .await
        .ok();
    ipybox.reset().await;
    let text = ipybox.cell("1 + 1").await.ok();
    assert!(text.contains("good bye") && text.contains("division by zero"), "{text}");
    assert!(text.starts_with("[Output of earlier cells") && text.ends_with('2'), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn shared_memory_is_removed_at_the_exit() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    let code = "from multiprocessing import shared_memory\nmemory = shared_memory.SharedMemory(create=True, size=10)\nprint(memory.name)";
    let name = ipybox.cell(code).await.ok();
    let file = std::path::Path::new("/dev/shm").join(&name);
    assert!(file.exists());
    ipybox.reset().await;
    assert!(!file.exists());
    ipybox.stop().await;
}

#[tokio::test]
async fn a_finalizer_finds_what_it_names_and_frames_of_an_exception_let_go() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&PATIENT_EXIT).await;
    let code = "
import os
path = os.path.join(os.getcwd(), 'finalized')
def save(text): open(path, 'w').write(text)
class Owner:
    def __del__(self): save('whole')
owner = Owner(); owner.itself = owner
def fail():
    file = open('raised', 'w'); file.write('raised')
    raise ValueError
fail()";
    ipybox.cell(code).await.error();
    ipybox.reset().await;
    assert_eq!(place.read("finalized"), "whole");
    assert_eq!(place.read("raised"), "raised");
    ipybox.stop().await;
}
