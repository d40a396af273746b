//! Users of a team server whose kernels run in sandboxes of a cluster, which the server claims for them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::support::{TeamClient, TeamPlace};
use crate::support::cluster::Cluster;
use crate::support::{PATIENCE, environment, eventually};

/// The variable with the file of the cluster's credentials.
const VARIABLE: &str = "KUBECONFIG";
const USER: &str = "ipybox-rs.github.io/user";

/// A team server's place, with kernels of the pool `python` and these further keys.
fn place_with(more: &str) -> TeamPlace {
    let place = TeamPlace::new(&format!("[kernels]\npool = \"python\"\n{more}\n"));
    // No kernel runs on this machine.
    place.change(&format!("python = {:?}\n", place.python()), "");
    place
}

/// A user's key, and the processes of the user's sessions.
fn sessions(place: &TeamPlace, name: &str) -> (String, Vec<Value>) {
    let key = place.user(name)["key"].as_str().unwrap().to_owned();
    let sessions = place.json(&["sessions", &key]).as_array().unwrap().clone();
    (key, sessions)
}

fn end_sessions(place: &TeamPlace, name: &str) {
    let (key, sessions) = sessions(place, name);
    let ids: Vec<&str> = sessions.iter().map(|session| session["id"].as_str().unwrap()).collect();
    assert!(place.run(&[&["end", key.as_str()], &ids[..]].concat()).status.success());
}

/// The variables of a process.
fn variables(process: &Value) -> String {
    String::from_utf8(std::fs::read(format!("/proc/{process}/environ")).unwrap()).unwrap()
}

fn end_of(claim: &Value) -> &str {
    claim["spec"]["lifecycle"]["shutdownTime"].as_str().unwrap()
}

fn label<'a>(claim: &'a Value, name: &str) -> &'a Value {
    &claim["metadata"]["labels"][name]
}

/// Runs a cell until it gives this: a front that was killed is noticed a while later.
async fn eventually_gives(client: &mut TeamClient, code: &str, expected: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = client.cell(code).await;
        if said.ends_with(expected) {
            return;
        }
        assert!(Instant::now() < deadline, "{said}");
    }
}

/// A program with a user's id and with the token of one of the user's sessions, as each MCP server of the user is one, which
/// asks the team server for a sandbox.
struct UserProgram {
    child: Child,
    output: BufReader<ChildStdout>,
}

const ASKING: &str = r#"
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    for line in sys.argv[2:]:
        connection.sendall(line.encode() + b"\n")
    for answer in connection.makefile():
        print(answer, end="", flush=True)
    sys.stdin.read()
"#;

impl UserProgram {
    fn start(place: &TeamPlace, name: &str, question: &Value) -> Self {
        let environ = variables(&sessions(place, name).1[0]["process"]);
        let token = environ.split('\0').find_map(|line| line.strip_prefix("IPYBOX_SESSION_TOKEN=")).unwrap();
        let greeting = json!({"want": "sandbox", "token": token, "session": "0123abcd"});
        let mut command = become_user(place, name);
        command.arg(place.python()).args(["-c", ASKING]).arg(place.path("state/approvals/socket"));
        command.arg(greeting.to_string()).arg(question.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The last answer.
    fn answer(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "there is no answer");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer.get("report").is_none() {
                return answer;
            }
        }
    }

