//! Clients that tell what their own commands may do: code gets no more than that.

use std::path::Path;

use serde_json::{Value, json};

use super::session::start;
use crate::support::{Answer, Ipybox, Place, equipped, kernel_python, probe};

/// Says which of these things code can do.
const PROBE: &str = "
import os, pathlib
def can(what, function):
    try: function()
    except OSError: return
    print(what)
can('write workspace', lambda: pathlib.Path('made').write_text('x'))
can('write beside', lambda: pathlib.Path('../made').write_text('x'))
can('read beside', lambda: pathlib.Path('../beside').read_text())
can('write temporary', lambda: __import__('tempfile').TemporaryFile())
print('x' in globals())
";

/// The `_meta` that a client sends beside a call.
fn state(workspace: &Path, entries: &Value) -> Value {
    json!({
        "permissionProfile": {
            "type": "managed",
            "file_system": {"type": "restricted", "entries": entries},
            "network": "restricted",
        },
        "codexLinuxSandboxExe": "/usr/bin/codex",
        "sandboxCwd": format!("file://{}", workspace.display()),
        "useLegacyLandlock": false,
    })
}

/// As Codex with `--sandbox read-only`.
fn read_only(workspace: &Path) -> Value {
    state(workspace, &json!([root()]))
}

/// As Codex with `--sandbox workspace-write`.
fn workspace_write(workspace: &Path) -> Value {
    let git = workspace.join(".git");
    state(
        workspace,
        &json!([
            root(),
            {"path": {"type": "path", "path": workspace}, "access": "write"},
            {"path": {"type": "special", "value": {"kind": "slash_tmp"}}, "access": "write"},
            {"path": {"type": "path", "path": git}, "access": "read", "missing_path_behavior": "skip"},
        ]),
    )
}

fn full_access() -> Value {
    json!({"permissionProfile": {"type": "disabled"}, "sandboxCwd": "file:///"})
}

fn root() -> Value {
    json!({"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"})
}

/// Calls a tool as a client that tells this.
async fn call(ipybox: &mut Ipybox, state: &Value, tool: &str, arguments: Value) -> Answer {
    let meta = json!({"codex/sandbox-state-meta": state});
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    ipybox.request("tools/call", params).await.answer().await
}

async fn cell(ipybox: &mut Ipybox, state: &Value, code: &str) -> Answer {
    call(ipybox, state, "execute_ipython_cell", json!({"code": code})).await
}

/// ipybox without a sandbox of its own, initialized, with programs that can make one.
async fn unconfined(place: &Place, flags: &[&str]) -> (Ipybox, Value) {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start_with(&flags, &[("PATH", &equipped())]).await;
    let about = ipybox.initialize().await;
    std::fs::write(place.workspace().parent().unwrap().join("beside"), "x").unwrap();
    (ipybox, about)
}

