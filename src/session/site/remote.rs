//! Kernels that a Jupyter server runs: their settings, and the answers to the calls of their code.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio_util::task::TaskTracker;

use super::workspace_files;
use crate::config::{Config, RemoteServer};
use crate::kernels::kernel::{CallHandler, RemoteLaunch};
use crate::tools::tool_server::ToolEndpoint;

/// The settings of kernels on a Jupyter server.
pub(super) fn launch(
    config: &Config,
    remote: &RemoteServer,
    tool_server: Option<Arc<ToolEndpoint>>,
) -> RemoteLaunch {
    RemoteLaunch {
        server: remote.servers.source.clone(),
        kernel_name: remote.kernel_name.clone(),
        start_variables: config.start_variables(),
        environment: config.kernel_variables(),
        limits: config.kernel.limits(),
        shell_commands: config.shell_commands,
        timeout: config.kernel.init_timeout,
        runtime: &crate::tools::tool_server::RUNTIME,
        handler: Arc::new(CallAnswerer { workspace: config.workspace.clone(), tool_server }),
        tasks: TaskTracker::new(),
        earlier: None,
    }
}

/// Answers the calls of a remote kernel's code.
struct CallAnswerer {
    workspace: PathBuf,
    /// `None` if its code has no tools.
    tool_server: Option<Arc<ToolEndpoint>>,
}

impl CallHandler for CallAnswerer {
    fn handle(&self, path: String, body: String) -> BoxFuture<'static, (u16, Bytes)> {
        let workspace = self.workspace.clone();
        let tool_server = self.tool_server.clone();
        Box::pin(async move {
            match (path.as_str(), tool_server) {
                ("/files" | "/source" | "/upload", _) => {
                    let answer = workspace_files::answer(workspace, path, body).await;
                    (200, answer.to_string().into())
                }
                (_, Some(tool_server)) => tool_server.answer(&path, body).await,
                (_, None) => (404, "this kernel's code has no tools".into()),
            }
        })
    }
}
