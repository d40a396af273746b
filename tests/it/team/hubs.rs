//! Users of a team server whose kernels run at a JupyterHub, each at a server of their own.

use std::time::Instant;

use chrono::DateTime;
use serde_json::{Value, json};

use super::support::{LEGACY, TeamClient, TeamPlace, answer_in};
use crate::support::hub::Hub;
use crate::support::{PATIENCE, environment, refusing};

/// The variable with the token of the front's service at the Hub.
const VARIABLE: &str = "HUB_SERVICE_TOKEN";

/// A team server's place, with kernels at the Hub of this URL.
fn place_at(url: &str) -> TeamPlace {
    place_with(url, "")
}

/// The same with further keys of the table.
fn place_with(url: &str, more: &str) -> TeamPlace {
    let place =
        TeamPlace::new(&format!("[kernels]\nhub_url = {url:?}\nhub_token_env = {VARIABLE:?}\n{more}\n"));
    // No kernel runs on this machine.
    place.change(&format!("python = {:?}\n", place.python()), "");
    place
}

/// The tokens of a user that a team server has made.
async fn tokens(hub: &Hub, place: &TeamPlace, user: &str) -> Vec<Value> {
    let (status, body) = hub.ask("GET", &format!("users/{user}/tokens"), &Value::Null).await;
    assert_eq!(status, 200, "{body}");
    let note = format!("ipybox at http://127.0.0.1:{}/mcp (", place.port);
    let all = body["api_tokens"].as_array().unwrap().iter();
    all.filter(|token| token["note"].as_str().is_some_and(|text| text.starts_with(&note))).cloned().collect()
}

