//! Files in writable places that git's configuration names: git on the host runs them, or reads settings from them.
//!
//! It runs `git config --list` and `git rev-parse`, which run nothing that is configured, and resolves paths.

mod command;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use self::command::{imports_from_working_directory, words};
use self::settings::{GitSetting, Meaning};
use super::policy::{PathPattern, PolicyPaths, Rules, resolution_steps};
use crate::ground::env::{Variables, on_path};
use crate::ground::process::GroupLeader;

/// The time that all runs of git may take. Each takes a few milliseconds, unless a configuration includes a pipe.
const PATIENCE: Duration = Duration::from_secs(5);
/// The part of git's output that is read.
const OUTPUT_BYTES: u64 = 1024 * 1024;
/// The most repositories whose configuration is read.
const MOST_REPOSITORIES: usize = 32;
/// The most files that are read because a configuration may include them.
const MOST_INCLUDED: usize = 32;

/// The result.
#[derive(Debug, Default)]
pub(crate) struct NamedByGit {
    /// The paths that code must neither write nor create.
    pub(crate) paths: BTreeSet<PathBuf>,
    /// The paths that cannot be protected, as texts for the user.
    pub(crate) notes: BTreeSet<String>,
}

/// Reads the configuration of git for the workspace, for other writable places and for the repositories in them.
pub(crate) async fn named_by_git(rules: &Rules, paths: &PolicyPaths, variables: &Variables) -> NamedByGit {
    let open: Vec<PathBuf> = rules.allow_write.iter().map(|open| open.root().to_owned()).collect();
    let mut reading = Reading {
        open: &open,
        home: &paths.home,
        is_git_open: rules.is_git_open(),
        repositories: Vec::new(),
        found: NamedByGit::default(),
    };
    let Some(git) = on_path("git", variables.in_process("PATH").unwrap_or_default()) else {
        return reading.found;
    };
    let mut directories: Vec<PathBuf> = vec![paths.workspace.clone()];
    let repositories =
        rules.deny_write.iter().filter_map(PathPattern::path).filter(|path| path.ends_with(".git"));
    directories.extend(repositories.filter(|git| git.exists()).filter_map(Path::parent).map(Path::to_owned));
    // In the session's own nobody runs git.
    let others = open.iter().filter(|open| open.is_dir() && **open != paths.writable_directory);
    directories.extend(others.cloned());
    let mut seen = BTreeSet::new();
    directories.retain(|directory| seen.insert(directory.clone()));
    if directories.len() > MOST_REPOSITORIES {
        reading.tell(format!(
            "the configuration of git is read for {MOST_REPOSITORIES} of {} repositories",
            directories.len()
        ));
    }
    let program = Git { program: &git, environment: environment(variables) };
    let all = async {
        for directory in directories.iter().take(MOST_REPOSITORIES) {
            if let Err(error) = reading.repository(&program, directory).await {
                reading.tell(format!(
                    "the configuration of git in `{}` cannot be read ({error})",
                    directory.display()
                ));
            }
        }
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        reading.tell(format!("the configuration of git could not be read within {} s", PATIENCE.as_secs()));
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
    /// Its output. `None` if it fails.
    async fn ask(&self, directory: &Path, arguments: &[&str]) -> io::Result<Option<Vec<u8>>> {
        let mut command = Command::new(self.program);
        command.args(["--no-pager", "-c", "safe.directory=*", "-c", "core.fsmonitor=false"]).args(arguments);
        command.env_clear().envs(&self.environment).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut leader = GroupLeader::spawn(&mut command)?;
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
struct Reading<'a> {
    /// The writable places.
    open: &'a [PathBuf],
    home: &'a Path,
    /// Whether the policy opens repositories, except their hooks.
    is_git_open: bool,
    /// Repositories with another name than `.git`.
    repositories: Vec<PathBuf>,
    found: NamedByGit,
}

/// Why a path cannot be protected.
enum Unprotected {
    /// It is a whole writable place, or above one.
    Whole,
    /// It leads through a link that code can replace.
    Link(PathBuf),
}

impl Reading<'_> {
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
        Ok(())
    }

    /// Protects what a setting names. Returns the file that it includes.
    fn setting(&mut self, setting: &GitSetting, top: &Path) -> Option<PathBuf> {
        match setting.meaning() {
            Meaning::Nothing => {}
            Meaning::Include => {
                let directory = setting.origin.as_deref().and_then(Path::parent).unwrap_or(top);
                let file = self.absolute(&setting.value, directory);
                self.include(&file);
                return Some(file);
            }
            Meaning::Path => {
                let value = setting.value.strip_prefix(":(optional)").unwrap_or(&setting.value);
                let path = self.absolute(value, top);
                if !value.is_empty()
                    && let Err(why) = self.protect(&path)
                {
                    self.tell(unprotected(&setting.key, &setting.value, &why));
                }
            }
            Meaning::Command => self.command(setting, top),
            Meaning::Other => self.other(setting, top),
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
            } else if matches!(beside, Some(Err(Unprotected::Whole))) && self.is_open(&path) {
                self.tell(format!(
                    "git runs `{}` (`{}`): the file is protected, but code can put modules beside it",
                    setting.value, setting.key
                ));
            }
        }
        if imports_from_working_directory(&setting.value) && self.is_open(&top.join("x")) {
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

    /// Protects `path`, and the directories of links that lead there, as far as code can write them.
    fn protect(&mut self, path: &Path) -> Result<(), Unprotected> {
        let Ok(mut steps) = resolution_steps(path) else { return Err(Unprotected::Link(path.to_owned())) };
        let real = steps.pop().unwrap_or_default();
        for step in steps {
            if !step.is_symlink() || !self.is_open(&step) {
                continue;
            }
            match step.parent() {
                Some(directory) if !self.is_whole(directory) => {
                    self.found.paths.insert(directory.to_owned());
                }
                _ => return Err(Unprotected::Link(step)),
            }
        }
        if self.is_whole(&real) {
            return Err(Unprotected::Whole);
        }
        if self.is_open(&real) {
            self.found.paths.insert(real);
        }
        Ok(())
    }

    fn is_in_repository(&self, path: &Path) -> bool {
        let is_in_git = path.components().any(|part| part.as_os_str() == ".git");
        is_in_git || self.repositories.iter().any(|repository| path.starts_with(repository))
    }

    fn is_open(&self, path: &Path) -> bool {
        self.open.iter().any(|open| path.starts_with(open))
    }

    /// Whether `path` cannot be protected without closing a whole writable place.
    fn is_whole(&self, path: &Path) -> bool {
        self.open.iter().any(|open| open == path)
    }
}

fn unprotected(key: &str, value: &str, why: &Unprotected) -> String {
    let why = match why {
        Unprotected::Whole => "is a directory that code can write as a whole".to_owned(),
        Unprotected::Link(link) => {
            format!("leads through the link `{}`, which code can replace", link.display())
        }
    };
    format!("git takes `{value}` (`{key}`) from the workspace, and it cannot be protected: it {why}")
}

#[cfg(test)]
mod tests;
