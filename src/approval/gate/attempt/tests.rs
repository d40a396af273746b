//! No call runs that a rule on the labels of that moment denies, whatever happens between its announcement and its run.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::approval::action::Target;
use crate::approval::audit::Audit;
use crate::approval::policy::ApprovalPolicy;
use crate::approval::question::{ApprovalQueue, ApprovalRequest};
use crate::approval::standing::StandingAnswers;

const LABELS: &str = "[labels]\nweb = 'untrusted'\nmail = 'confidential'\nnotes = 'trusted'\n";

const DENY: &str =
    "[[rule]]\nname = 'a stranger may want it'\nserver = 'chat'\ntainted_by = 'untrusted'\neffect = 'deny'\n";

const SECRET: &str =
    "the merger with Example Ltd. will be announced on Friday; until then nobody must know of it";

type Decided = Result<(Permit, OpenCall), DenialReason>;

/// A gate with a user, who is asked by a queue.
struct Session {
    gate: Arc<Gate>,
    approver: Approver,
    requests: mpsc::Receiver<ApprovalRequest>,
}

impl Session {
    fn new(default: &str, rules: &str) -> Self {
        let policy = ApprovalPolicy::parse(&format!("default = '{default}'\n{LABELS}{rules}")).unwrap();
        let gate =
            Gate::new(policy, StandingAnswers::default(), Duration::from_secs(24 * 60 * 60), Audit::off());
        let (queue, requests) = ApprovalQueue::new();
        let approver = Approver::User(queue);
        gate.set_approver(approver.clone());
        Self { gate: Arc::new(gate), approver, requests }
    }

    /// Announces a call. Returns what becomes of it, and the question if its user is asked.
    async fn announce(&mut self, server: &str) -> (JoinHandle<Decided>, Option<ApprovalRequest>) {
        let (gate, action) = (Arc::clone(&self.gate), call(server));
        let mut deciding = tokio::spawn(async move { gate.decide_for_code(action).await });
        tokio::select! {
            decided = &mut deciding => (tokio::spawn(async move { decided.unwrap() }), None),
            request = self.requests.recv() => (deciding, request),
        }
    }

    /// Has a call permitted, by its user if need be.
    async fn permitted(&mut self, server: &str) -> (Permit, OpenCall) {
        let (deciding, request) = self.announce(server).await;
        if let Some(request) = request {
            assert!(request.accept());
        }
        deciding.await.unwrap().unwrap()
    }

    fn read(&self, server: &str) {
        self.gate.memory().unwrap().begin(server, "get");
    }

    /// Runs a permitted call. Its user is asked again as often as it takes; `meanwhile` happens before each answer.
    async fn run(
        &mut self,
        (permit, on_record): &mut (Permit, OpenCall),
        mut meanwhile: impl FnMut(&Gate, &ApprovalRequest),
    ) -> Result<CheckedCall, DenialReason> {
        let attempt = self.gate.attempt(permit, on_record, &self.approver, CallAttempt::Repeatable);
        let mut attempt = std::pin::pin!(attempt);
        loop {
            tokio::select! {
                biased;
                ended = &mut attempt => return ended,
                request = self.requests.recv() => {
                    let request = request.unwrap();
                    meanwhile(&self.gate, &request);
                    assert!(request.accept());
                }
            }
        }
    }

    /// Whether the policy denies the call by what has been read until now.
    fn is_denied_now(&self, server: &str) -> bool {
        let action = self.gate.with_known_at_once(call(server));
        self.gate.judgement(&action, ChosenBy::Trusted).effect == ApprovalEffect::Deny
    }
}

fn call(server: &str) -> Action {
    let tool_args = Map::from_iter([("path".to_owned(), json!("a.txt")), ("text".to_owned(), json!(SECRET))]);
    Action::new(server.to_owned(), "post_file".to_owned(), tool_args, Target::Command("c".to_owned()))
}

fn unasked(_: &Gate, request: &ApprovalRequest) {
    panic!("asked: {request}");
}

