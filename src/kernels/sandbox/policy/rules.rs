//! The concrete rules of a policy for one session, with our own protections, whatever the user's file says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::closed::{ClosedPaths, PatternRefusal, own};
use super::homes;
use super::paths::{PathPattern, PathProblem, real, spelled, usable};
use super::policy_paths::PolicyPaths;
use super::trusted::{self, TrustedPaths, trusted};
use super::{PolicyProblem, SandboxPolicy, SandboxPolicyError};
use crate::ground::web::AddressRange;
use crate::kernels::sandbox::domain::DomainRule;

/// A policy made concrete for one session. On Linux `allow_write` and `deny_write` have no globs.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRules {
    /// Hosts that may be reached.
    pub(crate) allowed_domains: Vec<DomainRule>,
    /// Hosts that may not be reached, though `allowed_domains` has them.
    pub(crate) denied_domains: Vec<DomainRule>,
    /// Addresses that an allowed host must not resolve to.
    pub(crate) denied_addresses: Vec<AddressRange>,
    /// Paths that are not readable. They may be missing, or beneath paths of `allow_read` and `allow_write`.
    pub(crate) deny_read: Vec<PathPattern>,
    /// Paths that are readable beneath `deny_read`.
    pub(crate) allow_read: Vec<PathPattern>,
    /// Paths that are writable, if they exist, and readable beneath `deny_read`.
    pub(crate) allow_write: Vec<PathPattern>,
    /// Paths that are not writable beneath `allow_write`. Missing ones must not be created.
    pub(crate) deny_write: Vec<PathPattern>,
    /// Whether code inside may open Unix sockets.
    pub(crate) allow_all_unix_sockets: bool,
    /// The bubblewrap program that the policy names.
    pub(crate) bwrap_path: Option<PathBuf>,
    /// Existing paths that srt makes writable by itself.
    pub(super) opened_by_srt: Vec<PathBuf>,
    /// Whether the workspace has more files that configure programs in its subdirectories than could be found.
    pub(crate) is_search_cut: bool,
    /// Relative paths in the document are relative to it.
    pub(super) workspace: PathBuf,
    /// The user's document.
    pub(super) document: Map<String, Value>,
}

/// Directories for temporary files.
pub(super) const TEMPORARY: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/private/tmp"];

/// Parts of the system that NixOS keeps among the files of running programs: the programs on its `PATH`, and drivers.
const OF_SYSTEM: [&str; 2] = ["/run/current-system", "/run/opengl-driver"];

/// Directories of the home that srt makes writable by itself.
const OPENED_BY_SRT: [&str; 2] = [".npm/_logs", ".claude/debug"];

