//! `ipybox import`: what other clients have is registered, and the first cell of a session uses it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Place, descendants, environment, eventually, is_running, test_server};

const TOKEN: &str = "ghp_0123456789abcdefghij0123456789abcdef";

/// A home directory beside the place's workspace.
pub(super) struct Home<'a>(pub(super) &'a Place);

impl Home<'_> {
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.0.workspace().parent().unwrap().join("home").join(file)
    }

    pub(super) fn write(&self, file: &str, content: &str) {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.arg("import").args(arguments).arg("--workspace").arg(self.0.workspace());
        command.arg("--state-dir").arg(self.0.states()).env_clear().envs(environment());
        command.env("HOME", self.path("")).stdin(Stdio::null());
        command
    }

    fn import(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

/// A server with `count` tools.
pub(super) fn catalog(name: &str, count: usize, more: &[&str]) -> Value {
    let count = count.to_string();
    let script = test_server("catalog.py");
    let args = [&[script.to_str().unwrap(), name, &count], more].concat();
    json!({"command": "python3", "args": args})
}

fn with_env(mut server: Value, name: &str, value: &str) -> Value {
    server["env"] = json!({name: value});
    server
}

#[tokio::test]
async fn servers_of_several_clients_are_used_in_the_first_cell() {
    let place = Place::new();
    let home = Home(&place);
    let hub = with_env(catalog("hub", 3, &["--secret", "HUB_TOKEN"]), "HUB_TOKEN", TOKEN);
    let ours = json!({"command": "npx", "args": ["-y", "ipybox"]});
    place.write(".mcp.json", &json!({"mcpServers": {"git-hub": hub, "ipybox": ours}}).to_string());
    let cursor = json!({"mcpServers": {"git-hub": hub, "notes": catalog("notes", 2, &[])}});
    home.write(".cursor/mcp.json", &cursor.to_string());
    let script = test_server("catalog.py");
    home.write(
        ".codex/config.toml",
        &format!("[mcp_servers.notes]\ncommand = \"python3\"\nargs = [{script:?}, \"other\", \"1\"]\n"),
    );
    let (code, shown, progress) = home.import(&["--yes"]);
    assert_eq!(code, 0, "{shown}{progress}");
    for words in [
        "registered      git_hub  3 tools",
        "registered      notes  2 tools",
        "registered      notes_codex  1 tool\n",
        "Registered: 3 servers with 6 tools.",
        "secrets in clear text, to be kept apart: ${secret:git_hub.HUB_TOKEN}",
        "it is ipybox itself",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(progress.contains("notes: starting"), "{progress}");
    assert!(!(shown + &progress).contains(TOKEN));
    let servers = place.states().join("workspaces");
    let servers = std::fs::read_dir(servers).unwrap().next().unwrap().unwrap().path().join("servers.json");
    assert!(!std::fs::read_to_string(&servers).unwrap().contains(TOKEN));

    let mut ipybox = place.ipybox().await;
    let cell = "from mcptools.git_hub import hub_0\nfrom mcptools.notes_codex import other_0\n\
        print(hub_0.run(query='a'), other_0.run(query='b'), sep='\\n')";
    assert_eq!(ipybox.cell(cell).await.ok(), "hub_0: a, secret of 40\nother_0: b, secret of 0");
    let parameters =
        json!({"url": "http://127.0.0.1:9/mcp", "headers": {"X": "${secret:git_hub.HUB_TOKEN}"}});
    let refused = ipybox.register("thief", parameters).await.error();
    assert!(refused.contains("that secret is kept for a server that was imported"), "{refused}");
    ipybox.stop().await;

    let (code, shown, _) = home.import(&["--yes"]);
    assert!(code == 0 && shown.contains("Registered already: git_hub, notes, notes_codex"), "{shown}");
}

#[test]
fn nothing_is_started_or_written_unless_somebody_says_so() {
    let place = Place::new();
    let home = Home(&place);
    place.write(".mcp.json", &json!({"mcpServers": {"a": catalog("a", 1, &[])}}).to_string());
    let (code, shown, message) = home.import(&[]);
    assert!(code == 1 && shown.contains("catalog.py a 1") && message.contains("`--yes`"), "{shown}{message}");
    let (code, shown, _) = home.import(&["--dry-run", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &shown["servers"][0]["status"]), (0, &json!("offered")));
    assert_eq!(shown["servers"][0]["origins"][0]["client"], "Claude Code");
    assert!(!place.states().exists() && !place.workspace().join("mcptools").exists());
    let (code, shown, _) = Home(&Place::new()).import(&["--yes"]);
    assert!(code == 0 && shown.contains("No MCP servers are configured here"), "{shown}");
}

/// Runs a command on a terminal, and answers its questions.
const ANSWERS: &str = "
import os, pty, sys
answers = sys.argv[1].split(',')
id, terminal = pty.fork()
if id == 0:
    os.execv(sys.argv[2], sys.argv[2:])
shown = b''
while True:
    try:
        shown += os.read(terminal, 4096)
    except OSError:
        break
    if answers and shown.endswith(b': '):
        os.write(terminal, answers.pop(0).encode() + b'\\n')
print(shown.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(id, 0)[1]))
";

#[test]
fn a_user_is_asked_which_servers_and_about_their_secrets() {
    let place = Place::new();
    let home = Home(&place);
    let secret = with_env(catalog("kept", 1, &[]), "A_TOKEN", "t1t2t3t4");
    let servers = json!({"mcpServers": {"plain": catalog("plain", 1, &[]), "kept": secret}});
    place.write(".mcp.json", &servers.to_string());
    let on_terminal = |answers: &str| {
        let command = home.command(&[]);
        let mut python = Command::new("python3");
        python.args(["-c", ANSWERS, answers]).arg(command.get_program()).args(command.get_args());
        let output = python.env_clear().envs(environment()).env("HOME", home.path("")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, shown) = on_terminal("n");
    assert!(code == Some(0) && shown.contains("Import these 2? [a]ll, [c]hoose, [n]one: "), "{shown}");
    assert!(!place.states().exists());
    let (code, shown) = on_terminal("what,a,n");
    assert!(code == Some(0) && shown.contains("1 value looks like a secret"), "{shown}");
    assert!(shown.contains("Left out: kept.") && shown.contains("registered      plain  1 tool"), "{shown}");
    let (code, shown) = on_terminal("y,y");
    assert!(code == Some(0) && shown.contains("registered      kept  1 tool"), "{shown}");
}

#[test]
fn one_that_fails_does_not_hold_up_the_others() {
    let place = Place::new();
    let home = Home(&place);
    let mut slow = catalog("slow", 1, &["--slow", "100"]);
    slow["timeout"] = json!(1);
    let servers = json!({"mcpServers": {
        "slow": slow, "good": catalog("good", 2, &[]), "gone": {"command": "/nowhere/server"},
        "unset": {"command": "python3", "env": {"A": "${NOT_SET_ANYWHERE}"}}, "empty": {},
    }});
    home.write("team.json", &servers.to_string());
    let file = home.path("team.json");
    let (code, shown, message) = home.import(&["--yes", "--json", "--from", file.to_str().unwrap()]);
    assert_eq!(code, 1, "{shown}{message}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let of =
        |name: &str| shown["servers"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    assert_eq!((&of("good")["status"], &of("good")["tools"]), (&json!("registered"), &json!(2)));
    for (name, words) in
        [("slow", "did not answer"), ("gone", "was not found"), ("unset", "NOT_SET_ANYWHERE")]
    {
        let server = of(name);
        assert!(
            server["status"] == "failed" && server["error"].as_str().unwrap().contains(words),
            "{server}"
        );
    }
    assert_eq!(shown["left_out"][0]["name"], "empty");
    // What failed is named once more, where it is read last.
    let (code, shown, _) = home.import(&["--yes", "--from", file.to_str().unwrap()]);
    let last = shown.lines().last().unwrap();
    assert!(code == 1 && last.starts_with("Not registered: gone, slow, unset. "), "{shown}");
}

#[test]
fn on_a_terminal_each_server_has_a_line_that_changes() {
    let place = Place::new();
    let home = Home(&place);
    let servers =
        json!({"mcpServers": {"good": catalog("good", 2, &[]), "gone": {"command": "/nowhere/server"}}});
    place.write(".mcp.json", &servers.to_string());
    let on_terminal = |variables: &[(&str, &str)]| {
        let command = home.command(&["--replace"]);
        let mut python = Command::new("python3");
        python.args(["-c", ANSWERS, "a"]).arg(command.get_program()).args(command.get_args());
        let variables = variables.iter().copied().chain([("TERM", "xterm")]);
        let output =
            python.env_clear().envs(environment()).env("HOME", home.path("")).envs(variables).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let plain = on_terminal(&[("NO_COLOR", "1")]);
    assert!(!plain.contains('\u{1b}') && plain.contains("registered      good  2 tools"), "{plain}");
    assert!(plain.contains("ipybox: gone: starting"), "{plain}");
    let shown = on_terminal(&[]);
    assert!(shown.contains("\u{1b}[1;31mnot registered\u{1b}[0m  \u{1b}[1mgone\u{1b}[0m"), "{shown:?}");
    assert!(shown.contains("A\r\u{1b}[J") && !shown.contains("ipybox: gone: starting"), "{shown:?}");
}

#[test]
fn what_is_registered_is_kept_unless_it_is_to_be_replaced() {
    let place = Place::new();
    let home = Home(&place);
    let write = |count: usize, token: &str| {
        let server = with_env(catalog("a", count, &[]), "A_TOKEN", token);
        place.write(".mcp.json", &json!({"mcpServers": {"a": server}}).to_string());
    };
    write(1, "first-token");
    assert_eq!(home.import(&["--yes"]).0, 0);
    write(2, "second-token");
    let (code, shown, _) = home.import(&["--yes"]);
    assert!(code == 0 && shown.contains("Registered with other parameters, and kept"), "{shown}");
    assert!(!place.everything_in_states().contains("second-token"));
    let (code, shown, _) = home.import(&["--yes", "--replace", "a"]);
    assert!(code == 0 && shown.contains("registered      a  2 tools"), "{shown}");
    let states = place.everything_in_states();
    assert!(states.contains("second-token") && !states.contains("first-token"));
    let (code, _, message) = home.import(&["--yes", "b"]);
    assert!(code == 1 && message.contains("there is no such server; there are `a`"), "{message}");
}

#[tokio::test]
async fn a_signal_leaves_no_process_and_no_secret() {
    let place = Place::new();
    let home = Home(&place);
    let slow = with_env(catalog("slow", 1, &["--slow", "100"]), "A_TOKEN", "kept-for-a-moment");
    place.write(".mcp.json", &json!({"mcpServers": {"slow": slow}}).to_string());
    let mut child = home.command(&["--yes"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = i32::try_from(child.id()).unwrap();
    let command_line = |id: &i32| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let mut started = Vec::new();
    eventually("the server starts", || {
        started = descendants(id);
        started.iter().any(|id| command_line(id).contains("catalog.py"))
    })
    .await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGINT).unwrap();
    eventually("it ends", || child.try_wait().unwrap().is_some()).await;
    assert_eq!(child.wait().unwrap().code(), Some(130));
    eventually("its servers end", || !started.iter().any(|id| is_running(*id))).await;
    assert!(!place.everything_in_states().contains("kept-for-a-moment"));
}

#[test]
fn bad_input_is_named() {
    let place = Place::new();
    let home = Home(&place);
    let check = |from: &str, words: &str| {
        let (code, shown, message) = home.import(&["--yes", "--from", from]);
        assert!(code == 1 && message.contains(words) && shown.is_empty(), "{from}: {shown}{message}");
        assert!(!message.contains("s3cret"), "{message}");
    };
    check("claude-cod", "did you mean `claude-code`?");
    check("windsurf", "it has no servers here; looked for");
    assert!(home.import(&["--yes", "nothing"]).2.contains("no MCP servers are configured here"));
    check("/nowhere/mcp.json", "failed to read `/nowhere/mcp.json`: No such file");
    check(place.workspace().to_str().unwrap(), "it is not a regular file");
    home.write("bad.json", "{\"mcpServers\": {\n  \"a\": s3cret}}");
    check(home.path("bad.json").to_str().unwrap(), "line 2, column 8");
    home.write("none.json", "{\"mcpServers\": {}}");
    check(home.path("none.json").to_str().unwrap(), "servers are expected by name");
    // A client's broken file costs the servers of the others nothing.
    home.write(".cursor/mcp.json", "{");
    place.write(".mcp.json", &json!({"mcpServers": {"a": catalog("a", 1, &[])}}).to_string());
    let (code, shown, message) = home.import(&["--yes"]);
    assert!(code == 1 && shown.contains("registered      a  1 tool") && message.contains("not valid JSON"));
}
