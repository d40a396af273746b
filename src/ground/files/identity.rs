//! The identity of a file or directory, by which it is known under another name too.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The identity of a file, which no other one has, also none that gets its inode later.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    /// `None` if the file system does not know it.
    created: Option<SystemTime>,
}

impl FileIdentity {
    pub(crate) fn of(found: &Metadata) -> Self {
        // A time before 1970 is not kept in files, and is none that a file was made at.
        let created = found.created().ok().filter(|time| *time >= SystemTime::UNIX_EPOCH);
        Self { device: found.dev(), inode: found.ino(), created }
    }
}
