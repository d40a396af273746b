//! Clients of revision 2026-07-28 that answer an `input_required` result late, wrong, twice, or not at all.

use serde_json::{Value, json};

use crate::support::{Ipybox, PATIENCE, Place, kernel_python, probe};

/// ipybox that asks, spoken to without a handshake. A question waits for a minute.
async fn start(place: &Place) -> Ipybox {
    let mut ipybox = discovered(place, &["--approval", "ask", "--approval-timeout", "60"]).await;
    let arguments = json!({"server_name": "probe", "server_params": probe()});
    let asked = call(&mut ipybox, "register_mcp_server", &arguments).await;
    let registered = resume(&mut ipybox, "register_mcp_server", &arguments, &asked, "allow once").await;
    assert!(text(&registered).contains("echo"), "{registered}");
    ipybox
}

/// ipybox that asks, and whose questions wait for 5 s. It does not ask about the server: a slow machine may take longer for
/// the answer.
async fn start_impatient(place: &Place) -> Ipybox {
    let policy =
        "default = 'ask'\n[[rule]]\nserver = 'ipybox'\ntool = 'register_mcp_server'\neffect = 'allow'\n";
    let file = place.temporary().join("policy.toml");
    std::fs::write(&file, policy).unwrap();
    let file = file.to_str().unwrap();
    let flags = ["--approval", "policy", "--approval-policy", file, "--approval-timeout", "5"];
    let mut ipybox = discovered(place, &flags).await;
    let arguments = json!({"server_name": "probe", "server_params": probe()});
    let registered = call(&mut ipybox, "register_mcp_server", &arguments).await;
    assert!(text(&registered).contains("echo"), "{registered}");
    ipybox
}

/// ipybox that has said what it can do.
async fn discovered(place: &Place, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let mut ipybox = place.start(&[&["--python", python.to_str().unwrap()], flags].concat()).await;
    let meta = meta();
    tokio::time::timeout(
        PATIENCE,
        ipybox.request("server/discover", json!({"_meta": meta})).await.response(),
    )
    .await
    .expect("an answer to `server/discover`");
    ipybox
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    })
}

async fn send(ipybox: &mut Ipybox, mut params: Value) -> Value {
    params["_meta"] = meta();
    let reply = ipybox.request("tools/call", params).await;
    tokio::time::timeout(PATIENCE, reply.response()).await.expect("an answer").expect("a response")
}

async fn call(ipybox: &mut Ipybox, tool: &str, arguments: &Value) -> Value {
    send(ipybox, json!({"name": tool, "arguments": arguments})).await
}

async fn cell(ipybox: &mut Ipybox, code: &str) -> Value {
    call(ipybox, "execute_ipython_cell", &json!({"code": code})).await
}

/// Answers all questions of `asked`, the same to each.
async fn resume(ipybox: &mut Ipybox, tool: &str, arguments: &Value, asked: &Value, decision: &str) -> Value {
    let responses: serde_json::Map<String, Value> = questions(asked)
        .into_iter()
        .map(|key| (key, json!({"action": "accept", "content": {"decision": decision}})))
        .collect();
    retry(ipybox, tool, arguments, asked, json!(responses)).await
}

async fn retry(ipybox: &mut Ipybox, tool: &str, arguments: &Value, asked: &Value, responses: Value) -> Value {
    let state = &asked["result"]["requestState"];
    let params =
        json!({"name": tool, "arguments": arguments, "requestState": state, "inputResponses": responses});
    send(ipybox, params).await
}

fn questions(asked: &Value) -> Vec<String> {
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    asked["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect()
}

fn text(done: &Value) -> &str {
    done["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {done}"))
}

const ECHO: &str = "from mcptools.probe import echo\nprint(echo.run(text='hi'))";
const CELL: &str = "execute_ipython_cell";

