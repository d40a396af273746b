//! How the gate decides.

use serde_json::Map;

use super::*;
use crate::approval::action::Target;

const TIMEOUT: Duration = Duration::from_secs(60);

fn action(server_name: &str) -> Action {
    Action::new(server_name.to_owned(), "t".to_owned(), Map::new(), Target::Command("x".to_owned()))
}

fn gate(policy: &str) -> Gate {
    Gate::new(ApprovalPolicy::parse(policy).unwrap(), StandingAnswers::default(), TIMEOUT, Audit::off())
}

fn waiting(queue: &ApprovalQueue) -> usize {
    *queue.waiting().borrow()
}

/// Decides while `answer` answers the queued request.
async fn decide(gate: &Gate, answer: impl AsyncFnOnce(ApprovalRequest)) -> Decision {
    let (queue, mut requests) = ApprovalQueue::new();
    let approver = Approver::User(Arc::clone(&queue));
    let answering = async {
        let request = requests.recv().await.unwrap();
        assert_eq!(waiting(&queue), 1);
        answer(request).await;
    };
    let action = Arc::new(action("s"));
    let (decision, ()) = tokio::join!(gate.judge(&action, &approver, ChosenBy::Trusted), answering);
    assert_eq!(waiting(&queue), 0);
    decision
}

/// Decides without asking a user.
async fn decide_unasked(gate: &Gate) -> Decision {
    let (queue, _requests) = ApprovalQueue::new();
    let (action, approver) = (Arc::new(action("s")), Approver::User(queue));
    let deciding = gate.judge(&action, &approver, ChosenBy::Trusted);
    tokio::time::timeout(Duration::from_secs(1), deciding).await.unwrap()
}

#[track_caller]
fn check(decision: &Decision, by: DecidedBy, denied: impl Into<Option<&'static str>>) {
    let words = decision.outcome.as_ref().err().map(ToString::to_string);
    assert_eq!((&decision.by, words.as_deref()), (&by, denied.into()));
}

const REJECTED: &str = "the call of `s.t` was rejected";
const EXPIRED: &str = "the call of `s.t` was not approved within 60 s";

