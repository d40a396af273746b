//! `ipybox replay` finds what differs, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use super::recording::recording;
use crate::support::{Place, environment, kernel_python, probe, test_server, tool};

/// Runs `ipybox replay` with these flags.
pub(super) async fn replay_with(
    place: &Place,
    file: &Path,
    flags: &[&str],
    variables: &[(&str, &str)],
) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .arg("replay")
        .arg(file)
        .arg("--workspace")
        .arg(place.workspace())
        .arg("--state-dir")
        .arg(place.states())
        .arg("--python")
        .arg(kernel_python())
        .args(flags)
        .env_clear()
        .envs(environment())
        .env("TMPDIR", place.temporary())
        .envs(variables.iter().copied())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

/// The report in JSON.
pub(super) async fn report(place: &Place, file: &Path, flags: &[&str]) -> Value {
    let output = replay_with(place, file, &[&["--json"], flags].concat(), &[]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    assert_eq!(output.status.success(), report["is_same"] == true, "{report}");
    report
}

pub(super) fn results(report: &Value) -> Vec<&str> {
    report["cells"].as_array().unwrap().iter().map(|cell| cell["result"].as_str().unwrap()).collect()
}

/// The kinds of the differences of a cell, counted from 0.
pub(super) fn kinds(report: &Value, cell: usize) -> Vec<&str> {
    let differences = report["cells"][cell]["differences"].as_array().unwrap();
    differences.iter().map(|difference| difference["kind"].as_str().unwrap()).collect()
}

/// A recording of these cells with the probe.
pub(super) async fn recorded(place: &Place, flags: &[&str], cells: &[&str]) -> PathBuf {
    let file = place.temporary().join("recorded.jsonl");
    let mut ipybox = recording(place, &file, flags).await;
    ipybox.register("probe", probe()).await.ok();
    for cell in cells {
        drop(ipybox.cell(cell).await);
    }
    ipybox.stop().await;
    file
}

/// The same recording with another text in place of one that it has.
pub(super) fn edited(file: &Path, before: &str, after: &str) -> PathBuf {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(before), "{before} in {text}");
    let path = file.with_file_name("edited.jsonl");
    std::fs::write(&path, text.replacen(before, after, 1)).unwrap();
    path
}

