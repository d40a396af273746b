//! The exports of the program, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use opentelemetry::{Key, KeyValue, global};
use opentelemetry_otlp::{
    LogExporter, MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;

use super::sender::CollectorClient;
use super::settings::{CollectorEndpoint, TelemetrySettings};
use super::{live, logs};

/// The time that the last export may take unless a variable says so: clients kill us some seconds after they closed our input.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// The providers that are installed. [`end`](Self::end) sends what they have.
#[derive(Default)]
pub(super) struct TelemetryExports {
    tracer: Option<SdkTracerProvider>,
    meter: Option<SdkMeterProvider>,
    logger: Option<SdkLoggerProvider>,
    is_last: Arc<AtomicBool>,
    /// The time that the last export may take.
    last_export: Option<Duration>,
}

impl TelemetryExports {
    /// Starts to export what the variables ask for. Call it in a runtime.
    pub(super) fn start() -> Self {
        let settings = TelemetrySettings::read(|name| std::env::var(name).ok());
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let mut exports = Self { last_export: settings.last_export, ..Self::default() };
        exports.tracer = settings.traces.and_then(|endpoint| exports.tracer(endpoint));
        exports.meter = settings.metrics.and_then(|endpoint| exports.meter(endpoint));
        exports.logger = settings.logs.and_then(|endpoint| exports.logger(endpoint));
        logs::turn(exports.logger.as_ref());
        let is_on = exports.tracer.is_some() || exports.meter.is_some();
        live::turn(is_on, settings.has_contents);
        if let Some(provider) = &exports.tracer {
            global::set_tracer_provider(provider.clone());
        }
        if let Some(provider) = &exports.meter {
            global::set_meter_provider(provider.clone());
        }
        if is_on && settings.propagates {
            global::set_text_map_propagator(TraceContextPropagator::new());
        }
        exports
    }

    fn tracer(&self, endpoint: CollectorEndpoint) -> Option<SdkTracerProvider> {
        let url = endpoint.url.to_string();
        let sender = self.sender("spans", endpoint)?;
        let exporter = SpanExporter::builder().with_http().with_http_client(sender);
        let exporter = exporter.with_protocol(Protocol::HttpBinary).with_endpoint(url).build();
        let exporter = exporter.inspect_err(|error| tracing::warn!(%error, "no spans are sent")).ok()?;
        Some(SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter).build())
    }

    fn meter(&self, endpoint: CollectorEndpoint) -> Option<SdkMeterProvider> {
        let url = endpoint.url.to_string();
        let sender = self.sender("metrics", endpoint)?;
        let exporter = MetricExporter::builder().with_http().with_http_client(sender);
        let exporter = exporter.with_protocol(Protocol::HttpBinary).with_endpoint(url).build();
        let exporter = exporter.inspect_err(|error| tracing::warn!(%error, "no metrics are sent")).ok()?;
        Some(SdkMeterProvider::builder().with_resource(resource()).with_periodic_exporter(exporter).build())
    }

    fn logger(&self, endpoint: CollectorEndpoint) -> Option<SdkLoggerProvider> {
        let url = endpoint.url.to_string();
        let sender = self.sender("logs", endpoint)?;
        let exporter = LogExporter::builder().with_http().with_http_client(sender);
        let exporter = exporter.with_protocol(Protocol::HttpBinary).with_endpoint(url).build();
        let exporter = exporter.inspect_err(|error| tracing::warn!(%error, "no logs are sent")).ok()?;
        Some(SdkLoggerProvider::builder().with_resource(resource()).with_batch_exporter(exporter).build())
    }

    fn sender(&self, what: &'static str, endpoint: CollectorEndpoint) -> Option<CollectorClient> {
        match CollectorClient::new(what, endpoint, Arc::clone(&self.is_last)) {
            Ok(sender) => Some(sender),
            Err(why) => {
                tracing::warn!(why, "no {what} are sent");
                None
            }
        }
    }

    /// Sends what is left, and gives up on it after 2 seconds, or what a variable says.
    pub(super) async fn end(self) {
        let Self { tracer, meter, logger, is_last, last_export } = self;
        let limit = last_export.unwrap_or(LAST_EXPORT);
        live::turn(false, false);
        logs::turn(None);
        is_last.store(true, Ordering::Relaxed);
        let (done, mut all_done) = tokio::sync::mpsc::channel::<()>(1);
        // Threads of their own: a runtime waits for those that it has lent.
        if let Some(tracer) = tracer {
            let done = done.clone();
            thread::spawn(move || (tracer.shutdown_with_timeout(limit).ok(), drop(done)));
        }
        if let Some(meter) = meter {
            let done = done.clone();
            thread::spawn(move || (meter.shutdown_with_timeout(limit).ok(), drop(done)));
        }
        if let Some(logger) = logger {
            let done = done.clone();
            thread::spawn(move || (logger.shutdown_with_timeout(limit).ok(), drop(done)));
        }
        drop(done);
        if tokio::time::timeout(limit, all_done.recv()).await.is_err() {
            tracing::warn!("the last spans, metrics and logs could not be sent in time");
        }
    }
}

/// The subject of the data: this process. The variables win.
fn resource() -> Resource {
    let own = [
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", uuid::Uuid::new_v4().to_string()),
    ];
    let named = Resource::builder().build();
    let is_named = |key: &'static str| named.get(&Key::from_static_str(key)).is_some();
    let missing = own.into_iter().filter(|(key, _)| !is_named(key));
    let builder = Resource::builder().with_attributes(missing.map(|(key, value)| KeyValue::new(key, value)));
    let name = named.get(&Key::from_static_str("service.name")).map(|name| name.to_string());
    match name {
        Some(name) if !name.starts_with("unknown_service") => builder.build(),
        _ => builder.with_service_name(env!("CARGO_PKG_NAME")).build(),
    }
}
