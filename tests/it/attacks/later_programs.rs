//! Programs that the host starts when no sandbox runs any more, in a workspace where code in one has been: they take nothing from
//! it either.

use serde_json::{Value, json};

use super::host::{Backend, Host, User};
use super::host_programs::{LIMIT, PLANT, calls, honest, plant_programs, ran};
use crate::support::{Ipybox, equipped};

/// Has code in a sandbox plant what later programs might take, and register a server before that.
async fn plant(host: &Host, path: &str, honest: Value) {
    let mut ipybox = host.start_on(path);
    ipybox.initialize().await;
    ipybox.register("honest", honest).await.ok();
    ipybox.cell(&format!("outside = {:?}\n{PLANT}", host.outside())).await.ok();
    ipybox.stop().await;
}

/// The commands that start servers: each with what it has to say.
fn commands(host: &Host, honest: &Value) -> Vec<(Vec<String>, bool, &'static str)> {
    let planted = json!({"command": "npx", "args": ["-y", "--offline", "planted-server"], "timeout": LIMIT});
    let inside = json!({"command": host.workspace().join("tool")});
    let by_npx = |line: &str| json!({"command": "npx", "args": ["--offline", "-c", line], "timeout": LIMIT});
    let servers = json!({"mcpServers": {"again": honest, "planted": planted, "inside": inside, "json": by_npx("json"),
        "relative": {"command": "./tool"}, "script": {"command": "python3", "args": ["json.py"]}}});
    let file = host.outside().join("servers.json");
    std::fs::write(&file, servers.to_string()).unwrap();
    let root = host.outside().join("generated");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (file, root) = (file.to_str().unwrap(), root.to_str().unwrap());
    let apigen = |parameters: &Value| {
        words(&[
            "apigen",
            "--server-name",
            "s",
            "--root-dir",
            root,
            "--server-params",
            &parameters.to_string(),
        ])
    };
    vec![
        (words(&["servers", "test", "honest"]), true, "answers"),
        (words(&["import", "--from", file, "--yes", "--connect-timeout", "280"]), false, "again"),
        (words(&["servers", "test", "again"]), true, "answers"),
        (words(&["servers", "test", "planted"]), false, "planted"),
        (apigen(honest), true, "echo"),
        (apigen(&planted), false, ""),
        (apigen(&inside), false, "could in an earlier session"),
        (apigen(&json!({"command": "python3", "args": ["json.py"]})), false, "a relative path"),
    ]
}

/// A session without a sandbox in the same workspace.
async fn session(host: &Host, path: &str) -> Vec<String> {
    let mut ipybox: Ipybox = host.start_without_sandbox(path);
    ipybox.initialize().await;
    let mut through: Vec<String> = calls(&mut ipybox, "honest").await.into_iter().collect();
    through.extend(ran(host, "a server of a session without a sandbox"));
    let answer = ipybox.register("inside", json!({"command": host.workspace().join("tool")})).await;
    if !answer.is_error || !answer.text.contains("could in an earlier session") {
        through.push(format!("a planted program is not refused: {}", answer.text));
    }
    ipybox.stop().await;
    through
}

async fn everything(backend: Backend, user: User) -> String {
    let Some(host) = Host::new(backend, user) else { return String::new() };
    plant_programs(&host);
    let honest = honest(&host);
    let path = format!("{}:bin::{}", host.workspace().join("bin").display(), equipped());
    plant(&host, &path, honest.clone()).await;
    let mut through = ran(&host, "at the end of the sandbox");
    for (words, succeeds, expected) in commands(&host, &honest) {
        let output = host.run(&path, &words);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if output.status.success() != succeeds || !said.contains(expected) {
            through.push(format!("{words:?} ended with {}: {said}", output.status));
        }
        through.extend(ran(&host, &words.join(" ")));
    }
    through.extend(session(&host, &path).await);
    through.extend(ran(&host, "at the end"));
    if through.is_empty() { String::new() } else { format!("{backend:?} {user:?}:\n{}", through.join("\n")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_and_later_sessions_take_nothing_from_a_workspace_in_which_code_has_been() {
    let both = [(Backend::Srt, User::Root), (Backend::Bubblewrap, User::Ordinary)];
    let both = both.map(|(backend, user)| tokio::spawn(everything(backend, user)));
    let mut failed: Vec<String> =
        futures::future::join_all(both).await.into_iter().map(Result::unwrap).collect();
    failed.retain(|failed| !failed.is_empty());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
