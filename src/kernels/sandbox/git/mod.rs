//! Files in writable places that git's configuration and index name: git on the host runs them, or reads settings from them.
//!
//! It runs `git config --list`, `git rev-parse` and `git ls-files`, which run nothing that is configured, and resolves paths.

mod settings;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use self::settings::{GitSetting, SettingMeaning};
use super::command::{imports_from_working_directory, words};
use super::open_places::{OpenPlaces, UnprotectedPath};
use super::policy::{PathPattern, PolicyPaths, SandboxRules, resolution_steps};
use crate::ground::env::{Variables, on_path};
use crate::ground::process::GroupLeader;

/// The time that all runs of git may take. Each takes a few milliseconds, unless a configuration includes a pipe.
const PATIENCE: Duration = Duration::from_secs(20);
/// The part of git's output that is read.
const OUTPUT_BYTES: u64 = 1024 * 1024;
/// The most repositories whose configuration is read.
const MOST_REPOSITORIES: usize = 32;
/// The most files that are read because a configuration may include them.
const MOST_INCLUDED: usize = 32;
/// The most submodules that are protected.
const MOST_SUBMODULES: usize = 1000;
/// The beginning of a submodule in the list of an index.
const SUBMODULE: &[u8] = b"160000 ";

/// The result.
#[derive(Debug, Default)]
pub(crate) struct NamedByGit {
    /// The paths that code must neither write nor create.
    pub(crate) paths: BTreeSet<PathBuf>,
    /// The paths that cannot be protected, as texts for the user.
    pub(crate) notes: BTreeSet<String>,
}

/// Reads the configuration of git for the workspace, for other writable places and for the repositories in them.
pub(crate) async fn named_by_git(
    rules: &SandboxRules,
    paths: &PolicyPaths,
    variables: &Variables,
) -> NamedByGit {
    named_within(PATIENCE, rules, paths, variables).await
}

async fn named_within(
    patience: Duration,
    rules: &SandboxRules,
    paths: &PolicyPaths,
    variables: &Variables,
) -> NamedByGit {
    let open = OpenPlaces::of(rules);
    let mut reading = GitFindings {
        open: &open,
        home: &paths.home,
        is_git_open: rules.is_git_open(),
        repositories: Vec::new(),
        submodules: BTreeSet::new(),
        found: NamedByGit::default(),
    };
    let Some(git) = on_path("git", variables.in_process("PATH").unwrap_or_default()) else {
        return reading.found;
    };
    let mut directories = VecDeque::from([paths.workspace.clone()]);
    let repositories =
        rules.deny_write.iter().filter_map(PathPattern::path).filter(|path| path.ends_with(".git"));
    directories.extend(repositories.filter(|git| git.exists()).filter_map(Path::parent).map(Path::to_owned));
    // In the session's own nobody runs git.
    let others = open.iter().filter(|open| open.is_dir() && **open != paths.writable_directory);
    directories.extend(others.cloned());
    let program = Git { program: &git, environment: environment(variables) };
    let mut seen = BTreeSet::new();
    let all = async {
        while let Some(directory) = directories.pop_front() {
            if !seen.insert(directory.clone()) {
                continue;
            }
            if seen.len() > MOST_REPOSITORIES {
                reading.tell(format!(
                    "the configuration of git is read for {MOST_REPOSITORIES} repositories, and there are more"
                ));
                break;
            }
            if let Err(error) = reading.repository(&program, &directory).await {
                reading.tell(format!(
                    "the configuration of git in `{}` cannot be read ({error})",
                    directory.display()
                ));
            }
            directories.extend(reading.submodules.iter().filter(|one| one.join(".git").exists()).cloned());
        }
    };
    if tokio::time::timeout(patience, all).await.is_err() {
        reading.tell(format!("the configuration of git could not be read within {} s", patience.as_secs()));
    }
    reading.found
}

/// The variables that decide which configuration git reads, and nothing by which it would write or show anything.
fn environment(variables: &Variables) -> BTreeMap<String, String> {
    let mut environment = variables.for_sandbox();
    let of_git = variables.all_in_process().filter(|(name, _)| {
        ["XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"].contains(name)
    });
    environment.extend(of_git.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for (name, value) in [("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0"), ("GIT_TRACE2", "0")] {
        environment.insert(name.to_owned(), value.to_owned());
    }
    environment
}

struct Git<'a> {
    program: &'a Path,
    environment: BTreeMap<String, String>,
}

