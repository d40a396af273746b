//! `ipybox pod`: the program that runs kernels for a session on another machine.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use crate::kernels::kernel;
pub use crate::kernels::kernel::PodSettings;
use crate::tools::tool_server::RUNTIME;

/// Runs it to its end. Calls `announce` with its address when the session can come.
pub fn run_pod(
    settings: PodSettings,
    announce: impl FnOnce(SocketAddr) -> io::Result<()> + Send + 'static,
) -> ExitCode {
    kernel::run_pod(settings, &RUNTIME, Box::new(announce))
}
