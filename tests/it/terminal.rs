//! What someone expects who knows IPython from a terminal: the surroundings of code, magics, processes, odd code.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;

use crate::support::{Ipybox, Place, kernel_python};

/// Runs cells that succeed, each with this text.
async fn all_say(ipybox: &mut Ipybox, cells: &[(&str, &str)]) {
    for (code, expected) in cells {
        assert_eq!(ipybox.cell(code).await.ok(), *expected, "{code}");
    }
}

/// Runs cells that fail, each with a text that contains this.
async fn all_fail(ipybox: &mut Ipybox, cells: &[(&str, &str)]) {
    for (code, expected) in cells {
        let text = ipybox.cell(code).await.error();
        assert!(text.contains(expected), "{code}: {text}");
    }
}

#[tokio::test]
async fn code_is_a_program_that_was_started_in_the_workspace() {
    let place = Place::new();
    place.write("script.py", "import sys\nprint(sys.argv, __name__, __file__)\nset_by_script = 5");
    let mut ipybox = place.ipybox().await;
    let workspace = place.workspace();
    let script = format!("['script.py', 'a', 'b c'] __main__ {}", workspace.join("script.py").display());
    all_say(
        &mut ipybox,
        &[
            ("import os; os.getcwd() == os.path.realpath(os.getcwd())", "True"),
            ("print(os.getcwd())", workspace.to_str().unwrap()),
            ("if __name__ == '__main__': print('main')", "main"),
            ("__import__('__main__').__dict__ is globals()", "True"),
            ("import argparse; argparse.ArgumentParser().parse_args()", "Namespace()"),
            ("%run script.py a 'b c'", &script),
            ("set_by_script", "5"),
            ("sub = 'sub'; os.mkdir(sub)", "[no output]"),
            ("%cd -q {sub}", "[no output]"),
            ("os.path.basename(os.getcwd())", "'sub'"),
            ("%cd -q ..", "[no output]"),
        ],
    )
    .await;
    all_fail(&mut ipybox, &[("__file__", "NameError")]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn standard_input_is_at_its_end() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import os, subprocess, sys; sys.stdin.read(), sys.stdin.isatty()", "('', False)"),
            ("sys.stdin.readline(), list(sys.stdin)", "('', [])"),
            ("subprocess.run(['cat'], capture_output=True).stdout", "b''"),
            ("os.popen('cat').read()", "''"),
            ("os.system('cat')", "0"),
            ("lines = !cat\nlines", "[]"),
            ("!cat; echo end", "end"),
            ("!read line; echo \"got ($line)\"", "got ()"),
            ("%%bash\ncat; echo end", "end"),
        ],
    )
    .await;
    ipybox.stop().await;
}

/// What a child process of this Python, started by us, says of its signals.
fn signals_of_a_plain_child(code: &str) -> String {
    let output = Command::new(kernel_python()).args(["-c", code]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn signals_do_what_they_do_in_a_plain_python() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // The last bits are of signals that the C library uses itself, the first are of those that a shell lets programs in
    // the background ignore: HUP, INT, QUIT.
    let child = "
import subprocess
lines = subprocess.check_output(['grep', '-E', 'SigBlk|SigIgn', '/proc/self/status'], text=True).split()
print([hex(int(mask, 16) & 0x7fff_fff8) for mask in lines[1::2]])";
    all_say(
        &mut ipybox,
        &[
            (child, &signals_of_a_plain_child(child)),
            ("import signal, os, time; signal.getsignal(signal.SIGINT) is signal.default_int_handler", "True"),
            ("[signal.getsignal(getattr(signal, 'SIG' + name)).name for name in ('TERM', 'CHLD', 'USR1', 'ALRM')] == ['SIG_DFL'] * 4", "True"),
            ("signal.pthread_sigmask(signal.SIG_BLOCK, [])", "set()"),
            ("ring = signal.signal(signal.SIGALRM, lambda *_: print('rang'))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()", "rang"),
            ("try: os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\nexcept KeyboardInterrupt: print('caught')", "caught"),
            ("subprocess.run('kill -PIPE $$', shell=True).returncode", "-13"),
        ],
    )
    .await;
    all_fail(
        &mut ipybox,
        &[
            ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", "KeyboardInterrupt"),
            ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", "SIGTERM"),
        ],
    )
    .await;
    ipybox.stop().await;
}

/// The pipes and sockets that a process has open.
fn channels(process: i32) -> BTreeSet<String> {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let names = targets.map(|target| target.display().to_string());
    names.filter(|name| name.starts_with("pipe:") || name.starts_with("socket:")).collect()
}

#[tokio::test]
async fn nothing_leaks_into_the_kernel_nor_out_of_it() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let kernel: i32 = ipybox.cell("import os; print(os.getpid())").await.ok().parse().unwrap();
    let (ours, kernels) = (channels(ipybox.id()), channels(kernel));
    // What our own parent left open is not the server's.
    let alien = channels(std::process::id().try_into().unwrap());
    let common: Vec<_> = ours.intersection(&kernels).filter(|&name| !alien.contains(name)).collect();
    assert_eq!(common.len(), 1, "more than the kernel's stderr, which the server reads: {common:?}");
    let leaked = format!(
        "print(*[fd for fd in map(int, os.listdir('/proc/self/fd')) if fd > 2 and fd not in {:?} and \
         os.path.exists(f'/proc/self/fd/{{fd}}') and os.get_inheritable(fd)])",
        inherited(),
    );
    all_say(
        &mut ipybox,
        &[
            (&leaked, "[no output]"),
            ("os.nice(0)", &niceness()),
            ("mask = os.umask(0); os.umask(mask); print(f'{mask:04o}')", &umask()),
        ],
    )
    .await;
    ipybox.stop().await;
}

