//! Which spans and metrics there are, and how they belong together.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use super::collector::Collector;
use super::{PARENT, PATIENT, TRACE, call, records, server, start, traced};
use crate::support::{Place, eventually};

const EXECUTE: &str = "tools/call execute_ipython_cell";
const CALLS: &str = "from mcptools.traces import meta, fail\nprint(meta.run())\nfail.run()";

#[tokio::test]
async fn a_cell_and_its_calls_are_one_trace() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let log = place.temporary().join("audit.jsonl");
    let mut ipybox = start(&place, &collector, &["--audit-log", log.to_str().unwrap()], &[]).await;
    ipybox.register("traces", server()).await.ok();
    let cell = call("execute_ipython_cell", &json!({"code": CALLS}), &traced());
    let text = ipybox.request("tools/call", cell).await.answer().await.error();
    ipybox.stop().await;

    let spans = collector.spans_with(EXECUTE).await;
    let execute = spans.one(EXECUTE);
    assert_eq!(
        (execute.trace.as_str(), execute.parent.as_str(), execute.kind),
        (TRACE, PARENT, SpanKind::Server)
    );
    assert!(execute.has_failed && execute.state == "vendor=1" && execute.service == "ipybox", "{execute:#?}");
    execute.check(&json!({
        "mcp.method.name": "tools/call", "gen_ai.tool.name": "execute_ipython_cell", "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-11-25", "network.transport": "pipe", "jsonrpc.request.id": "3",
        "error.type": "tool_error", "gen_ai.tool.call.arguments": null, "gen_ai.tool.call.result": null,
    }));
    let cell = spans.one("ipybox.cell");
    assert_eq!((&cell.parent, &cell.trace, cell.kind), (&execute.id, &execute.trace, SpanKind::Internal));
    cell.check(&json!({
        "ipybox.cell.status": "error", "ipybox.cell.author": "agent", "error.type": "error",
        "exception.type": "ToolRunnerError",
    }));

    let (meta, fail) = (spans.one("tools/call meta"), spans.one("tools/call fail"));
    for (span, error) in [(meta, Value::Null), (fail, json!("tool_error"))] {
        assert_eq!((&span.parent, &span.trace, span.kind), (&cell.id, &cell.trace, SpanKind::Client));
        assert_eq!(span.has_failed, !error.is_null());
        span.check(&json!({
            "mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "network.transport": "pipe",
            "ipybox.server.name": "traces", "ipybox.approval.by": "policy", "error.type": error,
        }));
        assert!(span.get("mcp.protocol.version").is_string() && span.get("jsonrpc.request.id").is_string());
    }
    // The same call in the audit log.
    let calls: Vec<Value> = records(&log).into_iter().filter(|line| line["tool"] == "meta").collect();
    assert_eq!(*meta.get("ipybox.call.id"), calls[0]["call"]);
    // What the server got.
    let sent: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(sent["traceparent"], format!("00-{TRACE}-{}-01", meta.id));
    assert_eq!(sent["tracestate"], "vendor=1");
}

#[tokio::test]
async fn a_registration_and_what_it_asks_the_server_are_one_trace() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let mut ipybox = start(&place, &collector, &[], &[]).await;
    ipybox.request("tools/list", json!({})).await.response().await.unwrap();
    ipybox.register("traces", server()).await.ok();
    ipybox.cell("from mcptools.traces import resources\nresources.read('traces://one')[:]").await.ok();
    ipybox.reset().await;
    let refused = ipybox.start_call("no_such_tool", json!({})).await.response().await.unwrap();
    assert_eq!(refused["error"]["code"], -32602);
    ipybox.stop().await;

    let spans = collector.spans_with("tools/call reset").await;
    let register = spans.one("tools/call register_mcp_server");
    assert_eq!(register.parent, "", "no client has named a parent");
    register.check(&json!({"ipybox.approval.by": "policy", "error.type": null}));
    let ours = |name: &str| {
        let found = spans.all(name).into_iter().find(|span| span.kind == SpanKind::Client);
        found.unwrap_or_else(|| panic!("no `{name}`: {spans:#?}"))
    };
    for name in ["initialize", "tools/list"] {
        assert_eq!((&ours(name).parent, &ours(name).trace), (&register.id, &register.trace), "{name}");
        let of_client = spans.all(name).into_iter().find(|span| span.kind == SpanKind::Server).unwrap();
        assert_eq!(of_client.parent, "");
    }
    let cell = spans.one("ipybox.cell");
    let reading = ours("resources/read");
    assert_eq!(reading.parent, cell.id);
    reading.check(&json!({"mcp.resource.uri": "traces://one", "gen_ai.operation.name": null}));
    let refused = spans.one("tools/call");
    refused.check(
        &json!({"error.type": "-32602", "rpc.response.status_code": "-32602", "gen_ai.tool.name": null}),
    );
}

