//! Every environment variable that ipybox reads or sets, which programs get which, and the secrets that are kept for them.
//!
//! The process environment and `<workspace>/.env` are read once, at start, into [`Variables`];
//! nothing is ever written back to the process environment.

mod allowed;
mod dotenv;
mod inherited;
mod kept;
mod moved;
mod placeholder;
mod process;
mod program;
pub(crate) mod vault;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use self::allowed::AllowedNames;
pub(crate) use self::allowed::is_for_a_secret;
pub use self::dotenv::DotenvProblem;
pub(crate) use self::dotenv::literal as dotenv_variables;
pub(crate) use self::inherited::{CERTIFICATES, PROXIES};
use self::kept::KeptSecrets;
pub(crate) use self::kept::SECRET;
pub(crate) use self::moved::MovedPlace;
pub use self::placeholder::MissingVariable;
pub(crate) use self::placeholder::is_variable_name;
pub(crate) use self::process::ProcessEnvironment;
pub(crate) use self::program::{is_program, on_path};
use crate::ground::text::Redactor;

/// Prefix of variables for the kernel: `KERNEL_ENV_X=v` becomes `X=v` in the kernel.
pub const KERNEL_ENV_PREFIX: &str = "KERNEL_ENV_";
/// Further variables that `<workspace>/.env` may set, beside secrets: names with commas between them. Default: none.
pub const IPYBOX_DOTENV: &str = "IPYBOX_DOTENV";
/// The place of the per-user state; the flag `--state-dir` wins. Default: the platform's data directory.
pub const IPYBOX_STATE_DIR: &str = "IPYBOX_STATE_DIR";
/// Set in the container image: the container is the session, so that none is kept beside it.
pub const IPYBOX_CONTAINER: &str = "IPYBOX_CONTAINER";
/// Set by `ipybox team` for sessions: their token at its socket.
pub const IPYBOX_SESSION_TOKEN: &str = "IPYBOX_SESSION_TOKEN";
/// The `uv` program to use, as set by `uv run` and `uvx`. Default: `uv` on `PATH`.
pub const UV: &str = "UV";
/// Set in the kernel: the address of the tool server, `host:port`.
pub const IPYBOX_TOOL_SERVER: &str = "IPYBOX_TOOL_SERVER";
/// Set in the kernel: the bearer token of this session's tool server. For `ipybox tool-server`, the caller token to use;
/// default: a random one.
pub const IPYBOX_TOOL_SERVER_TOKEN: &str = "IPYBOX_TOOL_SERVER_TOKEN";
/// For `ipybox tool-server`, the host token to use; default: a random one.
pub const IPYBOX_TOOL_SERVER_HOST_TOKEN: &str = "IPYBOX_TOOL_SERVER_HOST_TOKEN";

/// The directory for temporary files.
pub(crate) const TMPDIR: &str = "TMPDIR";

/// The variables that every program needs: user, paths, language, certificates.
#[rustfmt::skip]
const BASE: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", TMPDIR, "SSL_CERT_FILE",
    "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
];
const BASE_PREFIXES: &[&str] = &["LC_"];

