//! Kernels that die suddenly: what they printed, and what is said about it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::{Ipybox, Place, eventually, kernel_python, repository};

const EXIT: &str = "os._exit(3)";
const KILL: &str = "os.kill(os.getpid(), signal.SIGKILL)";

/// What a cell that kills its kernel answers, and the next cell works.
async fn last_words(ipybox: &mut Ipybox, code: &str) -> String {
    let code = format!("import ctypes, os, signal, subprocess, sys, threading, time\n{code}");
    let arguments = json!({"code": code, "max_output_chars": 50_000_000});
    let text = ipybox.call("execute_ipython_cell", arguments).await.error();
    assert!(text.contains("The IPython kernel died while running the cell"), "{text}");
    let next = ipybox.cell("1 + 1").await.ok();
    assert!(
        next.contains("variables and imports of earlier cells are gone") && next.ends_with("\n\n2"),
        "{next}"
    );
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    text
}

/// Whether a signal waits for a process that is stopped.
fn has_pending(process: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:\t")).unwrap();
    u64::from_str_radix(pending, 16).unwrap() & (1 << (signal as u32 - 1)) != 0
}

#[tokio::test]
async fn a_cell_that_has_not_begun_runs_in_the_next_kernel() {
    let place = Place::new();
    let python = kernel_python();
    // A kernel that is stopped while it forks would keep the cell waiting.
    let mut ipybox = place.start(&["--python", python.to_str().unwrap(), "--undo-memory", "0"]).await;
    ipybox.initialize().await;
    let kernel = Pid::from_raw(ipybox.cell("import os; os.getpid()").await.ok().parse().unwrap());
    // It reads nothing any more, and nobody notices.
    kill(kernel, Signal::SIGSTOP).unwrap();
    let running = ipybox.start_cell("print('once', 'kernel' in globals())").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    kill(kernel, Signal::SIGKILL).unwrap();
    let text = running.answer().await.ok();
    assert!(text.starts_with("The kernel was started anew, since it had ended (signal: 9"), "{text}");
    assert!(text.ends_with("are gone.\n\nonce False"), "{text}");
    // But not if its time was over by then.
    let kernel = Pid::from_raw(ipybox.cell("import os; os.getpid()").await.ok().parse().unwrap());
    kill(kernel, Signal::SIGSTOP).unwrap();
    let arguments = json!({"code": "open('ran', 'w').close()", "timeout": 0.5});
    let late = ipybox.start_call("execute_ipython_cell", arguments).await;
    eventually("the kernel is interrupted", || has_pending(kernel, Signal::SIGINT)).await;
    kill(kernel, Signal::SIGKILL).unwrap();
    assert!(late.answer().await.is_error);
    assert!(
        ipybox
            .cell("os.path.exists('ran') if 'os' in globals() else 'fresh'")
            .await
            .ok()
            .ends_with("'fresh'")
    );
    assert!(!place.workspace().join("ran").exists());
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn output_before_a_sudden_death_is_shown() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (death, status) in [
        (EXIT, "exit status: 3"),
        (KILL, "signal: 9 (SIGKILL)"),
        ("os.abort()", "signal: 6 (SIGABRT)"),
        ("ctypes.string_at(0)", "signal: 11 (SIGSEGV)"),
    ] {
        let text = last_words(&mut ipybox, &format!("print('before', 'é \\ud800')\n{death}")).await;
        assert!(text.starts_with("before é ?\n\n") && text.contains(status), "{text}");
        assert_eq!(text.matches("before é").count(), 1, "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn output_that_was_delivered_before_a_death_is_not_shown_twice() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for wait in ["time.sleep(0.5)", "sys.stdout.flush()", "display('shown')"] {
        let code = format!("print('early')\n{wait}\nprint('late', end='')\n{EXIT}");
        let text = last_words(&mut ipybox, &code).await;
        assert_eq!(text.matches("early").count(), 1, "{text}");
        assert!(text.contains("late\n\nThe IPython"), "{text}");
    }
    // A child's output comes by another way, and is not taken for the kernel's.
    let fork = "
child = os.fork()
if child == 0:
    print('from the child')
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
time.sleep(0.5)";
    let text = last_words(&mut ipybox, &format!("{fork}\nprint('own')\n{EXIT}")).await;
    assert_eq!(text.matches("from the child").count(), 1, "{text}");
    assert_eq!(text.matches("own").count(), 1, "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn both_streams_are_shown_in_order() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "for i in range(1000): print(i, file=sys.stderr if i % 3 else sys.stdout)";
    let text = last_words(&mut ipybox, &format!("{code}\n{EXIT}")).await;
    let numbers = text.lines().map_while(|line| line.parse::<u32>().ok());
    assert!(numbers.eq(0..1000), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_flood_of_output_before_a_death_is_shown_whole() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for flood in [
        "print('x' * 20_000_000 + 'end', end='')",
        "for _ in range(20_000): print('x' * 999)\nprint('end', end='')",
    ] {
        let text = last_words(&mut ipybox, &format!("{flood}\n{EXIT}")).await;
        let (output, _) = text.split_once("\n\nThe IPython kernel died").unwrap();
        assert!(output.ends_with("xend") || output.ends_with("x\nend"), "{} bytes", output.len());
        assert_eq!(output.len(), 20_000_003);
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn signal_handlers_and_threads_do_not_disturb_what_is_printed() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // Not faster than a busy machine runs the handler: else nothing but the handler runs.
    let code = "
signal.signal(signal.SIGALRM, lambda *_: print('tick'))
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
threads = [threading.Thread(target=lambda: [print('thread') for _ in range(1000)]) for _ in range(4)]
[thread.start() for thread in threads]
for i in range(20_000): print(i)
[thread.join() for thread in threads]
signal.setitimer(signal.ITIMER_REAL, 0)
print('end', end='')";
    let text = last_words(&mut ipybox, &format!("{code}\n{EXIT}")).await;
    assert!(text.contains("end\n\nThe IPython"), "{text}");
    assert_eq!(text.matches("thread").count(), 4000);
    // The handler prints between a number and the end of its line, too.
    let (output, _) = text.split_once("end\n\nThe IPython").unwrap();
    let digits = output.replace("thread", "").replace("tick", "").replace('\n', "");
    assert!(digits == (0..20_000).map(|number: u32| number.to_string()).collect::<String>());
    ipybox.stop().await;
}

#[tokio::test]
async fn a_signal_handler_that_raises_between_cells_costs_nothing() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import signal, sys
def fail(*_):
    open('failed', 'w').close()
    raise TimeoutError('too late')
previous = signal.signal(signal.SIGALRM, fail), signal.setitimer(signal.ITIMER_REAL, 10)
x = 5
'asyncio' in sys.modules";
    // The cell has long ended when the time is over.
    assert_eq!(ipybox.cell(code).await.ok(), "False");
    eventually("the handler has run", || place.workspace().join("failed").exists()).await;
    let text = ipybox.cell("x").await.ok();
    assert!(text.contains("TimeoutError: too late") && text.ends_with("\n5"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_kernel_that_dies_at_every_start_ends_in_an_error_and_is_not_started_in_a_loop() {
    let place = Place::new();
    let python = place.workspace().join("layer");
    let layer = repository().join("tests/tools/layer");
    assert!(
        tokio::process::Command::new(layer)
            .arg(kernel_python())
            .arg(&python)
            .status()
            .await
            .unwrap()
            .success()
    );
    let site = python.join("lib").read_dir().unwrap().next().unwrap().unwrap().path().join("site-packages");
    // Runs at every start of this Python; dies only where kernels run.
    let trap = "import os; os.path.exists('die') and (open('starts', 'a').write('x'), os.write(2, b'on purpose\\n'), os._exit(7))\n";
    std::fs::write(site.join("trap.pth"), trap).unwrap();
    let mut ipybox = place.start(&["--python", python.join("bin/python").to_str().unwrap()]).await;
    ipybox.initialize().await;
    let id: i32 = ipybox.cell("import os; os.getpid()").await.ok().parse().unwrap();
    place.write("die", "");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("the kernel is gone", || !std::path::Path::new(&format!("/proc/{id}")).exists()).await;
    let begin = Instant::now();
    for _ in 0..4 {
        let text = ipybox.cell("1").await.error();
        assert!(text.contains("exit status: 7") && text.contains("on purpose"), "{text}");
    }
    // The third and the fourth attempt wait, 1 and 2 seconds.
    assert!(begin.elapsed() > Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(place.read("starts").len(), 4);
    // A reset does not wait, and says why it fails.
    let text = ipybox.call("reset", json!({})).await.error();
    assert!(text.contains("exit status: 7"), "{text}");
    std::fs::remove_file(place.workspace().join("die")).unwrap();
    assert!(ipybox.cell("'alive'").await.ok().ends_with("'alive'"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_death_between_cells_is_noticed_at_once_and_reported_with_the_next_cell() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import os, signal, threading, time
def die():
    while not os.path.exists('go'): time.sleep(0.01)
    print('from the thread'); os.kill(os.getpid(), signal.SIGSEGV)
threading.Thread(target=die).start()
os.getpid()";
    let id: i32 = ipybox.cell(code).await.ok().parse().unwrap();
    place.write("go", "");
    // Reaped, that is: noticed.
    eventually("the kernel is gone", || !std::path::Path::new(&format!("/proc/{id}")).exists()).await;
    let text = ipybox.cell("'next'").await.ok();
    for words in
        ["signal: 11 (SIGSEGV)", "variables and imports of earlier cells are gone", "from the thread"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.ends_with("'next'"), "{text}");
    assert_eq!(ipybox.cell("'next'").await.ok(), "'next'");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn code_that_never_lets_go_of_the_interpreter_is_ended_with_what_it_printed() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("x = 1").await.ok();
    // One call in C that keeps the interpreter's lock: neither the output nor an interrupt gets through.
    let code = "print('so far'); import re; re.match('(a*)*b', 'a' * 60)";
    let text = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 10})).await.error();
    assert!(text.starts_with("so far\n\n") && text.contains("timed out after 10 seconds"), "{text}");
    assert!(text.contains("all variables and imports are gone") || text.contains("still there"), "{text}");
    assert!(ipybox.cell("1 + 1").await.ok().ends_with('2'));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_death_is_noticed_while_a_program_goes_on_to_print() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "import os, subprocess\nsubprocess.Popen(['yes'], start_new_session=True)\nos._exit(3)";
    let text = ipybox.cell(code).await.error();
    assert!(text.contains("exit status: 3"), "{text}");
    assert!(ipybox.cell("1 + 1").await.ok().ends_with('2'));
    ipybox.stop().await;
}
