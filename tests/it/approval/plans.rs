//! Plans: what a cell's code announces is proposed in its first question, and is never more than a proposal.

use ipybox::{ApprovalPolicy, ApprovalRequest, CodeExecutionEvent, CodeExecutor, GrantPattern};
use serde_json::{Value, json};

use crate::support::{Ipybox, PATIENCE, Place, kernel_python, tool};

/// A server with a tool that reads and tools that change something, which writes down its calls.
const OFFICE: &str = r#"
import pathlib, sys
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
server = FastMCP('office')
done = pathlib.Path(sys.argv[1])
def note(words):
    with done.open('a') as file: file.write(words + '\n')
    return words
@server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
def read(key: str) -> str: return note('read ' + key)
@server.tool(name='write-file', structured_output=False)
def write(path: str, text: str = '') -> str: return note('write ' + path)
@server.tool(structured_output=False)
def send(to: str, subject: str = '') -> str: return note('send ' + to)
server.run()"#;

/// The beginning of a cell: calls that are not told apart by a fault.
const IMPORTS: &str = "from mcptools.office import read, write_file, send\n";

/// Code that calls the tool server itself.
const POST: &str = r#"
import http.client, json, os
def post(path, body):
    host, _, port = os.environ["IPYBOX_TOOL_SERVER"].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=300)
    headers = {"Authorization": "Bearer " + os.environ["IPYBOX_TOOL_SERVER_TOKEN"], "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()
def grant(tool, arguments, count=5, **more):
    return {"server_name": "office", "tool_name": tool, "arguments": arguments, "count": count, "life": "cell", **more}
def call(tool, **arguments):
    status, answer = post("/run", {"server_name": "office", "tool_name": tool, "tool_args": arguments})
    return "done" if status == 200 and "result" in json.loads(answer) else "no"
"#;

fn server(place: &Place) -> Value {
    json!({"command": tool("mcp1/bin/python"), "args": ["-c", OFFICE, place.temporary().join("done")]})
}

/// The calls that the server has got.
fn done(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.temporary().join("done")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn start(place: &Place, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let all = [&["--python", python.to_str().unwrap(), "--approval-timeout", "300"], flags].concat();
    let mut ipybox = place.start(&all).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let arguments = json!({"server_name": "office", "server_params": server(place)});
    let registering = ipybox.start_call("register_mcp_server", arguments).await;
    ipybox.decide("allow once").await;
    registering.answer().await.ok();
    ipybox
}

const REPORT: &str = "from mcptools.office import read, write_file\n\
    one = read.run(key='A-1')\ntwo = read.run(key='A-2')\n\
    for n in range(10): write_file.run(path=f'out/{n}.txt', text=one + two)\n";

#[tokio::test]
async fn two_reads_and_a_loop_of_writes_are_one_question() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let mut ipybox = start(&place, &["--approval", "ask", "--audit-log", log.to_str().unwrap()]).await;
    let calling = ipybox.start_cell(&format!("{REPORT}print('end')")).await;
    let question = ipybox.question().await;
    let params = &question["params"];
    let message = params["message"].as_str().unwrap();
    let listed = "You can allow them in this cell, this one among them, and no others:\n\
        up to 1, only reads, its server says: office.read(key='A-1')\n\
        up to 1, only reads, its server says: office.read(key='A-2')\n\
        up to 10, may change something: office.write-file(path=<a path within 'out'>, text=<any value>)";
    assert!(message.contains(listed), "{message}");
    let choice = "allow up to 12 as listed in this cell";
    let choices = &params["requestedSchema"]["properties"]["decision"];
    assert_eq!((&choices["enum"][1], &choices["default"]), (&json!(choice), &json!("allow once")));
    assert_eq!(done(&place), Vec::<String>::new());
    ipybox.respond(&question, json!({"action": "accept", "content": {"decision": choice}})).await;
    assert!(calling.answer().await.ok().contains("end"));
    assert_eq!(done(&place).len(), 12);

    // The grants have ended with their cell.
    let calling = ipybox.start_cell(&format!("{IMPORTS}read.run(key='A-1')")).await;
    let question = ipybox.decide("deny").await;
    // A single call proposes nothing.
    assert!(!question.contains("You can allow") && !question.contains("Outside of"), "{question}");
    calling.answer().await.error();
    ipybox.stop().await;

    let log = std::fs::read_to_string(log).unwrap();
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let by_grant: Vec<&Value> = records.iter().filter(|record| record["by"] == "grant").collect();
    assert_eq!(by_grant.len(), 12);
    let also = &by_grant[0]["grant"]["grant"]["also"];
    assert_eq!((&also[1]["tool_name"], &also[1]["count"]), (&json!("write-file"), &json!(10)));
    assert_eq!(by_grant[11]["grant"], json!({"id": 3, "left": 0}));
}

#[tokio::test]
async fn without_the_answer_each_call_is_asked_about() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--approval", "ask"]).await;
    let calling = ipybox.start_cell(REPORT).await;
    assert!(ipybox.decide("deny").await.contains("You can allow them"));
    calling.answer().await.error();
    // Nothing of the cell before is left, and one yes is for one call.
    let calling = ipybox.start_cell(REPORT).await;
    assert!(ipybox.decide("allow once").await.contains("You can allow them"));
    assert!(!ipybox.decide("deny").await.contains("You can allow"));
    calling.answer().await.error();
    assert_eq!(done(&place), ["read A-1"]);
    ipybox.stop().await;
}