impl Git<'_> {
    fn start(&self, directory: &Path, arguments: &[&str]) -> io::Result<GroupLeader> {
        let mut command = Command::new(self.program);
        command.args(["--no-pager", "-c", "safe.directory=*", "-c", "core.fsmonitor=false"]).args(arguments);
        command.env_clear().envs(&self.environment).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        GroupLeader::spawn(&mut command)
    }

    /// The paths of the submodules in the index of the repository around `directory`, relative to it.
    async fn submodules(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut leader = self.start(directory, &["ls-files", "--stage", "-z"])?;
        let mut submodules = Vec::new();
        if let Some(pipe) = leader.take_stdout() {
            let mut entries = BufReader::new(pipe).split(0);
            while let Some(entry) = entries.next_segment().await? {
                let path =
                    entry.starts_with(SUBMODULE).then(|| entry.splitn(2, |byte| *byte == b'\t').nth(1));
                submodules.extend(path.flatten().map(|path| PathBuf::from(OsStr::from_bytes(path))));
            }
        }
        leader.wait().await?;
        Ok(submodules)
    }

    /// Its output. `None` if it fails.
    async fn ask(&self, directory: &Path, arguments: &[&str]) -> io::Result<Option<Vec<u8>>> {
        let mut leader = self.start(directory, arguments)?;
        let mut output = Vec::new();
        if let Some(pipe) = leader.take_stdout() {
            pipe.take(OUTPUT_BYTES).read_to_end(&mut output).await?;
        }
        if u64::try_from(output.len()).is_ok_and(|length| length == OUTPUT_BYTES) {
            leader.kill().await;
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
        }
        Ok(leader.wait().await?.success().then_some(output))
    }
}

/// The findings so far.
struct GitFindings<'a> {
    /// The writable places.
    open: &'a OpenPlaces,
    home: &'a Path,
    /// Whether the policy opens repositories, except their hooks.
    is_git_open: bool,
    /// Repositories with another name than `.git`.
    repositories: Vec<PathBuf>,
    /// The directories of submodules, checked out or not.
    submodules: BTreeSet<PathBuf>,
    found: NamedByGit,
}

