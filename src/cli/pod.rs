//! `ipybox pod`: kernels for a session on another machine.

use std::process::ExitCode;

use anyhow::Context as _;
use ipybox::PodSettings;
use serde_json::{Map, Value};

use super::args::PodArgs;
use super::tool_server::announce;

/// Prints its address as one line of JSON, and runs it to its end.
pub(crate) fn run(args: PodArgs) -> anyhow::Result<ExitCode> {
    let token = args.token_env.map(|name| {
        let token = std::env::var(&name).with_context(|| format!("read the variable `{name}`"))?;
        anyhow::ensure!(!token.trim().is_empty(), "use the token in `{name}`: it is empty");
        Ok(token)
    });
    let settings = PodSettings {
        listen: args.listen,
        workspace: args.workspace,
        python: args.python,
        tls: args.tls_certificate.zip(args.tls_key),
        token: token.transpose()?,
        lease: args.lease,
        is_child_of_first: args.child_of_first,
    };
    Ok(ipybox::run_pod(settings, |address| {
        announce(Map::from_iter([("address".to_owned(), Value::from(address.to_string()))]))
    }))
}
