//! Kernels that are lost: the words about them, and the pause before the next start.

use std::time::Duration;

use super::end::CellEnding;
use crate::kernels::kernel::KernelDeath;

/// The pause before the next start after `count` failed ones: none at first, since the cause may have been
/// fixed, then 1, 2, 4, 8 seconds.
pub(super) fn pause_after(count: u32) -> Duration {
    match count {
        0 | 1 => Duration::ZERO,
        _ => Duration::from_secs(1 << (count - 2).min(3)),
    }
}

/// The end of a kernel, in words for a note.
pub(super) fn ended_with(death: &KernelDeath) -> String {
    let KernelDeath { manner, stderr, .. } = death;
    let causes = death.causes();
    let causes = causes.trim_end_matches('.').trim_start();
    let causes = if causes.is_empty() { String::new() } else { format!(": {causes}") };
    if stderr.is_empty() {
        format!("it had ended ({manner}{causes})")
    } else {
        format!("it had ended ({manner}{causes}):\n{stderr}\n")
    }
}

/// The note for the next cell about variables that are gone with the kernel; `None` if its author has reset it.
pub(super) fn lost_by(end: &CellEnding) -> Option<String> {
    Some(match end {
        CellEnding::Reset => return None,
        CellEnding::Died(death) => {
            lost_note(&format!("it died while running an earlier cell ({})", death.manner))
        }
        CellEnding::Unreachable(_) => lost_note("the connection to it failed during an earlier cell"),
        _ => lost_note("an earlier cell did not react to its interruption"),
    })
}

/// The note about variables that are gone, for this reason.
pub(super) fn lost_note(why: &str) -> String {
    format!("The kernel was started anew, since {why}. All variables and imports of earlier cells are gone.")
}
