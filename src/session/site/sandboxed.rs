//! The sandbox that a session's kernels run in: started with the first kernel, kept for the next ones.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;
use crate::config::Config;
use crate::ground::env;
use crate::kernels::environment::Environment;
use crate::kernels::kernel::{Kernel, KernelLimits, Launch};
use crate::kernels::sandbox::{self, Confinement, Inside, PolicyPaths, Sandbox, Service, TopLevel};
use crate::tools::tool_server::Endpoint;

/// The name of the settings file in the private directory.
const SETTINGS: &str = "sandbox.json";

/// Directories that the host writes in the workspace. They are created before code could put something else
/// in their place.
const OWN_IN_WORKSPACE: [&str; 2] = ["mcptools", ".ipybox"];

/// The number of processes and threads that a kernel may have.
const PROCESSES: u32 = 1024;
/// The size that a file may get.
const FILE_BYTES: u64 = 16 * 1024 * 1024 * 1024;

/// The sandbox of a session.
pub(crate) struct Sandboxed {
    confinement: Arc<Confinement>,
    /// The paths of the sandbox, without Python's, which is found later.
    paths: PolicyPaths,
    /// The port of the tool server in the sandbox; 0 for a free one.
    port: u16,
    running: Option<Sandbox>,
    /// The top level of the workspace, if code can write there.
    top_level: Option<TopLevel>,
    /// Notes for the next cell's answer.
    notes: Vec<String>,
    /// All notes so far: each is given once.
    told: BTreeSet<String>,
}

impl Sandboxed {
    /// In the session's `directory` kernels and host write to different directories: sandboxed code must not
    /// replace the host's files.
    pub(super) fn new(config: &Config, confinement: &Arc<Confinement>, directory: &Path) -> io::Result<Self> {
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
            running: None,
            top_level: None,
            notes: Vec::new(),
            told: BTreeSet::new(),
        })
    }

    /// The directory of the host's files that sandboxed code only reads.
    pub(super) fn private_directory(&self) -> &Path {
        &self.paths.private_directory
    }

    /// The plan for this sandbox, and others like it.
    pub(super) fn plan(&self) -> (Arc<Confinement>, PolicyPaths) {
        (Arc::clone(&self.confinement), self.paths.clone())
    }

    /// The directory that code in the sandbox can write to, beside the workspace.
    pub(super) fn directory(&self) -> &Path {
        &self.paths.writable_directory
    }

    /// Starts the sandbox if none runs that can be used, and has the tool server served there.
    pub(super) async fn ready(
        &mut self,
        environment: &Environment,
        tool_server: Option<&Endpoint>,
    ) -> Result<(), Error> {
        if self.running.as_ref().is_some_and(Sandbox::is_usable) {
            return Ok(());
        }
        self.end().await;
        for name in OWN_IN_WORKSPACE {
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
        let (rules, notes) = self.confinement.rules(&paths).await?;
        let tools = tool_server.map(|_| self.port);
        let inside = Inside { rules: &rules, paths: &paths, tools, name: SETTINGS };
        let mut sandbox = self.confinement.start(inside).await?;
        if let (Some(tool_server), Some(listener)) = (tool_server, sandbox.take_listener(Service::Tools)) {
            tool_server.listen_on(listener).await.map_err(Error::Files)?;
        }
        self.running = Some(sandbox);
        // The rules may protect more than before: what has appeared meanwhile is still new.
        let top_level = TopLevel::new(&self.paths.workspace, &rules).map_err(Error::Files)?;
        self.top_level = match (self.top_level.take(), top_level) {
            (Some(before), Some(now)) => {
                before.cell_begins();
                self.notes.extend(before.take_notes());
                Some(now)
            }
            (_, now) => now,
        };
        self.notes.extend(notes.into_iter().filter(|note| self.told.insert(note.clone())));
        Ok(())
    }

    /// Starts a kernel in the sandbox, which must be [`ready`](Self::ready).
    pub(super) async fn start_kernel(&mut self, launch: &Launch) -> Result<Kernel, Error> {
        let sandbox = self.running.as_ref().ok_or(sandbox::Error::Gone)?;
        let kernel = Kernel::start(launch, Some(sandbox)).await;
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
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.top_level.iter().flat_map(TopLevel::take_notes));
        notes
    }

    /// Ends the sandbox and all that is in it.
    pub(super) async fn end(&mut self) {
        if let Some(sandbox) = self.running.take() {
            sandbox.stop().await;
        }
    }

    /// The default limits of kernels: enough for everything but fork and disk bombs.
    pub(super) fn limits(&self) -> KernelLimits {
        if !cfg!(target_os = "linux") {
            return KernelLimits::default();
        }
        KernelLimits { memory: total_memory(), processes: Some(PROCESSES), file_size: Some(FILE_BYTES) }
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

/// The machine's memory, in whole KiB, if it is known.
fn total_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}
