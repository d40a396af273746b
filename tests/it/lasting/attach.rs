//! People at prompts beside an agent's client.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Kept;
use crate::support::terminal::Terminal;
use crate::support::{PATIENCE, copy_program, environment, eventually, kernel_python, probe};

const ASKS: [&str; 3] = ["--approval", "ask", "--approve-shell-cmds"];

impl Kept {
    /// A prompt.
    fn prompt(&self) -> Terminal {
        Terminal::start(&["attach", "--state-dir", self.states().to_str().unwrap()])
    }

    /// Runs `ipybox attach` without a terminal.
    fn pipe(&self, program: &str, arguments: &[&str], code: &str) -> Output {
        let mut child = Command::new(program)
            .args(["attach", "--state-dir", self.states().to_str().unwrap()])
            .args(arguments)
            .env_clear()
            .envs(environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One that is refused does not read it.
        child.stdin.take().unwrap().write_all(code.as_bytes()).ok();
        child.wait_with_output().unwrap()
    }
}

/// Types text, and Tab until these words are shown: a kernel that does not say in time how the text may go on is asked again.
async fn completes(prompt: &mut Terminal, typed: &str, words: &str) {
    let begun = Instant::now();
    prompt.types(typed).await;
    prompt.types("\t").await;
    while tokio::time::timeout(Duration::from_secs(2), prompt.shows(words)).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "{words:?} is not shown: {:?}", prompt.all());
        prompt.types("\t").await;
    }
}

const IPYBOX: &str = env!("CARGO_BIN_EXE_ipybox");

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_person_and_an_agent_share_a_kernel() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("import os\nx = 41").await.ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [2]: ").await;
    prompt.types("y = x + 1; y\r").await;
    prompt.shows("\n42\r\n").await;
    prompt.shows("In [3]: ").await;

    let answer = client.cell("print(y)").await.ok();
    assert!(answer.starts_with("[The user ran a cell in this kernel meanwhile"), "{answer}");
    assert!(answer.ends_with("\n42"), "{answer}");
    assert_eq!(client.cell("y").await.ok(), "42");
    prompt.shows("agent [3]: print(y)").await;
    prompt.shows("agent [3]: ended").await;
    prompt.shows("agent [4]: y").await;
    prompt.shows("agent [4]: ended").await;

    prompt.types("1/0\r").await;
    prompt.shows("\u{1b}[31mZeroDivisionError: division by zero").await;
    prompt.shows("In [6]: ").await;
    prompt.types("show_file(b'content', 'a.txt')\r").await;
    prompt.shows("-a.txt]").await;
    prompt.shows("In [7]: ").await;
    prompt.types("\u{4}").await;
    assert!(prompt.ended().await.success());
    assert_eq!(client.cell("y").await.ok().lines().last(), Some("42"));
    client.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_person_undoes_cells_and_the_agent_learns_of_it() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    client.cell("x = 2").await.ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [3]: ").await;
    prompt.types("%undo\r").await;
    prompt.shows("The kernel is as it was before `x = 2`, which is undone.").await;
    prompt.shows("In [2]: ").await;
    prompt.types("x\r").await;
    prompt.shows("\n1\r\n").await;
    prompt.types("%undo 9\r").await;
    prompt.shows("Failed to undo 9 cells: there are 2").await;
    prompt.types("\u{4}").await;
    assert!(prompt.ended().await.success());
    let answer = client.cell("x").await.ok();
    assert!(answer.contains("[An undo of the user: The kernel is as it was before `x = 2`"), "{answer}");
    assert!(answer.ends_with("\n1"), "{answer}");
    let piped = kept.pipe(IPYBOX, &[], " %undo 1\n");
    assert!(
        piped.status.success() && text(&piped.stderr).contains("before `x`, which is undone"),
        "{piped:?}"
    );
    client.stop().await;
}

#[tokio::test]
async fn the_kernel_completes_explains_and_says_what_is_complete() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    let hostile = "class Hostile:\n    def __dir__(self): return ['fine_one', 'evil\\x1b[2J']\n    def __getattr__(self, name): raise ValueError\nhostile = Hostile()\nimport os";
    client.cell(hostile).await.ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [2]: ").await;
    completes(&mut prompt, "os.getpi", "os.getpid").await;
    prompt.types("() > 1\r").await;
    prompt.shows("True\r\n").await;
    completes(&mut prompt, "hostile.", "hostile.fine_one").await;
    prompt.types("\u{3}").await;
    prompt.shows("In [3]: ").await;
    prompt.types("len?\r").await;
    prompt.shows("Return the number of items in a container").await;
    prompt.shows("In [4]: ").await;

    prompt.types("def twice(value):\r").await;
    // The line is indented.
    prompt.types("return 2 * value\r\r").await;
    prompt.shows("In [5]: ").await;
    prompt.types("twice(21)\r").await;
    prompt.shows("\n42\r\n").await;
    prompt.types("\u{4}").await;
    assert!(prompt.ended().await.success());
    assert!(!client.cell("1").await.ok().contains('\u{1b}'));

    // What was typed is there for the next prompt, for this user alone.
    let mut prompt = kept.prompt();
    prompt.shows("In [").await;
    prompt.types("\u{1b}[A\u{1b}[A").await;
    prompt.shows("return 2 * value").await;
    prompt.types("\u{3}").await;
    prompt.shows("In [").await;
    prompt.types("\u{4}").await;
    assert!(prompt.ended().await.success());
    let found =
        Command::new("find").arg(kept.states()).args(["-name", "attach_history", "-perm", "600"]).output();
    assert_eq!(text(&found.unwrap().stdout).lines().count(), 1);
    client.stop().await;
}

