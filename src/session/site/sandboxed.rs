//! The sandbox that a session's kernels run in: started with the first kernel, kept for the next ones.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;
use super::copied::CopiedSession;
use crate::config::Config;
use crate::ground::env;
use crate::kernels::environment::Environment;
use crate::kernels::kernel::{HeldLimits, Kernel, KernelGround, KernelLaunch};
use crate::kernels::sandbox::{
    self, BranchInside, ClientPermissions, Confinement, HostService, PolicyPaths, Sandbox, SandboxPlan,
    TopLevel,
};
use crate::tools::tool_server::ToolEndpoint;

/// The name of the settings file in the private directory; branches have others in the same.
const SETTINGS: &str = "sandbox.json";

/// Directories that the host writes in the workspace. They are created before code could put something else
/// in their place.
const OWN_IN_WORKSPACE: [&str; 2] = ["mcptools", ".ipybox"];
/// The directory of files that clients pass, which code only reads if it works on a copy of the workspace.
const UPLOADS: &str = "uploads";

/// The size that a file may get.
const FILE_BYTES: u64 = 16 * 1024 * 1024 * 1024;

/// The sandbox of a session.
pub(crate) struct SandboxedSite {
    confinement: Arc<Confinement>,
    /// The paths of the sandbox, without Python's, which is found later.
    paths: PolicyPaths,
    /// The port of the tool server in the sandbox; 0 for a free one.
    port: u16,
    /// The limits around all that is in it.
    limits: Arc<HeldLimits>,
    settings: String,
    /// Branches run in the same sandbox.
    running: Option<Arc<Sandbox>>,
    /// The top level of the workspace, if code can write there.
    top_level: Option<TopLevel>,
    /// The copy that code writes in the place of the workspace, if it does.
    copied: Option<CopiedSession>,
    /// Notes for the next cell's answer.
    notes: Vec<String>,
    /// All notes so far: each is given once.
    told: BTreeSet<String>,
}

impl SandboxedSite {
    /// In the session's `directory` kernels and host write to different directories: sandboxed code must not
    /// replace the host's files.
    pub(super) fn new(
        config: &Config,
        confinement: &Arc<Confinement>,
        directory: &Path,
        limits: Arc<HeldLimits>,
    ) -> io::Result<Self> {
        let directory = directory.canonicalize()?;
        let paths = config.sandbox_paths(directory.join("p"), directory.join("w"));
        for directory in [&paths.private_directory, &paths.writable_directory] {
            std::fs::DirBuilder::new().mode(0o700).create(directory)?;
        }
        let port = config.tool_server.port.unwrap_or(0);
        Ok(Self {
            confinement: Arc::clone(confinement),
            paths,
            port,
            limits,
            settings: SETTINGS.to_owned(),
            running: None,
            top_level: None,
            copied: CopiedSession::of(config),
            notes: Vec::new(),
            told: BTreeSet::new(),
        })
    }

    /// The permissions of clients that it holds.
    pub(super) fn clients(&self) -> &[Arc<ClientPermissions>] {
        &self.confinement.clients
    }

    /// Has the next sandbox be as `confinement` says. None may run.
    pub(super) fn confine(&mut self, confinement: &Arc<Confinement>) {
        self.confinement = Arc::clone(confinement);
    }

    /// The directory of the host's files that sandboxed code only reads.
    pub(super) fn private_directory(&self) -> &Path {
        &self.paths.private_directory
    }

    /// The plan for this sandbox, and others like it within the same limits.
    pub(super) fn plan(&self) -> (Arc<Confinement>, PolicyPaths, Arc<HeldLimits>) {
        (Arc::clone(&self.confinement), self.paths.clone(), Arc::clone(&self.limits))
    }

    /// The directory that code in the sandbox can write to, beside the workspace.
    pub(super) fn directory(&self) -> &Path {
        &self.paths.writable_directory
    }

