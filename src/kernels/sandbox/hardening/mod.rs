//! The hardening of processes inside the sandbox: rights that a process gives up, for itself and all that it
//! starts.
//!
//! The sandbox around it decides which files exist and which network there is. This room closes what such a sandbox
//! leaves open: writes that only the user id forbids, rarely used parts of the system's kernel, and the processes next
//! door. It never grants anything, never undoes anything, and knows neither the sandbox around it nor Jupyter.
//!
//! ```text
//! gateway       expendable → no new privileges, capabilities → Landlock → seccomp → not dumpable
//! sandbox-exec              no new privileges, capabilities → Landlock → seccomp → exec of Python
//! ```
//!
//! Python is in a Landlock domain below the gateway's: the gateway can signal it, and never the other way round.
//! macOS needs none of this, since one Seatbelt profile says it all.

#[cfg(target_os = "linux")]
mod expendable;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod privileges;
mod report;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use report::HardeningReport;

/// The permissions that remain. Passed as JSON in the arguments of `sandbox-exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hardening {
    /// Directories and files that can be written, with all below them: absolute, links resolved.
    pub(crate) writable: Vec<PathBuf>,
    /// Whether sockets of the Unix family can be made. They reach every socket file that is visible, so that the user
    /// has to ask for them.
    pub(crate) allow_unix_sockets: bool,
    /// Directories and files that programs can read, with all below them; `None` for no restriction but the mounts. Of `/proc`
    /// they can read what is about the machine and the process that is started. The gateway itself reads more.
    pub(crate) readable: Option<Vec<PathBuf>>,
}

/// Why a process could not be hardened. Each is a failure of a supported feature; unsupported features are in
/// the [`HardeningReport`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A privilege is still there.
    #[cfg(target_os = "linux")]
    #[error("give up {privilege}")]
    Privilege {
        /// The privilege.
        privilege: &'static str,
        /// The error of the system.
        #[source]
        source: rustix::io::Errno,
    },
    /// Landlock refused the rules.
    #[cfg(target_os = "linux")]
    #[error("restrict which files can be written")]
    Landlock(#[source] ::landlock::RulesetError),
    /// The filter of system calls could not be built or installed.
    #[cfg(target_os = "linux")]
    #[error("filter system calls")]
    Seccomp(#[source] seccompiler::Error),
    /// The thread that tries the layers ended early.
    #[cfg(target_os = "linux")]
    #[error("try the hardening in a thread: it panicked")]
    Probe,
}

impl Hardening {
    /// Hardens the gateway: the calling thread, which must still be the only one.
    ///
    /// From then on `/proc/self` belongs to root, and nothing below `/proc` can be written.
    ///
    /// # Errors
    ///
    /// Fails if a layer that the system has cannot be put on. The process may have lost privileges by then, and must
    /// not go on.
    #[cfg(target_os = "linux")]
    pub(crate) fn apply_to_gateway(&self) -> Result<HardeningReport, Error> {
        if let Err(error) = expendable::make_expendable() {
            tracing::warn!(%error, "when memory runs out, the system may end other processes before the sandbox's");
        }
        let report = self.apply(None)?;
        privileges::forbid_inspection()?;
        Ok(report)
    }

    /// Hardens a process that is about to execute untrusted code: the calling thread, which must still be the
    /// only one. The executed program can neither signal, trace nor limit any process outside of its own
    /// descendants.
    ///
    /// # Errors
    ///
    /// Fails if a layer that the system has cannot be put on. The process must not execute anything then.
    #[cfg(target_os = "linux")]
    pub(crate) fn apply_to_kernel(&self) -> Result<HardeningReport, Error> {
        // The filter a second time, so that the program is filtered whoever called us. The system answers for
        // calls that a filter lets pass whatever their arguments from a table, however many filters there
        // are.
        self.apply(self.readable.as_deref())
    }

    #[cfg(target_os = "linux")]
    fn apply(&self, readable: Option<&[PathBuf]>) -> Result<HardeningReport, Error> {
        let capabilities = privileges::give_up()?;
        let landlock = landlock::restrict(&self.writable, readable)?;
        let system_calls = seccomp::filter(self.allow_unix_sockets)?;
        Ok(HardeningReport::Layers(report::HardeningLayers { landlock, system_calls, capabilities }))
    }

    /// Nothing to do: Seatbelt's profile says it all.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn apply_to_gateway(&self) -> Result<HardeningReport, Error> {
        Ok(HardeningReport::NotNeeded)
    }

    /// Nothing to do: Seatbelt's profile says it all.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn apply_to_kernel(&self) -> Result<HardeningReport, Error> {
        Ok(HardeningReport::NotNeeded)
    }
}

/// The support of this system, by trying all layers in a thread that ends. The process stays as it is, since each layer
/// holds for the thread that puts it on.
///
/// # Errors
///
/// Fails if a layer that the system has cannot be put on.
#[cfg(target_os = "linux")]
pub(crate) fn probe() -> Result<HardeningReport, Error> {
    let nothing = Hardening { writable: Vec::new(), allow_unix_sockets: false, readable: None };
    std::thread::spawn(move || nothing.apply(None)).join().map_err(|_| Error::Probe)?
}

/// The support of this system: nothing that would be needed.
#[cfg(not(target_os = "linux"))]
pub(crate) fn probe() -> Result<HardeningReport, Error> {
    Ok(HardeningReport::NotNeeded)
}
