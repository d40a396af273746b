//! The gate: all decisions about actions are made here.

mod approvers;
mod attempt;
mod earlier_answers;
mod expected;
mod known_data;
mod permit;
mod plan;
#[cfg(test)]
mod tests;
mod user;

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(crate) use self::approvers::AllowedAction;
use self::approvers::RuleApprovers;
pub(crate) use self::attempt::{CallAttempt, CheckedCall};
pub(crate) use self::expected::ExpectedResult;
pub(crate) use self::permit::Permit;
pub(crate) use self::user::OnPage;
use crate::approval::action::{Action, ApprovalBatch, CallsInFlight, InBatch, Target};
use crate::approval::audit::{Audit, CallNotes, OpenCall, history};
use crate::approval::decision::{AskedUsers, ChosenBy, DecidedBy, Decision, DenialReason};
use crate::approval::grant::{GrantEffect, SessionGrants};
use crate::approval::policy::{ApprovalEffect, ApprovalPolicy, PolicyJudgement};
use crate::approval::provenance::ProvenanceMemory;
use crate::approval::question::{
    AnswerVia, ApprovalQueue, ApprovalRequest, Approver, ApproverLine, NoticedQuestion, QuestionNotice,
    QuestionWatcher, RequestEnd, UserAnswer, UserReply, held_for, how,
};
use crate::approval::standing::StandingAnswers;
use crate::ground::telemetry::{self, Context};

/// Decides about all actions of a session, and records each decision before it takes effect.
pub(crate) struct Gate {
    policy: ApprovalPolicy,
    standing: Arc<StandingAnswers>,
    grants: Arc<SessionGrants>,
    timeout: Duration,
    audit: Audit,
    /// The record of what the session has read, and others of its client; `None` if nobody needs to know.
    memory: Option<Arc<ProvenanceMemory>>,
    /// The calls of sessions with the same record.
    in_flight: Arc<CallsInFlight>,
    /// Decides about the current calls of code in the kernel, whose cell has this context.
    current: Mutex<(Approver, Context)>,
    /// The line to approvers whom rules name.
    approvers: Arc<OnceLock<ApproverLine>>,
    /// Is notified of the questions that users are asked.
    watcher: OnceLock<QuestionWatcher>,
    /// Notes the calls of code, for a notebook.
    calls: OnceLock<Arc<CallNotes>>,
    /// Is notified of actions that run and may change something.
    effects: OnceLock<EffectWatcher>,
}

/// Is called with each action that may change something, before it runs.
pub(crate) type EffectWatcher = Box<dyn Fn(&Action) + Send + Sync>;

/// Whether an action may run, and who has decided that.
type Ruling = (Result<(), DenialReason>, DecidedBy);

/// Those who are asked about an action.
enum AskedPeople<'a> {
    /// The users who read the queue.
    Users(&'a Arc<ApprovalQueue>),
    /// The approvers whom a rule names.
    Approvers(RuleApprovers),
}

/// The reason if code calls a tool while no cell runs, for instance a thread of an earlier cell.
const NO_CELL: &str = "no cell is running";

impl Gate {
    /// Decides by `policy`; approval requests must be answered within `timeout`. Decisions are recorded in
    /// `audit`.
    pub(crate) fn new(
        policy: ApprovalPolicy,
        standing: StandingAnswers,
        timeout: Duration,
        audit: Audit,
    ) -> Self {
        let current = Mutex::new((Approver::Nobody(NO_CELL), Context::default()));
        let grants = Arc::default();
        let labels = || policy.labels().clone().or(standing.labels());
        let memory = (!policy.is_open()).then(|| Arc::new(ProvenanceMemory::new(labels())));
        Self {
            policy,
            standing: Arc::new(standing),
            grants,
            timeout,
            audit,
            memory,
            in_flight: Arc::default(),
            current,
            approvers: Arc::default(),
            watcher: OnceLock::new(),
            calls: OnceLock::new(),
            effects: OnceLock::new(),
        }
    }

    /// The record of what the session has read, if somebody needs to know.
    pub(crate) fn memory(&self) -> Option<&Arc<ProvenanceMemory>> {
        self.memory.as_ref()
    }