#[tokio::test]
async fn durations_are_recorded_by_the_conventions() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let mut ipybox = start(&place, &collector, &[], &[]).await;
    ipybox.register("traces", server()).await.ok();
    ipybox.cell("from mcptools.traces import meta\nfor _ in range(3): meta.run()").await.ok();
    ipybox.stop().await;

    let of_tool = |durations: &[super::collector::Durations], tool: &str| {
        let found =
            durations.iter().find(|each| each.attributes.get("gen_ai.tool.name") == Some(&json!(tool)));
        found.unwrap_or_else(|| panic!("no `{tool}`: {durations:#?}")).clone()
    };
    let calls = of_tool(&collector.durations("mcp.client.operation.duration").await, "meta");
    assert_eq!((calls.count, calls.unit.as_str()), (3, "s"));
    assert_eq!(
        calls.bounds,
        [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0]
    );
    assert_eq!(calls.attributes["ipybox.server.name"], "traces");
    let cells = of_tool(&collector.durations("mcp.server.operation.duration").await, "execute_ipython_cell");
    assert_eq!((cells.count, &cells.attributes["mcp.method.name"]), (1, &json!("tools/call")));
    assert!(!cells.attributes.contains_key("jsonrpc.request.id"), "{cells:#?}");
    for metric in ["mcp.server.session.duration", "mcp.client.session.duration", "ipybox.cell.duration"] {
        let durations = collector.durations(metric).await;
        assert_eq!(durations.iter().map(|each| each.count).sum::<u64>(), 1, "{metric}: {durations:#?}");
    }
}

#[tokio::test]
async fn the_span_of_a_cell_that_was_left_ends_with_the_cell() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let mut ipybox = start(&place, &collector, &["--long-cells"], &[]).await;
    let code = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)";
    let left = ipybox.call("execute_ipython_cell", json!({"code": code, "wait": 0.01})).await.ok();
    assert!(left.contains("`cell-1`"), "{left}");
    let waiting = ipybox.start_call("wait_for_cell", json!({"cell": "cell-1"})).await;
    ipybox.has_begun_what_was_asked().await;
    place.write("go", "");
    waiting.answer().await.ok();
    ipybox.stop().await;

    let spans = collector.spans_with("tools/call wait_for_cell").await;
    let (execute, wait) = (spans.one(EXECUTE), spans.one("tools/call wait_for_cell"));
    assert!(execute.end > wait.begin, "{spans:#?}");
    execute.check(&json!({"ipybox.cell.id": "cell-1", "error.type": null}));
    wait.check(&json!({"ipybox.cell.id": "cell-1", "error.type": null}));
    assert!(spans.one("ipybox.cell").end <= execute.end);
}

