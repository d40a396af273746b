//! Landlock: writes only where they are allowed, and signals only to our own descendants.
//!
//! It restricts reads only within another sandbox, whose `/proc` shows the processes there: else the sandbox around us decides
//! which files exist. Nor is the network restricted: the
//! sandbox has one of its own, in which ports are as private as pipes. Landlock does not know the owner,
//! mode, times and extended attributes of files; mounts that cannot be written guard those.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};

use super::Error;
use super::report::{LandlockExtent, LandlockSupport};

/// The version whose rights and scopes we request; older systems grant the part that they have.
///
/// Version 9 could also guard connections to socket files, which the filter of system calls denies already.
const WANTED: ABI = ABI::V6;

/// The features of each version, as text for users.
const ADDED: [(i32, &str); 5] = [
    (1, "which files are written"),
    (2, "links and renames between directories"),
    (3, "truncation"),
    (5, "control of devices"),
    (6, "signals and abstract sockets"),
];

/// Files that programs may always write: sinks, terminals, shared memory. Everything that affects more than
/// the process itself (`/proc` with the system's settings, disks) is left out, also for user id 0.
#[rustfmt::skip]
const ALWAYS_WRITABLE: [&str; 9] = [
    "/dev/full", "/dev/null", "/dev/ptmx", "/dev/pts", "/dev/random", "/dev/shm", "/dev/tty",
    "/dev/urandom", "/dev/zero",
];

/// The parts of `/proc` that may always be read: about the machine, and about the process that restricts itself.
#[rustfmt::skip]
const READABLE_OF_PROC: [&str; 9] = [
    "/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/self", "/proc/stat", "/proc/sys",
    "/proc/uptime", "/proc/version",
];

/// Restricts the calling thread and all that it starts. Without `readable`, reads are as they are.
///
/// # Errors
///
/// Fails if the system has Landlock and refuses the rules.
pub(super) fn restrict(writable: &[PathBuf], readable: Option<&[PathBuf]>) -> Result<LandlockExtent, Error> {
    let mut skipped = Vec::new();
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let writing = AccessFs::from_write(WANTED);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(if readable.is_some() { reading | writing } else { writing })
        .and_then(|rules| rules.scope(Scope::from_all(WANTED)))
        .and_then(Ruleset::create)
        .map_err(Error::Landlock)?;
    let written = ALWAYS_WRITABLE.iter().map(Path::new).chain(writable.iter().map(PathBuf::as_path));
    let of_proc = readable.iter().flat_map(|_| READABLE_OF_PROC.iter().map(Path::new));
    let read = of_proc.chain(readable.into_iter().flatten().map(PathBuf::as_path));
    for (path, rights) in written.map(|path| (path, writing)).chain(read.map(|path| (path, reading))) {
        let Ok(file) = PathFd::new(path) else {
            // Denied then, which is all that we promise.
            skipped.push(path.to_owned());
            continue;
        };
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(WANTED) };
        rules = rules.add_rule(PathBeneath::new(file, rights)).map_err(Error::Landlock)?;
    }
    let status = rules.restrict_self().map_err(Error::Landlock)?;
    Ok(describe(status.landlock, skipped))
}

fn describe(status: LandlockStatus, skipped: Vec<PathBuf>) -> LandlockExtent {
    let offer = match status {
        LandlockStatus::NotEnabled => LandlockSupport::SwitchedOff,
        LandlockStatus::NotImplemented => LandlockSupport::Missing,
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            LandlockSupport::Abi(kernel_abi.unwrap_or(effective_abi as i32))
        }
    };
    let version = if let LandlockSupport::Abi(version) = offer { version } else { 0 };
    let words = |held: bool| {
        ADDED
            .iter()
            .filter(|(since, _)| (*since <= version) == held)
            .map(|(_, words)| (*words).to_owned())
            .collect()
    };
    LandlockExtent { offer, guarded: words(true), unguarded: words(false), skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: LandlockStatus, offer: LandlockSupport, guarded: usize) {
        let described = describe(status, Vec::new());
        assert_eq!(described.offer, offer);
        assert_eq!(described.guarded.len(), guarded);
        assert_eq!(described.guarded.len() + described.unguarded.len(), ADDED.len());
    }

    #[test]
    fn the_version_says_what_is_guarded() {
        let available =
            |version| LandlockStatus::Available { effective_abi: ABI::from(version), kernel_abi: None };
        check(LandlockStatus::NotEnabled, LandlockSupport::SwitchedOff, 0);
        check(LandlockStatus::NotImplemented, LandlockSupport::Missing, 0);
        check(available(1), LandlockSupport::Abi(1), 1);
        check(available(2), LandlockSupport::Abi(2), 2);
        check(available(4), LandlockSupport::Abi(4), 3);
        check(available(6), LandlockSupport::Abi(6), 5);
        check(available(7), LandlockSupport::Abi(7), 5);
        check(
            LandlockStatus::Available { effective_abi: ABI::V9, kernel_abi: Some(12) },
            LandlockSupport::Abi(12),
            5,
        );
    }
}
