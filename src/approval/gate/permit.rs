//! The permission for an action, the context in which it runs, and how its decision appears among spans.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::expected::ExpectedResult;
use crate::approval::action::{Action, Target};
use crate::approval::audit::{OpenCall, PermittedAction};
use crate::approval::decision::{ChosenBy, DecidedBy, Decision, DenialReason};
use crate::approval::provenance::{Label, Provenance};
use crate::ground::telemetry::{self, Context, MadeDecision};

/// The permission for one action, whose names and arguments cannot be changed. Only the gate makes it, from a recorded decision,
/// and only the gate makes a call of it: [`Gate::attempt`](super::Gate::attempt) compares once more what was decided about.
#[derive(Debug)]
pub(crate) struct Permit {
    /// The action, with what is known of its data now.
    pub(super) action: Arc<Action>,
    /// The provenance at the time of the decision.
    pub(super) decided_about: Option<Arc<Provenance>>,
    pub(super) chosen_by: ChosenBy,
    /// The deciding party, as in the audit log.
    by: &'static str,
    /// Whether the policy alone has permitted it.
    pub(super) is_by_policy: bool,
    /// Whether an approver whom a rule names has permitted it, or somebody has consented beforehand.
    pub(super) is_by_approver: bool,
    pub(super) decided: Instant,
    /// The result that its server is about to return, once the call has begun.
    pub(super) expected: Option<ExpectedResult>,
    /// Whether its arguments have gone to a call.
    pub(super) is_spent: bool,
    context: Context,
}

impl Permit {
    /// Permits the action of a recorded decision. Returns the record of its call too.
    pub(super) fn new(
        permitted: PermittedAction,
        context: Context,
        by: &DecidedBy,
        chosen_by: ChosenBy,
    ) -> (Self, OpenCall) {
        let (action, on_record) = permitted.into_parts();
        let permit = Self {
            decided_about: action.known.clone(),
            action,
            chosen_by,
            by: by.word(),
            is_by_policy: matches!(by, DecidedBy::Policy(_)),
            is_by_approver: by.approver().is_some() || *by == DecidedBy::Consent,
            decided: Instant::now(),
            expected: None,
            is_spent: false,
            context,
        };
        (permit, on_record)
    }

    /// The permitted action.
    pub(crate) fn action(&self) -> &Action {
        &self.action
    }

    /// The deciding party, as in the audit log.
    pub(crate) fn by(&self) -> &'static str {
        self.by
    }

    /// Takes what the server of a begun call returns to be entered; `None` if nobody needs to know.
    pub(crate) fn take_expected(&mut self) -> Option<ExpectedResult> {
        self.expected.take()
    }

    /// Replaces what is known of the action's data.
    pub(super) fn set_known(&mut self, known: Provenance) {
        Arc::make_mut(&mut self.action).known = Some(Arc::new(known));
    }

    /// Whoever decided knew that data with this label is read from `server`.
    pub(super) fn know(&mut self, label: Label, server: &str) {
        if let Some(known) = &mut self.decided_about {
            Arc::make_mut(known).read.entry(label).or_default().insert(server.to_owned());
        }
    }

    /// Notes for the next question why the action is decided about anew.
    pub(super) fn note_objection(&mut self, why: String) {
        if let Some(known) = self.action.known.as_deref().cloned() {
            self.set_known(Provenance { asked_again: Some(why), ..known });
        }
    }

    /// Gives the arguments away.
    pub(super) fn spend(&mut self) -> Map<String, Value> {
        self.is_spent = true;
        std::mem::take(&mut Arc::make_mut(&mut self.action).tool_args)
    }

    /// The context in which the action was decided about: that of the cell whose code wants it.
    pub(crate) fn context(&self) -> Context {
        self.context.clone()
    }
}

/// A decision is made: shows it among the spans. Returns the context for the action.
pub(super) fn show(shown: telemetry::DecisionSpan, decision: &Decision, action: &Action) -> Context {
    let current = Context::current();
    let Decision { outcome, by, waited, .. } = decision;
    let denied = outcome.as_ref().err().map(|denied| match denied {
        DenialReason::Expired { .. } => "timeout",
        _ => "denied",
    });
    let call = shown.made(MadeDecision { by: by.word(), waited: *waited, was_asked: by.was_asked(), denied });
    if action.target == Target::Host
        && let Some(call) = &call
    {
        // What ipybox does itself has no span of its own.
        current.describe(call);
    }
    current.with_call(call)
}
