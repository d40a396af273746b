//! Kernels in a pod: like those of this machine in all that they can, without anything of it.

use std::time::Duration;

use serde_json::json;

use super::session::start_until;
use crate::support::pod::{Pod, url_by};
use crate::support::relay::Relay;
use crate::support::{Ipybox, Place, eventually, probe};

async fn start(place: &Place, url: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = place.start_in_pod(&[], url, flags, &[]);
    ipybox.initialize().await;
    ipybox
}

/// The processor time of a process so far, in hundredths of a second.
fn processor_ticks(id: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_session_takes_a_pod_and_it_ends_with_it() {
    let place = Place::new();
    let mut pod = Pod::start(&[]).await;
    let mut ipybox = start(&place, &pod.url(), &[]).await;
    let code =
        "import os, sys\nx = [1]\nprint(os.getcwd() == os.path.realpath('.'), os.getppid() > 1, len(x))";
    assert_eq!(ipybox.cell(code).await.ok(), "True True 1");
    std::fs::write(place.workspace().join("secret.txt"), "secret").unwrap();
    assert_eq!(ipybox.cell("os.path.exists('secret.txt')").await.ok(), "False");
    let other = Place::new();
    let mut second = start(&other, &pod.url(), &[]).await;
    let refusal = second.cell("1").await.error();
    assert!(refusal.contains("taken by another session"), "{refusal}");
    second.stop().await;
    let secrets = ipybox.cell("sorted(name for name in os.environ if 'TOKEN' in name)").await.ok();
    assert_eq!(secrets, "['IPYBOX_TOOL_SERVER_TOKEN']");
    ipybox.stop().await;
    assert!(pod.child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_pod_is_taken_by_its_token_alone() {
    let place = Place::new();
    let pod = Pod::start(&[]).await;
    let wrong = ["--kernel-pod-url", &pod.url(), "--kernel-pod-token-env", "OWN"];
    for (flags, said) in [(&wrong[..], "does not have this token"), (&wrong[..2], "--kernel-pod-token-env")] {
        let mut ipybox = place.start_with(flags, &[("OWN", "another-token-of-pods")]).await;
        ipybox.initialize().await;
        let refusal = ipybox.cell("1").await.error();
        assert!(refusal.contains(said), "{refusal}");
        ipybox.stop().await;
    }
    let mut ipybox = start(&place, &pod.url(), &[]).await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
async fn tools_are_called_from_a_pod_and_its_processes() {
    let place = Place::new();
    let pod = Pod::start(&[]).await;
    let mut ipybox = start(&place, &pod.url(), &[]).await;
    ipybox.register("probe", probe()).await.ok();
    let code = "from mcptools.probe import add\n\
                import concurrent.futures as futures\n\
                with futures.ThreadPoolExecutor(8) as pool:\n    \
                    totals = list(pool.map(lambda n: add.run(a=n, b=1).total, range(40)))\n\
                sum(totals)";
    assert_eq!(ipybox.cell(code).await.ok(), "820");
    ipybox.stop().await;
}

#[tokio::test]
async fn cells_are_undone_and_sessions_copied_in_a_pod() {
    let place = Place::new();
    let pod = Pod::start(&[]).await;
    let mut ipybox = start(&place, &pod.url(), &[]).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("from mcptools.probe import add\ndata = list(range(1000))").await.ok();
    ipybox.cell("data = None").await.ok();
    let undone = ipybox.call("reset", json!({"cells": 1})).await.ok();
    assert!(undone.contains("Not taken back:\n- files in the pod"), "{undone}");
    assert!(undone.contains("data = None"), "{undone}");
    assert_eq!(ipybox.cell("len(data) + add.run(a=1, b=2).total").await.ok(), "1003");
    let copy = ipybox.call(
        "execute_ipython_cell",
        json!({"code": "data.append(1)\nlen(data) + add.run(a=1, b=2).total", "session": "copy"}),
    );
    let copy = copy.await.ok();
    assert!(copy.contains("1004"), "{copy}");
    assert_eq!(ipybox.cell("len(data) + add.run(a=2, b=2).total").await.ok(), "1004");
    ipybox.call("reset", json!({})).await.ok();
    assert!(ipybox.cell("data").await.error().contains("NameError"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_connection_that_breaks_costs_nothing() {
    let place = Place::new();
    let pod = Pod::start(&[]).await;
    let relay = Relay::start(pod.address()).await;
    let mut ipybox = start(&place, &url_by(relay.address()), &[]).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("from mcptools.probe import add, slow\nimport time").await.ok();
    for round in 0..3 {
        let code = format!(
            "for number in range(40):\n    print(f'{round} at {{number}};', flush=True)\n    time.sleep(0.02)\n\
             slow.run(seconds=1)\nadd.run(a=1, b=2).total"
        );
        let cell = start_until(&mut ipybox, &code, &format!("{round} at 7;")).await;
        relay.reset();
        let numbers: Vec<String> = (0..40).map(|number| format!("{round} at {number};")).collect();
        assert_eq!(cell.answer().await.ok(), format!("{}\n3", numbers.join("\n")));
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_gone_costs_the_running_cell_alone() {
    let place = Place::new();
    let pod = Pod::start(&[]).await;
    let address = pod.address();
    let mut ipybox = start(&place, &pod.url(), &["--checkpoint"]).await;
    ipybox.cell("kept = 41").await.ok();
    eventually("it is saved", || place.everything_in_states().contains("\"name\": \"kept\"")).await;
    let cell = ipybox.start_cell("open('begun', 'w').close()\nimport time\ntime.sleep(600)").await;
    eventually("the cell runs", || pod.home.path().join("work/begun").exists()).await;
    drop(pod);
    let lost = cell.answer().await.error();
    assert!(lost.contains("the pod could not be reached again"), "{lost}");
    assert!(!lost.contains("reset("), "its states are lost too: {lost}");
    let before = processor_ticks(ipybox.id());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let spent = processor_ticks(ipybox.id()) - before;
    assert!(spent < 100, "a session without a kernel waits; it took {spent} ticks in 2 seconds");
    let again = Pod::start_at(&address.to_string(), &[]).await;
    let restored = ipybox.cell("import ipybox_checkpoint\nipybox_checkpoint.restore()\nkept + 1").await.ok();
    assert!(restored.contains("42"), "{restored}");
    ipybox.stop().await;
    drop(again);
}

#[tokio::test]
async fn what_code_leaves_behind_ends_with_its_kernel() {
    let place = Place::new();
    let pod = Pod::start(&[]).await;
    let mut ipybox = start(&place, &pod.url(), &[]).await;
    let code = "import os, subprocess\n\
                subprocess.Popen(['sleep', '6000'], start_new_session=True)\n\
                'sleep' in subprocess.run(['ps', '-e'], capture_output=True, text=True).stdout";
    assert_eq!(ipybox.cell(code).await.ok(), "True");
    ipybox.call("reset", json!({})).await.ok();
    let code =
        "import subprocess\n'sleep' in subprocess.run(['ps', '-e'], capture_output=True, text=True).stdout";
    assert_eq!(ipybox.cell(code).await.ok(), "False");
    ipybox.stop().await;
}
