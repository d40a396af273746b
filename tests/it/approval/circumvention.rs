//! Code in the kernel that tries to get around approval, and code that asks for a thousand calls at once.

use std::collections::BTreeSet;
use std::time::Duration;

use ipybox::{
    ApprovalRequest, Code, CodeExecution, CodeExecutionEvent, CodeExecutor, CodeExecutorBuilder, Registry,
    generate_mcp_sources,
};
use serde_json::json;

use crate::support::{PATIENCE, Place, eventually, kernel_python, probe};

/// What code in the kernel needs to speak to the tool server by itself.
const RAW: &str = r#"
import http.client, json, os, socket, threading, time
ADDRESS = os.environ["IPYBOX_TOOL_SERVER"]
TOKEN = os.environ["IPYBOX_TOOL_SERVER_TOKEN"]

def request(method, path, body=None, token=TOKEN, headers={}):
    host, _, port = ADDRESS.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=300)
    sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    connection.request(method, path, None if body is None else json.dumps(body), sent)
    response = connection.getresponse()
    return response.status, response.read().decode()

def echo(text):
    return {"server_name": "probe", "tool_name": "echo", "tool_args": {"text": text}}
"#;

async fn start(
    place: &Place,
    change: impl FnOnce(CodeExecutorBuilder) -> CodeExecutorBuilder,
) -> CodeExecutor {
    let registry = Registry::new();
    generate_mcp_sources(&registry, "probe", &probe(), place.workspace().join("mcptools")).await.unwrap();
    let builder = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .registry(&registry);
    let executor = change(builder).start().await.unwrap();
    executor.execute(RAW).await.unwrap();
    executor
}

