//! The gate: all decisions about actions are made here.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::action::Action;
use super::audit::{Audit, OpenCall};
use super::batch::InBatch;
use super::calls::Calls;
use super::denied::Denied;
use super::grant::{GivenGrant, Granting, Grants, Used};
use super::notice::{Noticed, Watcher, how};
use super::permit::{self, Permit};
use super::policy::{Effect, Judgement, Policy};
use super::queue::{ApprovalQueue, Approver};
use super::request::{Answer, ApprovalRequest, Reply, held_for};
use super::standing::Standing;
use crate::provenance::Memory;
use crate::telemetry::{self, Context};

/// Decides about all actions of a session, and records each decision before it takes effect.
pub(crate) struct Gate {
    pub(super) policy: Policy,
    pub(super) standing: Arc<Standing>,
    pub(super) grants: Arc<Grants>,
    pub(super) timeout: Duration,
    pub(super) audit: Audit,
    /// What the session has read, and others of its client; `None` if nobody needs to know.
    pub(super) memory: Option<Arc<Memory>>,
    /// Decides about the current calls of code in the kernel, whose cell has this context.
    current: Mutex<(Approver, Context)>,
    /// Is told which questions users are asked.
    pub(super) watcher: OnceLock<Watcher>,
    /// Notes the calls of code, for a notebook.
    pub(super) calls: OnceLock<Arc<Calls>>,
}

/// A decision and how it came about.
#[derive(Debug)]
pub(super) struct Decision {
    /// Why the action may not run, if it may not.
    pub(super) outcome: Result<(), Denied>,
    /// Who decided.
    pub(super) by: By,
    /// How long the decision took.
    pub(super) waited: Duration,
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// The policy: a rule in words, or its default.
    Policy(Option<Arc<str>>),
    /// A user's answer to this request.
    Answer(Answer),
    /// A standing answer.
    Standing(Answer),
    /// A user's answer, which gave this grant.
    Granted(GivenGrant),
    /// A grant that was given earlier.
    Grant(Used),
    /// The caller agreed to everything beforehand.
    Consent,
    /// Nobody answered in time.
    Expiry,
    /// No user could be asked, or the user's client went away.
    Nobody,
}

/// Who has chosen an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The user, an application or a model.
    Trusted,
    /// Maybe code in the sandbox, for the host to do: that the policy allows everything by default is not enough.
    Code,
}

/// The reason if code calls a tool while no cell runs, for instance a thread of an earlier cell.
const NO_CELL: &str = "no cell is running";

impl Gate {
    /// Decides by `policy`; approval requests must be answered within `timeout`. Decisions are recorded in
    /// `audit`.
    pub(crate) fn new(policy: Policy, standing: Standing, timeout: Duration, audit: Audit) -> Self {
        let (current, grants) = (Mutex::new((Approver::Nobody(NO_CELL), Context::default())), Arc::default());
        let labels = || policy.labels().clone().or(standing.labels());
        let memory = (!policy.is_open()).then(|| Arc::new(Memory::new(labels())));
        Self {
            policy,
            standing: Arc::new(standing),
            grants,
            timeout,
            audit,
            memory,
            current,
            watcher: OnceLock::new(),
            calls: OnceLock::new(),
        }
    }

    /// What the session has read, if somebody needs to know.
    pub(crate) fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// The audit log of this session.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Sets the approver for calls of code in the kernel; without one, calls that need approval are denied. A cell begins or
    /// ends.
    pub(crate) fn set_approver(&self, approver: Option<Approver>) {
        self.set_cell(approver, Context::default());
    }

    /// The same; the calls are made in the context of the cell.
    pub(crate) fn set_cell(&self, approver: Option<Approver>, context: Context) {
        self.grants.change_cell();
        let approver = approver.unwrap_or(Approver::Nobody(NO_CELL));
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (approver, context);
    }

    /// The approver of the current calls of code in the kernel.
    pub(crate) fn approver(&self) -> Approver {
        self.current().0
    }

