//! Calls that are asked about together: those of a batch, and those that wait at the same time.

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, Reply, eventually, kernel_python, tool};

/// A server that writes down what it is sent, and can refuse and be slow.
const MAIL: &str = "
import asyncio, pathlib
from mcp.server.fastmcp import FastMCP
server = FastMCP('mail')
@server.tool(structured_output=False)
async def send(to: str, subject: str = 'Hi', body: str = '') -> str:
    if to == 'nobody': raise ValueError('no such address')
    if to == 'slow': pathlib.Path('slow').touch(); await asyncio.sleep(1e6)
    with open('sent', 'a') as sent: sent.write(to + ' ')
    return 'sent to ' + to
@server.tool()
def forget(address: str) -> dict[str, str]:
    return {'address': address}
server.run()";

async fn start(place: &Place, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let mut all = vec!["--python", python.to_str().unwrap(), "--approval-timeout", "300"];
    all.extend(flags);
    let mut ipybox = place.start(&all).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let directory = place.workspace();
    let params = json!({"command": tool("mcp1/bin/python"), "args": ["-c", MAIL], "cwd": directory});
    let registering = ipybox
        .start_call("register_mcp_server", json!({"server_name": "mail", "server_params": params}))
        .await;
    if flags.contains(&"ask") {
        ipybox.decide("allow once").await;
    }
    registering.answer().await.ok();
    ipybox
}

fn sent(place: &Place) -> String {
    std::fs::read_to_string(place.workspace().join("sent")).unwrap_or_default()
}

/// Answers the next question. Returns its text.
async fn give(ipybox: &mut Ipybox, content: Value) -> String {
    let question = ipybox.question().await;
    ipybox.respond(&question, json!({"action": "accept", "content": content})).await;
    question["params"]["message"].as_str().unwrap().to_owned()
}

/// Gives the same answer to all questions of a cell. Returns what it has printed.
async fn to_the_end(ipybox: &mut Ipybox, running: Reply, answer: &Value) -> String {
    let mut ended = Box::pin(running.answer());
    loop {
        let question = tokio::select! {
            ended = &mut ended => return ended.ok(),
            question = ipybox.question() => question,
        };
        ipybox.respond(&question, answer.clone()).await;
    }
}

const BATCH: &str = "
import mcptools
from mcptools.mail import send, forget
with mcptools.batch('send the invitations') as batch:
    for name in ['ann', 'bo', 'nobody', 'cy']: send.run(to=name, subject='Invitation')
    forgotten = forget.run(address='ann')
    early = repr(forgotten)
print(early)
print(batch.results)";

#[tokio::test]
async fn a_batch_is_one_question_and_each_result_has_its_place() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--approval", "ask"]).await;
    let running = ipybox.start_cell(BATCH).await;
    let question = give(&mut ipybox, json!({"decision": "allow once"})).await;
    for shown in [
        "these 5 calls",
        "what they are for: 'send the invitations'",
        "mail.send\nThe same in all: subject='Invitation'\n# | to\n1 | 'ann'\n2 | 'bo'\n3 | 'nobody'\n4 | 'cy'\n",
        "mail.forget\nThe same in all: address='ann'\n#\n5\n",
    ] {
        assert!(question.contains(shown), "{shown}\nin\n{question}");
    }
    let answer = running.answer().await.ok();
    assert!(answer.contains("<mail.forget: has not run yet>"), "{answer}");
    assert!(answer.contains("['sent to ann', 'sent to bo', ToolRunnerError("), "{answer}");
    assert!(answer.contains("'sent to cy', Result(root={'address': 'ann'})]"), "{answer}");
    assert!(answer.contains("1 of the 5 calls of the batch 'send the invitations' failed"), "{answer}");
    assert_eq!(sent(&place), "ann bo cy ");

    // Some of them, and none.
    let running = ipybox.start_cell(BATCH).await;
    give(&mut ipybox, json!({"decision": "allow only the rows named below", "rows": "1-2; 9"})).await;
    let again = give(&mut ipybox, json!({"rows": "2, 5"})).await;
    assert!(again.starts_with("Which rows are to be allowed? `9` names none of 1 to 5."), "{again}");
    let answer = running.answer().await.ok();
    assert!(
        answer.contains("[ApprovalRejectedError('the call of `mail.send` was rejected'), 'sent to bo', "),
        "{answer}"
    );
    assert_eq!(sent(&place), "ann bo cy bo ");
    let running = ipybox.start_cell(BATCH).await;
    give(&mut ipybox, json!({"decision": "deny"})).await;
    assert!(running.answer().await.ok().contains("5 of the 5 calls"));
    assert_eq!(sent(&place), "ann bo cy bo ");

    // Nothing is asked or run if the block does not end well.
    let code = "
