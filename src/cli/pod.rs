//! `ipybox pod`: kernels for a session on another machine.

use std::process::ExitCode;

use ipybox::PodSettings;
use serde_json::{Map, Value};

use super::args::PodArgs;
use super::tool_server::announce;

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