/// Waits until the team server's tokens of a user are no more than so many, and none of them is this one.
async fn until_taken_back(hub: &Hub, place: &TeamPlace, user: &str, id: &Value, most: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = tokens(hub, place, user).await;
        if left.len() <= most && left.iter().all(|token| token["id"] != *id) {
            return;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Runs a cell until it gives this: a server that has stopped is noticed a while later.
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

/// The ids of a user's sessions, and their processes.
fn sessions(place: &TeamPlace, name: &str) -> (String, Vec<Value>) {
    let key = place.user(name)["key"].as_str().unwrap().to_owned();
    let sessions = place.json(&["sessions", &key]).as_array().unwrap().clone();
    (key, sessions)
}

#[tokio::test]
async fn each_user_has_a_server_of_their_own_by_a_token_of_their_own_which_ends_with_the_session() {
    let hub = Hub::shared().await;
    let place = place_at(hub.url());
    let names = ["tia", "tom"];
    let logins = names.map(|name| place.token(name));
    let server = place.serve_in(&[(VARIABLE, hub.token_of_service("ipybox"))]);
    let [mut tia, mut tom] = [place.begun(&logins[0]).await, place.begun(&logins[1]).await];
    let code = format!(
        "import os\nx = os.environ['JUPYTERHUB_USER']\nx, [name for name, value in os.environ.items() if {:?} in value]",
        hub.token_of_service("ipybox")
    );
    // Both at once.
    let said = tokio::join!(tia.cell(&code), tom.cell(&code));
    assert_eq!((said.0.as_str(), said.1.as_str()), ("('tia', [])", "('tom', [])"));
    for (client, name) in [(&mut tia, "tia"), (&mut tom, "tom")] {
        assert_eq!(client.cell("x").await, format!("'{name}'"));
        assert_eq!(hub.server(name, "").await["ready"], true);
        let (key, sessions) = sessions(&place, name);
        let environ = std::fs::read(format!("/proc/{}/environ", sessions[0]["process"])).unwrap();
        let environ = String::from_utf8_lossy(&environ);
        assert!(
            environ.contains("IPYBOX_SESSION_TOKEN=") && !environ.contains(hub.token_of_service("ipybox"))
        );
        let made = tokens(hub, &place, name).await;
        let [token] = made.as_slice() else { panic!("{made:?}") };
        let time = |key: &str| DateTime::parse_from_rfc3339(token[key].as_str().unwrap()).unwrap();
        let life = (time("expires_at") - time("created")).num_seconds();
        assert!((3599..=3601).contains(&life), "{token}");
        let own = format!("!user={name}");
        let is_narrow = |scope: &Value| {
            let (kind, filter) = scope.as_str().unwrap().split_once('!').unwrap();
            format!("!{filter}") == own && (kind.contains("servers") || kind.starts_with("read:users:"))
        };
        assert!(token["scopes"].as_array().unwrap().iter().all(is_narrow), "{token}");
        let ids: Vec<&str> = sessions.iter().map(|session| session["id"].as_str().unwrap()).collect();
        assert!(place.run(&[&["end", key.as_str()], &ids[..]].concat()).status.success());
        hub.until(name, "", false).await;
        until_taken_back(hub, &place, name, &token["id"], 0).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn an_agent_chooses_a_named_server_of_its_user_as_the_table_says() {
    let hub = Hub::shared().await;
    let place = place_with(hub.url(), "gpu = { hub_options = { profile = \"gpu\" } }");
    // Whose servers start with this option alone.
    let login = place.token("picky-una");
    let server = place.serve_in(&[(VARIABLE, hub.token_of_service("ipybox"))]);
    let mut client = place.begun(&login).await;
    let code = "import os\n[os.environ[f'JUPYTERHUB_{name}'] for name in ('USER', 'SERVER_NAME')]";
    let arguments = json!({"code": code, "session": "new:gpu"});
    let call = json!({"name": "execute_ipython_cell", "arguments": arguments});
    let said = client.call("tools/call", call).await.to_string();
    assert!(said.contains("with a kernel of `gpu`") && said.contains("['picky-una', 'gpu']"), "{said}");
    let refused = client.cell("1").await;
    assert!(refused.contains("choose a profile"), "{refused}");
    let (key, sessions) = sessions(&place, "picky-una");
    assert!(place.run(&["end", &key, sessions[0]["id"].as_str().unwrap()]).status.success());
    hub.until("picky-una", "gpu", false).await;
    server.stop().await;
}

#[tokio::test]
async fn a_user_of_the_hub_belongs_to_the_first_login_that_claims_it() {
    let hub = Hub::shared().await;
    let place = place_at(hub.url());
    let logins = ["Kim", "kim"].map(|name| place.token(name));
    let variables = [(VARIABLE, hub.token_of_service("ipybox"))];
    let server = place.serve_in(&variables);
    let mut first = place.begun(&logins[0]).await;
    assert_eq!(first.cell("import os\nos.environ['JUPYTERHUB_USER']").await, "'kim'");
    server.kill();
    let server = place.serve_in(&variables);
    let mut second = place.client(&logins[1]);
    let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let answer = second.send("initialize", params).await.text().await.unwrap();
    let words = answer_in(&answer)["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("its user `kim` belongs to another login of this team server"), "{words}");
    let names = std::fs::read_to_string(place.path("state/hub-users.json")).unwrap();
    let names: Value = serde_json::from_str(&names).unwrap();
    assert_eq!(names, json!({"kim": {"issuer": "local", "subject": "Kim"}}));
    // The first one has noticed nothing.
    assert!(first.cell("1 + 1").await.ends_with('2'));
    server.stop().await;
}

#[tokio::test]
async fn sessions_go_on_when_their_token_was_revoked_and_when_the_hub_or_the_front_was_restarted() {
    let hub = Hub::start().await;
    let place = place_at(hub.url());
    let login = place.token("uma");
    let variables = [(VARIABLE, hub.token_of_service("ipybox"))];
    let server = place.serve_in(&variables);
    let mut client = place.begun(&login).await;
    assert_eq!(client.cell("x = 1; x").await, "1");
    let first = tokens(&hub, &place, "uma").await[0]["id"].clone();
    let id = first.as_str().unwrap();
    assert_eq!(hub.ask("DELETE", &format!("users/uma/tokens/{id}"), &Value::Null).await.0, 204);
    for part in ["hub", "proxy"] {
        hub.command(&format!("stop {part}")).await;
        hub.command(&format!("start {part}")).await;
    }
    eventually_gives(&mut client, "x", "1").await;
    // As a culler does it: the next cell has the Hub start it again.
    hub.ask("DELETE", "users/uma/server", &Value::Null).await;
    eventually_gives(&mut client, "'x' in dir()", "False").await;
    let second = tokens(&hub, &place, "uma").await;
    assert!(second.len() == 1 && second[0]["id"] != first, "{second:?}");

    client.cell("x = 2").await;
    server.kill();
    let server = place.serve_in(&variables);
    until_taken_back(&hub, &place, "uma", &second[0]["id"], 0).await;
    eventually_gives(&mut client, "x", "2").await;
    hub.ask("DELETE", "users/uma/server", &Value::Null).await;
    eventually_gives(&mut client, "'x' in dir()", "False").await;
    assert_eq!(tokens(&hub, &place, "uma").await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_hub_that_gives_no_token_is_reported_by_sessions_and_the_front_goes_on() {
    let hub = Hub::shared().await;
    let (_closed, nobody) = refusing();
    let away = format!("http://{nobody}/");
    let user = hub.user("vera").await;
    for (url, token, words) in [
        (hub.url(), "a-wrong-token", &["does not take the token", VARIABLE][..]),
        (hub.url(), user.as_str(), &["lacks the scope `tokens`"]),
        (hub.url(), hub.token_of_service("clerk"), &["has no user `will`", "`admin:users`"]),
        (away.as_str(), "any", &["the JupyterHub cannot be asked", "cannot be reached"]),
    ] {
        let place = place_at(url);
        let login = place.token("will");
        let server = place.serve_in(&[(VARIABLE, token)]);
        let mut client = place.begun(&login).await;
        let said = client.cell("1").await;
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(!said.contains(token), "{said}");
        server.stop().await;
    }
    // A user whom somebody else has made.
    let place = place_at(hub.url());
    let login = place.token("vera");
    let server = place.serve_in(&[(VARIABLE, hub.token_of_service("clerk"))]);
    assert_eq!(place.begun(&login).await.cell("1 + 1").await, "2");
    server.stop().await;
}

#[tokio::test]
async fn doctor_asks_the_hub_and_a_server_without_its_token_does_not_start() {
    let hub = Hub::shared().await;
    let place = place_at(hub.url());
    place.token("ann");
    let output = place.run(&["serve"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(&format!("`{VARIABLE}`")), "{said}");
    for (token, expected) in [
        (hub.token_of_service("clerk"), "ok      kernels\n".to_owned()),
        (
            "a-wrong-token",
            format!(
                "FAILED  kernels: the JupyterHub does not take the token in the team server's `{VARIABLE}`"
            ),
        ),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.arg("doctor").arg("--team").arg(place.path("team.toml"));
        let output = command.env_clear().envs(environment()).env(VARIABLE, token).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&expected) && !said.contains("sandbox"), "{said}");
    }
    let good = std::fs::read_to_string(place.path("team.toml")).unwrap();
    place.change("hub_token_env", "hub_user_claim");
    let said = String::from_utf8(place.run(&["users"]).stderr).unwrap();
    assert!(said.contains("`kernels.hub_token_env` is missing"), "{said}");
    std::fs::write(place.path("team.toml"), good).unwrap();
}
