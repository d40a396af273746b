//! What the program does before it serves: flags, files, greetings, refusals.

use std::process::{Command, Output, Stdio};

use crate::support::{Place, environment, repository};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command.args(arguments).env_clear().envs(environment()).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], code: i32, words: &str) {
    let output = run(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(message.contains(words), "{message}");
    assert!(output.stdout.is_empty(), "stdout is the protocol's");
}

#[test]
fn version_and_help_are_printed() {
    let version = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert_eq!(version, format!("ipybox {}\n", env!("CARGO_PKG_VERSION")));
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    for flag in ["--workspace", "--sandbox", "--log-level", "--tool-server-port", "--python", "--state-dir"] {
        assert!(help.contains(flag), "{help}");
    }
}

#[test]
fn wrong_flags_end_with_2_and_say_what_is_right() {
    refused(&["--workspaces", "x"], 2, "--workspace");
    refused(&["--log-level", "LOUD"], 2, "WARNING");
    refused(&["--tool-server-port", "70000"], 2, "70000");
}

#[test]
fn it_never_runs_unsandboxed_when_a_sandbox_was_asked_for() {
    refused(&["--approval", "ask", "--approval-policy", "x.toml"], 2, "its rules would not decide");
    refused(&["--approval", "policy"], 2, "--approval-policy");
    refused(&["--approval", "yes"], 2, "auto, ask, deny, policy");
    refused(&["--approval-timeout", "0"], 2, "positive");
    refused(&["--approval-policy", "/nowhere/policy.toml"], 1, "/nowhere/policy.toml");
    refused(&["--require-shell-escape"], 2, "--approve-shell-cmds");
    refused(&["--audit-log", "/nowhere/audit.jsonl"], 1, "/nowhere");
    refused(&["--audit-max-bytes", "0", "--audit-log", "x"], 2, "more than nothing");
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().to_str().unwrap();
    refused(&["--sandbox", "--workspace", workspace], 1, "srt: not on PATH");
    refused(&["--sandbox", "--sandbox-config", "/nonexistent", "--workspace", workspace], 1, "/nonexistent");
    refused(&["--sandbox-config", "/nonexistent"], 2, "--sandbox-config");
}

#[test]
fn no_command_uses_state_that_other_users_can_change() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = tempfile::tempdir().unwrap();
    let states = place.path().join("states");
    std::fs::create_dir(&states).unwrap();
    std::fs::set_permissions(&states, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (workspace, states) = (place.path().to_str().unwrap(), states.to_str().unwrap());
    let words = format!("run `chmod go-w '{states}'`");
    for command in [&[][..], &["--keep-session", "60"], &["servers"], &["search", "x"], &["import", "--yes"]]
    {
        let flags = ["--workspace", workspace, "--state-dir", states];
        refused(&[command, &flags[..]].concat(), 1, &words);
    }
    for command in
        [&["login", "x"][..], &["logout", "x"], &["sessions"], &["sessions", "end", "--all"], &["notebook"]]
    {
        refused(&[command, &["--state-dir", states]].concat(), 1, &words);
    }
    assert_eq!(std::fs::read_dir(states).unwrap().count(), 0);
}

#[test]
fn a_workspace_that_cannot_be_one_is_named() {
    refused(&["--workspace", "/dev/null/x"], 1, "/dev/null/x");
    refused(&["--workspace", "/dev/null"], 1, "not a directory");
}

#[test]
fn a_tool_server_is_for_this_machine_only() {
    let place = Place::new();
    let (workspace, states) = (place.workspace(), place.states());
    let flags = ["--workspace", workspace.to_str().unwrap(), "--state-dir", states.to_str().unwrap()];
    refused(&[&flags[..], &["--tool-server-host", "0.0.0.0"]].concat(), 1, "use `localhost`");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&[&flags[..], &["--tool-server-port", &port]].concat(), 1, &format!("127.0.0.1:{port}"));
}

#[test]
fn the_configuration_page_names_every_flag() {
    let page = std::fs::read_to_string(repository().join("docs/configuration.md")).unwrap();
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    for flag in help.split_whitespace().filter(|word| word.starts_with("--")) {
        let flag = flag.trim_end_matches([',', '.', ';', ']']);
        assert!(
            ["--help", "--version"].contains(&flag) || page.contains(flag),
            "{flag} is not in docs/configuration.md"
        );
    }
}