#[tokio::test]
async fn an_unconfined_kernel_is_confined_as_its_client_says_and_only_while_it_does() {
    let place = Place::new();
    let (mut ipybox, about) = unconfined(&place, &[]).await;
    assert!(about["capabilities"]["experimental"]["codex/sandbox-state-meta"].is_object(), "{about}");
    let workspace = place.workspace().canonicalize().unwrap();
    ipybox.cell("x = 1").await.ok();

    // The kernel of before could do more: its variables go with it, and the answer says so.
    let writing = workspace_write(&workspace);
    let said = cell(&mut ipybox, &writing, PROBE).await.ok();
    assert!(
        said.starts_with("The kernel was started anew, since your MCP client allows less than before"),
        "{said}"
    );
    assert!(said.ends_with("write workspace\nread beside\nwrite temporary\nFalse"), "{said}");
    // The same again changes nothing, also not by what the sandbox has put into the workspace.
    cell(&mut ipybox, &writing, "x = 2").await.ok();
    assert_eq!(cell(&mut ipybox, &writing, "print(x)").await.ok(), "2");

    let reading = read_only(&workspace);
    let said = cell(&mut ipybox, &reading, PROBE).await.ok();
    assert!(said.contains("allows less than before"), "{said}");
    assert!(said.ends_with("\n\nread beside\nwrite temporary\nFalse"), "{said}");

    // More is adopted by a reset, and said once.
    cell(&mut ipybox, &reading, "x = 3").await.ok();
    let said = cell(&mut ipybox, &full_access(), "print(x)").await.ok();
    assert!(said.starts_with("Your MCP client allows more than before") && said.ends_with("3"), "{said}");
    assert_eq!(cell(&mut ipybox, &full_access(), "print(x)").await.ok(), "3");
    call(&mut ipybox, &full_access(), "reset", json!({})).await.ok();
    let said = cell(&mut ipybox, &full_access(), PROBE).await.ok();
    assert!(said.starts_with("write workspace\nwrite beside\nread beside"), "{said}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_policy_of_ours_and_the_clients_hold_together() {
    let place = Place::new();
    let mut ipybox = start(&place, "bwrap", &[]).await;
    let workspace = place.workspace().canonicalize().unwrap();
    assert!(ipybox.cell(PROBE).await.ok().starts_with("write workspace\n"));
    let said = cell(&mut ipybox, &read_only(&workspace), PROBE).await.ok();
    assert!(!said.contains("write workspace") && said.contains("write temporary"), "{said}");
    // A second client, which does not tell, gets no more; nor does one that allows everything.
    let said = ipybox.cell(PROBE).await.ok();
    assert!(!said.contains("write workspace"), "{said}");
    call(&mut ipybox, &full_access(), "reset", json!({})).await.ok();
    let said = cell(&mut ipybox, &full_access(), PROBE).await.ok();
    assert!(said.starts_with("write workspace\n") && !said.contains("write beside"), "{said}");
    ipybox.stop().await;
}

#[tokio::test]
async fn tools_are_called_and_copies_made_within_a_clients_permissions() {
    let place = Place::new();
    let (mut ipybox, _) = unconfined(&place, &[]).await;
    let reading = read_only(&place.workspace().canonicalize().unwrap());
    let server = place.workspace().join("server.py");
    std::fs::write(&server, "").unwrap();
    // Where the client's commands can write, no server of the host comes from.
    let writing = workspace_write(&place.workspace().canonicalize().unwrap());
    let python = kernel_python();
    let params = json!({"command": python, "args": [server]});
    let refused = call(
        &mut ipybox,
        &writing,
        "register_mcp_server",
        json!({"server_name": "planted", "server_params": params}),
    )
    .await
    .error();
    assert!(refused.contains("code in the sandbox can write there"), "{refused}");

    let port = "import os, urllib.request, urllib.error\n\
                url = 'http://' + os.environ['IPYBOX_TOOL_SERVER']\n\
                try: urllib.request.urlopen(url)\n\
                except urllib.error.HTTPError as error: print('answered', error.code)";
    let said = cell(&mut ipybox, &reading, port).await.ok();
    assert!(said.contains("answered 40"), "{said}");
    cell(&mut ipybox, &reading, "x = 5").await.ok();
    let code = format!("print('x is', x)\n{PROBE}");
    let copied =
        call(&mut ipybox, &reading, "execute_ipython_cell", json!({"code": code, "session": "copy"}))
            .await
            .ok();
    assert!(copied.contains("x is 5") && !copied.contains("write workspace"), "{copied}");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_would_happen_outside_of_a_clients_sandbox_is_asked_for() {
    let place = Place::new();
    let (mut ipybox, _) = unconfined(&place, &[]).await;
    let workspace = place.workspace().canonicalize().unwrap();
    let reading = read_only(&workspace);
    let server = json!({"server_name": "probe", "server_params": probe()});
    let package = json!({"package_name": ["six", "idna"]});
    // It cannot ask its user.
    for (tool, arguments) in [("register_mcp_server", &server), ("install_package", &package)] {
        let refused = call(&mut ipybox, &reading, tool, arguments.clone()).await.error();
        assert!(refused.contains("the MCP client confines its own commands"), "{tool}: {refused}");
    }
    // Nor does one get more that tells nothing.
    let refused = ipybox.call("register_mcp_server", server.clone()).await.error();
    assert!(refused.contains("the MCP client confines its own commands"), "{refused}");
    call(&mut ipybox, &full_access(), "register_mcp_server", server.clone()).await.ok();
    // What the user has agreed to is not asked for again.
    call(&mut ipybox, &reading, "register_mcp_server", server.clone()).await.ok();
    ipybox.stop().await;

    let place = Place::new();
    let python = kernel_python();
    let path = equipped();
    let flags = ["--python", python.to_str().unwrap()];
    let mut ipybox = place.start_with(&flags, &[("PATH", &path)]).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let reading = read_only(&place.workspace().canonicalize().unwrap());
    for (decision, words) in [("deny", "reject"), ("allow once", "echo")] {
        let meta = json!({"codex/sandbox-state-meta": reading});
        let params = json!({"name": "register_mcp_server", "arguments": server, "_meta": meta});
        let registering = ipybox.request("tools/call", params).await;
        let question = ipybox.decide(decision).await;
        assert!(question.contains("probe"), "{question}");
        let answer = registering.answer().await;
        assert!(answer.text.contains(words) && answer.is_error == (decision == "deny"), "{answer:?}");
    }
    ipybox.stop().await;

    // A rule of the user's answers for them.
    let place = Place::new();
    let allowed = place.temporary().parent().unwrap().join("approval.toml");
    let rule =
        "default = 'allow'\n[[rule]]\nserver = 'ipybox'\ntool = 'register_mcp_server'\neffect = 'allow'\n";
    std::fs::write(&allowed, rule).unwrap();
    let (mut ipybox, _) = unconfined(&place, &["--approval-policy", allowed.to_str().unwrap()]).await;
    let reading = read_only(&place.workspace().canonicalize().unwrap());
    call(&mut ipybox, &reading, "register_mcp_server", server).await.ok();
    ipybox.stop().await;
}

#[tokio::test]
async fn what_cannot_be_held_is_refused_and_the_flag_decides_otherwise() {
    let place = Place::new();
    // Without a program that makes sandboxes.
    let python = kernel_python();
    let mut ipybox = place.start_with(&["--python", python.to_str().unwrap()], &[("PATH", "/nowhere")]).await;
    ipybox.initialize().await;
    ipybox.cell("x = 1").await.ok();
    let reading = read_only(&place.workspace().canonicalize().unwrap());
    let refused = cell(&mut ipybox, &reading, "print(x)").await.error();
    assert!(refused.contains("hint: install bubblewrap"), "{refused}");
    for tool in ["install_package", "register_mcp_server"] {
        let arguments = match tool {
            "install_package" => json!({"package_name": "six"}),
            _ => json!({"server_name": "a", "server_params": {"command": "true"}}),
        };
        let refused = call(&mut ipybox, &reading, tool, arguments).await.error();
        assert!(refused.contains("hint: install bubblewrap"), "{tool}: {refused}");
    }
    let later = json!({"permissionProfile": {"type": "vm"}, "sandboxCwd": "file:///"});
    let refused = cell(&mut ipybox, &later, "print(x)").await.error();
    assert!(refused.contains("`vm`") && refused.contains("--ignore-client-sandbox"), "{refused}");
    // For clients that allow it the kernel has gone on.
    assert_eq!(cell(&mut ipybox, &full_access(), "print(x)").await.ok(), "1");
    ipybox.stop().await;

    let (mut ipybox, about) = unconfined(&place, &["--ignore-client-sandbox"]).await;
    assert!(about["capabilities"]["experimental"].is_null(), "{about}");
    let said = cell(&mut ipybox, &reading, PROBE).await.ok();
    assert!(said.starts_with("write workspace\nwrite beside"), "{said}");
    ipybox.stop().await;
}
