//! Views, in a real host of MCP Apps: the SDK's client, the bridge of `ext-apps`, headless Chromium.

mod attacks;
mod host;
pub(crate) mod without_browser;

use serde_json::{Value, json};

use crate::support::{Browser, Ipybox, Place, kernel_python};

/// Runs ipybox in a host.
fn host(place: &Place, flags: &[&str]) -> Browser {
    let (workspace, states) = (place.workspace(), place.states());
    let python = kernel_python();
    let ours = ["--workspace".as_ref(), workspace.as_os_str(), "--state-dir".as_ref(), states.as_os_str()];
    let python = ["--python".as_ref(), python.as_os_str()];
    let flags: Vec<_> = flags.iter().map(std::convert::AsRef::as_ref).collect();
    let words = [&[env!("CARGO_BIN_EXE_ipybox").as_ref()], &ours[..], &python, &flags].concat();
    Browser::run_by("tests/it/views/host.mjs", "host", &words)
}

/// What a client of MCP Apps says that it can.
fn apps() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}})
}

/// The result of a cell.
async fn result(ipybox: &mut Ipybox, code: &str) -> Value {
    call(ipybox, "execute_ipython_cell", json!({ "code": code })).await
}

/// The result of a tool.
async fn call(ipybox: &mut Ipybox, name: &str, arguments: Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    let response = ipybox.request("tools/call", params).await.response().await.unwrap();
    assert!(response["result"].is_object(), "{response}");
    response["result"].clone()
}

/// The names of a result's views.
fn views(result: &Value) -> Vec<&str> {
    let views = result["_meta"]["ipybox/views"].as_array();
    views.into_iter().flatten().map(|view| view.as_str().unwrap()).collect()
}

/// The text of a result.
fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}
