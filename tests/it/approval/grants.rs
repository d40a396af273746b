//! Grants: one answer to many calls, and code that tries to get more calls out of one.

use std::time::Duration;

use ipybox::{
    ApprovalPolicy, ApprovalRequest, CodeExecutionEvent, CodeExecutor, Grant, GrantLife, GrantPattern,
};
use serde_json::{Value, json};

use crate::support::{Ipybox, PATIENCE, Place, kernel_python, tool};

/// A server that sends mail, and writes what it has sent to a file.
const MAIL: &str = r#"
import pathlib, sys
from mcp.server.fastmcp import FastMCP
server = FastMCP('mail')
sent = pathlib.Path(sys.argv[1])
description = sent.with_name('description')
@server.tool(structured_output=False, description=description.read_text() if description.exists() else 'Sends a mail.')
def send(to: str, subject: str = '', body: str = '', number: float = 0) -> str:
    with sent.open('a') as file:
        file.write(to + '\n')
    return 'sent'
server.run()"#;

/// What sends mails in a cell.
const SEND: &str = "from mcptools.mail import send\n";

fn server(place: &Place) -> Value {
    json!({"command": tool("mcp1/bin/python"), "args": ["-c", MAIL, place.temporary().join("sent")]})
}

/// The addressees of all mails.
fn sent(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.temporary().join("sent")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn start(place: &Place, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let all = [&["--python", python.to_str().unwrap(), "--approval-timeout", "300"], flags].concat();
    let mut ipybox = place.start(&all).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let arguments = json!({"server_name": "mail", "server_params": server(place)});
    let registering = ipybox.start_call("register_mcp_server", arguments).await;
    assert!(!ipybox.decide("allow once").await.contains("You can allow"));
    registering.answer().await.ok();
    ipybox
}

#[tokio::test]
async fn a_loop_of_thirty_seven_mails_takes_four_questions() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let mut ipybox = start(&place, &["--approval", "ask", "--audit-log", log.to_str().unwrap()]).await;
    let code = format!(
        "{SEND}call = send.run\nfor n in range(37):\n    call(to=f'person{{n}}@example.com', subject='Hi', body=f'Dear person {{n}}')\n\
         send.run(to='eve@example.org', subject='Hi', body='Dear Eve')"
    );
    let calling = ipybox.start_cell(&code).await;
    for _ in 0..3 {
        let question = ipybox.decide("allow once").await;
        assert!(!question.contains("You can allow"), "{question}");
    }
    let question = ipybox.question().await;
    let params = &question["params"];
    let message = params["message"].as_str().unwrap();
    let proposal = "You can allow up to 50 such calls in this cell, this one among them:\n\
                    mail.send(body=<any text of up to 26 characters>, subject='Hi', to=<an address at example.com>)";
    assert!(message.contains(proposal), "{message}");
    let field = &params["requestedSchema"]["properties"]["decision"];
    assert_eq!(field["default"], "allow once");
    assert_eq!(
        field["enum"],
        json!([
            "allow once",
            "allow up to 50 like this in this cell",
            "allow for this session",
            "always allow",
            "deny"
        ])
    );
    let granted =
        json!({"action": "accept", "content": {"decision": "allow up to 50 like this in this cell"}});
    ipybox.respond(&question, granted.clone()).await;
    // The next question is about the first call outside.
    let question = ipybox.question().await;
    assert_eq!(sent(&place).len(), 37);
    let message = question["params"]["message"].as_str().unwrap();
    let outside = "Outside of grant 1: to='eve@example.org' is not an address at example.com";
    assert!(message.contains(outside) && !message.contains("You can allow"), "{message}");
    // It has no such choice, so that is a no.
    ipybox.respond(&question, granted).await;
    assert!(calling.answer().await.error().contains("was rejected"));

    // The grant has ended with its cell.
    let code = format!("{SEND}send.run(to='person1@example.com', subject='Hi', body='Dear person 1')");
    let calling = ipybox.start_cell(&code).await;
    let question = ipybox.decide("deny").await;
    assert!(!question.contains("Outside of"), "{question}");
    calling.answer().await.error();
    ipybox.stop().await;

    assert_eq!(sent(&place).len(), 37);
    let log = std::fs::read_to_string(log).unwrap();
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let by_grant: Vec<&Value> = records.iter().filter(|record| record["by"] == "grant").collect();
    assert_eq!(by_grant.len(), 34);
    assert_eq!(by_grant[0]["grant"]["grant"]["arguments"]["to"], json!({"domain": "example.com"}));
    assert_eq!(by_grant[33]["grant"], json!({"id": 1, "left": 16}));
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
    executor.register_mcp_server("mail", &server(place)).await.unwrap();
    executor
}

