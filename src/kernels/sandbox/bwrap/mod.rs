//! The command line of bubblewrap, which makes the sandbox without srt: Linux only, no helper but `bwrap`.
//!
//! All of the file system is there, read-only; rules open, close and hide parts of it by mounts. Users,
//! processes, network, IPC and host name are namespaces of its own. The network is a loopback and nothing
//! else; egress goes through the proxy. `hardening` does system calls, Landlock and limits; the caller sets
//! environment and session.
//!
//! ```text
//! rules ┬ globs  → the paths that are there   (found once, at the start)
//!       ├ stubs  → what is missing and must not come into being gets a place to mount on
//!       └ mounts → plan: who is hidden, readable, writable; parents first
//! ```
//!
//! Within another sandbox the system may refuse a `/proc` of its own, since parts of the outer one are covered. Then
//! [`ProcView::Outer`] shows that one, which cannot be written. Processes of the outer sandbox are of another user namespace,
//! which closes their memory, files and variables; `hardening` closes the rest, such as command lines.
//!
//! Limits: a file that the host replaces by another (as editors save) loses its mount, and files that are
//! created later and match a glob are readable.

mod globs;
mod mounts;
mod verified;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::mount_points::MountPoints;
use super::policy::{PathPattern, SandboxRules, is_directory, placeholder};
use super::stubs::{HeldStubs, StubKind, is_stub};
pub(crate) use mounts::MountedCopy;
use mounts::{Mount, MountRules, PathAccess};
pub(crate) use verified::ExpectedMounts;

/// Parts of `/proc` by which root configures the host. bubblewrap leaves them writable for uid 0, since it
/// checks the directories only. `/proc/sys/kernel/core_pattern` names a program that the system's kernel
/// starts outside of every sandbox.
const CONTROLS: [&str; 7] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"];

/// Directories that the sandbox has its own of.
const OWN: [&str; 2] = ["/dev", "/proc"];

/// The processes that `/proc` shows inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcView {
    /// Those of the sandbox.
    Own,
    /// Those of the sandbox in which ipybox runs, too.
    Outer,
}

impl ProcView {
    /// The text for the user about what code does not see.
    pub(crate) fn note(self) -> Option<&'static str> {
        (self == Self::Outer).then_some(
            "ipybox runs within another sandbox, which allows no new `/proc`: code reads that of the kernel's own process only",
        )
    }
}

/// The words of bubblewrap if the system refuses a `/proc`.
pub(in crate::kernels::sandbox) const NO_OWN_PROC: &str = "Can't mount proc";

/// The command that starts a program in the sandbox. It has to be started while [`MountPoints`] live, which end with the
/// sandbox.
///
/// `--die-with-parent` refers to the starting thread, which must live as long as the sandbox: a worker thread
/// of the runtime, not one for blocking work.
#[derive(Debug)]
pub(crate) struct PreparedSandbox {
    /// The arguments between `bwrap` and the program; they end in `--`.
    pub(crate) arguments: Vec<OsString>,
    /// The files that its mounts are on.
    pub(crate) mount_points: MountPoints,
    /// The mounts that it must have.
    pub(crate) expected: ExpectedMounts,
}

/// Why no sandbox can be made with bubblewrap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A rule about `/dev` or `/proc`.
    #[error(
        "hide or open `{}`: the sandbox has a `/dev` and a `/proc` of its own\nhint: remove the path from the policy",
        path.display()
    )]
    Own {
        /// The path.
        path: PathBuf,
    },
    /// A path to protect cannot be examined, but code inside might be able to make it accessible.
    #[error("protect `{}`\nhint: make its directory readable, or remove the path from the policy", path.display())]
    Look {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The stub that keeps a missing file from being created cannot be made.
    #[error("keep `{}` from being made\nhint: make the directory writable, or make the file", path.display())]
    Stub {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A glob that cannot be expanded.
    #[error("look for `{glob}`")]
    Glob {
        /// The glob.
        glob: String,
        /// Why.
        source: io::Error,
    },
    /// A glob with too many matches or too many names to test.
    #[error(
        "look for `{glob}`: there is too much of it\nhint: let it begin with a smaller directory, or name the paths"
    )]
    TooMuch {
        /// The glob.
        glob: String,
    },
}

/// The paths with a rule, each with all beneath it down to the next one, and whether code may write there.
///
/// # Errors
/// A glob cannot be expanded.
pub(crate) fn writable_parts(rules: &SandboxRules, workspace: &Path) -> Result<Vec<(PathBuf, bool)>, Error> {
    let (mounts, _) = mounts_of(rules)?;
    let paths = mounts.paths().chain([workspace]);
    Ok(paths.map(|path| (path.to_owned(), mounts.state(path) == PathAccess::Writable)).collect())
}

