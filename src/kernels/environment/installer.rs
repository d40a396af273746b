//! The command lines of `uv`, `venv` and `pip`. What is installed, and when, is decided by `create` and
//! `install`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::record::InstallerTool;
use super::run::ProgramInvocation;
use super::search;
use crate::ground::env::Variables;

/// When the bytecode of installed packages is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BytecodeTime {
    /// With the packages: a kernel that cannot write it later would compile again at each start.
    Installed,
    /// By Python itself, for imported modules: a tenth of a kernel's packages. Compiling all takes ten times
    /// as long as the rest of the installation.
    Imported,
}

impl BytecodeTime {
    /// The choice for a kernel in a sandbox, where it can write to no environment, or outside.
    pub(super) fn for_kernel(is_sandboxed: bool) -> Self {
        if is_sandboxed { Self::Installed } else { Self::Imported }
    }
}

/// Options for packages that are there in part: these are installed again, and nothing else.
pub(super) const AGAIN: &[&str] = &["--force-reinstall", "--no-deps"];

/// Variables by which uv and pip would install into another place, something else, or without bytecode.
#[rustfmt::skip]
const REDIRECTING: &[&str] = &[
    "PIP_DRY_RUN", "PIP_EDITABLE", "PIP_NO_COMPILE", "PIP_PREFIX", "PIP_PYTHON", "PIP_REQUIREMENT",
    "PIP_ROOT", "PIP_TARGET", "PIP_USER", "UV_PROJECT", "UV_PYTHON", "UV_SYSTEM_PYTHON",
    "UV_VENV_RELOCATABLE", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY",
];

/// Variables that set proxies.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// Variables of pip for package indexes, and uv's names for them. uv does not read pip's.
const INDEXES: &[(&str, &str, &[&str])] = &[
    ("PIP_INDEX_URL", "UV_INDEX_URL", &["UV_INDEX_URL", "UV_DEFAULT_INDEX"]),
    ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL", &["UV_EXTRA_INDEX_URL", "UV_INDEX"]),
];

/// The tools at hand and the environment that they run in.
#[derive(Debug, Clone)]
pub(super) struct Installer {
    uv: Option<PathBuf>,
    environment: BTreeMap<String, String>,
}

impl Installer {
    /// Finds uv and takes the user's own configuration of both tools from `variables`.
    pub(super) fn new(variables: &Variables) -> Self {
        // By its real path: the directory of a link may be hidden in a sandbox.
        let uv = search::uv(variables).map(|uv| uv.canonicalize().unwrap_or(uv));
        Self { uv, environment: environment(variables.for_installer()) }
    }

    pub(super) fn uv(&self) -> Option<&Path> {
        self.uv.as_deref()
    }

    /// The environment of the tools, and of probed interpreters.
    pub(super) fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// The tool for an environment without a record.
    pub(super) fn default_tool(&self) -> InstallerTool {
        self.available(InstallerTool::Uv)
    }

    /// `tool`, or pip if uv is gone.
    pub(super) fn available(&self, tool: InstallerTool) -> InstallerTool {
        if self.uv.is_some() { tool } else { InstallerTool::Pip }
    }

    /// Makes a virtual environment for `python`, a path or what uv understands.
    pub(super) fn uv_venv(&self, uv: &Path, python: &str, directory: &Path) -> ProgramInvocation {
        let options = ["venv", "--no-project", "--python", python, "--"];
        ProgramInvocation::new(uv, &self.environment).args(options).args([directory])
    }

    /// Makes a virtual environment with the interpreter's own `venv`.
    pub(super) fn venv(&self, python: &Path, directory: &Path) -> ProgramInvocation {
        ProgramInvocation::new(python, &self.environment).args(["-I", "-m", "venv", "--"]).args([directory])
    }

    /// Installs `requirements` into the environment of `python`.
    ///
    /// `options` are those that uv and pip have in common. Requirements come after `--`: none of them can be an option.
    /// Without uv, pip is run in isolated mode (`-I`): it must not import from a working directory.
    pub(super) fn install(
        &self,
        options: &[&str],
        tool: InstallerTool,
        python: &Path,
        requirements: &[String],
        bytecode: BytecodeTime,
    ) -> ProgramInvocation {
        match (&self.uv, tool) {
            (Some(uv), InstallerTool::Uv) => ProgramInvocation::new(uv, &self.environment)
                .args(["pip", "install"])
                .args((bytecode == BytecodeTime::Installed).then_some("--compile-bytecode"))
                .args(options)
                .args(["--python"])
                .args([python])
                .args(["--"])
                .args(requirements),
            _ => ProgramInvocation::new(python, &self.environment)
                .args(["-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"])
                .args((bytecode == BytecodeTime::Imported).then_some("--no-compile"))
                .args(options)
                .args(["--no-color", "--progress-bar", "off", "--"])
                .args(requirements),
        }
    }
}