/// An executor that knows the server.
async fn executor(place: &Place, policy: &str) -> CodeExecutor {
    let executor = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .approval_timeout(PATIENCE)
        .approval_policy(ApprovalPolicy::parse(policy).unwrap())
        .start()
        .await
        .unwrap();
    executor.register_mcp_server("office", &server(place)).await.unwrap();
    executor
}

/// Runs code to its end. Its first request gets the proposed grant, if there is one; others are rejected. Returns the printed
/// text, and each request with its proposal.
async fn run(executor: &CodeExecutor, code: &str) -> (String, Vec<(String, Option<String>)>) {
    let mut execution = executor.stream(code);
    let mut asked = Vec::new();
    loop {
        let event = tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event");
        match event.expect("no end without a result") {
            Ok(CodeExecutionEvent::ApprovalRequest(request)) => {
                let proposed = request.proposed_grant().cloned();
                asked.push((request.to_string(), proposed.as_ref().map(ToString::to_string)));
                match proposed.filter(|_| asked.len() == 1) {
                    Some(grant) => assert_eq!(request.grant(grant), Ok(true)),
                    None => assert!(request.reject()),
                }
            }
            Ok(CodeExecutionEvent::Result(result)) => return (result.text.unwrap_or_default(), asked),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn what_was_not_announced_is_asked_about() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    let code = format!(
        "{IMPORTS}{POST}for n in range(2): write_file.run(path=f'out/{{n}}.txt')\n\
         print(read.run(key='A-1'), call('read', key='A-2'), call('write-file', path='../x'), call('send', to='eve@a.org'))\n\
         print(call('write-file', path='out/3'), call('write-file', path='out/4', text='more'), call('read', key='A-1'))"
    );
    let (printed, asked) = run(&executor, &code).await;
    // An announced call runs as often as it was announced.
    assert_eq!(printed, "read A-1 no no no\nno no no");
    assert_eq!(
        asked[0],
        (
            "office.write-file(path='out/0.txt')".to_owned(),
            Some("office.write-file(path=<a path within 'out'>); up to 1: office.read(key='A-1')".to_owned())
        )
    );
    assert_eq!(asked.len(), 7, "{asked:#?}");
    assert!(asked[1..].iter().all(|(_, proposed)| proposed.is_none()), "{asked:#?}");
    assert_eq!(done(&place), ["write out/0.txt", "write out/1.txt", "read A-1"]);
    executor.stop().await;
}

#[tokio::test]
async fn a_lie_over_the_socket_widens_nothing() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    let anything = "grant('send', {'to': {'any': {}}, 'subject': {'any': {}}}, 1000), grant('write-file', {'path': {'any': {}}})";
    // What ipybox has announced for the cell cannot be replaced.
    let code = format!(
        "{IMPORTS}{POST}print(post('/plan', {{'calls': [{anything}, grant('send', {{'to': {{'domain': 'evil.org'}}}})]}})[0])\n\
         for n in range(2): read.run(key='A-1')\nprint(call('send', to='eve@evil.org'))"
    );
    let (printed, asked) = run(&executor, &code).await;
    assert_eq!(printed, "200\nno");
    assert_eq!(asked[0].1.as_deref(), Some("office.read(key='A-1')"));
    assert_eq!(asked.len(), 2, "{asked:#?}");

    // Of a cell without announced calls, code can announce some: only what is narrow enough, and shown as it is.
    let hidden =
        "grant('read', {'key': {'equal': 'x' * 300}}), grant('read', {'key': {'equal': '\\u202eA'}}, 3)";
    let code = format!(
        "{POST}print(post('/plan', {{'calls': [{anything}, {hidden}, grant('send', {{'to': {{'equal': 'a@a.org'}}}}, 2),\n\
         grant('send', {{'to': {{'equal': 'b@a.org'}}}}, 2, life='session'),\n\
         {{**grant('read', {{}}), 'server_name': 'none'}}, {{**grant('shell', {{}}), 'server_name': 'ipybox'}}]}})[0])\n\
         print(call('send', to='a@a.org'), call('send', to='a@a.org'), call('send', to='a@a.org'), call('send', to='c@a.org'))\n\
         print(call('send', to='b@a.org'), call('read', key='x' * 300), call('write-file', path='x'))"
    );
    let (printed, asked) = run(&executor, &code).await;
    assert_eq!(printed, "200\ndone done no no\nno no no");
    assert_eq!(
        asked[0].1.as_deref(),
        Some("office.send(to='a@a.org'); up to 3: office.read(key='\\u202eA')")
    );
    assert_eq!(asked.len(), 6, "{asked:#?}");

    // Nothing can be announced after the first question, and what is no list of grants is refused.
    let code = format!(
        "{POST}print(call('send', to='x@a.org'))\n\
         plan = {{'calls': [grant('send', {{'to': {{'equal': 'x@a.org'}}}})]}}\n\
         print(post('/plan', plan)[0], call('send', to='x@a.org'))\n\
         print([post('/plan', body)[0] for body in [{{}}, {{**plan, 'answer': 'yes'}}, {{'calls': plan['calls'] * 21}},\n\
         {{'calls': [{{**plan['calls'][0], 'holds': True}}]}}, {{'calls': [grant('send', {{'to': {{'equal': 'x' * 70_000}}}})]}}]])"
    );
    let (printed, asked) = run(&executor, &code).await;
    assert_eq!(printed, "no\n200 no\n[422, 422, 413, 422, 413]");
    assert_eq!(asked.iter().filter(|(_, proposed)| proposed.is_some()).count(), 0, "{asked:#?}");
    executor.stop().await;
}

#[tokio::test]
async fn only_what_its_user_would_be_asked_about_is_proposed() {
    let place = Place::new();
    let policy = "default = 'ask'\n[[rule]]\ntool = 'read'\neffect = 'allow'\n\
                  [[rule]]\ntool = 'send'\narguments = [{ pointer = '/to', one_of = ['boss@a.org'] }]\neffect = 'deny'";
    let executor = executor(&place, policy).await;
    let code = format!(
        "{IMPORTS}def attempt(function, **arguments):\n    try: return function(**arguments)\n    except Exception: return 'no'\n\
         for n in range(2): read.run(key='A')\n\
         for n in range(2): write_file.run(path=f'out/{{n}}')\n\
         for who in ['ann@a.org', 'bo@a.org']: send.run(to=who)\n\
         print(attempt(send.run, to='boss@a.org'))\n\
         for who in ['boss@a.org']: print(attempt(lambda: send.run(to=who)))"
    );
    let (printed, asked) = run(&executor, &code).await;
    assert_eq!(printed, "no\nno");
    let [(_, Some(proposed))] = &asked[..] else { panic!("{asked:#?}") };
    assert_eq!(
        proposed,
        "office.write-file(path=<a path within 'out'>); up to 1: office.send(to='ann@a.org'); up to 1: \
         office.send(to='bo@a.org')"
    );
    executor.stop().await;
}

#[tokio::test]
async fn an_application_gives_all_announced_grants_some_or_none() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    let code =
        format!("{IMPORTS}print(read.run(key='A'))\nprint(read.run(key='B'))\nprint(send.run(to='a@a.org'))");
    let mut execution = executor.stream(&code);
    let mut next = async || loop {
        if let CodeExecutionEvent::ApprovalRequest(request) = execution.next().await.unwrap().unwrap() {
            break request;
        }
    };
    let request: ApprovalRequest = next().await;
    let proposed = request.proposed_grant().unwrap().clone();
    assert_eq!((proposed.count(), proposed.also().len(), proposed.also()[1].count()), (1, 2, 1));
    // A part of them, read as another program would write it.
    let mut written = json!(proposed);
    written["also"].as_array_mut().unwrap().remove(1);
    assert_eq!(request.grant(serde_json::from_value(written.clone()).unwrap()), Ok(true));
    let request = next().await;
    assert_eq!((request.tool_name(), request.proposed_grant()), ("send", None));
    // Not even its own call runs by a grant with others that were not proposed.
    written["tool_name"] = json!("send");
    written["arguments"] = json!({"to": {"equal": "a@a.org"}});
    let refused = request.grant(serde_json::from_value(written).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("does not propose the grant"), "{refused}");
    let error = loop {
        if let Err(error) = execution.next().await.expect("an error") {
            break error.to_string();
        }
    };
    assert!(error.contains("was rejected"), "{error}");
    drop(execution);
    assert_eq!(done(&place), ["read A", "read B"]);
    assert!(executor.grants().is_empty());
    assert_eq!(GrantPattern::Any {}, serde_json::from_value(json!({"any": {}})).unwrap());
    executor.stop().await;
}

