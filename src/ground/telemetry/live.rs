//! OpenTelemetry's API, as this room uses it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::task::{self, Poll};
use std::time::SystemTime;

use opentelemetry::metrics::Histogram;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context as Otel, InstrumentationScope, KeyValue, global};
use serde_json::{Map, Value as Json};

use super::propagation::{MetaExtractor, MetaInjector};
use super::value::{AttributeValue, DecidedCall, MetricInstrument, SpanAttribute, WorkKind};

/// The buckets that the conventions name, in seconds.
const BUCKETS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// Whether nothing is to be done: this is the program, and nobody has asked it to export.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Whether spans have arguments and results.
static HAS_CONTENTS: AtomicBool = AtomicBool::new(false);

static SCOPE: LazyLock<InstrumentationScope> = LazyLock::new(|| {
    InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION")).build()
});

pub(super) fn turn(is_on: bool, has_contents: bool) {
    IS_OFF.store(!is_on, Ordering::Relaxed);
    HAS_CONTENTS.store(has_contents, Ordering::Relaxed);
}

pub(super) fn is_on() -> bool {
    !IS_OFF.load(Ordering::Relaxed)
}

pub(super) fn has_contents() -> bool {
    HAS_CONTENTS.load(Ordering::Relaxed)
}

/// A position in a trace. Spans that begin in it are children of its span.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context(Option<Otel>);

impl Context {
    /// The current one.
    pub(crate) fn current() -> Self {
        Self(is_on().then(Otel::current))
    }

    /// The span of the client that has sent a request with these `_meta`.
    pub(crate) fn of_meta(meta: &Map<String, Json>) -> Self {
        let extract =
            || global::get_text_map_propagator(|propagator| propagator.extract(&MetaExtractor(meta)));
        Self(is_on().then(extract))
    }

    /// Passes on which span makes a request with these `_meta`.
    pub(crate) fn write_to(&self, meta: &mut Map<String, Json>) {
        if let Some(context) = &self.0 {
            global::get_text_map_propagator(|propagator| {
                propagator.inject_context(context, &mut MetaInjector(meta));
            });
        }
    }

    /// Does `work` in this context.
    pub(crate) fn around<F: Future>(self, work: F) -> InContext<F> {
        InContext { context: self.0, work: Box::pin(work) }
    }

    /// The same for a call about which was decided.
    pub(crate) fn with_call(self, call: Option<DecidedCall>) -> Self {
        match (self.0, call) {
            (Some(context), Some(call)) => Self(Some(context.with_value(call))),
            (context, _) => Self(context),
        }
    }

    /// The call on whose behalf work is done.
    pub(super) fn call(&self) -> Option<&DecidedCall> {
        self.0.as_ref()?.get::<DecidedCall>()
    }

    /// Sets an attribute of its span.
    pub(super) fn set(&self, attribute: SpanAttribute) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(key_value(attribute));
        }
    }
}

/// Work in a context.
#[must_use = "futures do nothing unless they are polled"]
pub(crate) struct InContext<F> {
    context: Option<Otel>,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for InContext<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<F::Output> {
        let _current = self.context.clone().map(Otel::attach);
        self.work.as_mut().poll(task)
    }
}

/// A span, which ends when this is dropped.
pub(super) struct Span(Otel);

impl Span {
    pub(super) fn begin(
        name: String,
        kind: WorkKind,
        parent: &Context,
        begun: Option<SystemTime>,
        attributes: Vec<SpanAttribute>,
    ) -> Self {
        let tracer = global::tracer_with_scope(SCOPE.clone());
        let kind = match kind {
            WorkKind::Server => SpanKind::Server,
            WorkKind::Client => SpanKind::Client,
            WorkKind::Internal => SpanKind::Internal,
        };
        let mut builder = tracer.span_builder(name).with_kind(kind);
        builder.start_time = begun;
        builder.attributes = Some(attributes.into_iter().map(key_value).collect());
        let parent = parent.0.clone().unwrap_or_default();
        let span = tracer.build_with_context(builder, &parent);
        Self(parent.with_span(span))
    }

    pub(super) fn context(&self) -> Context {
        Context(Some(self.0.clone()))
    }

    pub(super) fn is_recording(&self) -> bool {
        self.0.span().is_recording()
    }

    pub(super) fn set(&self, attribute: SpanAttribute) {
        self.0.span().set_attribute(key_value(attribute));
    }

    /// Marks the span as failed. Messages of errors are contents, and not exported.
    pub(super) fn has_failed(&self) {
        self.0.span().set_status(Status::error(""));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

struct Instruments {
    server_operation: Histogram<f64>,
    client_operation: Histogram<f64>,
    server_session: Histogram<f64>,
    client_session: Histogram<f64>,
    cell: Histogram<f64>,
}

/// Records a duration.
pub(super) fn record(instrument: MetricInstrument, seconds: f64, attributes: &[SpanAttribute]) {
    static INSTRUMENTS: OnceLock<Instruments> = OnceLock::new();
    let instruments = INSTRUMENTS.get_or_init(Instruments::new);
    let histogram = match instrument {
        MetricInstrument::ServerOperation => &instruments.server_operation,
        MetricInstrument::ClientOperation => &instruments.client_operation,
        MetricInstrument::ServerSession => &instruments.server_session,
        MetricInstrument::ClientSession => &instruments.client_session,
        MetricInstrument::Cell => &instruments.cell,
    };
    let attributes: Vec<KeyValue> = attributes.iter().cloned().map(key_value).collect();
    histogram.record(seconds, &attributes);
}

impl Instruments {
    fn new() -> Self {
        let meter = global::meter_with_scope(SCOPE.clone());
        let histogram = |name: &'static str, description: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
            histogram.with_boundaries(BUCKETS.to_vec()).build()
        };
        Self {
            server_operation: histogram(
                "mcp.server.operation.duration",
                "Durations of requests of MCP clients.",
            ),
            client_operation: histogram(
                "mcp.client.operation.duration",
                "Durations of requests to MCP servers.",
            ),
            server_session: histogram(
                "mcp.server.session.duration",
                "Durations of connections of MCP clients.",
            ),
            client_session: histogram(
                "mcp.client.session.duration",
                "Durations of connections to MCP servers.",
            ),
            cell: histogram("ipybox.cell.duration", "Durations of cells, from their start to their end."),
        }
    }
}

fn key_value((key, value): SpanAttribute) -> KeyValue {
    match value {
        AttributeValue::Text(text) => KeyValue::new(key, text),
        AttributeValue::Integer(number) => KeyValue::new(key, number),
        AttributeValue::Number(number) => KeyValue::new(key, number),
    }
}