#[tokio::test]
async fn a_client_that_never_comes_back_does_not_block_the_kernel() {
    let place = Place::new();
    let mut ipybox = start_impatient(&place).await;
    // More than one question: those behind the first are not even seen by anybody.
    let code = "
from mcptools.probe import echo
for _ in range(2):
    try:
        echo.run(text='x')
    except Exception as error:
        print(type(error).__name__)";
    questions(&cell(&mut ipybox, code).await);
    let next = cell(&mut ipybox, "print('next')").await;
    let next = text(&next);
    // Nobody has received the answer of that cell.
    let earlier = "[Answer of an earlier call that waited for approval: `execute_ipython_cell`, \"from mcptools.probe \
         import echo\" …]\nApprovalTimeoutError\nApprovalTimeoutError\n[End of the earlier answer]\n\nnext";
    assert_eq!(next, earlier);
    assert_eq!(text(&cell(&mut ipybox, "print('next')").await), "next");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_call_that_is_taken_up_again_lets_others_pass() {
    let place = Place::new();
    let mut ipybox = start(&place).await;
    let code = format!("{ECHO}\nimport time\ntime.sleep(600)");
    let arguments = json!({"code": code});
    let asked = call(&mut ipybox, CELL, &arguments).await;
    let key = &questions(&asked)[0];
    let params = json!({
        "_meta": meta(), "name": CELL, "arguments": arguments, "requestState": asked["result"]["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {}}},
    });
    let running = ipybox.request("tools/call", params).await;
    let reset = call(&mut ipybox, "reset", &json!({})).await;
    assert!(text(&reset).contains("reset"), "{reset}");
    let stopped = running.response().await.unwrap();
    assert!(text(&stopped).contains("stopped by a reset"), "{stopped}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_state_is_for_its_own_call_and_for_once() {
    let place = Place::new();
    let mut ipybox = start(&place).await;
    let arguments = json!({"code": ECHO});
    let asked = call(&mut ipybox, CELL, &arguments).await;
    let other = json!({"code": "print('other')"});
    let refused = resume(&mut ipybox, CELL, &other, &asked, "allow once").await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("other arguments"), "{refused}");
    let mut forged = asked.clone();
    forged["result"]["requestState"] = json!("0".repeat(32));
    let refused = resume(&mut ipybox, CELL, &arguments, &forged, "allow once").await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("requestState"), "{refused}");
    // Answers to what was not asked, and none to what was: the question stays.
    let accept = json!({"action": "accept", "content": {"decision": "always allow"}});
    let again = retry(&mut ipybox, CELL, &arguments, &asked, json!({"nobody asked": accept})).await;
    assert_eq!(questions(&again), questions(&asked));
    let done = resume(&mut ipybox, CELL, &arguments, &again, "allow once").await;
    assert_eq!(text(&done), "hi");
    let refused = resume(&mut ipybox, CELL, &arguments, &again, "allow once").await;
    assert!(refused["error"].is_object(), "{refused}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_client_that_comes_back_too_late_gets_the_end() {
    let place = Place::new();
    let mut ipybox = start_impatient(&place).await;
    let arguments = json!({"code": ECHO});
    let asked = call(&mut ipybox, CELL, &arguments).await;
    // The next cell runs when the question has expired and its cell is done.
    cell(&mut ipybox, "1").await;
    let done = retry(&mut ipybox, CELL, &arguments, &asked, json!({})).await;
    assert!(text(&done).contains("ApprovalTimeoutError"), "{done}");
    assert_eq!(done["result"]["isError"], true);
    ipybox.stop().await;
}

#[tokio::test]
async fn clients_that_never_come_back_do_not_fill_memory() {
    let place = Place::new();
    let mut ipybox = start_impatient(&place).await;
    for _ in 0..200 {
        let package = json!({"package_name": "nothing-of-this-name"});
        questions(&call(&mut ipybox, "install_package", &package).await);
    }
    let answer = cell(&mut ipybox, "print('still here')").await;
    let answer = text(&answer);
    // The answers of the newest calls come with this one, as far as the calls have ended by now.
    assert!(
        answer == "still here" || answer.ends_with("[End of the earlier answer]\n\nstill here"),
        "{answer}"
    );
    assert!(answer.matches("[Answer of an earlier call").count() <= 8, "{answer}");
    ipybox.logged("no request waits for too many calls").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn an_announced_loop_is_one_round() {
    let place = Place::new();
    let mut ipybox = start(&place).await;
    // Clients give up after ten rounds.
    let code = "from mcptools.probe import add\nfor b in range(37):\n    total = add.run(a=7, b=b).total\nprint(total)";
    let arguments = json!({"code": code});
    let asked = call(&mut ipybox, CELL, &arguments).await;
    let asked = resume(&mut ipybox, CELL, &arguments, &asked, "allow up to 37 like this in this cell").await;
    assert_eq!(text(&asked), "43");
    ipybox.stop().await;
}
