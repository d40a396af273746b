//! Decisions of approvers: people whom a rule names, and who are asked instead of the session's user.
//!
//! Neither an earlier answer, nor a grant, nor the user of a client replaces theirs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Gate, Ruling};
use crate::approval::action::Action;
use crate::approval::audit::OpenCall;
use crate::approval::decision::{AskedUsers, ChosenBy, DecidedBy, Decision, DenialReason};
use crate::approval::policy::{ApprovalEffect, NamedApprovers};
use crate::approval::question::{
    AnswerVia, Approver, ApproverLine, ApproverQuestion, ApproverReply, NoticedQuestion,
};

/// The reason if no server for teams is there to ask approvers.
const NO_SERVER: &str = "only `ipybox team` asks other people";
/// The reason if the line to it has ended.
const ENDED: &str = "the session does not speak to its server any more";

/// The approvers whom a rule names, and the rule in words.
pub(super) struct RuleApprovers {
    pub(super) named: Arc<NamedApprovers>,
    pub(super) rule: Option<Arc<str>>,
}

/// An action that approvers have allowed.
pub(crate) struct AllowedAction {
    pub(crate) on_record: OpenCall,
    /// Why the server has not done its part of it.
    pub(crate) undone: Option<String>,
}

impl Gate {
    /// From now on approvers can be asked by this line, for the sessions beside this one and its branches too.
    /// Returns whether there was no line.
    pub(crate) fn ask_approvers(&self, line: ApproverLine) -> bool {
        self.approvers.set(line).is_ok()
    }

    /// Has approvers decide about an action of code whom no rule of the policy needs to name. The policy can only deny it.
    ///
    /// # Errors
    /// The action is denied, or nobody can be asked.
    pub(crate) async fn decide_by_approvers(
        &self,
        action: Action,
        named: NamedApprovers,
        rule: &str,
    ) -> Result<AllowedAction, DenialReason> {
        let (user, context) = self.current();
        let asked = RuleApprovers { named: Arc::new(named), rule: Some(rule.into()) };
        let deciding = async {
            let action = self.with_known(action).await;
            let question = self.audit.question(Arc::clone(&action));
            let begun = Instant::now();
            let judgement = self.judgement(&action, ChosenBy::Trusted);
            let (ruling, consulted) = match judgement.effect {
                ApprovalEffect::Deny => {
                    let denied = DenialReason::Policy { call: action.name(), rule: judgement.rule.clone() };
                    ((Err(denied), DecidedBy::Policy(judgement.rule)), AskedUsers::Nobody)
                }
                ApprovalEffect::Allow | ApprovalEffect::Ask => {
                    let ruling = self.rule_by_approvers(&action, asked, &user).await;
                    (ruling, AskedUsers::Users(Some(AnswerVia::Approvals)))
                }
            };
            let (outcome, by) = ruling;
            let undone = match &by {
                DecidedBy::Approver(decision) => decision.undone.clone(),
                _ => None,
            };
            let decision = Decision { outcome, by, waited: begun.elapsed(), consulted };
            let (_, on_record) = question.decided(&decision).await?.into_parts();
            Ok(AllowedAction { on_record, undone })
        };
        context.around(deciding).await
    }

