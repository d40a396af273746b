//! Interrupts that come when a cell is about to end, or while it runs programs.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::{Place, all_say};

#[tokio::test]
async fn interrupts_that_race_with_the_end_of_a_cell_cost_nothing() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("keep = 0").await.ok();
    for round in 0..60 {
        let racing = ipybox.start_cell("keep += 1").await;
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
        ipybox.cancel(&racing).await;
        // The next cell is not hit by an interrupt that was meant for the one before.
        let text = ipybox.cell("1 + 1").await.ok();
        assert!(text == "2" || text.ends_with("[End of the earlier answer]\n\n2"), "round {round}: {text}");
    }
    for round in 1..20 {
        let arguments = json!({"code": "keep += 1", "timeout": f64::from(round) * 2e-4});
        let answer = ipybox.call("execute_ipython_cell", arguments).await;
        assert!(!answer.is_error || answer.text.contains("still there"), "{}", answer.text);
    }
    assert_eq!(ipybox.cell("keep > 0").await.ok(), "True");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_interrupt_ends_a_loop_of_shell_commands_and_the_rest_of_the_cell() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for code in ["x = 1\nwhile True:\n    !sleep 0.05", "x = 1\n!sleep 60\nx = 2"] {
        let arguments = json!({"code": code, "timeout": 10});
        let text = ipybox.call("execute_ipython_cell", arguments).await.error();
        assert!(text.contains("still there"), "{code}: {text}");
        assert_eq!(ipybox.cell("x").await.ok(), "1", "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn commands_are_given_to_the_users_shell_and_their_output_is_whole() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "%%capture printed\n!{__import__('sys').executable} -c \"print('日本語' * 700_000)\"";
    ipybox.cell(code).await.ok();
    all_say(
        &mut ipybox,
        &[
            ("printed.stdout.count('日本語'), len(printed.stdout.strip())", "(700000, 2100000)"),
            // Not every shell knows what another one does.
            ("import os; os.environ['SHELL'] = 'echo'\n!it is {1 + 1}", "-c it is 2"),
        ],
    )
    .await;
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
            ("!read answer 2>/dev/null </dev/tty; echo not asked", "not asked"),
            ("!echo $PAGER $GIT_PAGER $(stty size <&2)", "cat cat 24 80"),
            ("!sleep 60 & echo goes on", "goes on"),
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
async fn a_cell_is_interrupted_at_once_whatever_earlier_code_has_made_of_the_signal() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // As a server does that runs as a task: it begins between cells, and puts back what it has found when it stops.
    let server = "
import asyncio, signal
stop = asyncio.Event()
async def serve():
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    await stop.wait()
    signal.signal(signal.SIGINT, before)
task = asyncio.create_task(serve())";
    ipybox.cell(server).await.ok();
    ipybox.cell("await asyncio.sleep(0.01)\nstop.set()\nawait task").await.ok();
    ipybox.cell("signal.signal(signal.SIGINT, signal.SIG_IGN);").await.ok();
    for _ in 0..2 {
        // A signal that the code ignores would be followed by the end of the kernel.
        let code = "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('interrupted')";
        let text = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 10})).await.error();
        assert!(text.starts_with("interrupted\n") && text.contains("still there"), "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_script_ends_although_it_leaves_a_process_in_the_background() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("%%bash\nsleep 600 &\necho $! > id; echo done", "done"),
            ("%%sh --out text\n(sleep 600; echo late) & echo captured", "[no output]"),
            ("text", "'captured\\n'"),
            ("%%capture output\n%%bash\nsleep 600 & echo one; echo two >&2", "[no output]"),
            ("output.stdout, output.stderr", "('one\\n', 'two\\n')"),
            ("lines = !sleep 600 & echo line\nlines", "['line']"),
            ("!ps -o comm= -p $(cat id)", "sleep"),
            ("%%script cat\nnot ended by a line break", "not ended by a line break"),
        ],
    )
    .await;
    let text =
        ipybox.call("execute_ipython_cell", json!({"code": "%%bash\nsleep 600", "timeout": 1})).await.error();
    assert!(text.contains("KeyboardInterrupt") && text.contains("still there"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn code_that_begins_only_after_its_interrupts_is_interrupted_too() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--undo-memory", "0"]).await;
    // A kernel that does not go on within two seconds is lost, as on a machine that is very busy.
    for attempt in 0..20 {
        let process = ipybox.cell("import os\nkept = 1\nprint(os.getpid())").await.ok();
        let process = Pid::from_raw(process.lines().last().unwrap().parse().unwrap());
        kill(process, Signal::SIGSTOP).unwrap();
        let endless = json!({"code": "while True: pass", "timeout": 0.1});
        let endless = ipybox.start_call("execute_ipython_cell", endless).await;
        tokio::time::sleep(Duration::from_millis(4_200)).await;
        kill(process, Signal::SIGCONT).ok();
        let text = endless.answer().await.error();
        if text.contains("still there") {
            assert_eq!(ipybox.cell("kept").await.ok(), "1", "attempt {attempt}");
            ipybox.stop().await;
            return;
        }
    }
    panic!("the code was never interrupted");
}
