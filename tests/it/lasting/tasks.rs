//! Calls of clients that know tasks (`io.modelcontextprotocol/tasks`).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Kept, kill};
use crate::support::{Ipybox, PATIENCE, Place, kernel_python, probe};

/// What a client of revision 2026-07-28 says with each request.
fn meta(extensions: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "extensions": extensions},
    })
}

async fn send(ipybox: &mut Ipybox, method: &str, mut params: Value) -> Value {
    params["_meta"] = meta(json!({"io.modelcontextprotocol/tasks": {}}));
    let reply = ipybox.request(method, params).await;
    tokio::time::timeout(PATIENCE, reply.response()).await.expect("an answer").expect("a response")
}

async fn start(place: &Place, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start(&flags).await;
    discover(&mut ipybox).await;
    ipybox
}

async fn discover(ipybox: &mut Ipybox) {
    let discovered = send(ipybox, "server/discover", json!({})).await;
    let extensions = &discovered["result"]["capabilities"]["extensions"];
    assert_eq!(extensions["io.modelcontextprotocol/tasks"], json!({}), "{discovered}");
}

async fn cell(ipybox: &mut Ipybox, code: &str) -> Value {
    call(ipybox, "execute_ipython_cell", json!({"code": code})).await
}

async fn call(ipybox: &mut Ipybox, tool: &str, arguments: Value) -> Value {
    send(ipybox, "tools/call", json!({"name": tool, "arguments": arguments})).await["result"].clone()
}

/// The id of the task that an answer is.
fn id(created: &Value) -> String {
    assert_eq!(created["resultType"], "task", "{created}");
    assert_eq!((&created["status"], &created["ttlMs"]), (&json!("working"), &Value::Null), "{created}");
    created["taskId"].as_str().unwrap().to_owned()
}

async fn get(ipybox: &mut Ipybox, id: &str) -> Value {
    let answer = send(ipybox, "tasks/get", json!({"taskId": id})).await;
    let task = answer["result"].clone();
    assert_eq!((&task["resultType"], &task["taskId"]), (&json!("complete"), &json!(id)), "{answer}");
    task
}

