//! The process of a user: in the user's control groups, and with the user's id.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

/// The limits of all that a user runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct UserLimits {
    /// Memory, in bytes.
    pub memory: Option<u64>,
    /// Processor time, in processors.
    pub cpu: Option<f64>,
    /// Processes and threads.
    pub processes: Option<u32>,
}

/// Makes the control groups of the user with this key, or finds them; their directories. The system's user with the id may
/// divide them.
pub type MakeGroups = fn(&str, Option<u32>, &UserLimits) -> Result<Vec<PathBuf>, String>;

/// The help of the program for users on its machine.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::exhaustive_structs, reason = "the program makes it")]
pub struct UserSystem {
    /// Makes the control groups of a user.
    pub make_groups: MakeGroups,
    /// Removes those of the user with this key, unless processes are in them.
    pub remove_groups: fn(&str),
    /// Removes a directory with all that is in it, however deep, and follows no link.
    pub remove_tree: fn(&Path) -> io::Result<()>,
}

/// Becomes a program inside of control groups, and in the name of the system's user with this id. Returns if it cannot.
pub fn become_user(groups: &[PathBuf], id: Option<u32>, command: &[OsString]) -> io::Error {
    for group in groups {
        if let Err(error) = std::fs::write(group.join("cgroup.procs"), "0") {
            return error;
        }
    }
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program is given");
    };
    let mut command = std::process::Command::new(program);
    command.args(arguments);
    if let Some(id) = id {
        // Where root does this, it leaves all other groups of users too.
        command.gid(id).uid(id);
    }
    command.exec()
}
