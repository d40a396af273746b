//! Kernels that a Jupyter server runs: starting them, and answering the calls of their code.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::Error;
use super::{modules, uploads};
use crate::config::{Config, RemoteServer};
use crate::kernels::kernel::{CallHandler, Kernel, RemoteLaunch};
use crate::tools::tool_server::Endpoint;

/// Kernels on a Jupyter server.
pub(crate) struct Remote {
    launch: RemoteLaunch,
}

impl Remote {
    pub(super) fn new(config: &Config, remote: &RemoteServer, tool_server: Option<Arc<Endpoint>>) -> Self {
        let launch = RemoteLaunch {
            server: Arc::clone(&remote.server),
            kernel_name: remote.kernel_name.clone(),
            start_variables: config.start_variables(),
            environment: config.kernel_variables(),
            limits: config.kernel.limits(),
            shell_commands: config.shell_commands,
            timeout: config.kernel.init_timeout,
            runtime: &crate::tools::tool_server::RUNTIME,
            handler: Arc::new(Calls { workspace: config.workspace.clone(), tool_server }),
            tasks: TaskTracker::new(),
            earlier: None,
        };
        Self { launch }
    }

    /// Has the server start a kernel.
    pub(super) async fn start_kernel(
        &mut self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Kernel, Error> {
        report("starting the IPython kernel on the Jupyter server");
        let kernel = Kernel::start_remote(&mut self.launch).await?;
        tracing::info!(server = self.launch.server.name(), "the kernel is ready");
        Ok(kernel)
    }

    /// Has the server restart this kernel for the next one.
    pub(super) async fn keep_for_restart(&mut self, kernel: Kernel) {
        self.launch.keep_for_restart(kernel).await;
    }

    /// Ends the kernel, and one that was to be restarted, and waits for pending requests about others.
    pub(super) async fn end(&mut self, kernel: Option<Kernel>) {
        drop(kernel);
        self.launch.end().await;
    }
}

/// Answers the calls of a remote kernel's code.
struct Calls {
    workspace: PathBuf,
    /// `None` if its code has no tools.
    tool_server: Option<Arc<Endpoint>>,
}

impl CallHandler for Calls {
    fn handle(&self, path: String, body: String) -> BoxFuture<'static, (u16, Bytes)> {
        let (workspace, tool_server) = (self.workspace.clone(), self.tool_server.clone());
        Box::pin(async move {
            match (path.as_str(), tool_server) {
                ("/files" | "/source" | "/upload", _) => {
                    let reading = tokio::task::spawn_blocking(move || match path.as_str() {
                        "/upload" => uploads::answer(&workspace, &body),
                        _ => modules::answer(&workspace, &path, &body),
                    });
                    let answer = reading.await.unwrap_or_else(|error| Err(error.to_string()));
                    (
                        200,
                        match answer {
                            Ok(result) => json!({ "result": result }),
                            Err(message) => json!({ "error": { "kind": "tool", "message": message } }),
                        }
                        .to_string()
                        .into(),
                    )
                }
                (_, Some(tool_server)) => tool_server.answer(&path, body).await,
                (_, None) => (404, "this kernel's code has no tools".into()),
            }
        })
    }
}
