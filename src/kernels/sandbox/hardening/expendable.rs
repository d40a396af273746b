//! Makes the system end the sandbox first when memory runs out, and not other programs of the machine.

use std::io;

/// The file with a process's score.
const SCORE: &str = "/proc/self/oom_score_adj";

/// High enough to be chosen before other programs; below 1000, which would make the system end it for any
/// shortage, however small its share.
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