#[tokio::test]
async fn completion_ends_in_time_and_leaves_the_kernel_usable() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client
        .cell("import time\nclass Slow:\n    def __dir__(self):\n        time.sleep(1e6)\nslow = Slow()")
        .await
        .ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [2]: ").await;
    prompt.types("slow.\t").await;
    prompt.types("\u{3}").await;
    prompt.shows("In [2]: ").await;
    prompt.types("slow.__class__.__name__\r").await;
    prompt.shows("'Slow'").await;
    assert_eq!(client.cell("2").await.ok().lines().last(), Some("2"));
    client.stop().await;
}

#[tokio::test]
async fn the_line_that_is_typed_survives_what_the_agent_shows() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("import pathlib, time").await.ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [2]: ").await;
    prompt.types("half = 'ty").await;
    prompt.shows("half = 'ty").await;
    let running = client
        .start_cell(
            "print('from the agent', flush=True)\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)",
        )
        .await;
    prompt.shows("from the agent\r\n").await;
    prompt.shows("half = 'ty").await;
    // While the agent's cell runs, the kernel cannot say whether code is complete.
    prompt.types("ped'; half\r").await;
    kept.write("go", "");
    prompt.shows("\n'typed'").await;
    running.answer().await.ok();

    // What comes faster than it can be shown keeps nobody waiting, and its end is shown.
    let flood = "for number in range(300_000): print('flood', number)\nprint('over')";
    assert!(client.cell(flood).await.ok().contains("Output truncated"));
    prompt.shows("over\r\n").await;
    prompt.shows("agent [4]: ended").await;
    client.stop().await;
}

#[tokio::test]
async fn ctrl_c_stops_the_persons_cell_alone() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("import pathlib, time").await.ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [2]: ").await;
    prompt.types("print('begun', flush=True); time.sleep(1e6)\r").await;
    prompt.shows("\nbegun").await;
    prompt.types("\u{3}").await;
    prompt.shows("KeyboardInterrupt").await;
    prompt.shows("In [3]: ").await;

    let running = client
        .start_cell(
            "pathlib.Path('runs').touch()\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n'whole'",
        )
        .await;
    eventually("the agent's cell runs", || kept.workspace().join("runs").exists()).await;
    prompt.types("pathlib.Path('never').touch()\r").await;
    eventually("the person's cell waits", || kept.sessions()[0]["open_cells"] == 2).await;
    prompt.types("\u{3}").await;
    eventually("it has been taken out", || kept.sessions()[0]["open_cells"] == 1).await;
    kept.write("go", "");
    assert!(running.answer().await.ok().ends_with("'whole'"));
    prompt.shows("cancelled before it began").await;
    assert!(!kept.workspace().join("never").exists());
    client.stop().await;
}

#[tokio::test]
async fn a_person_at_a_prompt_gives_a_grant() {
    let kept = Kept::new();
    let mut client = kept.client(&["--approval", "ask", "--approval-timeout", "300"]).await;
    let mut prompt = kept.prompt();
    prompt.shows("In [").await;
    let registering =
        client.start_call("register_mcp_server", json!({"server_name": "probe", "server_params": probe()}));
    let registering = registering.await;
    prompt.shows("Allow? [y]es once, for this [s]ession, [a]lways, [n]o: ").await;
    // Nothing is proposed.
    prompt.types("g\r").await;
    prompt.shows("Allow? ").await;
    prompt.types("y\r").await;
    registering.answer().await.ok();
    const LOOP: &str = "from mcptools.probe import add\ncall = add.run\nfor b in range(12):\n    total = call(a=7, b=b).total\nprint(total)";
    let calling = client.start_cell(LOOP).await;
    for b in 0..3 {
        prompt.shows(&format!("probe.add(a=7, b={b})")).await;
        prompt.shows("Allow? [y]es once, for this").await;
        prompt.types("y\r").await;
        prompt.shows("decided: allowed once").await;
    }
    prompt.shows("probe.add(a=7, b=<a number from 0 to 52>)").await;
    prompt.shows("Allow? [y]es once, [g] allow up to 50 like this in this cell, for this [s]ession").await;
    prompt.types("g\r").await;
    prompt.shows("decided: allowed by a grant").await;
    assert!(calling.answer().await.ok().contains("18"));
    drop(prompt);
    client.stop().await;
}

