//! The decision about a call: a span if somebody was asked or the call is denied, and what it adds to the call's own span.

use std::time::{Duration, SystemTime};

use super::api::{Context, Span, is_on};
use super::names;
use super::value::{DecidedCall, WorkKind, name};

/// A decision that is being made. Dropping it withdraws the question.
pub(crate) struct DecisionSpan(Option<Box<AskedCall>>);

struct AskedCall {
    server: String,
    tool: String,
    begun: SystemTime,
    call: Option<String>,
    /// Kept, since nothing is current where a question is withdrawn.
    context: Context,
}

/// The circumstances of a decision.
pub(crate) struct MadeDecision {
    /// The deciding party, in the audit log's word.
    pub(crate) by: &'static str,
    pub(crate) waited: Duration,
    /// Whether somebody was asked.
    pub(crate) was_asked: bool,
    /// Why the call is denied, if it is.
    pub(crate) denied: Option<&'static str>,
}

impl DecisionSpan {
    /// About a tool of a server; the call has this id in the audit log.
    pub(crate) fn begin(server: &str, tool: &str, call: Option<&str>) -> Self {
        Self(is_on().then(|| {
            let call = call.map(str::to_owned);
            let context = Context::current();
            Box::new(AskedCall {
                server: name(server),
                tool: name(tool),
                begun: SystemTime::now(),
                call,
                context,
            })
        }))
    }

    /// Ends it. Returns what is to be said of the call.
    pub(crate) fn made(mut self, made: MadeDecision) -> Option<DecidedCall> {
        let asked = self.0.take()?;
        let call = DecidedCall { id: asked.call.clone(), by: made.by, waited: made.waited };
        if made.was_asked || made.denied.is_some() {
            asked.record(&call, made.denied);
        }
        Some(call)
    }
}

impl AskedCall {
    fn record(self, call: &DecidedCall, denied: Option<&'static str>) {
        let Self { server, tool, begun, context, .. } = self;
        let decision = if denied.is_some() { "denied" } else { "accepted" };
        let mut attributes = vec![
            (names::SERVER, server.into()),
            (names::TOOL, tool.into()),
            (names::DECISION, decision.into()),
        ];
        attributes.extend(call.attributes());
        attributes.extend(denied.map(|why| (names::ERROR_TYPE, why.into())));
        let span =
            Span::begin("ipybox.approval".to_owned(), WorkKind::Internal, &context, Some(begun), attributes);
        if denied.is_some() {
            span.has_failed();
        }
    }
}

impl Drop for DecisionSpan {
    fn drop(&mut self) {
        let Some(asked) = self.0.take() else { return };
        let waited = asked.begun.elapsed().unwrap_or_default();
        let call = DecidedCall { id: asked.call.clone(), by: "withdrawal", waited };
        asked.record(&call, Some("cancelled"));
    }
}
