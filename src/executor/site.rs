//! Where a session's kernels run.

use super::Error;
use super::here::Here;
use super::remote::Remote;
use crate::kernel::Kernel;
use crate::tool_server::Endpoint;

/// Where a session's kernels run, and what it takes to start them there.
pub(super) enum Site {
    /// On this machine, in a sandbox or not.
    Here(Box<Here>),
    /// Where a Jupyter server runs them.
    Remote(Box<Remote>),
}

impl Site {
    /// Starts a kernel, whose code has the tools of `tool_server`.
    pub(super) async fn start_kernel(
        &mut self,
        tool_server: Option<&Endpoint>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Kernel, Error> {
        match self {
            Self::Here(here) => here.start_kernel(tool_server, report).await,
            Self::Remote(remote) => remote.start_kernel(report).await,
        }
    }

    /// Forgets what may have kept a kernel from starting.
    pub(super) async fn forget(&self) {
        match self {
            Self::Here(here) => here.forget().await,
            Self::Remote(_) => {}
        }
    }

    /// Kills a kernel.
    pub(super) async fn kill(&mut self, kernel: Kernel) {
        if !kernel.kill().await
            && let Self::Here(here) = self
        {
            tracing::warn!("the sandbox does not end its kernel; ending the sandbox");
            here.end_sandbox().await;
        }
    }

    /// Kills a kernel in whose place another one is to be started at once.
    pub(super) async fn replace(&mut self, kernel: Kernel) {
        match self {
            Self::Here(_) => self.kill(kernel).await,
            Self::Remote(remote) => remote.keep_for_restart(kernel).await,
        }
    }

    /// Ends the kernel, and what kernels run in.
    pub(super) async fn end(&mut self, kernel: Option<Kernel>) {
        match self {
            Self::Here(here) => {
                // The kernel ends with its sandbox, which is quicker than first the one, then the other.
                if !here.end_sandbox().await
                    && let Some(kernel) = kernel
                {
                    kernel.kill().await;
                }
            }
            Self::Remote(remote) => remote.end(kernel).await,
        }
    }
}
