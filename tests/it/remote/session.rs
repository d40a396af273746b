//! ipybox with remote kernels, for the tests of them.

use serde_json::json;

use crate::support::{Ipybox, Place, Reply, eventually, probe};

/// ipybox with kernels on a server and these flags beside, initialized.
pub(super) async fn start(place: &Place, url: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = place.start_remote(&[], url, flags, &[]);
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    ipybox
}

/// Starts a cell, and waits until it has been heard to say this. What is on its way when a connection to a Jupyter server breaks is
/// lost.
pub(super) async fn start_until(ipybox: &mut Ipybox, code: &str, word: &str) -> Reply {
    let arguments = json!({"code": code});
    let params =
        json!({"name": "execute_ipython_cell", "arguments": arguments, "_meta": {"progressToken": 1}});
    let reply = ipybox.request("tools/call", params).await;
    eventually("it is heard", || ipybox.progress().iter().any(|message| message.contains(word))).await;
    reply
}

/// One with the tools of the test server.
pub(super) async fn with_tools(place: &Place, url: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = start(place, url, flags).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("from mcptools.probe import add, echo, fail, slow").await.ok();
    ipybox
}