#[test]
fn an_api_is_generated_from_a_saved_list_of_tools() {
    let place = Place::new();
    let (root, list) = (place.workspace().join("mcptools"), place.workspace().join("tools.json"));
    place.write(
        "tools.json",
        r#"{"tools": [{"name": "Search-Files", "inputSchema": {"type": "object"}}, {}]}"#,
    );
    let root = root.to_str().unwrap();
    let generate =
        ["apigen", "--server-name", "files", "--root-dir", root, "--tools", list.to_str().unwrap()];
    let output = run(&generate);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "search_files\n");
    assert!(String::from_utf8(output.stderr).unwrap().contains("tool 1 was passed over"));
    assert!(place.read("mcptools/files/search_files.py").contains("\ndef run("));
    assert!(run(&[&generate[..], &["--async"]].concat()).status.success());
    assert!(place.read("mcptools/files/search_files.py").contains("\nasync def run("));
    place.write("result.txt", "Found 1:\n[{\"path\": \"a\"}]");
    let result = format!("Search-Files={}", place.workspace().join("result.txt").display());
    let infer = [&generate[..], &["--infer", &result]].concat();
    assert!(run(&infer).status.success());
    let module = place.read("mcptools/files/search_files.py");
    assert!(module.contains("\ndef run_parsed(") && module.contains("    path: str\n"), "{module}");
    refused(&[&generate[..], &["--infer", "other=tools.json"]].concat(), 1, "tools.json");
    place.write("result.txt", "none");
    refused(&infer, 1, "result 1 holds no JSON");
    refused(&[&generate[..], &["--infer", "result.txt"]].concat(), 2, "TOOL=FILE");
    assert!(run(&[&generate[..], &["--async"]].concat()).status.success());
    place.write("tools.json", r#"{"tools": []}"#);
    refused(&generate, 1, "no tools");
    place.write("tools.json", "nonsense");
    refused(&generate, 1, "tools.json");
    refused(&["apigen", "--server-name", "Files", "--root-dir", root, "--tools", "x"], 1, "Files");
    refused(&["apigen", "--server-name", "files", "--root-dir", root], 2, "--tools");
    assert!(
        place.read("mcptools/files/search_files.py").contains("\nasync def run("),
        "the old one is still there"
    );
}

#[test]
fn colours_are_for_terminals_and_for_users_who_want_them() {
    let place = tempfile::tempdir().unwrap();
    let [workspace, states] = ["workspace", "states"].map(|name| place.path().join(name));
    std::fs::create_dir(&workspace).unwrap();
    let (workspace, states) = (workspace.to_str().unwrap(), states.to_str().unwrap());
    let log = place.path().join("log");
    std::fs::write(&log, "").unwrap();
    let flags = ["--workspace", workspace, "--state-dir", states];
    for command in [
        [&["doctor"][..], &flags].concat(),
        vec!["sessions", "--state-dir", states],
        vec!["audit", log.to_str().unwrap()],
    ] {
        let shown = |variables: &[(&str, &str)]| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_ipybox"));
            program.args(&command).env_clear().envs(environment()).envs(variables.iter().copied());
            String::from_utf8(program.output().unwrap().stdout).unwrap()
        };
        let plain = shown(&[]);
        assert!(!plain.is_empty() && !plain.contains('\u{1b}'), "{command:?}: {plain}");
        assert!(!shown(&[("TERM", "xterm"), ("NO_COLOR", "1")]).contains('\u{1b}'), "{command:?}");
        let forced = shown(&[("CLICOLOR_FORCE", "1")]);
        assert_eq!(forced.contains('\u{1b}'), command[0] != "sessions", "{command:?}: {forced}");
    }
}

#[test]
fn help_has_its_flags_under_headings() {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    let mut headings = help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' '));
    for heading in ["Session", "Sandbox", "Kernel on a Jupyter server", "Answers", "MCP servers", "Approval"]
    {
        assert!(headings.any(|line| line == format!("{heading}:")), "{heading}: {help}");
    }
    let (_, options) = help.split_once("\nOptions:\n").unwrap();
    let (options, _) = options.split_once("\n\n").map_or((options, ""), |(options, rest)| (options, rest));
    assert!(!options.contains("--workspace"), "{options}");
}

#[test]
fn lists_without_entries_say_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let [workspace, states] = ["workspace", "states"].map(|name| place.path().join(name));
    std::fs::create_dir(&workspace).unwrap();
    let (workspace, states) = (workspace.to_str().unwrap(), states.to_str().unwrap());
    let shown = |arguments: &[&str]| {
        let output = run(&[arguments, &["--state-dir", states]].concat());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    assert!(shown(&["servers", "--workspace", workspace]).contains("`ipybox import`"));
    assert!(shown(&["sessions"]).contains("`--keep-session 30m`"));
    assert!(shown(&["sessions", "end", "--all"]).contains("no session was ended"));
}
