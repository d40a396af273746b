//! The permission for an action, the context in which it runs, and how its decision appears among spans.

use std::sync::Arc;

use super::action::{Action, Target};
use super::audit::{OpenCall, Permitted};
use super::decision::Decision;
use super::denied::Denied;
use crate::ground::telemetry::{self, Context, Made};

/// The permission for one action, which cannot be changed. Only the gate makes it, from a recorded decision.
#[derive(Debug)]
pub(crate) struct Permit {
    action: Arc<Action>,
    context: Context,
}

impl Permit {
    /// Permits the action of a recorded decision. Returns the record of its call too.
    pub(super) fn new(permitted: Permitted, context: Context) -> (Self, OpenCall) {
        let (action, on_record) = permitted.into_parts();
        (Self { action, context }, on_record)
    }

    pub(super) fn action(&self) -> &Action {
        &self.action
    }

    /// The context in which the action was decided about: that of the cell whose code wants it.
    pub(crate) fn context(&self) -> Context {
        self.context.clone()
    }

    /// The permitted action.
    pub(crate) fn into_action(self) -> Action {
        Arc::unwrap_or_clone(self.action)
    }
}

/// A decision is made: shows it among the spans. Returns the context for the action.
pub(super) fn show(shown: telemetry::Decision, decision: &Decision, action: &Action) -> Context {
    let current = Context::current();
    let Decision { outcome, by, waited, .. } = decision;
    let denied = outcome.as_ref().err().map(|denied| match denied {
        Denied::Expired { .. } => "timeout",
        _ => "denied",
    });
    let call = shown.made(Made { by: by.word(), waited: *waited, was_asked: by.was_asked(), denied });
    if action.target == Target::Host
        && let Some(call) = &call
    {
        // What ipybox does itself has no span of its own.
        current.describe(call);
    }
    current.with_call(call)
}
