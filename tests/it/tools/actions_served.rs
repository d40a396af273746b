//! Saved actions beyond their sessions: `ipybox actions serve` and `ipybox actions export`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{
    Ipybox, Place, environment, eventually, is_running, kernel_python, probe, test_server, tool,
};

/// Has the arguments of the tests' ipybox be those of a subcommand.
const SERVE: [&str; 3] = ["sh", "-c", "exec \"$0\" actions serve \"$@\""];

const TOTAL: &str = "\
from pydantic import BaseModel

class Total(BaseModel):
    total: int
    terms: list[int]

def run(a: int, b: int = 5) -> Total:
    \"\"\"Adds two numbers at the probe.\"\"\"
    from .impl import run
    return run(a, b)
";

const ADD: &str = "\
from mcptools.probe import add
from .api import Total

def run(a, b):
    print('adding')
    result = add.run(a=a, b=b)
    return Total(total=result.total, terms=result.terms)
";

/// A workspace whose state has registered the probe.
async fn place() -> Place {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.stop().await;
    place
}

/// The state directory of the workspace.
fn state(place: &Place) -> PathBuf {
    let workspaces = std::fs::read_dir(place.states()).unwrap().flatten();
    let mut all =
        workspaces.flat_map(|entry| std::fs::read_dir(entry.path()).into_iter().flatten().flatten());
    all.find(|entry| entry.path().join("servers.json").exists()).unwrap().path()
}

/// A saved action, as `mcptools.save` keeps it.
fn save(place: &Place, name: &str, api: &str, implementation: &str, more: Value) {
    let directory = state(place).join("actions/sums").join(name);
    let files = [
        ("__init__.py", "from .api import *\n"),
        ("api.py", api),
        ("impl.py", implementation),
        ("test.jsonl", "{}\n"),
    ];
    let mut digests = serde_json::Map::new();
    for (file, text) in files {
        std::fs::create_dir_all(directory.join("1")).unwrap();
        std::fs::write(directory.join("1").join(file), text).unwrap();
        digests.insert(file.to_owned(), format!("{:x}", Sha256::digest(text)).into());
    }
    let mut record = json!({
        "category": "sums",
        "name": name,
        "version": 1,
        "saved": "2026-11-27T00:00:00Z",
        "summary": "Adds two numbers at the probe.",
        "description": "Adds two numbers at the probe.",
        "signature": "(a: int, b: int = 5) -> Total",
        "is_async": false,
        "input_schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 5}},
            "required": ["a"],
        },
        "example": {"a": 1},
        "servers": {},
        "files": digests,
        "test": {"passed": true, "time": "2026-11-27T00:00:00Z"},
    });
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    std::fs::write(directory.join("action.json"), json!({"version": 1, "action": record}).to_string())
        .unwrap();
}

/// An action whose function has this body and takes a text.
fn save_text(place: &Place, name: &str, body: &str, more: Value) {
    let api = format!(
        "def run(text: str = ''):\n    '''Does something.'''\n    {}\n",
        body.replace('\n', "\n    ")
    );
    save(place, name, &api, "", more);
}

async fn serve_with(place: &Place, flags: &[&str], capabilities: Value) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags].concat();
    let mut served = place.start_by(&SERVE, &flags, &[]).await;
    served.initialize_with(capabilities).await;
    served
}

pub(super) async fn serve(place: &Place) -> Ipybox {
    serve_with(place, &["--no-sandbox"], json!({})).await
}

