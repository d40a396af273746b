//! When something is sent, and what becomes of the rest if it cannot be.

use serde_json::json;
use tokio::net::TcpListener;

use super::collector::Collector;
use super::{PATIENT, log_of_end, server, start, start_with};
use crate::support::{Place, eventually, kernel_python, refusing};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

#[tokio::test]
async fn nothing_is_sent_unless_it_is_asked_for() {
    let collector = Collector::start().await;
    let disabled = [(ENDPOINT, collector.url()), ("OTEL_SDK_DISABLED", "true"), ("OTEL_SERVICE_NAME", "off")];
    let none = [
        (ENDPOINT, collector.url()),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_SERVICE_NAME", "off"),
    ];
    let on = [(ENDPOINT, collector.url()), ("OTEL_SERVICE_NAME", "on"), ("OTEL_METRICS_EXPORTER", "none")];
    for variables in [&disabled[..], &none, &on] {
        let place = Place::new();
        let mut ipybox = start_with(&place, &[], &[variables, &[PATIENT]].concat()).await;
        ipybox.register("traces", server()).await.ok();
        let code = "from mcptools.traces import meta\nprint('traceparent' in meta.run())";
        let is_passed_on = ipybox.cell(code).await.ok();
        assert_eq!(
            is_passed_on,
            if variables.len() == 3 && variables[1].1 == "on" { "True" } else { "False" }
        );
        ipybox.stop().await;
    }
    // The last one has been sent, and so all would be.
    let spans = collector.spans_with("tools/call meta").await;
    assert!(spans.0.iter().all(|span| span.service == "on"), "{spans:#?}");
}

#[tokio::test]
async fn a_collector_that_is_away_costs_one_warning_of_each_kind() {
    let place = Place::new();
    let (_closed, nobody) = refusing();
    let url = format!("http://{nobody}");
    let variables =
        [(ENDPOINT, url.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "10"), ("OTEL_METRIC_EXPORT_INTERVAL", "10")];
    let mut ipybox = start_with(&place, &["--log-level", "DEBUG"], &variables).await;
    // Many are tried.
    let tries = |log: &str| log.matches("could not be sent").count();
    for number in 0..5 {
        assert_eq!(ipybox.cell(&number.to_string()).await.ok(), number.to_string());
    }
    eventually("much is tried in vain", || tries(&ipybox.log()) > 6).await;
    let log = log_of_end(ipybox).await;
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ") && tries(line) > 0).collect();
    assert_eq!(warnings.len(), 2, "{log}");
    assert!(warnings.iter().all(|line| line.contains(&url)), "{log}");
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut ipybox = start_with(&place, &[], &[(ENDPOINT, url.as_str())]).await;
    ipybox.cell("1").await.ok();
    let log = log_of_end(ipybox).await;
    assert!(log.contains("the last spans, metrics and logs could not be sent in time"), "{log}");
}

#[tokio::test]
async fn what_cannot_be_had_is_said_at_the_start() {
    let place = Place::new();
    let variables = [
        (ENDPOINT, "http://localhost:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_METRICS_EXPORTER", "console"),
    ];
    let mut ipybox = start_with(&place, &[], &variables).await;
    let log = ipybox.logged("`OTEL_METRICS_EXPORTER` names `console`, which is ignored").await;
    assert!(log.contains("`OTEL_EXPORTER_OTLP_PROTOCOL` is `grpc`, which ipybox does not speak"), "{log}");
    assert!(log.contains("stdout belongs to the protocol"), "{log}");
    ipybox.cell("1").await.ok();
    ipybox.stop().await;
}

#[tokio::test]
async fn a_dotenv_of_the_workspace_sends_nothing() {
    let (place, collector) = (Place::new(), Collector::start().await);
    place.write(".env", &format!("{ENDPOINT}={}\nOTEL_SERVICE_NAME=planted\n", collector.url()));
    let mut ipybox = start_with(&place, &[], &[]).await;
    ipybox.cell("1").await.ok();
    ipybox.stop().await;
    let other = Place::new();
    let mut ipybox = start(&other, &collector, &[], &[]).await;
    ipybox.cell("2").await.ok();
    ipybox.stop().await;
    let spans = collector.spans_with("ipybox.cell").await;
    assert_eq!(spans.all("ipybox.cell").len(), 1, "{spans:#?}");
}

#[tokio::test]
async fn a_kept_session_sends_what_its_clients_have_begun() {
    let (place, collector) = (Place::new(), Collector::start().await);
    let python = kernel_python();
    let flags = ["--keep-session", "120s", "--long-cells", "--python", python.to_str().unwrap()];
    let variables = [(ENDPOINT, collector.url()), ("OTEL_BSP_SCHEDULE_DELAY", "50"), PATIENT];
    let mut ipybox = place.start_with(&flags, &variables).await;
    ipybox.initialize().await;
    let code = "import pathlib, time\npathlib.Path('runs').touch()\n\
        while not pathlib.Path('go').exists(): time.sleep(0.01)";
    let params = super::call("execute_ipython_cell", &json!({"code": code}), &super::traced());
    let running = ipybox.request("tools/call", params).await;
    eventually("the cell runs", || place.workspace().join("runs").exists()).await;
    ipybox.signal(nix::sys::signal::Signal::SIGKILL);
    ipybox.ended().await;
    drop(running);
    place.write("go", "");
    let spans = collector.spans_with("tools/call execute_ipython_cell").await;
    let span = spans.one("tools/call execute_ipython_cell");
    assert_eq!((span.trace.as_str(), span.parent.as_str()), (super::TRACE, super::PARENT));
    let mut next = place.start_with(&flags, &variables).await;
    next.initialize().await;
    next.cell("print('next')").await.ok();
    next.stop().await;
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["sessions", "end", "--all", "--state-dir"])
        .arg(place.states())
        .env_clear()
        .envs(crate::support::environment())
        .status()
        .unwrap();
    assert!(ended.success());
    // The last ones are sent when the session ends.
    let durations = collector.durations("mcp.server.session.duration").await;
    assert_eq!(durations.iter().map(|each| each.count).sum::<u64>(), 2, "{durations:#?}");
}
