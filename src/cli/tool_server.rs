//! `ipybox tool-server`: prints its address as one line of JSON on stdout, and serves until a signal ends it.

use std::io::Write as _;

use anyhow::Context as _;
use ipybox::telemetry::exporting;
use ipybox::{ApprovalPolicy, ToolServer, ToolServerBuilder, env};

use super::args::ToolServerArgs;
use super::multi_threaded;
use super::signals::EndSignals;

pub(super) fn run(args: ToolServerArgs) -> anyhow::Result<()> {
    multi_threaded()?.block_on(exporting(serve(args)))
}

async fn serve(args: ToolServerArgs) -> anyhow::Result<()> {
    // Before anything is printed, so that a reader of the line can end us.
    let mut signals = EndSignals::new().context("handle signals")?;
    let token = given(env::IPYBOX_TOOL_SERVER_TOKEN)?;
    let host_token = given(env::IPYBOX_TOOL_SERVER_HOST_TOKEN)?;
    let has_token = token.is_some();
    let has_host_token = host_token.is_some();
    let server = builder(args, token, host_token)?.start().await?;
    let mut line = serde_json::Map::new();
    line.insert("address".to_owned(), server.address().to_string().into());
    // Given tokens are known.
    if !has_token {
        line.insert("token".to_owned(), server.token().into());
    }
    if !has_host_token {
        line.insert("host_token".to_owned(), server.host_token().into());
    }
    announce(line).context("print the tool server's address")?;
    tokio::select! {
        () = signals.next() => tracing::info!("ending"),
        () = server.join() => {}
    }
    server.stop().await;
    Ok(())
}

fn builder(
    args: ToolServerArgs,
    token: Option<String>,
    host_token: Option<String>,
) -> anyhow::Result<ToolServerBuilder> {
    let mut builder = ToolServer::builder()
        .host(args.host)
        .port(args.port)
        .approval_required(args.approval_required)
        .approval_timeout(args.approval_timeout)
        .connect_timeout(args.connect_timeout);
    if let Some(file) = args.approval_policy {
        builder = builder.approval_policy(ApprovalPolicy::read(file)?);
    }
    if let Some(token) = token {
        builder = builder.token(token);
    }
    if let Some(token) = host_token {
        builder = builder.host_token(token);
    }
    Ok(builder)
}

/// A token from the environment: the command line can be read by other users.
fn given(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var(name) {
        Ok(token) => Ok(Some(token)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read the variable `{name}`")),
    }
}

/// Prints an address, and the generated tokens.
pub(super) fn announce(line: serde_json::Map<String, serde_json::Value>) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::Value::Object(line))?;
    stdout.flush()
}
