//! `ipybox replay --mode policy` says what a policy would have decided about the calls of a recording or an audit log.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::recording::recording;
use super::replaying::{kinds, replay_with, report, results};
use crate::support::{Ipybox, Place, probe};

const CODE: &str = "from mcptools.probe import add, echo, fail\nprint(echo.run(text='a'))\n\
                    for reason in ('one', 'again'):\n    try: fail.run(reason=reason)\n    except Exception: pass";

fn policy(place: &Place) -> PathBuf {
    place.write(
        "policy.toml",
        "default = \"allow\"\n[[rule]]\nname = \"not again\"\ntool = \"fail\"\n\
         arguments = [{ pointer = \"/reason\", equals = \"again\" }]\neffect = \"deny\"\n\
         [[rule]]\ntarget = \"**probe.py**\"\ntool = \"add\"\neffect = \"ask\"\n",
    );
    place.workspace().join("policy.toml")
}

/// A session with two cells of calls. Everything is permitted.
async fn session(place: &Place, flags: &[&str]) -> Ipybox {
    let mut ipybox = recording(place, &place.temporary().join("a.jsonl"), flags).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(CODE).await.ok();
    ipybox.cell("print(add.run(a=1).total)").await.ok();
    ipybox
}

/// The words of all differences.
fn words(report: &Value) -> String {
    let cells = report["cells"].as_array().unwrap();
    let differences = cells.iter().flat_map(|cell| cell["differences"].as_array().unwrap());
    differences.map(|found| format!("{}\n", found["words"].as_str().unwrap())).collect()
}

async fn judged(place: &Place, file: &Path) -> Value {
    let policy = policy(place);
    report(place, file, &["--mode", "policy", "--approval-policy", policy.to_str().unwrap()]).await
}

#[tokio::test]
async fn a_policy_is_asked_about_recorded_calls_and_logged_ones_and_nothing_runs() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let mark = place.workspace().join("mark");
    let mut ipybox = session(&place, &["--audit-log", log.to_str().unwrap()]).await;
    ipybox.cell(&format!("open({:?}, 'w').close()", mark.to_str().unwrap())).await.ok();
    ipybox.stop().await;
    std::fs::remove_file(&mark).unwrap();
    let expected = "`probe.fail(reason='again')`: was permitted (policy), would be `deny` by rule 1 (\"not again\")\n\
                    `probe.add(a=1)`: was permitted (policy), would be `ask` by rule 2\n";
    let recorded = judged(&place, &place.temporary().join("a.jsonl")).await;
    assert_eq!(
        (results(&recorded), words(&recorded).as_str()),
        (vec!["different"; 2], expected),
        "{recorded:#}"
    );
    assert_eq!((&recorded["cells"][0]["calls"], kinds(&recorded, 0)), (&2.into(), vec!["decision"]));
    let logged = judged(&place, &log).await;
    // The log has the registration, too, before the first cell.
    assert_eq!(words(&logged), expected, "{logged:#}");
    assert_eq!(logged["cells"][0]["cell"], 0, "{logged:#}");
    assert!(logged["cells"][1]["session"].is_string(), "{logged:#}");
    assert!(!mark.exists(), "no code runs");

    let output = replay_with(&place, &log, &[], &[]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("it has no code") && error.contains("--mode policy"),
        "{error}"
    );
    let output = replay_with(&place, &log, &["--mode", "policy"], &[]).await;
    assert!(String::from_utf8_lossy(&output.stderr).contains("--approval-policy"));
}

#[tokio::test]
async fn what_a_recording_does_not_say_is_no_decision() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    let mut server = probe();
    server["env"] = serde_json::json!({"KEY": "${API_KEY}"});
    ipybox.register("probe", server).await.ok();
    ipybox.cell("from mcptools.probe import fail\ntry: fail.run(reason='the-secret-value')\nexcept Exception: pass").await.ok();
    ipybox.stop().await;
    let judged = judged(&place, &file).await;
    assert_eq!(kinds(&judged, 0), ["unknown_decision"], "{judged:#}");
    assert!(words(&judged).contains("its arguments were redacted"), "{judged:#}");
}