/// Runs code to its end and answers its requests. Returns what it printed, or its traceback.
async fn run(executor: &CodeExecutor, code: &str, mut answer: impl FnMut(ApprovalRequest)) -> String {
    let mut execution = executor.stream(code);
    while let Some(event) = next(&mut execution).await {
        match event {
            Ok(CodeExecutionEvent::ApprovalRequest(request)) => answer(request),
            Ok(CodeExecutionEvent::Result(result)) => return result.text.unwrap_or_default(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
    panic!("the execution ended without a result")
}

async fn next(
    execution: &mut CodeExecution,
) -> Option<Result<CodeExecutionEvent, ipybox::CodeExecutionError>> {
    tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event")
}

fn never(request: ApprovalRequest) {
    panic!("asked for {request}");
}

#[tokio::test]
async fn code_reaches_nothing_that_decides() {
    let place = Place::new();
    let executor = start(&place, |builder| builder).await;
    let code = r#"
answers = {}
for method in ["GET", "POST", "PUT", "DELETE"]:
    for path in ["/approval", "/reset", "/status", "/servers", "/servers/probe", "/", "/approve/", "/run/"]:
        answers[method, path] = request(method, path, {})[0]
upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
answers["upgrade"] = request("GET", "/approval", headers=upgrade)[0]
print(sorted(set(answers.values())))
print(request("GET", "/run")[0], request("POST", "/run", echo("x"), token="x")[0])"#;
    assert_eq!(run(&executor, code, never).await, "[404]\n405 401");
    executor.stop().await;
}

#[tokio::test]
async fn a_call_cannot_bring_its_own_approval() {
    let place = Place::new();
    let executor = start(&place, |builder| builder).await;
    let mut asked = Vec::new();
    let code = r#"
for extra in [{"approved": True}, {"decision": "accepted"}, {"server_params": {"command": "id"}}, {"target": "x"}]:
    print(request("POST", "/run", {**echo("x"), **extra})[0])
for body in [{"tool_name": "echo", "tool_args": {"cmd": "x"}}, {"tool_name": "shell", "tool_args": {}},
             {"tool_name": "shell", "tool_args": {"cmd": "x"}, "server_name": "probe"}]:
    print(request("POST", "/approve", body)[0])
print(request("POST", "/approve", {"tool_name": "shell", "tool_args": {"cmd": "rm"}}))
print(request("POST", "/run", {"server_name": "ipybox", "tool_name": "shell", "tool_args": {"cmd": "x"}}))
print(request("POST", "/run", {"server_name": "nowhere", "tool_name": "x", "tool_args": {}}))"#;
    let printed = run(&executor, code, |request| {
        asked.push(request.to_string());
        assert!(request.reject());
    })
    .await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..7], ["422"; 7], "{printed}");
    assert!(lines[7].contains("rejected"), "{printed}");
    assert!(lines[8].contains("no MCP server is registered as `ipybox`"), "{printed}");
    assert!(lines[9].contains("no MCP server is registered as `nowhere`"), "{printed}");
    assert_eq!(asked, ["ipybox.shell(cmd='rm')"]);
    executor.stop().await;
}

#[tokio::test]
async fn an_answer_is_for_its_own_call() {
    let place = Place::new();
    let executor = start(&place, |builder| builder).await;
    // One client sends a harmless call, and changes its mind about the arguments in every way that HTTP has.
    let code = r#"
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    print(sorted(json.loads(body).get("result", "rejected")
                 for _, body in pool.map(lambda text: request("POST", "/run", echo(text)), ["good", "bad", "good", "bad"])))
host, _, port = ADDRESS.rpartition(":")
def frame(body):
    data = json.dumps(body).encode()
    return (f"POST /run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data
with socket.create_connection((host, int(port))) as wire:
    wire.sendall(frame(echo("good")) + frame(echo("bad")))
    wire.settimeout(300)
    seen = b""
    while seen.count(b"HTTP/1.1 200") < 2 or b"rejected" not in seen:
        seen += wire.recv(65536)
print(seen.index(b'"good"') < seen.index(b"rejected"), b'"bad"' in seen)"#;
    let printed = run(&executor, code, |request| match request.tool_args()["text"].as_str() {
        Some("good") => assert!(request.accept()),
        _ => assert!(request.reject()),
    })
    .await;
    assert_eq!(printed, "['good', 'good', 'rejected', 'rejected']\nTrue False");
    executor.stop().await;
}

#[tokio::test]
async fn a_server_that_is_replaced_meanwhile_does_not_get_the_call() {
    let place = Place::new();
    let registry = Registry::new();
    let mcptools = place.workspace().join("mcptools");
    generate_mcp_sources(&registry, "probe", &probe(), &mcptools).await.unwrap();
    let executor = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .registry(&registry)
        .start()
        .await
        .unwrap();
    let mut execution = executor.stream("from mcptools.probe import echo\nprint(echo.run(text='x'))");
    let Some(Ok(CodeExecutionEvent::ApprovalRequest(request))) = next(&mut execution).await else {
        panic!("no request")
    };
    let mut other = probe();
    other["env"] = json!({"OTHER": "1"});
    generate_mcp_sources(&registry, "probe", &other, &mcptools).await.unwrap();
    assert!(request.accept_for_session());
    let Some(Err(error)) = next(&mut execution).await else { panic!("it ran") };
    assert!(error.to_string().contains("was registered anew while the call waited"), "{error}");
    // The answer held for what it was given for.
    let mut execution = executor.stream("print(echo.run(text='x'))");
    let Some(Ok(CodeExecutionEvent::ApprovalRequest(request))) = next(&mut execution).await else {
        panic!("no request")
    };
    assert!(request.accept());
    assert!(matches!(next(&mut execution).await, Some(Ok(CodeExecutionEvent::Result(_)))));
    executor.stop().await;
}

#[tokio::test]
async fn what_a_cell_leaves_behind_has_nobody_to_ask() {
    let place = Place::new();
    let executor = start(&place, |builder| builder).await;
    let code = r#"
answers = []
def late():
    while not os.path.exists("ended"): time.sleep(0.01)
    answers.append(request("POST", "/run", echo("late")))
    open("answered", "w").close()
thread = threading.Thread(target=late); thread.start()"#;
    run(&executor, code, never).await;
    place.write("ended", "");
    // Between two cells; the second begins once the thread has its answer.
    let answered = place.workspace().join("answered");
    eventually("the thread has its answer", || answered.exists()).await;
    let printed = run(&executor, "thread.join(); print(answers)", never).await;
    assert!(printed.contains("nobody can be asked: no cell is running"), "{printed}");
    executor.stop().await;
}

#[tokio::test]
async fn the_token_of_an_earlier_kernel_is_worth_nothing() {
    let place = Place::new();
    let executor = start(&place, |builder| builder).await;
    let token = run(&executor, "print(TOKEN)", never).await;
    executor.reset().await.unwrap();
    executor.execute(RAW).await.unwrap();
    let code = format!("print(request('POST', '/run', echo('x'), token={token:?})[0])");
    assert_eq!(run(&executor, &code, never).await, "401");
    executor.stop().await;
}

#[tokio::test]
async fn a_thousand_calls_at_once_are_answered_rightly() {
    let place = Place::new();
    let executor = start(&place, |builder| builder.approval_timeout(PATIENCE)).await;
    let code = r#"
from concurrent.futures import ThreadPoolExecutor
threading.stack_size(256 * 1024)
def call(number):
    # Other tests of this process take from the same budgets.
    while True:
        status, body = request("POST", "/run", echo(str(number)), headers={"Connection": "close"})
        if status != 503:
            break
        time.sleep(0.1)
    assert status == 200, (number, status, body)
    answer = json.loads(body)
    return answer.get("result") == str(number) if number % 2 else answer["error"]["kind"] == "rejected"
with ThreadPoolExecutor(1000) as pool:
    right = list(pool.map(call, range(1000)))
print(len(right), all(right))"#;
    let mut asked = BTreeSet::new();
    let mut execution = executor.stream(Code::new(code).timeout(PATIENCE));
    // Not answered before many wait.
    let mut waiting = Vec::new();
    let printed = loop {
        // Nor held back for ever if a call has failed, which the code reports at its end.
        let event = tokio::time::timeout(Duration::from_secs(20), next(&mut execution)).await;
        let is_quiet = event.is_err();
        match event.ok().map(|event| event.expect("the stream has not ended").unwrap()) {
            Some(CodeExecutionEvent::ApprovalRequest(request)) => waiting.push(request),
            Some(CodeExecutionEvent::Result(result)) => break result.text.unwrap_or_default(),
            None => {}
            other => panic!("{other:?}"),
        }
        let count = asked.len() + waiting.len();
        if waiting.len() == 500 || count == 1000 || is_quiet {
            for request in waiting.drain(..) {
                let number: u32 = request.tool_args()["text"].as_str().unwrap().parse().unwrap();
                assert!(asked.insert(number), "asked twice for {number}");
                if number % 2 == 1 { assert!(request.accept()) } else { assert!(request.reject()) }
            }
        }
    };
    assert_eq!((printed.as_str(), asked.len()), ("1000 True", 1000));
    executor.stop().await;
}

#[tokio::test]
async fn shell_commands_are_asked_for() {
    let place = Place::new();
    let executor = start(&place, |builder| {
        builder.approve_tool_calls(false).approve_shell_cmds(true).require_shell_escape(true)
    })
    .await;
    let mut asked = Vec::new();
    let code = "
name = 'world'
from mcptools.probe import echo
print(echo.run(text='not asked for'))
!echo hello {name} $name
try:
    import subprocess; subprocess.run(['echo', 'sneaky'])
except Exception as error:
    print(type(error).__mro__[-4].__name__, 'blocked')";
    let printed = run(&executor, code, |request| {
        asked.push(request.to_string());
        assert!(request.accept());
    })
    .await;
    assert_eq!(asked, ["ipybox.shell(cmd='echo hello world world')"]);
    assert!(printed.contains("not asked for\n") && printed.contains("hello world world"), "{printed}");
    assert!(printed.ends_with("blocked") && !printed.contains("sneaky"), "{printed}");
    let printed = run(&executor, "%%bash\ntouch made\n", |request| {
        asked.push(request.to_string());
        assert!(request.reject());
    })
    .await;
    assert!(printed.contains("ApprovalRejectedError"), "{printed}");
    assert!(!place.workspace().join("made").exists());
    assert_eq!(asked[1], r"ipybox.shell_magic(cmd='touch made\n')");
    executor.stop().await;
}
