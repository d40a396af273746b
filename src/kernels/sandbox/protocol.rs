//! The messages between the host and the gateway.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::hardening::{Hardening, HardeningReport};

/// A request of the host to the gateway.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GatewayRequest {
    /// The configuration: the first request, sent once.
    Configure(GatewayConfiguration),
    /// Carries the output pipe of the kernel that is started next.
    KernelOutput,
    /// Start a kernel; carries the socket for its stdin.
    StartKernel {
        /// The name of the kernel from now on.
        kernel: u64,
        /// The process.
        program: KernelProgram,
    },
    /// Send a signal to a kernel's process group, and confirm it; nothing happens if the group is gone.
    Signal {
        /// Which.
        kernel: u64,
        /// Its number.
        signal: i32,
    },
    /// So many kernels run that are branches: the gateway has not started them.
    Branches {
        /// The number of those that live.
        living: usize,
    },
    /// Hand out a further listener for the tool server.
    Listen,
    /// Run a program; carries the pipe for its output.
    Run {
        /// The name of the run in the answer.
        run: u64,
        /// The program that is run.
        program: SandboxProgram,
    },
}

/// The configuration of a gateway.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GatewayConfiguration {
    /// The version of the host, which must be the gateway's own.
    pub(crate) version: String,
    /// The hardening to apply inside.
    pub(crate) hardening: Hardening,
    /// Whether to fail if that is incomplete.
    pub(crate) is_complete_hardening_required: bool,
    /// The listeners to hand out, each with its port, or 0 for a free one.
    pub(crate) listeners: BTreeMap<HostService, u16>,
}

/// The service of the host on a listener in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HostService {
    /// The tool server.
    Tools,
    /// The proxy that filters by domain.
    Proxy,
}

/// The process of a kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KernelProgram {
    /// The interpreter, which can import IPython.
    pub(crate) python: PathBuf,
    /// The kernel's working directory.
    pub(crate) working_directory: PathBuf,
    /// The kernel's whole environment; what the sandbox needs is added.
    pub(crate) environment: BTreeMap<String, String>,
    /// A directory that only this user can enter.
    pub(crate) private_directory: PathBuf,
}

/// A program, its arguments and its whole environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SandboxProgram {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) working_directory: PathBuf,
}

/// A notice of the gateway to the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GatewayNotice {
    /// Carries a listening socket.
    Listener(HostService),
    /// All listeners have been handed out, and requests are awaited.
    Ready(HardeningReport),
    /// It cannot work, and ends.
    Failed {
        /// The fault.
        why: String,
    },
    /// A signal has been sent to a kernel.
    Signalled {
        /// Which kernel.
        kernel: u64,
    },
    /// A kernel has ended, and nothing is left of what it started.
    KernelEnded {
        /// Which kernel.
        kernel: u64,
        /// The status by `wait`.
        wait_status: i32,
    },
    /// A program has ended.
    Ended {
        /// Which run.
        run: u64,
        /// The status by `wait`.
        wait_status: i32,
    },
}