impl SandboxPolicy {
    /// The policy for one session, with our own protections: `.env`, `mcptools` and `.ipybox` of the workspace, the
    /// policy's file, what configures other programs that are used in the workspace, the session's private directory and all that
    /// `paths` protect are not writable; the state directory but for Python's environment, and all that `paths` hide, are
    /// not readable.
    ///
    /// # Errors
    /// A path cannot be used, or would open what stays closed.
    pub(crate) fn rules(&self, paths: &PolicyPaths) -> Result<SandboxRules, SandboxPolicyError> {
        let closed = ClosedPaths::new(self, paths)?;
        let mut allow_write = self.patterns("allowWrite", paths, |pattern| closed.may_write(pattern))?;
        // What a default opens beneath a home that is not hidden, it need not open.
        let mut allow_read = if self.has_defaults && !homes::is_hideable(paths) {
            Vec::new()
        } else {
            self.patterns("allowRead", paths, |pattern| closed.may_read(pattern))?
        };
        let mut deny_read = self.patterns("denyRead", paths, |_| Ok(()))?;
        if self.has_defaults {
            deny_read.retain(|pattern| !homes::hides_too_much(pattern, paths));
            allow_read
                .extend(self.elsewhere("allowRead", paths).filter(|path| closed.may_read(path).is_ok()));
            deny_read.extend(self.elsewhere("denyRead", paths));
        }
        let mut deny_write =
            self.patterns("denyWrite", paths, |pattern| closed.may_deny_writing(pattern, &allow_write))?;

        let opening = if allow_read.is_empty() { None } else { Some("allowRead") };
        for key in ["allowWrite", "denyWrite"].into_iter().chain(opening) {
            self.refuse_links(key, paths, &allow_write)?;
        }
        let depth = self.document.get("mandatoryDenySearchDepth").and_then(Value::as_u64);
        let is_git_open = self.is_set("filesystem", "allowGitConfig");
        let depth = depth.unwrap_or(trusted::DEPTH);
        let search = |directory: &Path| {
            trusted(directory, is_git_open, depth, &directories_of(&paths.protected_before, directory))
        };
        let TrustedPaths { mut top, mut below, mut is_cut } = search(&closed.workspace);
        for project in other_projects(&allow_write, &closed.workspace, &paths.home) {
            let trusted = search(project);
            // A link cannot be protected, and the user has opened its directory.
            top.extend(trusted.top.into_iter().filter(|path| !path.is_symlink()));
            below.extend(trusted.below);
            is_cut |= trusted.is_cut;
        }
        // By its own name the policy permits one of them.
        let is_permitted = |path: &Path| {
            !trusted::is_never_permitted(path) && allow_write.iter().any(|open| open.path() == Some(path))
        };
        top.retain(|path| !is_permitted(path));
        below.retain(|path| !is_permitted(path));
        for path in &top {
            closed.must_be_no_link(path, &allow_write)?;
        }
        // A path that no policy can name existed before, and is not worth failing a session.
        let below = below.into_iter().filter_map(|path| usable(path).ok());
        deny_write.extend(top.into_iter().chain(below).map(PathPattern::Path));
        deny_write.extend(closed.denied_under(&allow_write)?.into_iter().map(PathPattern::Path));
        deny_read.extend(closed.secret.iter().cloned().map(PathPattern::Path));
        for covered in &paths.covered {
            let covered = own(covered)?;
            let within = OF_SYSTEM.iter().map(PathBuf::from).filter(|path| path.starts_with(&covered));
            allow_read.extend(within.map(PathPattern::Path));
            deny_read.push(PathPattern::Path(covered));
        }
        allow_read.extend(closed.readable.iter().cloned().map(PathPattern::Path));
        allow_write.push(PathPattern::Path(closed.writable.clone()));
        for list in [&mut allow_write, &mut allow_read, &mut deny_read, &mut deny_write] {
            unique(list);
        }
        remove_redundant(&mut deny_read, &[&allow_read, &allow_write]);
        let mut allowed_domains = self.list("network", "allowedDomains", DomainRule::parse)?;
        allowed_domains.extend(self.opens_network.then(DomainRule::everything));
        Ok(SandboxRules {
            allowed_domains,
            denied_domains: self.list("network", "deniedDomains", DomainRule::parse_denied)?,
            denied_addresses: self.list("network", "deniedResolvedAddresses", AddressRange::parse)?,
            deny_read,
            allow_read,
            allow_write,
            deny_write,
            allow_all_unix_sockets: self.is_set("network", "allowAllUnixSockets"),
            bwrap_path: self.document.get("bwrapPath").and_then(Value::as_str).map(PathBuf::from),
            opened_by_srt: opened_by_srt(&paths.home),
            is_search_cut: is_cut,
            workspace: closed.workspace.clone(),
            document: self.document.clone(),
        })
    }

    pub(super) fn value(&self, section: &str, key: &str) -> Option<&Value> {
        self.document.get(section)?.get(key)
    }

