//! What Jupyter's servers do that others run kernels on: how they are reached, what they refuse, drop and end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::session::{start, with_tools};
use crate::support::jupyter::{Authority, Jupyter, Server, TOKEN};
use crate::support::{Place, eventually, is_running, probe, refusing, tool};

#[tokio::test]
async fn a_kernel_that_dies_is_replaced_and_its_death_reported() {
    for server in Server::ALL {
        let place = Place::new();
        let jupyter = Jupyter::shared(server).await;
        let mut ipybox = start(&place, jupyter.url(), &[]).await;
        ipybox.cell("import os, signal\nx = 1").await.ok();
        let error = ipybox.cell("os.kill(os.getpid(), signal.SIGKILL)").await.error();
        assert!(error.contains("The IPython kernel died while running the cell"), "{error}");
        let next = ipybox.cell("'x' in dir()").await.ok();
        assert!(
            next.contains("variables and imports of earlier cells are gone") && next.ends_with("False"),
            "{next}"
        );
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn a_kernel_that_somebody_else_deletes_is_replaced() {
    for server in Server::ALL {
        let place = Place::new();
        let jupyter = Jupyter::start(server).await;
        let mut ipybox = start(&place, jupyter.url(), &[]).await;
        ipybox.cell("x = 1").await.ok();
        let id = jupyter.kernels().into_keys().next().unwrap();
        let (status, _) = jupyter.ask("DELETE", &format!("api/kernels/{id}")).await;
        assert_eq!(status, 204);
        let next = ipybox.cell("'x' in dir()").await.ok();
        assert!(next.contains("somebody had its Jupyter server shut it down"), "{next}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn stubborn_code_loses_its_kernel_and_nothing_hangs() {
    let place = Place::new();
    let jupyter = Jupyter::start(Server::JupyterServer).await;
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    let code = "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass";
    let error = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 15})).await.error();
    assert!(error.contains("The code did not react"), "{error}");
    assert_eq!(ipybox.cell("1 + 1").await.ok().lines().last(), Some("2"));
    eventually("the old kernel is gone", || jupyter.kernels().len() == 1).await;
    ipybox.stop().await;
    eventually("no kernel is left", || jupyter.kernels().is_empty()).await;
}

#[tokio::test]
async fn however_it_ends_no_kernel_is_left() {
    let place = Place::new();
    let jupyter = Jupyter::start(Server::KernelGateway).await;
    for signal in [None, Some(nix::sys::signal::Signal::SIGTERM)] {
        let mut ipybox = start(&place, jupyter.url(), &[]).await;
        ipybox.cell("1").await.ok();
        ipybox.start_cell("import time; time.sleep(60)").await;
        assert_eq!(jupyter.kernels().len(), 1);
        match signal {
            Some(signal) => ipybox.signal(signal),
            None => ipybox.close_input(),
        }
        assert!(ipybox.ended().await.success());
        eventually("the kernel is gone", || jupyter.kernels().is_empty()).await;
    }
    // While it starts, too.
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    ipybox.close_input();
    ipybox.ended().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    eventually("the kernel is gone", || jupyter.kernels().is_empty()).await;
}

/// Its server would start one that ends again.
#[tokio::test]
async fn a_kernel_of_which_nobody_hears_any_more_gives_up_and_is_not_started_again() {
    let place = Place::new();
    let jupyter = Jupyter::start(Server::JupyterServer).await;
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    ipybox.cell("1").await.ok();
    let (id, process) = jupyter.kernels().into_iter().next().unwrap();
    // It may give up before the answer has come.
    let code =
        "import ipybox_carrier\ncarrier = ipybox_carrier.Carrier(get_ipython().kernel, lease_seconds=5)";
    ipybox.cell(code).await;
    eventually("the kernel has given up", || jupyter.kernels().is_empty()).await;
    // The server looks every three seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(jupyter.kernels().is_empty() && is_running(process));
    assert_eq!(jupyter.ask("GET", &format!("api/kernels/{id}")).await.0, 200);
    ipybox.stop().await;
    eventually("it is gone", || !is_running(process)).await;
}

/// Servers take the last state that they hear of for the kernel's.
#[tokio::test]
async fn a_kernel_whose_cell_has_called_a_tool_is_not_taken_for_idle() {
    let place = Place::new();
    let flags = [
        "--MappingKernelManager.cull_idle_timeout=15",
        "--MappingKernelManager.cull_interval=1",
        "--MappingKernelManager.cull_connected=True",
    ];
    let jupyter = Jupyter::with_flags(Server::JupyterServer, &flags).await;
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    let register = ipybox
        .start_call("register_mcp_server", json!({"server_name": "probe", "server_params": probe()}))
        .await;
    register.answer().await.ok();
    // On a slow machine the kernel was idle for longer than that meanwhile, and this one is another.
    ipybox.cell("0").await.ok();
    let code = "import time\nfrom mcptools.probe import add\nadd.run(a=1)\ntime.sleep(20)\nprint('done')";
    let answer = ipybox.cell(code).await.ok();
    assert!(answer.ends_with("done"), "{answer}");
    ipybox.stop().await;
}

#[tokio::test]
async fn output_that_the_server_drops_is_reported_with_the_setting_that_keeps_it() {
    for server in [Server::JupyterServer, Server::KernelGateway] {
        let place = Place::new();
        let flags = ["--ZMQChannelsWebsocketConnection.iopub_data_rate_limit=100000"];
        let jupyter = Jupyter::with_flags(server, &flags).await;
        let mut ipybox = start(&place, jupyter.url(), &[]).await;
        let said = ipybox.cell("for _ in range(20): print('x' * 100_000, flush=True)").await.ok();
        assert!(said.contains("messages with output of this cell are missing"), "{said}");
        assert!(said.contains("--ZMQChannelsWebsocketConnection.iopub_data_rate_limit"), "{said}");
        assert!(said.contains("which is 100000 a second"), "{said}");
        assert!(!said.contains("IOPub"), "{said}");
        assert_eq!(ipybox.cell("print('y')").await.ok(), "y");
        ipybox.stop().await;
    }
}

/// Calls are made while the server drops everything else.
#[tokio::test]
async fn tools_are_called_whatever_is_dropped() {
    let place = Place::new();
    let flags = ["--ZMQChannelsWebsocketConnection.iopub_data_rate_limit=10000"];
    let jupyter = Jupyter::with_flags(Server::JupyterServer, &flags).await;
    let mut ipybox = with_tools(&place, jupyter.url(), &[]).await;
    let code = "for _ in range(5): print('x' * 100_000, flush=True)\ntotal = add.run(a=1, b=2).total";
    let said = ipybox.cell(code).await.ok();
    assert!(said.contains("are missing"), "{said}");
    assert_eq!(ipybox.cell("total").await.ok(), "3");
    ipybox.stop().await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_reported_with_what_would_help() {
    let place = Place::new();
    let jupyter = Jupyter::of(Server::JupyterServer)
        .spec("broken", &["false", "{connection_file}"])
        .spec("missing", &["/no/such/program", "{connection_file}"])
        .start()
        .await;
    let (_closed, nobody) = refusing();
    let wrong = format!("{}wrong/", jupyter.url());
    for (url, flags, expected) in [
        (
            format!("http://{nobody}/"),
            &[][..],
            &["connect to the Jupyter server at `http://", "refused", "is the server running"][..],
        ),
        (wrong, &[], &["there is no Jupyter server", "wrong`", "base path"]),
        (
            jupyter.url().to_owned(),
            &["--kernel-name", "nope"],
            &["has no kernel spec `nope`", "`ipykernel6`, `missing`, `python3`"],
        ),
        (jupyter.url().to_owned(), &["--kernel-name", "missing"], &["start a kernel", "500"]),
        (
            jupyter.url().to_owned(),
            &["--kernel-name", "broken"],
            &["start the IPython kernel: it ended", "the log of the Jupyter server says why"],
        ),
    ] {
        let mut ipybox = start(&place, &url, flags).await;
        let error = ipybox.cell("1").await.error();
        for words in expected {
            assert!(error.contains(words), "{words}\n{error}");
        }
        assert!(!error.contains(TOKEN) && !ipybox.log().contains(TOKEN), "{error}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn a_wrong_token_is_reported_for_every_server() {
    for server in Server::ALL {
        let place = Place::new();
        let jupyter = Jupyter::shared(server).await;
        for (token, advice) in [("a-wrong-token-of-mine", "the token is wrong"), ("", "it wants a token")] {
            let flags = ["--kernel-gateway-url", jupyter.url()];
            let named = ["--kernel-gateway-token-env", "WRONG"];
            let named = if token.is_empty() { &[][..] } else { &named };
            let mut ipybox = place.start_with(&[&flags[..], named].concat(), &[("WRONG", token)]).await;
            ipybox.initialize().await;
            let error = ipybox.cell("1").await.error();
            assert!(error.contains("the Jupyter server answers 40") && error.contains(advice), "{error}");
            assert!(!ipybox.log().contains("a-wrong-token-of-mine"));
            ipybox.stop().await;
        }
    }
}

#[tokio::test]
async fn what_contradicts_itself_is_refused_at_the_start() {
    let place = Place::new();
    let url = "http://localhost:1/";
    place.write("empty.pem", "");
    let empty = place.workspace().join("empty.pem");
    let empty = empty.to_str().unwrap();
    for (flags, expected) in [
        (&["--kernel-gateway-url", url, "--sandbox"][..], "cannot be used with"),
        (&["--kernel-gateway-url", url, "--python", "python3"], "cannot be used with"),
        (&["--kernel-name", "python3"], "--kernel-gateway-url"),
        (&["--kernel-gateway-url", "localhost:8888"], "its scheme is `localhost`"),
        (&["--kernel-gateway-url", "http://me:secret@localhost/"], "holds a user name or a password"),
        (&["--kernel-gateway-url", url, "--kernel-gateway-token-env", "NOT_SET"], "`NOT_SET`: it is not set"),
        (&["--kernel-gateway-url", url, "--kernel-gateway-ca", empty], "no certificates"),
        (&["--kernel-gateway-url", url, "--kernel-gateway-ca", "/dev/zero"], "regular file"),
    ] {
        let mut ipybox = place.start(flags).await;
        assert!(!ipybox.ended().await.success(), "{flags:?}");
        eventually(expected, || ipybox.log().contains(expected)).await;
        let log = ipybox.log();
        assert!(!log.contains("secret"), "{flags:?}: {log}");
    }
}

#[tokio::test]
async fn a_server_with_tls_and_a_base_path_is_spoken_to() {
    let place = Place::new();
    let authority = Authority::of([127, 0, 0, 1].into());
    let jupyter = Jupyter::of(Server::JupyterServer).base("/user/me/").tls(&authority).start().await;
    assert!(jupyter.url().starts_with("https://") && jupyter.url().ends_with("/user/me/"));
    let roots = authority.roots();
    let mut ipybox = start(&place, jupyter.url(), &["--kernel-gateway-ca", roots.to_str().unwrap()]).await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.stop().await;
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    let error = ipybox.cell("1 + 1").await.error();
    assert!(error.contains("certificate") && error.contains("--kernel-gateway-ca"), "{error}");
    ipybox.stop().await;
}

/// Servers before Jupyter Server 2.0 do not know the subprotocol.
#[tokio::test]
async fn a_server_without_the_subprotocol_is_spoken_to_in_json() {
    let place = Place::new();
    let flags = ["--ZMQChannelsWebsocketConnection.kernel_ws_protocol="];
    let jupyter = Jupyter::with_flags(Server::JupyterServer, &flags).await;
    let mut ipybox = with_tools(&place, jupyter.url(), &[]).await;
    assert_eq!(ipybox.cell("print('é')\nadd.run(a=1, b=2).total").await.ok(), "é\n3");
    let error = ipybox
        .call("execute_ipython_cell", json!({"code": "slow.run(seconds=60)", "timeout": 1}))
        .await
        .error();
    assert!(error.contains("timed out after 1 seconds"), "{error}");
    let code =
        "from ipykernel.comm import Comm\nComm(target_name='other', buffers=[b'x' * 1000])\nprint('after')";
    assert!(ipybox.cell(code).await.ok().contains("after"));
    ipybox.stop().await;
}

#[tokio::test]
async fn variables_are_set_in_the_kernel_and_those_for_the_server_sent_to_it() {
    let place = Place::new();
    place.write(".env", "KERNEL_ENV_MINE_KEY=1\nKERNEL_ENV_KERNEL_PLANTED_KEY=1\n");
    let jupyter = Jupyter::shared(Server::EnterpriseGateway).await;
    let python = tool("kernel/bin/python");
    let variables = [
        ("KERNEL_ENV_YOURS", "2"),
        ("KERNEL_ENV_KERNEL_USERNAME", "alice"),
        ("PYTHON", python.to_str().unwrap()),
    ];
    let mut ipybox = place.start_remote(&[], jupyter.url(), &[], &variables);
    ipybox.initialize().await;
    let code = "import os\nwith open('/proc/self/environ') as file: first = file.read()\n\
        [os.environ.get(name) for name in ('MINE_KEY', 'YOURS', 'KERNEL_USERNAME', 'PYTHON', 'JUPYTER_TOKEN_OF_TESTS')], \
        'KERNEL_USERNAME=alice' in first, 'PLANTED' in first";
    assert_eq!(ipybox.cell(code).await.ok(), "(['1', '2', 'alice', None, None], True, False)");
    ipybox.stop().await;
}

/// A proxy that leads everybody to the same place, and counts the tunnels that it is asked for. Its URL has a password.
pub(super) async fn proxy(target: SocketAddr) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://me:secret@{}", listener.local_addr().unwrap());
    let tunnels = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tunnels);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await?);
                }
                let mut server = TcpStream::connect(target).await?;
                let text = String::from_utf8_lossy(&head).into_owned();
                assert!(
                    text.contains("Proxy-Authorization: Basic bWU6c2VjcmV0")
                        || text.contains("proxy-authorization: Basic bWU6c2VjcmV0"),
                    "{text}"
                );
                if text.starts_with("CONNECT ") {
                    seen.fetch_add(1, Ordering::Relaxed);
                    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                } else {
                    // One request for each connection: the next may be for somebody else.
                    let text = text.replacen("\r\n", "\r\nconnection: close\r\n", 1);
                    let (method, url) = text.split_once(' ').unwrap();
                    let path = url.splitn(4, '/').nth(3).unwrap();
                    let text = format!("{method} /{path}");
                    server.write_all(text.as_bytes()).await?;
                }
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (url, tunnels)
}

#[tokio::test]
async fn proxies_are_used_but_for_this_machine() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::KernelGateway).await;
    let (proxy, tunnels) = proxy(jupyter.address()).await;
    let variables =
        [("HTTP_PROXY", proxy.as_str()), ("http_proxy", &proxy), ("NO_PROXY", ""), ("no_proxy", "")];
    for (url, expected) in [("http://kernels.test/", true), (jupyter.url(), false)] {
        tunnels.store(0, Ordering::Relaxed);
        let mut ipybox = place.start_remote(&[], url, &[], &variables);
        ipybox.initialize().await;
        assert_eq!(ipybox.cell("1 + 1").await.ok(), "2", "{url}");
        assert_eq!(tunnels.load(Ordering::Relaxed) > 0, expected, "{url}");
        ipybox.stop().await;
    }
}
