//! Copies of sessions: their kernels are forks of each other.

use std::collections::BTreeSet;

use ipybox::{CodeExecutor, KernelClient};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::leaks::{HELD, no_more_than, numbers};
use crate::support::{Ipybox, Place, eventually, is_running, kernel_python, probe};

async fn cell(ipybox: &mut Ipybox, code: &str, session: &str) -> String {
    let text = ipybox.call("execute_ipython_cell", json!({"code": code, "session": session})).await.ok();
    // Without the words about the session.
    text.split_once("\n\n").map_or(text.clone(), |(_, text)| text.to_owned())
}

/// Copies a session, and returns the handle of the copy and the first answer from it.
async fn copy(ipybox: &mut Ipybox, session: &str, code: &str) -> (String, String) {
    let text = ipybox.call("execute_ipython_cell", json!({"code": code, "session": session})).await.ok();
    assert!(text.contains("`, a copy of `"), "{text}");
    (text.split('`').nth(1).unwrap().to_owned(), text)
}

#[tokio::test]
pub(crate) async fn a_copy_begins_with_the_variables_and_is_apart_from_then_on() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let prepare = "import os, random, sys\nos.mkdir('inner'); os.chdir('inner')\nx = [1]\ndef double(): return x * 2\n\
                   pid = os.getpid(); random.seed(1)";
    ipybox.cell(prepare).await.ok();
    let (first, text) =
        copy(&mut ipybox, "copy", "x.append(2); print(double(), os.path.basename(os.getcwd()))").await;
    assert!(text.ends_with("[1, 2, 1, 2] inner"), "{text}");
    let (second, text) = copy(&mut ipybox, &format!("copy of {first}"), "x.append(3); print(x)").await;
    assert!(text.starts_with(&format!("[New session `{second}`, a copy of `{first}`")), "{text}");
    assert!(text.ends_with("[1, 2, 3]"), "{text}");
    assert_eq!(ipybox.cell("print(x, os.getpid() == pid)").await.ok(), "[1] True");
    assert_eq!(cell(&mut ipybox, "print(x, os.getpid() == pid)", &first).await, "[1, 2] False");
    let numbers = [
        ipybox.cell("random.random()").await.ok(),
        cell(&mut ipybox, "random.random()", &first).await,
        cell(&mut ipybox, "random.random()", &second).await,
    ];
    assert_eq!(BTreeSet::from(numbers.clone()).len(), 3, "{numbers:?}");
    // Each goes on without the others.
    ipybox.call("reset", json!({})).await.ok();
    assert!(ipybox.cell("x").await.error().contains("NameError"));
    assert_eq!(cell(&mut ipybox, "import asyncio; await asyncio.sleep(0); x", &second).await, "[1, 2, 3]");
    ipybox.call("reset", json!({"session": second})).await.ok();
    assert_eq!(cell(&mut ipybox, "print('here'); x", &first).await, "here\n[1, 2]");
    let refused = ipybox.call("reset", json!({"session": "copy"})).await.error();
    assert!(refused.contains("a new session needs no reset"), "{refused}");
    let unknown = json!({"code": "1", "session": "copy of nobody"});
    assert!(
        ipybox
            .call("execute_ipython_cell", unknown)
            .await
            .error()
            .starts_with("there is no session `nobody`")
    );
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_copy_is_interrupted_dies_and_starts_anew_like_any_kernel() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import os, signal, time\nx = 1").await.ok();
    let (handle, _) = copy(&mut ipybox, "copy", "x = 2").await;
    let stuck = json!({"code": "time.sleep(600)", "timeout": 1, "session": handle});
    let text = ipybox.call("execute_ipython_cell", stuck).await.error();
    assert!(text.contains("variables and imports are still there"), "{text}");
    assert_eq!(cell(&mut ipybox, "x", &handle).await, "2");
    let kill = json!({"code": "print('last'); os.kill(os.getpid(), signal.SIGKILL)", "session": handle});
    let text = ipybox.call("execute_ipython_cell", kill).await.error();
    assert!(text.contains("died while running the cell (its exit status is unknown)"), "{text}");
    assert!(text.contains("last"), "{text}");
    let fresh = cell(&mut ipybox, "'x' in globals()", &handle).await;
    assert!(fresh.starts_with("The kernel was started anew") && fresh.ends_with("False"), "{fresh}");
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn both_call_tools_after_a_copy_with_tokens_of_their_own() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let call = "from mcptools.probe import echo\nprint(echo.run(echo.Params(text='hi')))";
    let before = "import os\nold = os.environ['IPYBOX_TOOL_SERVER_TOKEN'], os.environ['IPYBOX_TOOL_SERVER']";
    assert_eq!(ipybox.cell(&format!("{call}\n{before}")).await.ok(), "hi");
    let (handle, text) = copy(&mut ipybox, "copy", call).await;
    assert!(text.ends_with("hi"), "{text}");
    assert_eq!(ipybox.cell(call).await.ok(), "hi");
    let differs = "old[0] != os.environ['IPYBOX_TOOL_SERVER_TOKEN']";
    assert_eq!(ipybox.cell(differs).await.ok(), "True");
    // One that is refused changes nothing.
    let waiter = "import threading; event = threading.Event(); threading.Thread(target=event.wait).start()";
    ipybox.cell(waiter).await.ok();
    let refused = json!({"code": "1", "session": "copy"});
    ipybox.call("execute_ipython_cell", refused).await.error();
    assert_eq!(ipybox.cell(&format!("event.set()\n{call}")).await.ok(), "hi");
    // What the origin's memory had is worth nothing in the copy.
    let steal = "import http.client\nhost, _, port = old[1].rpartition(':')\n\
                 connection = http.client.HTTPConnection(host, int(port))\n\
                 connection.request('POST', '/run', '{}', {'Authorization': f'Bearer {old[0]}'})\n\
                 connection.getresponse().status";
    assert_eq!(cell(&mut ipybox, steal, &handle).await, "401");
    ipybox.stop().await;
}