#[tokio::test]
async fn a_session_is_replayed_without_its_servers() {
    let place = Place::new();
    let cells = [
        "from mcptools.probe import add, echo, fail\nimport random, uuid, os\nnames = {'a', 'b', 'c'}",
        "total = add.run(a=2).total\nprint(total, list(names), random.random(), uuid.uuid4(), os.getcwd())",
        "for text in ('x', 'y', 'x'): print(echo.run(text=text))\ntotal",
        "fail.run(reason='no')",
        "object()",
    ];
    let file = recorded(&place, &[], &cells).await;
    // Another state directory knows no server.
    let elsewhere = Place::new();
    let report = report(&elsewhere, &file, &[]).await;
    assert_eq!(results(&report), ["same", "same", "same", "same", "same_by_rules"], "{report:#}");
    assert_eq!(report["rules"][0][0], "addresses", "{report:#}");
    let calls: u64 =
        report["cells"].as_array().unwrap().iter().map(|cell| cell["calls"].as_u64().unwrap()).sum();
    assert_eq!(calls, 1 + 3 + 1);
    assert_eq!((&report["is_complete"], &report["is_stopped"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn resets_and_cells_that_were_interrupted_are_replayed_as_they_were() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    ipybox.cell("x = 1").await.ok();
    ipybox.call("execute_ipython_cell", json!({"code": "while True: pass", "timeout": 1})).await.error();
    ipybox.cell("print(x)").await.ok();
    ipybox.reset().await;
    ipybox.cell("print('x' in globals())").await.ok();
    ipybox.stop().await;
    let report = report(&place, &file, &[]).await;
    assert_eq!(results(&report), ["same", "not_run", "same", "same"], "{report:#}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn undone_cells_are_undone_again() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    for cell in ["x = [1]", "x.append(2)", "x.append(3)"] {
        ipybox.cell(cell).await.ok();
    }
    ipybox.call("reset", json!({"cells": 2})).await.ok();
    assert_eq!(ipybox.cell("print(x)").await.ok(), "[1]");
    ipybox.stop().await;
    let report = report(&place, &file, &[]).await;
    assert_eq!(results(&report), ["same", "same", "same", "same"], "{report:#}");
}

#[tokio::test]
async fn rules_hold_for_living_servers() {
    let place = Place::new();
    let file = recorded(&place, &[], &["from mcptools.probe import echo\nprint(echo.run(text='a'))"]).await;
    for (effect, succeeds) in [("allow", true), ("ask", false), ("deny", false)] {
        place.write("policy.toml", &format!("default = '{effect}'\n"));
        let policy = place.workspace().join("policy.toml");
        let flags = ["--mode", "live", "--approval-policy", policy.to_str().unwrap()];
        let output = replay_with(&place, &file, &flags, &[]).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.success(), succeeds, "{effect}: {text}");
    }
}

#[tokio::test]
async fn strict_replays_end_at_the_first_call_that_differs() {
    let place = Place::new();
    let cells = [
        "from mcptools.probe import add, echo\nprint(echo.run(text='one'))\nprint(add.run(a=1))",
        "print(2)",
    ];
    let file = recorded(&place, &[], &cells).await;
    let changed = edited(&file, "echo.run(text='one')", "echo.run(text='two')");
    let stopped = report(&place, &changed, &[]).await;
    assert_eq!(
        (results(&stopped), kinds(&stopped, 0)),
        (vec!["different"], vec!["unknown_call"]),
        "{stopped:#}"
    );
    let diff = stopped["cells"][0]["differences"][0]["diff"].to_string();
    assert!(diff.contains("-   text = \\\"one\\\"") && diff.contains("+   text = \\\"two\\\""), "{diff}");
    assert_eq!(stopped["is_stopped"], true);

    let dry = report(&place, &changed, &["--mode", "dry"]).await;
    assert_eq!(results(&dry), ["different", "same"], "{dry:#}");
    assert!(kinds(&dry, 0).contains(&"missing_call"), "{dry:#}");

    let order = "print(add.run(a=1))\\nprint(echo.run(text='one'))";
    let reordered = edited(&file, "print(echo.run(text='one'))\\nprint(add.run(a=1))", order);
    let found = report(&place, &reordered, &[]).await;
    assert_eq!(kinds(&found, 0), ["reordered_call"], "{found:#}");
    // Also of threads, since nothing says that these two did not wait for each other.
    let order = "from threading import Thread\\nfor call in (lambda: add.run(a=1), lambda: echo.run(text='one')):\\n    \
                 thread = Thread(target=call); thread.start(); thread.join()";
    let threads = edited(&file, "print(echo.run(text='one'))\\nprint(add.run(a=1))", order);
    let found = report(&place, &threads, &["--mode", "dry"]).await;
    assert!(kinds(&found, 0).contains(&"reordered_call"), "{found:#}");
}

#[tokio::test]
async fn calls_that_code_makes_side_by_side_have_no_order() {
    let place = Place::new();
    // More than wait at the same time: the last ones reach the host when others have ended.
    let cell = "import asyncio\nfrom mcptools.probe import echo\n\
                async def say(n): return await echo.run_async(text=str(n))\n\
                print(*await asyncio.gather(*map(say, range(150))))";
    let file = recorded(&place, &[], &[cell]).await;
    let backwards = edited(&file, "map(say, range(150))", "map(say, reversed(range(150)))");
    let found = report(&place, &backwards, &["--mode", "dry"]).await;
    assert_eq!(kinds(&found, 0), ["output"], "{found:#}");
}

#[tokio::test]
async fn dry_replays_list_what_may_write() {
    let place = Place::new();
    let file =
        recorded(&place, &[], &["from mcptools.probe import add, echo\necho.run(text='a')\nadd.run(a=7)"])
            .await;
    let dry = report(&place, &file, &["--mode", "dry"]).await;
    assert_eq!(results(&dry), ["same"], "{dry:#}");
    assert_eq!(dry["cells"][0]["writes"], json!(["probe.add\n  a = 7"]));
}

#[tokio::test]
async fn living_servers_are_compared_in_what_they_offer_and_answer() {
    let place = Place::new();
    let cells =
        ["from mcptools.probe import add, echo\nprint(echo.run(text='a'))\nprint(add.run(a=1).total)"];
    let file = recorded(&place, &[], &cells).await;
    let same = report(&place, &file, &["--mode", "live"]).await;
    assert_eq!((results(&same), &same["servers"]), (vec!["same"], &json!([])), "{same:#}");

    let result = edited(&file, "{\"result\":\"a\"}", "{\"result\":\"b\"}");
    let changed = report(&place, &result, &["--mode", "live"]).await;
    assert!(kinds(&changed, 0).contains(&"changed_result"), "{changed:#}");
    // The call that reads goes to the living server, and the other one does not.
    let reads = report(&place, &result, &["--mode", "reads"]).await;
    assert!(kinds(&reads, 0).contains(&"changed_result"), "{reads:#}");

    let schema = edited(&file, "Adds two numbers.", "Adds three numbers.");
    let drifted = report(&place, &schema, &["--mode", "live"]).await;
    assert!(drifted["servers"].to_string().contains("Adds two numbers."), "{drifted:#}");

    let elsewhere = replay_with(&Place::new(), &file, &["--mode", "live"], &[]).await;
    let error = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert!(
        !elsewhere.status.success() && error.contains("no server is registered under its name"),
        "{error}"
    );
}

#[tokio::test]
async fn secrets_are_filled_if_the_user_names_them_and_not_otherwise() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    let mut server = probe();
    server["env"] = json!({"KEY": "${API_KEY}"});
    ipybox.register("probe", server).await.ok();
    ipybox
        .cell("from mcptools.probe import echo\nprint(len(str(echo.run(text='the-secret-value'))))")
        .await
        .ok();
    ipybox.stop().await;
    let variables = [("API_KEY", "the-secret-value"), ("OTHER", "of-the-host")];
    let filled = replay_with(&place, &file, &["--fill", "API_KEY"], &variables).await;
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stdout));
    let hostile = edited(&file, "print(len(str(echo.run(text='${API_KEY}'))))", "print('${OTHER}' + '!')");
    let output = replay_with(&place, &hostile, &["--fill", "API_KEY"], &variables).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("${OTHER}!") && !text.contains("of-the-host"), "{text}");
    let missing = replay_with(&place, &file, &["--fill", "NOT_SET"], &[]).await;
    assert!(String::from_utf8_lossy(&missing.stderr).contains("${NOT_SET}"));
}

