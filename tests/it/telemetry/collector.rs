//! A real collector, and what it passes on.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::support::{environment, eventually, free_port, tool};

/// A span.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) state: String,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) has_failed: bool,
    pub(super) attributes: Map<String, Value>,
    /// What the resource is called.
    pub(super) service: Value,
}

impl Span {
    /// An attribute, or null.
    pub(super) fn get(&self, name: &str) -> &Value {
        self.attributes.get(name).unwrap_or(&Value::Null)
    }

    /// Whether it has these attributes.
    #[track_caller]
    pub(super) fn check(&self, expected: &Value) {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(self.get(name), value, "{name} of {self:#?}");
        }
    }
}

/// Durations that were recorded with the same attributes.
#[derive(Debug, Clone)]
pub(super) struct Durations {
    pub(super) attributes: Map<String, Value>,
    pub(super) count: u64,
    pub(super) bounds: Vec<f64>,
    pub(super) unit: String,
}

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    /// The newest durations of each metric.
    durations: BTreeMap<String, Vec<Durations>>,
    /// The bodies of log records, with their attributes.
    logs: Vec<(String, Map<String, Value>)>,
}

/// The collector, and the place behind it that it sends to.
pub(super) struct Collector {
    url: String,
    received: Arc<Mutex<Received>>,
    _process: Child,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let received = Arc::default();
        let routes = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .route("/v1/logs", post(logs))
            .with_state(Arc::clone(&received));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let behind = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let [grpc, http] = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
        let process = Command::new(program())
            .arg("start")
            .args(["--otlp-grpc-endpoint", &grpc.to_string()])
            .args(["--otlp-http-endpoint", &http.to_string()])
            .args(["--exporter", "otlp", "--otlp-exporter-protocol", "http"])
            .args(["--otlp-exporter-endpoint", &format!("http://{behind}")])
            .env_clear()
            .envs(environment())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        eventually("the collector listens", || std::net::TcpStream::connect(http).is_ok()).await;
        Self { url: format!("http://{http}"), received, _process: process }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// All spans, once there is one of this name.
    pub(super) async fn spans_with(&self, name: &str) -> Spans {
        eventually(&format!("the span `{name}` comes"), || {
            self.received.lock().unwrap().spans.iter().any(|span| span.name == name)
        })
        .await;
        Spans(self.received.lock().unwrap().spans.clone())
    }

    /// All log records, once there is one of this event.
    pub(super) async fn logs_with(&self, event: &str) -> Vec<(String, Map<String, Value>)> {
        let is_of =
            |(_, attributes): &(String, Map<String, Value>)| attributes["ipybox.audit.event"] == event;
        eventually(&format!("the record of `{event}` comes"), || {
            self.received.lock().unwrap().logs.iter().any(is_of)
        })
        .await;
        self.received.lock().unwrap().logs.clone()
    }

    /// The durations of a metric, once there are some.
    pub(super) async fn durations(&self, metric: &str) -> Vec<Durations> {
        let mut found = None;
        eventually(&format!("the metric `{metric}` comes"), || {
            found = self.received.lock().unwrap().durations.get(metric).cloned();
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

/// What a collector has got.
#[derive(Debug)]
pub(super) struct Spans(pub(super) Vec<Span>);

impl Spans {
    /// Those of this name, in the order of their beginnings.
    pub(super) fn all(&self, name: &str) -> Vec<&Span> {
        let mut found: Vec<&Span> = self.0.iter().filter(|span| span.name == name).collect();
        found.sort_by_key(|span| span.begin);
        found
    }

    /// The only one of this name.
    #[track_caller]
    pub(super) fn one(&self, name: &str) -> &Span {
        match self.all(name).as_slice() {
            [span] => span,
            found => panic!("{} spans `{name}`: {self:#?}", found.len()),
        }
    }
}

/// The program in the wheel.
fn program() -> std::path::PathBuf {
    let library = tool("telemetry/lib");
    let python = std::fs::read_dir(library).unwrap().next().unwrap().unwrap().path();
    python.join("site-packages/rotel/rotel-agent")
}

fn plain(headers: &HeaderMap, body: &Bytes) -> Vec<u8> {
    let mut text = Vec::new();
    if headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip") {
        flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut text).map(drop).unwrap()
    } else {
        text.extend_from_slice(body)
    }
    text
}

async fn traces(State(received): State<Arc<Mutex<Received>>>, headers: HeaderMap, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(plain(&headers, &body).as_slice()).unwrap();
    let mut received = received.lock().unwrap();
    for of_resource in request.resource_spans {
        let resource = map(of_resource.resource.unwrap_or_default().attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
            received.spans.push(Span {
                kind: span.kind(),
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                state: span.trace_state,
                begin: span.start_time_unix_nano,
                end: span.end_time_unix_nano,
                has_failed: span.status.is_some_and(|status| status.code() == StatusCode::Error),
                attributes: map(span.attributes),
                service: resource.get("service.name").cloned().unwrap_or_default(),
            });
        }
    }
}

async fn metrics(State(received): State<Arc<Mutex<Received>>>, headers: HeaderMap, body: Bytes) {
    let request = ExportMetricsServiceRequest::decode(plain(&headers, &body).as_slice()).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|of_resource| of_resource.scope_metrics);
    for metric in scopes.flat_map(|of_scope| of_scope.metrics) {
        let Some(Data::Histogram(histogram)) = metric.data else { continue };
        let durations = histogram.data_points.into_iter().map(|point| Durations {
            attributes: map(point.attributes),
            count: point.count,
            bounds: point.explicit_bounds,
            unit: metric.unit.clone(),
        });
        received.lock().unwrap().durations.insert(metric.name, durations.collect());
    }
}

async fn logs(State(received): State<Arc<Mutex<Received>>>, headers: HeaderMap, body: Bytes) {
    let request = ExportLogsServiceRequest::decode(plain(&headers, &body).as_slice()).unwrap();
    let scopes = request.resource_logs.into_iter().flat_map(|of_resource| of_resource.scope_logs);
    for record in scopes.flat_map(|of_scope| of_scope.log_records) {
        let Some(any_value::Value::StringValue(text)) = record.body.and_then(|body| body.value) else {
            continue;
        };
        received.lock().unwrap().logs.push((text, map(record.attributes)));
    }
}

fn map(attributes: Vec<KeyValue>) -> Map<String, Value> {
    let value = |attribute: KeyValue| match attribute.value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::BoolValue(value)) => json!(value),
        _ => Value::Null,
    };
    attributes.into_iter().map(|attribute| (attribute.key.clone(), value(attribute))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