    /// The same, with the context of the cell that runs.
    pub(super) fn current(&self) -> (Approver, Context) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Decides about a call of code in the kernel.
    ///
    /// # Errors
    /// As for [`decide`](Self::decide).
    pub(crate) async fn decide_for_code(&self, action: Action) -> Result<(Permit, OpenCall), Denied> {
        let (approver, context) = self.current();
        context.around(self.decide(action, &approver)).await
    }

    /// Decides about `action`, and records the decision before it takes effect. If the policy says to ask,
    /// `approver` is asked.
    ///
    /// Dropping the future withdraws the approval request, which is recorded too.
    ///
    /// # Errors
    /// The action is denied, or it is permitted and that could not be recorded.
    pub(crate) async fn decide(
        &self,
        action: Action,
        approver: &Approver,
    ) -> Result<(Permit, OpenCall), Denied> {
        self.decide_about(action, approver, Origin::Trusted).await
    }

    /// As [`decide`](Self::decide), about an action of this origin.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn decide_about(
        &self,
        action: Action,
        approver: &Approver,
        origin: Origin,
    ) -> Result<(Permit, OpenCall), Denied> {
        let action = self.with_known(action).await;
        let question = self.audit.question(&action);
        let shown = telemetry::Decision::begin(&action.server_name, &action.tool_name, question.call());
        let action = Arc::new(action);
        let decision = self.judge(&action, approver, origin).await;
        let context = permit::show(shown, &decision, &action);
        let noted = self.note_call(&action, &decision);
        let recorded = question.decided(&decision).await.map(|open| open.noted_by(noted));
        decision.outcome?;
        match recorded {
            Ok(on_record) => {
                self.hold_grant(&decision.by);
                Ok((Permit::new(action, context, &on_record), on_record))
            }
            Err(error) => Err(Denied::Unrecorded { call: call_of(&action), why: error.to_string() }),
        }
    }

    /// Whether the policy alone does not decide about `action`.
    pub(crate) fn asks_about(&self, action: &Action, origin: Origin) -> bool {
        let action = self.with_known_at_once(action.clone());
        self.judgement(&action, origin).effect == Effect::Ask
    }

    fn judgement(&self, action: &Action, origin: Origin) -> Judgement {
        let mut judgement = self.policy.judge(action);
        if judgement.effect == Effect::Allow && judgement.rule.is_none() && origin == Origin::Code {
            judgement.effect = Effect::Ask;
        }
        judgement
    }

    async fn judge(&self, action: &Arc<Action>, approver: &Approver, origin: Origin) -> Decision {
        let begun = Instant::now();
        let (outcome, by) = self.rule(action, approver, origin).await;
        Decision { outcome, by, waited: begun.elapsed() }
    }

    async fn rule(
        &self,
        action: &Arc<Action>,
        approver: &Approver,
        origin: Origin,
    ) -> (Result<(), Denied>, By) {
        let judgement = self.judgement(action, origin);
        match judgement.effect {
            Effect::Allow => return (Ok(()), By::Policy(judgement.rule)),
            Effect::Deny => {
                let denied = Denied::Policy { call: call_of(action), rule: judgement.rule.clone() };
                return (Err(denied), By::Policy(judgement.rule));
            }
            Effect::Ask => {}
        }
        if let Some(answer) = self.earlier_answer(action).await {
            return (Ok(()), By::Standing(answer));
        }
        if let Some(used) = self.use_grant(action, approver) {
            return (Ok(()), By::Grant(used));
        }
        let queue = match approver {
            Approver::Consent => return (Ok(()), By::Consent),
            Approver::Nobody(why) => {
                return (Err(Denied::Nobody { call: call_of(action), why }), By::Nobody);
            }
            Approver::Attached(queue, why) if !queue.is_attended() => {
                return (Err(Denied::Nobody { call: call_of(action), why }), By::Nobody);
            }
            Approver::User(queue) | Approver::Attached(queue, _) if !queue.can_show(action) => {
                return (Err(Denied::TooLong { call: call_of(action) }), By::Nobody);
            }
            Approver::User(queue) | Approver::Attached(queue, _) => queue,
        };
        let (action, cell) = (&self.with_due_changes(action).await, self.grants.cell());
        let Some(reply) = self.ask(action, queue).await else {
            return (Err(Denied::Expired { call: call_of(action), after: self.timeout }), By::Expiry);
        };
        let Some(Reply { answer, granting, label, .. }) = reply else {
            return (Err(Denied::Rejected { call: call_of(action) }), By::Nobody);
        };
        if let Some(granting) = granting {
            return self.grant(granting, action, cell);
        }
        if answer == Answer::Once {
            self.grants.note_permit(action, cell);
        }
        self.keep(action, answer, label).await
    }

    /// The reply; `Some(None)` if the request was dropped, `None` if it has expired.
    pub(super) async fn ask(&self, action: &Arc<Action>, queue: &ApprovalQueue) -> Option<Option<Reply>> {
        let mut noticed = Noticed::begin(self, action, queue);
        let reply = self.reply(action, queue).await;
        noticed.decided(reply.as_ref());
        reply
    }

    async fn reply(&self, action: &Arc<Action>, queue: &ApprovalQueue) -> Option<Option<Reply>> {
        let _counted = queue.count();
        let (request, mut waiting) = ApprovalRequest::new(Arc::clone(action), Arc::clone(&self.grants));
        queue.ask_people_too(&request, &mut waiting);
        let unattended = async {
            queue.left().await;
            tokio::time::sleep(self.timeout).await;
        };
        let mut unattended = std::pin::pin!(unattended);
        tokio::select! {
            biased;
            place = queue.requests.reserve() => match place {
                Ok(place) => {
                    place.send(request);
                    action.batch.iter().for_each(InBatch::arrive);
                }
                Err(_) => return Some(None),
            },
            () = &mut unattended => return expired(queue),
        }
        let mut handed_out = waiting.handed_out.clone();
        let reply = tokio::select! {
            biased;
            answer = waiting.answer() => Some(answer),
            used = self.grants.claim_unseen(action, handed_out.clone()) => {
                Some(Some(Reply::granting(Granting::Used(used))))
            }
            () = held_for(&mut handed_out, self.timeout) => None,
            () = &mut unattended => None,
        };
        waiting.decided(how(reply.as_ref()));
        // An answer that was accepted at the last moment counts: its sender got a confirmation.
        reply.or_else(|| waiting.close().map(Some)).or_else(|| expired(queue))
    }
}