    /// Starts the sandbox if none runs that can be used, and has the tool server served there.
    pub(super) async fn ready(
        &mut self,
        environment: &Environment,
        tool_server: Option<&ToolEndpoint>,
    ) -> Result<(), Error> {
        if self.running.as_ref().is_some_and(|running| running.is_usable()) {
            return Ok(());
        }
        self.end().await;
        let uploads = self.copied.is_some().then_some(UPLOADS);
        for name in OWN_IN_WORKSPACE.into_iter().chain(uploads) {
            match std::fs::create_dir(self.paths.workspace.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::Files(error));
                }
                _ => {}
            }
        }
        let paths = PolicyPaths {
            python_prefixes: self.confinement.needed_by(environment.prefixes()),
            ..self.paths.clone()
        };
        let (mut rules, notes) = self.confinement.rules(&paths).await?;
        let mut copy = None;
        if let Some(copied) = &mut self.copied {
            rules.deny_write([self.paths.workspace.join(UPLOADS).as_path()].into_iter());
            copy = Some(copied.ready(self.confinement.writable_parts(&rules, &paths)?).await?);
        }
        let tools = tool_server.map(|_| self.port);
        let name = &self.settings;
        let inside = SandboxPlan {
            rules: &rules,
            paths: &paths,
            tools,
            name,
            limits: &self.limits,
            copy: copy.as_ref(),
        };
        let mut sandbox = self.confinement.start(inside).await?;
        let notes = notes.into_iter().chain(sandbox.note());
        if let (Some(tool_server), Some(listener)) = (tool_server, sandbox.take_listener(HostService::Tools))
        {
            tool_server.listen_on(listener).await.map_err(Error::Files)?;
        }
        self.running = Some(Arc::new(sandbox));
        // The rules may protect more than before: what has appeared meanwhile is still new.
        let top_level = match copy {
            // A person looks at what it is before it is there.
            Some(_) => None,
            None => TopLevel::new(&self.paths.workspace, &rules).map_err(Error::Files)?,
        };
        self.top_level = match (self.top_level.take(), top_level) {
            (Some(before), Some(now)) => {
                before.cell_begins();
                self.notes.extend(before.take_notes());
                Some(now)
            }
            (_, now) => now,
        };
        self.notes.extend(notes.filter(|note| self.told.insert(note.clone())));
        Ok(())
    }

    /// A place in the sandbox for a state of a kernel in it.
    pub(super) fn for_state(&self) -> Result<BranchInside, Error> {
        Ok(self.running.as_ref().ok_or(sandbox::Error::Gone)?.add_branch())
    }

    /// The same sandbox for a branch, in which the branch's tool server listens too.
    pub(super) async fn for_branch(
        &self,
        tool_server: Option<&ToolEndpoint>,
    ) -> Result<(Self, BranchInside), Error> {
        let sandbox = self.running.as_ref().ok_or(sandbox::Error::Gone)?;
        if let Some(tool_server) = tool_server {
            tool_server.listen_on(sandbox.listen().await?).await.map_err(Error::Files)?;
        }
        let branch = Self {
            confinement: Arc::clone(&self.confinement),
            paths: self.paths.clone(),
            port: 0,
            limits: Arc::clone(&self.limits),
            settings: format!("sandbox-{}.json", uuid::Uuid::new_v4().simple()),
            running: Some(Arc::clone(sandbox)),
            top_level: self.top_level.clone(),
            copied: self.copied.clone(),
            notes: Vec::new(),
            told: self.told.clone(),
        };
        Ok((branch, sandbox.add_branch()))
    }

    /// Starts a kernel in the sandbox, which must be [`ready`](Self::ready).
    pub(super) async fn start_kernel(&mut self, launch: &KernelLaunch) -> Result<Kernel, Error> {
        let sandbox = self.running.as_deref().ok_or(sandbox::Error::Gone)?;
        let kernel = Kernel::start(launch, KernelGround::Sandbox(sandbox)).await;
        if kernel.is_err() {
            // The failed start may have left processes behind.
            self.end().await;
        }
        Ok(kernel?)
    }

    /// A file that the running sandbox no longer protects, since a program of the host has removed or replaced it.
    pub(super) fn replaced(&self) -> Option<&Path> {
        self.running.as_ref()?.replaced()
    }

    /// The top level of the workspace, if code can write there.
    pub(super) fn top_level(&self) -> Option<TopLevel> {
        self.top_level.clone()
    }

    /// The notes about the sandbox for the answer of the next cell.
    pub(super) async fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.top_level.iter().flat_map(TopLevel::take_notes));
        if let Some(copied) = &mut self.copied {
            notes.extend(copied.take_note().await);
        }
        notes
    }

    /// Ends the use of the copy of the workspace. It stays if changes wait in it, or other sessions use it.
    pub(super) async fn end_copy(&mut self) {
        if let Some(copied) = self.copied.take() {
            copied.end().await;
        }
    }

    /// Ends the sandbox and all that is in it. `false` if other sessions' kernels run in it: they keep it.
    pub(super) async fn end(&mut self) -> bool {
        match self.running.take().map(Arc::try_unwrap) {
            None => true,
            Some(Ok(sandbox)) => {
                sandbox.stop().await;
                true
            }
            Some(Err(_shared)) => false,
        }
    }

    /// Ends the sandbox, whoever else uses it: it does not do what it should.
    pub(super) async fn end_for_all(&mut self) {
        self.running.iter().for_each(|sandbox| sandbox.abandon());
        self.end().await;
    }

    /// The default size of files.
    pub(super) fn file_size(&self) -> Option<u64> {
        cfg!(target_os = "linux").then_some(FILE_BYTES)
    }

    /// Variables that name writable directories to programs in the sandbox.
    pub(super) fn variables(&self) -> [(&'static str, PathBuf); 3] {
        let directory = self.directory();
        [
            (env::TMPDIR, directory.join("tmp")),
            ("XDG_CACHE_HOME", directory.join("cache")),
            ("MPLCONFIGDIR", directory.join("matplotlib")),
        ]
    }
}
