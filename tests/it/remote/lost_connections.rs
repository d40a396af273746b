//! Connections to remote kernels that are lost, in every way: the session goes on, or says what is missing.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::session::{start, start_until, with_tools};
use crate::support::jupyter::{Jupyter, Server};
use crate::support::relay::Relay;
use crate::support::{Ipybox, PATIENCE, Place, eventually};

/// ipybox with a relay in between.
async fn through_a_relay(place: &Place, jupyter: &Jupyter) -> (Ipybox, Relay) {
    let relay = Relay::start(jupyter.address()).await;
    let ipybox = with_tools(place, &jupyter.url_by(relay.address()), &[]).await;
    (ipybox, relay)
}

/// A file by which code says that it runs. Its kernel need not run in the workspace.
struct Mark(PathBuf);

impl Mark {
    fn new(place: &Place) -> Self {
        let path = place.workspace().join("begun");
        drop(std::fs::remove_file(&path));
        Self(path)
    }

    /// The code that says it.
    fn begun(&self) -> String {
        format!("open({:?}, 'w').close()", self.0)
    }

    async fn wait(&self) {
        eventually("the code runs", || self.0.exists()).await;
    }
}

/// The id that the session's kernel has at its server.
async fn kernel_id(ipybox: &mut Ipybox) -> String {
    let code = "import pathlib\nfrom ipykernel.connect import get_connection_file\n\
                print(pathlib.Path(get_connection_file()).stem.removeprefix('kernel-'))";
    ipybox.cell(code).await.ok()
}