/// The task, once it is in this status.
async fn once(ipybox: &mut Ipybox, id: &str, status: &str) -> Value {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let task = get(ipybox, id).await;
        if task["status"] == status {
            return task;
        }
        assert!(std::time::Instant::now() < deadline, "the task is never {status}: {task}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Answers all questions of a task.
async fn decide(ipybox: &mut Ipybox, task: &Value, decision: &str) {
    let responses: serde_json::Map<String, Value> = keys(task)
        .into_iter()
        .map(|key| (key, json!({"action": "accept", "content": {"decision": decision}})))
        .collect();
    let params = json!({"taskId": task["taskId"], "inputResponses": responses});
    let answer = send(ipybox, "tasks/update", params).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

fn keys(task: &Value) -> BTreeSet<String> {
    task["inputRequests"]
        .as_object()
        .unwrap_or_else(|| panic!("no questions in {task}"))
        .keys()
        .cloned()
        .collect()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"))
}

/// Prints, waits for a file, and prints again.
const LONG: &str = "import pathlib, time\nprint('begun', flush=True)\n\
     while not pathlib.Path('go').exists(): time.sleep(0.01)\nprint('done')";

#[tokio::test]
async fn a_long_call_becomes_a_task_and_a_short_one_does_not() {
    let place = Place::new();
    let mut ipybox = start(&place, &[]).await;
    // One that waits long for the kernel's start is a task, too.
    let first = cell(&mut ipybox, "1").await;
    if first["resultType"] == "task" {
        once(&mut ipybox, &self::id(&first), "completed").await;
    }
    assert_eq!(text(&cell(&mut ipybox, "1 + 1").await), "2");
    let created = cell(&mut ipybox, LONG).await;
    let id = id(&created);
    let task = get(&mut ipybox, &id).await;
    assert_eq!(task["status"], "working", "{task}");
    let message = task["statusMessage"].as_str().unwrap();
    assert!(message.starts_with("`execute_ipython_cell`, \"import pathlib, time\" …: "), "{message}");
    place.write("go", "");
    let task = once(&mut ipybox, &id, "completed").await;
    assert_eq!(text(&task["result"]), "begun\ndone");
    assert_ne!(task["lastUpdatedAt"], task["createdAt"]);
    // Its result can be fetched again, and does not come with the next answer.
    assert_eq!(get(&mut ipybox, &id).await["result"], task["result"]);
    assert_eq!(text(&cell(&mut ipybox, "2 + 2").await), "4");
    // An error of the code is a result.
    let failing = "while not pathlib.Path('fail').exists(): time.sleep(0.01)\nraise ValueError('no')";
    let failing = self::id(&cell(&mut ipybox, failing).await);
    place.write("fail", "");
    let task = once(&mut ipybox, &failing, "completed").await;
    assert_eq!(task["result"]["isError"], true, "{task}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_question_makes_a_task_and_is_asked_there() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--approval", "ask"]).await;
    let arguments = json!({"server_name": "probe", "server_params": probe()});
    let created = call(&mut ipybox, "register_mcp_server", arguments).await;
    let asked = once(&mut ipybox, &id(&created), "input_required").await;
    decide(&mut ipybox, &asked, "allow once").await;
    let task = once(&mut ipybox, &id(&created), "completed").await;
    assert!(text(&task["result"]).contains("echo"), "{task}");

    // More questions than clients of revision 2026-07-28 answer for one request.
    let code = "from mcptools.probe import echo\nfor number in range(12): print(echo.run(text=str(number)))\n\
         try:\n    echo.run(text='12')\nexcept Exception as error: print(type(error).__name__)";
    let created = cell(&mut ipybox, code).await;
    let mut seen = BTreeSet::new();
    for number in 0..13 {
        let task = loop {
            let task = once(&mut ipybox, &id(&created), "input_required").await;
            // The answer may not have arrived in the call.
            if !keys(&task).is_subset(&seen) {
                break task;
            }
        };
        let message =
            task["inputRequests"].as_object().unwrap().values().next().unwrap()["params"]["message"].clone();
        assert!(message.as_str().unwrap().contains(&format!("'{number}'")), "{message}");
        // Asked again, it is the same question; what answers no question is ignored.
        assert_eq!(keys(&get(&mut ipybox, &id(&created)).await), keys(&task));
        let strange = json!({"taskId": id(&created), "inputResponses": {"strange": {"action": "accept"}}});
        assert!(send(&mut ipybox, "tasks/update", strange).await["error"].is_null());
        seen.extend(keys(&task));
        decide(&mut ipybox, &task, if number < 12 { "allow once" } else { "deny" }).await;
    }
    let task = once(&mut ipybox, &id(&created), "completed").await;
    let printed: Vec<_> = text(&task["result"]).lines().map(str::to_owned).collect();
    let expected: Vec<_> =
        (0..12).map(|number| number.to_string()).chain(["ApprovalRejectedError".to_owned()]).collect();
    assert_eq!(printed, expected);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_question_waits_while_its_client_asks() {
    let place = Place::new();
    let mut ipybox =
        start(&place, &["--approval", "ask", "--approval-timeout", "20", "--approve-shell-cmds"]).await;
    let created = cell(&mut ipybox, "!echo yes").await;
    let begun = std::time::Instant::now();
    let asked = once(&mut ipybox, &id(&created), "input_required").await;
    while begun.elapsed().as_secs() < 22 {
        assert_eq!(keys(&get(&mut ipybox, &id(&created)).await), keys(&asked));
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    decide(&mut ipybox, &asked, "allow once").await;
    assert_eq!(text(&once(&mut ipybox, &id(&created), "completed").await["result"]), "yes");

    // Without anybody who asks, its time is over sometime.
    let created = cell(&mut ipybox, "!echo no").await;
    once(&mut ipybox, &id(&created), "input_required").await;
    tokio::time::sleep(std::time::Duration::from_secs(22)).await;
    let task = once(&mut ipybox, &id(&created), "completed").await;
    assert!(text(&task["result"]).contains("ApprovalTimeoutError"), "{task}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_cancelled_task_is_interrupted_and_its_output_comes_with_the_next_answer() {
    let place = Place::new();
    let mut ipybox = start(&place, &[]).await;
    let id = id(&cell(&mut ipybox, LONG).await);
    let cancelled = send(&mut ipybox, "tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(cancelled["result"]["resultType"], "complete", "{cancelled}");
    let task = once(&mut ipybox, &id, "cancelled").await;
    assert!(task.get("result").is_none(), "{task}");
    let next = cell(&mut ipybox, "'next'").await;
    let expected = "[Answer of an earlier call, cancelled after ";
    assert!(text(&next).starts_with(expected) && text(&next).contains("]\nbegun\n"), "{next}");
    assert_eq!(text(&cell(&mut ipybox, "'next'").await), "'next'");
    ipybox.stop().await;
}

#[tokio::test]
async fn unknown_tasks_and_requests_without_the_extension_are_refused() {
    let place = Place::new();
    let mut ipybox = start(&place, &[]).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": "strange", "inputResponses": {}});
        let answer = send(&mut ipybox, method, params.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().contains("there is no task `strange`"),
            "{answer}"
        );
        let mut params = params;
        params["_meta"] = meta(json!({}));
        let answer = ipybox.request(method, params).await.response().await.unwrap();
        assert_eq!(answer["error"]["code"], -32021, "{answer}");
    }
    // A request without the extension gets no task.
    let arguments = json!({"code": "import time; time.sleep(6); print('slept')"});
    let params = json!({"name": "execute_ipython_cell", "arguments": arguments, "_meta": meta(json!({}))});
    let answer = ipybox.request("tools/call", params).await.response().await.unwrap();
    assert_eq!(text(&answer["result"]), "slept");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_next_client_fetches_the_task_of_one_that_is_gone() {
    let kept = Kept::new();
    let mut client = start(&kept, &["--keep-session", "120s"]).await;
    let ended = id(&cell(&mut client, LONG).await);
    kill(client).await;
    kept.left_session().await;
    let mut client = start(&kept, &["--keep-session", "120s"]).await;
    assert_eq!(get(&mut client, &ended).await["status"], "working");
    kept.write("go", "");
    let task = once(&mut client, &ended, "completed").await;
    assert_eq!(text(&task["result"]), "begun\ndone");
    let next = cell(&mut client, "'next'").await;
    assert!(
        text(&next).starts_with("[This session was taken over") && !text(&next).contains("begun"),
        "{next}"
    );

    // A client that does not know the task gets its answer with the one of its first cell.
    std::fs::remove_file(kept.workspace().join("go")).unwrap();
    let unknown = id(&cell(&mut client, LONG).await);
    kill(client).await;
    kept.left_session().await;
    kept.write("go", "");
    let mut client = start(&kept, &["--keep-session", "120s"]).await;
    let next = cell(&mut client, "'next'").await;
    assert!(text(&next).contains("]\nbegun\ndone\n[End of the earlier answer]"), "{next}");
    let gone = send(&mut client, "tasks/get", json!({"taskId": unknown})).await;
    assert_eq!(gone["error"]["code"], -32602, "{gone}");
    client.stop().await;
}