/// Code that prints the plan of other code, as the kernel would announce it.
const PLANNED: &str = r"
import ast, json, ipybox_bindings, ipybox_check
def planned(code):
    tree = ast.parse('from mcptools.office import read, write_file, send\n' + code)
    plan = ipybox_check.check(tree, ipybox_bindings.Bindings(tree), {'earlier': 'a/b', 'odd': object()})
    return [[call['tool_name'], call['count'], call['arguments']] for call in plan.calls()]
";

#[tokio::test]
async fn a_plan_has_what_is_certain_of_the_arguments_and_counts_loops() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    let (any, equal) = (json!({"any": {}}), |value: Value| json!({"equal": value}));
    let between = json!({"between": {"min": 0, "max": 2}});
    let cases = [
        ("read.run(key='A')", json!([])),
        (
            "read.run(key='A')\nawait read.run_async(key='A')",
            json!([["read", 2, {"key": equal(json!("A"))}]]),
        ),
        ("while True: send.run(to='x', subject=None)", json!([["send", 50, {"to": equal(json!("x"))}]])),
        ("def f(x): send.run(to=x)", json!([["send", 50, {"to": any}]])),
        (
            "for a in range(3):\n    for b in range(4): read.run(key=a, other=b + 1)",
            json!([["read", 12, {"key": between, "other": any}]]),
        ),
        ("for n in range(5000): read.run(key='A')", json!([["read", 1000, {"key": equal(json!("A"))}]])),
        (
            "for n in range(0): read.run(key='A')\nread.run(key='B')",
            json!([["read", 50, {"key": equal(json!("A"))}], ["read", 1, {"key": equal(json!("B"))}]]),
        ),
        (
            "for n in range(2): read.run(key=n)\nfor n in range(3): read.run(key=n)",
            json!([["read", 2, {"key": {"between": {"min": 0, "max": 1}}}], ["read", 3, {"key": between}]]),
        ),
        (
            "keys = ['A', 'B']\n_ = [read.run(key='I-' + k) for k in keys if k]",
            json!([["read", 1, {"key": equal(json!("I-A"))}], ["read", 1, {"key": equal(json!("I-B"))}]]),
        ),
        ("for k in ['a', 'b']:\n    k = k + '!'\n    read.run(key=k)", json!([["read", 2, {"key": any}]])),
        (
            "n, repo = -1, 'x'\nrepo = 'y'\nfor x in y: send.run(to=earlier, subject=repo, at=n, list=[1, 'a'])",
            json!([["send", 50, {"to": equal(json!("a/b")), "subject": any, "at": any, "list": equal(json!([1, "a"]))}]]),
        ),
        (
            "for x in y:\n    send.run(to=f'p{x}@A.org', url=f'https://a.org/{x}', path=f'{earlier}/{x}.txt', name=f'issue-{x}', \
             subject=f'Dear {x}', odd=odd, half=f'{x}/a')",
            json!([["send", 50, {
                "to": {"domain": "a.org"}, "url": {"origin": "https://a.org"}, "path": {"within": "a/b"},
                "name": {"prefix": "issue-"}, "subject": any, "odd": any, "half": any
            }]]),
        ),
        ("for x in y: send.run(**x), send.run(send.Params(to=x))", json!([])),
        ("import mcptools\nwith mcptools.batch('x'):\n    for x in y: send.run(to=x)", json!([])),
        ("send = 5\nfor x in y: send.run(to=x)", json!([])),
    ];
    let codes = json!(cases.iter().map(|(code, _)| *code).collect::<Vec<_>>()).to_string();
    // The first cell has the kernel load what checks calls.
    let loading = format!("{IMPORTS}def never(): read.run(key='A')");
    run(&executor, &loading).await;
    let (printed, asked) =
        run(&executor, &format!("{PLANNED}print(json.dumps([planned(code) for code in {codes}]))")).await;
    let found: Vec<Value> = serde_json::from_str(&printed).unwrap();
    for ((code, expected), found) in cases.iter().zip(&found) {
        assert_eq!(found, expected, "{code}");
    }
    assert_eq!((found.len(), asked.len()), (cases.len(), 0));
    executor.stop().await;
}
