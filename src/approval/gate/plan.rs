//! The calls that a cell's code announces before it runs, for its first question to propose. Nothing is decided here.

use super::Gate;
use crate::approval::action::Action;
use crate::approval::decision::ChosenBy;
use crate::approval::grant::{Grant, PlannedCall};
use crate::approval::policy::ApprovalEffect;

impl Gate {
    /// Whether a question can propose what code announces.
    pub(crate) fn takes_plans(&self) -> bool {
        !self.policy.is_open()
    }

    /// Whether the current cell can still have a plan: it has one, from before its first question.
    pub(crate) fn awaits_plan(&self) -> bool {
        self.grants.takes_plan()
    }

    /// Keeps the calls of the current cell that its user would be asked about, each with its server and tool as they are now.
    pub(crate) async fn plan(&self, calls: Vec<(Grant, Action)>) {
        let cell = self.grants.cell();
        let mut planned = Vec::new();
        for (grant, action) in calls {
            let action = self.with_known(action).await;
            let judgement = self.judgement(&action, ChosenBy::Trusted);
            let asks_user = judgement.effect == ApprovalEffect::Ask && judgement.approvers.is_none();
            if !asks_user || self.earlier_answer(&action).await.is_some() {
                continue;
            }
            // The question about such a call shows what has changed.
            let action = self.with_due_changes(&action).await;
            if action.changes.is_none() {
                planned.extend(PlannedCall::new(grant, Action::clone(&action)));
            }
        }
        self.grants.announce(planned, cell);
    }
}
