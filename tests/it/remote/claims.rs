//! Kernels in sandboxes that are claimed from a pool of a cluster.

use std::process::{Command, Stdio};

use std::net::Ipv4Addr;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::session::start_until;
use crate::support::cluster::Cluster;
use crate::support::jupyter::Authority;
use crate::support::{Ipybox, Place, eventually, probe};

const CALL: &str = "from mcptools.probe import add\nadd.run(a=1, b=2).total";

const IDLE: [&str; 3] = ["--checkpoint", "--kernel-idle-timeout", "2s"];
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn start(place: &Place, cluster: &Cluster, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
    let mut ipybox = place.start_with_pool(&cluster.kubeconfig(), "python", flags, variables);
    ipybox.initialize().await;
    ipybox
}

/// The error of a session's first cell.
async fn refusal(cluster: &Cluster, credentials: &std::path::Path, pool: &str, flags: &[&str]) -> String {
    let place = Place::new();
    let mut ipybox = place.start_with_pool(credentials, pool, flags, &[]);
    ipybox.initialize().await;
    let refusal = ipybox.cell("1").await.error();
    ipybox.stop().await;
    // Nothing is left of what it has tried.
    cluster.until_claims(<[Value]>::is_empty).await;
    refusal
}

#[tokio::test]
async fn a_session_claims_a_sandbox_and_deletes_its_claim() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let mut ipybox = start(&place, &cluster, &[], &[]).await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(ipybox.cell(CALL).await.ok(), "3");
    ipybox.call("reset", json!({})).await.ok();
    assert_eq!(ipybox.cell(CALL).await.ok(), "3");
    let claims = cluster.claims().await;
    let [claim] = &claims[..] else { panic!("{claims:?}") };
    assert_eq!(claim["metadata"]["labels"]["app.kubernetes.io/managed-by"], "ipybox");
    assert_eq!(claim["spec"]["lifecycle"]["shutdownPolicy"], "Delete");
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

/// The pools from which there are claims, sorted.
async fn claimed_pools(cluster: &Cluster) -> Vec<String> {
    let claims = cluster.claims().await;
    let pools = claims.iter().map(|claim| claim["spec"]["warmPoolRef"]["name"].as_str().unwrap().to_owned());
    let mut pools: Vec<_> = pools.collect();
    pools.sort();
    pools
}