/// Breaks the connections, and waits until the kernel's server has noticed: what it sends before that is lost. There are
/// no others until the relay is repaired.
async fn break_noticed(relay: &Relay, jupyter: &Jupyter, kernel: &str) {
    relay.refuse();
    let path = format!("api/kernels/{kernel}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Each time, because one may have been taken a moment before.
        relay.reset();
        let (status, model) = jupyter.ask("GET", &path).await;
        assert_eq!(status, 200, "{model}");
        if model["connections"] == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{model}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_a_cell_costs_nothing() {
    for server in Server::ALL {
        let place = Place::new();
        let jupyter = Jupyter::shared(server).await;
        let (mut ipybox, relay) = through_a_relay(&place, jupyter).await;
        let kernel = kernel_id(&mut ipybox).await;
        ipybox.cell("import os, time\nx = 1").await.ok();
        let broken = place.workspace().join("broken");
        let code = format!(
            "print('before', flush=True)\n\
             while not os.path.exists({broken:?}): time.sleep(0.01)\n\
             for i in range(30): time.sleep(0.05); print(i, flush=True)\nx + add.run(a=1, b=2).total"
        );
        let cell = start_until(&mut ipybox, &code, "before").await;
        break_noticed(&relay, jupyter, &kernel).await;
        std::fs::write(broken, "").unwrap();
        relay.repair();
        let said = cell.answer().await.ok();
        let numbers: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        assert_eq!(said, format!("before\n{}\n4", numbers.join("\n")), "{server:?}");
        assert_eq!(ipybox.cell("x").await.ok(), "1");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_during_a_call_loses_neither_the_call_nor_its_answer() {
    let place = Place::new();
    let (mut ipybox, relay) = through_a_relay(&place, Jupyter::shared(Server::JupyterServer).await).await;
    let mark = Mark::new(&place);
    let code = format!("{}\nslow.run(seconds=3)\nprint(add.run(a=1, b=2).total)", mark.begun());
    let cell = ipybox.start_cell(&code).await;
    mark.wait().await;
    // The call is on its way, and it is answered while there is no connection.
    tokio::time::sleep(Duration::from_secs(1)).await;
    relay.refuse();
    relay.reset();
    tokio::time::sleep(Duration::from_secs(3)).await;
    relay.repair();
    assert_eq!(cell.answer().await.ok(), "3");
    ipybox.stop().await;
}

/// A network that is gone says nothing.
#[tokio::test]
async fn a_connection_that_dies_in_silence_is_opened_again() {
    let place = Place::new();
    let (mut ipybox, relay) = through_a_relay(&place, Jupyter::shared(Server::JupyterServer).await).await;
    ipybox.cell("import time\nx = 3").await.ok();
    // It runs once, however often it is asked for.
    let mark = Mark::new(&place);
    let cell = ipybox.start_cell(&format!("x += 1\n{}\ntime.sleep(2)\nx += 1", mark.begun())).await;
    mark.wait().await;
    relay.strand();
    assert_eq!(cell.answer().await.ok(), "[no output]");
    assert_eq!(ipybox.cell("x").await.ok(), "5");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_break_between_cells_is_not_noticed() {
    let place = Place::new();
    let (mut ipybox, relay) = through_a_relay(&place, Jupyter::shared(Server::JupyterServer).await).await;
    ipybox.cell("x = 1").await.ok();
    relay.reset();
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_network_that_is_gone_is_reported_and_the_kernel_kept() {
    let place = Place::new();
    let (mut ipybox, relay) = through_a_relay(&place, Jupyter::shared(Server::JupyterServer).await).await;
    ipybox.cell("x = 1").await.ok();
    relay.refuse();
    relay.reset();
    let error = ipybox.cell("x").await.error();
    assert!(
        error.contains("cannot be reached") || error.contains("the connection to it is broken"),
        "{error}"
    );
    relay.repair();
    eventually_cell(&mut ipybox, "x", "1").await;
    ipybox.stop().await;
}

/// Runs a cell until it has this answer: a network that is back is noticed a while later.
async fn eventually_cell(ipybox: &mut Ipybox, code: &str, expected: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ipybox.cell(code).await;
        if answer.is_error {
            assert!(Instant::now() < deadline, "{}", answer.error());
            continue;
        }
        // A notice of the lost connection may come first.
        return assert_eq!(answer.ok().lines().last(), Some(expected));
    }
}

#[tokio::test]
async fn the_end_of_a_server_in_the_middle_of_a_cell_is_reported() {
    let place = Place::new();
    let jupyter = Jupyter::start(Server::JupyterServer).await;
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    ipybox.cell("import time").await.ok();
    let cell = start_until(&mut ipybox, "print('before', flush=True)\ntime.sleep(600)", "before").await;
    jupyter.stop().await;
    let error = cell.answer().await.error();
    assert!(error.starts_with("before\n"), "{error}");
    // Or the server interrupts its kernels first, and the answer of this one is still heard.
    let ways = ["The IPython kernel died", "cannot be reached", "KeyboardInterrupt"];
    assert!(ways.iter().any(|way| error.contains(way)), "{error}");
    ipybox.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_cable_that_is_cut_and_repaired_costs_nothing() {
    use crate::support::namespace::Namespace;

    let Some(namespace) = Namespace::start() else { return };
    let place = Place::new();
    let jupyter =
        Jupyter::of(Server::JupyterServer).at(&namespace.launcher(), namespace.address()).start().await;
    let mut ipybox = with_tools(&place, jupyter.url(), &[]).await;
    let mark = Mark::new(&place);
    let cell = ipybox
        .start_cell(&format!(
            "import time\n{}\nfor i in range(50): time.sleep(0.05); print(i, flush=True)\nadd.run(a=1, b=2).total",
            mark.begun()
        ))
        .await;
    mark.wait().await;
    namespace.cut();
    tokio::time::sleep(Duration::from_secs(2)).await;
    namespace.repair();
    let said = cell.answer().await.ok();
    assert!(said.starts_with("0\n1\n") && said.ends_with("\n49\n3"), "{said}");
    ipybox.stop().await;
}

/// What was asked of the server to learn whether the broken cell had ended says nothing of the next one.
#[tokio::test]
async fn the_cell_after_a_break_is_its_own() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::JupyterServer).await;
    let (mut ipybox, relay) = through_a_relay(&place, jupyter).await;
    let kernel = kernel_id(&mut ipybox).await;
    ipybox.cell("import os, time").await.ok();
    for round in 0..4 {
        let mark = Mark::new(&place);
        let go = place.workspace().join(format!("go-{round}"));
        let code = format!(
            "{}\nwhile not os.path.exists({go:?}): time.sleep(0.01)\ntime.sleep(1)\nprint('broken')",
            mark.begun()
        );
        let broken = ipybox.start_cell(&code).await;
        let next = ipybox.start_cell("time.sleep(1)\nprint('next')").await;
        mark.wait().await;
        break_noticed(&relay, jupyter, &kernel).await;
        std::fs::write(go, "").unwrap();
        relay.repair();
        assert_eq!(broken.answer().await.ok(), "broken", "{round}");
        assert_eq!(next.answer().await.ok(), "next", "{round}");
    }
    ipybox.stop().await;
}
