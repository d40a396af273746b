//! A session with a sandbox: the places that its code can write, and keeping the host's programs away from
//! them.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::secret_places::{SecretPlaces, listed_home};
use super::{
    ChangesMode, Config, Error, KernelSite, NotebookPlace, RecordingPlace, SandboxBackend, SandboxSettings,
    consent, exposures,
};
use crate::ground::env::Variables;
use crate::ground::env::{is_program, on_path};
use crate::ground::text::first_few;
use crate::kernels::changes::COPIES;
use crate::kernels::sandbox::{
    Confinement, DomainRule, ExposedPlaces, PolicyPaths, SandboxPolicy, SandboxPolicyError,
};

/// The directory for images if a user names none.
pub(super) const DEFAULT_IMAGES: &str = "images";

/// The number of openings of a policy that an error names.
const SHOWN_OPENINGS: usize = 5;

/// Programs that the host itself starts by name: those that make the sandbox, with their helpers, and the
/// installer.
const PROGRAMS: [&str; 7] = ["srt", "node", "bwrap", "socat", "rg", "which", "uv"];

impl SandboxSettings {
    /// The policy that they name.
    pub(crate) fn policy(&self, workspace: &Path) -> Result<SandboxPolicy, SandboxPolicyError> {
        match &self.config {
            Some(file) => SandboxPolicy::read_in(workspace, file),
            None if self.workspace_config => SandboxPolicy::of_workspace(workspace),
            None => SandboxPolicy::embedded(),
        }
    }
}

impl Config {
    /// Has kernels run in a sandbox.
    pub(super) fn confine(&mut self, settings: SandboxSettings) -> Result<(), Error> {
        let policy = settings.policy(&self.workspace)?;
        self.confine_by(policy, settings)
    }

    /// Has kernels run in a sandbox with this policy.
    pub(super) fn confine_by(
        &mut self,
        policy: SandboxPolicy,
        settings: SandboxSettings,
    ) -> Result<(), Error> {
        if let Some(home) = self.home_in_workspace().filter(|_| !settings.allow_home_workspace) {
            return Err(Error::HomeWorkspace { path: self.workspace.clone(), home });
        }
        let changes = settings.changes;
        if changes == ChangesMode::Ask && settings.backend == SandboxBackend::Srt {
            return Err(Error::NoCopyInSrt);
        }
        self.secrets = SecretPlaces::of(self, &settings.hide);
        tracing::info!(policy = policy.name(), "kernels run in a sandbox");
        if nix::unistd::geteuid().is_root() && !self.is_in_container() {
            tracing::warn!(
                "root starts the sandbox, where file modes do not protect: an ordinary user should"
            );
        }
        // Placeholder paths: the session's directories do not exist yet.
        let mut paths = self.sandbox_paths("/run/ipybox/p".into(), "/run/ipybox/w".into());
        paths.python_prefixes.extend(self.kernel.python.as_deref().and_then(prefix));
        self.check_consent(&policy, &paths)?;
        let rules = policy.rules(&paths).map_err(|error| Error::Sandbox(error.into()))?;
        let mut exposed = ExposedPlaces::new(&rules, &self.home);
        let mut protected = exposures::protected(&self.state_dir)?;
        protected.extend(exposed.closed().iter().cloned());
        self.protected_before = protected.into_iter().collect();
        withhold(Arc::make_mut(&mut self.variables), &exposed, &self.state_dir);
        if changes == ChangesMode::Ask {
            exposed.add(ExposedPlaces::place(self.state_dir.join(COPIES)));
            // Images come from code, too; nobody has been asked about those that it shows.
            if self.images_dir == self.workspace.join(DEFAULT_IMAGES) {
                self.images_dir = self.workspace.join(".ipybox").join(DEFAULT_IMAGES);
            }
        }
        self.check_programs(&exposed)?;
        self.check_directories(&exposed)?;
        let confinement = Arc::new(confinement(settings, policy, &self.variables, &exposed)?);
        self.site = KernelSite::Sandboxed { confinement, exposed: Box::new(exposed), changes };
        Ok(())
    }