with mcptools.batch('x') as batch:
    call = send.run(to='never')
    try: call.result()
    except RuntimeError as error: print(error)
    try: call.upper()
    except AttributeError as error: print(error)
    1 / 0";
    let error = ipybox.cell(code).await.error();
    assert!(error.contains("has not run yet: it has a result after the `with` block"), "{error}");
    assert!(error.contains("its result is `.result()`") && error.contains("ZeroDivisionError"), "{error}");
    let error = ipybox.cell("print(batch[0], len(batch))\nbatch[0].result()").await.error();
    assert!(error.contains("did not run, since the `with` block raised an exception"), "{error}");
    ipybox.stop().await;
}

#[tokio::test]
async fn several_packages_are_one_question_and_none_is_installed_if_one_is_denied() {
    let place = Place::new();
    let mut ipybox = place.start(&["--approval", "ask", "--approval-timeout", "300"]).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let installing =
        ipybox.start_call("install_package", json!({"package_name": "toolz zipp>=3 [brackets"})).await;
    let refused = installing.answer().await.error();
    assert!(refused.contains("install `[brackets`: not a requirement"), "{refused}");
    let installing =
        ipybox.start_call("install_package", json!({"package_name": ["toolz", "zipp>=3"]})).await;
    let only = json!({"decision": "allow only the rows named below", "rows": "1"});
    let question = give(&mut ipybox, only).await;
    assert!(question.contains("these 2 calls") && question.contains("'Install 2 packages'"), "{question}");
    assert!(question.contains("1 | 'toolz'\n2 | 'zipp>=3'"), "{question}");
    let denied = installing.answer().await.error();
    assert!(denied.contains("Failed to install `zipp>=3`, and the packages beside it: "), "{denied}");
    assert!(ipybox.cell("import toolz").await.error().contains("ModuleNotFoundError"));
    ipybox.stop().await;
}