/// The descriptors of ours that every child inherits, because our own parent left them open.
fn inherited() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
    numbers.filter(|number| !closes_on_exec(*number)).collect()
}

fn closes_on_exec(descriptor: i32) -> bool {
    let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")) else { return true };
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t")).unwrap();
    i32::from_str_radix(flags, 8).unwrap() & nix::libc::O_CLOEXEC != 0
}

/// Ours, which every child has unless it is changed.
fn niceness() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The 19th field; the second is a name in parentheses.
    stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned()
}

fn umask() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("Umask:\t")).unwrap().to_owned()
}

#[tokio::test]
async fn the_environment_is_a_plain_one() {
    let place = Place::new();
    place.write("startup.py", "started = True");
    let startup = place.workspace().join("startup.py").display().to_string();
    let flags = ["--python", kernel_python().to_str().unwrap().to_owned().leak()];
    let mut ipybox = place.start_with(&flags, &[("PYTHONSTARTUP", &startup), ("UNKNOWN", "1")]).await;
    ipybox.initialize().await;
    all_say(
        &mut ipybox,
        &[
            ("'started' in globals()", "False"),
            ("import os, sys; os.environ.get('UNKNOWN'), os.environ.get('PYTHONSTARTUP')", "(None, None)"),
            ("os.path.isdir(os.path.expanduser('~')), os.environ['PATH'] != ''", "(True, True)"),
            (
                "{encoding.lower() for encoding in (sys.getfilesystemencoding(), sys.stdout.encoding, open(os.devnull).encoding)}",
                "{'utf-8'}",
            ),
            ("%env NEW=new value", "env: NEW=new value"),
            ("%env NEW", "'new value'"),
            ("!echo $NEW", "new value"),
            (
                "open('naïve ☃.txt', 'w').write('é'); sorted(name for name in os.listdir() if 'na' in name)",
                "['naïve ☃.txt']",
            ),
            ("!cat naï*", "é"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn magics_do_what_they_say() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("%%writefile square.py\ndef square(x): return x * x", "Writing square.py"),
            ("from square import square; square(3)", "9"),
            ("%%writefile -a square.py\ncube = lambda x: x ** 3", "Appending to square.py"),
            ("%%capture captured\nprint('captured'); display(1)", "[no output]"),
            ("captured.stdout, len(captured.outputs)", "('captured\\n', 1)"),
            ("%%bash\necho one\necho two >&2", "one\ntwo"),
            ("%%bash --out text\necho one", "[no output]"),
            ("text", "'one\\n'"),
            ("%%script cat\ninput", "input"),
            ("!exit 3", "[no output]"),
            ("_exit_code", "3"),
            ("lines = !echo one; echo two\nlines", "['one', 'two']"),
            ("word = 'brace'\n!echo {word} $word {word.upper()} $$HOME | cut -d/ -f1", "brace brace BRACE"),
            ("%who_ls str", "['text', 'word']"),
            ("6 * 7", "42"),
            ("_", "42"),
            ("6 * 7;", "[no output]"),
            ("%reset -f", "[no output]"),
            ("'word' in globals()", "False"),
            ("%load_ext autoreload\n%autoreload 2", "[no output]"),
            ("%matplotlib inline", "[no output]"),
        ],
    )
    .await;
    for (code, part) in [
        ("%timeit -n1 -r1 pass", "per loop"),
        ("len?", "Return the number of items in a container."),
        ("%prun sum([1])", "function calls"),
        ("%history", "square(3)"),
    ] {
        let text = ipybox.cell(code).await.ok();
        assert!(text.contains(part), "{code}: {text}");
    }
    let text = ipybox.cell("%%time\n6 * 7").await.ok();
    assert!(text.contains("Wall time") && text.ends_with("\n42"), "{text}");
    let failing = [
        ("%%bash\necho before\nexit 2", "before\n"),
        ("%%bash\nexit 2", "CalledProcessError"),
        ("%run nosuchscript.py", "not found"),
        ("%nosuchmagic", "UsageError"),
        ("%timeit -z", "UsageError"),
    ];
    all_fail(&mut ipybox, &failing).await;
    ipybox.stop().await;
}

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
            ("asyncio.get_running_loop() is asyncio.get_event_loop()", "True"),
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
async fn odd_code_is_run_or_refused_as_python_would() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            // First, since it repeats answers where there are any.
            ("\n\n  \n", "[no output]"),
            ("for i in range(2):\r\n    print(i)\r\nprint('end')\r\n", "0\n1\nend"),
            ("if True:\n\tprint('tab')\n", "tab"),
            ("# nothing\n# but comments", "[no output]"),
            ("'''docstring'''", "'docstring'"),
            ("x = 1; \\\ny = 2; x, \\\n    y", "(1, 2)"),
            ("print('''a\n\tb\r\nc''')", "a\n\tb\nc"),
            ("π = 3; print(f'{π} ☃ 👩‍👩‍👧')", "3 ☃ 👩‍👩‍👧"),
        ],
    )
    .await;
    all_fail(
        &mut ipybox,
        &[
            ("if", "SyntaxError"),
            ("if True:\n\tx = 1\n        y = 2\n", "TabError"),
            ("1 + \0 1", "null bytes"),
            ("return 1", "outside function"),
            ("x = 'unclosed", "SyntaxError"),
        ],
    )
    .await;
    // A lone surrogate in JSON, which is no Unicode text.
    let members = r#""jsonrpc":"2.0","method":"tools/call","params":{"name":"execute_ipython_cell","arguments":{"code":"len('\ud800')"}}"#;
    assert_eq!(ipybox.raw_request(members).await.answer().await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn five_megabytes_of_code_are_run() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let list = format!("items = [\n{}]\nlen(items)", format!("'{}',\n", "a".repeat(96)).repeat(50_000));
    assert_eq!(ipybox.cell(&list).await.ok(), "50000");
    let text = format!("len('''{}''')", "é\n".repeat(1_700_000));
    assert_eq!(ipybox.cell(&text).await.ok(), "3400000");
    ipybox.stop().await;
}

