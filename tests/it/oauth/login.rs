//! `ipybox login`, `logout` and `servers`.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::*;
use crate::support::{Place, eventually, free_port, is_running, probe};

#[tokio::test]
async fn from_nothing_to_a_tool_call() {
    let (place, behind) = (Place::new(), Behind::sdk(&[]));
    let mut ipybox = session(&place).await;
    let refused = ipybox.register("notes", json!({"url": behind.url})).await.error();
    let flags =
        format!("--workspace {} --state-dir {}", place.workspace().display(), place.states().display());
    assert!(refused.contains(&format!("let the user run `ipybox login notes {flags}`")), "{refused}");
    let listed = run(&place, &["servers"]).await;
    assert!(
        text(&listed).contains(&format!("notes: {} (not registered, login needed)", behind.url)),
        "{}",
        text(&listed)
    );
    log_in(&place, "notes").await;
    ipybox.register("notes", json!({"url": behind.url})).await.ok();
    let called = ipybox.cell("from mcptools.notes import echo\necho.run(text='hello')").await.ok();
    assert!(called.contains("hello"), "{called}");
    let listed = run(&place, &["servers", "--json"]).await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed[0]["login"]["is_logged_in"], true, "{listed}");
    assert_eq!(listed[0]["login"]["is_renewed"], true, "{listed}");
    // PKCE and the resource are asked for, and the token is for the server alone.
    let authorized = behind.log().await;
    let authorize =
        authorized["requests"].as_array().unwrap().iter().find(|request| request["path"] == "/authorize");
    let query = &authorize.unwrap()["query"];
    assert_eq!((&query["code_challenge_method"], &query["resource"]), (&json!("S256"), &json!(behind.url)));
    // Neither the workspace, nor the kernel, nor the log have a token; the state directory is for the user alone.
    let seen = ipybox.cell("import os\nprint(dict(os.environ))").await.ok();
    has_no_token(&authorized, &(seen + &ipybox.log() + &everything_below(&place.workspace())));
    let mode = std::fs::metadata(secrets(&place)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    ipybox.stop().await;
}

/// The file with the tokens.
fn secrets(place: &Place) -> std::path::PathBuf {
    let workspaces = std::fs::read_dir(place.states().join("workspaces")).unwrap();
    workspaces.flatten().next().unwrap().path().join("secrets.json")
}

#[tokio::test]
async fn a_login_comes_before_or_after_the_registration_and_can_be_forgotten() {
    let (place, behind) = (Place::new(), Behind::sdk(&[]));
    log_in(&place, &behind.url).await;
    let mut ipybox = session(&place).await;
    ipybox.register("notes", json!({"url": behind.url})).await.ok();
    let tried = run(&place, &["servers", "test", "notes"]).await;
    assert!(text(&tried).starts_with("`notes` answers, and has "), "{}", text(&tried));
    let forgotten = run(&place, &["logout", "notes"]).await;
    assert_eq!(text(&forgotten), "The login to `notes` is forgotten.\n");
    assert_eq!(text(&run(&place, &["logout", "notes"]).await), "The login to `notes` was not there.\n");
    ipybox.reset().await;
    let refused = ipybox.cell("from mcptools.notes import echo\necho.run(text='x')").await.error();
    assert!(refused.contains("`ipybox login notes "), "{refused}");
    let removed = run(&place, &["servers", "remove", "notes"]).await;
    assert!(removed.status.success(), "{}", text(&removed));
    assert!(!place.workspace().join("mcptools/notes").exists());
    ipybox.stop().await;
}