#[tokio::test]
async fn an_agent_chooses_the_pool_of_its_session() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    for pool in ["python", "python-gpu", "python-large"] {
        cluster.make_pool(pool, 1).await;
    }
    let flags = ["--kernel-pool", "gpu=python-gpu", "--kernel-pool", "large=python-large"];
    let mut ipybox = start(&place, &cluster, &flags, &[]).await;
    let tools = ipybox.request("tools/list", json!({})).await.response().await.unwrap();
    assert!(tools.to_string().contains("`new`, `new:gpu`, `new:large` for your own kernel"), "{tools}");
    ipybox.cell("x = 'usual'").await.ok();
    assert_eq!(claimed_pools(&cluster).await, ["python"]);
    let of = |session: &str, code: &str| json!({"code": code, "session": session});

    let wrong = ipybox.call("execute_ipython_cell", of("new:tpu", "1")).await.error();
    assert!(wrong.contains("`new:tpu`") && wrong.contains("there are `new:gpu`, `new:large`"), "{wrong}");
    let begun = ipybox.call("execute_ipython_cell", of("new:gpu", "x = 'chosen'")).await.ok();
    let handle = begun.split('`').nth(1).unwrap();
    let note = "with a kernel of `gpu`: pass it as `session` to go on with its variables.]";
    assert!(begun.starts_with(&format!("[New session `{handle}` {note}")), "{begun}");
    assert_eq!(claimed_pools(&cluster).await, ["python", "python-gpu"]);

    let copied = ipybox.call("execute_ipython_cell", of(&format!("copy of {handle}"), "x")).await.ok();
    assert!(copied.ends_with("'chosen'"), "{copied}");
    ipybox.call("reset", json!({ "session": handle })).await.ok();
    let left = ipybox.call("execute_ipython_cell", of(handle, "'x' in dir()")).await.ok();
    assert!(left.ends_with("False"), "{left}");
    assert_eq!(claimed_pools(&cluster).await, ["python", "python-gpu"]);
    assert_eq!(ipybox.cell("x").await.ok(), "'usual'");

    // A sandbox in the place of a lost one is of the same pool.
    let is_of_gpu = |claim: &&Value| claim["spec"]["warmPoolRef"]["name"] == "python-gpu";
    let claims = cluster.claims().await;
    let claim = claims.iter().find(is_of_gpu).unwrap();
    let evict = json!({"fault": "evict", "namespace": "default", "pod": claim["status"]["sandbox"]["name"]});
    cluster.fault(evict).await;
    // A pod that is evicted has a while to end, in which it runs cells.
    let has_failed = |claim: &Value| claim["status"]["conditions"][0]["reason"] == "PodFailed";
    cluster.until_claims(|claims| claims.iter().any(has_failed)).await;
    // Whether this cell is lost depends on when the session hears of it.
    ipybox.call("execute_ipython_cell", of(handle, "1")).await;
    let again = ipybox.call("execute_ipython_cell", of(handle, "1")).await.ok();
    assert!(again.ends_with('1'), "{again}");
    let is_another =
        |other: &Value| is_of_gpu(&other) && other["metadata"]["name"] != claim["metadata"]["name"];
    cluster.until_claims(|claims| claims.iter().any(is_another)).await;
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn the_sandbox_of_a_chosen_pool_is_given_up_while_nobody_uses_it() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    for pool in ["python", "python-gpu"] {
        cluster.make_pool(pool, 1).await;
    }
    let flags = ["--checkpoint", "--kernel-idle-timeout", "10s", "--kernel-pool", "gpu=python-gpu"];
    let mut ipybox = start(&place, &cluster, &flags, &[]).await;
    let of = |session: &str, code: &str| json!({"code": code, "session": session});
    let begun = ipybox.call("execute_ipython_cell", of("new:gpu", "kept = 41")).await.ok();
    let handle = begun.split('`').nth(1).unwrap();
    cluster.until_claims(<[Value]>::is_empty).await;
    let back = ipybox.call("execute_ipython_cell", of(handle, "kept + 1")).await.ok();
    assert!(back.ends_with("42") && back.contains("its sandbox was deleted with its files"), "{back}");
    assert_eq!(claimed_pools(&cluster).await, ["python-gpu"]);
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn pools_that_cannot_be_told_apart_are_refused_at_the_start() {
    let place = Place::new();
    for (pools, expected) in [
        (&["gpu=python"][..], "and none is given so"),
        (&["python", "other"], "and more than one is given so"),
        (&["python", "gpu=a", "gpu=b"], "is given twice"),
        (&["python", "copy=a"], "by the name `copy`"),
    ] {
        let flags: Vec<_> = pools.iter().flat_map(|pool| ["--kernel-pool", pool]).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.args(flags).arg("--workspace").arg(place.workspace()).arg("--state-dir").arg(place.states());
        let ended = command.stdin(Stdio::null()).output();
        let said = String::from_utf8(ended.unwrap().stderr).unwrap();
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn sandboxes_are_reached_through_their_router() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let flags = ["--kernel-router-url", cluster.router(), "--kernel-router-token-env", "ROUTER_TOKEN"];
    let mut ipybox = start(&place, &cluster, &flags, &[("ROUTER_TOKEN", cluster.router_token())]).await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(ipybox.cell(CALL).await.ok(), "3");
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn pods_with_a_certificate_are_reached_by_tls() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    // The pods have other addresses, and their certificate is known.
    let authority = Authority::of(Ipv4Addr::LOCALHOST.into());
    let [certificate, key] = ["server.pem", "server.key"].map(|name| authority.file(name));
    let [certificate, key] = [&certificate, &key].map(|file| file.to_str().unwrap());
    cluster.make_pool_with_flags("python", &["--tls-certificate", certificate, "--tls-key", key]).await;
    let mut ipybox = start(&place, &cluster, &["--kernel-gateway-ca", certificate], &[]).await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(ipybox.cell(CALL).await.ok(), "3");
    ipybox.stop().await;
}

#[tokio::test]
async fn rights_that_are_missing_are_named_as_a_role_has_them() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let group = "extensions.agents.x-k8s.io";
    let all = ["create", "list", "watch", "patch", "delete"];
    for missing in ["create", "list", "patch"] {
        let verbs: Vec<_> = all.iter().filter(|verb| **verb != missing).collect();
        let rules = json!([{"apiGroups": [group], "resources": ["sandboxclaims"], "verbs": verbs}]);
        let credentials = cluster.kubeconfig_of(&format!("no-{missing}"), &rules).await;
        let refusal = refusal(&cluster, &credentials, "python", &[]).await;
        let right = format!("{{apiGroups: [{group}], resources: [sandboxclaims], verbs: [{missing}]}}");
        assert!(refusal.contains(&right), "{refusal}");
    }
    let rules = json!([{"apiGroups": [group], "resources": ["sandboxclaims"], "verbs": all}]);
    let credentials = cluster.kubeconfig_of("enough", &rules).await;
    let place = Place::new();
    let mut ipybox = place.start_with_pool(&credentials, "python", &[], &[]);
    ipybox.initialize().await;
    assert_eq!(ipybox.cell("1").await.ok(), "1");
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn pools_that_give_nothing_are_named_with_the_reason() {
    let cluster = Cluster::start().await;
    cluster.make_pool_of("slow", 0, &["sleep", "100000"]).await;
    let credentials = cluster.kubeconfig();
    let other = refusal(&cluster, &credentials, "python", &[]).await;
    assert!(other.contains("`python`") && other.contains("it has `slow`"), "{other}");
    let timeout = ["--kernel-claim-timeout", "20"];
    let late = refusal(&cluster, &credentials, "slow", &timeout).await;
    assert!(late.contains("`slow`: it is not ready after 20 seconds: DependenciesNotReady"), "{late}");
    assert!(late.contains("`replicas`"), "{late}");
    cluster.fault(json!({"fault": "never_bind"})).await;
    let ignored = refusal(&cluster, &credentials, "slow", &timeout).await;
    assert!(ignored.contains("no controller has looked at the claim"), "{ignored}");
    let nowhere = refusal(&cluster, "/nonexistent".as_ref(), "slow", &[]).await;
    assert!(nowhere.contains("credentials for the cluster") && nowhere.contains("/nonexistent"), "{nowhere}");
}

#[tokio::test]
async fn a_claim_is_awaited_over_failures_of_the_server() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    for fault in [
        json!({"fault": "answer", "status": 500, "verb": "create", "resource": "sandboxclaims"}),
        json!({"fault": "answer", "status": 409, "verb": "create", "resource": "sandboxclaims"}),
        json!({"fault": "answer", "status": 429, "retry_after": 1, "verb": "watch", "resource": "sandboxclaims"}),
        json!({"fault": "answer", "status": 410, "verb": "watch", "resource": "sandboxclaims"}),
        json!({"fault": "answer", "status": 503, "verb": "watch", "resource": "sandboxclaims"}),
        json!({"fault": "answer", "status": 500, "count": 2, "verb": "patch", "resource": "sandboxclaims"}),
        json!({"fault": "ready_delay", "seconds": 6}),
    ] {
        cluster.fault(fault).await;
    }
    let mut ipybox = start(&place, &cluster, &[], &[]).await;
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": "1 + 1"}, "_meta": {"progressToken": 1},
    });
    let cell = ipybox.request("tools/call", params).await;
    cluster.until_claims(|claims| claims.iter().any(|claim| !claim["status"].is_null())).await;
    for fault in ["drop_watches", "expire_versions", "drop_watches"] {
        cluster.fault(json!({ "fault": fault })).await;
    }
    assert_eq!(cell.answer().await.ok(), "2");
    let progress = ipybox.progress();
    for words in ["claiming a sandbox of the pool `python`", "DependenciesNotReady", "trying again"] {
        assert!(progress.iter().any(|line| line.contains(words)), "{words}: {progress:?}");
    }
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn an_evicted_pod_costs_the_running_cell_alone() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let mut ipybox = start(&place, &cluster, &["--checkpoint"], &[]).await;
    ipybox.cell("kept = 41").await.ok();
    eventually("`kept` is saved", || place.has_saved("kept")).await;
    let claims = cluster.claims().await;
    let sandbox = claims[0]["status"]["sandbox"]["name"].clone();
    let code = "import time\nfor number in range(10_000):\n    print(f'at {number};', flush=True)\n    time.sleep(0.1)";
    let cell = start_until(&mut ipybox, code, "at ").await;
    cluster.fault(json!({"fault": "evict", "namespace": "default", "pod": sandbox})).await;
    let lost = cell.answer().await.error();
    assert!(lost.contains("died while running the cell"), "{lost}");
    let restored = ipybox.cell("from ipybox_checkpoint import restore\nrestore()\nkept + 1").await.ok();
    assert!(restored.contains("42"), "{restored}");
    let again = cluster.claims().await;
    assert_eq!(again.len(), 1, "{again:?}");
    assert_ne!(again[0]["metadata"]["name"], claims[0]["metadata"]["name"]);
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn a_session_that_nobody_uses_has_no_sandbox_and_its_variables_come_back() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let mut ipybox = start(&place, &cluster, &IDLE, &[]).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("kept = 41\nimport math\ndef double(x):\n    return 2 * x").await.ok();
    cluster.until_claims(<[Value]>::is_empty).await;
    let back = ipybox.cell("print(kept + 1, double(math.floor(4.5)))").await.ok();
    assert!(back.contains("42 8") && back.contains("its sandbox was deleted with its files"), "{back}");
    let line = back.lines().find(|line| line.contains("was not used for")).unwrap();
    assert!(line.contains("were loaded. Restored: kept, double, math"), "{line}");
    assert_eq!(ipybox.cell(CALL).await.ok(), "3");
    // A copy has the variables too, which were saved.
    cluster.until_claims(<[Value]>::is_empty).await;
    let copy = ipybox.call("execute_ipython_cell", json!({"code": "kept + 2", "session": "copy"})).await.ok();
    assert!(copy.contains("43"), "{copy}");
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn a_sandbox_with_a_volume_is_suspended_and_has_its_files_again() {
    let place = Place::new();
    let volume = tempfile::tempdir().unwrap();
    let cluster = Cluster::start().await;
    cluster.make_pool_with_volume("python", volume.path()).await;
    let mut ipybox = start(&place, &cluster, &IDLE, &[]).await;
    let code = "from pathlib import Path\nkept = 41\nPath('a.txt').write_text('a')";
    ipybox.cell(code).await.ok();
    let claim = cluster.claims().await[0].clone();
    cluster.until_suspended(&claim).await;
    let back = ipybox.cell("print(kept + 1, Path('a.txt').read_text())").await.ok();
    assert!(back.contains("42 a") && back.contains("its sandbox was suspended"), "{back}");
    let again = cluster.claims().await;
    assert_eq!(again[0]["metadata"]["uid"], claim["metadata"]["uid"]);
    // Somebody else may delete it meanwhile.
    cluster.until_suspended(&claim).await;
    cluster.delete_claim(claim["metadata"]["name"].as_str().unwrap()).await;
    cluster.until_claims(<[Value]>::is_empty).await;
    let without = ipybox.cell("kept + 2").await.ok();
    assert!(without.contains("43") && without.contains("its files are gone"), "{without}");
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn a_suspended_sandbox_survives_a_caller_who_does_not_wait_until_it_is_awake() {
    let place = Place::new();
    let volume = tempfile::tempdir().unwrap();
    let cluster = Cluster::start().await;
    cluster.make_pool_with_volume("python", volume.path()).await;
    let mut ipybox = start(&place, &cluster, &IDLE, &[]).await;
    ipybox.cell("kept = 41; open('a.txt', 'w').write('a')").await.ok();
    let claim = cluster.claims().await[0].clone();
    cluster.until_suspended(&claim).await;
    let away =
        json!({"fault": "answer", "status": 503, "count": 1000, "verb": "get", "resource": "sandboxes"});
    cluster.fault(away).await;
    // Packages are installed by code of ours, before variables come back.
    let installing = ipybox
        .request("tools/call", json!({"name": "install_package", "arguments": {"package_name": "six"}}))
        .await;
    cluster.until("/faults", |faults| faults["answers"][0]["count"].as_u64() < Some(1000)).await;
    ipybox.cancel(&installing).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    cluster.fault(json!({"fault": "reset"})).await;
    let back = ipybox.cell("print(kept + 1, open('a.txt').read())").await.ok();
    assert!(back.contains("42 a"), "{back}");
    assert_eq!(cluster.claims().await[0]["metadata"]["uid"], claim["metadata"]["uid"]);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_sandbox_of_which_the_volumes_cannot_be_known_goes_on() {
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let verbs = ["create", "list", "watch", "patch", "delete"];
    let group = "extensions.agents.x-k8s.io";
    let rules = json!([{"apiGroups": [group], "resources": ["sandboxclaims"], "verbs": verbs}]);
    let credentials = cluster.kubeconfig_of("without-sandboxes", &rules).await;
    let place = Place::new();
    let mut ipybox = place.start_with_pool(&credentials, "python", &IDLE, &[]);
    ipybox.initialize().await;
    ipybox.cell("import threading; kept = threading.Lock()").await.ok();
    ipybox.logged("a kernel that nobody uses goes on").await;
    let on = ipybox.cell("kept.locked()").await.ok();
    assert!(on.contains("False"), "{on}");
    let right = "{apiGroups: [agents.x-k8s.io], resources: [sandboxes], verbs: [get]}";
    assert!(on.contains("its kernel goes on") && on.contains(right), "{on}");
    ipybox.stop().await;
    assert!(cluster.claims().await.is_empty());
}

#[tokio::test]
async fn in_a_pod_of_the_cluster_claims_end_with_the_pod() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    cluster.make_pool("python", 1).await;
    let verbs = ["create", "list", "watch", "patch", "delete"];
    let rules = json!([{"apiGroups": ["extensions.agents.x-k8s.io"], "resources": ["sandboxclaims"], "verbs": verbs}]);
    let account = cluster.mounted_account("ipybox", &rules).await;
    let container = json!({"name": "ipybox", "image": "none", "command": ["sleep", "100000"]});
    let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
    let pod = cluster.create(PODS, &json!({"metadata": {"name": "ipybox-0"}, "spec": spec})).await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let (host, port) = cluster.service();
    let mut ipybox = place.start_with_pool_inside(
        &account,
        "python",
        &[
            ("KUBERNETES_SERVICE_HOST", host),
            ("KUBERNETES_SERVICE_PORT", port),
            ("POD_NAME", "ipybox-0"),
            ("POD_UID", uid),
        ],
    );
    ipybox.initialize().await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    assert_eq!(cluster.claims().await[0]["metadata"]["ownerReferences"][0]["uid"], uid);
    cluster.delete(&format!("{PODS}/ipybox-0")).await;
    cluster.until_claims(<[Value]>::is_empty).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn the_claim_of_a_killed_session_ends_by_itself_and_that_of_a_living_one_does_not() {
    let place = Place::new();
    let cluster = Cluster::start().await;
    // The end is in the cluster's time, in which it would be over already.
    cluster.fault(json!({"fault": "clock_skew", "seconds": 3600})).await;
    cluster.make_pool("python", 1).await;
    let mut ipybox = start(&place, &cluster, &["--kernel-claim-lease", "15"], &[]).await;
    ipybox.cell("x = 1").await.ok();
    let end = cluster.claims().await[0]["spec"]["lifecycle"]["shutdownTime"].clone();
    let is_later = |claim: &Value| claim["spec"]["lifecycle"]["shutdownTime"].as_str() > end.as_str();
    cluster.until_claims(|claims| claims.iter().any(is_later)).await;
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.signal(Signal::SIGKILL);
    cluster.until_claims(<[Value]>::is_empty).await;
    cluster.until(PODS, |pods| pods["items"].as_array().is_some_and(|pods| pods.len() == 1)).await;
}
