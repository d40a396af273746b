//! `CodeExecutor`, for Rust applications: a kernel whose code can call tools.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::builder::CodeExecutorBuilder;
use super::execution::CodeExecution;
use super::numbered_session::NumberedSession;
use super::{Code, CodeExecutionError, CodeExecutionResult};
use crate::approval::GivenGrant;
use crate::config::Config;
use crate::ground::text::describe;
use crate::session::{RegisterError, Session, StartError, ToolOptions, UndoTarget};
use crate::tools::registry::GenerateError;

/// Runs Python code in an IPython kernel and lets it call the tools of MCP servers.
///
/// Variables and definitions persist from one piece of code to the next. Code runs one piece at a time, in
/// the order of the calls; all methods take `&self`, so that one executor may be shared by many tasks.
///
/// A tool call of code needs approval: [`stream`](Self::stream) yields an
/// [`ApprovalRequest`](crate::ApprovalRequest) for each call, [`execute`](Self::execute) approves all of
/// them.
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
    session: NumberedSession,
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
        self.session.workspace()
    }

    /// The file of the notebook, which is there after the first code; `None` without one.
    pub fn notebook(&self) -> Option<&Path> {
        self.session.notebook()
    }

    /// The interpreter that runs the kernel.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if there is none.
    pub async fn python(&self) -> Result<PathBuf, CodeExecutionError> {
        self.session.python().await.map_err(CodeExecutionError::unavailable)
    }

    /// Generates the package `mcptools.<server_name>` for the tools of an MCP server and registers the server in the
    /// executor's registry, as [`generate_mcp_sources`](crate::generate_mcp_sources) does. Code can import it at once, and the
    /// connection is kept for the first call. Returns the names of the generated modules, one for each tool.
    ///
    /// If the server's tools have changed since the name was registered last, code that has imported their
    /// modules imports the new ones with its next `import`; names that it has imported before still refer to
    /// the old ones.
    ///
    /// Dropping the future leaves the earlier package and registration.
    ///
    /// # Errors
    /// See [`GenerateError`].
    pub async fn register_mcp_server(
        &self,
        server_name: &str,
        server_params: &Value,
    ) -> Result<Vec<String>, GenerateError> {
        let parameters = server_params.as_object().ok_or(GenerateError::NotAnObject)?;
        let progress = |what: &str| tracing::debug!(server = server_name, "{what}");
        let registration = match self.session.register(server_name, parameters, None, &progress).await {
            Ok(registration) => registration,
            Err(RegisterError::Register(error)) => return Err(error.into()),
            // An application decides by itself, and its executor has tools.
            Err(error) => return Err(GenerateError::Unusable(describe(&error))),
        };
        for note in &registration.notes {
            tracing::warn!(server = server_name, "{note}");
        }
        Ok(registration.modules)
    }

    /// Runs code to its end and approves its tool calls, except those that the approval policy denies.
    ///
    /// The approval covers all calls of the kernel while this code runs, also those of threads that earlier
    /// code has left behind. Do not run code with `execute` in a kernel that has run code which you do not
    /// trust.
    ///
    /// Dropping the future cancels the code.
    ///
    /// # Errors
    /// [`CodeExecutionError`] if the code raises an exception, exceeds its timeout, or loses its kernel.
    pub async fn execute(&self, code: impl Into<Code>) -> Result<CodeExecutionResult, CodeExecutionError> {
        CodeExecution::consented(&self.session, code.into()).end().await
    }

    /// Runs code and streams events: approval requests, output if the [`Code`] requests it, the result.
    pub fn stream(&self, code: impl Into<Code>) -> CodeExecution {
        CodeExecution::asking(&self.session, code.into())
    }

    /// Replaces the kernel by a fresh one and closes the connections to MCP servers, which are opened again when their
    /// tools are called next. Code that runs is stopped.
    ///
    /// The reset is done even if the future is dropped.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if no fresh kernel starts. The next code tries again.
    pub async fn reset(&self) -> Result<(), CodeExecutionError> {
        self.session.replace_kernel().await
    }

    /// Sets the kernel back to its state before the newest code that was run: so many pieces of it are undone. Returns what this
    /// could not take back, in lines: calls of tools, files of the workspace, packages; and what differs from the state as it
    /// was. Code that runs is stopped, and counts; connections to MCP servers stay.
    ///
    /// States are kept within [`undo_memory`](CodeExecutorBuilder::undo_memory), also after the death of a kernel (Linux).
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if the state was not kept, with the reason; everything goes on as before.
    pub async fn undo(&self, count: usize) -> Result<Vec<String>, CodeExecutionError> {
        self.session.undo_code(Ok(UndoTarget::Cells(count))).await
    }

    /// As [`undo`](Self::undo), for the code with this id, which its result has in
    /// [`cell`](CodeExecutionResult::cell), and all that was run after it.
    ///
    /// # Errors
    /// As there; also if the id is none of the last code of this executor.
    pub async fn undo_to(&self, cell: &str) -> Result<Vec<String>, CodeExecutionError> {
        self.session.undo_code(UndoTarget::from_id(cell)).await
    }

    /// Makes an executor that begins with this one's variables, imports, definitions and working directory, as they are after
    /// the code that runs or waits: its kernel is a fork of this one's, which takes milliseconds (Linux). From then on they
    /// are apart; both must be stopped. Connections stay with this one, files are shared, and random numbers differ.
    ///
    /// It has the options of this one and no more rights: answers and grants count for both together. It registers no
    /// servers of its own at the start, saves no checkpoint, and has a notebook of its own.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] if a copy would suffer, with the reasons: threads, child processes, files that are
    /// open for writing, shared memory. Also for a kernel on a Jupyter server.
    pub async fn copy(&self) -> Result<Self, CodeExecutionError> {
        self.session.copy().await.map(|session| Self { session })
    }

    /// Interrupts the running code and cancels queued code. Variables are kept, unless the code does not
    /// react to the interrupt within 5 seconds. Returns at once; the code's own stream reports its end.
    pub fn cancel(&self) {
        self.session.cancel();
    }

    /// The grants that answers have given and that have not ended, in their order; those that are used up are among them.
    pub fn grants(&self) -> Vec<GivenGrant> {
        self.session.grants()
    }

    /// Ends a grant, by its id: calls that it covers are asked about again. Returns whether there was one.
    pub fn revoke_grant(&self, id: u64) -> bool {
        self.session.revoke_grant(id)
    }

    /// Installs Python packages into the environment that runs the kernel: `requests`, `pandas numpy>=1.20`,
    /// `git+https://…`. They can be imported at once. Returns what was installed, in one line.
    ///
    /// # Errors
    /// [`CodeExecutionError::Unavailable`] with the installer's output if a package cannot be installed, or
    /// with the reason why there is no environment.
    pub async fn install_package(&self, package: &str) -> Result<String, CodeExecutionError> {
        self.install_packages(&[package]).await
    }

    /// As [`install_package`](Self::install_package), with a list: a path in it may have spaces.
    ///
    /// # Errors
    /// As there.
    pub async fn install_packages(&self, packages: &[impl AsRef<str>]) -> Result<String, CodeExecutionError> {
        let packages: Vec<String> = packages.iter().map(|package| package.as_ref().to_owned()).collect();
        self.session.install(&packages, None, &|_| {}).await.map_err(CodeExecutionError::unavailable)
    }

    /// Ends the kernel, closes all connections, completes the audit log, and waits until no process is left. Code that runs or waits ends with an
    /// error.
    ///
    /// Dropping the executor does the same without waiting.
    pub async fn stop(&self) {
        self.session.close().await;
    }
}

impl Drop for CodeExecutor {
    fn drop(&mut self) {
        // Its streams may outlive it: they end with an error.
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
        let tools = ToolOptions {
            policy: self.policy(),
            registry: self.registry,
            face: self.face,
            beside: None,
            replay: None,
        };
        let config = Config::new(self.kernel.into_settings())?;
        let session = Session::open(&config, Some(tools)).await?;
        session.started().await?;
        Ok(CodeExecutor { session: NumberedSession::new(session) })
    }
}
