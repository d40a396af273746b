//! `--mcp-config`: the servers of a file are ready in the first cell.

use serde_json::{Map, Value, json};

use super::imports::{Home, catalog};
use crate::support::{Ipybox, Place, environment, kernel_python, test_server};

async fn start(place: &Place, file: &str, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap(), "--mcp-config", file], flags].concat();
    place.start(&flags).await
}

#[tokio::test]
async fn three_hundred_tools_of_twelve_servers_are_used_in_the_first_cell() {
    let place = Place::new();
    let home = Home(&place);
    let servers = (0..12).map(|number| {
        let name = format!("store{number}");
        (format!("Store-{number}"), catalog(&name, 26, &["--slow", "0.5"]))
    });
    let servers: Map<String, Value> = servers.collect();
    home.write("mcp.json", &json!({"mcpServers": servers}).to_string());
    let mut ipybox = start(&place, home.path("mcp.json").to_str().unwrap(), &[]).await;
    let instructions = ipybox.initialize().await["instructions"].as_str().unwrap().to_owned();
    assert!(
        instructions.contains("Being registered") && instructions.contains("`store_11`"),
        "{instructions}"
    );
    let tools = ipybox.request("tools/list", json!({})).await.response().await.unwrap();
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 4);
    let cell = "from mcptools.store_0 import store0_3\nfrom mcptools.store_11 import store11_25\n\
        from mcptools import search\n\
        print(store0_3.run(query='a'), store11_25.run(query='b'), 'store7_1' in str(search('entry 1 of store7')))";
    let answer = ipybox.cell(cell).await.ok();
    assert!(answer.starts_with("MCP servers of `--mcp-config` that are ready: "), "{answer}");
    for number in 0..12 {
        assert!(answer.contains(&format!("`store_{number}` (26 tools)")), "{answer}");
    }
    assert!(answer.ends_with("store0_3: a, secret of 0 store11_25: b, secret of 0 True"), "{answer}");
    assert_eq!(ipybox.cell("store0_3.run(query='c')").await.ok(), "'store0_3: c, secret of 0'");
    ipybox.stop().await;
    // They are registered by now, and not started again.
    let mut ipybox = start(&place, home.path("mcp.json").to_str().unwrap(), &[]).await;
    ipybox.initialize().await;
    assert_eq!(ipybox.cell("from mcptools.store_5 import store5_0; 1").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_first_answer_says_what_failed_and_why() {
    let place = Place::new();
    let home = Home(&place);
    let ready = home.path("ready");
    let mut slow = catalog("slow", 2, &["--until", ready.to_str().unwrap()]);
    slow["timeout"] = json!(1);
    let mut token = catalog("token", 1, &["--secret", "A_TOKEN"]);
    token["env"] = json!({"A_TOKEN": "not-to-be-seen"});
    let servers = json!({"mcpServers": {"gone": {"command": "/nowhere/server"}, "slow": slow, "token": token,
        "ipybox": {"command": "ipybox"}, "odd": {"command": "x", "args": "y"}}});
    home.write("mcp.json", &servers.to_string());
    let mut ipybox = start(&place, home.path("mcp.json").to_str().unwrap(), &[]).await;
    ipybox.initialize().await;
    let answer = ipybox.cell("from mcptools.token import token_0\ntoken_0.run(query='a')").await.ok();
    for words in [
        "that are ready: `token` (1 tool).",
        "`gone`: use the MCP server `gone`",
        "`slow`: not ready yet: it goes on to start",
        "`odd`: `args` must be a list of strings",
        "secret of 14",
    ] {
        assert!(answer.contains(words), "{words}: {answer}");
    }
    assert!(!answer.contains("not-to-be-seen") && !answer.contains("`ipybox`"), "{answer}");
    home.write("ready", "");
    let mut later = String::new();
    while !later.contains("`slow` (2 tools)") {
        later = ipybox.cell("import time; time.sleep(0.2)").await.ok();
    }
    assert_eq!(ipybox.cell("from mcptools.slow import slow_1; 2").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
async fn each_server_is_asked_about_and_an_answer_lasts_for_the_same_parameters() {
    let place = Place::new();
    let write = |count: usize| {
        let servers = json!({"mcpServers": {"a": catalog("a", count, &[]), "b": catalog("b", 1, &[])}});
        place.write(".mcp.json", &servers.to_string());
    };
    write(1);
    let file = place.workspace().join(".mcp.json");
    let begin = async || {
        let mut ipybox = start(&place, file.to_str().unwrap(), &["--approval", "ask"]).await;
        ipybox.initialize_with(json!({"elicitation": {}})).await;
        ipybox
    };
    let mut ipybox = begin().await;
    let cell = ipybox.start_cell("from mcptools.a import a_0\n1").await;
    let questions = [ipybox.decide("allow once").await, ipybox.decide("allow once").await];
    assert!(questions.iter().all(|question| question.contains("register_mcp_server")), "{questions:?}");
    assert!(questions.iter().all(|question| question.contains("catalog.py")), "{questions:?}");
    let answer = cell.answer().await.ok();
    assert!(answer.contains("ready: `a` (1 tool), `b` (1 tool)"), "{answer}");
    ipybox.stop().await;

    // What is registered is not asked about; what has changed is.
    write(2);
    let mut ipybox = begin().await;
    let cell = ipybox.start_cell("from mcptools.a import a_0\n1").await;
    assert!(ipybox.decide("deny").await.contains("'a'"));
    let answer = cell.answer().await.ok();
    assert!(answer.contains("`a`: the call of `ipybox.register_mcp_server` was rejected"), "{answer}");
    assert!(!answer.contains("`b`"), "{answer}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_session_that_fails_to_register_a_server_leaves_the_secrets_of_another_that_has() {
    let place = Place::new();
    let home = Home(&place);
    let program = std::fs::read_to_string(test_server("catalog.py")).unwrap();
    home.write("server.py", &program);
    let args = json!([home.path("server.py"), "a", "1", "--secret", "A_TOKEN"]);
    let server = json!({"command": "python3", "args": args, "env": {"A_TOKEN": "not-to-be-seen"}});
    home.write("mcp.json", &json!({"mcpServers": {"a": server}}).to_string());
    let begin = async || {
        let mut ipybox = start(&place, home.path("mcp.json").to_str().unwrap(), &["--approval", "ask"]).await;
        ipybox.initialize_with(json!({"elicitation": {}})).await;
        ipybox
    };
    let (mut first, mut second) = (begin().await, begin().await);
    let cell = first.start_cell("1").await;
    first.decide("allow once").await;
    assert!(cell.answer().await.ok().contains("ready: `a` (1 tool)"));
    home.write("server.py", "raise SystemExit('broken')");
    let cell = second.start_cell("1").await;
    second.decide("allow once").await;
    assert!(cell.answer().await.ok().contains("`a`: use the MCP server `a`"));
    first.stop().await;
    second.stop().await;

    home.write("server.py", &program);
    let mut later = place.ipybox().await;
    let cell = "from mcptools.a import a_0\na_0.run(query='b')";
    assert_eq!(later.cell(cell).await.ok(), "'a_0: b, secret of 14'");
    later.stop().await;
}

#[tokio::test]
async fn a_cell_that_is_cancelled_leaves_the_question_for_the_next() {
    let place = Place::new();
    place.write(".mcp.json", &json!({"mcpServers": {"a": catalog("a", 1, &[])}}).to_string());
    let file = place.workspace().join(".mcp.json");
    let mut ipybox = start(&place, file.to_str().unwrap(), &["--approval", "ask"]).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let first = ipybox.start_cell("1").await;
    ipybox.logged("").await;
    ipybox.cancel(&first).await;
    let second = ipybox.start_cell("from mcptools.a import a_0\n2").await;
    ipybox.decide("allow once").await;
    let answer = second.answer().await.ok();
    assert!(answer.contains("`a` (1 tool)") && answer.ends_with('2'), "{answer}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_sandbox_makes_a_file_of_the_workspace_an_offer() {
    let place = Place::new();
    let home = Home(&place);
    let file = |name: &str| json!({"mcpServers": {name: catalog(name, 1, &[])}}).to_string();
    place.write(".mcp.json", &file("inner"));
    let mut filed = catalog("filed", 1, &[]);
    filed["envFile"] = json!("${workspaceFolder}/server.env");
    place.write("server.env", "NODE_OPTIONS=--import=data:text/javascript,x\n");
    let outside = json!({"mcpServers": {"outer": catalog("outer", 1, &[]), "filed": filed}});
    home.write("mcp.json", &outside.to_string());
    let workspace_file = place.workspace().join(".mcp.json");
    let path = crate::support::equipped();
    let flags = [
        "--python",
        kernel_python().to_str().unwrap(),
        "--sandbox",
        "--sandbox-backend",
        "bwrap",
        "--mcp-config",
        workspace_file.to_str().unwrap(),
        "--mcp-config",
        home.path("mcp.json").to_str().unwrap(),
    ]
    .map(str::to_owned);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut ipybox = place.start_with(&flags, &[("PATH", &path)]).await;
    ipybox.initialize().await;
    let answer = ipybox.cell("from mcptools.outer import outer_0\n1").await.ok();
    assert!(answer.contains("ready: `outer` (1 tool)"), "{answer}");
    assert_eq!(
        answer.matches("code in the sandbox can write the file that offers it").count(),
        2,
        "{answer}"
    );
    ipybox.stop().await;

    let mut ipybox = place.start_with(&flags, &[("PATH", &path)]).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let cell = ipybox.start_cell("from mcptools.inner import inner_0\n1").await;
    let questions = [ipybox.decide("allow once").await, ipybox.decide("allow once").await];
    assert!(questions.concat().contains("NODE_OPTIONS"), "{questions:?}");
    let answer = cell.answer().await.ok();
    assert!(answer.contains("ready: `filed` (1 tool), `inner` (1 tool)"), "{answer}");
    ipybox.stop().await;
}

#[test]
fn a_file_that_cannot_be_used_ends_the_start() {
    let place = Place::new();
    let check = |file: &str, words: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.arg("--workspace").arg(place.workspace()).arg("--state-dir").arg(place.states());
        command
            .args(["--mcp-config", file])
            .env_clear()
            .envs(environment())
            .stdin(std::process::Stdio::null());
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(1) && message.contains(words) && message.contains(file),
            "{message}"
        );
        assert!(output.stdout.is_empty());
    };
    check("/nowhere/mcp.json", "failed to read `/nowhere/mcp.json`");
    check("/dev/zero", "not a regular file");
    place.write("list.json", "[]");
    check(place.workspace().join("list.json").to_str().unwrap(), "a list instead of an object");
    place.write("huge.json", &" ".repeat(2 << 20));
    check(place.workspace().join("huge.json").to_str().unwrap(), "larger than");
}