/// Code, and a part of the reason why a kernel that has run it is not copied.
const REFUSED: [(&str, &str); 8] = [
    (
        "import threading\nevent = threading.Event()\nwaiter = threading.Thread(target=event.wait, name='waits')\nwaiter.start()",
        "the thread `waits` runs (`event`, `waiter`)",
    ),
    (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\npool.submit(print).result()",
        "runs (`pool`)",
    ),
    ("import multiprocessing\nworkers = multiprocessing.Pool(1)", "(`workers`)"),
    ("import subprocess\nserver = subprocess.Popen(['sleep', '600'])", "(`sleep 600`) runs (`server`)"),
    ("log = open('log.txt', 'w')", "log.txt` is open for writing (`log`)"),
    (
        "import sqlite3\nstore = sqlite3.connect('store.db')\nstore.execute('create table t(a)')",
        "store.db` is open for writing (`store`)",
    ),
    (
        "import logging\nlogging.getLogger('x').addHandler(logging.FileHandler('other.txt'))",
        "(`a handler of logging`)",
    ),
    ("import numpy\nmapped = numpy.memmap('map', mode='w+', shape=(10,))", "(`mapped`)"),
];

#[tokio::test]
async fn what_a_copy_would_suffer_from_is_refused_by_name() {
    let place = Place::new();
    let executor = executor(&place).start().await.unwrap();
    for (code, reason) in REFUSED {
        executor.execute(code).await.unwrap();
        let refused = executor.copy().await.unwrap_err().to_string();
        assert!(refused.starts_with("copy the kernel: ") && refused.contains(reason), "{code}\n{refused}");
        executor.execute("1").await.unwrap();
        executor.reset().await.unwrap();
    }
    // Its threads do not survive a fork.
    executor
        .execute("import polars\ntable = polars.DataFrame({'a': range(1000)}).group_by('a').len()")
        .await
        .unwrap();
    let refused = executor.copy().await.unwrap_err().to_string();
    assert!(refused.contains("of `polars`"), "{refused}");
    assert_eq!(text(&executor, "len(table)").await, "1000");
    executor.stop().await;
}

#[tokio::test]
async fn a_kernel_that_lies_about_its_fork_has_none_and_goes_on() {
    let place = Place::new();
    let executor = executor(&place).start().await.unwrap();
    let lie = "import os\nkernel = get_ipython().kernel\ndef lie(request):\n    \
               [os.close(number) for number in request['descriptors']]\n    \
               kernel._host.send('branch_reply', {'refusals': [], 'notes': ['a\\x1b[2Jb' * 1000] * 1000}, request['cell'].encode())\n\
               kernel._branch = lie";
    executor.execute(lie).await.unwrap();
    let error = executor.copy().await.unwrap_err().to_string();
    assert!(error.contains("it did not answer as it should"), "{error}");
    let refuse = lie.replace("'refusals': []", "'refusals': ['x\\x1b[2Jy\\nz' * 1000] * 1000");
    executor.execute(refuse.as_str()).await.unwrap();
    let error = executor.copy().await.unwrap_err().to_string();
    assert!(error.len() < 20_000 && !error.contains('\u{1b}'), "{error}");
    executor.execute("del kernel._branch").await.unwrap();
    let copied = executor.copy().await.unwrap();
    assert_eq!(text(&copied, "1").await, "1");
    copied.stop().await;
    executor.stop().await;
}