/// Variables that configure package installers, beyond [`BASE`] and [`PROXIES`].
const INSTALLER: &[&str] =
    &["NETRC", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"];
const INSTALLER_PREFIXES: &[&str] = &["PIP_", "UV_"];

/// The process environment over the variables of `<workspace>/.env`.
#[derive(Clone, Default)]
pub struct Variables {
    process: BTreeMap<String, String>,
    dotenv: BTreeMap<String, String>,
    /// Original values removed from `process`: programs of the host do not get them.
    withheld: BTreeMap<String, String>,
    /// Variables that `.env` may not set.
    refused: BTreeSet<String>,
    problems: Vec<DotenvProblem>,
    /// Knows the values of `.env` and those that placeholders were filled with.
    redactor: Redactor,
    /// The values that `${secret:NAME}` refers to.
    secrets: KeptSecrets,
}

impl Variables {
    /// Reads the process environment and `<workspace>/.env`.
    ///
    /// Errors in `.env` do not prevent the start; [`problems`](Self::problems) returns them.
    pub fn load(workspace: &Path) -> Self {
        Self::of(None, workspace)
    }

    /// As [`load`](Self::load), with the environment of another process if one is given.
    pub(crate) fn of(process: Option<&ProcessEnvironment>, workspace: &Path) -> Self {
        let process = process.map_or_else(ProcessEnvironment::ours, Clone::clone);
        let mut variables = Self { process: process.0, ..Self::default() };
        for (name, value) in variables.credentials() {
            variables.redactor.note(name, &value);
        }
        let allowed = AllowedNames(variables.in_process(IPYBOX_DOTENV).unwrap_or_default());
        let dotenv = dotenv::read(&workspace.join(".env"), &allowed);
        variables.take(dotenv);
        variables
    }

    /// Variables that are just these, as if they were the process environment.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let process = pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { process, ..Self::default() }
    }

    /// The errors in `.env`.
    pub fn problems(&self) -> &[DotenvProblem] {
        &self.problems
    }

    /// The value of `name`: from the process environment, else from `.env`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let real = self.withheld.get(name).or_else(|| self.process.get(name));
        real.or_else(|| self.dotenv.get(name)).map(String::as_str)
    }

    /// The value of `name` in the process environment alone, which code in the kernel cannot plant.
    pub(crate) fn in_process(&self, name: &str) -> Option<&str> {
        self.process.get(name).map(String::as_str)
    }

    /// All of the process environment.
    pub(crate) fn all_in_process(&self) -> impl Iterator<Item = (&str, &str)> {
        self.process.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The part of the process environment for programs of the host.
    pub(crate) fn of_programs(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_inherited = |name: &str| {
            let installers = [BASE, INSTALLER, &[UV]].concat();
            let prefixes = [BASE_PREFIXES, INSTALLER_PREFIXES].concat();
            inherited::is_for_servers(name)
                || installers.contains(&name)
                || prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        let inherited = self.process.iter().filter(move |(name, _)| is_inherited(name));
        inherited.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// From now on programs of the host get `rest` as the value of `name`, or no such variable. Kernels and placeholders get
    /// the original value.
    pub(crate) fn withhold(&mut self, name: &str, rest: Option<String>) {
        let before = match rest {
            Some(rest) => self.process.insert(name.to_owned(), rest),
            None => self.process.remove(name),
        };
        if let Some(before) = before {
            self.withheld.entry(name.to_owned()).or_insert(before);
        }
    }

    /// Whether the value of `name` comes from `.env`, and the user has not named it in [`IPYBOX_DOTENV`].
    pub(crate) fn is_of_the_workspace(&self, name: &str) -> bool {
        let allowed = AllowedNames(self.in_process(IPYBOX_DOTENV).unwrap_or_default());
        let is_real = self.process.contains_key(name) || self.withheld.contains_key(name);
        !is_real && self.dotenv.contains_key(name) && !allowed.is_named(name)
    }

    /// Replaces the values of `.env`, and those that placeholders are filled with, in shown texts.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The kernel's environment: what every program needs, and the `KERNEL_ENV_*` values by their short names.
    pub fn for_kernel(&self) -> BTreeMap<String, String> {
        let mut kernel = self.pick(BASE, BASE_PREFIXES);
        let withheld = self.withheld.iter().filter(|(name, _)| BASE.contains(&name.as_str()));
        kernel.extend(withheld.map(|(name, value)| (name.clone(), value.clone())));
        kernel.extend(self.meant_for_kernel());
        kernel
    }

    /// The kernel's environment in a sandbox, where the host's directory for temporary files cannot be written to.
    pub(crate) fn for_confined_kernel(&self) -> BTreeMap<String, String> {
        let mut kernel = self.for_kernel();
        if !self.meant_for_kernel().contains_key(TMPDIR) {
            kernel.remove(TMPDIR);
        }
        kernel
    }

    /// The `KERNEL_ENV_*` values by their short names.
    pub(crate) fn meant_for_kernel(&self) -> BTreeMap<String, String> {
        let mut kernel = short_names(&self.dotenv);
        kernel.extend(short_names(&self.process));
        kernel
    }

    /// The environment of `uv`, `pip` and `venv`: what every program needs, and how they are configured.
    pub(crate) fn for_installer(&self) -> BTreeMap<String, String> {
        let mut installer = self.pick(BASE, BASE_PREFIXES);
        installer.extend(self.pick(&[INSTALLER, PROXIES].concat(), INSTALLER_PREFIXES));
        installer
    }

    /// The environment of the program that makes a sandbox: no secrets, because everything in the sandbox
    /// sees it, and no proxies, since the sandbox would allow connections to them.
    pub(crate) fn for_sandbox(&self) -> BTreeMap<String, String> {
        self.pick(BASE, BASE_PREFIXES)
    }

    /// The environment that a stdio MCP server inherits before its own `env` is added: what the MCP SDKs let through, and
    /// what it takes to download a server (certificates, proxies, indexes and caches of packages).
    ///
    /// Without `.env`. Values that are shell functions (`() …`) are left out, as the MCP SDKs do.
    pub(crate) fn for_mcp_server(&self) -> BTreeMap<String, String> {
        let is_inherited =
            |name: &str, value: &str| inherited::is_for_servers(name) && !value.starts_with("()");
        let inherited = self.process.iter().filter(|(name, value)| is_inherited(name, value));
        inherited.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The credentials in what MCP servers inherit, with their variables' names.
    pub(crate) fn credentials(&self) -> Vec<(&str, String)> {
        let inherited = self.process.iter().filter(|(name, _)| inherited::is_for_servers(name));
        let of_each = inherited.flat_map(|(name, value)| {
            inherited::credentials(name, value).into_iter().map(move |secret| (name.as_str(), secret))
        });
        of_each.collect()
    }

    /// The `KERNEL_ENV_*` values of the process environment alone, for servers that start kernels: `.env`
    /// must not choose the image or the namespace that a kernel runs in.
    pub(crate) fn meant_for_kernel_in_process(&self) -> BTreeMap<String, String> {
        short_names(&self.process)
    }

    fn pick(&self, names: &[&str], prefixes: &[&str]) -> BTreeMap<String, String> {
        let wanted =
            |name: &str| names.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.process
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    fn take(&mut self, dotenv: dotenv::DotenvFile) {
        dotenv
            .variables
            .iter()
            .chain(&dotenv.refused)
            .for_each(|(name, value)| self.redactor.note(name, value));
        self.dotenv = dotenv.variables;
        self.refused = dotenv.refused.into_keys().collect();
        self.problems = dotenv.problems;
    }
}

impl std::fmt::Debug for Variables {
    /// Names only: values may be secrets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Variables")
            .field("process", &self.process.keys())
            .field("dotenv", &self.dotenv.keys())
            .finish_non_exhaustive()
    }
}

/// The `KERNEL_ENV_*` values by their short names.
fn short_names(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let short = |name: &String| {
        Some(name.strip_prefix(KERNEL_ENV_PREFIX).filter(|name| !name.is_empty())?.to_owned())
    };
    variables.iter().filter_map(|(name, value)| Some((short(name)?, value.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_dotenv(dotenv: &str, process: &[(&str, &str)]) -> Variables {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".env"), dotenv).unwrap();
        let mut variables = Variables::from_pairs(process.iter().copied());
        let allowed = variables.in_process(IPYBOX_DOTENV).unwrap_or_default().to_owned();
        variables.take(dotenv::read(&directory.path().join(".env"), &AllowedNames(&allowed)));
        variables
    }

    fn check_fill(text: &str, expected: Result<&str, &str>) {
        let variables = Variables::from_pairs([("A", "1"), ("B_2", "two")]);
        let filled = variables.fill(text).map_err(|missing| missing.name);
        assert_eq!(filled.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn placeholders_are_filled() {
        check_fill("", Ok(""));
        check_fill("no placeholder, $A, {A}", Ok("no placeholder, $A, {A}"));
        check_fill("${A}", Ok("1"));
        check_fill("Bearer ${A}-${B_2}!", Ok("Bearer 1-two!"));
        check_fill("${A:-other} ${C:-other}", Ok("1 other"));
        check_fill("${C:-}", Ok(""));
        check_fill("${C}", Err("C"));
        check_fill("${A", Ok("${A"));
        check_fill("${} ${a b} ${A}", Ok("${} ${a b} 1"));
    }

    #[test]
    fn the_process_environment_wins_over_dotenv() {
        let variables = with_dotenv("A=file\nB=file\n", &[("A", "process"), (IPYBOX_DOTENV, "A,B")]);
        assert_eq!(variables.get("A"), Some("process"));
        assert_eq!(variables.get("B"), Some("file"));
    }

    #[test]
    fn a_malformed_line_is_named_by_its_number_and_not_shown() {
        let dotenv = "# comment\nA=1\nthis is my secret\n\nB=\"2\nlines\"\nsecret again\nC=3\n";
        let variables = with_dotenv(dotenv, &[(IPYBOX_DOTENV, "A,B,C")]);
        let problems: Vec<String> = variables.problems().iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("line 3 "), "{problems:?}");
        assert!(problems[1].contains("line 7 "), "{problems:?}");
        assert!(!problems.concat().contains("secret"), "{problems:?}");
        assert_eq!(variables.get("C"), Some("3"));
        let missing = variables.fill("${D}").unwrap_err().to_string();
        assert!(missing.contains("`D`") && missing.contains("line 3"), "{missing}");
    }

    #[test]
    fn dotenv_is_taken_literally() {
        let variables = with_dotenv(
            "A=$HOME-${SECRET}\nB=\"$SECRET \\\" $A\"\nC='$SECRET'\nD=\\$SECRET\nE=a'b'$A\n# it's $5\nF=1\n",
            &[("SECRET", "s3cret"), ("HOME", "/root"), (IPYBOX_DOTENV, "A B C D E F")],
        );
        let values: Vec<Option<&str>> = ["A", "B", "C", "D", "E", "F"]
            .iter()
            .map(|name| variables.dotenv.get(*name).map(String::as_str))
            .collect();
        let expected = ["$HOME-${SECRET}", "$SECRET \" $A", "$SECRET", "$SECRET", "ab$A", "1"];
        assert_eq!(values, expected.map(Some), "{:?}", variables.problems);
    }

    #[test]
    fn dotenv_sets_secrets_and_what_the_user_names() {
        let file =
            "KERNEL_ENV_SHELL=/x\nKERNEL_ENV_GIT_CONFIG_KEY_0=/x\nKERNEL_ENV_API_KEY=1\nURL=/x\nMORE=2\n";
        let variables = with_dotenv(file, &[]);
        assert_eq!(variables.for_kernel().into_keys().collect::<Vec<_>>(), ["API_KEY"]);
        let problems: Vec<String> = variables.problems().iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with("`KERNEL_ENV_GIT_CONFIG_KEY_0`, `KERNEL_ENV_SHELL` of "),
            "{problems:?}"
        );
        let missing = variables.fill("${URL}").unwrap_err().to_string();
        assert!(missing.contains("`IPYBOX_DOTENV=URL`"), "{missing}");
        assert!(missing.starts_with("the variable `URL` is in the workspace's `.env`, which may not set it"));
        assert!(!missing.contains("neither"), "{missing}");
        let nowhere = variables.fill("${NOWHERE}").unwrap_err().to_string();
        assert!(nowhere.contains("neither in the environment nor in the workspace's `.env`"), "{nowhere}");

        let named = with_dotenv(file, &[(IPYBOX_DOTENV, "KERNEL_ENV_SHELL,MORE")]);
        assert_eq!(named.for_kernel().into_keys().collect::<Vec<_>>(), ["API_KEY", "SHELL"]);
        assert_eq!((named.get("MORE"), named.get("URL")), (Some("2"), None));
        assert!(!named.is_of_the_workspace("MORE") && named.is_of_the_workspace("KERNEL_ENV_API_KEY"));

        let real = Variables::from_pairs([("KERNEL_ENV_PYTHONPATH", "/x")]);
        assert_eq!(real.for_kernel().into_keys().collect::<Vec<_>>(), ["PYTHONPATH"]);
    }

    #[test]
    fn bytes_that_no_variable_can_hold_cost_their_line_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".env");
        std::fs::write(&path, b"\xef\xbb\xbfA=1\nB=x\0y\nC=\xff\nD=2\n").unwrap();
        let mut variables = Variables::default();
        variables.take(dotenv::read(&path, &AllowedNames("A,D")));
        assert_eq!((variables.get("A"), variables.get("D")), (Some("1"), Some("2")));
        assert_eq!((variables.get("B"), variables.get("C")), (None, None));
        assert_eq!(variables.problems().len(), 2, "{:?}", variables.problems());
    }

    #[test]
    fn a_directory_in_place_of_dotenv_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let mut variables = Variables::default();
        variables.take(dotenv::read(directory.path(), &AllowedNames::default()));
        assert!(variables.problems()[0].to_string().contains("not a regular file"));
    }

    #[test]
    fn the_kernel_sees_only_what_is_meant_for_it() {
        let variables = with_dotenv(
            "SECRET=x\nKERNEL_ENV_A_KEY=file\nKERNEL_ENV_B_KEY=file\nPATH=/planted\n",
            &[
                ("PATH", "/bin"),
                ("LC_ALL", "C"),
                ("API_KEY", "x"),
                ("KERNEL_ENV_A_KEY", "process"),
                ("KERNEL_ENV_", "x"),
            ],
        );
        let kernel: Vec<(String, String)> = variables.for_kernel().into_iter().collect();
        let expected = [("A_KEY", "process"), ("B_KEY", "file"), ("LC_ALL", "C"), ("PATH", "/bin")];
        assert_eq!(kernel, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn an_mcp_server_inherits_nothing_of_dotenv_and_no_functions() {
        let variables = with_dotenv(
            "HOME=/planted\nHTTPS_PROXY=http://planted/\nSSL_CERT_FILE=/planted\n",
            &[("HOME", "/root"), ("API_KEY", "x"), ("SHELL", "() { :; }"), ("SSL_CERT_FILE", "/ca.pem")],
        );
        let inherited: Vec<String> = variables.for_mcp_server().into_values().collect();
        assert_eq!(inherited, ["/root", "/ca.pem"]);
        assert!(!variables.for_kernel().contains_key("HTTPS_PROXY"));
    }

    #[test]
    fn values_of_dotenv_and_of_placeholders_are_redacted() {
        let dotenv = "A_KEY=from-file\nURL=refused\n";
        let variables = with_dotenv(dotenv, &[("B", "filled-in"), ("C", "not-used")]);
        variables.clone().fill("${B}").unwrap();
        let shown = variables.redactor().redact("from-file filled-in not-used refused").into_owned();
        assert_eq!(shown, "${A_KEY} ${B} not-used ${URL}");
        variables.expect_placeholders("${D} ${C:-x}");
        assert_eq!(variables.redactor().redact("not-used"), "${C}");
    }

    #[test]
    fn values_are_not_shown_by_debug() {
        let variables = Variables::from_pairs([("NAME", "hidden")]);
        let shown = format!("{variables:?}");
        assert!(shown.contains("NAME") && !shown.contains("hidden"), "{shown}");
    }
}