/// Runs code to its end, and answers its requests. Returns what it printed.
async fn run(executor: &CodeExecutor, code: &str, mut answer: impl AsyncFnMut(ApprovalRequest)) -> String {
    let mut execution = executor.stream(code);
    loop {
        let event = tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event");
        match event.expect("no end without a result") {
            Ok(CodeExecutionEvent::ApprovalRequest(request)) => answer(request).await,
            Ok(CodeExecutionEvent::Result(result)) => return result.text.unwrap_or_default(),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Gives the first request a grant for this domain, and rejects the others.
fn grant_first(request: ApprovalRequest, count: u32, asked: &mut Vec<String>) {
    asked.push(request.to_string());
    if asked.len() == 1 {
        let grant = Grant::of(&request, count).argument("to", GrantPattern::Domain("example.com".to_owned()));
        assert_eq!(request.grant(grant), Ok(true));
    } else {
        assert!(request.reject());
    }
}

#[tokio::test]
async fn an_application_gives_lists_and_revokes_grants() {
    let place = Place::new();
    let policy =
        "[[rule]]\narguments = [{ pointer = '/to', one_of = ['boss@example.com'] }]\neffect = 'deny'";
    let executor = executor(&place, policy).await;
    let code = format!(
        "{SEND}def to(who):\n    try:\n        return send.run(to=who)\n    except Exception as error:\n        return \
         type(error).__name__\nprint([to(who) for who in ['a@example.com', 'b@example.com', 'boss@example.com']])"
    );
    let first = async |request: ApprovalRequest| {
        let to = GrantPattern::Domain("example.com".to_owned());
        let grant = Grant::of(&request, 9).for_session().argument("to", to);
        assert_eq!(request.grant(grant), Ok(true));
    };
    assert_eq!(run(&executor, &code, first).await, "['sent', 'sent', 'ApprovalRejectedError']");
    let [given] = executor.grants().try_into().unwrap();
    assert_eq!((given.id, given.left, given.grant.life()), (1, 7, GrantLife::Session));
    assert_eq!(given.grant.to_string(), "mail.send(to=<an address at example.com>)");
    // A reset ends none of a session.
    executor.reset().await.unwrap();
    let again = format!("{SEND}print(send.run(to='c@example.com'))");
    let never = async |request: ApprovalRequest| panic!("asked for {request}");
    assert_eq!(run(&executor, &again, never).await, "sent");
    assert_eq!(executor.grants()[0].left, 6);
    assert!(executor.revoke_grant(1) && !executor.revoke_grant(1) && executor.grants().is_empty());
    let mut asked = 0;
    let asking = async |request: ApprovalRequest| {
        asked += 1;
        assert_eq!(request.outside_of_grants(), None);
        assert!(request.accept());
    };
    assert_eq!(run(&executor, &again, asking).await, "sent");
    assert_eq!(asked, 1);
    executor.stop().await;
}

#[tokio::test]
async fn threads_that_race_for_the_last_call_get_it_once() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    let code = format!(
        "{SEND}from concurrent.futures import ThreadPoolExecutor\n\
         def to(n):\n    try:\n        return send.run(to=f'p{{n}}@example.com')\n    except Exception as error:\n        \
         return 'rejected'\n\
         first = to(0)\n\
         with ThreadPoolExecutor(20) as pool:\n    rest = list(pool.map(to, range(1, 61)))\n\
         print(first, rest.count('sent'), rest.count('rejected'))"
    );
    let mut asked = Vec::new();
    let printed = run(&executor, &code, async |request| grant_first(request, 10, &mut asked)).await;
    assert_eq!(printed, "sent 9 51");
    assert_eq!((asked.len(), sent(&place).len(), executor.grants().len()), (52, 10, 0));
    executor.stop().await;
}

#[tokio::test]
async fn no_other_spelling_gets_through() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    // Each of these is sent as it is written here.
    let code = r#"
import http.client, json, os
host, _, port = os.environ["IPYBOX_TOOL_SERVER"].rpartition(":")
def post(arguments, tool="send", server="mail"):
    connection = http.client.HTTPConnection(host, int(port), timeout=300)
    body = '{"server_name": "%s", "tool_name": "%s", "tool_args": %s}' % (server, tool, arguments)
    headers = {"Authorization": "Bearer " + os.environ["IPYBOX_TOOL_SERVER_TOKEN"], "Content-Type": "application/json"}
    connection.request("POST", "/run", body.encode(), headers)
    answer = json.loads(connection.getresponse().read())
    return "sent" if "result" in answer else "no"
print(post('{"to": "a@example.com", "number": 1}'))
inside = ['{"to": "b@example.com", "number": 1}', '{"number": 1, "to": "c@EXAMPLE.com"}',
          '{"to": "\\u0064@example.com", "number": 1}', '{"to": "x@evil.org", "number": 1, "to": "e@example.com"}']
print([post(each) for each in inside])
outside = ['{"to": "a@example.com", "number": 1.0}', '{"to": "a@example.com", "number": 1e0}',
           '{"to": "a@example.com", "number": "1"}', '{"to": "a@example.com", "number": true}',
           '{"to": "a@example.com"}', '{"to": "a@example.com", "number": 1, "cc": null}',
           '{"to": "a@example.com", "number": 1, "to": "x@evil.org"}',
           '{"To": "a@example.com", "number": 1}', '{"to": ["a@example.com"], "number": 1}',
           '{"to": {"to": "a@example.com"}, "number": 1}', '{"to": "a@ex\\u0430mple.com", "number": 1}',
           '{"to": "a@example.com\\u0000", "number": 1}', '{"to": "a@example.com,x@evil.org", "number": 1}']
print(set(post(each) for each in outside))
print(post('{"to": "a@example.com", "number": 1}', tool="Send"), post('{"to": "a@example.com", "number": 1}', server="Mail"))"#;
    let mut asked = Vec::new();
    let printed = run(&executor, code, async |request| grant_first(request, 100, &mut asked)).await;
    assert_eq!(printed, "sent\n['sent', 'sent', 'sent', 'sent']\n{'no'}\nno no");
    // A server of another name is unknown, so that nobody is asked.
    assert_eq!(asked.len(), 1 + 13 + 1, "{asked:#?}");
    assert_eq!(
        sent(&place),
        ["a@example.com", "b@example.com", "c@EXAMPLE.com", "d@example.com", "e@example.com"]
    );
    executor.stop().await;
}

/// Sends a mail, waits until the host has changed something, and sends others.
const IN_TWO_HALVES: &str = "
import pathlib, time
def to(who):
    try:
        return send.run(to=who)
    except Exception as error:
        return type(error).__name__
first = [to('a@example.com'), to('b@example.com')]
pathlib.Path('half').touch()
while not pathlib.Path('go').exists():
    time.sleep(0.01)
print(first + [to('c@example.com')])";

/// Runs the code, with a grant for its first half, and `change` between the halves. Returns what the next question says.
async fn changed_in_between(place: &Place, executor: &CodeExecutor, change: impl AsyncFnOnce()) -> String {
    let code = format!("{SEND}{IN_TWO_HALVES}");
    let (mut asked, mut outside) = (Vec::new(), None);
    let running = run(executor, &code, async |request: ApprovalRequest| {
        outside = request.outside_of_grants();
        grant_first(request, 50, &mut asked);
    });
    let half = place.workspace().join("half");
    let changing = async {
        while !half.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        change().await;
        std::fs::write(place.workspace().join("go"), "").unwrap();
    };
    let (printed, ()) = tokio::join!(running, changing);
    assert_eq!(printed, "['sent', 'sent', 'ApprovalRejectedError']");
    assert_eq!(asked.len(), 2);
    outside.unwrap()
}

const CHANGED: &str = "Outside of grant 1: the server, or what it says of the tool, has changed";

#[tokio::test]
async fn a_server_that_changes_its_tool_in_the_middle_of_a_loop_asks_again() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    let change = async || {
        std::fs::write(place.temporary().join("description"), "Sends a mail, and a copy to us.").unwrap();
        executor.register_mcp_server("mail", &server(&place)).await.unwrap();
    };
    assert_eq!(changed_in_between(&place, &executor, change).await, CHANGED);
    executor.stop().await;
}

#[tokio::test]
async fn a_server_of_the_same_name_in_the_middle_of_a_loop_asks_again() {
    let place = Place::new();
    let executor = executor(&place, "").await;
    let change = async || {
        let mut other = server(&place);
        other["args"].as_array_mut().unwrap().push(json!("--other"));
        executor.register_mcp_server("mail", &other).await.unwrap();
    };
    assert_eq!(changed_in_between(&place, &executor, change).await, CHANGED);
    executor.stop().await;
}
