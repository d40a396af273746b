//! Branches of the kernels of a site, and their states.

use std::path::Path;
use std::sync::Arc;

use super::{KernelPlace, LocalKernels};
use crate::kernels::kernel::{self, BranchOrder, Kernel, PlaceMove, RunningBranch};
use crate::session::site::copied::CopiedSession;
use crate::session::site::sandboxed::SandboxedSite;
use crate::session::site::{BranchFailure, Error, KernelSaid, SleepingKernel, awaken, tools_of_branch};
use crate::tools::tool_server::ToolEndpoint;

/// The beginning of the name of the private directory of a branch with files of its own.
const PRIVATE: &str = "b";

impl LocalKernels {
    /// Has a kernel of this site fork, and returns the branch with a site for it and for the kernels after it.
    pub(in crate::session::site) async fn branch(
        &self,
        kernel: &mut Kernel,
        tool_server: Option<Arc<ToolEndpoint>>,
        said: &mut Vec<KernelSaid>,
    ) -> Result<(RunningBranch, Self), BranchFailure> {
        let (sandboxed, inside) = match &self.place.sandboxed {
            None => (None, None),
            Some(sandboxed) => {
                let (sandboxed, inside) = sandboxed.for_branch(tool_server.as_deref()).await?;
                (Some(sandboxed), Some(inside))
            }
        };
        let address = tool_server.as_ref().and_then(|branch| Some(branch.address()?.to_string()));
        let tools = tools_of_branch(self.tool_server.as_ref(), tool_server.as_ref(), address);
        let mut site = self.for_branch(self.place.for_branch(sandboxed), tool_server).await?;
        let moves = site.moves_from(self);
        let (branched, mut events) = kernel.branch(BranchOrder { tools, inside, sleeps: false, moves }).await;
        said.append(&mut events);
        match branched {
            Ok(mut branched) => {
                branched.notes.extend(site.copied.as_ref().and_then(CopiedSession::branch_note));
                Ok((branched, site))
            }
            Err(error) => {
                site.end_copy().await;
                Err(error.into())
            }
        }
    }

    /// A site for the kernels of a branch. If it is to have files of its own, these are copied now.
    async fn for_branch(
        &self,
        mut place: KernelPlace,
        tool_server: Option<Arc<ToolEndpoint>>,
    ) -> Result<Self, Error> {
        let copied = match &self.copied {
            Some(_) if place.sandboxed.is_some() => return Err(Error::UnshownCopy),
            Some(copied) => Some(copied.branch().await?),
            None => None,
        };
        let files = copied.as_ref().and_then(CopiedSession::files);
        if files.is_some() {
            let directory = tempfile::Builder::new().prefix(PRIVATE).tempdir_in(&self.directory);
            place.private_directory = directory.map_err(Error::Files)?.keep();
        }
        let site = Self {
            place,
            unconfined: self.unconfined.as_ref().map(|place| place.for_branch(None)),
            workspace: files.unwrap_or_else(|| self.workspace.clone()),
            directory: self.directory.clone(),
            limits: self.limits,
            shell_commands: self.shell_commands,
            init_timeout: self.init_timeout,
            tool_server,
            held: Arc::clone(&self.held),
            limits_disk: self.limits_disk,
            copied,
            family: Arc::clone(&self.family),
            template: self.template.clone(),
            started: None,
        };
        if site.copied.is_some() {
            site.prepare_files().map_err(Error::Files)?;
        }
        Ok(site)
    }

    /// The directories that the branch of a kernel of `origin` uses in the place of the origin's.
    fn moves_from(&self, origin: &Self) -> Vec<PlaceMove> {
        if self.copied.is_none() {
            return Vec::new();
        }
        let moved = |from: &Path, to: &Path| PlaceMove { from: from.to_owned(), to: to.to_owned() };
        vec![
            moved(&origin.workspace, &self.workspace),
            moved(&origin.place.private_directory, &self.place.private_directory),
        ]
    }

    /// Keeps the state of a kernel: a fork of it, which sleeps.
    pub(in crate::session::site) async fn keep_state(
        &self,
        kernel: &mut Kernel,
        said: &mut Vec<KernelSaid>,
    ) -> Result<SleepingKernel, BranchFailure> {
        let inside = self.place.sandboxed.as_ref().map(SandboxedSite::for_state).transpose()?;
        SleepingKernel::of(kernel, inside, &self.family, said).await
    }

    /// Has a state take the place of its origin. Code of that has no tools from then on.
    pub(in crate::session::site) async fn awaken(
        &self,
        state: SleepingKernel,
    ) -> Result<Kernel, kernel::Error> {
        awaken(state, self.tool_server.as_deref()).await
    }
}
