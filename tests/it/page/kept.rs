//! `ipybox ui`: the page of a session that is kept.

use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Browser, Visitor};
use crate::support::{Place, environment, eventually, kernel_python};

/// Starts `ipybox ui`, and returns its address and code.
async fn ui(place: &Place) -> (Child, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["ui", "--state-dir", place.states().to_str().unwrap()])
        .env_clear()
        .envs(environment())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut url, mut code) = (None, None);
    while url.is_none() || code.is_none() {
        let line = lines.next_line().await.unwrap().expect("it has ended");
        match line.trim().split_once("  ") {
            Some(("page", found)) => url = Some(found.to_owned()),
            Some(("code", found)) => code = Some(found.to_owned()),
            _ => {}
        }
    }
    // Whatever else it says is not waited for.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, url.unwrap(), code.unwrap())
}

#[tokio::test]
async fn a_kept_session_is_decided_about_on_a_page() {
    let place = Place::new();
    let python = kernel_python();
    let log = place.states().join("audit.jsonl");
    let flags = [
        "--keep-session",
        "60s",
        "--approval",
        "ask",
        "--approve-shell-cmds",
        "--approval-timeout",
        "300",
        "--python",
        python.to_str().unwrap(),
        "--audit-log",
        log.to_str().unwrap(),
    ];
    std::fs::create_dir_all(place.states()).unwrap();
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    // Before there is a page, the client alone is asked.
    let running = ipybox.start_cell("!echo before").await;
    ipybox.decide("allow once").await;
    running.answer().await.ok();

    let (mut child, url, code) = ui(&place).await;
    let visitor = Visitor::enter(&url, &code).await;
    let mut decisions = json!([]);
    for _ in 0..6_000 {
        decisions = visitor.scene().await["decisions"].clone();
        if decisions != json!([]) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(decisions[0]["tool"], "shell", "the audit log has it: {decisions}");
    assert_eq!(decisions[0]["arguments"][0]["parts"], json!(["echo before"]), "{decisions}");
    assert_eq!(decisions[0]["how"], "allowed once");

    let running = ipybox.start_cell("!echo after").await;
    ipybox.question().await;
    assert!(visitor.answer(&visitor.question().await, "once").await);
    assert!(running.answer().await.ok().contains("after"));
    let about = visitor.scene().await["about"].clone();
    assert!(
        about["workspace"].as_str().unwrap().ends_with("/workspace") && about["session"].is_string(),
        "{about}"
    );
    assert!(about["client"].is_string(), "{about}");
    // The log says where each was answered.
    let vias = || -> Vec<String> {
        let text = std::fs::read_to_string(&log).unwrap();
        let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        records.filter_map(|record| Some(record["via"].as_str()?.to_owned())).collect()
    };
    assert_eq!(vias(), ["mcp_elicitation", "page"]);
    // It ends without the session.
    let id = i32::try_from(child.id().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGINT).unwrap();
    assert!(child.wait().await.unwrap().success());
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    end(&place);
    ipybox.close_input();
}

#[tokio::test]
async fn the_page_says_that_its_session_has_ended() {
    let place = Place::new();
    let python = kernel_python();
    let mut ipybox = place.start(&["--keep-session", "60s", "--python", python.to_str().unwrap()]).await;
    ipybox.initialize().await;
    ipybox.cell("1").await.ok();
    let (mut child, url, code) = ui(&place).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let _running = ipybox.start_cell("import time; time.sleep(600)").await;
    browser.run("await page.waitForFunction(() => document.querySelector('.cell h3 span')?.textContent === 'runs');").await;
    end(&place);
    browser
        .run(
            "await page.waitForFunction(() => /ended|lost/.test(document.getElementById('state').textContent));
             const words = await page.$eval('#state', (state) => state.textContent);
             const cell = await page.$eval('.cell h3 span', (how) => how.textContent);
             if (words.includes('ended') && cell === 'runs') throw new Error('a cell seems to go on');",
        )
        .await;
    assert!(!child.wait().await.unwrap().success());
    ipybox.close_input();
}

/// Ends the sessions of a place.
fn end(place: &Place) {
    let states = place.states();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command
            .arg("sessions")
            .args(arguments)
            .arg("--state-dir")
            .arg(&states)
            .env_clear()
            .envs(environment());
        command.output().unwrap()
    };
    let found = run(&["--json"]).stdout;
    let found: serde_json::Value = serde_json::from_slice(&found).unwrap();
    for session in found.as_array().unwrap() {
        run(&["end", session["id"].as_str().unwrap()]);
    }
}

#[tokio::test]
async fn the_code_of_a_kept_session_is_in_no_log() {
    let place = Place::new();
    let python = kernel_python();
    let flags = ["--keep-session", "60s", "--approval", "ask", "--approve-shell-cmds", "--approval-ui"];
    let flags = [&flags[..], &["--approval-timeout", "300", "--python", python.to_str().unwrap()]].concat();
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize_with(json!({"elicitation": {"form": {}, "url": {}}})).await;
    let running = ipybox.start_cell("!echo kept").await;
    let question = ipybox.question().await;
    let message = question["params"]["message"].as_str().unwrap().to_owned();
    let (code, url) = (message.rsplit(' ').next().unwrap(), question["params"]["url"].as_str().unwrap());
    assert!(!place.everything_in_states().contains(code) && !ipybox.log().contains(code));
    let visitor = Visitor::enter(url, code).await;
    assert!(visitor.answer(&visitor.question().await, "once").await);
    assert!(running.answer().await.ok().contains("kept"));
    let secrets = [visitor.key.as_str(), visitor.cookie.rsplit('=').next().unwrap()];
    eventually("the log is written", || !place.everything_in_states().is_empty()).await;
    for secret in secrets {
        assert!(!place.everything_in_states().contains(secret), "a secret is in a file");
    }
    end(&place);
    ipybox.close_input();
}
