//! Kernels that die suddenly: what they printed, and what is said about it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Ipybox, Place};

const EXIT: &str = "os._exit(3)";
const KILL: &str = "os.kill(os.getpid(), signal.SIGKILL)";

/// What a cell that kills its kernel answers: within seconds, and the next cell works.
async fn last_words(ipybox: &mut Ipybox, code: &str) -> String {
    let code = format!("import ctypes, os, signal, subprocess, sys, threading, time\n{code}");
    let begin = Instant::now();
    let arguments = json!({"code": code, "max_output_chars": 50_000_000});
    let text = ipybox.call("execute_ipython_cell", arguments).await.error();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert!(text.contains("The IPython kernel died while running the cell"), "{text}");
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    text
}

#[tokio::test]
async fn what_was_printed_before_a_sudden_death_is_told() {
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
async fn what_was_delivered_before_a_death_is_not_told_twice() {
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
async fn both_streams_are_recovered_in_order() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "for i in range(1000): print(i, file=sys.stderr if i % 3 else sys.stdout)";
    let text = last_words(&mut ipybox, &format!("{code}\n{EXIT}")).await;
    let numbers = text.lines().map_while(|line| line.parse::<u32>().ok());
    assert!(numbers.eq(0..1000), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_flood_before_a_death_keeps_its_end_and_says_what_is_lost() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for flood in [
        "print('x' * 20_000_000 + 'end', end='')",
        "for _ in range(20_000): print('x' * 999)\nprint('end', end='')",
    ] {
        let text = last_words(&mut ipybox, &format!("{flood}\n{EXIT}")).await;
        let (output, _) = text.split_once("\n\nThe IPython kernel died").unwrap();
        assert!(output.ends_with("xend") || output.ends_with("x\nend"), "{} bytes", output.len());
        let (before, after) = output.split_once("[… ").unwrap_or((output, "0 characters lost …]"));
        let (lost, after) = after.split_once(" characters lost …]").unwrap();
        assert_eq!(before.len() + lost.parse::<usize>().unwrap() + after.len(), 20_000_003);
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn signal_handlers_threads_and_garbage_do_not_disturb_the_journal() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
signal.signal(signal.SIGALRM, lambda *_: print('tick'))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
threads = [threading.Thread(target=lambda: [print('thread') for _ in range(1000)]) for _ in range(4)]
[thread.start() for thread in threads]
for i in range(20_000): print(i)
[thread.join() for thread in threads]
signal.setitimer(signal.ITIMER_REAL, 0)
print('end', end='')";
    let text = last_words(&mut ipybox, &format!("{code}\n{EXIT}")).await;
    assert!(text.contains("end\n\nThe IPython"), "{text}");
    let garbage = "
ring = sys.stdout.journal._ring
ring[:] = os.urandom(len(ring))";
    last_words(&mut ipybox, &format!("{garbage}\nprint('x')\n{EXIT}")).await;
    let short = "print(os.truncate(os.path.dirname(sys.argv[0]) + '/journal', 0))";
    last_words(&mut ipybox, &format!("{short}\n{EXIT}")).await;
    ipybox.stop().await;
}