    fn end(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The answer to a question of a program that ends then.
fn ask(place: &TeamPlace, name: &str, question: &Value) -> Value {
    let mut program = UserProgram::start(place, name, question);
    let answer = program.answer();
    program.end();
    answer
}

/// A command that runs a program with a user's id, as the server does.
fn become_user(place: &TeamPlace, name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command.args(["team", "become"]);
    command.args(place.user(name)["id"].as_u64().map(|id| format!("--id={id}"))).arg("--");
    command.env_clear().envs(environment()).current_dir("/");
    command
}

#[tokio::test]
async fn each_user_has_a_sandbox_of_their_own_and_no_credentials_until_the_session_ends() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 2).await;
    let place = place_with("");
    let credentials = cluster.kubeconfig();
    let names = ["tia", "tom"];
    let logins = names.map(|name| place.token(name));
    let server = place.serve_in(&[(VARIABLE, credentials.to_str().unwrap())]);
    let [mut tia, mut tom] = [place.begun(&logins[0]).await, place.begun(&logins[1]).await];
    let said = tokio::join!(tia.cell("x = 'tia'; x"), tom.cell("x = 'tom'; x"));
    assert_eq!((said.0.as_str(), said.1.as_str()), ("'tia'", "'tom'"));
    let claims = cluster.claims().await;
    assert_eq!(claims.len(), 2, "{claims:?}");
    assert_ne!(claims[0]["status"]["sandbox"]["name"], claims[1]["status"]["sandbox"]["name"]);
    for (client, name) in [(&mut tia, "tia"), (&mut tom, "tom")] {
        assert_eq!(client.cell("x").await, format!("'{name}'"));
        let (key, sessions) = sessions(&place, name);
        let own = claims.iter().find(|claim| *label(claim, USER) == key).unwrap();
        assert_eq!(*label(own, "app.kubernetes.io/managed-by"), "ipybox");
        assert_eq!(*label(own, "app.kubernetes.io/instance"), format!("127.0.0.1_{}", place.port));
        let environ = variables(&sessions[0]["process"]);
        assert!(environ.contains("IPYBOX_SESSION_TOKEN=") && !environ.contains(VARIABLE), "{environ}");
        if !place.user(name)["id"].is_null() {
            let read = become_user(&place, name).arg("cat").arg(&credentials).output().unwrap();
            let said = String::from_utf8(read.stderr).unwrap();
            assert!(read.stdout.is_empty() && said.contains("Permission denied"), "{said}");
        }
    }
    end_sessions(&place, "tia");
    let left = cluster.until_claims(|claims| claims.len() == 1).await;
    assert_eq!(*label(&left[0], USER), place.user("tom")["key"]);
    // Its variables were saved.
    eventually_gives(&mut tia, "x", "'tia'").await;
    // A session that cannot say so.
    let process = sessions(&place, "tom").1[0]["process"].as_i64().unwrap();
    let process = nix::unistd::Pid::from_raw(i32::try_from(process).unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).unwrap();
    let tom = place.user("tom")["key"].clone();
    cluster.until_claims(|claims| claims.iter().all(|claim| *label(claim, USER) != tom)).await;
    server.stop().await;
}

#[tokio::test]
async fn sessions_keep_their_sandbox_when_the_front_ends_and_starts_again() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let place = place_with("");
    let login = place.token("uma");
    let credentials = cluster.kubeconfig();
    let variables = [(VARIABLE, credentials.to_str().unwrap())];
    let server = place.serve_in(&variables);
    let mut client = place.begun(&login).await;
    assert_eq!(client.cell("x = 1; x").await, "1");
    let first = cluster.claims().await[0].clone();
    let is_later = |end: &Value| {
        let (name, end) = (first["metadata"]["name"].clone(), end_of(end).to_owned());
        move |claims: &[Value]| {
            claims.len() == 1 && claims[0]["metadata"]["name"] == name && end_of(&claims[0]) > end.as_str()
        }
    };
    server.kill();
    let server = place.serve_in(&variables);
    let second = cluster.until_claims(is_later(&first)).await;
    eventually_gives(&mut client, "x += 1; x", "2").await;
    server.stop().await;
    assert_eq!(cluster.claims().await.len(), 1);
    let server = place.serve_in(&variables);
    cluster.until_claims(is_later(&second[0])).await;
    eventually_gives(&mut client, "x += 1; x", "3").await;
    // A session that ends has the new server delete what an earlier one has claimed.
    end_sessions(&place, "uma");
    cluster.until_claims(<[Value]>::is_empty).await;
    server.stop().await;
}

