//! MCP itself: revisions, tools, order, progress, cancellation, bad requests.

use serde_json::json;

use crate::support::{Place, eventually, kernel_python, write_program};

#[tokio::test]
async fn every_revision_by_initialize_is_served() {
    let place = Place::new();
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
        let params = json!({
            "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "it", "version": "0"},
        });
        let response = ipybox.request("initialize", params).await.response().await.unwrap();
        let result = &response["result"];
        assert_eq!(result["protocolVersion"], revision);
        assert_eq!(result["serverInfo"]["name"], "ipybox");
        assert_eq!(result["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(result["instructions"].as_str().unwrap().contains("register_mcp_server"));
        ipybox.notify("notifications/initialized", json!({})).await;
        assert_eq!(ipybox.cell("1+1").await.ok(), "2");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn the_revision_without_initialize_is_served() {
    let place = Place::new();
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let response = ipybox.request("server/discover", json!({"_meta": meta})).await.response().await.unwrap();
    let versions = response["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{response}");
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": "1+1"}, "_meta": meta,
    });
    let response = ipybox.request("tools/call", params).await.response().await.unwrap();
    assert_eq!(response["result"]["content"][0]["text"], "2", "{response}");
    ipybox.stop().await;
}

#[tokio::test]
async fn methods_of_the_declared_capabilities_are_served_and_no_others() {
    let place = Place::new();
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    let declared = ipybox.initialize().await["capabilities"].clone();
    let declares = |name: &str| !declared[name].is_null();
    assert!(declares("tools") && declares("resources"), "{declared}");
    let cell = json!({"name": "execute_ipython_cell", "arguments": {"code": "1+1"}});
    let skill = json!({"uri": "skill://codeact/SKILL.md"});
    for (method, params) in [
        ("ping", json!({})),
        ("tools/list", json!({})),
        ("tools/call", cell),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", skill.clone()),
        ("skills/list", json!({})),
        ("skills/get", skill),
    ] {
        let response = ipybox.request(method, params).await.response().await.unwrap();
        assert!(response["result"].is_object(), "{method}: {response}");
    }
    let prompts = [("prompts/list", json!({})), ("prompts/get", json!({"name": "a"}))];
    let uri = json!({"uri": "file:///a"});
    let completed =
        json!({"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": ""}});
    let others = [
        ("completion/complete", completed),
        ("logging/setLevel", json!({"level": "info"})),
        ("resources/subscribe", uri.clone()),
        ("resources/directory/read", uri),
    ];
    for (method, params) in prompts.into_iter().chain(others) {
        let response = ipybox.request(method, params).await.response().await.unwrap();
        assert_eq!(response["error"]["code"], -32601, "{method}: {response}");
    }
    for name in ["prompts", "completions", "logging"] {
        assert!(!declares(name), "{declared}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn what_comes_before_the_session_begins_does_not_end_it() {
    let place = Place::new();
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        ipybox.send_line(line).await;
    }
    let begun = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    for (method, params, words) in [
        ("initialize", begun, "`clientInfo` with strings"),
        ("tools/list", json!({}), "send `initialize` first"),
    ] {
        let response = ipybox.request(method, params).await.response().await.unwrap();
        assert_eq!(response["error"]["code"], -32602, "{response}");
        assert!(response["error"]["message"].as_str().unwrap().contains(words), "{response}");
    }
    ipybox.initialize().await;
    assert_eq!(ipybox.cell("1+1").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
async fn initialize_does_not_wait_for_python() {
    let place = Place::new();
    let stuck = place.workspace().join("stuck");
    write_program(&stuck, "#!/bin/sh\nexec sleep 600\n");
    // A program that is no interpreter, and never answers what an interpreter is asked.
    let mut ipybox = place.start(&["--python", stuck.to_str().unwrap()]).await;
    let result = ipybox.initialize().await;
    assert_eq!(result["serverInfo"]["name"], "ipybox");
    let refusal = ipybox.cell("1").await.error();
    assert!(refusal.contains("stuck"), "{refusal}");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_tools_are_those_of_the_reference() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let response = ipybox.request("tools/list", json!({})).await.response().await.unwrap();
    let tools = response["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["execute_ipython_cell", "register_mcp_server", "install_package", "reset"]);
    let execute = &tools[0]["inputSchema"];
    assert_eq!(execute["required"], json!(["code"]));
    assert_eq!(execute["properties"]["timeout"]["default"], 120);
    assert_eq!(execute["properties"]["max_output_chars"]["default"], 5000);
    ipybox.stop().await;
}

#[tokio::test]
async fn bad_arguments_are_refused_by_name() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (tool, arguments, words) in [
        ("execute_ipython_cell", json!({}), "`code`"),
        ("execute_ipython_cell", json!({"code": 5}), "`code`"),
        ("execute_ipython_cell", json!({"code": "1", "timeout": "soon"}), "\"soon\" is not a number"),
        ("execute_ipython_cell", json!({"code": "1", "timeout": -1}), "`timeout`"),
        ("execute_ipython_cell", json!({"code": "1", "max_output_chars": -1}), "`max_output_chars`"),
        ("execute_ipython_cell", json!({"code": "1", "cod": 1}), "`cod`"),
        ("register_mcp_server", json!({"server_name": "x"}), "`server_params`"),
        ("register_mcp_server", json!({"server_name": "x", "server_params": []}), "`server_params`"),
        ("register_mcp_server", json!({"server_name": "x", "server_params": "{"}), "JSON"),
        ("install_package", json!({"package_name": null}), "`package_name`"),
        ("reset", json!({"hard": true}), "`hard`"),
    ] {
        let refusal = ipybox.call(tool, arguments.clone()).await.error();
        assert!(refusal.contains(words), "{tool} {arguments}: {refusal}");
    }
    for arguments in [
        json!({"timeout": "60", "max_output_chars": "50"}),
        json!({"timeout": null, "max_output_chars": 1e300, "session": ""}),
    ] {
        let mut call = arguments.clone();
        call["code"] = json!("print(1)");
        assert_eq!(ipybox.call("execute_ipython_cell", call).await.ok(), "1", "{arguments}");
    }
    let response = ipybox.start_call("no_such_tool", json!({})).await.response().await.unwrap();
    assert_eq!(response["error"]["code"], -32602, "{response}");
    assert!(response["error"]["message"].as_str().unwrap().contains("install_package"), "{response}");
    ipybox.stop().await;
}

#[tokio::test]
async fn garbage_does_not_end_the_session() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for garbage in ["", "no json", "{}", "[1]", r#"{"method":"notifications/no"}"#] {
        ipybox.send_line(garbage).await;
    }
    for (garbage, code) in [
        (r#""jsonrpc":"2.0","method":"no/such""#, -32601),
        (r#""method":"tools/list""#, -32600),
        (r#""jsonrpc":"2.0","method":"tools/call","params":{"name":5}"#, -32602),
        (r#""jsonrpc":"2.0","method":"tools/call","params":{"name":"reset","arguments":[]}"#, -32602),
        (r#""jsonrpc":"2.0","method":"tools/call""#, -32602),
    ] {
        let response = ipybox.raw_request(garbage).await.response().await.unwrap();
        assert_eq!(response["error"]["code"], code, "{garbage}: {response}");
    }
    let lone = r#""jsonrpc":"2.0","method":"tools/call","params":{"name":"execute_ipython_cell","arguments":{"code":"len('\ud800')"}}"#;
    assert_eq!(ipybox.raw_request(lone).await.answer().await.ok(), "1");
    assert_eq!(ipybox.cell("1+1").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
async fn cells_run_in_the_order_of_their_arrival() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("order = []").await.ok();
    let mut replies = Vec::new();
    for number in 0..100 {
        replies.push(ipybox.start_cell(&format!("order.append({number}); order[-1]")).await);
    }
    for (number, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply.answer().await.ok(), number.to_string());
    }
    assert_eq!(ipybox.cell("order == list(range(100))").await.ok(), "True");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn output_is_reported_as_progress_while_it_is_produced() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let go = place.workspace().join("go");
    let code = format!(
        "print('early', flush=True)\nimport os, time\nwhile not os.path.exists({go:?}): time.sleep(0.01)\n'done'"
    );
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": code}, "_meta": {"progressToken": "t"},
    });
    let reply = ipybox.request("tools/call", params).await;
    eventually("the output is reported", || ipybox.progress().concat().contains("early")).await;
    std::fs::write(go, "").unwrap();
    assert_eq!(reply.answer().await.ok(), "early\n'done'");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_answer_with_progress_does_not_wait_for_the_kept_state() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let go = place.workspace().join("go");
    // The state is kept by a fork.
    let code = format!(
        "import os, time\ndef wait():\n    while not os.path.exists({go:?}): time.sleep(0.01)\n\
         os.register_at_fork(before=wait)\n'answered'"
    );
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": code}, "_meta": {"progressToken": "t"},
    });
    let reply = ipybox.request("tools/call", params).await;
    assert_eq!(reply.answer().await.ok(), "'answered'");
    std::fs::write(go, "").unwrap();
    assert_eq!(ipybox.cell("'next'").await.ok(), "'next'");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_silent_cell_is_reported_as_still_running() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let go = place.workspace().join("go");
    let code = format!(
        "for i in range(2000): print(f'\\rstep {{i:4}}', end='')\n\
         import os, time\nwhile not os.path.exists({go:?}): time.sleep(0.01)"
    );
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": code}, "_meta": {"progressToken": "t"},
    });
    let reply = ipybox.request("tools/call", params).await;
    eventually("it is reported after the output", || {
        let progress = ipybox.progress();
        let mut rest = progress.iter().skip_while(|message| message.as_str() != "step 1999");
        rest.any(|message| message.starts_with("still running after "))
    })
    .await;
    std::fs::write(go, "").unwrap();
    reply.answer().await.ok();
    let progress = ipybox.progress();
    // Fast output is reported together.
    assert!(progress.len() < 200, "{progress:?}");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_cancelled_cell_is_interrupted_and_the_next_one_runs() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let started = place.workspace().join("started");
    let running =
        ipybox.start_cell(&format!("x = 1; open({started:?}, 'w').close()\nwhile True: pass")).await;
    let queued = ipybox.start_cell("x = 2").await;
    eventually("the cell runs", || started.exists()).await;
    ipybox.cancel(&queued).await;
    ipybox.cancel(&running).await;
    let text = ipybox.cell("x").await.ok();
    assert!(text.ends_with("\n\n1"), "{text}");
    ipybox.stop().await;
}
