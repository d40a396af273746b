//! What code in the kernel can and cannot do with the tool server by requests of its own.

use crate::support::{Place, probe};

/// Defines `send(path, body, token=…, host=…)`, which returns status and text.
const SEND: &str = "
import http.client, json, os
def send(path, body, method='POST', token=None, host=None):
    connection = http.client.HTTPConnection(*os.environ['IPYBOX_TOOL_SERVER'].rsplit(':', 1))
    headers = {'Content-Type': 'application/json', 'Host': host or os.environ['IPYBOX_TOOL_SERVER']}
    headers['Authorization'] = 'Bearer ' + (os.environ['IPYBOX_TOOL_SERVER_TOKEN'] if token is None else token)
    connection.request(method, path, json.dumps(body), headers)
    response = connection.getresponse()
    return response.status, response.read().decode()
call = {'server_name': 'probe', 'tool_name': 'echo', 'tool_args': {'text': 'x'}}
";

#[tokio::test]
async fn the_kernel_cannot_choose_what_runs_on_the_host() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(SEND).await.ok();
    assert_eq!(ipybox.cell("send('/run', call)[0]").await.ok(), "200");
    let marker = place.workspace().join("marker");
    let attack = format!(
        "send('/run', {{**call, 'server_params': {{'command': 'touch', 'args': ['{}']}}}})",
        marker.display()
    );
    let text = ipybox.cell(&attack).await.ok();
    assert!(text.starts_with("(422,") && text.contains("server_params"), "{text}");
    assert!(!marker.exists());
    let text = ipybox.cell("send('/run', {**call, 'server_name': 'other'})").await.ok();
    assert!(text.contains("no MCP server is registered as `other`"), "{text}");
    for path in ["/", "/reset", "/approval", "/status", "/servers/probe"] {
        for method in ["GET", "POST", "PUT"] {
            let text = ipybox.cell(&format!("send('{path}', {{}}, method='{method}')[0]")).await.ok();
            assert_eq!(text, "404", "{method} {path}");
        }
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn calls_without_this_kernels_token_are_refused() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(SEND).await.ok();
    let token = ipybox.cell("print(os.environ['IPYBOX_TOOL_SERVER_TOKEN'])").await.ok();
    for wrong in ["''", "'x'", "os.environ['IPYBOX_TOOL_SERVER_TOKEN'][:-1]"] {
        assert_eq!(
            ipybox.cell(&format!("send('/run', call, token={wrong})[0]")).await.ok(),
            "401",
            "{wrong}"
        );
    }
    assert_eq!(ipybox.cell("send('/run', call, host='evil.example')[0]").await.ok(), "403");
    ipybox.reset().await;
    ipybox.cell(SEND).await.ok();
    assert_eq!(ipybox.cell("send('/run', call)[0]").await.ok(), "200");
    let replayed = ipybox.cell(&format!("send('/run', call, token='{token}')[0]")).await.ok();
    assert_eq!(replayed, "401", "the token of the kernel before");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_error_of_code_outside_a_kernel_says_where_tools_can_be_called() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "!env -u IPYBOX_TOOL_SERVER python -c \"from mcptools.probe import echo; echo.run(echo.Params(text='x'))\"";
    let text = ipybox.cell(code).await.ok();
    assert!(text.contains("ToolRunnerError: IPYBOX_TOOL_SERVER is not set"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn bad_bodies_are_refused_with_a_reason() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(SEND).await.ok();
    for (body, words) in [
        ("{}", "server_name"),
        ("{**call, 'tool_args': 5}", "tool_args"),
        ("[]", "422"),
        ("{**call, 'tool_args': {'text': '\\ud800'}}", "400"),
    ] {
        let text = ipybox.cell(&format!("send('/run', {body})")).await.ok();
        assert!(text.contains(words) && !text.contains("200"), "{body}: {text}");
    }
    ipybox.stop().await;
}
