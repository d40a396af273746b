//! Which processes the system ends first when memory runs out: the sandbox, and not what else runs on the machine.

use std::io;

/// Where a process says how expendable it is.
const SCORE: &str = "/proc/self/oom_score_adj";

/// High enough to be chosen before what else runs on the machine; below 1000, which would let the system end it for any
/// shortage however small its share.
const EXPENDABLE: &str = "800";

/// Makes this process, and all that it starts from now on, be ended first when memory runs out.
///
/// Afterwards nobody inside can change that: a hardened process cannot write below `/proc`.
///
/// # Errors
///
/// Fails if `/proc` is not mounted or not ours to write.
pub(crate) fn make_expendable() -> io::Result<()> {
    std::fs::write(SCORE, EXPENDABLE)
}
