//! Kernels on this machine: their Python environment, their files, their sandbox if they have one.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::sandboxed::Sandboxed;
use crate::config::Config;
use crate::ground::env;
use crate::kernels::environment;
use crate::kernels::kernel::{Kernel, KernelLimits, Launch, ShellCommands};
use crate::kernels::sandbox::{KernelProgram, TopLevel};
use crate::tools::tool_server;
use crate::tools::tool_server::Endpoint;

/// Starts kernels on this machine.
pub(crate) struct Local {
    environment: Arc<environment::SharedEnvironment>,
    workspace: PathBuf,
    variables: BTreeMap<String, String>,
    private_directory: PathBuf,
    limits: KernelLimits,
    shell_commands: ShellCommands,
    init_timeout: Duration,
    tool_server: Option<Arc<Endpoint>>,
    /// The sandbox in which kernels run, if they do.
    sandboxed: Option<Sandboxed>,
}

impl Local {
    pub(super) fn new(
        config: &Config,
        environment: Arc<environment::SharedEnvironment>,
        sandboxed: Option<Sandboxed>,
        directory: &Path,
        tool_server: Option<Arc<Endpoint>>,
    ) -> Self {
        let private_directory = sandboxed.as_ref().map_or(directory, Sandboxed::private_directory).to_owned();
        Self {
            environment,
            workspace: config.workspace.clone(),
            variables: config.kernel_variables(),
            private_directory,
            limits: config.kernel.limits(),
            shell_commands: config.shell_commands,
            init_timeout: config.kernel.init_timeout,
            tool_server,
            sandboxed,
        }
    }

    /// Starts a kernel in the Python environment, which is made if there is none.
    pub(super) async fn start_kernel(
        &mut self,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Kernel, Error> {
        let environment = self.environment.get(report).await.map_err(Error::Environment)?;
        report("starting the IPython kernel");
        self.prepare_files().map_err(Error::Files)?;
        if let Some(sandboxed) = &mut self.sandboxed {
            sandboxed.ready(&environment, self.tool_server.as_deref()).await?;
        }
        let mut variables: BTreeMap<String, String> = match &self.sandboxed {
            None => BTreeMap::new(),
            Some(sandboxed) => {
                sandboxed.variables().map(|(name, path)| (name.to_owned(), path.display().to_string())).into()
            }
        };
        variables.extend(self.variables.clone());
        variables.extend(environment.variables());
        variables.extend(self.our_variables());
        let program = KernelProgram {
            python: environment.python().to_owned(),
            working_directory: self.workspace.clone(),
            environment: variables,
            private_directory: self.kernel_directory().to_owned(),
        };
        let checkpoint = self.tool_server.as_ref().and_then(|tool_server| tool_server.checkpoint().cloned());
        let launch = Launch {
            program,
            limits: self.limits,
            default_limits: self.sandboxed.as_ref().map_or_else(KernelLimits::default, Sandboxed::limits),
            shell_commands: self.shell_commands,
            timeout: self.init_timeout,
            has_checkpoints: checkpoint.is_some(),
        };
        let kernel = match &mut self.sandboxed {
            None => Kernel::start(&launch, None).await?,
            Some(sandboxed) => sandboxed.start_kernel(&launch).await?,
        };
        if let Some(checkpoint) = checkpoint {
            let (major, minor) = environment.python_version();
            checkpoint.kernel_started(major, minor);
        }
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
        tool_server::write_runtime(&self.private_directory, &self.workspace)
    }

    /// The directory in which the kernel keeps files of its own.
    fn kernel_directory(&self) -> &Path {
        self.sandboxed.as_ref().map_or(&self.private_directory, Sandboxed::directory)
    }

    /// The kernel's variables beside the user's: the address and token of the tool server.
    fn our_variables(&self) -> Vec<(String, String)> {
        let private = &self.private_directory;
        let users = self.variables.get("PYTHONPATH").cloned();
        let places = std::iter::once(tool_server::runtime_directory(private).display().to_string())
            .chain(users)
            .chain(std::iter::once(tool_server::own_packages_directory(private).display().to_string()));
        let python_path = places.collect::<Vec<_>>().join(":");
        let mut ours = vec![("PYTHONPATH".to_owned(), python_path)];
        if let Some(endpoint) = &self.tool_server
            && let Some(address) = endpoint.address()
        {
            ours.push((env::IPYBOX_TOOL_SERVER.to_owned(), address.to_string()));
            // A new token for each kernel: processes that an earlier one left behind cannot call tools.
            ours.push((env::IPYBOX_TOOL_SERVER_TOKEN.to_owned(), endpoint.renew_token()));
        }
        ours
    }

    /// Forgets the Python environment, which is searched again for the next kernel.
    pub(super) async fn forget(&self) {
        self.environment.forget().await;
    }

    /// A file that the sandbox no longer protects.
    pub(super) fn replaced(&self) -> Option<&Path> {
        self.sandboxed.as_ref()?.replaced()
    }

    /// The top level of the workspace, if code in a sandbox can write there.
    pub(super) fn top_level(&self) -> Option<TopLevel> {
        self.sandboxed.as_ref()?.top_level()
    }

    /// The notes about the sandbox for the answer of the next cell.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        self.sandboxed.as_mut().map(Sandboxed::take_notes).unwrap_or_default()
    }

    /// Ends the sandbox, and with it its kernels. `false` if there is none.
    pub(super) async fn end_sandbox(&mut self) -> bool {
        match &mut self.sandboxed {
            Some(sandboxed) => {
                sandboxed.end().await;
                true
            }
            None => false,
        }
    }
}