    fn is_set(&self, section: &str, key: &str) -> bool {
        self.value(section, key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A list of texts, each as `parse` understands it.
    fn list<T, E: Into<PolicyProblem>>(
        &self,
        section: &str,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, SandboxPolicyError> {
        let entries = self.value(section, key).and_then(Value::as_array).into_iter().flatten();
        let texts = entries.filter_map(Value::as_str).enumerate();
        texts
            .map(|(index, text)| {
                let at = format!("`{section}.{key}[{index}]`");
                parse(text).map_err(|error| self.source.at(at, error.into()))
            })
            .collect()
    }

    fn patterns(
        &self,
        key: &str,
        paths: &PolicyPaths,
        check: impl Fn(&PathPattern) -> Result<(), PatternRefusal>,
    ) -> Result<Vec<PathPattern>, SandboxPolicyError> {
        self.list("filesystem", key, |text| {
            let problem = |problem| PolicyProblem::Path { value: text.to_owned(), problem };
            let pattern = PathPattern::resolve(text, &paths.workspace, &paths.home).map_err(problem)?;
            match check(&pattern) {
                Ok(()) => Ok(pattern),
                Err(PatternRefusal::Path(refusal)) => Err(problem(refusal)),
                Err(PatternRefusal::Opens(closed)) => {
                    Err(PolicyProblem::Opens { value: text.to_owned(), closed })
                }
            }
        })
    }

    /// The entries of a list for reading, in the further places for which the default policy holds. Places that no policy can
    /// name are left out.
    fn elsewhere<'a>(
        &'a self,
        key: &'a str,
        paths: &'a PolicyPaths,
    ) -> impl Iterator<Item = PathPattern> + 'a {
        let entries = self.value("filesystem", key).and_then(Value::as_array).into_iter().flatten();
        let places = entries.filter_map(Value::as_str);
        let places = places.flat_map(move |text| homes::elsewhere(text, key == "denyRead", paths));
        places.filter_map(|place| PathPattern::resolve(&place, &paths.workspace, &paths.home).ok())
    }

    /// Refuses links in the path of an entry: code in an earlier sandbox may have created them to open their
    /// targets.
    fn refuse_links(
        &self,
        key: &str,
        paths: &PolicyPaths,
        open: &[PathPattern],
    ) -> Result<(), SandboxPolicyError> {
        self.list("filesystem", key, |text| {
            let problem = |problem| PolicyProblem::Path { value: text.to_owned(), problem };
            let path = spelled(text, &paths.workspace, &paths.home).map_err(problem)?;
            let mut reached = PathBuf::from("/");
            for name in path.components().skip(1) {
                let place = reached.join(name);
                if place.is_symlink() && open.iter().any(|open| place.starts_with(open.root())) {
                    return Err(problem(PathProblem::Link));
                }
                reached = real(&place).map_err(|error| problem(error.into()))?;
            }
            Ok(())
        })
        .map(drop)
    }
}

/// The other directories that the policy opens, in which programs may look for their configuration as in the workspace: not those for
/// temporary files and caches, and no whole home or system.
fn other_projects<'a>(
    allow_write: &'a [PathPattern],
    workspace: &'a Path,
    home: &'a Path,
) -> impl Iterator<Item = &'a Path> {
    let opened = allow_write.iter().filter_map(PathPattern::path);
    opened.filter(move |path| {
        let is_temporary = TEMPORARY.iter().any(|directory| *path == Path::new(directory))
            || path.components().any(|part| part.as_os_str() == ".cache");
        let is_whole = [workspace, home].iter().any(|within| within.starts_with(path));
        path.is_dir() && !path.starts_with(workspace) && !is_temporary && !is_whole
    })
}

/// The directories below the workspace that these paths are in.
fn directories_of(paths: &[PathBuf], workspace: &Path) -> BTreeSet<PathBuf> {
    let below = paths.iter().filter_map(|path| path.parent());
    below.filter(|parent| parent.starts_with(workspace) && *parent != workspace).map(Path::to_owned).collect()
}

impl SandboxRules {
    /// Existing paths that srt makes writable by itself.
    pub(crate) fn opened_by_srt(&self) -> &[PathBuf] {
        &self.opened_by_srt
    }

    /// The writable directories, parts of which other rules deny.
    pub(crate) fn writable(&self) -> Vec<PathBuf> {
        self.allow_write
            .iter()
            .filter_map(PathPattern::path)
            .filter(|path| path.exists())
            .map(Path::to_owned)
            .collect()
    }

    /// Whether code may write repositories of git, except their hooks.
    pub(crate) fn is_git_open(&self) -> bool {
        let filesystem = self.document.get("filesystem");
        filesystem.and_then(|filesystem| filesystem.get("allowGitConfig")?.as_bool()).unwrap_or_default()
    }