    /// Refuses a policy of the workspace that opens more than the default, unless the user has allowed its content: nobody
    /// can be asked yet.
    fn check_consent(&self, policy: &SandboxPolicy, paths: &PolicyPaths) -> Result<(), Error> {
        let openings = policy.openings(paths);
        let Some(content) = policy.content_of_workspace().filter(|_| !openings.is_empty()) else {
            return Ok(());
        };
        if consent::is_given(&self.state_dir, &content).map_err(Error::Consents)? {
            return Ok(());
        }
        let file = self.workspace.join(SandboxPolicy::WORKSPACE_FILE);
        let opens = first_few(&openings, SHOWN_OPENINGS);
        Err(Error::PolicyOpens { file, opens, flags: self.login_flags.clone() })
    }

    /// The places that code in the sandbox can write, or could in earlier sessions.
    pub(crate) fn exposed(&self) -> ExposedPlaces {
        let mut exposed = self.recorded.clone();
        if let KernelSite::Sandboxed { exposed: now, .. } = &self.site {
            exposed.add((**now).clone());
        }
        exposed
    }

    /// Without a sandbox: has the host's own programs take nothing from where code in the sandbox of an earlier session could
    /// write.
    pub(super) fn keep_programs_from_earlier_code(&mut self) {
        let variables = Arc::make_mut(&mut self.variables);
        withhold_recorded(variables, &self.recorded, &self.state_dir);
    }

    /// Records the places that code in the sandbox can write, before any of it runs.
    ///
    /// # Errors
    /// The record cannot be changed.
    pub(crate) fn record_exposed(&self) -> Result<(), Error> {
        match &self.site {
            KernelSite::Sandboxed { exposed, .. } => exposures::record(&self.state_dir, exposed),
            KernelSite::Local | KernelSite::Remote(_) | KernelSite::Pod(_) => Ok(()),
        }
    }

    /// As [`record_exposed`](Self::record_exposed), without the workspace, which is removed at the end of the session.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn record_exposed_elsewhere(&self) -> Result<(), Error> {
        match &self.site {
            KernelSite::Sandboxed { exposed, .. } => {
                exposures::record(&self.state_dir, &exposed.outside(&self.workspace))
            }
            KernelSite::Local | KernelSite::Remote(_) | KernelSite::Pod(_) => Ok(()),
        }
    }

    /// Refuses programs on `PATH` that are links to exposed places.
    fn check_programs(&self, exposed: &ExposedPlaces) -> Result<(), Error> {
        let path = self.variables.in_process("PATH").unwrap_or_default();
        let found = PROGRAMS.iter().filter_map(|name| on_path(name, path));
        match found.map(|program| (exposed.on_the_way(&program), program)).find(|(place, _)| place.is_some())
        {
            Some((Some(place), program)) => Err(Error::ExposedProgram { program, place }),
            _ => Ok(()),
        }
    }

    /// Refuses an audit log whose directory cannot be hidden, and to write the notebook, images or a recording where a link that
    /// code has made could lead. In the workspace no link is followed.
    fn check_directories(&self, exposed: &ExposedPlaces) -> Result<(), Error> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(directory) = self.log_directory() {
            let needed = [&self.workspace, &self.home, &std::env::temp_dir()].map(|path| real(path));
            if needed.iter().any(|path| path.starts_with(real(&directory))) {
                return Err(Error::LogDirectory { directory });
            }
        }
        let notebook = match &self.notebook {
            NotebookPlace::Named(file) => self.workspace.join(file).parent().map(Path::to_owned),
            _ => None,
        };
        let recording = match &self.recording {
            RecordingPlace::Named(path) if path.is_dir() => Some(path.clone()),
            RecordingPlace::Named(path) => path.parent().map(Path::to_owned),
            RecordingPlace::None | RecordingPlace::Beside(_) => None,
        };
        if let Some(directory) = recording
            && let Some(place) = exposed.replaceable(&directory)
        {
            return Err(Error::ExposedDirectory { directory, place });
        }
        let is_plain = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        for directory in notebook.into_iter().chain([self.images_dir.clone()]) {
            if directory.strip_prefix(&self.workspace).is_ok_and(is_plain) {
                continue;
            }
            if let Some(place) = exposed.replaceable(&directory) {
                return Err(Error::ExposedDirectory { directory, place });
            }
        }
        Ok(())
    }

    /// The home directory, if the workspace is it or contains it.
    pub(super) fn home_in_workspace(&self) -> Option<PathBuf> {
        let homes = [Some(self.home.clone()), listed_home()].into_iter().flatten();
        // A user without a home has `/`, or a missing directory.
        let mut homes = homes.filter_map(|home| home.canonicalize().ok()).chain([PathBuf::from("/")]);
        homes.find(|home| home.starts_with(&self.workspace))
    }
}

