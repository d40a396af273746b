//! What `execute_ipython_cell` promises.

use serde_json::json;

use crate::support::{Place, eventually};

#[tokio::test]
pub(crate) async fn output_is_what_ipython_shows() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (code, expected) in [
        ("", "[no output]"),
        ("x = 41", "[no output]"),
        ("x + 1", "42"),
        ("print('a'); x", "a\n41"),
        ("import sys; print('out'); print('err', file=sys.stderr); 'value'", "out\nerr\n'value'"),
        ("import asyncio; await asyncio.sleep(0); 'awaited'", "'awaited'"),
        ("!echo from the shell", "from the shell"),
        ("%%bash\necho from bash", "from bash"),
        ("display(1); display('two')", "1\n'two'"),
        ("'é' * 3", "'ééé'"),
        ("print('lone \\ud800 surrogate')", "lone ? surrogate"),
        ("print('tab\\tand null \\x00 and bell \\x07')", "tab\tand null \u{0} and bell \u{7}"),
    ] {
        assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn code_runs_in_the_workspace() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    assert_eq!(ipybox.cell("%pwd").await.ok(), format!("'{}'", place.workspace().display()));
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn an_exception_is_an_error_with_what_was_printed_before() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.cell("print('before')\ndef broken(): return 1 / 0\nbroken()").await.error();
    assert!(text.starts_with("before\n"), "{text}");
    assert!(text.contains("in broken()") && text.ends_with("ZeroDivisionError: division by zero"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let text = ipybox.cell("def (").await.error();
    assert!(text.contains("SyntaxError"), "{text}");
    let text = ipybox.cell("raise ValueError('x' * 1_000_000 + 'end')").await.error();
    assert!(text.len() < 20_000 && text.ends_with("end"), "{} bytes", text.len());
    ipybox.stop().await;
}

#[tokio::test]
async fn asking_for_input_fails_at_once() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for code in ["input('? ')", "import getpass; getpass.getpass()"] {
        let text = ipybox.cell(code).await.error();
        assert!(text.ends_with("Write the values into the code instead of asking for them."), "{text}");
        assert!(text.contains("StdinNotImplementedError: nobody can answer"), "{text}");
    }
    assert_eq!(ipybox.cell("import sys; sys.stdin.read()").await.ok(), "''");
    ipybox.stop().await;
}

#[tokio::test]
async fn asking_for_a_debugger_fails_at_once_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("1 / 0").await.error();
    for code in [
        "x = 1\nbreakpoint()\nx = 2\nx = 3",
        "def f():\n    breakpoint()\n    return 1\nf()",
        "import pdb; pdb.set_trace()\nprint('after')",
        "import pdb; pdb.run('1')",
        "import pdb; pdb.pm()",
        "%debug",
        "%pdb on",
        "%pdb",
    ] {
        let text = ipybox.cell(code).await.error();
        assert!(text.contains("StdinNotImplementedError: nobody can give commands"), "{code}: {text}");
        assert_eq!(ipybox.cell("import sys; sys.gettrace(), 1 + 1").await.ok(), "(None, 2)", "{code}");
    }
    // IPython drops the exception.
    ipybox.cell("%debug 1 + 1").await.ok();
    let scripted = "import io, pdb\npdb.Pdb(stdin=io.StringIO('p 6 * 7\\nc\\n'), stdout=sys.stdout).run('1')";
    assert!(ipybox.cell(scripted).await.ok().contains("42"));
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn plots_are_saved_and_linked() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()\nprint('shown')";
    let text = ipybox.cell(code).await.ok();
    let images: Vec<_> = std::fs::read_dir(place.workspace().join("images")).unwrap().collect();
    assert_eq!(images.len(), 1);
    let path = images.into_iter().next().unwrap().unwrap().path();
    let stem = path.file_stem().unwrap().to_str().unwrap();
    assert!(stem.len() == 8 && stem.chars().all(|digit| digit.is_ascii_hexdigit()), "{stem}");
    assert_eq!(text, format!("shown\n\nGenerated images:\n\n- [{stem}]({})\n", path.display()));
    assert!(std::fs::read(&path).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn long_output_is_cut_with_a_notice() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let cut = json!({"code": "print('é' * 100)", "max_output_chars": 10});
    let text = ipybox.call("execute_ipython_cell", cut).await.ok();
    let (text, path) = text.split_once("\n[All 101 characters are in ").unwrap();
    let (begin, end) = ("é".repeat(5), "é".repeat(4));
    let notice = "[Output truncated: exceeded 10 character limit]";
    assert_eq!(text, format!("{begin}\n\n[… 91 characters left out …]\n\n{end}\n\n{notice}"));
    let whole = std::fs::read_to_string(path.trim_end_matches(']')).unwrap();
    assert_eq!(whole, format!("{}\n", "é".repeat(100)));
    let fits = json!({"code": "print('é' * 10)", "max_output_chars": 10});
    assert_eq!(ipybox.call("execute_ipython_cell", fits).await.ok(), "é".repeat(10));
    let whole = json!({"code": "print('x' * 10_000_000)", "max_output_chars": 20_000_000});
    assert_eq!(ipybox.call("execute_ipython_cell", whole).await.ok().len(), 10_000_000);
    let many = json!({"code": "for i in range(100_000): print(i)", "max_output_chars": 20_000_000});
    let text = ipybox.call("execute_ipython_cell", many).await.ok();
    assert!(text.lines().map(|line| line.parse::<u32>().unwrap()).eq(0..100_000));
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn code_that_takes_too_long_is_interrupted_and_variables_survive() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("x = 1").await.ok();
    let endless = json!({"code": "print('so far')\nwhile True: pass", "timeout": 10});
    let text = ipybox.call("execute_ipython_cell", endless).await.error();
    assert!(text.starts_with("so far\n\n") && text.contains("timed out after 10 seconds"), "{text}");
    assert!(text.contains("still there"), "{text}");
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn code_that_swallows_interrupts_loses_its_kernel_and_nothing_hangs() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let swallows = "
import signal
signal.signal(signal.SIGINT, lambda *_: None)
print('so far')
while True: pass";
    // Signals to its process group do not reach it any more.
    let leaves = "
import os, time
child = os.fork()
if not child:
    time.sleep(2)
    os._exit(0)
os.setpgid(child, child)
os.setpgid(0, child)";
    for code in [swallows.to_owned(), format!("{leaves}{swallows}")] {
        let text = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 10})).await.error();
        assert!(text.contains("so far\n\n") && text.contains("all variables and imports are gone"), "{text}");
        let text = ipybox.cell("1+1").await.ok();
        assert!(
            text.contains("started anew, since an earlier cell did not react") && text.ends_with("\n\n2"),
            "{text}"
        );
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn a_kernel_that_dies_is_replaced_and_its_death_reported() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.cell("print('last', flush=True)\nimport os, signal, time; time.sleep(0.3)\nos.kill(os.getpid(), signal.SIGKILL)").await.error();
    assert!(text.starts_with("last\n\n") && text.contains("signal: 9"), "{text}");
    let text = ipybox.cell("x = 1; x").await.ok();
    assert!(
        text.starts_with("The kernel was started anew, since it died while running an earlier cell"),
        "{text}"
    );
    assert!(text.ends_with("gone.\n\n1"), "{text}");
    let id: i32 = ipybox.cell("import os; os.getpid()").await.ok().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL).unwrap();
    let entry = std::path::PathBuf::from(format!("/proc/{id}"));
    eventually("the kernel's death was noticed", || !entry.exists()).await;
    let text = ipybox.cell("'alive'").await.ok();
    assert!(text.starts_with("The kernel was started anew") && text.ends_with("'alive'"), "{text}");
    assert_eq!(ipybox.cell("'alive'").await.ok(), "'alive'");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_reset_clears_variables_and_stops_what_runs() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("x = 1").await.ok();
    ipybox.reset().await;
    assert!(ipybox.cell("x").await.error().contains("NameError"));
    let started = place.workspace().join("started");
    let running = ipybox.start_cell(&format!("open({started:?}, 'w')\nwhile True: pass")).await;
    eventually("the cell runs", || started.exists()).await;
    ipybox.reset().await;
    assert!(running.answer().await.error().contains("reset"));
    assert_eq!(ipybox.cell("1+1").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn the_kernel_is_like_ipython_on_a_plain_terminal() {
    let place = Place::new();
    place.write("script.py", "print(__name__, 'ran')");
    let mut ipybox = place.ipybox().await;
    for (code, expected) in [
        ("%run script.py", "__main__ ran"),
        ("import os; os.environ['TERM'], os.environ['NO_COLOR']", "('dumb', '1')"),
        ("import sys; '' in sys.path", "True"),
        ("'asyncio' in sys.modules", "False"),
        (
            "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))",
            "[1, 2]",
        ),
        ("try: print(os.wait())\nexcept ChildProcessError: print('no children')", "no children"),
        ("get_ipython().ipython_dir.startswith('/tmp/') or get_ipython().ipython_dir", "True"),
    ] {
        assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn what_programs_print_belongs_to_the_cell_that_ran_them() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import os, subprocess, sys").await.ok();
    let busy = || std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut load = [busy(), busy()];
    let mut strays = Vec::new();
    for round in 0..200 {
        let code = match round % 4 {
            0 => format!("os.write(1, b'tick {round}\\n')"),
            1 => format!("os.system('echo tick {round}')"),
            2 => format!("subprocess.run(['sh', '-c', 'echo tick {round}'])"),
            _ => format!("os.write(2, b'tick {round}\\n')"),
        };
        let text = ipybox.cell(&format!("_ = {code}")).await.ok();
        if text != format!("tick {round}") {
            strays.push((code, text));
        }
    }
    for process in &mut load {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(strays.is_empty(), "{strays:?}");
    // Characters are not cut in two, and programs in the background hold up nothing.
    assert_eq!(
        ipybox.cell("_ = os.write(1, b'x' + 'é'.encode() * 2000)").await.ok(),
        format!("x{}", "é".repeat(2000))
    );
    // As much as a Jupyter server can pass on while other tests run: it keeps what it cannot, and all later messages behind it.
    let background =
        "endless = subprocess.Popen(['sh', '-c', 'while :; do yes x | head -n 2000; sleep 0.05; done'])";
    ipybox.cell(background).await.ok();
    for _ in 0..5 {
        ipybox.cell("1").await.ok();
    }
    ipybox.cell("endless.kill()").await.ok();
    ipybox.stop().await;
}
