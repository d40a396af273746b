//! Resource limits of a kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ground::process::ByteSize;

/// Limits that the operating system enforces on the kernel and on what it starts. Default: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelLimits {
    /// The memory of each process, in bytes.
    #[serde(rename = "memory_limit")]
    pub(crate) memory: Option<u64>,
    /// The number of processes and threads that may be added to those that the user runs when the kernel starts.
    #[serde(rename = "max_processes")]
    pub(crate) processes: Option<u32>,
    /// The size in bytes to which a file can grow.
    #[serde(rename = "max_file_size")]
    pub(crate) file_size: Option<u64>,
}

impl KernelLimits {
    /// These limits; unset ones are taken from `others`.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            memory: self.memory.or(others.memory),
            processes: self.processes.or(others.processes),
            file_size: self.file_size.or(others.file_size),
        }
    }
}

/// The text about a death that they may have caused; empty without limits.
impl fmt::Display for KernelLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bytes) = self.memory {
            let size = ByteSize(bytes);
            write!(f, " Its memory was limited to {size} per process (`--kernel-memory-limit`).")?;
        }
        if let Some(count) = self.processes {
            write!(f, " It could start {count} processes and threads (`--kernel-max-processes`).")?;
        }
        if let Some(bytes) = self.file_size {
            write!(f, " Its files could grow to {} (`--kernel-max-file-size`).", ByteSize(bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limits_are_not_worth_a_word() {
        assert_eq!(KernelLimits::default().to_string(), "");
    }
}
