//! `ipybox pod`: kernels for a session on another machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ipybox::PodSettings;
use serde_json::{Map, Value};

use super::tool_server::announce;
use super::values::seconds;

/// The flags of `ipybox pod`.
#[derive(Debug, clap::Args)]
pub(crate) struct PodArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:8888")]
    listen: SocketAddr,

    /// Working directory of kernels
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Python interpreter that runs kernels; it has IPython
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,

    /// File with certificates in PEM, for TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// File with their private key
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Seconds that the session may be away before everything ends
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3600")]
    lease: Duration,
}

/// Prints its address as one line of JSON, and runs it to its end.
pub(crate) fn run(args: PodArgs) -> ExitCode {
    let settings = PodSettings {
        listen: args.listen,
        workspace: args.workspace,
        python: args.python,
        tls: args.tls_certificate.zip(args.tls_key),
        lease: args.lease,
    };
    ipybox::run_pod(settings, |address| {
        announce(Map::from_iter([("address".to_owned(), Value::from(address.to_string()))]))
    })
}