#[tokio::test]
async fn a_user_has_no_more_sandboxes_of_a_kernel_than_the_table_says_also_after_a_restart() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 2).await;
    let place = place_with("gpu = { pool = \"python\", max = 1 }");
    let credentials = cluster.kubeconfig();
    let variables = [(VARIABLE, credentials.to_str().unwrap())];
    let logins = ["vic", "wim"].map(|name| place.token(name));
    let server = place.serve_in(&variables);
    let mut vic = place.begun(&logins[0]).await;
    for client in [&mut vic, &mut place.begun(&logins[1]).await] {
        assert_eq!(client.cell("1").await, "1");
    }
    // As an agent chooses it.
    let chosen = |session: &str| json!({"name": "execute_ipython_cell", "arguments": {"code": "2", "session": session}});
    let new = vic.call("tools/call", chosen("new:gpu")).await.to_string();
    assert!(new.contains("with a kernel of `gpu`"), "{new}");
    let second = vic.call("tools/call", chosen("new:gpu")).await.to_string();
    assert!(second.contains("`kernels.gpu.max`") && second.contains("at a time: 1"), "{second}");
    let handle = new.split("New session `").nth(1).unwrap().split('`').next().unwrap();
    let end = json!({"name": "reset", "arguments": {"session": handle, "end": true}});
    vic.call("tools/call", end).await;
    let gpu = json!({"claim": {"kernel": "gpu"}});
    let refused = |answer: Value| {
        let words = answer["refused"].as_str().unwrap_or_else(|| panic!("{answer}"));
        for part in ["with the kernel `gpu`", "`kernels.gpu.max`", "at a time: 1", "`reset`"] {
            assert!(words.contains(part), "{words}");
        }
    };
    let mut first = UserProgram::start(&place, "vic", &gpu);
    let answer = first.answer();
    let claim = answer["sandbox"]["claim"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let made = cluster.claims().await;
    let made = made.iter().find(|made| made["metadata"]["name"] == claim).unwrap();
    assert_eq!(*label(made, "ipybox-rs.github.io/kernel"), "gpu");
    refused(ask(&place, "vic", &gpu));
    let unknown = ask(&place, "vic", &json!({"claim": {"kernel": "tpu"}}));
    assert!(unknown["refused"].as_str().unwrap().contains("`tpu`; there is `gpu`"), "{unknown}");
    server.kill();
    first.end();
    let server = place.serve_in(&variables);
    // Nobody has resumed it, and it counts.
    refused(ask(&place, "vic", &gpu));
    let resume = json!({"resume": {"claim": claim, "kernel": "gpu"}});
    let foreign = ask(&place, "wim", &resume);
    assert!(foreign["refused"].as_str().unwrap().contains("no claim"), "{foreign}");
    let other = ask(&place, "vic", &json!({"resume": {"claim": claim}}));
    assert!(other["refused"].as_str().unwrap().contains("no claim"), "{other}");
    let mut again = UserProgram::start(&place, "vic", &resume);
    assert_eq!(again.answer(), json!({ "resumed": claim }));
    refused(ask(&place, "vic", &gpu));
    again.end();
    cluster.until_claims(|claims| claims.iter().all(|left| left["metadata"]["name"] != claim)).await;
    let deadline = Instant::now() + PATIENCE;
    // The answer to the deletion may come after it.
    while ask(&place, "vic", &gpu).get("sandbox").is_none() {
        assert!(Instant::now() < deadline);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_nobody_uses_has_no_sandbox_and_its_variables_come_back() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let place = place_with("idle_timeout = \"2s\"");
    let login = place.token("zoe");
    let server = place.serve_in(&[(VARIABLE, cluster.kubeconfig().to_str().unwrap())]);
    let mut client = place.begun(&login).await;
    assert_eq!(client.cell("kept = 41; kept").await, "41");
    cluster.until_claims(<[Value]>::is_empty).await;
    let back = client.cell("kept + 1").await;
    assert!(back.ends_with("42") && back.contains("its sandbox was deleted with its files"), "{back}");
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_with_a_volume_is_suspended_and_woken_by_whichever_front_there_is() {
    let cluster = Cluster::start().await;
    let volume = tempfile::tempdir().unwrap();
    cluster.make_pool_with_volume("python", volume.path()).await;
    let place = place_with("idle_timeout = \"2s\"");
    let login = place.token("ada");
    let credentials = cluster.kubeconfig();
    let variables = [(VARIABLE, credentials.to_str().unwrap())];
    let server = place.serve_in(&variables);
    let mut client = place.begun(&login).await;
    let code = "from pathlib import Path\nkept = 41\nPath('a.txt').write_text('a'); 1";
    assert_eq!(client.cell(code).await, "1");
    let claim = cluster.claims().await[0].clone();
    cluster.until_suspended(&claim).await;
    let back = client.cell("print(kept + 1, Path('a.txt').read_text())").await;
    assert!(back.contains("42 a") && back.contains("its sandbox was suspended"), "{back}");
    cluster.until_suspended(&claim).await;
    server.kill();
    let server = place.serve_in(&variables);
    eventually_gives(&mut client, "print(kept + 2, Path('a.txt').read_text())", "43 a").await;
    let again = cluster.claims().await;
    assert_eq!(again[0]["metadata"]["uid"], claim["metadata"]["uid"]);
    // Somebody else may delete it meanwhile.
    cluster.until_suspended(&claim).await;
    cluster.delete_claim(claim["metadata"]["name"].as_str().unwrap()).await;
    cluster.until_claims(<[Value]>::is_empty).await;
    let without = client.cell("kept + 3").await;
    assert!(without.ends_with("44") && without.contains("its files are gone"), "{without}");
    server.stop().await;
}

#[tokio::test]
async fn an_evicted_pod_is_noticed_by_the_word_of_the_cluster() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let place = place_with("");
    let login = place.token("eve");
    let server = place.serve_in(&[(VARIABLE, cluster.kubeconfig().to_str().unwrap())]);
    let mut client = place.begun(&login).await;
    assert_eq!(client.cell("kept = 41; kept").await, "41");
    let claim = cluster.claims().await[0].clone();
    let evict = json!({"fault": "evict", "namespace": "default", "pod": claim["status"]["sandbox"]["name"]});
    // The pod is a process of this machine.
    let directory = tempfile::tempdir().unwrap();
    let begun = directory.path().join("begun");
    let code =
        format!("import time\nopen({begun:?}, 'w').close()\nfor _ in range(6000):\n    time.sleep(0.1)");
    let cell = client.cell(&code);
    let evicting = async {
        eventually("the cell runs", || begun.exists()).await;
        cluster.fault(evict).await;
    };
    let (lost, ()) = tokio::join!(cell, evicting);
    assert!(lost.contains("the pod of the sandbox has ended"), "{lost}");
    let next = client.cell("1").await;
    assert!(next.ends_with("\n1"), "{next}");
    server.stop().await;
}

#[tokio::test]
async fn sessions_reach_their_sandboxes_through_the_router_with_its_token() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let place =
        place_with(&format!("router_url = {:?}\nrouter_token_env = \"ROUTER_TOKEN\"", cluster.router()));
    let login = place.token("xia");
    let credentials = cluster.kubeconfig();
    let variables = [(VARIABLE, credentials.to_str().unwrap()), ("ROUTER_TOKEN", cluster.router_token())];
    let server = place.serve_in(&variables);
    assert_eq!(place.begun(&login).await.cell("1 + 1").await, "2");
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_that_gives_nothing_is_reported_by_sessions_and_the_front_goes_on() {
    let cluster = Cluster::start().await;
    cluster.make_pool_of("slow", 0, &["sleep", "100000"]).await;
    let credentials = cluster.kubeconfig();
    for (pool, words) in [
        ("python", &["it has `slow`"][..]),
        ("slow", &["not ready after 20 seconds", "`claim_timeout` in `[kernels]`"]),
    ] {
        let place = place_with("claim_timeout = \"20s\"");
        place.change("pool = \"python\"", &format!("pool = {pool:?}"));
        let login = place.token("yan");
        let server = place.serve_in(&[(VARIABLE, credentials.to_str().unwrap())]);
        let said = place.begun(&login).await.cell("1").await;
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        cluster.until_claims(<[Value]>::is_empty).await;
        server.stop().await;
    }
}

/// The report of `ipybox doctor` about a team server with these credentials.
fn doctor(place: &TeamPlace, credentials: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command.arg("doctor").arg("--team").arg(place.path("team.toml"));
    let output = command.env_clear().envs(environment()).env(VARIABLE, credentials).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn doctor_tries_the_cluster_and_a_server_without_credentials_of_its_own_does_not_start() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 0).await;
    let place = place_with("gpu = { pool = \"python\" }");
    place.token("ann");
    let good = doctor(&place, &cluster.kubeconfig());
    assert!(good.contains("ok      kernels\n") && !good.contains("sandbox"), "{good}");
    let group = "extensions.agents.x-k8s.io";
    let all = ["create", "list", "watch", "patch", "delete"];
    for missing in all {
        let verbs: Vec<_> = all.iter().filter(|verb| **verb != missing).collect();
        let rules = json!([{"apiGroups": [group], "resources": ["sandboxclaims"], "verbs": verbs}]);
        let credentials = cluster.kubeconfig_of(&format!("no-{missing}"), &rules).await;
        let said = doctor(&place, &credentials);
        let right = format!("{{apiGroups: [{group}], resources: [sandboxclaims], verbs: [{missing}]}}");
        assert!(said.contains("FAILED  kernels: ") && said.contains(&right), "{said}");
    }
    assert!(cluster.claims().await.is_empty());
    place.change("gpu = { pool = \"python\" }", "gpu = { pool = \"large\" }");
    let said = doctor(&place, &cluster.kubeconfig());
    assert!(said.contains("`large`") && said.contains("it has `python`"), "{said}");

    let serve = |credentials: &Path| {
        let output = place.command(&["serve"]).env(VARIABLE, credentials).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = serve("/nonexistent".as_ref());
    assert!(said.contains("`kernels.pool`") && said.contains("/nonexistent"), "{said}");
    if rustix::process::geteuid().is_root() {
        // In a directory that users pass through to what is theirs.
        let open = place.path("kubeconfig");
        std::fs::copy(cluster.kubeconfig(), &open).unwrap();
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let said = serve(&open);
        assert!(said.contains("all users of the system can read"), "{said}");
    }
    for (key, words) in [
        ("pull = \"a\"", "unknown field `pull`"),
        ("new = { pool = \"a\" }", "`new` is no name of a kernel"),
        ("hub_token_env = \"A\"", "`kernels.hub_token_env` is about a JupyterHub"),
    ] {
        let wrong = place_with(key);
        let said = String::from_utf8(wrong.run(&["users"]).stderr).unwrap();
        assert!(said.contains(words), "{said}");
        wrong.change(key, "");
    }
}
