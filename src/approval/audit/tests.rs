//! What is in the file after something has happened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::*;
use crate::approval::action::{Action, Target, ToolAnnotations};
use crate::approval::decision::DenialReason;
use crate::approval::gate::{CallAttempt, Gate};
use crate::approval::policy::{ApprovalEffect, ApprovalPolicy};
use crate::approval::question::{ApprovalQueue, Approver};
use crate::approval::standing::StandingAnswers;
use crate::ground::env::Variables;

/// A log in a directory of its own.
struct Place {
    directory: tempfile::TempDir,
    audit: Audit,
}

impl Place {
    fn new(contents: AuditContents) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let variables = Variables::from_pairs([("KEY", "the-secret")]);
        variables.fill("${KEY}").unwrap();
        let settings = LogSettings { contents, ..settings(directory.path().join("log")) };
        let audit = Audit::open(settings, variables.redactor().clone()).unwrap();
        Self { directory, audit }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// All that was events, in order, without the session's first and last one; closes the log.
    async fn written(&self) -> Vec<Value> {
        self.audit.close().await;
        let text = std::fs::read_to_string(self.path()).unwrap();
        assert!(!text.contains("the-secret"), "{text}");
        let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(all[all.len() - 1]["event"], "session_ended");
        let is_of_a_session = |event: &Value| event["event"].as_str().unwrap().starts_with("session_");
        all.into_iter().filter(|event| !is_of_a_session(event)).collect()
    }
}

fn settings(path: PathBuf) -> LogSettings {
    LogSettings {
        path,
        contents: AuditContents::Arguments,
        max_bytes: 1024 * 1024,
        kept_files: 1,
        workspace: PathBuf::from("/nonexistent"),
        face: SessionFace::RustLibrary,
        begin: LogBegin::AtOnce,
    }
}

fn gate(audit: &Audit, effect: ApprovalEffect) -> Gate {
    Gate::new(
        ApprovalPolicy::always(effect),
        StandingAnswers::default(),
        Duration::from_secs(60),
        audit.clone(),
    )
}

fn action() -> Action {
    let Value::Object(tool_args) = json!({"key": "the-secret", "more": [1, {"the-secret": "a the-secret"}]})
    else {
        unreachable!()
    };
    Action::new(
        "server".to_owned(),
        "tool".to_owned(),
        tool_args,
        Target::Command("run --key the-secret".to_owned()),
    )
}

