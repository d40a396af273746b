//! What spans say, and what they never say.

use serde_json::{Value, json};

use super::collector::Collector;
use super::{log_of_end, server, start};
use crate::support::Place;

const SECRET: &str = "s3cret-value";
const CAPTURE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
const CODE: &str = "from mcptools.traces import meta\nkey = open('.env').read().split('=')[1].strip()\n\
    print(key, len(meta.run(text=key + ' whispered')), 'x' * 20_000)";

/// All attributes of the spans of such a cell, as text, and the arguments and results of its call and its own.
async fn said(variables: &[(&str, &str)]) -> (String, [Value; 4]) {
    let (place, collector) = (Place::new(), Collector::start().await);
    place.write(".env", &format!("API_KEY={SECRET}\n"));
    let mut ipybox = start(&place, &collector, &[], variables).await;
    ipybox.register("traces", server()).await.ok();
    let text = ipybox.call("execute_ipython_cell", json!({"code": CODE, "max_output_chars": 50_000})).await;
    assert!(text.ok().contains(SECRET));
    ipybox.stop().await;
    let spans = collector.spans_with("tools/call execute_ipython_cell").await;
    let of = |name: &str, what: &str| spans.one(name).get(&format!("gen_ai.tool.call.{what}")).clone();
    let contents = [
        of("tools/call execute_ipython_cell", "arguments"),
        of("tools/call execute_ipython_cell", "result"),
        of("tools/call meta", "arguments"),
        of("tools/call meta", "result"),
    ];
    (format!("{spans:?}"), contents)
}

#[tokio::test]
async fn code_arguments_and_results_are_not_said() {
    for variables in [&[][..], &[(CAPTURE, "false")]] {
        let (all, contents) = said(variables).await;
        assert_eq!(contents, [Value::Null, Value::Null, Value::Null, Value::Null]);
        for words in [SECRET, "mcptools", "whispered", "progressToken"] {
            assert!(!all.contains(words), "{words}: {all}");
        }
    }
}

#[tokio::test]
async fn contents_that_are_asked_for_are_bounded_and_have_no_secrets() {
    let (all, [code, output, arguments, result]) = said(&[(CAPTURE, "true")]).await;
    assert!(!all.contains(SECRET), "{all}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    assert!(text(&code).contains("print(key, len(meta.run"), "{code}");
    assert!(text(&output).starts_with("${API_KEY} ") && text(&output).len() < 9_000, "{output}");
    assert_eq!(text(&arguments), r#"{"text":"${API_KEY} whispered"}"#);
    assert!(text(&result).contains("traceparent"), "{result}");
}

#[tokio::test]
async fn the_headers_for_the_collector_are_for_it_alone() {
    const HEADER: &str = "the-header-secret";
    let (place, collector) = (Place::new(), Collector::start().await);
    let headers = format!("authorization=Bearer {HEADER}");
    let mut ipybox =
        start(&place, &collector, &[], &[("OTEL_EXPORTER_OTLP_HEADERS", &headers), ("KERNEL_ENV_OWN", "1")])
            .await;
    ipybox.register("traces", server()).await.ok();
    let code = "import json, os\nfrom mcptools.traces import env\n\
        print(json.dumps([dict(os.environ), json.loads(env.run())]))";
    let said = ipybox.cell(code).await.ok();
    ipybox.stop().await;
    let both: Vec<serde_json::Map<String, Value>> = serde_json::from_str(&said).unwrap();
    assert!(both[0]["OWN"] == "1" && both[1].contains_key("PATH"), "{said}");
    assert!(!said.contains("OTEL_") && !said.contains(HEADER), "{said}");
    assert!(!place.everything_in_states().contains(HEADER));
    assert!(collector.spans_with("ipybox.cell").await.0.len() > 1);
}

#[tokio::test]
async fn what_a_collector_refuses_costs_no_cell() {
    let place = Place::new();
    // It listens, and answers everything with an error.
    let refusing = axum::Router::new().fallback(|| async { axum::http::StatusCode::UNAUTHORIZED });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, refusing).await });
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "10")];
    let mut ipybox = super::start_with(&place, &[], &variables).await;
    ipybox.cell("1").await.ok();
    ipybox.logged("spans could not be sent").await;
    assert_eq!(ipybox.cell("2").await.ok(), "2");
    let log = super::log_of_end(ipybox).await;
    assert!(log.contains("it answered HTTP 401"), "{log}");
}

#[tokio::test]
async fn the_audit_log_is_sent_line_by_line_if_it_is_asked_for() {
    let collector = Collector::start().await;
    for is_wanted in [false, true] {
        let place = Place::new();
        let log = place.temporary().join("audit.jsonl");
        let wanted: &[(&str, &str)] = if is_wanted { &[("OTEL_LOGS_EXPORTER", "otlp")] } else { &[] };
        let mut ipybox = start(&place, &collector, &["--audit-log", log.to_str().unwrap()], wanted).await;
        assert_eq!(ipybox.cell("1").await.ok(), "1");
        log_of_end(ipybox).await;
        if is_wanted {
            let sent = collector.logs_with("session_ended").await;
            let mut sent: Vec<String> = sent.into_iter().map(|(line, _)| line).collect();
            let mut lines: Vec<String> =
                std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
            sent.sort();
            lines.sort();
            // None of the session before, either.
            assert_eq!(sent, lines);
        } else {
            collector.spans_with("ipybox.cell").await;
        }
    }
}