/// A step of a call, or the session reads from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Announce(&'static str),
    Decide(&'static str),
    Run(&'static str),
    Read(&'static str),
}

/// All orders of these sequences of steps, of which each keeps its own.
fn interleavings(sequences: &[Vec<Step>]) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    for (index, sequence) in sequences.iter().enumerate() {
        let Some((first, rest)) = sequence.split_first() else { continue };
        let mut others = sequences.to_vec();
        others[index] = rest.to_vec();
        for mut order in interleavings(&others) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    if all.is_empty() { vec![Vec::new()] } else { all }
}

/// Takes the steps. Returns which calls have run.
async fn took(default: &str, rules: &str, steps: &[Step]) -> Vec<&'static str> {
    let mut session = Session::new(default, rules);
    let mut waiting = BTreeMap::new();
    let (mut permits, mut ran) = (BTreeMap::new(), Vec::new());
    for step in steps {
        match *step {
            Step::Announce(server) => drop(waiting.insert(server, session.announce(server).await)),
            Step::Decide(server) => {
                let (deciding, request) = waiting.remove(server).unwrap();
                if let Some(request) = request {
                    request.accept();
                }
                if let Ok(permit) = deciding.await.unwrap() {
                    permits.insert(server, permit);
                }
            }
            Step::Read(server) => session.read(server),
            Step::Run(server) => {
                let Some(mut permit) = permits.remove(server) else { continue };
                if session.run(&mut permit, |_, _| {}).await.is_ok() {
                    assert!(!session.is_denied_now(server), "{server} ran in {steps:?} under {rules}");
                    ran.push(server);
                }
            }
        }
    }
    ran
}

#[tokio::test]
async fn no_order_of_events_lets_a_call_run_that_a_rule_denies_then() {
    use Step::*;
    let calls = ["chat", "notes"].map(|call| vec![Announce(call), Decide(call), Run(call)]);
    let reads = ["web", "mail"].map(|server| vec![Read(server)]);
    let orders = interleavings(&[calls.as_slice(), &reads].concat());
    assert_eq!(orders.len(), 1120);
    let asking = "[[rule]]\ntainted_by = 'confidential'\neffect = 'ask'\n";
    for (default, rules) in [
        ("allow", DENY.to_owned()),
        ("ask", DENY.to_owned()),
        ("allow", format!("{asking}{DENY}")),
        ("allow", format!("{DENY}{asking}")),
    ] {
        for order in &orders {
            let ran = took(default, &rules, order).await;
            // What no rule denies runs in every order.
            assert!(ran.contains(&"notes"), "{order:?} under {default}, {rules}");
        }
    }
}

#[tokio::test]
async fn a_question_that_waits_while_the_web_is_read_ends_in_a_denial() {
    let mut session = Session::new("ask", DENY);
    let mut permit = session.permitted("chat").await;
    session.read("web");
    let denied = session.run(&mut permit, unasked).await.unwrap_err();
    assert_eq!(
        denied.to_string(),
        "`chat.post_file` is denied by the approval policy: rule 1 (\"a stranger may want it\")"
    );
}

#[tokio::test]
async fn what_was_allowed_with_fewer_labels_is_asked_again_and_says_why() {
    let mut session = Session::new("ask", "");
    let (deciding, request) = session.announce("chat").await;
    assert!(request.unwrap().accept_for_session());
    drop(deciding.await.unwrap().unwrap());
    // A standing answer is about the labels of its question, too.
    let (deciding, request) = session.announce("chat").await;
    assert!(request.is_none());
    let mut permit = deciding.await.unwrap().unwrap();
    session.read("web");
    let mut asked = 0;
    let again = |_: &Gate, request: &ApprovalRequest| {
        asked += 1;
        let why = crate::approval::question::read_in_words(request.provenance().unwrap()).unwrap();
        assert!(why.contains("You are asked again") && why.contains("untrusted data has come in"), "{why}");
    };
    let call = session.run(&mut permit, again).await.unwrap();
    assert_eq!((asked, call.into_parts().1["path"].as_str()), (1, Some("a.txt")));
    // Nothing has changed since: a retry is not asked about.
    assert!(session.run(&mut permit, unasked).await.is_ok());
}

#[tokio::test]
async fn a_user_is_asked_again_no_more_than_three_times() {
    for (reads, runs) in [(2, true), (3, false)] {
        let mut session = Session::new("ask", "");
        session.gate.memory().unwrap().saw("other", "get", std::iter::once(SECRET));
        let mut permit = session.permitted("chat").await;
        session.read("web");
        let mut read = 0;
        let meanwhile = |gate: &Gate, _: &ApprovalRequest| {
            let memory = gate.memory().unwrap();
            match read {
                0 => drop(memory.begin("mail", "get")),
                // The arguments have data of a server that has another label from now on.
                1 => memory.label("other", Label::Untrusted),
                2 if reads > 2 => memory.label("other", Label::Confidential),
                _ => {}
            }
            read += 1;
        };
        let ran = session.run(&mut permit, meanwhile).await;
        assert_eq!(ran.is_ok(), runs, "{ran:?}");
        if let Err(denied) = ran {
            assert!(denied.to_string().contains("3 times"), "{denied}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_ends_after_an_hour() {
    let mut session = Session::new("ask", "");
    let mut permit = session.permitted("chat").await;
    tokio::time::advance(PERMIT_AGE).await;
    assert!(session.run(&mut permit, unasked).await.is_ok());
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut asked = 0;
    assert!(session.run(&mut permit, |_, _| asked += 1).await.is_ok());
    assert_eq!(asked, 1);
    // The policy's own permission is looked up anew, and nobody is asked.
    let mut session = Session::new("allow", DENY);
    let mut permit = session.permitted("chat").await;
    tokio::time::advance(2 * PERMIT_AGE).await;
    assert!(session.run(&mut permit, unasked).await.is_ok());
}

#[tokio::test]
async fn earlier_calls_of_a_batch_count_as_read() {
    let session = Session::new("allow", DENY);
    let batch = |servers: &[&str]| {
        let gate = Arc::clone(&session.gate);
        let actions = servers.iter().map(|server| call(server)).collect();
        async move {
            let decided = gate.decide_batch("title", actions).await;
            decided.into_iter().map(|decided| decided.is_ok()).collect::<Vec<_>>()
        }
    };
    assert_eq!(batch(&["chat", "web", "chat", "notes"]).await, [true, true, false, true]);
    assert_eq!(batch(&["chat"]).await, [true], "nothing of the batch has run");
    // What the policy denies is not read.
    let strict = format!("{DENY}[[rule]]\nserver = 'web'\neffect = 'deny'\n");
    let session = Session::new("allow", &strict);
    let actions = ["web", "chat"].map(call).into();
    let decided = session.gate.decide_batch("title", actions).await;
    assert_eq!(decided.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn a_call_has_not_read_what_it_returns_itself() {
    let rule = "[[rule]]\nserver = 'web'\ntainted_by = 'untrusted'\neffect = 'deny'\n";
    let mut session = Session::new("allow", rule);
    let (mut permit, mut on_record) = session.permitted("web").await;
    let (gate, approver) = (Arc::clone(&session.gate), session.approver.clone());
    gate.begin(&mut permit, &mut on_record, &approver).await.unwrap();
    let mut begun = (permit, on_record);
    assert!(session.run(&mut begun, unasked).await.is_ok());
    assert!(session.run(&mut begun, unasked).await.is_ok(), "a retry");
    session.read("web");
    assert!(session.run(&mut begun, unasked).await.is_err());
}

#[tokio::test]
async fn a_permit_whose_arguments_are_gone_permits_nothing() {
    let mut session = Session::new("allow", DENY);
    let (mut permit, mut on_record) = session.permitted("chat").await;
    let approver = session.approver.clone();
    for is_first in [true, false] {
        let call = session.gate.attempt(&mut permit, &mut on_record, &approver, CallAttempt::Last).await;
        assert_eq!(call.is_ok(), is_first, "{call:?}");
    }
}

#[tokio::test]
async fn a_shell_command_is_judged_when_its_answer_has_come() {
    let rule = "[[rule]]\nserver = 'ipybox'\ntainted_by = 'untrusted'\neffect = 'deny'\n";
    let mut session = Session::new("ask", rule);
    let (gate, action) = (Arc::clone(&session.gate), Action { target: Target::Kernel, ..call("ipybox") });
    let deciding = tokio::spawn(async move { gate.decide_at_once_for_code(action).await.map(drop) });
    let request = session.requests.recv().await.unwrap();
    session.read("web");
    assert!(request.accept());
    assert!(matches!(deciding.await.unwrap(), Err(DenialReason::Policy { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_brings_data_waits_for_those_that_may_not_run_afterwards() {
    let mut session = Session::new("allow", DENY);
    let [mut other, mut bringing, mut slow] =
        [session.permitted("chat").await, session.permitted("web").await, session.permitted("chat").await];
    let _sent = session.run(&mut other, unasked).await.unwrap();
    let gate = Arc::clone(&session.gate);
    let landing = tokio::spawn(async move {
        let (permit, on_record) = &mut bringing;
        gate.begin(permit, on_record, &Approver::Nobody("nobody")).await
    });
    tokio::task::yield_now().await;
    assert!(!landing.is_finished());
    // From now on the label counts for calls that are not sent yet.
    assert!(session.run(&mut slow, unasked).await.is_err());
    drop(other.1);
    landing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_brings_data_does_not_run_if_another_does_not_end() {
    let mut session = Session::new("allow", DENY);
    let mut harmless = session.permitted("notes").await;
    let [mut stuck, (mut permit, mut on_record)] =
        [session.permitted("chat").await, session.permitted("web").await];
    let _sent = session.run(&mut harmless, unasked).await.unwrap();
    let _sent = session.run(&mut stuck, unasked).await.unwrap();
    let (gate, nobody) = (&session.gate, Approver::Nobody("nobody"));
    let words = gate.begin(&mut permit, &mut on_record, &nobody).await.unwrap_err().to_string();
    assert!(
        words.contains("`web.post_file` did not run") && words.contains("`chat.post_file` is under way"),
        "{words}"
    );
    drop(stuck);
    let (mut mail, mut on_record) = session.permitted("mail").await;
    session.gate.begin(&mut mail, &mut on_record, &nobody).await.unwrap();
}