fn expired(queue: &ApprovalQueue) -> Option<Option<Reply>> {
    queue.expire();
    None
}

pub(super) fn call_of(action: &Action) -> String {
    format!("{}.{}", action.server_name, action.tool_name)
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::super::action::Target;
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn action(server_name: &str) -> Action {
        Action::new(server_name.to_owned(), "t".to_owned(), Map::new(), Target::Command("x".to_owned()))
    }

    fn gate(policy: &str) -> Gate {
        Gate::new(Policy::parse(policy).unwrap(), Standing::default(), TIMEOUT, Audit::off())
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
        let (decision, ()) = tokio::join!(gate.judge(&action, &approver, Origin::Trusted), answering);
        assert_eq!(waiting(&queue), 0);
        decision
    }

    /// Decides without asking a user.
    async fn decide_unasked(gate: &Gate) -> Decision {
        let (queue, _requests) = ApprovalQueue::new();
        let (action, approver) = (Arc::new(action("s")), Approver::User(queue));
        let deciding = gate.judge(&action, &approver, Origin::Trusted);
        tokio::time::timeout(Duration::from_secs(1), deciding).await.unwrap()
    }

    #[track_caller]
    fn check(decision: &Decision, by: By, denied: impl Into<Option<&'static str>>) {
        let words = decision.outcome.as_ref().err().map(ToString::to_string);
        assert_eq!((&decision.by, words.as_deref()), (&by, denied.into()));
    }

    const REJECTED: &str = "the call of `s.t` was rejected";
    const EXPIRED: &str = "the call of `s.t` was not approved within 60 s";

    #[tokio::test(start_paused = true)]
    async fn an_accepted_call_may_run() {
        let decision = decide(&gate(""), async |request| assert!(request.accept())).await;
        check(&decision, By::Answer(Answer::Once), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_call_may_not_run() {
        let decision = decide(&gate(""), async |request| assert!(request.reject())).await;
        check(&decision, By::Answer(Answer::No), REJECTED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_question_is_a_rejection() {
        let decision = decide(&gate(""), async |request| drop(request)).await;
        check(&decision, By::Nobody, REJECTED);
        let handed_out = async |request: ApprovalRequest| request.hand_out();
        check(&decide(&gate(""), handed_out).await, By::Nobody, REJECTED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_nobody_reads_rejects() {
        let (queue, requests) = ApprovalQueue::new();
        drop(requests);
        check(
            &gate("").judge(&Arc::new(action("s")), &Approver::User(queue), Origin::Trusted).await,
            By::Nobody,
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
        check(&decide(&gate(""), late).await, By::Answer(Answer::Once), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_expires() {
        let too_late = async |mut request: ApprovalRequest| {
            request.hand_out();
            tokio::time::timeout(2 * TIMEOUT, request.closed()).await.unwrap();
            assert!(!request.accept());
        };
        check(&decide(&gate(""), too_late).await, By::Expiry, EXPIRED);
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
        check(&decision, By::Answer(Answer::Session), None);
        check(&decide_unasked(&gate).await, By::Standing(Answer::Session), None);
        let nobody = Approver::Nobody("nobody is there");
        check(
            &gate.judge(&Arc::new(action("s")), &nobody, Origin::Trusted).await,
            By::Standing(Answer::Session),
            None,
        );
        assert!(gate.decide(action("other"), &nobody).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_for_good_that_cannot_be_saved_does_not_count() {
        let standing = Standing::new("/nowhere/approvals.json".into());
        let gate = Gate::new(Policy::always(Effect::Ask), standing, TIMEOUT, Audit::off());
        let decision = decide(&gate, async |request| assert!(request.accept_always())).await;
        assert!(
            matches!(decision.outcome, Err(Denied::NotSaved { why, .. }) if why.contains("/nowhere/approvals.json"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_never_replaced() {
        let denies = gate("[[rule]]\nname = 'no'\neffect = 'deny'");
        denies.standing.remember(&action("s"), Answer::Always).unwrap();
        let words = "`s.t` is denied by the approval policy: rule 1 (\"no\")";
        let by = || By::Policy(Some("rule 1 (\"no\")".into()));
        check(&decide_unasked(&denies).await, by(), words);
        check(&denies.judge(&Arc::new(action("s")), &Approver::Consent, Origin::Trusted).await, by(), words);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_allowed_is_not_asked() {
        check(&decide_unasked(&gate("default = 'allow'")).await, By::Policy(None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn consent_replaces_questions() {
        check(
            &gate("").judge(&Arc::new(action("s")), &Approver::Consent, Origin::Trusted).await,
            By::Consent,
            None,
        );
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_can_be_asked_a_question_is_a_denial() {
        let nobody = Approver::Nobody("no client");
        let words = "the call of `s.t` needs approval, and nobody can be asked: no client";
        check(&gate("").judge(&Arc::new(action("s")), &nobody, Origin::Trusted).await, By::Nobody, words);
    }

    #[tokio::test(start_paused = true)]
    async fn between_cells_nobody_answers() {
        let gate = gate("");
        gate.set_approver(Some(Approver::Consent));
        assert!(matches!(gate.approver(), Approver::Consent));
        gate.set_approver(None);
        assert!(matches!(gate.approver(), Approver::Nobody(NO_CELL)));
    }
}