    /// Decides by the answer of one of the approvers. The time of the cell, for which `user` answers otherwise, stands still.
    pub(super) async fn rule_by_approvers(
        &self,
        action: &Arc<Action>,
        asked: RuleApprovers,
        user: &Approver,
    ) -> Ruling {
        let RuleApprovers { named, rule } = asked;
        let approvers = named.to_string();
        let unasked = |why: String| {
            let approvers = approvers.clone();
            (Err(DenialReason::NoApprover { call: action.name(), approvers, why }), DecidedBy::Nobody)
        };
        let Some(line) = self.approvers.get() else { return unasked(NO_SERVER.to_owned()) };
        let _counted = user.count();
        let mut noticed = NoticedQuestion::to_approvers(self.watcher.get(), action);
        let until = Instant::now() + self.timeout;
        let (answer, answered) = oneshot::channel();
        let question = ApproverQuestion { action: Arc::clone(action), approvers: named, rule, until, answer };
        let asking = async {
            line.send(question).await.ok()?;
            if let Some(place) = &action.batch {
                place.arrive();
            }
            answered.await.ok()
        };
        match tokio::time::timeout_at(until, asking).await {
            Ok(Some(ApproverReply::Decided { is_allowed, decision })) => {
                noticed.decided_by_approver(Some(is_allowed));
                let rejected = || DenialReason::RejectedBy { call: action.name(), by: decision.by.clone() };
                let outcome = if is_allowed { Ok(()) } else { Err(rejected()) };
                (outcome, DecidedBy::Approver(decision))
            }
            Ok(Some(ApproverReply::Unasked(why))) => unasked(why),
            Ok(None) => unasked(ENDED.to_owned()),
            Err(_) => {
                noticed.decided_by_approver(None);
                if let Approver::User(queue) | Approver::Attached(queue, _) = user {
                    queue.expired.fetch_add(1, Ordering::Relaxed);
                }
                let denied = DenialReason::Unapproved { call: action.name(), approvers, after: self.timeout };
                (Err(denied), DecidedBy::Expiry)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Map, Value, json};
    use tokio::sync::mpsc;

    use super::*;
    use crate::approval::action::Target;
    use crate::approval::audit::Audit;
    use crate::approval::policy::ApprovalPolicy;
    use crate::approval::question::{ApprovalQueue, ApproverDecision, UserAnswer};
    use crate::approval::standing::StandingAnswers;

    const RULE: &str = "[[rule]]\ntool = 'pay'\neffect = 'ask'\napprover = 'group:finance'";

    fn pay() -> Action {
        let Value::Object(arguments) = json!({"amount": 5}) else { panic!("an object") };
        let target = Target::Command("bank".to_owned());
        Action::new("bank".to_owned(), "pay".to_owned(), arguments, target)
    }

    fn gate() -> (Arc<Gate>, mpsc::Receiver<ApproverQuestion>) {
        let policy = ApprovalPolicy::parse(RULE).unwrap();
        let gate = Gate::new(policy, StandingAnswers::default(), Duration::from_secs(60), Audit::off());
        let (line, asked) = mpsc::channel(1);
        assert!(gate.ask_approvers(line.clone()) && !gate.ask_approvers(line));
        (Arc::new(gate), asked)
    }

    /// Answers the next question.
    fn answering(mut asked: mpsc::Receiver<ApproverQuestion>, is_allowed: bool) {
        tokio::spawn(async move {
            let question = asked.recv().await.unwrap();
            assert_eq!(question.approvers.names, ["group:finance"]);
            let undone = is_allowed.then(|| "the disk is full".to_owned());
            let decision = ApproverDecision { by: "fay".to_owned(), question: "q".to_owned(), undone };
            question.answer.send(ApproverReply::Decided { is_allowed, decision }).unwrap();
        });
    }

    #[tokio::test]
    async fn neither_consent_nor_a_standing_answer_nor_the_user_replaces_an_approver() {
        let (queue, mut requests) = ApprovalQueue::new();
        for approver in [Approver::Consent, Approver::Nobody("x"), Approver::User(queue)] {
            for is_allowed in [true, false] {
                let (gate, asked) = gate();
                gate.standing.remember(&pay(), UserAnswer::Session).unwrap();
                answering(asked, is_allowed);
                let decided = gate.decide(pay(), &approver).await.map(drop);
                assert_eq!(decided.is_ok(), is_allowed, "{decided:?}");
            }
        }
        assert!(requests.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_decides_about_is_denied_and_withdrawn() {
        let (gate, mut asked) = gate();
        let deciding = async { gate.decide(pay(), &Approver::Consent).await.map(drop) };
        let (decided, question) = tokio::join!(deciding, async {
            let mut question = asked.recv().await.unwrap();
            question.answer.closed().await;
        });
        assert_eq!(question, ());
        let words = decided.unwrap_err().to_string();
        assert!(
            words.contains("needs the approval of group:finance, and nobody of them decided within 60 s"),
            "{words}"
        );
        drop(asked);
        let words = gate.decide(pay(), &Approver::Consent).await.map(drop).unwrap_err().to_string();
        assert!(words.contains("who cannot be asked"), "{words}");
    }

    #[tokio::test]
    async fn approvers_without_a_rule_decide_alone_and_the_policy_can_only_deny() {
        let named = || NamedApprovers { names: vec!["group:finance".to_owned()], includes_user: false };
        for is_allowed in [true, false] {
            let (gate, asked) = gate();
            gate.standing.remember(&pay(), UserAnswer::Session).unwrap();
            answering(asked, is_allowed);
            let decided = gate.decide_by_approvers(pay(), named(), "`[actions]`").await;
            assert_eq!(decided.is_ok(), is_allowed);
        }
        for (effect, words) in [("allow", "only `ipybox team` asks other people"), ("deny", "denied")] {
            let policy = ApprovalPolicy::parse(&format!("default = '{effect}'")).unwrap();
            let gate = Gate::new(policy, StandingAnswers::default(), Duration::from_secs(60), Audit::off());
            let refused =
                gate.decide_by_approvers(pay(), named(), "`[actions]`").await.map(drop).unwrap_err();
            assert!(refused.to_string().contains(words), "{refused}");
        }
    }

    #[tokio::test]
    async fn without_a_server_for_teams_a_rule_with_approvers_denies() {
        let policy = ApprovalPolicy::parse(RULE).unwrap();
        let gate = Gate::new(policy, StandingAnswers::default(), Duration::from_secs(60), Audit::off());
        let words = gate.decide(pay(), &Approver::Consent).await.map(drop).unwrap_err().to_string();
        assert!(words.ends_with("who cannot be asked: only `ipybox team` asks other people"), "{words}");
        let other = Action::new("bank".to_owned(), "look".to_owned(), Map::new(), Target::Host);
        assert!(gate.decide_about(other, &Approver::Consent, ChosenBy::Trusted).await.is_ok());
    }
}