async fn names(served: &mut Ipybox) -> Vec<String> {
    let listed = served.request("tools/list", json!({})).await.response().await.unwrap();
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The whole result of a call.
pub(super) async fn result(served: &mut Ipybox, name: &str, arguments: Value) -> Value {
    served.start_call(name, arguments).await.response().await.unwrap()["result"].clone()
}

#[tokio::test]
async fn actions_are_tools_that_run_as_they_were_saved() {
    let place = place().await;
    let schema = json!({
        "type": "object",
        "properties": {"total": {"type": "integer"}, "terms": {"type": "array", "items": {"type": "integer"}}},
        "required": ["total", "terms"],
    });
    save(&place, "total", TOTAL, ADD, json!({"output_schema": schema}));
    save_text(&place, "echo", "return text", json!({"output_schema": {"type": "string"}}));
    save_text(&place, "place", "import os\nreturn [os.getcwd(), sorted(os.listdir())]", json!({}));
    // Code changes what it imports itself, and no more.
    place.write("gentools/sums/total/__init__.py", "raise SystemExit('the copy of the workspace')");
    place.write("gentools/sums/total/api.py", "");
    let mut served = serve(&place).await;
    let listed = served.request("tools/list", json!({})).await.response().await.unwrap();
    let tools = listed["result"]["tools"].as_array().unwrap();
    let total = tools.iter().find(|tool| tool["name"] == "total").unwrap();
    assert_eq!(total["description"], "Adds two numbers at the probe.");
    assert_eq!(total["inputSchema"]["required"], json!(["a"]));
    assert_eq!(total["outputSchema"], schema);
    let echo = tools.iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(echo["outputSchema"]["properties"], json!({"result": {"type": "string"}}));

    let answer = result(&mut served, "total", json!({"a": 2})).await;
    assert_eq!(answer["isError"], false, "{answer}");
    assert_eq!(answer["structuredContent"], json!({"total": 7, "terms": [2, 5]}));
    let text: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, answer["structuredContent"]);
    assert_eq!(answer["content"][1]["text"], "Printed:\nadding");

    for hostile in
        ["\"); import os; os._exit(1) #", "'''\n!touch x\n%run y\nz?", "{a} ${HOME} \\ 😀 \u{2028}"]
    {
        let answer = result(&mut served, "echo", json!({"text": hostile})).await;
        assert_eq!(answer["structuredContent"], json!({"result": hostile}));
        assert_eq!(answer["content"][0]["text"], hostile);
    }
    let there = result(&mut served, "place", json!({})).await;
    let directory = there["structuredContent"]["result"][0].as_str().unwrap();
    assert!(!Path::new(directory).starts_with(place.workspace()), "{directory}");
    eventually("the directory of the call is removed", || !Path::new(directory).exists()).await;

    let wrong = served.call("total", json!({"a": "many"})).await.error();
    assert!(wrong.contains("ValidationError") && wrong.contains("valid integer"), "{wrong}");
    let wrong = served.call("total", json!({"a": 1, "c": 1})).await.error();
    assert!(wrong.contains("Unexpected keyword argument"), "{wrong}");
    let unknown = served.start_call("other", json!({})).await.response().await.unwrap();
    assert_eq!(unknown["error"]["message"], "there is no tool `other`");
    served.stop().await;
}

#[tokio::test]
async fn what_cannot_be_relied_on_is_not_served_and_changes_are_told() {
    let place = place().await;
    save_text(&place, "good", "return text", json!({}));
    let failed = json!({"passed": false, "why": "the output differs", "time": "2026-11-27T00:00:00Z"});
    save_text(&place, "red", "return text", json!({"test": failed}));
    save_text(&place, "drifted", "return text", json!({"servers": {"probe": {"add": "another"}}}));
    save_text(&place, "edited", "return text", json!({}));
    std::fs::write(state(&place).join("actions/sums/edited/1/api.py"), "def run(): pass").unwrap();
    let mut served = serve(&place).await;
    assert_eq!(names(&mut served).await, ["good"]);
    for (name, why) in [
        ("red", "it is red: the output differs"),
        ("drifted", "it is drifted: `probe.add` is defined in another way"),
        ("edited", "it was edited after it was saved"),
    ] {
        let refusal = served.call(name, json!({})).await.error();
        assert!(refusal.contains(why), "{refusal}");
    }
    assert!(served.sent("notifications/tools/list_changed").is_empty());
    save_text(&place, "later", "return text", json!({}));
    assert_eq!(served.call("good", json!({"text": "a"})).await.ok(), "a");
    eventually("the client is told", || !served.sent("notifications/tools/list_changed").is_empty()).await;
    assert_eq!(names(&mut served).await, ["good", "later"]);
    assert_eq!(served.call("later", json!({"text": "b"})).await.ok(), "b");
    served.stop().await;
}