/// Makes the command line for `rules`; the program starts in `workspace`, which a copy may replace.
///
/// Directories that the host needs (`mcptools`, `.ipybox`) have to exist before: a stub is a file.
///
/// # Errors
/// A rule cannot be held.
pub(crate) fn prepare(
    rules: &SandboxRules,
    workspace: &Path,
    copy: Option<&MountedCopy>,
    proc: ProcView,
) -> Result<PreparedSandbox, Error> {
    let (mut mounts, deny_write) = mounts_of(rules)?;
    copy.into_iter().for_each(|copy| mounts.replace_workspace(copy));
    if let Some(path) = mounts.paths().find(|path| OWN.iter().any(|own| path.starts_with(own))) {
        return Err(Error::Own { path: path.to_owned() });
    }
    let (mut stubs, _hidden) = hold(rules, &deny_write, &mut mounts)?;
    let plan = mounts.plan()?;
    hold_in_copy(&plan, &mounts, &mut stubs)?;
    let mount_points = MountPoints::new(stubs, mounts.protected(), mounts.hidden());
    let arguments = arguments(&plan, workspace, proc);
    Ok(PreparedSandbox { arguments, mount_points, expected: ExpectedMounts::new(mounts, Vec::new()) })
}

/// Makes stubs of missing protected paths for srt. srt would make them, too, but the first of two sandboxes
/// that ends would remove the mount points of the other.
///
/// # Errors
/// A rule cannot be held.
pub(crate) fn hold_stubs(rules: &SandboxRules) -> Result<HeldPaths, Error> {
    let (mut mounts, deny_write) = mounts_of(rules)?;
    let (stubs, hidden) = hold(rules, &deny_write, &mut mounts)?;
    let mount_points = MountPoints::new(stubs, mounts.protected(), mounts.hidden());
    let expected = ExpectedMounts::new(mounts, rules.opened_by_srt().to_vec());
    Ok(HeldPaths { mount_points, hidden, expected })
}

/// The protected paths, with stubs of missing ones.
pub(crate) struct HeldPaths {
    pub(crate) mount_points: MountPoints,
    /// Stubs of what must not be read, even if the host creates it later.
    pub(crate) hidden: Vec<PathBuf>,
    /// The mounts that the sandbox must have.
    pub(crate) expected: ExpectedMounts,
}

/// The mounts by the rules, and the paths that must not be written.
fn mounts_of(rules: &SandboxRules) -> Result<(MountRules, Vec<PathBuf>), Error> {
    let mut mounts = MountRules::default();
    let mut deny_write: Vec<PathBuf> =
        rules.deny_write.iter().filter_map(PathPattern::path).map(Path::to_owned).collect();
    deny_write.push("/sys".into());
    for path in rules.allow_write.iter().filter_map(PathPattern::path) {
        mounts.allow_write(path);
    }
    for path in expanded(&rules.allow_read)? {
        mounts.allow_read(&path);
    }
    for path in expanded(&rules.deny_read)? {
        mounts.deny_read(&path);
    }
    for path in &deny_write {
        mounts.deny_write(path);
    }
    Ok((mounts, deny_write))
}

/// Makes stubs of missing paths. Returns them, and those of what must not be read.
fn hold(
    rules: &SandboxRules,
    deny_write: &[PathBuf],
    mounts: &mut MountRules,
) -> Result<(HeldStubs, Vec<PathBuf>), Error> {
    let mut stubs = HeldStubs::default();
    let mut make = |stub: &Path, path: &Path, mounts: &MountRules| {
        if !mounts.has_place(stub) {
            return Ok(());
        }
        let place = mounts.in_copy(stub).unwrap_or_else(|| stub.to_owned());
        let held = stubs.hold(&place, kind_of(stub, path));
        held.map_err(|source| Error::Stub { path: path.to_owned(), source })
    };
    for path in deny_write {
        if let Some(stub) = missing(path, mounts)? {
            make(&stub, path, mounts)?;
            mounts.deny_write(&stub);
        }
    }
    let mut hidden = Vec::new();
    // Otherwise code could create the directory that a secret will be in.
    for path in rules.deny_read.iter().filter_map(PathPattern::path) {
        if let Some(stub) = missing(path, mounts)? {
            make(&stub, path, mounts)?;
            mounts.deny_read(&stub);
            hidden.push(stub);
        }
    }
    Ok((stubs, hidden))
}

