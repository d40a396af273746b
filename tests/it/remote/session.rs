//! ipybox with remote kernels, for the tests of them.

use serde_json::json;

use crate::support::{Ipybox, Place, probe};

/// ipybox with kernels on a server and these flags beside, initialized.
pub(super) async fn start(place: &Place, url: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = place.start_remote(&[], url, flags, &[]);
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    ipybox
}

/// One with the tools of the test server.
pub(super) async fn with_tools(place: &Place, url: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = start(place, url, flags).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("from mcptools.probe import add, echo, fail, slow").await.ok();
    ipybox
}
