//! Clients, files and code that make life hard.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::support::{PATIENCE, Place, environment, eventually, kernel_python, probe};

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
async fn a_kernel_goes_on_without_its_streams() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import sys; sys.stdout = None; sys.stderr = None").await.ok();
    assert_eq!(ipybox.cell("1").await.ok(), "1");
    assert!(ipybox.cell("1 / 0").await.error().contains("ZeroDivisionError"));
    ipybox.cell("sys.stdout = sys.__stdout__").await.ok();
    assert_eq!(ipybox.cell("print('back')").await.ok(), "back");
    ipybox.stop().await;
}

/// ipybox as a client starts it that does not care for all of its pipes.
fn bare(place: &Place, log_level: &str, stderr: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["--log-level", log_level, "--workspace"])
        .arg(place.workspace())
        .arg("--state-dir")
        .arg(place.states())
        .arg("--python")
        .arg(kernel_python())
        .env_clear()
        .envs(environment())
        .env("TMPDIR", place.temporary())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn client() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "0"}})
}

async fn send(input: &mut ChildStdin, id: u32, method: &str, params: Value) {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_stderr_that_is_closed_or_not_read_stops_nothing() {
    for is_closed in [true, false] {
        let place = Place::new();
        let mut child = bare(&place, "DEBUG", Stdio::piped());
        let stderr = child.stderr.take();
        let unread = (!is_closed).then_some(stderr);
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        send(&mut input, 1, "initialize", client()).await;
        let flood = "for i in range(3000): display({'image/png': '%'}, raw=True)\n'survived'";
        let params = json!({"name": "execute_ipython_cell", "arguments": {"code": flood}});
        send(&mut input, 2, "tools/call", params).await;
        let answer = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("no answer");
                if line.contains(r#""id":2"#) {
                    return line;
                }
            }
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("it hangs");
        assert!(answer.contains("survived"), "{answer}");
        drop(input);
        assert!(child.wait().await.unwrap().success());
        drop(unread);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_suspend_a_timeout() {
    let place = Place::new();
    let mut child = bare(&place, "INFO", Stdio::null());
    let mut input = child.stdin.take().unwrap();
    send(&mut input, 0, "initialize", client()).await;
    // More answers than a pipe holds, and nobody reads them.
    for id in 1..60 {
        send(&mut input, id, "tools/list", json!({})).await;
    }
    let code = "
try:
    while True: print('x' * 1000)
except KeyboardInterrupt: open('interrupted', 'w').close()";
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": code, "timeout": 1}, "_meta": {"progressToken": 1},
    });
    send(&mut input, 100, "tools/call", params).await;
    let interrupted = place.workspace().join("interrupted");
    eventually("the cell is interrupted", || interrupted.exists()).await;
    drop(input);
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn directories_that_vanish_are_made_again() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['PYTHONPATH'].split(':')[0]))";
    ipybox.cell(code).await.ok();
    ipybox.reset().await;
    let call = "from mcptools.probe import echo\necho.run(text='again')";
    assert_eq!(ipybox.cell(call).await.ok(), "'again'");
    std::fs::remove_dir_all(place.workspace()).unwrap();
    ipybox.reset().await;
    assert_eq!(ipybox.cell("import os; os.listdir()").await.ok(), "[]");
    ipybox.stop().await;
}

#[tokio::test]
async fn generated_code_is_found_from_every_directory() {
    let place = Place::new();
    place.write("sub/script.py", "from mcptools.probe import echo\nprint(echo.run(text='from a script'))");
    // A file that would hide a module of the standard library if the workspace came before it.
    place.write("random.py", "raise ImportError('not this one')");
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(ipybox.cell("!python sub/script.py").await.ok(), "from a script");
    let code = "import os; os.chdir('/')\nfrom mcptools.probe import echo\necho.run(text='from afar')";
    assert_eq!(ipybox.cell(code).await.ok(), "'from afar'");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_planted_dotenv_reaches_neither_secrets_nor_what_programs_act_upon() {
    let place = Place::new();
    place.write("evil/sitecustomize.py", "open('ran', 'w')");
    let evil = place.workspace().join("evil");
    let shell = evil.join("sh.sh");
    place.write("evil/sh.sh", &format!("#!/bin/sh\ntouch {}/ran\n", place.workspace().display()));
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let planted = format!(
        "KERNEL_ENV_LEAK_KEY=${{SECRET}}\nKERNEL_ENV_PYTHONPATH={evil}\nKERNEL_ENV_SHELL={shell}\n\
         KERNEL_ENV_GIT_CONFIG_COUNT=1\nKERNEL_ENV_GIT_CONFIG_KEY_0=core.fsmonitor\n\
         KERNEL_ENV_GIT_CONFIG_VALUE_0={shell}\nKERNEL_ENV_GIT_SSH_COMMAND={shell}\nKERNEL_ENV_BASH_ENV={shell}\n",
        evil = evil.display(),
        shell = shell.display(),
    );
    place.write(".env", &planted);
    let flags = ["--python", kernel_python().to_str().unwrap().to_owned().leak()];
    let mut ipybox = place.start_with(&flags, &[("SECRET", "s3cret")]).await;
    ipybox.initialize().await;
    assert_eq!(ipybox.cell("import os; os.environ['LEAK_KEY']").await.ok(), "'${SECRET}'");
    ipybox.cell("!git init -q . && git status\n!true\n!bash -c true").await.ok();
    ipybox.cell("%%bash\ntrue").await.ok();
    assert!(!place.workspace().join("ran").exists());
    ipybox.logged("`KERNEL_ENV_SHELL` of ").await;
    ipybox.logged("IPYBOX_DOTENV=KERNEL_ENV_").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_reset_does_not_wait_for_a_server_that_does_not_answer() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.reset().await;
    // From now on the server says nothing.
    let registry =
        std::fs::read_dir(place.states().join("workspaces")).unwrap().next().unwrap().unwrap().path();
    let registry = registry.join("servers.json");
    let text = std::fs::read_to_string(&registry).unwrap();
    let silent = text
        .replace(probe()["command"].as_str().unwrap(), "/bin/sleep")
        .replace(&probe()["args"][0].to_string(), "\"600\"");
    std::fs::write(&registry, silent.replace("\"--transport\"", "\"0\"").replace("\"stdio\"", "\"0\""))
        .unwrap();
    let calling =
        ipybox.start_cell("from mcptools.probe import echo\nopen('started', 'w')\necho.run(text='x')").await;
    let started = place.workspace().join("started");
    eventually("the call is under way", || started.exists()).await;
    ipybox.reset().await;
    calling.answer().await.error();
    ipybox.stop().await;
}

#[tokio::test]
async fn output_beyond_the_limit_costs_no_memory() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("1").await.ok();
    let peak = |id: i32| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = peak(ipybox.id());
    let much = json!({"code": "print('x' * 150_000_000)", "timeout": 280});
    let text = ipybox.call("execute_ipython_cell", much).await.ok();
    assert!(text.contains("[Output truncated: exceeded 5000 character limit]"), "{} bytes", text.len());
    let text = ipybox.cell("raise ValueError('y' * 100_000_000)").await.error();
    assert!(text.len() < 20_000, "{} bytes", text.len());
    let grown = peak(ipybox.id()) - before;
    assert!(grown < 64 * 1024, "the server grew by {grown} KiB");
    ipybox.stop().await;
}