/// Makes stubs in a copy of the workspace for what is mounted from the workspace itself, or hidden.
fn hold_in_copy(plan: &[Mount], mounts: &MountRules, stubs: &mut HeldStubs) -> Result<(), Error> {
    let is_on_copy = |mount: &&Mount| {
        let mut above =
            plan.iter().filter(|other| other.path != mount.path && mount.path.starts_with(&other.path));
        above.next_back().is_some_and(|above| mounts.state(&above.path) == PathAccess::Writable)
    };
    for mount in plan.iter().filter(is_on_copy) {
        let Some(place) = mounts.in_copy(&mount.path).filter(|place| place.symlink_metadata().is_err())
        else {
            continue;
        };
        let kind = if mount.is_directory { StubKind::Directory } else { StubKind::File("") };
        stubs.hold(&place, kind).map_err(|source| Error::Stub { path: mount.path.clone(), source })?;
    }
    Ok(())
}

/// The kind of a stub, which is the first part of `target` that is missing.
fn kind_of(stub: &Path, target: &Path) -> StubKind {
    let name = target.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if stub != target || is_directory(name) { StubKind::Directory } else { StubKind::File(placeholder(name)) }
}

/// The paths that match the patterns now.
fn expanded(patterns: &[PathPattern]) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for pattern in patterns {
        match pattern {
            PathPattern::Path(path) => paths.push(path.clone()),
            PathPattern::Glob(glob) => paths.extend(globs::expand(glob)?),
        }
    }
    Ok(paths)
}

/// The first part of `path` that is missing or another sandbox's stub, if code inside could make it.
fn missing(path: &Path, mounts: &MountRules) -> Result<Option<PathBuf>, Error> {
    let mut first = None;
    for ancestor in path.ancestors() {
        if mounts::look(ancestor, mounts)?.is_some_and(|found| !is_stub(&found)) {
            break;
        }
        first = Some(ancestor);
    }
    let is_makeable =
        |first: &&Path| first.parent().is_some_and(|parent| mounts.state(parent) == PathAccess::Writable);
    Ok(first.filter(is_makeable).map(Path::to_owned))
}

fn arguments(plan: &[mounts::Mount], workspace: &Path, proc: ProcView) -> Vec<OsString> {
    #[rustfmt::skip]
    let namespaces = [
        "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL",
    ];
    let mut arguments: Vec<OsString> = namespaces.map(Into::into).into();
    let root = plan.first().filter(|mount| mount.path == Path::new("/"));
    arguments.extend(
        root.map_or_else(|| ["--ro-bind", "/", "/"].map(Into::into).to_vec(), |root| root.arguments()),
    );
    arguments.extend(["--dev", "/dev"].map(Into::into));
    match proc {
        ProcView::Own => {
            arguments.extend(["--proc", "/proc"].map(Into::into));
            for control in CONTROLS.iter().filter(|control| Path::new(control).exists()) {
                arguments.extend(["--ro-bind", control, control].map(Into::into));
            }
        }
        ProcView::Outer => arguments.extend(["--ro-bind", "/proc", "/proc"].map(Into::into)),
    }
    let rest = plan.iter().skip(usize::from(root.is_some()));
    arguments.extend(rest.clone().flat_map(mounts::Mount::arguments));
    // Last, since paths opened beneath need mount points in it.
    for hidden in rest.filter(|mount| mount.is_empty_directory()) {
        arguments.extend(["--remount-ro".into(), hidden.path.clone().into_os_string()]);
    }
    arguments.extend(["--chdir".into(), workspace.into(), "--".into()]);
    arguments
}

/// The variables by which programs inside find the proxy that listens at `port` of the inner loopback.
///
/// All name the HTTP proxy, which also serves SOCKS on the same port: clients like httpx fail on a SOCKS URL
/// unless a further package is installed. Loopback is not proxied, since the tool server is there.
pub(crate) fn proxy_environment(port: u16) -> Vec<(String, String)> {
    let proxy = format!("http://127.0.0.1:{port}");
    let both = |name: &str, value: &str| {
        [(name.to_uppercase(), value.to_owned()), (name.to_lowercase(), value.to_owned())]
    };
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
        .into_iter()
        .flat_map(|name| both(name, &proxy))
        .chain(both("NO_PROXY", "localhost,127.0.0.1,::1"))
        .collect()
}

#[cfg(test)]
mod tests;
