//! A client goes, and the next one goes on with its session.

use serde_json::{Value, json};

use super::{Kept, kill};
use crate::support::{eventually, is_running, probe};

#[tokio::test]
async fn the_next_client_goes_on_after_any_end_of_the_one_before() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("import os\nx = 41\npid = os.getpid()").await.ok();
    let keeper = kept.keeper();
    kill(client).await;

    let client = kept.client(&[]).await;
    client.stop().await;
    // Those who only look leave no trace in the answer.
    for _ in 0..2 {
        let mut client = kept.client(&[]).await;
        client.request("tools/list", json!({})).await.response().await.unwrap();
        client.stop().await;
    }
    let mut client = kept.client(&[]).await;
    let text = client.cell("x += 1\nprint(x)").await.ok();
    assert_eq!(text.matches("Variables of the session").count(), 1, "{text}");
    assert!(text.starts_with("[This session was taken over as it was: it has run for "), "{text}");
    assert!(text.contains("[Variables of the session: `os`, `pid`, `x`.]"), "{text}");
    assert!(text.ends_with("\n42"), "{text}");
    assert_eq!(client.cell("x").await.ok(), "42");
    // What we ask the kernel ourselves is not in its history.
    assert_eq!(client.cell("print(In[2:])").await.ok(), r"['x += 1\nprint(x)', 'x', 'print(In[2:])']");
    client.stop().await;

    let mut client = kept.client(&[]).await;
    client.cell("assert os.getpid() == pid and x == 42").await.ok();
    assert_eq!(kept.keeper(), keeper);
    client.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(client.ended().await.success());
    assert!(is_running(keeper));
}

#[tokio::test]
async fn cells_that_ran_when_the_client_left_are_answered_when_they_have_ended() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("import pathlib, time").await.ok();
    let running = client
        .start_cell("pathlib.Path('runs').touch()\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('the result of an hour')")
        .await;
    let queued = client.start_cell("print('the one after it')").await;
    eventually("the cell runs", || kept.workspace().join("runs").exists()).await;
    kill(client).await;
    drop((running, queued));

    let mut client = kept.client(&[]).await;
    let next = client.start_cell("print('own')").await;
    kept.write("go", "");
    let text = next.answer().await.ok();
    let places = ["has not ended", "the result of an hour\n[End", "the one after it\n[End", "own"];
    let found: Vec<_> =
        places.iter().map(|words| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"))).collect();
    assert!(found.is_sorted(), "{text}");
    assert_eq!(client.cell("1 + 1").await.ok(), "2");
    client.stop().await;
}

#[tokio::test]
async fn a_kernel_that_is_busy_for_a_while_survives_a_takeover() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    // A thread keeps all others from running, as a long call of C code does.
    let code = "
import ctypes, pathlib, threading, time
def keep_busy():
    while not pathlib.Path('gone').exists(): time.sleep(0.01)
    pathlib.Path('busy').touch()
    ctypes.PyDLL(None).sleep(12)
