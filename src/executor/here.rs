//! Kernels on this machine: their Python environment, their files, their sandbox.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::confined::Confined;
use crate::kernel::{Kernel, Launch, Limits, Program, ShellCommands};
use crate::tool_server::Endpoint;
use crate::{env, environment};

/// What kernels on this machine are started with.
pub(super) struct Here {
    pub(super) environment: Arc<environment::Shared>,
    pub(super) workspace: PathBuf,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) private_directory: PathBuf,
    pub(super) limits: Limits,
    pub(super) shell_commands: ShellCommands,
    pub(super) init_timeout: Duration,
    /// Where kernels run, if that is in a sandbox.
    pub(super) confined: Option<Confined>,
}

impl Here {
    /// Starts a kernel in the Python environment, which is made if there is none.
    pub(super) async fn start_kernel(
        &mut self,
        tool_server: Option<&Endpoint>,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Kernel, Error> {
        let environment = self.environment.get(report).await.map_err(Error::Environment)?;
        report("starting the IPython kernel");
        self.prepare_files().map_err(Error::Files)?;
        if let Some(confined) = &mut self.confined {
            confined.ready(&environment, tool_server).await?;
        }
        let mut variables: BTreeMap<String, String> = match &self.confined {
            None => BTreeMap::new(),
            Some(confined) => {
                confined.variables().map(|(name, path)| (name.to_owned(), path.display().to_string())).into()
            }
        };
        variables.extend(self.variables.clone());
        variables.extend(environment.variables());
        variables.extend(self.our_variables(tool_server));
        let program = Program {
            python: environment.python().to_owned(),
            working_directory: self.workspace.clone(),
            environment: variables,
            private_directory: self.kernel_directory().to_owned(),
            wrapper: Vec::new(),
        };
        let launch = Launch {
            program,
            limits: self.limits,
            default_limits: self.confined.as_ref().map_or_else(Limits::default, Confined::limits),
            shell_commands: self.shell_commands,
            timeout: self.init_timeout,
        };
        let kernel = match &mut self.confined {
            None => Kernel::start(&launch, None).await?,
            Some(confined) => confined.start_kernel(&launch).await?,
        };
        tracing::info!(python = %launch.program.python.display(), "the kernel is ready");
        Ok(kernel)
    }

    /// Makes the directories that a kernel needs. Code in an earlier kernel, or a cleaner of temporary files, may
    /// have removed them.
    fn prepare_files(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.workspace)?;
        let private = std::fs::symlink_metadata(&self.private_directory);
        if !private.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            // A file or a link in its place is not ours.
            if private.is_ok() {
                std::fs::remove_file(&self.private_directory)?;
            }
            std::fs::DirBuilder::new().mode(0o700).create(&self.private_directory)?;
        }
        crate::tool_server::write_runtime(&self.private_directory, &self.workspace)
    }

    /// Where the kernel keeps files of its own.
    fn kernel_directory(&self) -> &Path {
        self.confined.as_ref().map_or(&self.private_directory, Confined::directory)
    }

    /// What the kernel gets beside the user's variables: where its tools are.
    fn our_variables(&self, tool_server: Option<&Endpoint>) -> Vec<(String, String)> {
        let runtime = crate::tool_server::runtime_directory(&self.private_directory).display().to_string();
        let python_path = match self.variables.get("PYTHONPATH") {
            Some(users) => format!("{runtime}:{users}"),
            None => runtime,
        };
        let mut ours = vec![("PYTHONPATH".to_owned(), python_path)];
        if let Some(tool_server) = tool_server
            && let Some(address) = tool_server.address()
        {
            ours.push((env::IPYBOX_TOOL_SERVER.to_owned(), address.to_string()));
            // A new token for each kernel: what an earlier one left behind cannot call tools.
            ours.push((env::IPYBOX_TOOL_SERVER_TOKEN.to_owned(), tool_server.renew_token()));
        }
        ours
    }

    /// Looks for Python anew the next time.
    pub(super) async fn forget(&self) {
        self.environment.forget().await;
    }

    /// Ends the sandbox, and with it its kernels. `false` if there is none.
    pub(super) async fn end_sandbox(&mut self) -> bool {
        match &mut self.confined {
            Some(confined) => {
                confined.end().await;
                true
            }
            None => false,
        }
    }
}