    /// The audit log of this session.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Notes the calls of code from now on. A gate has one such list at most.
    pub(crate) fn keep_calls(&self, calls: Arc<CallNotes>) {
        if self.calls.set(calls).is_err() {
            tracing::debug!("the calls of the session are noted already");
        }
    }

    /// Notifies `watcher` from now on of actions that run and may change something. A gate has one at most.
    pub(crate) fn watch_effects(&self, watcher: EffectWatcher) {
        if self.effects.set(watcher).is_err() {
            tracing::error!("the effects of a gate's actions are watched twice");
        }
    }

    /// Notifies `watcher` from now on of the questions that users are asked. A gate has one at most.
    pub(crate) fn watch(&self, watcher: QuestionWatcher) {
        if self.watcher.set(watcher).is_err() {
            tracing::error!("a gate is watched twice");
        }
    }

    /// A cell begins: its code makes calls in `context`, and `approver` answers for them.
    pub(crate) fn begin_cell(&self, approver: Approver, context: Context) {
        self.grants.change_cell();
        *self.current.lock() = (approver, context);
    }

    /// The cell ends: calls that need approval are denied.
    pub(crate) fn end_cell(&self) {
        self.set_approver(Approver::Nobody(NO_CELL));
    }

    /// From now on `approver` answers for calls, which belong to no cell.
    pub(crate) fn set_approver(&self, approver: Approver) {
        self.begin_cell(approver, Context::default());
    }

    /// The approver of the current calls of code in the kernel.
    pub(crate) fn approver(&self) -> Approver {
        self.current().0
    }

    /// The same, with the context of the cell that runs.
    fn current(&self) -> (Approver, Context) {
        self.current.lock().clone()
    }

    /// Decides about a call of code in the kernel.
    ///
    /// # Errors
    /// As for [`decide`](Self::decide).
    pub(crate) async fn decide_for_code(&self, action: Action) -> Result<(Permit, OpenCall), DenialReason> {
        let (approver, context) = self.current();
        context.around(self.decide(action, &approver)).await
    }

    /// Decides about the calls of a batch of code.
    pub(crate) async fn decide_batch(
        &self,
        title: &str,
        actions: Vec<Action>,
    ) -> Vec<Result<(Permit, OpenCall), DenialReason>> {
        let (approver, context) = self.current();
        context.around(self.decide_together(title, actions, &approver, ChosenBy::Trusted)).await
    }

    /// Decides about several actions, side by side. Each is decided about and recorded as any other.
    pub(crate) async fn decide_together(
        &self,
        title: &str,
        actions: Vec<Action>,
        approver: &Approver,
        chosen_by: ChosenBy,
    ) -> Vec<Result<(Permit, OpenCall), DenialReason>> {
        let places: Vec<InBatch> = ApprovalBatch::places(title, actions.len()).collect();
        let in_batch = |(action, place): (Action, &InBatch)| Action { batch: Some(place.clone()), ..action };
        let actions =
            self.with_known_in_order(actions.into_iter().zip(&places).map(in_batch).collect()).await;
        let deciding = places.into_iter().zip(actions).map(|(place, action)| async move {
            let decided = self.decide_known(action, approver, chosen_by).await;
            place.arrive();
            decided
        });
        futures::future::join_all(deciding).await
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
    ) -> Result<(Permit, OpenCall), DenialReason> {
        self.decide_about(action, approver, ChosenBy::Trusted).await
    }