#[tokio::test(start_paused = true)]
async fn an_accepted_call_may_run() {
    let decision = decide(&gate(""), async |request| assert!(request.accept())).await;
    check(&decision, DecidedBy::Answer(UserAnswer::Once), None);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_call_may_not_run() {
    let decision = decide(&gate(""), async |request| assert!(request.reject())).await;
    check(&decision, DecidedBy::Answer(UserAnswer::No), REJECTED);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_question_is_a_rejection() {
    let decision = decide(&gate(""), async |request| drop(request)).await;
    check(&decision, DecidedBy::Nobody, REJECTED);
    let handed_out = async |request: ApprovalRequest| request.hand_out();
    check(&decide(&gate(""), handed_out).await, DecidedBy::Nobody, REJECTED);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_nobody_reads_rejects() {
    let (queue, requests) = ApprovalQueue::new();
    drop(requests);
    check(
        &gate("").judge(&Arc::new(action("s")), &Approver::User(queue), ChosenBy::Trusted).await,
        DecidedBy::Nobody,
        REJECTED,
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_to_answer_begins_when_the_question_is_handed_out() {
    let late = async |request: ApprovalRequest| {
        tokio::time::sleep(10 * TIMEOUT).await;
        request.hand_out();
        tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
        assert!(request.accept());
    };
    check(&decide(&gate(""), late).await, DecidedBy::Answer(UserAnswer::Once), None);
}

#[tokio::test(start_paused = true)]
async fn a_question_expires() {
    let too_late = async |mut request: ApprovalRequest| {
        request.hand_out();
        tokio::time::timeout(2 * TIMEOUT, request.closed()).await.unwrap();
        assert!(!request.accept());
    };
    check(&decide(&gate(""), too_late).await, DecidedBy::Expiry, EXPIRED);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_question_is_closed() {
    let (queue, mut requests) = ApprovalQueue::new();
    let (gate, approver) = (gate(""), Approver::User(Arc::clone(&queue)));
    let mut deciding = Box::pin(gate.decide(action("s"), &approver));
    let mut request = tokio::select! {
        _ = &mut deciding => panic!("nobody has answered"),
        request = requests.recv() => request.unwrap(),
    };
    drop(deciding);
    request.closed().await;
    assert_eq!(waiting(&queue), 0);
    assert!(!request.accept());
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_the_session_replaces_the_next_question() {
    let gate = gate("");
    let decision = decide(&gate, async |request| assert!(request.accept_for_session())).await;
    check(&decision, DecidedBy::Answer(UserAnswer::Session), None);
    check(&decide_unasked(&gate).await, DecidedBy::Standing(UserAnswer::Session), None);
    let nobody = Approver::Nobody("nobody is there");
    check(
        &gate.judge(&Arc::new(action("s")), &nobody, ChosenBy::Trusted).await,
        DecidedBy::Standing(UserAnswer::Session),
        None,
    );
    assert!(gate.decide(action("other"), &nobody).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_good_that_cannot_be_saved_does_not_count() {
    let standing = StandingAnswers::new("/nowhere/approvals.json".into());
    let gate = Gate::new(ApprovalPolicy::always(ApprovalEffect::Ask), standing, TIMEOUT, Audit::off());
    let decision = decide(&gate, async |request| assert!(request.accept_always())).await;
    assert!(
        matches!(decision.outcome, Err(DenialReason::NotSaved { why, .. }) if why.contains("/nowhere/approvals.json"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_never_replaced() {
    let denies = gate("[[rule]]\nname = 'no'\neffect = 'deny'");
    denies.standing.remember(&action("s"), UserAnswer::Always).unwrap();
    let words = "`s.t` is denied by the approval policy: rule 1 (\"no\")";
    let by = || DecidedBy::Policy(Some("rule 1 (\"no\")".into()));
    check(&decide_unasked(&denies).await, by(), words);
    check(&denies.judge(&Arc::new(action("s")), &Approver::Consent, ChosenBy::Trusted).await, by(), words);
}

#[tokio::test(start_paused = true)]
async fn what_is_allowed_is_not_asked() {
    check(&decide_unasked(&gate("default = 'allow'")).await, DecidedBy::Policy(None), None);
}

#[tokio::test(start_paused = true)]
async fn consent_replaces_questions() {
    check(
        &gate("").judge(&Arc::new(action("s")), &Approver::Consent, ChosenBy::Trusted).await,
        DecidedBy::Consent,
        None,
    );
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_be_asked_a_question_is_a_denial() {
    let nobody = Approver::Nobody("no client");
    let words = "the call of `s.t` needs approval, and nobody can be asked: no client";
    check(
        &gate("").judge(&Arc::new(action("s")), &nobody, ChosenBy::Trusted).await,
        DecidedBy::Nobody,
        words,
    );
}

#[tokio::test(start_paused = true)]
async fn between_cells_nobody_answers() {
    let gate = gate("");
    gate.set_approver(Approver::Consent);
    assert!(matches!(gate.approver(), Approver::Consent));
    gate.end_cell();
    assert!(matches!(gate.approver(), Approver::Nobody(NO_CELL)));
}

#[tokio::test]
async fn those_who_watch_are_told_what_was_decided_without_a_question() {
    let rules = "[[rule]]\nserver = 'open'\neffect = 'allow'\n[[rule]]\nserver = 'shut'\neffect = 'deny'";
    let gate = gate(rules);
    let ruled = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&ruled);
    gate.watch(Box::new(move |notice| {
        if let QuestionNotice::Ruled { action, how } = notice {
            noted.lock().push(format!("{}: {how}", action.server_name));
        }
    }));
    let (queue, mut requests) = ApprovalQueue::new();
    let approver = Approver::User(queue);
    let answering = async { assert!(requests.recv().await.unwrap().accept_for_session()) };
    let (asked, ()) = tokio::join!(gate.decide(action("s"), &approver), answering);
    let (_, on_record) = asked.unwrap();
    drop(on_record);
    for server in ["open", "shut", "s"] {
        drop(gate.decide(action(server), &approver).await);
    }
    let ruled = ruled.lock().join("\n");
    let expected = [
        "open: allowed by the policy, ",
        "shut: denied by the policy, ",
        "s: allowed for this session, by an",
    ];
    assert_eq!(ruled.lines().count(), expected.len(), "{ruled}");
    for (line, begin) in ruled.lines().zip(expected) {
        assert!(line.starts_with(begin), "{ruled}");
    }
}