/// The events' names and these fields of them.
fn fields(events: &[Value], names: &[&str]) -> Vec<String> {
    let field = |event: &Value, name: &str| match &event[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let row = |event: &Value| names.iter().map(|name| field(event, name)).collect::<Vec<_>>().join(" ");
    events.iter().map(|event| format!("{} {}", field(event, "event"), row(event))).collect()
}

#[tokio::test]
async fn the_end_of_a_call_says_what_had_been_read_when_it_ran() {
    let place = Place::new(AuditContents::Arguments);
    let rule = "[[rule]]\nserver = 'server'\ntainted_by = 'confidential'\neffect = 'deny'\n";
    let labels = "default = 'allow'\n[labels]\nweb = 'untrusted'\nmail = 'confidential'\n";
    let policy = ApprovalPolicy::parse(&format!("{labels}{rule}")).unwrap();
    let gate = Gate::new(policy, StandingAnswers::default(), Duration::from_secs(60), place.audit.clone());
    let (mut permit, mut call) = gate.decide(action(), &Approver::Consent).await.unwrap();
    let mut later = gate.decide(action(), &Approver::Consent).await.unwrap();
    let memory = gate.memory().unwrap();
    memory.begin("web", "get");
    let attempt = gate.attempt(&mut permit, &mut call, &Approver::Consent, CallAttempt::Last).await;
    call.result(|| json!(attempt.is_ok()));
    memory.begin("mail", "get");
    let denied = gate.attempt(&mut later.0, &mut later.1, &Approver::Consent, CallAttempt::Last).await;
    assert!(matches!(denied, Err(DenialReason::Policy { .. })), "{denied:?}");
    drop(later);
    let events = place.written().await;
    assert_eq!(
        fields(&events, &["decision", "by", "outcome", "read"]),
        [
            "decision accepted policy null null",
            "decision accepted policy null null",
            r#"call_ended null null result {"untrusted":["web"]}"#,
            "decision denied rule null null",
            "call_ended null null decided_anew null",
        ]
    );
    assert_eq!(events[4]["call"], events[1]["call"]);
    assert_eq!(
        events[3]["provenance"],
        json!({
            "read": {"untrusted": ["web"], "confidential": ["mail"]},
            "asked_again": "untrusted and confidential data has come in since it was allowed",
        })
    );
}

#[tokio::test]
async fn a_call_of_a_cell_is_recorded_from_beginning_to_end() {
    let place = Place::new(AuditContents::Arguments);
    let cell = place.audit.cell_started("é the-secret");
    let (_, call) =
        gate(&place.audit, ApprovalEffect::Allow).decide(action(), &Approver::Consent).await.unwrap();
    call.result(|| json!("the-secret"));
    cell.ended("error", CellOutput { excerpt: "the-secret", chars: 10, images: 2 });
    let events = place.written().await;
    assert_eq!(
        fields(
            &events,
            &["cell", "decision", "by", "outcome", "result_bytes", "end", "chars", "output_chars"]
        ),
        [
            "cell_started 1 null null null null null 12 null",
            "decision 1 accepted policy null null null null null",
            "call_ended null null null result 10 null null null",
            "cell_ended 1 null null null null error null 10",
        ]
    );
    let expected = json!({"key": "${KEY}", "more": [1, {"${KEY}": "a ${KEY}"}]});
    assert_eq!((&events[1]["arguments"], &events[1]["target"]), (&expected, &json!("run --key ${KEY}")));
    assert_eq!(events[1]["call"], events[2]["call"]);
    assert!(events.iter().all(|event| event["session"] == events[0]["session"] && event["time"].is_string()));
    assert!(
        events.iter().all(|event| ["code", "output", "result"].iter().all(|name| event[*name].is_null()))
    );
}

#[tokio::test]
async fn contents_are_recorded_if_wanted() {
    let place = Place::new(AuditContents::Everything);
    let cell = place.audit.cell_started("print('the-secret')");
    let (_, call) =
        gate(&place.audit, ApprovalEffect::Allow).decide(action(), &Approver::Consent).await.unwrap();
    call.result(|| json!({"a": "the-secret"}));
    cell.ended("finished", CellOutput { excerpt: "the-secret\n", chars: 11, images: 0 });
    let events = place.written().await;
    assert_eq!(events[0]["code"], "print('${KEY}')");
    assert_eq!(events[2]["result"], json!({"a": "${KEY}"}));
    assert_eq!(events[3]["output"], "${KEY}\n");
}

#[tokio::test]
async fn what_is_denied_does_not_end() {
    let place = Place::new(AuditContents::Arguments);
    for (effect, approver) in
        [(ApprovalEffect::Deny, Approver::Consent), (ApprovalEffect::Ask, Approver::Nobody("alone"))]
    {
        let refused = gate(&place.audit, effect).decide(action(), &approver).await;
        assert!(matches!(refused, Err(DenialReason::Policy { .. } | DenialReason::Nobody { .. })));
    }
    let events = place.written().await;
    assert_eq!(
        fields(&events, &["decision", "by", "cell"]),
        ["decision denied policy null", "decision denied nobody null"]
    );
    assert!(events[1]["reason"].as_str().is_some_and(|reason| reason.contains("alone")), "{events:?}");
}

#[tokio::test]
async fn dropped_calls_questions_and_cells_are_recorded_as_cancelled_withdrawn_and_stopped() {
    let place = Place::new(AuditContents::Arguments);
    let cell = place.audit.cell_started("");
    let (_, call) =
        gate(&place.audit, ApprovalEffect::Allow).decide(action(), &Approver::Consent).await.unwrap();
    drop(call);
    let (queue, mut requests) = ApprovalQueue::new();
    let (gate, approver) = (gate(&place.audit, ApprovalEffect::Ask), Approver::User(queue));
    {
        let deciding = gate.decide(action(), &approver);
        tokio::select! {
            _ = deciding => panic!("nobody has answered"),
            _ = requests.recv() => {}
        }
    }
    drop(cell);
    let events = place.written().await;
    assert_eq!(
        fields(&events, &["decision", "by", "outcome", "end"]),
        [
            "cell_started null null null null",
            "decision accepted policy null null",
            "call_ended null null cancelled null",
            "decision denied withdrawal null null",
            "cell_ended null null null stopped",
        ]
    );
}

#[tokio::test]
async fn nothing_runs_that_cannot_be_recorded() {
    let place = Place::new(AuditContents::Arguments);
    let denied = gate(&place.audit, ApprovalEffect::Deny).decide(action(), &Approver::Consent).await;
    assert!(matches!(denied, Err(DenialReason::Policy { .. })), "written, and all before it");
    let gate = gate(&place.audit, ApprovalEffect::Allow);
    // A directory in the file's place.
    std::fs::remove_file(place.path()).unwrap();
    std::fs::create_dir(place.path()).unwrap();
    let refused = gate.decide(action(), &Approver::Consent).await;
    assert!(matches!(refused, Err(DenialReason::Unrecorded { .. })));
    place.audit.cell_started("").ended("finished", CellOutput::default());
    // What is recorded next is written after those, which are lost.
    drop(gate.decide(action(), &Approver::Consent).await);
    std::fs::remove_dir(place.path()).unwrap();
    drop(gate.decide(action(), &Approver::Consent).await.unwrap());
    let events = place.written().await;
    assert_eq!(
        fields(&events, &["count"]),
        ["events_lost 4", "decision null", "call_ended null"],
        "two decisions and the cell's two events are lost"
    );
    let refused = gate.decide(action(), &Approver::Consent).await;
    assert!(matches!(refused, Err(DenialReason::Unrecorded { .. })), "the log is closed");
}

#[tokio::test]
async fn a_flood_of_calls_drives_out_no_evidence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let settings = LogSettings { max_bytes: 16_000, ..settings(path.clone()) };
    let audit = Audit::open(settings, Variables::default().redactor().clone()).unwrap();
    let call = |tool: &str, target: Target| Action {
        tool_name: tool.to_owned(),
        tool_args: Map::new(),
        target,
        annotations: Some(ToolAnnotations::default()),
        ..action()
    };
    let server = || Target::Url("https://server".to_owned());
    let run = async |action: Action, gate: &Gate| {
        drop(gate.decide(action, &Approver::Consent).await);
    };
    let (allow, deny) = (gate(&audit, ApprovalEffect::Allow), gate(&audit, ApprovalEffect::Deny));
    run(call("register_mcp_server", Target::Host), &gate(&audit, ApprovalEffect::Ask)).await;
    let (queue, mut requests) = ApprovalQueue::new();
    let approver = Approver::User(queue);
    let answered = gate(&audit, ApprovalEffect::Ask);
    let asking = answered.decide(call("asked", server()), &approver);
    let (decided, ()) =
        tokio::join!(asking, async { assert!(requests.recv().await.unwrap().accept(), "it waits") });
    drop(decided);
    run(call("once", server()), &allow).await;
    for number in 0..200 {
        run(call("flood", server()), if number % 2 == 0 { &allow } else { &deny }).await;
        // Names that the server does not have.
        run(Action { annotations: None, ..call(&format!("made-up-{number}"), server()) }, &deny).await;
    }
    audit.close().await;
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let kept = read(&super::handle::evidence(&path));
    for tool in ["register_mcp_server", "asked", "once", "flood", "made-up-0"] {
        assert!(kept.contains(&format!("\"tool\":\"{tool}\"")), "{tool} in {kept}");
    }
    let (last, decisions) =
        kept.lines().collect::<Vec<_>>().split_last().map(|(last, rest)| (*last, rest.to_vec())).unwrap();
    assert!(last.contains("\"event\":\"session_ended\""), "{last}");
    assert!(decisions.len() <= 3 + 2 * 10, "{kept}");
    assert!(decisions.iter().all(|line| line.contains("\"event\":\"decision\"")), "{kept}");
    let log = read(&path) + &read(&directory.path().join("log.1"));
    assert!(!log.contains("\"asked\""), "the flood was too small");
}

