//! A template: a fork of a kernel that has run no code, which forks kernels that begin as fresh ones do, in milliseconds.
//!
//! `ipybox_template.py` is its side. A kernel of it differs from a fresh one only in what the host tells it: its variables,
//! its directory, its connection. Whatever else would be different is a reason to start a kernel from scratch.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::branch_error::{BranchError, RenewOrigin};
#[cfg(target_os = "linux")]
use super::end_report::EndReport;
#[cfg(target_os = "linux")]
use super::fork::{ForkRequest, KernelFork};
use super::launch::{IPYTHON_FILES, IPYTHONDIR, KernelLaunch};
use super::output::new_mark;
use super::own::OwnKernel;
use super::{Error, Kernel};
use crate::ground::env::{IPYBOX_TOOL_SERVER, IPYBOX_TOOL_SERVER_TOKEN};
use crate::kernels::sandbox::KernelProgram;

/// The time that a template may take to fork a kernel. It runs no code, so only a machine that is very busy delays it, and would
/// delay a start from scratch more.
const FORK_TIMEOUT: Duration = Duration::from_secs(20);
/// The variable whose entries in the private directory differ between sessions.
const PYTHONPATH: &str = "PYTHONPATH";

/// A template. Dropping it kills it; its kernels go on.
pub(crate) struct TemplateProcess {
    process: OwnKernel,
    /// The start of the kernel that it was forked from.
    launch: KernelLaunch,
}

impl TemplateProcess {
    /// Forks a template from a kernel that has run no code since it began at `begun`, as `launch` says.
    ///
    /// # Errors
    /// There is none. The kernel goes on as before.
    #[cfg(target_os = "linux")]
    pub(crate) async fn fork_from(
        kernel: &mut Kernel,
        launch: KernelLaunch,
        begun: Instant,
        renew_origin: Option<RenewOrigin>,
    ) -> Result<Self, BranchError> {
        let Kernel::Own(kernel) = kernel else { return Err(BranchError::Remote) };
        let content = json!({
            "private_directory": launch.program.private_directory,
            "age_secs": begun.elapsed().as_secs_f64(),
        });
        let timeout = FORK_TIMEOUT;
        let request = ForkRequest {
            kind: "template",
            content,
            mark: new_mark(),
            report: None,
            renew_origin,
            timeout,
            shows_origin: false,
        };
        // It has nothing to say before its first cell.
        let fork = request.send(kernel, &mut Vec::new()).await?;
        let process = fork.welcomed(None, None, kernel.limits(), kernel.held()).await?;
        Ok(Self { process, launch })
    }

    /// Has it fork a kernel, and waits until that runs code.
    ///
    /// # Errors
    /// There is none: this may be a kernel under other conditions, the files of the environment may have changed, or the
    /// template may be gone.
    #[cfg(target_os = "linux")]
    pub(crate) async fn start_kernel(&mut self, launch: &KernelLaunch) -> Result<Kernel, BranchError> {
        let TemplateFork { fork, report } = self.fork(launch, new_mark()).await?;
        let held = std::sync::Arc::clone(&launch.held);
        let kernel = fork.welcomed(Some(report), None, launch.limits, held).await?;
        Ok(Kernel::Own(Box::new(kernel)))
    }

    /// Has it fork a kernel that marks its output with `mark`.
    #[cfg(target_os = "linux")]
    pub(super) async fn fork(
        &mut self,
        launch: &KernelLaunch,
        mark: String,
    ) -> Result<TemplateFork, BranchError> {
        let variables = self.changed_variables(launch).ok_or(BranchError::OtherConditions)?;
        let KernelProgram { environment, private_directory, working_directory, .. } = &launch.program;
        let content = json!({
            "variables": variables,
            "private_directory": private_directory,
            "directory": working_directory,
            "address": environment.get(IPYBOX_TOOL_SERVER),
            "token": environment.get(IPYBOX_TOOL_SERVER_TOKEN),
        });
        let files = |error: std::io::Error| BranchError::Kernel(Error::Files(error));
        let (reports, report) = std::io::pipe().map_err(files)?;
        let report = Some(report.into());
        let timeout = FORK_TIMEOUT;
        let request = ForkRequest {
            kind: "kernel",
            content,
            mark,
            report,
            renew_origin: None,
            timeout,
            shows_origin: false,
        };
        let fork = request.send(&mut self.process, &mut Vec::new()).await?;
        let report = EndReport::read_from(reports).map_err(files)?;
        Ok(TemplateFork { fork, report })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) async fn fork_from(
        _: &mut Kernel,
        _: KernelLaunch,
        _: Instant,
        _: Option<RenewOrigin>,
    ) -> Result<Self, BranchError> {
        Err(BranchError::System)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) async fn start_kernel(&mut self, _: &KernelLaunch) -> Result<Kernel, BranchError> {
        Err(BranchError::System)
    }

    /// The variables of a kernel that are not the template's; `None` if more than what each kernel has of its own would be
    /// different.
    fn changed_variables(&self, launch: &KernelLaunch) -> Option<BTreeMap<String, String>> {
        let mine = &self.launch;
        let theirs = launch;
        let is_same = mine.program.python == theirs.program.python
            && mine.program.working_directory == theirs.program.working_directory
            && (mine.limits, mine.default_limits) == (theirs.limits, theirs.default_limits)
            && mine.shell_commands == theirs.shell_commands
            && mine.has_checkpoints == theirs.has_checkpoints
            && mine.has_workspace == theirs.has_workspace;
        let mine = own_of_each(&mine.program);
        let mut theirs = own_of_each(&theirs.program);
        if !is_same || mine.shared != theirs.shared || mine.paths != theirs.paths {
            return None;
        }
        let private = &launch.program.private_directory;
        theirs.own.insert(IPYTHONDIR.to_owned(), private.join(IPYTHON_FILES).display().to_string());
        Some(theirs.own)
    }

    /// Ends it, and waits until it is gone.
    pub(crate) async fn end(self) {
        self.process.kill().await;
    }
}

/// A kernel that a template has forked, and the report of its end.
#[cfg(target_os = "linux")]
pub(super) struct TemplateFork {
    pub(super) fork: KernelFork,
    pub(super) report: EndReport,
}

/// The variables of a kernel.
struct KernelVariables {
    /// Those that each kernel has of its own.
    own: BTreeMap<String, String>,
    /// The others.
    shared: BTreeMap<String, String>,
    /// The entries of `PYTHONPATH`, relative to the private directory where they are in there.
    paths: Vec<String>,
}

fn own_of_each(program: &KernelProgram) -> KernelVariables {
    let own = |name: &str| [IPYBOX_TOOL_SERVER, IPYBOX_TOOL_SERVER_TOKEN, PYTHONPATH].contains(&name);
    let (own, shared): (BTreeMap<_, _>, BTreeMap<_, _>) =
        program.environment.clone().into_iter().partition(|(name, _)| own(name));
    let private = format!("{}/", program.private_directory.display());
    let places = own.get(PYTHONPATH).map(String::as_str).unwrap_or_default();
    let paths = places.split(':').map(|place| place.replacen(&private, "\0", 1)).collect();
    KernelVariables { own, shared, paths }
}
