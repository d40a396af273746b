//! Clients and applications that are in a trace: the MCP SDK for Python, and an application in Rust.

use ipybox::CodeExecutor;
use opentelemetry::trace::{
    FutureExt as _, Span as _, SpanKind, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, global};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tokio::process::Command;

use super::collector::Collector;
use super::{PARENT, PATIENT, TRACE, server};
use crate::support::{Place, environment, kernel_python, repository, tool};

#[tokio::test]
async fn the_sdk_for_python_passes_its_trace_on() {
    let collector = Collector::start().await;
    for protocol in ["initialize", "discover"] {
        let place = Place::new();
        let output = Command::new(tool("mcp2/bin/python"))
            .arg(repository().join("tests/clients/traced.py"))
            .args(["--protocol", protocol, "--trace", TRACE, "--span", PARENT, "--server-python"])
            .arg(tool("mcp1/bin/python"))
            .args(["--", env!("CARGO_BIN_EXE_ipybox"), "--workspace", "{workspace}", "--state-dir"])
            .arg(place.states())
            .arg("--python")
            .arg(kernel_python())
            .env_clear()
            .envs(environment())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
            .env(PATIENT.0, PATIENT.1)
            .output()
            .await
            .unwrap();
        let said = format!("{output:?}");
        assert!(output.status.success(), "{said}");
    }
    let spans = collector.spans_with("server/discover").await;
    let cells = spans.all("tools/call execute_ipython_cell");
    assert_eq!(cells.len(), 2, "{spans:#?}");
    for cell in cells {
        assert_eq!((cell.trace.as_str(), cell.parent.as_str()), (TRACE, PARENT));
    }
}

#[tokio::test]
async fn an_application_has_the_spans_of_its_code() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    // For the whole process: the spans of other tests are in other traces.
    global::set_tracer_provider(provider.clone());
    global::set_text_map_propagator(TraceContextPropagator::new());
    let place = Place::new();
    let builder = CodeExecutor::builder().working_dir(place.workspace()).state_dir(place.states());
    let executor = builder.python(kernel_python()).start().await.unwrap();
    executor.register_mcp_server("traces", &server()).await.unwrap();

    let agent = provider.tracer("application").start("agent");
    let (agent_id, trace) = (agent.span_context().span_id(), agent.span_context().trace_id());
    let code = "from mcptools.traces import meta\nprint(meta.run())";
    let context = Context::current_with_span(agent);
    let result = executor.execute(code).with_context(context).await.unwrap();
    executor.stop().await;

    let spans = exporter.get_finished_spans().unwrap();
    let one = |name: &str| -> SpanData {
        let found = spans.iter().filter(|span| span.span_context.trace_id() == trace && span.name == name);
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "`{name}` in {spans:#?}");
        found[0].clone()
    };
    let (cell, call) = (one("ipybox.cell"), one("tools/call meta"));
    assert_eq!((cell.parent_span_id, cell.span_kind), (agent_id, SpanKind::Internal));
    assert_eq!((call.parent_span_id, call.span_kind), (cell.span_context.span_id(), SpanKind::Client));
    let sent = format!("00-{trace}-{}-01", call.span_context.span_id());
    assert!(result.text.unwrap().contains(&sent));
}
