//! Spans and metrics, as a collector gets them.

mod clients;
mod collector;
mod contents;
mod exports;
mod spans;

use std::path::Path;

use serde_json::{Value, json};

use self::collector::Collector;
use crate::support::{Ipybox, Place, kernel_python, test_server, tool};

/// A client's span, as the recommendation of W3C writes it.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa04c902b7";

/// The variable by which the last export has all the time that it needs.
const PATIENT: (&str, &str) = ("OTEL_BSP_EXPORT_TIMEOUT", "300000");

/// The `_meta` of a request in that span.
fn traced() -> Value {
    json!({"traceparent": format!("00-{TRACE}-{PARENT}-01"), "tracestate": "vendor=1"})
}

/// The parameters of the server in `tests/servers/traces.py`.
fn server() -> Value {
    json!({"command": tool("mcp1/bin/python"), "args": [test_server("traces.py")]})
}

/// The arguments of a call with `_meta`.
fn call(tool: &str, arguments: &Value, meta: &Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": meta})
}

/// ipybox that sends to `collector`, with further flags and variables; its client has said hello.
async fn start(place: &Place, collector: &Collector, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    start_with(place, flags, &[&[endpoint, PATIENT], variables].concat()).await
}

async fn start_with(place: &Place, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start_with(&flags, variables).await;
    ipybox.initialize().await;
    ipybox
}

/// Ends ipybox well, and returns all that it has logged.
async fn log_of_end(mut ipybox: Ipybox) -> String {
    ipybox.close_input();
    assert!(ipybox.ended().await.success());
    ipybox.log()
}

/// The lines of an audit log.
fn records(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