impl Installer {
    /// For a run in a sandbox: its builds must not get into the user's caches, and its proxy is the
    /// sandbox's.
    pub(super) fn without_cache(mut invocation: ProgramInvocation) -> ProgramInvocation {
        for name in PROXIES.iter().flat_map(|name| [(*name).to_owned(), name.to_lowercase()]) {
            invocation = invocation.without_env(&name);
        }
        invocation.env("UV_NO_CACHE", "1").env("UV_LINK_MODE", "copy").env("PIP_NO_CACHE_DIR", "1")
    }
}

/// The installers' environment: the user's, without redirecting variables and without colours.
fn environment(mut variables: BTreeMap<String, String>) -> BTreeMap<String, String> {
    variables.retain(|name, _| !REDIRECTING.contains(&name.as_str()));
    for (pip, uv, known) in INDEXES {
        if let Some(url) = variables.get(*pip).filter(|url| !url.is_empty()).cloned()
            && !known.iter().any(|name| variables.contains_key(*name))
        {
            variables.insert((*uv).to_owned(), url);
        }
    }
    let quiet = [("NO_COLOR", "1"), ("TERM", "dumb"), ("UV_NO_PROGRESS", "1"), ("PYTHONUNBUFFERED", "1")];
    variables.extend(quiet.map(|(name, value)| (name.to_owned(), value.to_owned())));
    // git would wait for a password on a terminal that nobody sees.
    variables.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_come_after_the_options() {
        let installer = Installer { uv: None, environment: BTreeMap::new() };
        let shown = shown(&installer, InstallerTool::Uv, BytecodeTime::Imported);
        assert!(shown.contains(r#""pip", "install""#) && shown.contains(r#""--", "six"]"#), "{shown}");
    }

    fn shown(installer: &Installer, tool: InstallerTool, bytecode: BytecodeTime) -> String {
        let requirements = ["six".to_owned()];
        format!("{:?}", installer.install(&[], tool, Path::new("/python"), &requirements, bytecode))
    }

    #[test]
    fn packages_are_compiled_beforehand_for_sandboxed_kernels_only() {
        let installer = Installer { uv: Some(PathBuf::from("/uv")), environment: BTreeMap::new() };
        let compiles = |tool, is_sandboxed| {
            let shown = shown(&installer, tool, BytecodeTime::for_kernel(is_sandboxed));
            (shown.contains("--compile-bytecode"), shown.contains("--no-compile"))
        };
        // uv compiles if a flag asks for it, pip unless a flag forbids it.
        assert_eq!(
            [compiles(InstallerTool::Uv, true), compiles(InstallerTool::Uv, false)],
            [(true, false), (false, false)]
        );
        assert_eq!(
            [compiles(InstallerTool::Pip, true), compiles(InstallerTool::Pip, false)],
            [(false, false), (false, true)]
        );
    }

    fn check_environment(given: &[(&str, &str)], expected: &[(&str, &str)]) {
        let own = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let mut made = environment(own(given));
        for name in ["NO_COLOR", "TERM", "UV_NO_PROGRESS", "PYTHONUNBUFFERED", "GIT_TERMINAL_PROMPT"] {
            assert!(made.remove(name).is_some(), "{name}");
        }
        assert_eq!(made, own(expected));
    }

    #[test]
    fn the_users_configuration_is_kept_but_not_what_redirects() {
        check_environment(&[], &[]);
        check_environment(&[("PIP_CERT", "/ca"), ("PIP_TARGET", "/x")], &[("PIP_CERT", "/ca")]);
        check_environment(
            &[("UV_PYTHON", "3.9"), ("UV_CACHE_DIR", "/c"), ("PATH", "/bin")],
            &[("UV_CACHE_DIR", "/c"), ("PATH", "/bin")],
        );
    }

    #[test]
    fn an_index_that_only_pip_knows_is_passed_to_uv() {
        check_environment(
            &[("PIP_INDEX_URL", "https://a")],
            &[("PIP_INDEX_URL", "https://a"), ("UV_INDEX_URL", "https://a")],
        );
        let both = [("PIP_INDEX_URL", "https://a"), ("UV_DEFAULT_INDEX", "https://b")];
        check_environment(&both, &both);
    }
}
