//! The result of the hardening: data to send, and texts for users. It decides nothing.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HardeningReport {
    /// The system's own sandbox replaces the layers.
    NotNeeded,
    /// The state of each layer.
    Layers(HardeningLayers),
}

/// The state of each layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HardeningLayers {
    /// Which files can be written, and which processes can be signalled.
    pub(crate) landlock: LandlockExtent,
    /// Which system calls there are.
    pub(crate) system_calls: SystemCalls,
    /// Powers apart from those of the user id.
    pub(crate) capabilities: Capabilities,
}

/// The extent to which Landlock holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LandlockExtent {
    /// The version of the interface that the system offers, or why it offers none.
    pub(crate) offer: LandlockSupport,
    /// The restricted actions, as text.
    pub(crate) guarded: Vec<String>,
    /// The actions that a newer system would restrict, as text. Empty if Landlock is fully enforced.
    pub(crate) unguarded: Vec<String>,
    /// Paths that should have been writable and do not exist.
    pub(crate) skipped: Vec<PathBuf>,
}

/// Whether a system has Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LandlockSupport {
    /// This version of its interface.
    Abi(i32),
    /// It was left out of the list of security modules at boot.
    SwitchedOff,
    /// The system is too old, or built without it.
    Missing,
}

/// Whether system calls are filtered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SystemCalls {
    /// They are, by a filter for this architecture; calls of any other end the process.
    Filtered(String),
    /// There is no filter for this architecture.
    UnknownArchitecture(String),
    /// The system is built without filters.
    Missing,
}

/// The remaining capabilities, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capabilities {
    /// Those in use or in reach.
    pub(crate) held: u64,
    /// Whether none could be had by executing a file either. Without new privileges, none can in any case.
    pub(crate) bounding_set_empty: bool,
}

impl HardeningReport {
    /// Whether every layer holds completely. Only then is user id 0 no more dangerous inside than another.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::NotNeeded => true,
            Self::Layers(layers) => layers.lacking().next().is_none(),
        }
    }
}

impl HardeningLayers {
    /// Sentences about incomplete layers.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = String> {
        let landlock = match self.landlock.offer {
            LandlockSupport::Missing => {
                Some("this kernel has no Landlock (Linux 6.12 has all that is used)".to_owned())
            }
            LandlockSupport::SwitchedOff => {
                Some("Landlock is switched off (add `landlock` to the kernel's `lsm=` parameter)".to_owned())
            }
            LandlockSupport::Abi(_) if self.landlock.unguarded.is_empty() => None,
            LandlockSupport::Abi(abi) => Some(format!(
                "Landlock ABI {abi} does not guard {} (Linux 6.12 does)",
                self.landlock.unguarded.join(", ")
            )),
        };
        let system_calls = match &self.system_calls {
            SystemCalls::Filtered(_) => None,
            SystemCalls::UnknownArchitecture(name) => {
                Some(format!("there is no filter of system calls for {name}"))
            }
            SystemCalls::Missing => Some("this kernel has no seccomp filters".to_owned()),
        };
        let capabilities = (self.capabilities.held != 0)
            .then(|| format!("capabilities {:#x} are left", self.capabilities.held));
        [landlock, system_calls, capabilities].into_iter().flatten()
    }
}

impl fmt::Display for HardeningReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = match self {
            Self::NotNeeded => return formatter.write_str("not needed on this system"),
            Self::Layers(layers) => layers,
        };
        let mut parts = Vec::new();
        if let LandlockSupport::Abi(abi) = layers.landlock.offer {
            parts.push(format!("Landlock ABI {abi} guards {}", layers.landlock.guarded.join(", ")));
        }
        if let SystemCalls::Filtered(name) = &layers.system_calls {
            parts.push(format!("system calls are filtered ({name})"));
        }
        if layers.capabilities.held == 0 {
            parts.push("no capabilities".to_owned());
        }
        parts.extend(layers.lacking());
        formatter.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> HardeningLayers {
        HardeningLayers {
            landlock: LandlockExtent {
                offer: LandlockSupport::Abi(6),
                guarded: vec!["files".to_owned(), "signals".to_owned()],
                unguarded: Vec::new(),
                skipped: vec![PathBuf::from("/dev/pts")],
            },
            system_calls: SystemCalls::Filtered("x86_64".to_owned()),
            capabilities: Capabilities { held: 0, bounding_set_empty: false },
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut HardeningLayers), words: &str) {
        let mut layers = layers();
        change(&mut layers);
        let report = HardeningReport::Layers(layers);
        assert_eq!(report.to_string(), words);
        assert!(!report.is_complete());
        let json = serde_json::to_string(&report).expect("a report is JSON");
        assert_eq!(serde_json::from_str::<HardeningReport>(&json).expect("and back"), report);
    }

    #[test]
    fn a_complete_report_says_what_holds() {
        let report = HardeningReport::Layers(layers());
        assert!(report.is_complete());
        assert_eq!(
            report.to_string(),
            "Landlock ABI 6 guards files, signals; system calls are filtered (x86_64); no capabilities"
        );
        assert!(HardeningReport::NotNeeded.is_complete());
    }

    #[test]
    fn what_is_lacking_makes_it_incomplete_and_is_named() {
        check(
            |layers| layers.landlock.unguarded = vec!["signals".to_owned()],
            "Landlock ABI 6 guards files, signals; system calls are filtered (x86_64); no capabilities; \
             Landlock ABI 6 does not guard signals (Linux 6.12 does)",
        );
        check(
            |layers| layers.landlock.offer = LandlockSupport::SwitchedOff,
            "system calls are filtered (x86_64); no capabilities; \
             Landlock is switched off (add `landlock` to the kernel's `lsm=` parameter)",
        );
        check(
            |layers| layers.landlock.offer = LandlockSupport::Missing,
            "system calls are filtered (x86_64); no capabilities; \
             this kernel has no Landlock (Linux 6.12 has all that is used)",
        );
        check(
            |layers| layers.system_calls = SystemCalls::UnknownArchitecture("s390x".to_owned()),
            "Landlock ABI 6 guards files, signals; no capabilities; \
             there is no filter of system calls for s390x",
        );
        check(
            |layers| layers.system_calls = SystemCalls::Missing,
            "Landlock ABI 6 guards files, signals; no capabilities; this kernel has no seccomp filters",
        );
        check(
            |layers| layers.capabilities.held = 1,
            "Landlock ABI 6 guards files, signals; system calls are filtered (x86_64); \
             capabilities 0x1 are left",
        );
    }
}