/// Code, and an expression that is the same in the origin and the copy afterwards.
const COPIED: [(&str, &str); 7] = [
    (
        "import numpy; a = numpy.linspace(0, 1, 250_000).reshape(500, 500); b = a @ a",
        "float((a @ a - b).sum())",
    ),
    (
        "import pandas; table = pandas.DataFrame({'a': range(1000)})",
        "int(table.groupby(table.a % 7).a.sum().max())",
    ),
    (
        "import pyarrow, pandas; t = pyarrow.table({'a': list(range(1000))})",
        "t.to_pandas().a.sum() + t.group_by('a').aggregate([('a', 'sum')]).num_rows",
    ),
    (
        "import matplotlib.pyplot as plt; line = plt.plot([1, 2, 3]); plt.close('all')",
        "bool(plt.plot([1, 2])) and plt.close('all')",
    ),
    (
        "import sqlite3; memory = sqlite3.connect(':memory:'); memory.executescript('create table t(a); insert into t values (7)')",
        "memory.execute('select a from t').fetchall()",
    ),
    (
        "open('lines', 'w').write('first\\nsecond\\nthird'); reader = open('lines'); reader.readline()",
        "reader.readline()",
    ),
    (
        "import io, tqdm; bars = [0 for _ in tqdm.tqdm(range(3), file=io.StringIO())]",
        "sum(0 for _ in tqdm.tqdm(range(3), file=io.StringIO()))",
    ),
];

#[tokio::test]
async fn libraries_work_in_the_copy_and_go_on_in_the_origin() {
    let place = Place::new();
    let executor = executor(&place).start().await.unwrap();
    for (code, expression) in COPIED {
        executor.execute(code).await.unwrap();
        let copied = executor.copy().await.unwrap();
        let in_copy = text(&copied, expression).await;
        copied.stop().await;
        assert_eq!(in_copy, text(&executor, expression).await, "{code}");
    }
    // A connection stays where it is, and what is made anew works in both.
    let serve = "import asyncio, requests, urllib.request\n\
        async def answer(reader, writer):\n    await reader.readuntil(b'\\r\\n\\r\\n')\n    \
        writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi'); await writer.drain()\n\
        server = await asyncio.start_server(answer, '127.0.0.1', 0)\nport = server.sockets[0].getsockname()[1]\n\
        background = asyncio.create_task(asyncio.sleep(1000))\nsession = requests.Session()\n\
        get = lambda: session.get(f'http://127.0.0.1:{port}').text\nawait asyncio.to_thread(get)";
    executor.execute(serve).await.unwrap();
    // The thread of `to_thread` would be missed.
    let refused = executor.copy().await.unwrap_err().to_string();
    assert!(refused.contains("the thread `asyncio_0`"), "{refused}");
    executor.execute("await asyncio.get_running_loop().shutdown_default_executor()").await.unwrap();
    let copied = executor.copy().await.unwrap();
    let ask = "reader, writer = await asyncio.open_connection('127.0.0.1', port)\nwriter.write(b'GET / HTTP/1.1\\r\\n\\r\\n')\n\
               print((await reader.read(100))[-2:], background.done())";
    assert_eq!(text(&copied, ask).await, "b'hi' False");
    assert_eq!(text(&executor, ask).await, "b'hi' False");
    copied.stop().await;
    executor.stop().await;
}

fn executor(place: &Place) -> ipybox::CodeExecutorBuilder {
    CodeExecutor::builder().working_dir(place.workspace()).state_dir(place.states()).python(kernel_python())
}

async fn text(executor: &CodeExecutor, code: &str) -> String {
    executor.execute(code).await.unwrap().text.unwrap_or_default()
}

/// The copies of one kernel.
const COPIES: usize = 200;

/// Defines `memory`, the kernel's own memory in kilobytes.
const MEMORY: &str = "
def memory():
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) for line in status if line.startswith('RssAnon'))";