    /// As [`decide`](Self::decide), about an action that code may have chosen.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn decide_about(
        &self,
        action: Action,
        approver: &Approver,
        chosen_by: ChosenBy,
    ) -> Result<(Permit, OpenCall), DenialReason> {
        let action = self.with_known(action).await;
        self.decide_known(action, approver, chosen_by).await
    }

    /// The same, about an action of whose data is known what there is to know.
    async fn decide_known(
        &self,
        action: Arc<Action>,
        approver: &Approver,
        chosen_by: ChosenBy,
    ) -> Result<(Permit, OpenCall), DenialReason> {
        let question = self.audit.question(Arc::clone(&action));
        let shown = telemetry::DecisionSpan::begin(&action.server_name, &action.tool_name, question.call());
        let decision = self.judge(&action, approver, chosen_by).await;
        let context = permit::show(shown, &decision, &action);
        let noted = self.calls.get().and_then(|calls| calls.note(&action, &decision));
        let permitted = question.decided(&decision).await;
        if permitted.is_ok() == decision.outcome.is_ok() {
            self.announce_unasked(&action, &decision);
        }
        let permitted = permitted?;
        let is_read_only = action.annotations.is_some_and(|hints| hints.read_only == Some(true));
        if let Some(watcher) = self.effects.get().filter(|_| !is_read_only) {
            watcher(&action);
        }
        // A grant holds for other calls once its answer is recorded.
        if let DecidedBy::Granted(given) = &decision.by {
            self.grants.hold(given);
        }
        let (mut permit, on_record) = Permit::new(permitted, context, &decision.by, chosen_by);
        // Who agrees to a server knows the label of its data, which may have been given with the answer.
        if let (Some(server), Some(memory)) = (action.registers(), &self.memory)
            && let Some(label) = memory.label_of(server)
        {
            permit.know(label, server);
        }
        Ok((permit, on_record.noted_by(noted)))
    }

    /// Whether the policy alone does not decide about `action`.
    pub(crate) fn asks_about(&self, action: &Action, chosen_by: ChosenBy) -> bool {
        let action = self.with_known_at_once(action.clone());
        self.judgement(&action, chosen_by).effect == ApprovalEffect::Ask
    }

    fn judgement(&self, action: &Action, chosen_by: ChosenBy) -> PolicyJudgement {
        let mut judgement = self.policy.judge(action);
        if judgement.effect == ApprovalEffect::Allow
            && judgement.rule.is_none()
            && chosen_by != ChosenBy::Trusted
        {
            judgement.effect = ApprovalEffect::Ask;
        }
        judgement
    }

    async fn judge(&self, action: &Arc<Action>, approver: &Approver, chosen_by: ChosenBy) -> Decision {
        let begun = Instant::now();
        let (ruling, consulted) = match self.rule(action, approver, chosen_by).await {
            ControlFlow::Break(ruling) => (ruling, AskedUsers::Nobody),
            ControlFlow::Continue(AskedPeople::Users(queue)) => {
                let (ruling, via) = self.rule_by_users(action, queue).await;
                (ruling, AskedUsers::Users(via))
            }
            ControlFlow::Continue(AskedPeople::Approvers(asked)) => {
                let ruling = self.rule_by_approvers(action, asked, approver).await;
                (ruling, AskedUsers::Users(Some(AnswerVia::Approvals)))
            }
        };
        let (outcome, by) = ruling;
        Decision { outcome, by, waited: begun.elapsed(), consulted }
    }

    /// Decides without a question, or returns those to ask.
    async fn rule<'a>(
        &self,
        action: &Arc<Action>,
        approver: &'a Approver,
        chosen_by: ChosenBy,
    ) -> ControlFlow<Ruling, AskedPeople<'a>> {
        let judgement = self.judgement(action, chosen_by);
        match judgement.effect {
            ApprovalEffect::Allow => return ControlFlow::Break((Ok(()), DecidedBy::Policy(judgement.rule))),
            ApprovalEffect::Deny => {
                let denied = DenialReason::Policy { call: action.name(), rule: judgement.rule.clone() };
                return ControlFlow::Break((Err(denied), DecidedBy::Policy(judgement.rule)));
            }
            ApprovalEffect::Ask => {}
        }
        // Somebody has decided earlier about a server that is registered already.
        let is_settled = matches!(approver, Approver::Consent) && action.target == Target::Host;
        if let Some(named) = judgement.approvers.filter(|_| !is_settled) {
            let asked = RuleApprovers { named, rule: judgement.rule };
            return ControlFlow::Continue(AskedPeople::Approvers(asked));
        }
        if let Some(answer) = self.earlier_answer(action).await {
            return ControlFlow::Break((Ok(()), DecidedBy::Standing(answer)));
        }
        // Consent needs no grant.
        if !matches!(approver, Approver::Consent)
            && let Some(used) = self.grants.claim(action)
        {
            return ControlFlow::Break((Ok(()), DecidedBy::Grant(used)));
        }
        let denied = match approver {
            Approver::Consent => return ControlFlow::Break((Ok(()), DecidedBy::Consent)),
            Approver::Nobody(why) => DenialReason::Nobody { call: action.name(), why },
            Approver::Attached(queue, why) if !queue.is_attended() => {
                DenialReason::Nobody { call: action.name(), why }
            }
            Approver::User(queue) | Approver::Attached(queue, _) if !queue.can_show(action) => {
                DenialReason::TooLong { call: action.name() }
            }
            Approver::User(queue) | Approver::Attached(queue, _) => {
                return ControlFlow::Continue(AskedPeople::Users(queue));
            }
        };
        ControlFlow::Break((Err(denied), DecidedBy::Nobody))
    }

    /// Decides by the answer of the users of `queue`. Returns by which face for people it was given, too.
    async fn rule_by_users(
        &self,
        action: &Arc<Action>,
        queue: &Arc<ApprovalQueue>,
    ) -> (Ruling, Option<AnswerVia>) {
        let action = &self.with_due_changes(action).await;
        let cell = self.grants.cell();
        let UserReply { answer, granting, label, via, .. } = match self.announce_and_ask(action, queue).await
        {
            RequestEnd::Reply(reply) => reply,
            RequestEnd::Dropped => {
                return ((Err(DenialReason::Rejected { call: action.name() }), DecidedBy::Nobody), None);
            }
            RequestEnd::Expired => {
                let denied = DenialReason::Expired { call: action.name(), after: self.timeout };
                return ((Err(denied), DecidedBy::Expiry), queue.via());
            }
        };
        if let Some(granting) = granting {
            return (self.grant(granting, action, cell), via);
        }
        if answer == UserAnswer::Once {
            self.grants.note_permit(action, cell);
        }
        (self.keep(action, answer, label).await, via)
    }

    /// Notifies those who watch the session of a decision that nobody was asked for.
    fn announce_unasked(&self, action: &Arc<Action>, decision: &Decision) {
        if let Some(watcher) = self.watcher.get().filter(|_| decision.consulted == AskedUsers::Nobody) {
            watcher(QuestionNotice::Ruled { action: Arc::clone(action), how: history::in_words(decision) });
        }
    }

    /// Asks the users of `queue`, and notifies those who watch the session of the question and its end.
    async fn announce_and_ask(&self, action: &Arc<Action>, queue: &Arc<ApprovalQueue>) -> RequestEnd {
        let mut noticed = NoticedQuestion::begin(self.watcher.get(), action, queue);
        let response = self.ask(action, queue).await;
        noticed.decided(&response);
        response
    }

    async fn ask(&self, action: &Arc<Action>, queue: &Arc<ApprovalQueue>) -> RequestEnd {
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
                Err(_) => return RequestEnd::Dropped,
            },
            () = &mut unattended => return expired(queue),
        }
        let mut handed_out = waiting.handed_out.clone();
        let response = tokio::select! {
            biased;
            reply = waiting.answer() => reply.map_or(RequestEnd::Dropped, RequestEnd::Reply),
            used = self.grants.claim_unseen(action, handed_out.clone()) => {
                RequestEnd::Reply(UserReply::granting(GrantEffect::Used(used)))
            }
            () = held_for(&mut handed_out, self.timeout) => RequestEnd::Expired,
            () = &mut unattended => RequestEnd::Expired,
        };
        waiting.decided(how(&response));
        match response {
            // An answer that was accepted at the last moment counts: its sender got a confirmation.
            RequestEnd::Expired => waiting.close().map_or_else(|| expired(queue), RequestEnd::Reply),
            response => response,
        }
    }
}

fn expired(queue: &ApprovalQueue) -> RequestEnd {
    queue.expired.fetch_add(1, Ordering::Relaxed);
    RequestEnd::Expired
}