    /// Denies writing these paths too.
    pub(crate) fn deny_write<'a>(&mut self, paths: impl Iterator<Item = &'a Path>) {
        self.deny_write.extend(paths.map(|path| PathPattern::Path(path.to_owned())));
        unique(&mut self.deny_write);
    }

    /// Denies reading these paths too.
    pub(crate) fn deny_read<'a>(&mut self, paths: impl Iterator<Item = &'a Path>) {
        self.deny_read.extend(paths.map(|path| PathPattern::Path(path.to_owned())));
        unique(&mut self.deny_read);
    }

    /// Missing paths that the policy opens; nothing can be written there.
    pub(crate) fn missing_writable(&self) -> Vec<PathBuf> {
        let paths = self.allow_write.iter().filter_map(PathPattern::path);
        paths.filter(|path| !path.exists()).map(Path::to_owned).collect()
    }

    /// These rules for installing packages: nothing is writable but `writable`, no host is reached but the
    /// package index's, and hidden paths stay hidden. Hosts that the policy denies by name stay denied; a
    /// policy that denies all of the network by `*` is about code, not about packages.
    ///
    /// `writable` may lie beneath the state directory. `index_hosts` are like entries of `allowedDomains`.
    ///
    /// # Errors
    /// A directory has a path that cannot be in the settings, or an index host is none.
    pub(crate) fn for_installation(
        &self,
        writable: &[&Path],
        index_hosts: &[String],
    ) -> Result<Self, SandboxPolicyError> {
        let targets: Vec<PathBuf> = writable.iter().map(|path| own(path)).collect::<Result<_, _>>()?;
        let hosts = index_hosts.iter().map(|host| {
            DomainRule::parse(host).map_err(|error| SandboxPolicyError::Key {
                name: "the package index's hosts".to_owned(),
                key: format!("`{host}`"),
                problem: error.into(),
            })
        });
        let is_everything = |rule: &DomainRule| rule.to_string().starts_with("*:") || rule.to_string() == "*";
        let mut rules = self.clone();
        rules.allowed_domains = hosts.collect::<Result<_, _>>()?;
        rules.denied_domains.retain(|rule| !is_everything(rule));
        rules.deny_write.retain(|denied| !targets.iter().any(|target| target.starts_with(denied.root())));
        // What code writes, in the workspace above all, an installation reads: projects are installed from there.
        rules.allow_read.append(&mut rules.allow_write);
        unique(&mut rules.allow_read);
        rules.allow_write = targets.into_iter().map(PathPattern::Path).collect();
        rules.allow_all_unix_sockets = false;
        Ok(rules)
    }
}

/// The directories of the home, and the one for temporary files, that srt makes writable by itself.
fn opened_by_srt(home: &Path) -> Vec<PathBuf> {
    let shared = ["/tmp/claude", "/private/tmp/claude"].map(PathBuf::from);
    let in_home = OPENED_BY_SRT.iter().map(|name| home.join(name));
    in_home.chain(shared).filter(|path| cfg!(target_os = "macos") || path.exists()).collect()
}

/// Removes denials of paths that are in a directory which is hidden anyway: the nearest rule about each is a denial. Hundreds
/// of mounts less are made, and the host may replace such files as it likes.
fn remove_redundant(denied: &mut Vec<PathPattern>, allowed: &[&[PathPattern]]) {
    let hiding: BTreeSet<PathBuf> = denied.iter().filter_map(PathPattern::path).map(Path::to_owned).collect();
    let opening: BTreeSet<PathBuf> =
        allowed.iter().flat_map(|list| list.iter()).map(|pattern| pattern.root().to_owned()).collect();
    let is_hidden_anyway = |path: &Path| {
        let mut above = path.ancestors().skip(1);
        let nearest = above.find(|above| hiding.contains(*above) || opening.contains(*above));
        nearest.is_some_and(|nearest| hiding.contains(nearest) && !opening.contains(nearest))
    };
    denied.retain(|pattern| {
        !pattern.path().is_some_and(|path| is_hidden_anyway(path) && !opening.contains(path))
    });
}

pub(super) fn unique(list: &mut Vec<PathPattern>) {
    let mut seen = BTreeSet::new();
    list.retain(|pattern| seen.insert(pattern.clone()));
}