/// As [`withhold`], for the places that code in earlier sandboxes could write.
pub(crate) fn withhold_recorded(variables: &mut Variables, recorded: &ExposedPlaces, state_dir: &Path) {
    // Relative entries are the user's own where no code has been.
    if !recorded.is_empty() {
        withhold(variables, recorded, state_dir);
    }
}

/// Removes paths to exposed places from the variables of the host's programs. Relative paths are relative to
/// `directory`.
fn withhold(variables: &mut Variables, exposed: &ExposedPlaces, directory: &Path) {
    let left: Vec<(String, Option<String>)> = variables
        .of_programs()
        .map(|(name, value)| (name.to_owned(), exposed.safe_value(name, value, directory), value))
        .filter(|(_, safe, value)| safe.as_deref() != Some(*value))
        .map(|(name, safe, _)| (name, safe))
        .collect();
    for (name, safe) in left {
        let part = if safe.is_some() { "in part" } else { "as a whole" };
        tracing::warn!(
            "`{name}` is kept from programs of the host {part}: it leads to where code in the sandbox can write, or is relative"
        );
        variables.withhold(&name, safe);
    }
}

/// The environment of an interpreter that the user named: itself, or the directory above its `bin`.
fn prefix(python: &Path) -> Option<PathBuf> {
    let python = std::path::absolute(python).ok()?;
    let above = || Some(python.parent()?.parent()?.to_owned());
    let prefix = if python.is_dir() { Some(python.clone()) } else { above() };
    prefix.filter(|prefix| prefix.join("pyvenv.cfg").is_file() || prefix.join("conda-meta").is_dir())
}

fn confinement(
    settings: SandboxSettings,
    policy: SandboxPolicy,
    variables: &Arc<Variables>,
    exposed: &ExposedPlaces,
) -> Result<Confinement, Error> {
    for domain in &settings.install_domains {
        DomainRule::parse(domain)
            .map_err(|error| Error::InstallDomain { domain: domain.clone(), source: error.into() })?;
    }
    let path = variables.in_process("PATH").unwrap_or_default().to_owned();
    let gateway = match settings.gateway_program {
        Some(program) if is_program(&program) => program,
        Some(program) => return Err(Error::Gateway { program }),
        None => own_program().or_else(|| on_path("ipybox", &path)).ok_or(Error::NoGateway)?,
    };
    let gateway = gateway.canonicalize().map_err(|_| Error::Gateway { program: gateway })?;
    if let Some(place) = exposed.on_the_way(&gateway).or_else(|| around_package(&gateway, exposed)) {
        return Err(Error::ExposedGateway { program: gateway, place });
    }
    Ok(Confinement {
        backend: settings.backend,
        policy,
        clients: Vec::new(),
        gateway,
        variables: Arc::clone(variables),
        install_domains: settings.install_domains,
        timeout: settings.init_timeout,
    })
}

/// The exposed place around a package of npm. The package is protected, but not the links and programs in `.bin` by which it is
/// started.
fn around_package(program: &Path, exposed: &ExposedPlaces) -> Option<PathBuf> {
    let place = exposed.above(program)?;
    let below = program.strip_prefix(&place).ok()?;
    below.iter().any(|name| name == "node_modules").then_some(place)
}

/// The running program, if it is the program `ipybox`, which can run in a sandbox.
fn own_program() -> Option<PathBuf> {
    std::env::current_exe().ok().filter(|program| program.file_name().is_some_and(|name| name == "ipybox"))
}
