//! What becomes of a cell's output: nothing is lost, and a reader without a screen can read it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::abuse::peak_kib;
use crate::support::{Place, eventually};

/// Cells and what they show, in one session.
async fn check(cells: &[(&str, &str)]) {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (code, expected) in cells {
        assert_eq!(ipybox.cell(code).await.ok(), *expected, "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn progress_bars_collapse_to_their_final_state() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import sys, time
for step in range(101):
    sys.stderr.write(f'\\r{step:3}%|' + '#' * (step // 10)); sys.stderr.flush()
print()";
    assert_eq!(ipybox.cell(code).await.ok(), "100%|##########");
    let text = ipybox.cell("from tqdm import tqdm\nfor _ in tqdm(range(300)): time.sleep(0.001)").await.ok();
    assert!(text.starts_with("100%|") && text.contains("300/300") && text.lines().count() == 1, "{text:?}");
    // What pip and rich write to the pseudo-terminal of a `!command`: several lines, drawn anew.
    let code = r#"!printf 'a 0%%\nb 0%%\r\033[2K\033[1A\033[2K\033[32ma 9%%\033[0m\nb 9%%\n'"#;
    assert_eq!(ipybox.cell(code).await.ok(), "a 9%\nb 9%");
    ipybox.stop().await;
}

#[tokio::test]
async fn every_kind_of_object_is_shown_as_text() {
    let styled = "<table><tr><td>1</td></tr></table>";
    let html = format!("from IPython.display import HTML; HTML('<style>td {{}}</style>{styled}')");
    check(&[
        ("from IPython.display import Markdown; Markdown('**bold**')", "**bold**"),
        ("from IPython.display import Latex; Latex('$x^2$')", "$x^2$"),
        ("from IPython.display import JSON; JSON({'a': [1, 2]})", r#"{"a":[1,2]}"#),
        (&html, styled),
        ("import pandas; pandas.DataFrame({'a': [1, 2]})", "   a\n0  1\n1  2"),
        ("display('one', 2)", "'one'\n2"),
        ("display({'text/plain': 'raw'}, raw=True)", "raw"),
        ("print('\\x1b[31mred\\x1b[0m')", "red"),
    ])
    .await;
}

#[tokio::test]
async fn displays_are_updated_and_cleared() {
    check(&[
        ("handle = display('first', display_id=True); print('x'); handle.update('second')", "'second'\nx"),
        ("handle.update('third')", "'third'"),
        ("display('a', display_id='odd'); display('b', display_id='odd', update=True);", "'b'"),
        ("from IPython.display import clear_output\nprint('a'); clear_output(); print('b')", "b"),
        ("for i in range(5):\n    clear_output(wait=True); print(i)", "4"),
        ("print('kept'); clear_output(wait=True)", "kept"),
    ])
    .await;
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn figures_are_saved_with_the_extension_of_their_format() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let images = place.workspace().join("images");
    ipybox.cell("%matplotlib inline\nimport matplotlib.pyplot as plt").await.ok();
    for (format, extension, magic) in
        [("jpeg", "jpg", b"\xff\xd8\xff".as_slice()), ("svg", "svg", b"<?xml"), ("pdf", "pdf", b"%PDF")]
    {
        let code = format!(
            "from matplotlib_inline.backend_inline import set_matplotlib_formats\n\
             set_matplotlib_formats('{format}')\nplt.plot([1, 2]); plt.show()"
        );
        let text = ipybox.cell(&code).await.ok();
        let name = names(&images).into_iter().find(|name| name.ends_with(&format!(".{extension}"))).unwrap();
        assert!(text.contains(&name), "{text}");
        assert!(std::fs::read(images.join(name)).unwrap().starts_with(magic));
    }
    let gif = "
import base64
from IPython.display import Image, display
data = base64.b64decode('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7')
display(Image(data, format='gif'))";
    assert!(ipybox.cell(gif).await.ok().contains(".gif)"));
    ipybox.stop().await;
}

#[tokio::test]
async fn an_animation_leaves_its_last_frame() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import matplotlib.pyplot as plt
from IPython.display import clear_output
for frame in range(4):
    clear_output(wait=True)
    plt.plot([frame, 1]); plt.show()";
    let text = ipybox.cell(code).await.ok();
    let saved = names(&place.workspace().join("images"));
    assert_eq!(saved.len(), 1, "{saved:?}");
    assert!(text.contains(&saved[0]), "{text}");
    ipybox.stop().await;
}

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
async fn output_that_cannot_be_saved_is_told() {
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

/// The late output that an answer tells, and the cell's own.
fn parts(text: &str) -> (String, String) {
    let begin = "[Output of earlier cells, after they had ended:]\n";
    let end = "\n[End of the output of earlier cells]";
    let Some(rest) = text.strip_prefix(begin) else { return (String::new(), text.to_owned()) };
    let (late, own) = rest.split_once(end).unwrap_or_else(|| panic!("no end: {text}"));
    (late.to_owned(), own.trim_start().to_owned())
}

#[tokio::test]
pub(crate) async fn what_threads_and_tasks_print_later_is_told_apart() {
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
    // The kernel reads what the child has written, and nothing tells that it has.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (late, own) = parts(&ipybox.cell("'own'").await.ok());
    assert_eq!(own, "'own'");
    for source in ["thread", "task", "child"] {
        assert!(late.contains(&format!("from the {source}")), "{source}: {late}");
    }
    // A cell that fails tells it too.
    let code = "go = threading.Event(); worker = threading.Thread(target=lambda: (go.wait(), print('late')))";
    ipybox.cell(&format!("{code}; worker.start()")).await.ok();
    let (late, own) = parts(&ipybox.cell("go.set(); worker.join(); 1 / 0").await.error());
    assert_eq!(late, "late");
    assert!(own.ends_with("division by zero"), "{own}");
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

#[tokio::test]
async fn libraries_know_that_nobody_has_a_browser() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.cell("from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass").await.ok();
    assert!(text.starts_with("100%|") && text.contains("3/3") && text.lines().count() == 1, "{text:?}");
    let code = "from rich.progress import track\nfor _ in track(range(3)): pass\nprint('done')";
    let text = ipybox.cell(code).await.ok();
    assert!(text.contains("100%") && text.ends_with("done") && text.lines().count() == 2, "{text:?}");
    let text = ipybox.cell("import rich; rich.print('[red]red[/red]', {'a': 1})").await.ok();
    assert_eq!(text, "red\n{'a': 1}");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_is_too_large_to_be_shown_is_an_error_of_the_cell() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "x = 1\nfrom IPython.display import Image\nImage(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(32_000_000), format='png')";
    let text = ipybox.cell(code).await.error();
    assert!(text.contains("at most 39 MiB can be shown"), "{text}");
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_no_cell_has_started_is_shown_with_the_one_that_runs() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import _thread, contextvars, time
_thread.start_new_thread(print, ('from a thread without a context',))
contextvars.Context().run(print, 'from an empty context')
contextvars.Context().run(display, 'shown')
time.sleep(0.2)";
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
