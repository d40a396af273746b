//! ipybox that is started within a sandbox or container itself.

use serde_json::json;

use super::session::{document, policy};
use crate::support::{Ipybox, Place, equipped, eventually, kernel_python, probe};

/// Attacks on what is in the sandbox around ours, and outside; prints what got through.
const ATTACK: &str = r#"
import ctypes, os, pathlib, signal, socket, subprocess
def through(what, function):
    try: function()
    except (OSError, ValueError, subprocess.SubprocessError): return
    print("GOT THROUGH:", what)
def is_ours(process):
    # The kernel, and its forks.
    try: return os.readlink(f"/proc/{process}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError: return False
libc = ctypes.CDLL(None, use_errno=True)
def traced(process):
    if libc.ptrace(16, process, 0, 0): raise OSError
    libc.ptrace(17, process, 0, 0)
seen = 0
for process in range(1, 400):
    if not os.path.exists(f"/proc/{process}") or is_ours(process): continue
    seen += 1
    for name in ("cmdline", "environ", "status", "stat", "comm", "maps", "mem", "cgroup", "mountinfo", "net/tcp"):
        through(f"{name} of {process}", lambda: open(f"/proc/{process}/{name}", "rb").read(1))
    for name in ("fd", "task", "map_files"):
        through(f"{name} of {process}", lambda: os.listdir(f"/proc/{process}/{name}"))
    for name in ("exe", "cwd", "root", "fd/0", "ns/pid"):
        through(f"{name} of {process}", lambda: os.readlink(f"/proc/{process}/{name}"))
    through(f"trace {process}", lambda: traced(process))
through("the list of processes", lambda: os.listdir("/proc"))
through("settings of the system", lambda: open("/proc/sys/kernel/core_pattern", "w"))
through("read the home", lambda: pathlib.Path("~/secret").expanduser().read_text())
through("write the home", lambda: pathlib.Path("~/made").expanduser().write_text("x"))
through("write beside", lambda: pathlib.Path("../made").write_text("x"))
through("connect", lambda: socket.create_connection(("127.0.0.1", PORT), 5))
through("signal", lambda: os.kill(PARENT, 0))
through("a namespace", lambda: subprocess.run(["unshare", "-U", "true"], check=True, capture_output=True))
print("seen:", seen > 2)
"#;

/// A sandbox as clients make them, with places in it that can be written.
fn outer<'a>(place: &'a str, home: &'a str) -> Vec<&'a str> {
    let bwrap = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent"];
    let files = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
    // bubblewrap covers parts of it for root alone, containers for everybody.
    let covered = ["--ro-bind", "/proc/sys", "/proc/sys"];
    let writable = ["--bind", place, place, "--bind", home, home, "--setenv", "HOME", home];
    [&bwrap[..], &files, &covered, &writable, &["--"]].concat()
}

/// ipybox that `launcher` starts, with bubblewrap as the backend, initialized.
async fn start(place: &Place, launcher: &[&str], variables: &[(&str, &str)]) -> Ipybox {
    let python = kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--sandbox", "--sandbox-backend", "bwrap"];
    let path = equipped();
    let variables = [&[("PATH", path.as_str())], variables].concat();
    let mut ipybox = place.start_by(launcher, &flags, &variables).await;
    ipybox.initialize().await;
    ipybox
}

#[tokio::test]
async fn within_another_sandbox_code_reaches_nothing_of_it() {
    let place = Place::new();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secret"), "x").unwrap();
    let all = place.workspace().parent().unwrap().to_str().unwrap().to_owned();
    let launcher = outer(&all, home.path().to_str().unwrap());
    let mut ipybox = start(&place, &launcher, &[]).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = ATTACK.replace("PORT", &port.to_string()).replace("PARENT", &std::process::id().to_string());
    ipybox.register("probe", probe()).await.ok();
    let said = ipybox.cell(&code).await.ok();
    // Other notes may come first.
    assert!(said.contains("ipybox runs within another sandbox"), "{said}");
    assert!(said.ends_with("seen: True") && !said.contains("GOT THROUGH"), "{said}");
    assert!(!home.path().join("made").exists());

    // All else is as in any sandbox: files, programs, tools, and a way back.
    for (code, expected) in [
        ("open('made', 'w').write('x')", "1"),
        ("!echo shell", "shell"),
        ("from mcptools.probe import echo\nprint(echo.run(echo.Params(text='called')))", "called"),
        ("import multiprocessing\nwith multiprocessing.Pool(1) as pool: print(pool.map(abs, [-1]))", "[1]"),
    ] {
        assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
    }
    // What a kernel has left in a session of its own ends with it, and nothing else does.
    let marker = format!("31{port}");
    let leave = format!("subprocess.Popen(['sleep', '{marker}'], start_new_session=True).pid > 1");
    assert_eq!(ipybox.cell(&leave).await.ok(), "True");
    assert_eq!(processes_with(&marker).len(), 1);
    ipybox.call("reset", json!({})).await.ok();
    eventually("it ends with its kernel", || processes_with(&marker).is_empty()).await;
    assert_eq!(ipybox.cell("print(open('made').read())").await.ok(), "x");
    ipybox.stop().await;
}

/// srt's `/proc` has the numbers of another namespace, with which bubblewrap cannot work.
#[tokio::test]
async fn where_no_sandbox_can_be_made_the_error_says_why_and_no_code_runs() {
    let place = Place::new();
    let all = place.workspace().parent().unwrap().to_owned();
    let settings = policy(&place, &document(&json!({}), &json!({"allowWrite": [all]})));
    let within_srt = ["srt", "--settings", &settings, "--"].map(str::to_owned);
    // As in a container: a user without the right to make namespaces.
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let without_namespaces =
        ["unshare", "--user", "--map-root-user", "sh", "-c", none, "sh"].map(str::to_owned);
    let temporary = place.temporary().to_str().unwrap().to_owned();
    for (launcher, words) in [
        (&within_srt[..], "in a sandbox whose `/proc` has the numbers"),
        (&without_namespaces[..], "namespace"),
    ] {
        let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
        let mut ipybox = start(&place, &launcher, &[("CLAUDE_CODE_TMPDIR", &temporary)]).await;
        let refused = ipybox.cell("open('made', 'w')").await.error();
        assert!(refused.starts_with("Failed to start the sandbox (bwrap)"), "{refused}");
        assert!(refused.contains(words) && refused.contains("hint: "), "{launcher:?}: {refused}");
        assert!(!place.workspace().join("made").exists());
        ipybox.stop().await;
    }
}

/// The processes on this machine whose command line has `marker`, but for shells that ipybox starts.
fn processes_with(marker: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let commands = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    commands
        .filter(|command| command.strip_prefix("sleep\0").is_some_and(|rest| rest.contains(marker)))
        .collect()
}
