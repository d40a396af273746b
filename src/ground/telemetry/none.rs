//! The interface of `live` without the feature `otel`: nothing happens.

use std::pin::Pin;
use std::time::SystemTime;

use serde_json::{Map, Value as Json};

use super::value::{DecidedCall, MetricInstrument, SpanAttribute, WorkKind};

pub(super) const fn is_on() -> bool {
    false
}

pub(super) const fn has_contents() -> bool {
    false
}

/// A position in a trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context(());

impl Context {
    pub(crate) fn current() -> Self {
        Self(())
    }

    pub(crate) fn of_meta(_meta: &Map<String, Json>) -> Self {
        Self(())
    }

    pub(crate) fn write_to(&self, _meta: &mut Map<String, Json>) {}

    pub(crate) fn around<F: Future>(self, work: F) -> Pin<Box<F>> {
        Box::pin(work)
    }

    pub(crate) fn with_call(self, _call: Option<DecidedCall>) -> Self {
        self
    }

    pub(super) fn call(&self) -> Option<&DecidedCall> {
        None
    }

    pub(super) fn set(&self, _attribute: SpanAttribute) {}
}

/// No span.
pub(super) struct Span(());

impl Span {
    pub(super) fn begin(
        _name: String,
        _kind: WorkKind,
        _parent: &Context,
        _begun: Option<SystemTime>,
        _attributes: Vec<SpanAttribute>,
    ) -> Self {
        Self(())
    }

    pub(super) fn context(&self) -> Context {
        Context(())
    }

    pub(super) fn is_recording(&self) -> bool {
        false
    }

    pub(super) fn set(&self, _attribute: SpanAttribute) {}

    pub(super) fn has_failed(&self) {}
}

pub(super) fn record(_instrument: MetricInstrument, _seconds: f64, _attributes: &[SpanAttribute]) {}

/// Nothing is exported.
pub(super) const fn export(_line: &[u8]) {}
