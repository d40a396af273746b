//! The real Jupyter servers that tests of remote kernels start.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::json;

use crate::support::jupyter::{Authority, Jupyter, Server};
use crate::support::{eventually, is_running};

#[tokio::test]
async fn jupyter_server_runs_both_kernels_and_leaves_nothing() {
    runs_both_kernels_and_leaves_nothing(Server::JupyterServer).await;
}

#[tokio::test]
async fn kernel_gateway_runs_both_kernels_and_leaves_nothing() {
    runs_both_kernels_and_leaves_nothing(Server::KernelGateway).await;
}

#[tokio::test]
async fn enterprise_gateway_runs_both_kernels_and_leaves_nothing() {
    runs_both_kernels_and_leaves_nothing(Server::EnterpriseGateway).await;
}

async fn runs_both_kernels_and_leaves_nothing(server: Server) {
    let jupyter = Jupyter::of(server).base("/user/me/").start().await;
    let (status, specs) = jupyter.ask("GET", "api/kernelspecs").await;
    assert_eq!((status, &specs["default"]), (200, &json!("python3")));
    for name in ["python3", "ipykernel6"] {
        assert!(specs["kernelspecs"][name].is_object(), "there is no {name}");
    }
    let started = [start_kernel(&jupyter, "python3").await, start_kernel(&jupyter, "ipykernel6").await];
    assert_eq!(jupyter.kernels().into_keys().collect::<BTreeSet<_>>(), started.clone().into());

    let [killed, deleted] = &started;
    let process = jupyter.kernels()[killed];
    jupyter.kill_kernel(killed);
    eventually("the kernel is started again", || {
        jupyter.kernels().get(killed).is_some_and(|now| *now != process)
    })
    .await;
    assert_eq!(jupyter.ask("DELETE", &format!("api/kernels/{deleted}")).await.0, 204);
    assert_eq!(jupyter.kernels().keys().collect::<Vec<_>>(), [killed]);

    let (process, files) = (jupyter.kernels()[killed], jupyter.files());
    assert!(files.exists());
    drop(jupyter);
    assert!(!is_running(process), "a kernel is left");
    assert!(!files.exists(), "{} is left", files.display());
}

#[tokio::test]
async fn a_server_that_tests_share_is_started_once() {
    let (one, other) =
        tokio::join!(Jupyter::shared(Server::EnterpriseGateway), Jupyter::shared(Server::EnterpriseGateway));
    assert_eq!(one.url(), other.url());
    assert_eq!(one.ask("GET", "api").await.0, 200);
}

#[tokio::test]
async fn an_authority_certifies_a_server() {
    let authority = Authority::of(Ipv4Addr::LOCALHOST.into());
    let jupyter = Jupyter::of(Server::EnterpriseGateway).tls(&authority).start().await;
    assert!(jupyter.url().starts_with("https://"));
    // Whoever trusts the authority trusts the server, and nobody else does.
    for (roots, is_trusted) in [(Some(authority.roots()), true), (None, false)] {
        let mut client = reqwest::Client::builder().no_proxy();
        if let Some(roots) = roots {
            let roots = std::fs::read(roots).unwrap();
            client = client.tls_certs_only([reqwest::Certificate::from_pem(&roots).unwrap()]);
        }
        let asked = client.build().unwrap().get(format!("{}api", jupyter.url())).send().await;
        assert_eq!(asked.is_ok(), is_trusted, "{asked:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_stopped_takes_its_kernels_along() {
    let jupyter = Jupyter::start(Server::KernelGateway).await;
    start_kernel(&jupyter, "python3").await;
    jupyter.stop().await;
    assert_eq!(jupyter.kernels().len(), 0);
    assert!(jupyter.log().contains("Kernel"), "{}", jupyter.log());
}

#[tokio::test]
#[should_panic(expected = "no_such_flag")]
async fn a_server_that_does_not_start_says_why() {
    Jupyter::with_flags(Server::EnterpriseGateway, &["--no_such_flag"]).await;
}

/// Starts a kernel and returns its id.
async fn start_kernel(jupyter: &Jupyter, name: &str) -> String {
    let (status, model) = jupyter.post("api/kernels", &json!({"name": name})).await;
    assert_eq!(status, 201, "{model}");
    model["id"].as_str().unwrap().to_owned()
}
