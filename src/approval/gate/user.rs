//! Actions that only the user can do: log in on a page, and answer what a server asks.
//!
//! Neither a standing answer nor consent replaces it, and the policy can only deny it.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value};

use super::Gate;
use crate::approval::action::Action;
use crate::approval::audit::OpenCall;
use crate::approval::decision::{Consulted, DecidedBy, Decision, Denied};
use crate::approval::policy::Effect;
use crate::approval::question::{Answer, ApprovalQueue, Approver, Counted, Reply, Response};

/// A user who was sent to a page, as long as it takes.
pub(crate) struct OnPage {
    _away: Counted,
    /// The decision, whose end is to be recorded.
    pub(crate) on_record: OpenCall,
}

impl Gate {
    /// Sends the user who reads `queue` to the page that `action` shows. The user counts as waiting as long as the result
    /// lives.
    ///
    /// # Errors
    /// The user did not go there.
    pub(crate) async fn send_to_page(
        &self,
        action: Action,
        queue: &Arc<ApprovalQueue>,
    ) -> Result<OnPage, Denied> {
        let (_, on_record) = self.ask_user(action, queue).await?;
        Ok(OnPage { _away: queue.count(), on_record })
    }

    /// Has the user of the current cell fill in the form that `action` shows, or open its page. Returns what was filled in.
    ///
    /// # Errors
    /// The user did not, or nobody can be asked.
    pub(crate) async fn elicit(&self, action: Action, is_page: bool) -> Result<Map<String, Value>, Denied> {
        let queue = match self.approver() {
            Approver::User(queue) => queue,
            Approver::Nobody(why) | Approver::Attached(_, why) => return Err(nobody(&action, why)),
            Approver::Consent => return Err(nobody(&action, "the application reads no requests")),
        };
        if is_page && !queue.opens_pages() {
            return Err(nobody(&action, "the MCP client cannot open pages"));
        }
        let (reply, on_record) = self.ask_user(action, &queue).await?;
        let content = reply.content.unwrap_or_default();
        // The values are the user's, and go to the server alone.
        on_record.result(|| Value::from("answered"));
        Ok(content)
    }

    async fn ask_user(
        &self,
        action: Action,
        queue: &Arc<ApprovalQueue>,
    ) -> Result<(Reply, OpenCall), Denied> {
        let action = self.with_known(action).await;
        let question = self.audit.question(Arc::clone(&action));
        let begun = Instant::now();
        let judgement = self.policy.judge(&action);
        let rejected = || Denied::Rejected { call: action.name() };
        let (replied, by) = match judgement.effect {
            Effect::Deny => {
                let denied = Denied::Policy { call: action.name(), rule: judgement.rule.clone() };
                (Err(denied), DecidedBy::Policy(judgement.rule))
            }
            Effect::Allow | Effect::Ask => match self.announce_and_ask(&action, queue).await {
                Response::Expired => {
                    (Err(Denied::Expired { call: action.name(), after: self.timeout }), DecidedBy::Expiry)
                }
                Response::Dropped => (Err(rejected()), DecidedBy::Nobody),
                Response::Reply(Reply { answer: Answer::No, .. }) => {
                    (Err(rejected()), DecidedBy::Answer(Answer::No))
                }
                Response::Reply(reply) => self.allowed_now(&action).await.map_or_else(
                    |(denied, by)| (Err(denied), by),
                    |()| (Ok(reply), DecidedBy::Answer(Answer::Once)),
                ),
            },
        };
        let outcome = replied.as_ref().map(drop).map_err(Denied::clone);
        let decision = Decision { outcome, by, waited: begun.elapsed(), consulted: Consulted::Users(None) };
        let (_, on_record) = question.decided(&decision).await?.into_parts();
        Ok((replied?, on_record))
    }

    /// The policy may deny what it did not when the question began to wait: the session has gone on to read.
    async fn allowed_now(&self, action: &Arc<Action>) -> Result<(), (Denied, DecidedBy)> {
        let now = self.with_known(Action::clone(action)).await;
        let judgement = self.policy.judge(&now);
        if judgement.effect != Effect::Deny {
            return Ok(());
        }
        let denied = Denied::Policy { call: action.name(), rule: judgement.rule.clone() };
        Err((denied, DecidedBy::Policy(judgement.rule)))
    }
}

fn nobody(action: &Action, why: &'static str) -> Denied {
    Denied::Nobody { call: action.name(), why }
}