#[tokio::test]
async fn a_recording_chooses_nothing_that_runs_on_the_host() {
    let place = Place::new();
    let file = recorded(&place, &[], &["from mcptools.probe import echo\nprint(echo.run(text='a'))"]).await;
    let mark = place.temporary().join("mark");
    let python = tool("mcp1/bin/python");
    let command = format!("\"command\":\"{}\"", python.display());
    let script = test_server("probe.py");
    let hostile = edited(&file, &command, "\"command\":\"touch\"");
    let hostile = edited(&hostile, &format!("\"{}\"", script.display()), &format!("\"{}\"", mark.display()));
    for mode in ["strict", "live"] {
        report(&place, &hostile, &["--mode", mode]).await;
    }
    assert!(!mark.exists());
    for (before, after, why) in [
        ("\"name\":\"probe\"", "\"name\":\"../probe\"", "line 4"),
        ("\"format\":1", "\"format\":7", "version 7"),
        ("\"environment\":{", "\"environment\":{\"PYTHONSTARTUP\":\"/x\",", "PYTHONSTARTUP"),
    ] {
        let output = replay_with(&place, &edited(&file, before, after), &[], &[]).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_recording_that_was_cut_is_replayed_as_far_as_it_goes() {
    let place = Place::new();
    let file = recorded(&place, &[], &["print(1)", "print(2)"]).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let end = text.find("{\"line\":\"end\"").unwrap();
    let cut = file.with_file_name("cut.jsonl");
    std::fs::write(&cut, &text[..end + 9]).unwrap();
    let report = report(&place, &cut, &[]).await;
    assert_eq!((results(&report), &report["is_complete"]), (vec!["same", "same"], &json!(false)));
}

#[tokio::test]
async fn large_outputs_and_results_are_replayed() {
    let place = Place::new();
    let code = "from mcptools.probe import big\ntext = str(big.run(characters=2_000_000))\nprint(len(text))\nprint(text[:600_000])";
    let file = recorded(&place, &[], &[code]).await;
    let report = report(&place, &file, &[]).await;
    assert_eq!(results(&report), ["same"], "{report:#}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn sandboxed_sessions_are_replayed_in_a_sandbox() {
    let place = Place::new();
    let cells =
        ["from mcptools.probe import echo\nprint(echo.run(text='a'))", "open('/ipybox-was-here', 'w')"];
    let path = crate::support::equipped();
    let file = place.temporary().join("recorded.jsonl");
    let python = kernel_python();
    let flags = [
        "--python",
        python.to_str().unwrap(),
        "--record",
        file.to_str().unwrap(),
        "--sandbox",
        "--sandbox-backend",
        "bwrap",
    ];
    let mut ipybox = place.start_with(&flags, &[("PATH", path.as_str())]).await;
    ipybox.initialize().await;
    ipybox.register("probe", probe()).await.ok();
    for cell in cells {
        drop(ipybox.cell(cell).await);
    }
    ipybox.stop().await;
    let variables = [("PATH", path.as_str())];
    let output = replay_with(&place, &file, &["--json", "--sandbox-backend", "bwrap"], &variables).await;
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    // The hint of the error names the directory for temporary files.
    assert_eq!(results(&report), ["same", "same_by_rules"], "{report:#}");
    assert_eq!(report["rules"][0][0], "temporary", "{report:#}");
    // What was exposed in the replay is gone.
    let states = std::fs::read_dir(place.states().join("workspaces")).unwrap();
    let records = states.map(|state| std::fs::read_to_string(state.unwrap().path().join("exposed.json")));
    let records: Vec<String> = records.map(Result::unwrap_or_default).collect();
    assert!(!records.concat().contains("ipybox-replay-"), "{records:?}");
}