#[tokio::test]
async fn a_batch_is_one_table_at_a_prompt() {
    let kept = Kept::new();
    let mut client = kept.client(&["--approval", "ask", "--approval-timeout", "300"]).await;
    let mut prompt = kept.prompt();
    prompt.shows("In [").await;
    let named = json!({"server_name": "probe", "server_params": probe()});
    let registering = client.start_call("register_mcp_server", named).await;
    prompt.shows("as in `y untrusted`.").await;
    prompt.shows("Allow? ").await;
    prompt.types("y secret\r").await;
    prompt.shows("Allow? ").await;
    prompt.types("y untrusted\r").await;
    registering.answer().await.ok();
    const BATCH: &str = "import mcptools\nfrom mcptools.probe import add\nwith mcptools.batch('some sums') as batch:\n    for b in range(3): add.run(a=1, b=b)\nprint([getattr(result, 'total', 'no') for result in batch.results])";
    let calling = client.start_cell(BATCH).await;
    prompt.shows("wants to make these 3 calls").await;
    prompt.shows("It says what they are for: 'some sums'").await;
    prompt.shows("The same in all: a=1").await;
    prompt.shows("Allow? [y]es all once, only rows as in 1-3, 7,").await;
    prompt.types("4\r").await;
    prompt.shows("Allow? ").await;
    prompt.types("1, 3\r").await;
    prompt.shows("decided: 2 allowed once, 1 denied").await;
    assert!(calling.answer().await.ok().contains("[1, 'no', 3]"));
    // One by one, with what the label has made known.
    let calling = client.start_cell(BATCH).await;
    prompt.shows("Allow? [y]es all once").await;
    prompt.types("e\r").await;
    for b in 0..3 {
        prompt.shows(&format!("probe.add(a=1, b={b})")).await;
        prompt.shows("untrusted").await;
        prompt.shows("Allow? [y]es once, for this").await;
        prompt.types("y\r").await;
    }
    assert!(calling.answer().await.ok().contains("[1, 2, 3]"));
    drop(prompt);
    client.stop().await;
}

#[tokio::test]
async fn times_may_be_longer_than_any_clock_has() {
    let kept = Kept::new();
    let flags = ["--approval", "ask", "--approval-timeout", "1e19", "--connect-timeout", "1e19"];
    let mut client = kept.client(&flags).await;
    let mut prompt = kept.prompt();
    prompt.shows("In [").await;
    let named = json!({"server_name": "probe", "server_params": probe()});
    let registering = client.start_call("register_mcp_server", named).await;
    for label in ["secret", "untrusted"] {
        prompt.shows("Allow? ").await;
        prompt.types(&format!("y {label}\r")).await;
    }
    registering.answer().await.ok();
    drop(prompt);
    client.stop().await;
}

#[tokio::test]
async fn people_are_asked_what_the_client_cannot_ask() {
    let kept = Kept::new();
    let mut client = kept.client(&ASKS).await;
    let nobody = client.cell("!echo no").await.error();
    assert!(nobody.contains("does not support elicitation") && nobody.contains("ipybox attach"), "{nobody}");

    let (mut first, mut second) = (kept.prompt(), kept.prompt());
    for prompt in [&mut first, &mut second] {
        prompt.shows("In [").await;
    }
    first.types("kept = 'li").await;
    first.shows("kept = 'li").await;
    let asking = client.start_cell("!echo '\x1b[35m' yes").await;
    for prompt in [&mut first, &mut second] {
        prompt.shows("Run this shell command in the kernel?").await;
        prompt.shows("\\x1b[35m' yes").await;
        prompt.shows("Allow? ").await;
    }
    second.types("what\r").await;
    second.shows("Allow? ").await;
    second.types("y\r").await;
    second.shows("decided: allowed once").await;
    first.shows("decided without you: allowed once").await;
    assert!(asking.answer().await.ok().contains("yes"));
    // The line is there again.
    first.shows("kept = 'li").await;
    first.types("ne'; kept\r").await;
    first.shows("'line'").await;

    // Cells of people are asked about, too.
    first.types("!echo mine\r").await;
    first.shows("Allow? ").await;
    second.shows("Allow? ").await;
    first.types("n\r").await;
    first.shows("was rejected").await;
    second.shows("decided without you: denied").await;

    // When all have left, nobody can be asked.
    let asking = client.start_cell("!echo late").await;
    for mut prompt in [first, second] {
        prompt.shows("echo late").await;
        prompt.shows("Allow? ").await;
        drop(prompt);
    }
    assert!(asking.answer().await.error().contains("rejected"));
    client.stop().await;
}

