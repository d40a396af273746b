//! Kernels on the servers of a JupyterHub's users: how they are found, started, lost and stopped.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::jupyter_servers::proxy;
use crate::support::hub::{Hub, SCOPES};
use crate::support::{Answer, Ipybox, PATIENCE, Place, Reply, eventually, probe, refusing};

/// ipybox with kernels on a user's server, initialized.
async fn start(place: &Place, hub: &Hub, token: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = place.start_at_hub(&[], hub, token, flags, &[]);
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    ipybox
}

/// Starts a cell whose progress is heard.
async fn start_heard_cell(ipybox: &mut Ipybox, code: &str) -> Reply {
    let arguments = json!({"code": code});
    let params =
        json!({"name": "execute_ipython_cell", "arguments": arguments, "_meta": {"progressToken": 1}});
    ipybox.request("tools/call", params).await
}

async fn hears(ipybox: &Ipybox, words: &str) {
    let is_heard = || ipybox.progress().iter().any(|message| message.contains(words));
    eventually(&format!("`{words}` is heard"), is_heard).await;
}

/// Runs a cell until it succeeds: a server that stops is noticed a while later.
async fn eventually_ok(ipybox: &mut Ipybox, code: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer: Answer = ipybox.cell(code).await;
        if !answer.is_error {
            return answer.ok();
        }
        assert!(Instant::now() < deadline, "{}", answer.error());
    }
}

#[tokio::test]
async fn each_user_has_a_server_of_their_own_which_ends_with_the_session() {
    let hub = Hub::shared().await;
    let places = [Place::new(), Place::new()];
    let tokens = [hub.user("anna").await, hub.user("ben").await];
    let mut anna = start(&places[0], hub, &tokens[0], &[]).await;
    let mut ben = start(&places[1], hub, &tokens[1], &[]).await;
    anna.cell("x = 1").await.ok();
    ben.cell("x = 2").await.ok();
    let code = "import os\nos.environ['JUPYTERHUB_USER'], x, 'HUB_TOKEN_OF_TESTS' in os.environ, \
        [name for name, value in os.environ.items() if value == TOKEN]";
    for (ipybox, token, expected) in
        [(&mut anna, &tokens[0], "('anna', 1, False, [])"), (&mut ben, &tokens[1], "('ben', 2, False, [])")]
    {
        assert_eq!(ipybox.cell(&code.replace("TOKEN]", &format!("{token:?}]"))).await.ok(), expected);
        assert!(!ipybox.log().contains(token.as_str()));
    }
    anna.stop().await;
    hub.until("anna", "", false).await;
    assert_eq!(ben.cell("x").await.ok(), "2");
    ben.stop().await;
    hub.until("ben", "", false).await;
}

#[tokio::test]
async fn a_server_in_which_another_kernel_runs_stays() {
    let hub = Hub::shared().await;
    let places = [Place::new(), Place::new()];
    let token = hub.user("carol").await;
    let mut first = start(&places[0], hub, &token, &[]).await;
    first.cell("x = 1").await.ok();
    let mut second = start(&places[1], hub, &token, &[]).await;
    second.cell("x = 2").await.ok();
    first.stop().await;
    assert_eq!(second.cell("x").await.ok(), "2");
    // It was found, and not started.
    second.stop().await;
    assert_eq!(hub.server("carol", "").await["ready"], true);
}

