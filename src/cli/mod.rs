//! The command line: flags → configuration → serving → exit code.

mod args;
mod greeting;
mod logging;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use ipybox::Config;

use self::args::Args;

/// What clap exits with on wrong flags, for what only shows after it has parsed them.
const USAGE: u8 = 2;

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    logging::init(args.log_level);
    if args.sandbox {
        tell("`--sandbox` is not available in this version, and ipybox does not run unsandboxed instead");
        return ExitCode::from(USAGE);
    }
    if args.sandbox_config.is_some() {
        tell("`--sandbox-config` needs `--sandbox`");
        return ExitCode::from(USAGE);
    }
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("failed to {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let config = Config::new(args.into())?;
    for problem in config.variables().problems() {
        tracing::warn!("{problem}");
    }
    greeting::show(config.workspace());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let served = runtime.block_on(ipybox::serve_stdio(config));
    // A read of a terminal cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    Ok(served?)
}

/// Tells the user something on stderr; stdout is the protocol's.
fn tell(message: &str) {
    // Nothing can be done for a user whose stderr is closed.
    drop(writeln!(std::io::stderr(), "ipybox: {message}"));
}