#[tokio::test]
async fn a_question_is_a_span_beside_the_call() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let flags = ["--approval", "ask"];
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let python = crate::support::kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags.as_slice()].concat();
    let mut ipybox = place.start_with(&flags, &[endpoint, PATIENT]).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let params = json!({"server_name": "traces", "server_params": server()});
    let registering = ipybox.start_call("register_mcp_server", params).await;
    ipybox.decide("allow once").await;
    registering.answer().await.ok();
    let code = "from mcptools.traces import meta, fail\nmeta.run()\nfail.run()";
    let cell = ipybox.start_cell(code).await;
    ipybox.decide("allow once").await;
    ipybox.decide("deny").await;
    cell.answer().await.error();
    let code = "import pathlib\npathlib.Path('asks').touch()\nmeta.run()";
    let cancelled = ipybox.start_cell(code).await;
    ipybox.question().await;
    ipybox.cancel(&cancelled).await;
    ipybox.cell("1").await.ok();
    ipybox.stop().await;

    let spans = collector.spans_with(EXECUTE).await;
    let cells = spans.all("ipybox.cell");
    let approvals = spans.all("ipybox.approval");
    let seen: Vec<_> = approvals
        .iter()
        .map(|span| {
            let of = |name: &str| span.get(name).as_str().unwrap_or_default().to_owned();
            (of("gen_ai.tool.name"), of("ipybox.approval.by"), of("error.type"))
        })
        .collect();
    let row = |tool: &str, by: &str, error: &str| (tool.to_owned(), by.to_owned(), error.to_owned());
    assert_eq!(
        seen,
        [
            row("register_mcp_server", "once", ""),
            row("meta", "once", ""),
            row("fail", "no", "denied"),
            row("meta", "withdrawal", "cancelled"),
        ],
        "{spans:#?}"
    );
    assert_eq!(approvals[1].parent, cells[0].id);
    assert_eq!(approvals[3].parent, cells[1].id);
    let meta = spans.one("tools/call meta");
    assert!(meta.begin >= approvals[1].end, "the time of the question is not the call's: {spans:#?}");
    assert!(meta.get("ipybox.approval.duration").as_f64().unwrap() > 0.0);
    spans.one("tools/call register_mcp_server").check(&json!({"ipybox.approval.by": "once"}));
    assert_eq!(cells[1].get("ipybox.cell.status"), "cancelled");
}

#[tokio::test]
async fn nobody_forges_a_parent() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let mut ipybox = start(&place, &collector, &[], &[]).await;
    ipybox.register("traces", server()).await.ok();
    let forged = format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16));
    for meta in [
        json!({"traceparent": "x".repeat(1_000_000)}),
        json!({"traceparent": {"a": forged}, "tracestate": 1}),
        json!({"traceparent": forged.to_uppercase(), "baggage": "user=alice"}),
        json!({"traceparent": format!("00-{}-{}-01", "0".repeat(32), PARENT)}),
    ] {
        let params = call("execute_ipython_cell", &json!({"code": "1"}), &meta);
        ipybox.request("tools/call", params).await.answer().await.ok();
    }
    // Arguments of code are arguments, whatever they are called.
    let code = format!(
        "import json\nfrom ipybox_runtime import ToolRunner\n\
         sent = ToolRunner('traces').run_sync('meta', {{'text': '', '_meta': {{'traceparent': {forged:?}}}}})\n\
         print(json.loads(sent)['traceparent'])"
    );
    let params = call("execute_ipython_cell", &json!({"code": code}), &traced());
    let sent = ipybox.request("tools/call", params).await.answer().await.ok();
    ipybox.stop().await;

    let spans = collector.spans_with("tools/call meta").await;
    assert_eq!(sent, format!("00-{TRACE}-{}-01", spans.one("tools/call meta").id));
    let cells = spans.all(EXECUTE);
    assert_eq!(cells.len(), 5);
    for cell in &cells[..4] {
        assert!(cell.parent.is_empty() && cell.state.is_empty() && cell.trace != "a".repeat(32), "{cell:#?}");
    }
}

#[tokio::test]
async fn what_happens_between_cells_belongs_to_none() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let mut ipybox = start(&place, &collector, &[], &[]).await;
    ipybox.register("traces", server()).await.ok();
    let code = "import pathlib, threading, time\nfrom mcptools.traces import meta\n\
        def later():\n    while not pathlib.Path('go').exists(): time.sleep(0.01)\n    meta.run()\n    pathlib.Path('done').touch()\n\
        threading.Thread(target=later).start()";
    ipybox.cell(code).await.ok();
    place.write("go", "");
    eventually("the thread has called", || place.workspace().join("done").exists()).await;
    ipybox.stop().await;
    let spans = collector.spans_with("tools/call meta").await;
    assert_eq!(spans.one("tools/call meta").parent, "");
}