#[tokio::test]
async fn many_copies_leave_no_descriptor_process_memory_or_exit_function_behind() {
    let place = Place::new();
    let executor = executor(&place).start().await.unwrap();
    executor.execute(HELD).await.unwrap();
    executor.execute(MEMORY).await.unwrap();
    executor.execute("import atexit, tempfile\nkept = tempfile.TemporaryDirectory()\natexit.register(open, 'ran', 'w')").await.unwrap();
    executor.copy().await.unwrap().stop().await;
    let memory = async || text(&executor, "memory()").await.parse::<usize>().unwrap();
    memory().await;
    let memory_before = memory().await;
    let before = numbers(&text(&executor, "held()").await);
    let own = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut processes = Vec::new();
    let open = own();
    for number in 0..COPIES {
        let copied = executor.copy().await.unwrap();
        let process = text(&copied, &format!("import os; kept_number = {number}; os.getpid()")).await;
        processes.push(process.parse::<i32>().unwrap());
        copied.stop().await;
    }
    assert_eq!(before[2], 0, "the kernel has children: {before:?}");
    no_more_than(before, async || text(&executor, "held()").await).await;
    // One page of each copy would be more.
    let grown = memory().await.saturating_sub(memory_before);
    assert!(grown < COPIES * 4, "{grown} kB after {memory_before}");
    // Other tests of this process open some, and close them again.
    eventually("each copy's descriptors are closed", || own() < open + COPIES).await;
    eventually("the copies are gone", || !processes.iter().any(|process| is_running(*process))).await;
    assert_eq!(text(&executor, "os.path.exists(kept.name), os.path.exists('ran')").await, "(True, False)");
    executor.stop().await;
}

#[tokio::test]
async fn a_copy_outlives_its_origin_and_ends_with_ipybox() {
    let place = Place::new();
    let origin =
        KernelClient::builder().working_dir(place.workspace()).python(kernel_python()).start().await.unwrap();
    origin.execute("x = 1").await.unwrap();
    let copied = origin.copy().await.unwrap();
    origin.stop().await;
    assert_eq!(
        copied.execute("import tempfile; tempfile.TemporaryFile(); x").await.unwrap().text.as_deref(),
        Some("1")
    );
    let again = copied.copy().await.unwrap();
    copied.stop().await;
    assert_eq!(again.execute("x").await.unwrap().text.as_deref(), Some("1"));
    again.reset().await.unwrap();
    assert!(again.execute("x").await.unwrap_err().to_string().contains("NameError"));
    again.stop().await;

    let mut ipybox = place.ipybox().await;
    ipybox.cell("import os").await.ok();
    let busy = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid())";
    let (handle, text) = copy(&mut ipybox, "copy", busy).await;
    let process = text.lines().last().unwrap().parse::<i32>().unwrap();
    let running = json!({"code": "while True: pass", "session": handle});
    let _running = ipybox.start_call("execute_ipython_cell", running).await;
    ipybox.signal(Signal::SIGKILL);
    eventually("the copy ends with ipybox", || !is_running(process)).await;
}

#[tokio::test]
async fn the_records_of_a_copy_name_its_origin() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let python = kernel_python();
    let flags =
        ["--python", python.to_str().unwrap(), "--notebook", "n.ipynb", "--audit-log", log.to_str().unwrap()];
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize().await;
    ipybox.cell("x = 1").await.ok();
    ipybox.cell("y = 1").await.ok();
    copy(&mut ipybox, "copy", "z = x + y").await;
    ipybox.stop().await;
    let lines = std::fs::read_to_string(log).unwrap();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let branch = events.iter().find(|event| event["event"] == "branch").expect(&lines);
    assert_eq!((&branch["parent"], &branch["cell"]), (&events[0]["session"], &json!(2)));
    assert_ne!(branch["session"], branch["parent"]);
    let notebooks: Vec<String> = std::fs::read_dir(place.workspace())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("n-") && name.ends_with(".ipynb"))
        .collect();
    let [notebook] = &notebooks[..] else { panic!("{notebooks:?}") };
    let notebook: Value = serde_json::from_str(&place.read(notebook)).unwrap();
    let heading = notebook["cells"][0]["source"].to_string();
    assert!(heading.contains("[another session](<n.ipynb>)"), "{heading}");
    assert_eq!(notebook["cells"][1]["execution_count"], json!(3));
}
