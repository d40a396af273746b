//! The setting of the C library by which freed memory goes back to the system.
//!
//! glibc takes large pieces of memory from the system and gives them back, until one was freed: from then on it keeps pieces
//! of that size, up to 32 MiB each. Nine kernels that display images of 25 MB leave 218 MiB with the host that way, and 68 MiB
//! with a fixed limit. The limit is read at the start of a program only, so the program starts once more (2 ms).

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The environment variable of the limit. Programs that we start do not get it.
const LIMIT: &str = "MALLOC_MMAP_THRESHOLD_";

/// From this size on pieces of memory are taken from the system each for itself, in bytes. Below it taking them costs more
/// than they are worth.
const LIMIT_BYTES: &str = "1048576";

/// Starts this program once more with the setting. It stays the same process. Returns if it has the setting, or cannot start.
pub(super) fn give_back() {
    if env::var_os(LIMIT).is_some() {
        return;
    }
    let mut words = env::args_os();
    let (Some(name), Ok(program)) = (words.next(), env::current_exe()) else { return };
    // The program goes on without the setting.
    let _error = Command::new(program).arg0(name).args(words).env(LIMIT, LIMIT_BYTES).exec();
}