#[tokio::test]
async fn a_pasted_address_logs_in_where_there_is_no_browser() {
    let (place, behind) = (Place::new(), Behind::sdk(&[]));
    let mut child = command(&place, &["login", &behind.url, "--no-browser"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    while !printed.trim().starts_with("http") {
        printed.clear();
        assert!(lines.read_line(&mut printed).unwrap() > 0, "no URL is printed");
    }
    // The page as a browser on another machine: it ends at an address that it cannot open.
    let client = http();
    let mut url = printed.trim().to_owned();
    while !url.starts_with("http://localhost") || !url.contains("/callback") || url.contains("/authorize") {
        let response = client.get(&url).send().await.unwrap();
        let next = response.headers()["location"].to_str().unwrap().to_owned();
        url = reqwest::Url::parse(&url).unwrap().join(&next).unwrap().to_string();
    }
    writeln!(child.stdin.as_ref().unwrap(), "{url}").unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[tokio::test]
async fn what_is_pasted_wrongly_is_refused() {
    let (place, behind) = (Place::new(), Behind::sdk(&[]));
    for pasted in ["nonsense\n", "http://localhost/callback?code=x&state=y\n"] {
        let output = run_with(&place, &["login", &behind.url, "--no-browser"], pasted).await;
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("paste the whole address"), "{}", text(&output));
    }
    let silent = run_with(&place, &["login", &behind.url, "--no-browser", "--timeout", "1"], "").await;
    assert!(text(&silent).contains("nobody has logged in within 1 s"), "{}", text(&silent));
}

#[tokio::test]
async fn names_and_addresses_that_are_wrong_are_named() {
    let place = Place::new();
    let check = async |words: &[&str], expected: &str| {
        let output = run(&place, words).await;
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(expected), "{}", text(&output));
    };
    check(&["login", "nothing"], "find the MCP server `nothing`: no server is registered in this workspace")
        .await;
    check(&["login", "ftp://localhost/mcp"], "use `ftp://localhost/mcp` as the URL of an MCP server").await;
    check(&["login", "http://127.0.0.1:1/mcp"], "Connection refused").await;
    check(&["login", "http://example.com/mcp"], "not encrypted").await;
    let mut ipybox = session(&place).await;
    ipybox.register("probe", probe()).await.ok();
    check(&["login", "prob"], "did you mean `probe`?").await;
    check(&["login", "probe"], "the server has no login").await;
    check(&["servers", "test", "nothing"], "registered are `probe`").await;
    check(&["servers", "remove", "nothing"], "registered are `probe`").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_without_a_login_says_so() {
    let (place, hub) = (Place::new(), Behind::start(open_server()));
    fails(&place, &hub.url, "the server answers without a login").await;
}

fn open_server() -> Command {
    let code = "import json, socket, uvicorn\nfrom mcp.server.fastmcp import FastMCP\n\
                s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(64)\n\
                print(json.dumps({'url': f'http://127.0.0.1:{s.getsockname()[1]}/mcp'}), flush=True)\n\
                uvicorn.run(FastMCP('open').streamable_http_app(), fd=s.fileno(), log_level='error')";
    let mut command = Command::new(tool("mcp1/bin/python"));
    command.args(["-c", code]);
    command
}

#[tokio::test]
async fn a_registered_client_logs_in_with_its_secret_and_its_redirect_uri() {
    let port = free_port();
    let redirect = format!("http://localhost:{port}/callback");
    let client = ["--client-id", "me", "--client-secret", "s3cret-of-mine", "--redirect-uri", &redirect];
    let behind = Behind::sdk(&[client.as_slice(), &["--fault", "no-dcr"]].concat());
    let place = Place::new();
    place.write(".env", "OAUTH_SECRET=s3cret-of-mine\n");
    fails(&place, &behind.url, "register a client there by hand").await;
    let oauth = json!({"clientId": "me", "client_secret": "${OAUTH_SECRET}", "redirect_uri": redirect});
    let parameters = json!({"url": behind.url, "oauth": oauth});
    let mut ipybox = session(&place).await;
    ipybox.register("notes", parameters.clone()).await.error();
    log_in(&place, "notes").await;
    ipybox.register("notes", parameters).await.ok();
    let called = ipybox.cell("from mcptools.notes import whoami\nwhoami.run()").await.ok();
    assert!(called.contains("me"), "{called}");
    assert!(!place.everything_in_states().contains("s3cret-of-mine"), "the secret is in the state directory");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_complete_authorization_server_and_a_real_browser() {
    let behind = Behind::oidc(&["--consent", "form", "--token-lifetime", "4"]);
    let place = Place::new();
    let script = repository().join("tests/conformance/chromium.mjs");
    let (node, packages) = (tool("bin/node"), tool("npm"));
    let chromium = format!("{} {} --packages {}", node.display(), script.display(), packages.display());
    let mut login = command(&place, &["login", &behind.url]);
    login.env("BROWSER", chromium);
    let output = tokio::task::spawn_blocking(move || login.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let mut ipybox = session(&place).await;
    ipybox.register("notes", json!({"url": behind.url})).await.ok();
    // The token expires meanwhile, and the refresh token is rotated.
    let code = "import time\nfrom mcptools import notes\nfrom mcptools.notes import whoami\n\
                for _ in range(3):\n    print(whoami.run())\n    time.sleep(3)";
    let called = ipybox.cell(code).await.ok();
    assert_eq!(called.lines().count(), 3, "{called}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_login_that_is_cancelled_leaves_nothing_behind() {
    let (place, behind) = (Place::new(), Behind::sdk(&[]));
    let mut child = command(&place, &["login", &behind.url, "--no-browser"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let id = i32::try_from(child.id()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGINT).unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(!ended.success());
    eventually("the process is gone", || !is_running(id)).await;
}