#[tokio::test]
async fn without_a_log_calls_run_all_the_same() {
    let audit = Audit::off();
    drop(gate(&audit, ApprovalEffect::Allow).decide(action(), &Approver::Consent).await.unwrap());
    audit.cell_started("").ended("finished", CellOutput::default());
    audit.close().await;
}

#[test]
fn a_missing_directory_is_named() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("missing/log");
    let error = Audit::open(settings(path.clone()), Variables::default().redactor().clone());
    let error = error.err().unwrap().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("directory does not exist"), "{error}");
}

#[tokio::test]
async fn records_say_whose_session_it_is_and_by_which_face_somebody_decided() {
    let place = Place::new(AuditContents::Arguments);
    let (queue, mut requests) = ApprovalQueue::new();
    let asks = gate(&place.audit, ApprovalEffect::Ask);
    let approver = Approver::User(queue);
    for answer in [
        |request: crate::ApprovalRequest| request.accept(),
        |request: crate::ApprovalRequest| request.accept_for_session(),
    ] {
        let answering = async { assert!(answer(requests.recv().await.unwrap())) };
        let (decided, ()) = tokio::join!(asks.decide(action(), &approver), answering);
        let (_, call) = decided.unwrap();
        call.leave_to_the_kernel();
    }
    let nobody = Approver::Nobody("nobody is there");
    let (_, call) = asks.decide(action(), &nobody).await.unwrap();
    call.leave_to_the_kernel();
    drop(gate(&place.audit, ApprovalEffect::Deny).decide(action(), &nobody).await);
    let events = place.written().await;
    assert_eq!(
        fields(&events, &["by", "via", "earlier"]),
        [
            "decision once rust_library null",
            "decision session rust_library null",
            "decision session null true",
            "decision policy null null"
        ]
    );
    let text = std::fs::read_to_string(place.path()).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&first["event"], &first["face"]), (&json!("session_started"), &json!("rust_library")));
    assert_eq!(
        (&first["workspace"], &first["process"]),
        (&json!("/nonexistent"), &json!(std::process::id()))
    );
}
