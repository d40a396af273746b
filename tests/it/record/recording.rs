//! `--record` writes cells, calls and definitions, and no secrets.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, eventually, kernel_python, probe};

const SECRET: &str = "the-secret-value";

pub(super) async fn recording(place: &Place, file: &Path, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap(), "--record", file.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start_with(&flags, &[("API_KEY", SECRET)]).await;
    ipybox.initialize().await;
    ipybox
}

/// The lines of this kind in a recording that is whole.
fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["line"] == kind).collect()
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_session_is_recorded_with_its_servers_calls_and_cells_and_without_secrets() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    let mut server = probe();
    server["env"] = json!({"KEY": "${API_KEY}"});
    ipybox.register("probe", server).await.ok();
    let code =
        format!("from mcptools.probe import add, echo, fail\nkey = '{SECRET}'\nprint(echo.run(text=key))");
    ipybox.cell(&code).await.ok();
    ipybox.cell("add.run(a=1)").await.ok();
    ipybox.cell("fail.run(reason='no')").await.error();
    ipybox.reset().await;
    ipybox.cell("1 / 0").await.error();
    ipybox.stop().await;

    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(SECRET), "{text}");
    let lines = lines(&file);
    let session = &lines[0];
    assert_eq!(
        (&session["line"], &session["format"], &session["site"]),
        (&json!("session"), &json!(1), &json!("local"))
    );
    assert!(session["seed"].is_u64(), "{session}");
    assert_eq!(lines[lines.len() - 1], json!({"line": "end", "cells": 4}));
    let environments = of_kind(&lines, "environment");
    assert_eq!(environments.len(), 1, "the same for both kernels");
    assert!(environments[0]["packages"]["ipython"].is_string(), "{}", environments[0]);
    let kernels: Vec<_> = of_kind(&lines, "kernel").into_iter().map(|line| line["cells"].clone()).collect();
    assert_eq!(kernels, [0, 3]);

    let servers = of_kind(&lines, "server");
    let [server] = &servers[..] else { panic!("{servers:?}") };
    assert_eq!(
        (&server["name"], &server["parameters"]["env"]["KEY"]),
        (&json!("probe"), &json!("${API_KEY}"))
    );
    assert!(server["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "add"));
    assert_eq!(server["annotations"]["echo"]["read_only"], true);

    let calls = of_kind(&lines, "call");
    let [echo, add, fail] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&echo["cell"], &echo["server"], &echo["tool"]), (&json!(1), &json!("probe"), &json!("echo")));
    assert_eq!(echo["arguments"], json!({"text": "${API_KEY}"}));
    assert_eq!(echo["answer"], json!({"result": "${API_KEY}"}));
    assert_eq!(
        (&echo["decision"], &echo["by"], &echo["order"]),
        (&json!("accepted"), &json!("policy"), &json!([1, 2]))
    );
    assert_eq!(add["answer"]["result"], json!({"total": 6, "terms": [1, 5]}));
    assert_eq!(fail["answer"]["error"]["kind"], "tool");

    let cells = of_kind(&lines, "cell");
    assert_eq!(cells.iter().map(|cell| cell["cell"].clone()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(cells[0]["outputs"], json!([{"text": "${API_KEY}\n"}]));
    assert!(cells[1]["outputs"][0]["data"]["text/plain"].is_string(), "{}", cells[1]);
    assert_eq!(
        (&cells[3]["end"], &cells[3]["outputs"][0]["error"]["name"]),
        (&json!("error"), &json!("ZeroDivisionError"))
    );
}

#[tokio::test]
async fn denied_calls_and_batches_are_recorded_as_code_saw_them() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    place.write(
        "policy.toml",
        "default = 'allow'\n[[rule]]\nserver = 'probe'\ntool = 'add'\neffect = 'deny'\n",
    );
    let policy = place.workspace().join("policy.toml");
    let flags = ["--approval", "policy", "--approval-policy", policy.to_str().unwrap()];
    let mut ipybox = recording(&place, &file, &flags).await;
    ipybox.register("probe", probe()).await.ok();
    let code = "from mcptools import batch\nfrom mcptools.probe import add, echo\n\
                with batch('some') as calls:\n    calls.add(echo, text='a')\n    calls.add(add, a=1)\n    calls.add(echo, text='b')\n";
    drop(ipybox.cell(code).await);
    ipybox.cell("add.run(a=2)").await.error();
    ipybox.stop().await;
    let lines = lines(&file);
    let calls = of_kind(&lines, "call");
    let denied: Vec<_> = calls.iter().filter(|call| call["decision"] == "denied").collect();
    assert!(
        !denied.is_empty() && denied.iter().all(|call| call["tool"] == "add" && call["by"] == "rule"),
        "{calls:?}"
    );
    assert_eq!(denied[0]["answer"]["error"]["kind"], "rejected");
}

#[tokio::test]
async fn recordings_replace_nothing_and_a_directory_gets_a_file_for_each_session() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    std::fs::write(&file, "mine").unwrap();
    let mut ipybox = place.start(&["--record", file.to_str().unwrap()]).await;
    assert!(!ipybox.ended().await.success());
    assert!(ipybox.log().contains("it exists"), "{}", ipybox.log());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");

    let directory = place.temporary().join("many");
    std::fs::create_dir(&directory).unwrap();
    for _ in 0..2 {
        let mut ipybox = recording(&place, &directory, &[]).await;
        ipybox.cell("print(1)").await.ok();
        ipybox.stop().await;
    }
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.iter().all(|file| of_kind(&lines(file), "cell").len() == 1));
}

#[tokio::test]
async fn a_killed_session_leaves_whole_lines() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    ipybox.register("probe", probe()).await.ok();
    let code = "from mcptools.probe import big\nwhile True: big.run(characters=100_000)";
    let _endless = ipybox.start_cell(code).await;
    let call = |text: &str| text.matches("{\"line\":\"call\"").count();
    eventually("calls are recorded", || call(&std::fs::read_to_string(&file).unwrap()) > 20).await;
    ipybox.signal(nix::sys::signal::Signal::SIGKILL);
    ipybox.ended().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(of_kind(&lines, "call").len() > 20 && of_kind(&lines, "end").is_empty());
}

#[tokio::test]
async fn what_python_draws_follows_the_seed() {
    let place = Place::new();
    let file = place.temporary().join("a.jsonl");
    let mut ipybox = recording(&place, &file, &[]).await;
    let draw = "import random, uuid\nprint(random.random(), uuid.uuid4(), hash('a'))\n\
                import numpy\nprint(numpy.random.rand(), numpy.random.default_rng().random())";
    let first = ipybox.cell(draw).await.ok();
    let second = ipybox.cell(draw).await.ok();
    assert_ne!(first, second);
    ipybox.reset().await;
    assert_eq!(ipybox.cell(draw).await.ok(), first);
    let child = "import os\nread, write = os.pipe()\nif not os.fork():\n    os.write(write, str(uuid.uuid4()).encode()); os._exit(0)\n\
                 print(os.read(read, 100).decode() == str(uuid.uuid4()))";
    assert_eq!(ipybox.cell(child).await.ok(), "False");
    ipybox.stop().await;
}