x = 41
threading.Thread(target=keep_busy).start()";
    client.cell(code).await.ok();
    kill(client).await;
    kept.left_session().await;
    kept.write("gone", "");
    eventually("the kernel is busy", || kept.workspace().join("busy").exists()).await;
    let mut client = kept.client(&[]).await;
    let text = client.cell("x + 1").await.ok();
    assert!(text.contains("`x`.]") && text.ends_with("\n42"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn a_session_with_a_client_is_never_taken() {
    let kept = Kept::new();
    let mut first = kept.client(&[]).await;
    first.cell("x = 1").await.ok();
    let mut second = kept.client(&[]).await;
    assert!(second.cell("x").await.error().contains("NameError"));
    assert_eq!(kept.sessions().len(), 2);
    second.stop().await;
    assert_eq!(first.cell("x").await.ok(), "1");
    first.stop().await;
}

#[tokio::test]
async fn a_session_that_allows_something_else_is_never_taken() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    client.stop().await;
    kept.left_session().await;
    let policy = kept.states().join("policy.toml");
    std::fs::write(&policy, "default = \"allow\"\n").unwrap();
    let policy_path = policy.to_str().unwrap().to_owned();
    for flags in [
        &["--approval", "ask"][..],
        &["--approve-shell-cmds"],
        &["--kernel-memory-limit", "4G"],
        &["--approval-policy", &policy_path],
    ] {
        let mut client = kept.client(flags).await;
        let text = client.cell("x").await.error();
        assert!(
            text.contains("begun with other flags, files or variables") && text.contains("NameError"),
            "{text}"
        );
        client.stop().await;
    }
    // The policy decides otherwise now.
    let mut client = kept.client(&["--approval-policy", &policy_path]).await;
    client.cell("x = 2").await.ok();
    client.stop().await;
    std::fs::write(&policy, "default = \"deny\"\n").unwrap();
    let mut client = kept.client(&["--approval-policy", &policy_path]).await;
    assert!(client.cell("x").await.error().contains("NameError"));
    client.stop().await;

    let mut client = kept.client(&[]).await;
    assert!(client.cell("x").await.ok().ends_with("\n1"));
    client.stop().await;
}

#[tokio::test]
async fn other_values_of_the_variables_that_servers_get_make_another_session() {
    let kept = Kept::new();
    let start = async |value: &str| {
        let python = crate::support::kernel_python();
        let flags = ["--keep-session", "120", "--python", python.to_str().unwrap()];
        let mut client = kept.start_with(&flags, &[("PROBE_KEY", value), ("TERM_SESSION", value)]).await;
        client.initialize().await;
        client
    };
    let mut client = start("one").await;
    client.cell("x = 1").await.ok();
    client.stop().await;
    // No server asks for a variable yet.
    let mut client = start("two").await;
    assert!(client.cell("x").await.ok().ends_with("\n1"));
    let mut parameters = probe();
    parameters["env"] = json!({"KEY": "${PROBE_KEY}"});
    client.register("probe", parameters).await.ok();
    client.stop().await;
    // The session began with the first value, and gives that to servers.
    let mut client = start("one").await;
    assert!(client.cell("x").await.ok().ends_with("\n1"));
    client.stop().await;
    let mut client = start("two").await;
    let text = client.cell("x").await.error();
    assert!(text.contains("was not taken over: these variables have changed: PROBE_KEY"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn connections_to_servers_go_on_too() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.register("probe", probe()).await.ok();
    let code = "from mcptools.probe import pid\nprint(pid.run(pid.Params()))";
    let server = client.cell(code).await.ok();
    kill(client).await;
    let mut client = kept.client(&[]).await;
    let text = client.cell(code).await.ok();
    assert!(text.ends_with(&format!("\n{server}")), "{text} {server}");
    client.stop().await;
}

#[tokio::test]
async fn a_question_waits_for_the_next_client() {
    let kept = Kept::new();
    let capable = json!({"elicitation": {}});
    let flags = ["--approval", "ask", "--approve-shell-cmds", "--approval-timeout", "20"];
    let mut client = kept.client_with(&flags, capable.clone()).await;
    let running = client.start_cell("!echo asked").await;
    client.question().await;
    kill(client).await;
    drop(running);
    // Longer than the user has to answer a question that is shown.
    tokio::time::sleep(std::time::Duration::from_secs(21)).await;
    let mut client = kept.client_with(&flags, capable).await;
    let next = client.start_cell("print('own')").await;
    let question = client.decide("allow once").await;
    assert!(question.contains("echo asked"), "{question}");
    let text = next.answer().await.ok();
    assert!(text.contains("asked\n[End of the earlier answer]") && text.ends_with("own"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn a_client_that_cannot_ask_is_not_asked_what_the_one_before_has_left() {
    let kept = Kept::new();
    let flags = ["--approval", "ask", "--approve-shell-cmds"];
    let mut client = kept.client_with(&flags, json!({"elicitation": {}})).await;
    let running = client.start_cell("!echo asked").await;
    client.question().await;
    kill(client).await;
    drop(running);
    let mut client = kept.client(&flags).await;
    let text = client.cell("print('own')").await.ok();
    assert!(text.contains("ApprovalRejectedError") && text.ends_with("own"), "{text}");
    assert_eq!(client.sent("elicitation/create"), Vec::<Value>::new());
    client.stop().await;
}

#[tokio::test]
async fn sessions_are_listed_shown_and_ended() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("import os, subprocess\nchild = subprocess.Popen(['sleep', '600'])").await.ok();
    let ids = client.cell("print(os.getpid(), child.pid)").await.ok();
    let ids: Vec<i32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
    let [session] = kept.sessions().try_into().unwrap();
    assert_eq!((&session["is_attended"], &session["seconds_left"]), (&json!(true), &json!(null)));
    assert_eq!(session["workspace"], kept.workspace().to_str().unwrap());
    assert!(session["memory_bytes"].as_u64().unwrap() > 10_000_000, "{session}");
    let text = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    assert!(text(kept.run(&[])).contains("has a client"));
    // One that has a client is only ended by its id.
    assert_eq!(text(kept.run(&["end", "--all"])), "");
    assert_eq!(client.cell("1").await.ok(), "1");
    client.stop().await;

    let session = kept.left_session().await;
    assert!(session["seconds_left"].as_u64().unwrap() <= 120, "{session}");
    let id = session["id"].as_str().unwrap();
    assert!(
        text(kept.run(&["show", id])).contains("State      waits 1"),
        "{}",
        text(kept.run(&["show", id]))
    );
    // An unknown one keeps none of the others.
    let ended = kept.run(&["end", "nobody", id]);
    assert!(!ended.status.success());
    assert!(String::from_utf8_lossy(&ended.stderr).contains(&format!("there are `{id}`")));
    assert!(kept.sessions().is_empty());
    for id in ids {
        eventually("the kernel is gone, and what it has started", || !is_running(id)).await;
    }
    let mut client = kept.client(&[]).await;
    let text = client.cell("1").await.ok();
    assert!(text.contains("has ended, because the user ended it. Its variables are gone."), "{text}");
    assert!(text.ends_with("\n1"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_session_that_nobody_takes_over() {
    let kept = Kept::new();
    let python = crate::support::kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--keep-session", "1s"];
    let mut client = kept.start(&flags).await;
    client.initialize().await;
    let kernel: i32 = client.cell("import os\nprint(os.getpid())").await.ok().parse().unwrap();
    let keeper = kept.keeper();
    client.stop().await;
    for id in [kernel, keeper] {
        eventually("the processes end", || !is_running(id)).await;
    }
    assert!(kept.sessions().is_empty());
    let files = || std::fs::read_dir(kept.temporary()).unwrap().count();
    eventually("its temporary files are removed", || files() == 0).await;
    let mut client = kept.start(&flags).await;
    client.initialize().await;
    let text = client.cell("1").await.ok();
    assert!(text.contains("because no client took it over within 1 s"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn a_session_waits_as_long_as_its_newest_client_says() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    client.stop().await;
    let mut client = kept.client(&["--keep-session", "1s"]).await;
    assert!(client.cell("x").await.ok().ends_with("\n1"));
    let keeper = kept.keeper();
    client.stop().await;
    eventually("the session ends", || !is_running(keeper)).await;
    let mut client = kept.client(&[]).await;
    let text = client.cell("1").await.ok();
    assert!(text.contains("because no client took it over within 1 s"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn a_client_that_only_looks_leaves_no_session() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.request("tools/list", json!({})).await.response().await.unwrap();
    let keeper = kept.keeper();
    client.stop().await;
    eventually("the session ends", || !is_running(keeper)).await;
    assert!(kept.sessions().is_empty());
    let descriptions = || std::fs::read_dir(kept.states().join("sessions")).unwrap().count();
    eventually("its description is removed", || descriptions() == 0).await;
}

/// Whoever comes in the moment in which the session of such a client ends gets another one.
#[tokio::test]
async fn a_client_that_comes_as_one_that_only_looked_leaves_is_served() {
    for _ in 0..12 {
        let kept = Kept::new();
        let mut looking = kept.client(&[]).await;
        looking.request("tools/list", json!({})).await.response().await.unwrap();
        looking.close_input();
        let mut client = kept.client(&[]).await;
        let text = client.cell("1").await.ok();
        assert!(text.ends_with('1'), "{text}");
        client.stop().await;
        looking.ended().await;
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_sandbox_goes_on_and_code_in_it_reaches_no_session() {
    crate::support::with_kernels(crate::support::Setting::Sandbox("bwrap"), || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let kept = Kept::new();
            let mut client = kept.client(&[]).await;
            client.cell("x = 1").await.ok();
            let log = kept.sessions()[0]["log"].as_str().unwrap().to_owned();
            let socket = log.replace("/log", "/socket");
            assert!(std::path::Path::new(&socket).exists());
            client.stop().await;
            let mut client = kept.client(&[]).await;
            let code = format!(
                "import os, socket\nprint(x, os.path.exists({socket:?}))\n\
                 socket.socket(socket.AF_UNIX).connect({socket:?})"
            );
            let text = client.cell(&code).await.error();
            assert!(text.contains("\n1 False\n") && text.contains("Error"), "{text}");
            client.stop().await;
        });
    });
}

#[tokio::test]
async fn the_notice_of_a_cancelled_answer_comes_with_the_next_one() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 41").await.ok();
    kill(client).await;
    kept.left_session().await;
    let mut client = kept.client(&[]).await;
    let running = client.start_cell("while True: pass").await;
    client.has_begun_what_was_asked().await;
    client.cancel(&running).await;
    let text = client.cell("x + 1").await.ok();
    assert!(text.contains("[This session was taken over") && text.contains("`x`"), "{text}");
    assert!(text.ends_with("\n42"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn clients_that_come_for_one_call_do_not_pile_up_answers() {
    let kept = Kept::new();
    for number in 0..6 {
        let mut client = kept.client(&[]).await;
        let text = client.cell(&format!("'answer {number}'")).await.ok();
        let answers = text.matches("[Answer of an earlier call").count();
        // Only on Linux it is known whether the client has read them.
        let expected = if cfg!(target_os = "linux") { 0..=0 } else { 0..=2 };
        assert!(expected.contains(&answers), "{text}");
        assert!(text.ends_with(&format!("'answer {number}'")), "{text}");
        client.close_input();
        client.ended().await;
        kept.left_session().await;
    }
}

#[tokio::test]
async fn the_death_of_a_session_is_reported_by_another_one_that_is_taken_over() {
    let kept = Kept::new();
    let mut first = kept.client(&[]).await;
    first.cell("x = 'first'").await.ok();
    let keeper = kept.keeper();
    let mut second = kept.client(&[]).await;
    second.cell("x = 'second'").await.ok();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(keeper), nix::sys::signal::Signal::SIGKILL).unwrap();
    first.ended().await;
    kill(second).await;
    kept.left_session().await;
    let mut client = kept.client(&[]).await;
    let text = client.cell("x").await.ok();
    assert!(text.contains("[Another session of this workspace, which was left "), "{text}");
    assert!(text.contains("has ended, because its process was killed. Its variables are gone.]"), "{text}");
    assert!(text.contains("[This session was taken over") && text.ends_with("'second'"), "{text}");
    client.stop().await;
}

#[tokio::test]
async fn an_answer_that_a_stopped_client_never_read_is_given_again() {
    let kept = Kept::new();
    let mut client = kept.client(&[]).await;
    client.cell("x = 1").await.ok();
    let running = client.start_cell("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('read by nobody')").await;
    client.has_begun_what_was_asked().await;
    client.signal(nix::sys::signal::Signal::SIGSTOP);
    kept.write("go", "");
    eventually("the cell has ended", || {
        let session = &kept.sessions()[0];
        session["answers"] == true && session["open_cells"] == 0
    })
    .await;
    // Longer than an answer takes that is on its way.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    kill(client).await;
    assert_eq!(running.response().await, None);
    kept.left_session().await;
    let mut client = kept.client(&[]).await;
    let text = client.cell("x").await.ok();
    assert!(
        text.contains("which may not have reached you: ") && text.contains("]\nread by nobody\n"),
        "{text}"
    );
    client.stop().await;
}

#[tokio::test]
async fn the_notebook_goes_on_with_the_next_client() {
    let kept = Kept::new();
    let flags = ["--notebook", "auto"];
    let mut client = kept.client(&flags).await;
    client.cell("x = 1").await.ok();
    kill(client).await;
    let mut client = kept.client(&flags).await;
    client.cell("x + 1").await.ok();
    let session = kept.sessions().remove(0);
    let notebook = session["notebook"].as_str().unwrap().to_owned();
    assert!(notebook.ends_with(&format!("-{}.ipynb", session["id"].as_str().unwrap())), "{notebook}");
    let shown = kept.run(&["show", session["id"].as_str().unwrap()]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains(&format!("Notebook   {notebook}\n")));
    let written = || std::fs::read_to_string(&notebook).unwrap_or_default();
    eventually("both cells are written", || written().contains("\"x + 1\"")).await;
    let text = written();
    assert!(text.contains("\"x = 1\"") && text.matches("### Session").count() == 1, "{text}");
    client.stop().await;
}