#[tokio::test]
async fn huge_failures_are_told_in_brief() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let chain = "
def fail(count):
    cause = None
    for number in range(count):
        try: raise ValueError(f'link {number}') from cause
        except ValueError as error: cause = error
    raise cause
fail(300)";
    for (code, end) in [
        ("def deeper(): deeper()\ndeeper()", "RecursionError: maximum recursion depth exceeded"),
        (chain, "ValueError: link 299"),
        (
            "raise ExceptionGroup('many', [ValueError(i) for i in range(10_000)])",
            "many (10000 sub-exceptions)",
        ),
        ("10 ** 5000", "use sys.set_int_max_str_digits() to increase the limit"),
        (
            "class Silent(Exception):\n    def __str__(self): raise RuntimeError('no text')\nraise Silent",
            "RuntimeError: no text",
        ),
    ] {
        let text = ipybox.cell(code).await.error();
        assert!(text.len() < 20_000 && text.contains(end), "{code}: {text}");
    }
    assert_eq!(ipybox.cell("print(10 ** 4000)").await.ok().len(), 4001);
    ipybox.stop().await;
}

#[tokio::test]
async fn leaving_python_leaves_the_kernel_running() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import sys; x = 1").await.ok();
    let ways = [
        ("print('before'); sys.exit()", "before\n"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise SystemExit('why')", "SystemExit: why"),
    ];
    all_fail(&mut ipybox, &ways).await;
    for way in ["exit", "quit()", "exit()"] {
        ipybox.cell(way).await.ok();
    }
    // ipykernel of its own ends a tenth of a second later.
    all_say(&mut ipybox, &[("import time; time.sleep(0.3); x", "1"), ("x + 1", "2")]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn an_interrupt_ends_a_loop_of_shell_commands_and_the_rest_of_the_cell() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for code in ["x = 1\nwhile True:\n    !sleep 0.05", "x = 1\n!sleep 60\nx = 2"] {
        let arguments = json!({"code": code, "timeout": 2});
        let text = ipybox.call("execute_ipython_cell", arguments).await.error();
        assert!(text.contains("still there"), "{code}: {text}");
        assert_eq!(ipybox.cell("x").await.ok(), "1", "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn vandalism_lasts_until_the_reset() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for code in [
        "import sys, os; sys.stdout = sys.stderr = open(os.devnull, 'w')",
        "import builtins; del builtins.print, builtins.len",
        "del __builtins__",
        "get_ipython().kernel = None",
        "import builtins; builtins.__dict__.clear()",
        "import os; os.close(0); os.close(1); os.close(2)",
        "import os; os.environ.clear()",
        "get_ipython().reset(); get_ipython().display_pub = get_ipython().displayhook = None",
    ] {
        ipybox.cell(code).await;
        ipybox.reset().await;
        let check = "import os\nprint(len(os.environ) > 0)\nos.path.exists(os.getcwd())";
        assert_eq!(ipybox.cell(check).await.ok(), "True\nTrue", "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn a_vanished_working_directory_does_not_stop_code() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')").await.ok();
    all_say(&mut ipybox, &[("1 + 1", "2"), ("import json.tool, csv; 'imported'", "'imported'")]).await;
    all_fail(&mut ipybox, &[("os.getcwd()", "FileNotFoundError")]).await;
    all_say(&mut ipybox, &[("os.chdir('/'); os.getcwd()", "'/'")]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn logs_warnings_and_tables_are_shown() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import logging, sys, warnings\nlogging.basicConfig()\nlogging.warning('first')\nlogging.getLogger('own').error('second')\nlogging.info('hidden')", "WARNING:root:first\nERROR:own:second"),
            ("import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})", "   a  b\n0  1  x\n1  2  y"),
            ("display(pandas.Series([1.5], name='s'))", "0    1.5\nName: s, dtype: float64"),
            ("print(1, end=''); print(2, end='', file=sys.stderr)", "12"),
        ],
    )
    .await;
    let text = ipybox.cell("warnings.warn('careful')\n'done'").await.ok();
    assert!(text.contains("UserWarning: careful") && text.ends_with("'done'"), "{text}");
    let many = json!({"code": "for i in range(100): print(f'\\r{i}%', end='', flush=True)"});
    let text = ipybox.call("execute_ipython_cell", many).await.ok();
    assert!(text.ends_with("99%"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn failures_that_ipython_only_prints_are_errors() {
    let place = Place::new();
    place.write("bad.py", "print('script')\n1 / 0");
    let mut ipybox = place.ipybox().await;
    all_fail(
        &mut ipybox,
        &[
            ("%nosuchmagic", "UsageError: Line magic function `%nosuchmagic` not found."),
            ("%run bad.py", "ZeroDivisionError"),
            ("raise SystemExit(3)", "SystemExit: 3"),
        ],
    )
    .await;
    let version = ipybox.cell("import sys; sys.version_info >= (3, 11)").await.ok();
    if version == "True" {
        let text = ipybox.cell("raise ExceptionGroup('group', [ValueError('one')])").await.error();
        assert!(text.contains("ValueError: one") && text.contains("group (1 sub-exception)"), "{text}");
    }
    let handled = "try: 1 / 0\nexcept Exception: get_ipython().showtraceback()\nprint('after')";
    let text = ipybox.cell(handled).await.ok();
    assert!(text.ends_with("ZeroDivisionError: division by zero\nafter"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn exit_does_not_end_the_kernel() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("x = 1").await.ok();
    for code in ["exit", "quit()"] {
        assert_eq!(ipybox.cell(code).await.ok(), "`exit` does not end the kernel: reset it for a fresh one.");
    }
    all_say(&mut ipybox, &[("import time; time.sleep(0.5); x", "1"), ("x", "1")]).await;
    let text = ipybox.cell("import sys; sys.exit()").await.error();
    assert!(!text.contains("To exit: use"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn commands_wait_for_no_input_and_can_be_interrupted() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("x = 5; name = 'value'").await.ok();
    all_say(
        &mut ipybox,
        &[
            ("!cat", "[no output]"),
            ("!read line; echo got $line", "got"),
            ("!echo {name} $name", "value value"),
        ],
    )
    .await;
    for code in [
        "while True:\n    !sleep 0.2",
        "!sleep 60\nopen('ran on', 'w')",
        "lines = !sleep 60\nopen('ran on', 'w')",
        "!trap '' INT; sleep 60; sleep 60",
    ] {
        let text = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 1})).await.error();
        assert!(text.contains("still there") && text.contains("KeyboardInterrupt"), "{code}: {text}");
    }
    assert!(!place.workspace().join("ran on").exists());
    all_say(&mut ipybox, &[("x", "5"), ("!exit 3", "[no output]"), ("_exit_code", "3")]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn help_history_and_hidden_values_are_those_of_ipython() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    assert!(ipybox.cell("len?").await.ok().contains("Return the number of items in a container."));
    all_say(
        &mut ipybox,
        &[
            ("5;", "[no output]"),
            ("6", "6"),
            ("_ + 1", "7"),
            ("In[-2]", "'_ + 1'"),
            ("import sys; sys.argv", "['']"),
            ("import argparse; argparse.ArgumentParser().parse_args()", "Namespace()"),
            ("\u{feff}1 + 1", "2"),
        ],
    )
    .await;
    ipybox.stop().await;
}
