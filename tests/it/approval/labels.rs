//! Labels of what a session reads between the announcement of a call and its run.

use ipybox::CodeExecutionEvent;
use serde_json::{Value, json};

use super::provenance::{GUARDED, IMPORTS, application, posted, start};
use crate::support::{PATIENCE, Place, eventually};

/// The records of an audit log.
fn records(log: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_batch_is_judged_by_what_its_earlier_calls_read() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let mut ipybox = start(&place, GUARDED, &["--audit-log", log.to_str().unwrap()]).await;
    let code = format!(
        "{IMPORTS}import mcptools, pathlib
path = str(pathlib.Path('page').absolute())
with mcptools.batch('forward it') as calls:
    chat.post.run(text='before')
    web.fetch.run(name='page', to=path)
    chat.post_file.run(path=path)
for call in calls: print(call.error or call.result())"
    );
    let answer = ipybox.cell(&code).await.ok();
    assert!(answer.contains("posted\nfetched\n"), "{answer}");
    assert!(
        answer.contains("`chat.post_file` is denied by the approval policy: rule 3 (\"from strangers\")"),
        "{answer}"
    );
    ipybox.stop().await;
    assert_eq!(posted(&place), ["before"]);
    let records = records(&log);
    let decided = records.iter().find(|record| record["tool"] == "post_file").unwrap();
    assert_eq!(decided["provenance"], json!({"read": {"untrusted": ["web"]}}));
}

/// A rule that asks about posts, after one that denies them once strangers' data has been read.
const ASKING: &str = "[[rule]]\nname = 'from strangers'\nserver = 'chat'\ntainted_by = 'untrusted'\neffect = 'deny'\n\
                      [[rule]]\nserver = 'chat'\neffect = 'ask'\n[[rule]]\nserver = ['mail', 'web']\neffect = 'allow'\n";

/// A post whose question waits while another task reads from the server that is given.
fn reading_meanwhile(server: &str, name: &str) -> String {
    format!(
        "{IMPORTS}import asyncio, pathlib
posting = asyncio.ensure_future(chat.post.run_async(text='x'))
await asyncio.sleep(0)
while not pathlib.Path('asked').exists(): await asyncio.sleep(0.01)
await {server}.read.run_async(name='{name}')
pathlib.Path('read').touch()
try: print(await posting)
except Exception as error: print(error)"
    )
}

/// Has the code go on while a question waits, until it has read.
async fn read_meanwhile(place: &Place) {
    std::fs::write(place.workspace().join("asked"), "").unwrap();
    eventually("the code has read", || place.workspace().join("read").exists()).await;
}

#[tokio::test]
async fn an_answer_is_compared_with_what_was_read_while_its_question_waited() {
    let place = Place::new();
    let log = place.temporary().join("audit.jsonl");
    let mut ipybox = start(&place, ASKING, &["--audit-log", log.to_str().unwrap()]).await;
    // Confidential data: it is asked about again, and the question says why.
    let calling = ipybox.start_cell(&reading_meanwhile("mail", "letter")).await;
    let question = ipybox.question().await;
    read_meanwhile(&place).await;
    let accept = json!({"action": "accept", "content": {"decision": "allow once"}});
    ipybox.respond(&question, accept.clone()).await;
    let again = ipybox.decide("allow once").await;
    assert!(again.contains("You are asked again about this call: confidential data has come in"), "{again}");
    assert_eq!(calling.answer().await.ok(), "posted");
    // Strangers' data: a rule denies it, and nobody is asked again.
    for file in ["asked", "read"] {
        std::fs::remove_file(place.workspace().join(file)).unwrap();
    }
    let calling = ipybox.start_cell(&reading_meanwhile("web", "page")).await;
    let question = ipybox.question().await;
    read_meanwhile(&place).await;
    ipybox.respond(&question, accept).await;
    let answer = calling.answer().await.ok();
    assert!(
        answer.contains("`chat.post` is denied by the approval policy: rule 2 (\"from strangers\")"),
        "{answer}"
    );
    ipybox.stop().await;
    assert_eq!(posted(&place), ["x"]);
    let ends: Vec<Value> =
        records(&log).into_iter().filter(|record| record["event"] == "call_ended").collect();
    let ended = |outcome: &str| ends.iter().filter(|end| end["outcome"] == outcome).collect::<Vec<_>>();
    assert_eq!(ended("decided_anew").len(), 2, "{ends:?}");
    assert!(ended("result").iter().any(|end| end["read"] == json!({"confidential": ["mail"]})), "{ends:?}");
}

#[tokio::test]
async fn what_an_application_accepts_is_judged_when_it_runs() {
    let place = Place::new();
    let executor = application(&place, ASKING).await;
    let mut execution = executor.stream(reading_meanwhile("web", "page"));
    let (mut asked, mut output) = (0, String::new());
    while let Some(event) = tokio::time::timeout(PATIENCE, execution.next()).await.expect("an event") {
        match event.unwrap() {
            CodeExecutionEvent::ApprovalRequest(request) => {
                asked += 1;
                read_meanwhile(&place).await;
                assert!(request.accept());
            }
            CodeExecutionEvent::Result(result) => output = result.text.unwrap_or_default(),
            _ => {}
        }
    }
    assert_eq!(asked, 1);
    assert!(output.contains("from strangers"), "{output}");
    executor.stop().await;
    assert!(posted(&place).is_empty());
}
