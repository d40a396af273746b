//! The descriptors, threads, children and mappings of a kernel that forks others, by its own count.

use std::time::Instant;

use crate::support::PATIENCE;

/// Defines `held`, which counts the kernel's descriptors, threads, children and mappings of memory. Processes of others
/// end while it looks.
pub(super) const HELD: &str = "
import os
def parent(process):
    try:
        with open(f'/proc/{process}/stat') as stat: return int(stat.read().rpartition(')')[2].split()[1])
    except OSError: return None
def held():
    children = sum(parent(name) == os.getpid() for name in os.listdir('/proc') if name.isdigit())
    with open('/proc/self/maps') as maps: mappings = len(maps.readlines())
    return len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task')), children, mappings";

/// The additional mappings that are no leak: libraries map memory as they need it. One left by each fork would be more.
const MORE_MAPPINGS: u32 = 20;

/// The numbers that `held` has returned.
pub(super) fn numbers(text: &str) -> [u32; 4] {
    let numbers: Vec<u32> =
        text.trim_matches(['(', ')']).split(", ").map(|number| number.parse().expect(text)).collect();
    numbers.try_into().expect(text)
}

/// Waits until the kernel holds no more than `before`: what has ended may still be on its way out.
pub(super) async fn no_more_than(before: [u32; 4], held: impl AsyncFn() -> String) {
    let most = [before[0], before[1], before[2], before[3] + MORE_MAPPINGS];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = numbers(&held().await);
        if now.iter().zip(most).all(|(now, most)| *now <= most) {
            return;
        }
        assert!(Instant::now() < deadline, "before: {before:?}, now: {now:?}");
    }
}