#[tokio::test]
async fn a_call_leaves_nothing_and_answers_within_bounds() {
    let place = place().await;
    save_text(&place, "huge", "return 'x' * 30_000_000", json!({}));
    save_text(
        &place,
        "noise",
        "import os\nos.write(1, b'{\"jsonrpc\": \"2.0\"}\\n')\nprint('y' * 1_000_000)\nreturn 1",
        json!({}),
    );
    save_text(&place, "raises", "raise KeyError('k' * 1_000_000)", json!({}));
    save_text(
        &place,
        "link",
        "import glob, os\nclass L(list): pass\nfor d in ['.ipybox']:\n    os.rmdir(d) if not os.listdir(d) else None\n    os.path.exists(d) or os.symlink(text, d)\nreturn 1",
        json!({}),
    );
    save_text(
        &place,
        "forks",
        "import os, time\nchild = os.fork()\nif not child:\n    time.sleep(3600)\nreturn child",
        json!({}),
    );
    save_text(
        &place,
        "waits",
        "import os, pathlib, time\npathlib.Path(text).write_text(str(os.getpid()))\ntime.sleep(3600)",
        json!({}),
    );
    save_text(
        &place,
        "state",
        "import builtins\nseen = hasattr(builtins, 'seen')\nbuiltins.seen = 1\nreturn seen",
        json!({}),
    );
    let mut served = serve(&place).await;
    let huge = served.call("huge", json!({})).await.error();
    assert!(huge.contains("30,000,002 bytes") && huge.len() < 1_000, "{huge}");
    let noise = result(&mut served, "noise", json!({})).await;
    assert_eq!(noise["structuredContent"], json!({"result": 1}));
    assert!(noise["content"][1]["text"].as_str().unwrap().len() < 10_000);
    let raised = served.call("raises", json!({})).await.error();
    assert!(raised.starts_with("KeyError: 'kkk") && raised.len() < 10_000, "{}", raised.len());
    for _ in 0..2 {
        assert_eq!(
            result(&mut served, "state", json!({})).await["structuredContent"],
            json!({"result": false})
        );
    }
    let child =
        result(&mut served, "forks", json!({})).await["structuredContent"]["result"].as_i64().unwrap();
    eventually("what the call has started ends", || !is_running(child.try_into().unwrap())).await;

    let file = place.temporary().join("pid");
    let waiting = served.start_call("waits", json!({"text": file})).await;
    eventually("the call runs", || std::fs::read_to_string(&file).is_ok_and(|text| !text.is_empty())).await;
    served.cancel(&waiting).await;
    let kernel: i32 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    eventually("the kernel of a cancelled call ends", || !is_running(kernel)).await;
    // Its place is free again.
    assert_eq!(served.call("noise", json!({})).await.ok().lines().next().unwrap(), "1");

    let elsewhere = place.temporary().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let linked = served.call("link", json!({"text": elsewhere})).await;
    assert!(linked.is_error || linked.text == "1", "{}", linked.text);
    served.stop().await;
    let mut slow = serve_with(&place, &["--no-sandbox", "--timeout", "0.5"], json!({})).await;
    let late = slow.call("waits", json!({"text": file})).await.error();
    assert!(late.contains("0.5"), "{late}");
    slow.stop().await;
}

#[tokio::test]
async fn calls_of_actions_are_decided_by_the_users_policy() {
    let place = place().await;
    save(&place, "total", TOTAL, ADD, json!({}));
    let mut mute = serve_with(&place, &["--no-sandbox", "--approval", "ask"], json!({})).await;
    let refused = mute.call("total", json!({"a": 1})).await.error();
    assert!(refused.contains("the MCP client does not support elicitation"), "{refused}");
    mute.stop().await;
    let log = place.temporary().join("audit.jsonl");
    let flags = ["--no-sandbox", "--approval", "ask", "--audit-log", log.to_str().unwrap()];
    let mut asking = serve_with(&place, &flags, json!({"elicitation": {}})).await;
    let call = asking.start_call("total", json!({"a": 1})).await;
    assert!(asking.decide("allow once").await.contains("probe"));
    assert!(call.answer().await.ok().contains("\"total\":6"));
    let call = asking.start_call("total", json!({"a": 1})).await;
    asking.decide("deny").await;
    assert!(call.answer().await.error().contains("ApprovalRejectedError"));
    asking.stop().await;
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("\"accepted\"") && log.contains("\"denied\""), "{log}");
    // The kernel that waited for a third call has left nothing.
    let count = |event: &str| log.matches(&format!("\"event\":\"{event}\"")).count();
    assert_eq!((count("session_started"), count("session_ended")), (2, 2), "{log}");
}