#[tokio::test]
async fn the_words_of_the_hub_are_progress_and_a_start_can_be_given_up() {
    let hub = Hub::shared().await;
    let places = [Place::new(), Place::new(), Place::new()];
    let token = hub.user("patient").await;
    let mut ipybox = start(&places[0], hub, &token, &[]).await;
    start_heard_cell(&mut ipybox, "1").await;
    hears(&ipybox, "JupyterHub: looking for a seat in the lab").await;
    ipybox.stop().await;
    hub.until("patient", "", false).await;

    let mut ipybox = start(&places[1], hub, &token, &[]).await;
    let cell = start_heard_cell(&mut ipybox, "1 + 1").await;
    // The Hub answers the request for the start at its end.
    hears(&ipybox, "JupyterHub: looking for a seat in the lab").await;
    let mut other = start(&places[2], hub, &token, &[]).await;
    let other_cell = start_heard_cell(&mut other, "1 + 2").await;
    hears(&other, "JupyterHub: looking for a seat in the lab").await;
    hub.open();
    assert_eq!(cell.answer().await.ok(), "2");
    assert_eq!(other_cell.answer().await.ok(), "3");
    other.stop().await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_starts_with_options_that_the_hub_demands() {
    let hub = Hub::shared().await;
    let places = [Place::new(), Place::new()];
    let token = hub.user("picky").await;
    let mut ipybox = start(&places[0], hub, &token, &[]).await;
    let error = ipybox.cell("1").await.error();
    assert!(error.contains("choose a profile: cpu or gpu"), "{error}");
    ipybox.stop().await;
    let options = ["--kernel-hub-options", r#"{"profile": "gpu"}"#];
    let mut ipybox = start(&places[1], hub, &token, &options).await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_at_a_subdomain_of_the_hub_gets_the_token_too() {
    let place = Place::new();
    let hub = Hub::start_with_subdomains("hub.test").await;
    let token = hub.user("ida").await;
    let (proxy, tunnels) = proxy(hub.address()).await;
    let url = hub.url().replace("127.0.0.1", "hub.test");
    let flags = ["--kernel-hub-url", url.as_str(), "--kernel-hub-token-env", "HUB_TOKEN_OF_TESTS"];
    let variables = [
        ("HUB_TOKEN_OF_TESTS", token.as_str()),
        ("HTTP_PROXY", proxy.as_str()),
        ("http_proxy", proxy.as_str()),
        ("NO_PROXY", ""),
        ("no_proxy", ""),
    ];
    let mut ipybox = place.start_with(&flags, &variables).await;
    ipybox.initialize().await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    assert!(tunnels.load(Ordering::Relaxed) > 0);
    ipybox.stop().await;
    hub.until("ida", "", false).await;
}

#[tokio::test]
async fn a_hub_and_a_proxy_that_restart_in_the_middle_of_a_cell_cost_nothing() {
    let hub = Hub::start().await;
    let place = Place::new();
    let token = hub.user("dora").await;
    let mut ipybox = start(&place, &hub, &token, &[]).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("import os, time\nfrom mcptools.probe import add\nx = 1").await.ok();
    let go = place.workspace().join("go");
    let code = format!(
        "print('before', flush=True)\nwhile not os.path.exists({go:?}): time.sleep(0.01)\n\
         print('after', flush=True)\nx + add.run(a=1, b=2).total"
    );
    let cell = start_heard_cell(&mut ipybox, &code).await;
    hears(&ipybox, "before").await;
    for part in ["hub", "proxy"] {
        hub.command(&format!("stop {part}")).await;
        hub.command(&format!("start {part}")).await;
    }
    std::fs::write(go, "").unwrap();
    assert_eq!(cell.answer().await.ok(), "before\nafter\n4");
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
    hub.until("dora", "", false).await;
}

#[tokio::test]
async fn a_server_that_ends_or_is_stopped_is_started_again_and_the_loss_reported() {
    let hub = Hub::shared().await;
    let place = Place::new();
    let token = hub.user("emil").await;
    let mut ipybox = start(&place, hub, &token, &[]).await;
    let server = ipybox.cell("import os\nx = 1\nos.getppid()").await.ok();
    kill(Pid::from_raw(server.parse().unwrap()), Signal::SIGKILL).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !eventually_ok(&mut ipybox, "'x' in dir()").await.ends_with("False") {
        assert!(Instant::now() < deadline, "the variables are still there");
    }

    let cell =
        start_heard_cell(&mut ipybox, "import time\nprint('before', flush=True)\ntime.sleep(900)").await;
    hears(&ipybox, "before").await;
    // As a culler does it.
    hub.ask("DELETE", "users/emil/server", &Value::Null).await;
    let error = cell.answer().await.error();
    assert!(error.starts_with("before\n"), "{error}");
    // Or the server interrupts its kernels first.
    let ways = ["The IPython kernel died", "KeyboardInterrupt"];
    assert!(ways.iter().any(|way| error.contains(way)), "{error}");
    // Nobody has asked for another one, though the session does other things.
    hub.until("emil", "", false).await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(hub.server("emil", "").await, Value::Null);
    assert!(eventually_ok(&mut ipybox, "1 + 1").await.ends_with('2'));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why_in_the_hubs_words() {
    let hub = Hub::shared().await;
    let place = Place::new();
    let token = hub.user("broken").await;
    let mut ipybox = start(&place, hub, &token, &[]).await;
    let error = ipybox.cell("1").await.error();
    assert!(error.contains("no seats are left in the lab"), "{error}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_named_server_is_used_and_the_limit_of_them_reported() {
    let hub = Hub::shared().await;
    let places = [Place::new(), Place::new()];
    let token = hub.user("frida").await;
    let mut ipybox = start(&places[0], hub, &token, &["--kernel-hub-server", "lab"]).await;
    let code = "import os\nos.environ['JUPYTERHUB_SERVER_NAME']";
    assert_eq!(ipybox.cell(code).await.ok(), "'lab'");
    let mut other = start(&places[1], hub, &token, &["--kernel-hub-server", "other"]).await;
    let error = other.cell("1").await.error();
    assert!(error.contains("maximum of 1 named servers"), "{error}");
    other.stop().await;
    ipybox.stop().await;
    hub.until("frida", "lab", false).await;
}

#[tokio::test]
async fn an_agent_chooses_a_named_server_which_ends_with_its_session() {
    let hub = Hub::shared().await;
    let place = Place::new();
    // Whose servers start with this option alone.
    let token = hub.user("picky-gina").await;
    let of_gpu = r#"{"profile": "gpu"}"#;
    let named = format!("gpu={of_gpu}");
    let flags = ["--kernel-hub-options", of_gpu, "--kernel-hub-options", &named];
    let mut ipybox = start(&place, hub, &token, &flags).await;
    let code = "import os\nos.environ['JUPYTERHUB_SERVER_NAME']";
    assert_eq!(ipybox.cell(code).await.ok(), "''");
    let of = |session: &str, code: &str| json!({"code": code, "session": session});
    let wrong = ipybox.call("execute_ipython_cell", of("new:tpu", "1")).await.error();
    assert!(wrong.contains("`new:tpu`") && wrong.contains("there are `new:gpu`"), "{wrong}");
    let begun = ipybox.call("execute_ipython_cell", of("new:gpu", code)).await.ok();
    assert!(begun.contains("with a kernel of `gpu`") && begun.ends_with("'gpu'"), "{begun}");
    let handle = begun.split('`').nth(1).unwrap();
    // Another session there shares the server, which stays as long as one of them has a kernel.
    let other = ipybox.call("execute_ipython_cell", of("new:gpu", "x = 1")).await.ok();
    let other = other.split('`').nth(1).unwrap();
    ipybox.call("reset", json!({"session": handle, "end": true})).await.ok();
    let left = ipybox.call("execute_ipython_cell", of(other, "x")).await.ok();
    assert!(left.ends_with('1'), "{left}");
    ipybox.call("reset", json!({"session": other, "end": true})).await.ok();
    hub.until("picky-gina", "gpu", false).await;
    assert_eq!(ipybox.cell(code).await.ok(), "''");
    ipybox.stop().await;
    hub.until("picky-gina", "", false).await;
}

#[tokio::test]
async fn tokens_that_may_not_do_it_are_reported_and_not_repeated() {
    let hub = Hub::shared().await;
    hub.user("gerda").await;
    let expired = hub.token_of("gerda", &SCOPES, Some(1)).await;
    let deadline = Instant::now() + PATIENCE;
    while hub.ask_as(&expired, "GET", "user", &Value::Null).await.0 != 403 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let cannot_start = hub.token_of("gerda", &["access:servers!user"], None).await;
    let wrong = "a-wrong-token-of-mine".to_owned();
    let service = hub.token_of_service("tests").to_owned();
    for (token, flags, words) in [
        (&expired, &[][..], &["the token is wrong or has expired", "/hub/token"][..]),
        (&wrong, &[], &["the token is wrong or has expired"]),
        (&cannot_start, &[], &["start the Jupyter server", "`servers!user`"]),
        (&service, &[], &["of the service `tests`", "--kernel-hub-user"]),
        (&service, &["--kernel-hub-user", "nobody-here"], &["`nobody-here`", "no such user"]),
    ] {
        let place = Place::new();
        let mut ipybox = start(&place, hub, token, flags).await;
        let error = ipybox.cell("1").await.error();
        for word in words {
            assert!(error.contains(word), "{word}\n{error}");
        }
        assert!(!error.contains(token.as_str()) && !ipybox.log().contains(token.as_str()), "{error}");
        ipybox.stop().await;
    }

    // What runs already needs not be started; and a service starts servers of others.
    let place = Place::new();
    let mut service = start(&place, hub, &service, &["--kernel-hub-user", "gerda"]).await;
    service.cell("1").await.ok();
    let other = Place::new();
    let mut ipybox = start(&other, hub, &cannot_start, &[]).await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.stop().await;
    service.stop().await;
}

#[tokio::test]
async fn what_is_no_hub_is_reported_with_what_would_help() {
    let hub = Hub::shared().await;
    let (_closed, nobody) = refusing();
    for (url, words) in [
        (format!("http://{nobody}/"), &["connect to the JupyterHub at", "refused"][..]),
        (format!("{}wrong/", hub.url()), &["there is none", "base path"]),
    ] {
        let place = Place::new();
        let flags = ["--kernel-hub-url", url.as_str(), "--kernel-hub-token-env", "HUB_TOKEN_OF_TESTS"];
        let mut ipybox = place.start_with(&flags, &[("HUB_TOKEN_OF_TESTS", "a-token")]).await;
        ipybox.initialize().await;
        let error = ipybox.cell("1").await.error();
        for word in words {
            assert!(error.contains(word), "{word}\n{error}");
        }
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn flags_of_a_hub_that_contradict_others_are_refused() {
    let place = Place::new();
    let hub = ["--kernel-hub-url", "http://localhost:1/"];
    let token = ["--kernel-hub-token-env", "HUB_TOKEN_OF_TESTS"];
    for (flags, expected) in [
        (
            &[&hub[..], &token, &["--kernel-gateway-url", "http://localhost:1/"]].concat()[..],
            "cannot be used with",
        ),
        (&[&hub[..], &token, &["--sandbox"]].concat(), "cannot be used with"),
        (&hub, "--kernel-hub-token-env"),
        (&["--kernel-hub-server", "lab"], "--kernel-hub-url"),
        (&[&hub[..], &token, &["--kernel-hub-options", "[1]"]].concat(), "not an object in JSON"),
        (
            &[&hub[..], &token, &["--kernel-hub-options", "a={}", "--kernel-hub-options", "a={}"]].concat(),
            "`--kernel-hub-options a=…` is given twice",
        ),
        (&[&hub[..], &token].concat(), "`HUB_TOKEN_OF_TESTS`: it is not set"),
    ] {
        let mut ipybox = place.start(flags).await;
        assert!(!ipybox.ended().await.success(), "{flags:?}");
        eventually(expected, || ipybox.log().contains(expected)).await;
    }
}
