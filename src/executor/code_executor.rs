//! What a Rust application holds: a kernel whose code can call tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::builder::CodeExecutorBuilder;
use super::error::StartError;
use super::execution::CodeExecution;
use super::session::Session;
use super::{Code, CodeExecutionError, CodeExecutionResult};
use crate::approval::{Gate, Standing};
use crate::config::Config;
use crate::describe::describe;
use crate::mcp::Connector;
use crate::registry::{GenerateError, Packages, Registry};
use crate::tool_server::Endpoint;

/// Runs Python code in an IPython kernel and lets it call the tools of MCP servers.
///
/// Variables and definitions persist from one piece of code to the next. Code runs one piece at a time, in the order in
/// which it was given; all methods take `&self`, so that one executor may be shared by many tasks.
///
/// Code that calls a tool waits for permission: [`stream`](Self::stream) hands out an
/// [`ApprovalRequest`](crate::ApprovalRequest) for each call, [`execute`](Self::execute) agrees to all of them.
///
/// ```no_run
/// use ipybox::{CodeExecutionEvent, CodeExecutor};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let executor = CodeExecutor::start().await?;
/// let mut execution = executor.stream("print('hello')");
/// while let Some(event) = execution.next().await {
///     match event? {
///         CodeExecutionEvent::ApprovalRequest(request) => {
///             println!("rejected: {request}");
///             request.reject();
///         }
///         CodeExecutionEvent::Result(result) => println!("{:?}", result.text),
///         _ => {}
///     }
/// }
/// executor.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct CodeExecutor {
    session: Arc<Session>,
    registry: Registry,
    working_dir: PathBuf,
}

impl CodeExecutor {
    /// A builder with the default of each option.
    pub fn builder() -> CodeExecutorBuilder {
        CodeExecutorBuilder::default()
    }

    /// Starts an executor with the defaults: the workspace is the current directory, and its registered servers are
    /// those of `ipybox --workspace .`.
    ///
    /// # Errors
    /// As for [`CodeExecutorBuilder::start`].
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// The workspace: the real path of the kernel's working directory.
    pub fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// The interpreter that runs the kernel.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if there is none.
    pub async fn python(&self) -> Result<PathBuf, CodeExecutionError> {
        let environment = self.session.environment(&|_| {}).await;
        let environment = environment.map_err(|error| CodeExecutionError::unavailable(&error))?;
        Ok(environment.python().to_owned())
    }

    /// Generates the package `mcptools.<server_name>` for the tools of an MCP server and registers the server in the
    /// executor's registry, as [`generate_mcp_sources`](crate::generate_mcp_sources) does. Code can import it at once, and the
    /// connection is kept for the first call. Returns the names of the generated modules, one for each tool.
    ///
    /// If the server's tools have changed since the name was registered last, code that has imported their modules imports
    /// the new ones with its next `import`; names that it has from before still are the old ones.
    ///
    /// Dropping the future leaves what was there before.
    ///
    /// # Errors
    /// See [`GenerateError`].
    pub async fn register_mcp_server(
        &self,
        server_name: &str,
        server_params: &Value,
    ) -> Result<Vec<String>, GenerateError> {
        let packages = Packages::of_workspace(&self.working_dir);
        let registration = self.registry.generate(server_name, server_params, packages).await?;
        self.session.refresh_imports(registration.changed(server_name)).await;
        self.session.adopt(server_name, registration.server, registration.connection).await;
        Ok(registration.modules)
    }

    /// Runs code to its end and agrees to its tool calls, except those that the approval policy denies.
    ///
    /// Whoever is asked, or has agreed, is so for all that the kernel calls while this code runs, threads that earlier
    /// code has left behind included. Do not run code with `execute` in a kernel that has run code which you do not trust.
    ///
    /// Dropping the future cancels the code.
    ///
    /// # Errors
    /// [`CodeExecutionError`] if the code raises an exception, exceeds its timeout, or loses its kernel.
    pub async fn execute(&self, code: impl Into<Code>) -> Result<CodeExecutionResult, CodeExecutionError> {
        CodeExecution::consented(Arc::clone(&self.session), code.into()).end().await
    }

    /// Runs code and tells what happens: approval requests, output if the code asks for it, the result.
    pub fn stream(&self, code: impl Into<Code>) -> CodeExecution {
        CodeExecution::asking(Arc::clone(&self.session), code.into())
    }

    /// Replaces the kernel by a fresh one and closes the connections to MCP servers, which are opened again when their
    /// tools are called next. Code that runs is stopped.
    ///
    /// The reset is done even if the future is dropped.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if no fresh kernel starts. The next code tries again.
    pub async fn reset(&self) -> Result<(), CodeExecutionError> {
        self.session.reset().await
    }

    /// Interrupts the code that runs and gives up what waits for its turn. Variables are kept, unless the code does not
    /// react to the interrupt within 5 seconds. Returns at once; the code's own stream tells when it has ended.
    pub fn cancel(&self) {
        self.session.cancel();
    }

    /// Installs a Python package into the environment that runs the kernel: `requests`, `numpy>=1.20`,
    /// `git+https://…`. It can be imported at once. Returns the installer's output.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] with the installer's words if the package cannot be installed, or with the
    /// reason why there is no environment.
    pub async fn install_package(&self, package: &str) -> Result<String, CodeExecutionError> {
        let output = self.session.install(package, &|_| {}).await;
        let output = output.map_err(|error| CodeExecutionError::Unavailable(describe(&error)))?;
        self.session.refresh_imports(None).await;
        Ok(output)
    }

    /// Kills the kernel, closes all connections, and waits until no process is left. Code that runs or waits ends with an
    /// error.
    ///
    /// Dropping the executor does the same without waiting.
    pub async fn stop(&self) {
        self.session.stop().await;
    }
}

impl Drop for CodeExecutor {
    fn drop(&mut self) {
        // Streams of it may live on: they end with an error.
        self.session.abandon();
    }
}

impl std::fmt::Debug for CodeExecutor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CodeExecutor").finish_non_exhaustive()
    }
}

impl CodeExecutorBuilder {
    /// Starts the tool server and a kernel, and waits until it runs code.
    ///
    /// The first start in a workspace makes its Python environment, which takes seconds. Dropping the future stops what
    /// has been started.
    ///
    /// # Errors
    /// [`StartError`]; no process is left behind.
    pub async fn start(self) -> Result<CodeExecutor, StartError> {
        let policy = self.policy();
        let config = Config::new(self.kernel.into_settings())?;
        config.check_sandbox().await?;
        let connector = Connector::new(Arc::clone(&config.variables), config.workspace.clone())
            .with_connect_timeout(config.tool_server.connect_timeout);
        connector.keep_apart(config.guard());
        let registry = match self.registry {
            Some(registry) => {
                registry.keep_apart(config.guard());
                registry
            }
            None => Registry::of_workspace(&config, connector.clone()),
        };
        registry.tell_placeholders(&config.variables);
        let audit = config.open_audit()?;
        let standing = Standing::new(config.state_dir.join("approvals.json"));
        let gate = Gate::new(policy, standing, self.approval_timeout);
        let servers = registry.lookup(&config.workspace);
        let tool_server = Endpoint::new(servers, connector, Arc::new(gate), audit);
        if let Some((host, port)) = config.tool_server_address() {
            tool_server.listen(host, port).await?;
        }
        let session = Session::start(&config, Some(tool_server)).map_err(StartError::PrivateDirectory)?;
        session.started().await.map_err(|error| StartError::kernel(&error))?;
        Ok(CodeExecutor { session: Arc::new(session), registry, working_dir: config.workspace })
    }
}