#[tokio::test]
async fn code_does_not_answer_for_its_user() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    let states = kept.states();
    let code = format!(
        "import subprocess\nprint(subprocess.run([{IPYBOX:?}, 'attach', '--state-dir', {states:?}], input='x', text=True, capture_output=True).stderr)"
    );
    let refused = client.cell(&code).await.ok();
    assert!(refused.contains("code of a session cannot answer for its user"), "{refused}");
    client.stop().await;
}

#[tokio::test]
async fn people_see_what_the_client_asks() {
    let kept = Kept::new();
    let mut client = kept.client_with(&ASKS, json!({"elicitation": {}})).await;
    client.cell("x = 1").await.ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [2]: ").await;
    let asking = client.start_cell("!echo done").await;
    prompt.shows("the agent's user is asked: ipybox.shell(cmd='echo done')").await;
    client.decide("deny").await;
    asking.answer().await.error();
    prompt.shows("decided without you: denied").await;
    client.stop().await;
}

#[tokio::test]
async fn a_session_with_a_person_does_not_end_by_itself() {
    let kept = Kept::new();
    let python = kernel_python();
    let flags = ["--keep-session", "1s", "--python", python.to_str().unwrap()];
    let mut client = kept.start(&flags).await;
    client.initialize().await;
    client.cell("x = 'still here'").await.ok();
    let mut prompt = kept.prompt();
    prompt.shows("In [2]: ").await;
    client.stop().await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    prompt.types("x\r").await;
    prompt.shows("'still here'").await;
    assert_eq!(kept.sessions()[0]["people"], 1);
    let id = kept.sessions()[0]["id"].as_str().unwrap().to_owned();
    assert!(text(&kept.run(&["end", "--all"]).stderr).contains("goes on"));
    kept.run(&["end", &id]);
    prompt.shows("has ended").await;
    assert_eq!(prompt.ended().await.code(), Some(1));
}

#[tokio::test]
async fn without_a_terminal_stdin_is_one_cell() {
    let kept = Kept::new();
    let none = kept.pipe(IPYBOX, &[], "x");
    assert!(text(&none.stderr).contains("--keep-session") && !none.status.success());
    let mut client = kept.client(&ASKS).await;
    client.cell("x = 41").await.ok();
    let fine = kept.pipe(IPYBOX, &[], "print('\\x1b[31mpiped\\x1b[2J')\nx + 1");
    assert_eq!((text(&fine.stdout).as_str(), fine.status.code()), ("piped\n42\n", Some(0)), "{fine:?}");
    let fails = kept.pipe(IPYBOX, &[], "print('first')\n1/0\nprint('never')");
    assert_eq!((text(&fails.stdout).as_str(), fails.status.code()), ("first\n", Some(1)));
    assert!(text(&fails.stderr).contains("ZeroDivisionError"));
    let denied = kept.pipe(IPYBOX, &[], "!echo no");
    assert!(text(&denied.stderr).contains("nobody is at the prompt"), "{denied:?}");
    let answer = client.cell("x").await.ok();
    assert!(answer.contains("ran 3 cells"), "{answer}");

    let mut second = kept.client(&["--long-cells"]).await;
    second.cell("x = 2").await.ok();
    let several = text(&kept.pipe(IPYBOX, &[], "x").stderr);
    for session in kept.sessions() {
        let id = session["id"].as_str().unwrap();
        assert!(several.contains(id), "{several}");
        assert!(kept.pipe(IPYBOX, &[id], "x").status.success());
    }
    client.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn another_ipybox_is_refused() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    let copy = kept.temporary().join("ipybox");
    copy_program(IPYBOX, &copy);
    let refused = kept.pipe(copy.to_str().unwrap(), &[], "x");
    assert!(text(&refused.stderr).contains("begun by another ipybox"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(1));
    client.stop().await;
}

#[tokio::test]
async fn a_person_can_have_a_copy_of_the_kernel() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = [1]").await.ok();
    let output = kept.pipe(IPYBOX, &["--copy"], "x.append(2); print(x)");
    assert_eq!(text(&output.stdout), "[1, 2]\n", "{}", text(&output.stderr));
    assert_eq!(client.cell("x").await.ok(), "[1]");
    client.cell("log = open('log', 'w')").await.ok();
    let output = kept.pipe(IPYBOX, &["--copy"], "1");
    assert!(text(&output.stderr).contains("is open for writing (`log`)"), "{}", text(&output.stderr));
}