impl GitFindings<'_> {
    fn tell(&mut self, note: String) {
        self.found.notes.insert(note);
    }

    /// Reads the configuration for `directory`, which may be in a repository or not.
    async fn repository(&mut self, git: &Git<'_>, directory: &Path) -> io::Result<()> {
        let places = ["rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"];
        let places = git.ask(directory, &places).await?;
        let places = places.map(|output| String::from_utf8_lossy(&output).into_owned()).unwrap_or_default();
        let mut places = places.lines().map(|place| directory.join(place));
        let top = places.next().unwrap_or_else(|| directory.to_owned());
        for repository in places {
            // Under another name than `.git` it may be found by nothing else.
            if !self.is_in_repository(&repository) {
                let hooks = repository.join("hooks");
                self.protect(if self.is_git_open { &hooks } else { &repository }).ok();
                self.repositories.push(repository);
            }
        }
        // Here, since relative origins are relative to it.
        let Some(output) = git.ask(&top, &["config", "--list", "-z", "--show-origin"]).await? else {
            return Err(io::Error::other("git refuses it"));
        };
        let mut settings = GitSetting::parse(&output, &top);
        let mut read: BTreeSet<PathBuf> =
            settings.iter().filter_map(|setting| setting.origin.clone()).collect();
        let mut position = 0;
        while let Some(setting) = settings.get(position).cloned() {
            position += 1;
            let Some(included) = self.setting(&setting, &top) else { continue };
            // Its condition may hold later.
            if included.is_file() && read.len() < MOST_INCLUDED && read.insert(included.clone()) {
                let file = included.to_string_lossy();
                let arguments = ["config", "--file", &file, "--list", "-z", "--show-origin"];
                let output = git.ask(&top, &arguments).await?.unwrap_or_default();
                settings.extend(GitSetting::parse(&output, &top));
            }
        }
        for file in read {
            self.include(&file);
        }
        self.protect_submodules(&top, git.submodules(&top).await?);
        Ok(())
    }

    /// Protects the repositories of submodules, also of those that are not checked out: git on the host enters each directory
    /// that its index names, and runs what a repository there configures. Repositories that the policy opens configure anything.
    fn protect_submodules(&mut self, top: &Path, submodules: Vec<PathBuf>) {
        if self.is_git_open {
            return;
        }
        for submodule in submodules {
            if self.submodules.len() == MOST_SUBMODULES {
                return self.tell(format!(
                    "the repositories of {MOST_SUBMODULES} submodules are protected, and there are more"
                ));
            }
            let directory = top.join(&submodule);
            if let Err(why) = self.protect(&directory.join(".git")) {
                self.tell(unprotected("submodule", &submodule.display().to_string(), &why));
            }
            self.submodules.insert(directory);
        }
    }

    /// Protects what a setting names. Returns the file that it includes.
    fn setting(&mut self, setting: &GitSetting, top: &Path) -> Option<PathBuf> {
        match setting.meaning() {
            SettingMeaning::Nothing => {}
            SettingMeaning::Include => {
                let directory = setting.origin.as_deref().and_then(Path::parent).unwrap_or(top);
                let file = self.absolute(&setting.value, directory);
                self.include(&file);
                return Some(file);
            }
            SettingMeaning::Path => {
                let value = setting.value.strip_prefix(":(optional)").unwrap_or(&setting.value);
                let path = self.absolute(value, top);
                if !value.is_empty()
                    && let Err(why) = self.protect(&path)
                {
                    self.tell(unprotected(&setting.key, &setting.value, &why));
                }
            }
            SettingMeaning::Command => self.command(setting, top),
            SettingMeaning::Other => self.other(setting, top),
        }
        None
    }

    fn include(&mut self, file: &Path) {
        // The policy decides about what is in a repository.
        let real = resolution_steps(file).ok().and_then(|mut steps| steps.pop());
        if !real.is_some_and(|real| self.is_in_repository(&real))
            && let Err(why) = self.protect(file)
        {
            self.tell(unprotected("include.path", &file.display().to_string(), &why));
        }
    }

    /// Protects the files of a command that git runs by itself, with their directories: interpreters import from there.
    fn command(&mut self, setting: &GitSetting, top: &Path) {
        for word in words(&setting.value) {
            let path = self.absolute(&word.text, top);
            let kind = path.metadata().ok();
            if !word.is_file && kind.is_none() {
                continue;
            }
            let is_directory = kind.as_ref().is_some_and(std::fs::Metadata::is_dir);
            if is_directory {
                // A directory that is written in a command, such as `.`, need not have code.
                self.protect(&path).ok();
                continue;
            }
            let beside = path.parent().map(|directory| self.protect(directory));
            let of_file = self.protect(&path);
            if let Err(why) = of_file {
                self.tell(unprotected(&setting.key, &setting.value, &why));
            } else if matches!(beside, Some(Err(UnprotectedPath::Whole))) && self.open.are_above(&path) {
                self.tell(format!(
                    "git runs `{}` (`{}`): the file is protected, but code can put modules beside it",
                    setting.value, setting.key
                ));
            }
        }
        if imports_from_working_directory(&setting.value) && self.open.are_above(&top.join("x")) {
            self.tell(format!(
                "git runs `{}` (`{}`), and Python then imports modules from the workspace, where code can put them: \
                 add `-P`, or `-I` before Python 3.11",
                setting.value, setting.key
            ));
        }
    }

    /// Protects files that a setting names which git itself does not know, or an alias.
    fn other(&mut self, setting: &GitSetting, top: &Path) {
        for word in words(&setting.value) {
            let path = self.absolute(&word.text, top);
            let is_alias = setting.key.starts_with("alias.") && setting.value.starts_with('!');
            if (path.is_file() || is_alias && word.is_file)
                && let Err(why) = self.protect(&path)
            {
                self.tell(unprotected(&setting.key, &setting.value, &why));
            }
        }
    }

    fn absolute(&self, text: &str, directory: &Path) -> PathBuf {
        match text.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => directory.join(text),
        }
    }

    fn protect(&mut self, path: &Path) -> Result<(), UnprotectedPath> {
        self.open.protect(path, &mut self.found.paths)
    }

    fn is_in_repository(&self, path: &Path) -> bool {
        let is_in_git = path.components().any(|part| part.as_os_str() == ".git");
        is_in_git || self.repositories.iter().any(|repository| path.starts_with(repository))
    }
}

fn unprotected(key: &str, value: &str, why: &UnprotectedPath) -> String {
    let why = match why {
        UnprotectedPath::Whole => "is a directory that code can write as a whole".to_owned(),
        UnprotectedPath::Link(link) => {
            format!("leads through the link `{}`, which code can replace", link.display())
        }
    };
    format!("git takes `{value}` (`{key}`) from the workspace, and it cannot be protected: it {why}")
}

#[cfg(test)]
mod tests;