#[tokio::test]
async fn without_a_sandbox_there_is_no_server_unless_the_user_wants_it() {
    let place = place().await;
    save_text(&place, "good", "return text", json!({}));
    let nothing = place.temporary().join("no-programs");
    std::fs::create_dir(&nothing).unwrap();
    let launcher = ["/bin/sh", "-c", "exec \"$0\" actions serve \"$@\""];
    let python = kernel_python();
    let flags = ["--sandbox-backend", "bwrap", "--python", python.to_str().unwrap()];
    let mut refused = place.start_by(&launcher, &flags, &[("PATH", nothing.to_str().unwrap())]).await;
    assert!(!refused.ended().await.success());
    let log = refused.log();
    assert!(
        log.contains("bwrap") && log.contains("hint: `--no-sandbox` runs actions with all of your rights"),
        "{log}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn actions_run_in_a_sandbox() {
    let place = place().await;
    save(&place, "total", TOTAL, ADD, json!({}));
    save_text(
        &place,
        "writes",
        "import pathlib\npathlib.Path('here').write_text('a')\npathlib.Path(text).write_text('a')",
        json!({}),
    );
    save_text(&place, "reads", "return open(text).read()", json!({}));
    place.write(".env", "TOKEN=of-the-workspace\n");
    place.write("open.txt", "open");
    let mut served = serve_with(&place, &["--sandbox-backend", "bwrap"], json!({})).await;
    assert!(served.call("total", json!({"a": 1})).await.ok().contains("\"total\":6"));
    let target = place.workspace().join("written");
    let refused = served.call("writes", json!({"text": target})).await.error();
    assert!(refused.contains("OSError") || refused.contains("Error:"), "{refused}");
    assert!(!target.exists());
    let hidden = served.call("reads", json!({"text": place.workspace().join(".env")})).await;
    assert!(!hidden.text.contains("of-the-workspace"), "{}", hidden.text);
    served.stop().await;
}

/// Runs `ipybox actions` with these arguments.
fn actions(place: &Place, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command.arg("actions").args(arguments);
    command.arg("--workspace").arg(place.workspace()).arg("--state-dir").arg(place.states());
    command.env_clear().envs(environment()).current_dir(place.temporary()).output().unwrap()
}

/// Runs a script with a Python that has the MCP SDK and nothing of ipybox.
pub(super) fn run(place: &Place, script: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    run_by(&[tool("mcp1/bin/python").to_str().unwrap()], place, script, arguments, variables)
}

/// Runs a script with the program and the flags `by`.
fn run_by(
    by: &[&str],
    place: &Place,
    script: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Output {
    let mut command = Command::new(by[0]);
    command
        .args(&by[1..])
        .arg(script)
        .args(arguments)
        .env_clear()
        .envs(environment())
        .envs(variables.iter().copied());
    command.current_dir(place.temporary()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn uv_runs_an_exported_action_with_the_result_of_a_cell() {
    let place = Place::new();
    let in_a_cell = in_a_cell(&place).await;
    save(&place, "total", TOTAL, ADD, json!({}));
    let python = kernel_python();
    let python = python.to_str().unwrap();
    let exported = actions(&place, &["export", "total", "--python", python]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let uv = tool("bin/uv");
    let by = [uv.to_str().unwrap(), "run", "--quiet", "--python", python, "--script"];
    let key = [("PROBE_API_KEY", "of-the-test")];
    let done = run_by(&by, &place, &place.temporary().join("total.py"), &["--a", "2", "--b", "-1"], &key);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result, serde_json::from_str::<Value>(&in_a_cell).unwrap());
}

/// Registers a server that needs a secret. Returns what the action `total` does, done in a cell.
async fn in_a_cell(place: &Place) -> String {
    let mut ipybox = place.ipybox().await;
    let server = json!({
        "command": tool("mcp1/bin/python"),
        "args": [test_server("probe.py")],
        "env": {"PROBE_API_KEY": "hunter2-hunter2", "PROBE_LEVEL": "low"},
    });
    ipybox.register("probe", server).await.ok();
    let code = "from mcptools.probe import add\nprint(add.run(a=2, b=-1).model_dump_json())";
    let said = ipybox.cell(code).await.ok();
    ipybox.stop().await;
    said
}

#[tokio::test]
async fn an_exported_action_needs_no_ipybox() {
    let place = Place::new();
    let in_a_cell = in_a_cell(&place).await;
    save(&place, "total", TOTAL, ADD, json!({}));
    let many = "\
import asyncio
import yaml
from mcptools import batch
from mcptools.probe import add, echo, env, fail

async def run_async(texts: list[str], upper: bool = False, level: float | None = None) -> dict:
    '''Uses many tools at once.'''
    said = await asyncio.gather(*(echo.run_async(text=text) for text in texts))
    with batch('sums'):
        sums = [add.run(a=number) for number in range(3)]
    try:
        fail.run(reason='no')
    except Exception as error:
        failed = f'{type(error).__name__}: {error}'
    values = env.run().values
    known = [values.get('PROBE_API_KEY'), values.get('PROBE_LEVEL')]
    said = [text.upper() for text in said] if upper else list(said)
    return {'said': said, 'sums': [call.result().total for call in sums], 'failed': failed, 'known': known, 'level': level}
";
    let input = json!({
        "type": "object",
        "properties": {
            "texts": {"type": "array", "items": {"type": "string"}, "description": "What to say"},
            "upper": {"type": "boolean", "default": false},
            "level": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": null},
        },
        "required": ["texts"],
    });
    save(
        &place,
        "many",
        many,
        "",
        json!({"is_async": true, "input_schema": input, "servers": {"probe": {}}}),
    );
    let python = kernel_python();
    let python = ["--python", python.to_str().unwrap()];
    let exported = actions(&place, &[&["export", "total"][..], &python].concat());
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let script = place.temporary().join("total.py");
    let source = std::fs::read_to_string(&script).unwrap();
    assert!(
        source.contains("# /// script\n") && source.contains("\"pydantic>=") && !source.contains("hunter2"),
        "{source}"
    );

    let unset = run(&place, &script, &["--a", "2"], &[]);
    let error = text(&unset.stderr);
    assert!(
        !unset.status.success() && error.contains("set the environment variable PROBE_API_KEY"),
        "{error}"
    );
    let key = [("PROBE_API_KEY", "of-the-test")];
    let done = run(&place, &script, &["--a", "2", "--b", "-1"], &key);
    let result: Value =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)));
    assert_eq!(result, serde_json::from_str::<Value>(&in_a_cell).unwrap());
    assert!(text(&done.stderr).contains("adding"));
    let by_json = run(&place, &script, &["--json", "{\"a\": 2, \"b\": -1}"], &key);
    assert_eq!(text(&by_json.stdout), text(&done.stdout));
    let wrong = run(&place, &script, &["--a", "many"], &key);
    assert!(!wrong.status.success() && wrong.stdout.is_empty(), "{}", text(&wrong.stdout));
    let help = text(&run(&place, &script, &["--help"], &[]).stdout);
    assert!(help.contains("Adds two numbers at the probe.") && help.contains("--b INTEGER"), "{help}");

    let again = actions(&place, &[&["export", "total"][..], &python].concat());
    assert!(
        !again.status.success() && text(&again.stderr).contains("`--force` replaces it"),
        "{}",
        text(&again.stderr)
    );
    assert_eq!(std::fs::read_to_string(&script).unwrap(), source);
    let forced = actions(&place, &[&["export", "total", "--force"][..], &python].concat());
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    let printed = actions(&place, &[&["export", "total", "--output", "-"][..], &python].concat());
    assert_eq!(text(&printed.stdout), source);

    let exported = actions(&place, &[&["export", "many", "-o", "m.py"][..], &python].concat());
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let script = place.temporary().join("m.py");
    let source = std::fs::read_to_string(&script).unwrap();
    assert!(source.contains("#     \"PyYAML"), "{}", &source[..600]);
    // The Python of this test does not have it.
    std::fs::write(&script, source.replace("import yaml\\n", "\\n")).unwrap();
    let flags = ["--texts", "[\"a\", \"--é\"]", "--upper", "--level", "0.5"];
    let done = run(&place, &script, &flags, &key);
    let result: Value =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)));
    assert_eq!(result["said"], json!(["A", "--É"]));
    assert_eq!(result["sums"], json!([5, 6, 7]));
    assert!(
        result["failed"].as_str().unwrap().starts_with("ToolRunnerError: ")
            && result["failed"].as_str().unwrap().ends_with("failed: no"),
        "{result}"
    );
    assert_eq!(result["known"], json!(["of-the-test", "low"]));
    assert_eq!(result["level"], 0.5);

    let unknown = actions(&place, &["export", "other"]);
    assert!(
        text(&unknown.stderr).contains("there is no such action; there are `many`, `total`"),
        "{}",
        text(&unknown.stderr)
    );
}
