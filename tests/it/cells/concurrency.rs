//! Processes, threads and tasks that code starts.

use serde_json::json;

use crate::support::{Place, all_fail, all_say, eventually};

#[tokio::test]
pub(crate) async fn processes_and_threads_work_together() {
    let place = Place::new();
    place.write("square.py", "def square(x): return x * x");
    let mut ipybox = place.ipybox().await;
    let pool = |method: &str| {
        format!(
            "with multiprocessing.get_context('{method}').Pool(2) as pool: print(pool.map(square, range(4)))"
        )
    };
    all_say(
        &mut ipybox,
        &[
            ("import multiprocessing, os, subprocess, sys, threading\nfrom concurrent.futures import *\nfrom square import square", "[no output]"),
            (&pool("fork"), "[0, 1, 4, 9]"),
            (&pool("spawn"), "[0, 1, 4, 9]"),
            (&pool("forkserver"), "[0, 1, 4, 9]"),
            // A worker that goes on: what it has printed does not wait for its end.
            ("pool = multiprocessing.get_context('spawn').Pool(1); pool.apply(print, ['from a worker'])", "from a worker"),
            ("pool.terminate()", "[no output]"),
            ("with ProcessPoolExecutor(2) as pool: print(list(pool.map(square, range(4))))", "[0, 1, 4, 9]"),
            ("with ThreadPoolExecutor(2) as pool: print(list(pool.map(square, range(4))))", "[0, 1, 4, 9]"),
            ("child = os.fork()\nif child == 0: os._exit(5)\nos.waitstatus_to_exitcode(os.waitpid(child, 0)[1])", "5"),
            ("child = os.fork()\nif child == 0:\n    print('child'); sys.stdout.flush(); os._exit(0)\nend = os.waitpid(child, 0)", "child"),
            ("child = os.fork()\nif child == 0:\n    os.write(1, b'raw\\n'); os._exit(0)\nend = os.waitpid(child, 0)", "raw"),
            ("process = multiprocessing.get_context('fork').Process(target=print, args=['forked']); process.start(); process.join()", "forked"),
            ("thread = threading.Thread(target=print, args=['threaded']); thread.start(); thread.join()", "threaded"),
            ("print(subprocess.run('echo out; exit 4', shell=True, capture_output=True))", "CompletedProcess(args='echo out; exit 4', returncode=4, stdout=b'out\\n', stderr=b'')"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn lines_of_threads_and_forks_are_whole() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import multiprocessing, threading, time
def work(name):
    for i in range(200): print('line', i, 'of', name)
def run(kind):
    workers = [kind(target=work, args=[name]) for name in 'abcd']
    for worker in workers: worker.start()
    for worker in workers: worker.join()";
    ipybox.cell(code).await.ok();
    let mut expected: Vec<_> =
        "abcd".chars().flat_map(|name| (0..200).map(move |i| format!("line {i} of {name}"))).collect();
    expected.sort();
    for kind in ["threading.Thread", "multiprocessing.get_context('fork').Process"] {
        let call = json!({"code": format!("run({kind})"), "max_output_chars": 100_000});
        let text = ipybox.call("execute_ipython_cell", call).await.ok();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, expected, "{kind}");
    }
    // A line that stays open holds nobody up.
    let code = "
print('open', end='')
thread = threading.Thread(target=lambda: [print('.') for _ in range(100)])
thread.start(); thread.join(60); thread.is_alive()";
    assert_eq!(ipybox.cell(code).await.ok(), format!("open{}False", ".\n".repeat(100)));
    // Nor does a thread that leaves one open again and again: it would hold up each line for 0.1 s.
    let code = "
stop = threading.Event()
def dots():
    while not stop.wait(0.001): print('.', end='')
thread = threading.Thread(target=dots); thread.start()
def seconds():
    begun = time.perf_counter(); print('line'); taken = time.perf_counter() - begun
    time.sleep(0.003)
    return taken
all_seconds = sorted(seconds() for i in range(200))
stop.set(); thread.join()
all_seconds[150] < 0.09";
    let text = ipybox.cell(code).await.ok();
    assert!(text.ends_with("True"), "{text}");
    let code = "
def begin(): print('begun', end='', flush=True); open('has begun', 'w').close(); time.sleep(600)
process = multiprocessing.get_context('fork').Process(target=begin); process.start()
while True: time.sleep(0.01)";
    let running = ipybox.start_cell(code).await;
    let has_begun = place.workspace().join("has begun");
    eventually("the process has begun", || has_begun.exists()).await;
    ipybox.cancel(&running).await;
    let text = ipybox.cell("'next'").await.ok();
    assert!(text.contains("]\nbegun") && text.ends_with("'next'"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_event_loop_runs_on_from_cell_to_cell() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import asyncio, contextlib\nqueue = asyncio.Queue()\nasync def answer():\n    return 'got ' + await queue.get()\ntask = asyncio.create_task(answer())", "[no output]"),
            ("task.done()", "False"),
            ("queue.put_nowait('it')\nawait task", "'got it'"),
            ("async def count():\n    for i in range(3): yield i\nasync for i in count(): print(i)", "0\n1\n2"),
            ("@contextlib.asynccontextmanager\nasync def manager():\n    yield 'managed'\nasync with manager() as name: print(name)", "managed"),
            ("[i async for i in count()]", "[0, 1, 2]"),
            ("await asyncio.gather(*[asyncio.to_thread(pow, 2, i) for i in range(4)])", "[1, 2, 4, 8]"),
            // As in a script, which has no loop yet.
            ("asyncio.run(asyncio.sleep(0, 'run'))", "'run'"),
            ("asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, 'here'))", "'here'"),
            ("asyncio.get_event_loop().close(); task = asyncio.create_task(asyncio.sleep(0, 'again'))", "[no output]"),
            ("await task", "'again'"),
        ],
    )
    .await;
    let failing = [
        (
            "await asyncio.sleep(0)\nasyncio.run(asyncio.sleep(0))",
            "cannot be called from a running event loop",
        ),
        ("await asyncio.wait_for(asyncio.sleep(60), 0.01)", "TimeoutError"),
    ];
    all_fail(&mut ipybox, &failing).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn tasks_that_do_not_await_can_be_interrupted_and_forks_end_by_themselves() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import asyncio, os, time\nx = 1\nasync def busy():\n    while True: pass").await.ok();
    for code in ["await asyncio.gather(busy())", "task = asyncio.create_task(busy()); await task"] {
        let text = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 1})).await.error();
        assert!(text.contains("variables and imports are still there"), "{code}: {text}");
    }
    // One that lets no cell begin.
    ipybox.cell("task = asyncio.create_task(busy())").await.ok();
    let text = ipybox.call("execute_ipython_cell", json!({"code": "x", "timeout": 1})).await.error();
    assert!(text.contains("variables and imports are still there"), "{text}");
    let code = "async def fork():\n    await asyncio.sleep(0.1)\n    if os.fork() == 0: print('child')\ntask = asyncio.create_task(fork())";
    ipybox.cell(code).await.ok();
    ipybox.cell("await asyncio.sleep(0.5)").await.ok();
    for _ in 0..3 {
        assert!(ipybox.cell("x").await.ok().ends_with('1'));
    }
    for (code, expected) in [("raise ValueError('in the child')", "1"), ("raise SystemExit(3)", "3")] {
        let code = format!(
            "child = os.fork()\nif child == 0: {code}\nos.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
        );
        let text = ipybox.cell(&code).await.ok();
        assert!(text.ends_with(expected), "{code}: {text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn code_that_does_not_await_finds_no_running_loop() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let find = "try: print(asyncio.get_running_loop())\nexcept RuntimeError as error: print(error)";
    all_say(
        &mut ipybox,
        &[
            ("import asyncio\nasync def five():\n    await asyncio.sleep(0)\n    return 5", "[no output]"),
            (find, "no running event loop"),
            ("await five()", "5"),
            (find, "no running event loop"),
            // What begins tasks works all the same, also after `asyncio.run`, which leaves no loop.
            ("print(asyncio.run(five()))\ntasks = [asyncio.create_task(five()), asyncio.ensure_future(five()), asyncio.gather(five()), asyncio.shield(five())]\nlen(asyncio.all_tasks())", "5\n4"),
            ("[await task for task in tasks]", "[5, 5, [5], 5]"),
            (find, "no running event loop"),
            ("import anyio, sniffio\nanyio.run(five)", "5"),
            ("try: sniffio.current_async_library()\nexcept sniffio.AsyncLibraryNotFoundError: print('none')", "none"),
            ("asyncio.get_running_loop().is_running(), await five()", "(True, 5)"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn context_variables_stay_whether_a_cell_awaits_or_not() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import asyncio, contextvars, decimal\nV = contextvars.ContextVar('V', default=0)\nasync def value(it): return it", "[no output]"),
            ("token = V.set(await value(1)); decimal.getcontext().prec = 5", "[no output]"),
            ("V.get(), decimal.getcontext().prec", "(1, 5)"),
            ("V.get(), await value(decimal.getcontext().prec)", "(1, 5)"),
            ("token = V.set(2)", "[no output]"),
            ("await value(V.get())", "2"),
            ("import numpy\nbefore = numpy.seterr(divide=await value('raise'))", "[no output]"),
            ("numpy.geterr()['divide']", "'raise'"),
            // A task has its own.
            ("async def change(): V.set(9)\nawait asyncio.create_task(change())\nV.get()", "2"),
        ],
    )
    .await;
    all_fail(&mut ipybox, &[("V.set(await value(3))\n1 / 0", "ZeroDivisionError")]).await;
    all_say(&mut ipybox, &[("V.get()", "3")]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn pools_that_cannot_find_functions_of_cells_say_so() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let begin = "import multiprocessing\ndef square(x): return x * x\nclass Number:\n    pass";
    all_say(
        &mut ipybox,
        &[
            (begin, "[no output]"),
            ("with multiprocessing.Pool(2) as pool: print(pool.map(square, range(3)))", "[0, 1, 4]"),
        ],
    )
    .await;
    for method in ["spawn", "forkserver"] {
        let pool = format!("with multiprocessing.get_context('{method}').Pool(1) as pool: print(pool.");
        all_fail(
            &mut ipybox,
            &[
                (&format!("{pool}map(square, range(3)))"), "`square` is defined in a cell"),
                (&format!("{pool}apply(square, [2]))"), "`square` is defined in a cell"),
                (&format!("{pool}map(str, [Number()]))"), "`Number` is defined in a cell"),
                (&format!("process = multiprocessing.get_context('{method}').Process(target=square, args=[1]); process.start()"), "`square` is defined in a cell"),
            ],
        )
        .await;
        all_say(&mut ipybox, &[(&format!("{pool}map(abs, [-1]))"), "[1]")]).await;
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn what_a_thread_of_an_earlier_cell_prints_for_this_one_belongs_to_it() {
    let place = Place::new();
    place.write("workspace_module.py", "");
    let mut ipybox = place.ipybox().await;
    let begin = "
import asyncio, logging, logging.handlers, queue, threading
from multiprocessing.pool import ThreadPool
records = queue.SimpleQueue()
listener = logging.handlers.QueueListener(records, logging.StreamHandler()); listener.start()
logger = logging.getLogger('queued'); logger.addHandler(logging.handlers.QueueHandler(records)); logger.propagate = False
work, done = queue.Queue(), queue.Queue()
def worker():
    while True:
        item = work.get(); print('worked on', item); done.put(item)
threading.Thread(target=worker, daemon=True).start()
pool = ThreadPool(1)
items = asyncio.Queue()
async def consume():
    while True:
        item = await items.get(); print('consumed', item); items.task_done()
consumer = asyncio.create_task(consume())
begin, go = threading.Event(), threading.Event()
def late(): begin.set(); go.wait(); print('of the first cell')
thread = threading.Thread(target=late); thread.start()";
    ipybox.cell(begin).await.ok();
    all_say(
        &mut ipybox,
        &[
            ("logger.warning('logged'); listener.stop(); print('after'); listener.start()", "logged\nafter"),
            ("print('before'); work.put(1); item = done.get(); print('after')", "before\nworked on 1\nafter"),
            ("print('before'); pool.apply(lambda: print('pooled')); print('after')", "before\npooled\nafter"),
            ("await items.put(2); await items.join(); print('after')", "consumed 2\nafter"),
        ],
    )
    .await;
    let text = ipybox.cell("go.set(); thread.join(); print('own')").await.ok();
    assert!(text.starts_with("[Output of earlier cells") && text.ends_with("\n\nown"), "{text}");
    ipybox.stop().await;
}
