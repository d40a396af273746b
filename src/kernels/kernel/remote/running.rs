//! Kernels on a server, all of which are ended there.
//!
//! Requests to the server run in tasks of a tracker, which outlive their callers: a kernel that starts too
//! late is ended, too.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::super::jupyter::{Error, JupyterServer, KernelId};
use super::RemoteLaunch;
use crate::ground::text::describe;

/// The time that a server may take to start a kernel, even if no caller waits.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// The time that ending a kernel is tried, even if no caller waits.
const DELETE_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause after a failed request. It fails while it is restarting the kernel itself.
const DELETE_PAUSE: Duration = Duration::from_millis(500);

/// The time to wait for an end. MCP clients that have closed our input kill us a while later.
const PATIENCE: Duration = Duration::from_secs(3);

/// A kernel on a server, which is ended there when this is dropped.
pub(super) struct RunningKernel {
    pub(super) server: Arc<JupyterServer>,
    pub(super) kernel: KernelId,
    tasks: TaskTracker,
    is_held: bool,
}

impl RunningKernel {
    pub(super) fn new(server: Arc<JupyterServer>, kernel: KernelId, tasks: TaskTracker) -> Self {
        Self { server, kernel, tasks, is_held: true }
    }

    /// Leaves it on the server, and returns its id.
    pub(super) fn release(mut self) -> KernelId {
        self.is_held = false;
        self.kernel.clone()
    }

    /// Requests the server to end it, and waits a while for that.
    pub(super) async fn end(self) {
        let tasks = self.tasks.clone();
        drop(self);
        settle(&tasks).await;
    }

    /// Requests the server to end it, and does not wait.
    pub(super) fn begin_to_end(&self) {
        self.tasks.spawn(delete(Arc::clone(&self.server), self.kernel.clone()));
    }
}

impl Drop for RunningKernel {
    fn drop(&mut self) {
        // Without a runtime no request can be sent: the kernel ends when its lease is over.
        if self.is_held && tokio::runtime::Handle::try_current().is_ok() {
            self.begin_to_end();
        }
    }
}

/// Waits a while for pending requests about kernels.
pub(super) async fn settle(tasks: &TaskTracker) {
    tasks.close();
    if tokio::time::timeout(PATIENCE, tasks.wait()).await.is_err() {
        tracing::warn!("the Jupyter server takes long to end a kernel, which may still run");
    }
}

/// Starts a kernel, or restarts the earlier one, which stays there if the server cannot be reached.
pub(super) async fn obtain(
    launch: &mut RemoteLaunch,
    server: &Arc<JupyterServer>,
) -> Result<RunningKernel, super::Error> {
    let tasks = &launch.tasks;
    if let Some(kernel) = launch.earlier.clone() {
        // Half of the timeout, so that another kernel can be started in the other half.
        let restarted = server.restart_kernel(&kernel, launch.timeout / 2).await;
        if let Err(error @ Error::Unreachable { .. }) = restarted {
            return Err(error.into());
        }
        launch.earlier = None;
        let running = RunningKernel::new(Arc::clone(server), kernel, tasks.clone());
        match restarted {
            Ok(()) => return Ok(running),
            Err(error) => {
                tracing::warn!(
                    error = describe(&error),
                    "the remote kernel is not restarted; starting another"
                );
                running.end().await;
            }
        }
    }
    let spec = server.kernel_spec(launch.kernel_name.as_deref()).await?;
    let server = Arc::clone(server);
    let variables = launch.start_variables.clone();
    let tracker = tasks.clone();
    let (sender, started) = oneshot::channel();
    tasks.spawn(async move {
        let started = server.start_kernel(&spec, &variables, START_TIMEOUT).await;
        let running = started.map(|kernel| RunningKernel::new(server, kernel, tracker));
        if let Err(Ok(running)) = sender.send(running) {
            tracing::debug!("a remote kernel is there too late");
            // Dropped in this task, which the tracker waits for.
            drop(running);
        }
    });
    Ok(started.await.map_err(|error| super::Error::Connection(Box::new(error)))??)
}

async fn delete(server: Arc<JupyterServer>, kernel: KernelId) {
    let mut last_error = "no answer".to_owned();
    let deleting = async {
        while let Err(error) = server.delete_kernel(&kernel).await {
            last_error = describe(&error);
            tokio::time::sleep(DELETE_PAUSE).await;
        }
    };
    if tokio::time::timeout(DELETE_TIMEOUT, deleting).await.is_err() {
        tracing::warn!(error = last_error, "the remote kernel may still run");
    }
}
