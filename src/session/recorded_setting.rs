//! Records what the cells of a session can use: servers, and the Python of the kernel.

use std::sync::Arc;

use super::worker::KernelWorker;
use crate::kernels::kernel::{CodeInquiry, CodeInsight};
use crate::tools::recording::RecordedEnvironment;

impl KernelWorker {
    /// Records the servers that the next cell can call.
    pub(super) async fn record_servers(&self) {
        let (Some(recorder), Some(tools)) = (self.audience.recorder(), &self.tools) else { return };
        let recorder = Arc::clone(recorder);
        let servers = tools.pool.servers();
        let recording =
            tokio::task::spawn_blocking(move || servers.recorded().map(|servers| recorder.servers(servers)));
        if let Err(error) = recording.await.map_err(std::io::Error::other).flatten() {
            tracing::warn!(%error, "the servers of the session are not recorded");
        }
    }

    /// Records the Python of the kernel that has started.
    pub(super) async fn record_environment(&mut self) {
        let (Some(recorder), Some(kernel)) = (self.audience.recorder().cloned(), self.kernel.as_mut()) else {
            return;
        };
        let (insight, said) = kernel.inquire(CodeInquiry::Environment).await;
        if let Some(CodeInsight::Environment(versions)) = insight {
            recorder.environment(RecordedEnvironment {
                python: versions.python,
                platform: versions.platform,
                packages: versions.packages,
            });
        }
        for event in said {
            self.take_event(event).await;
        }
    }
}