#[tokio::test]
async fn without_questions_a_batch_just_runs() {
    let place = Place::new();
    let mut ipybox = start(&place, &[]).await;
    let answer = ipybox.cell(BATCH).await.ok();
    assert!(answer.contains("'sent to cy', Result(root={'address': 'ann'})]"), "{answer}");
    let code = "
async with mcptools.batch('later') as batch:
    for number in range(300): await send.run_async(to=f'n{number}')
print(len(batch), batch[299].result(), {type(result).__name__ for result in batch.results})
with mcptools.batch('nothing'): pass
print(send.run(to='alone'))";
    assert_eq!(ipybox.cell(code).await.ok(), "300 sent to n299 {'ToolResult'}\nsent to alone");
    for (code, words) in [
        ("mcptools.batch(' ')", "must say what its calls are for"),
        ("with mcptools.batch('a'):\n    with mcptools.batch('b'): pass", "cannot be in another one"),
        ("with batch: pass", "can be used once"),
        (
            "with mcptools.batch('many'):\n    for _ in range(1001): send.run(to='x')",
            "more than 1000 calls in a batch",
        ),
        ("with mcptools.batch('x' * 1001): send.run(to='x')", "more than 1000 bytes"),
        ("with mcptools.batch('x'): send.run(to=5)", "Input should be a valid string"),
    ] {
        let error = ipybox.cell(code).await.error();
        assert!(error.contains(words), "{code}: {error}");
    }
    assert!(!sent(&place).contains('x'));

    // An interrupt ends it, and what has run is known.
    let code = "
import pathlib, threading, time
def watch():
    while 'sent to first' not in repr(batch.calls): time.sleep(0.01)
    pathlib.Path('answered').touch()
with mcptools.batch('slow') as batch:
    for to in ['first', 'slow', 'last']: send.run(to=to)
    threading.Thread(target=watch).start()";
    let running = ipybox.start_cell(code).await;
    eventually("the second call runs", || place.workspace().join("slow").exists()).await;
    eventually("the code has the first answer", || place.workspace().join("answered").exists()).await;
    ipybox.cancel(&running).await;
    let answer = ipybox.cell("print(batch.calls)\nprint(send.run(to='after'))").await.ok();
    assert!(
        answer.contains("[<mail.send: 'sent to first'>, <mail.send: has no answer, and may have run>"),
        "{answer}"
    );
    assert!(answer.ends_with("sent to after") && !sent(&place).contains("last"), "{answer}");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_a_policy_decides_is_not_asked() {
    let place = Place::new();
    let policy = "default = 'ask'\n[[rule]]\nserver = 'mail'\ntool = 'forget'\neffect = 'allow'\n[[rule]]\nserver = 'mail'\n\
                  arguments = [{ pointer = '/to', one_of = ['bo'] }]\neffect = 'deny'\n[[rule]]\nserver = 'ipybox'\neffect = 'allow'";
    std::fs::write(place.workspace().join("policy.toml"), policy).unwrap();
    let file = place.workspace().join("policy.toml");
    let flags = ["--approval", "policy", "--approval-policy", file.to_str().unwrap()];
    let mut ipybox = start(&place, &flags).await;
    let running = ipybox.start_cell(BATCH).await;
    let question = give(&mut ipybox, json!({})).await;
    assert!(question.contains("these 3 calls of 5; 2 need no answer here"), "{question}");
    assert!(!question.contains("'bo'") && !question.contains("mail.forget"), "{question}");
    let answer = running.answer().await.ok();
    assert!(
        answer.contains("ApprovalRejectedError('`mail.send` is denied by the approval policy: rule 2')"),
        "{answer}"
    );
    assert_eq!(sent(&place), "ann cy ");
    ipybox.stop().await;
}

#[tokio::test]
async fn calls_that_wait_at_the_same_time_are_asked_together() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--approval", "ask"]).await;
    let gathered = "
import asyncio
from mcptools.mail import send
print(await asyncio.gather(*[send.run_async(to=name) for name in ['ann', 'bo', 'cy']], return_exceptions=True))";
    // On a machine with much else to do they may come one after the other.
    for attempt in 1.. {
        let running = ipybox.start_cell(gathered).await;
        let question = ipybox.question().await;
        let text = question["params"]["message"].as_str().unwrap();
        if text.starts_with("Code in the kernel wants to make these 3 calls at the same time.") {
            ipybox.respond(&question, json!({"action": "accept", "content": {"rows": "3"}})).await;
            assert_eq!(running.answer().await.ok().matches("ApprovalRejectedError").count(), 2);
            break;
        }
        assert!(attempt < 100, "{text}");
        ipybox.respond(&question, json!({"action": "decline"})).await;
        to_the_end(&mut ipybox, running, &json!({"action": "decline"})).await;
    }
    assert_eq!(sent(&place).split_whitespace().count(), 1);

    // An answer for the session is one for all rows.
    let running = ipybox.start_cell(gathered).await;
    let answer = json!({"action": "accept", "content": {"decision": "allow for this session"}});
    assert!(to_the_end(&mut ipybox, running, &answer).await.contains("'sent to bo'"));
    assert!(ipybox.cell(gathered).await.ok().contains("'sent to cy'"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_batch_of_hundreds_is_asked_in_few_questions() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--approval", "ask"]).await;
    let code = "
import mcptools
from mcptools.mail import send
with mcptools.batch('write 200 files') as batch:
    for number in range(200): send.run(to=f'/work/out/{number}.txt', body=f'line {number}\\n' * 400)
print(len([call for call in batch if call.error is None]))";
    let running = ipybox.start_cell(code).await;
    let question = give(&mut ipybox, json!({"decision": "allow once"})).await;
    assert!(
        question.contains("these 200 calls") && question.contains("200 | '/work/out/199.txt' | 'line 199"),
        "{question}"
    );
    assert_eq!(running.answer().await.ok(), "200");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_several_kernels_want_meanwhile_is_one_question() {
    let place = Place::new();
    let mut ipybox = start(&place, &["--approval", "ask"]).await;
    let send = |to: &str| format!("from mcptools.mail import send\nprint(send.run(to='{to}'))");
    let first = ipybox.start_cell(&send("ann")).await;
    let question = ipybox.question().await;
    // While it is open, two other kernels want something too.
    let mut others = Vec::new();
    for to in ["bo", "cy"] {
        let cell = json!({"code": send(to), "session": "new"});
        let meta = json!({ "progressToken": to });
        let call = json!({"name": "execute_ipython_cell", "arguments": cell, "_meta": meta});
        others.push(ipybox.request("tools/call", call).await);
    }
    let is_waiting = |message: &&String| message.starts_with("waiting for approval");
    eventually("both wait", || ipybox.progress().iter().filter(is_waiting).count() == 2).await;
    ipybox.respond(&question, json!({"action": "accept", "content": {"decision": "allow once"}})).await;
    assert!(first.answer().await.ok().contains("sent to ann"));
    let table = give(&mut ipybox, json!({"decision": "allow once"})).await;
    assert!(table.contains("these 2 calls") && table.contains("'bo'") && table.contains("'cy'"), "{table}");
    for other in others {
        assert!(other.answer().await.ok().contains("sent to "));
    }
    ipybox.stop().await;
}
