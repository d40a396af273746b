//! `ipybox json-rpc`: the library for other languages, until stdin ends.

use anyhow::Context as _;
use ipybox::json_rpc;
use ipybox::telemetry::exporting;

use super::args::LogLevel;
use super::{logging, multi_threaded};

pub(super) fn run(level: LogLevel) -> anyhow::Result<()> {
    let (sender, receiver) = json_rpc::log();
    let set_level = logging::forward(level, sender);
    let runtime = multi_threaded()?;
    let served = runtime.block_on(exporting(json_rpc::serve(receiver, set_level)));
    // A read of stdin cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    served.context("talk to the program that started this one")
}
