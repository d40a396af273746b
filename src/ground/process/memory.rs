//! The memory that processes use, and their parents.

use std::collections::BTreeMap;

/// The memory of a process and of all that descend from it, in bytes: what is theirs alone, and their parts of what is
/// shared. `None` where the system does not say: everywhere but on Linux.
pub(crate) fn memory_of_family(process: u32) -> Option<u64> {
    let memory = own_memory(process)?;
    // Some may have ended meanwhile.
    Some(memory + family(process).into_iter().skip(1).filter_map(own_memory).sum::<u64>())
}

/// A process, and all that descend from it. Only the process where the system does not say: everywhere but on Linux.
pub(crate) fn family(process: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut family = vec![process];
    let mut position = 0;
    while let Some(member) = family.get(position) {
        family.extend(children.remove(member).unwrap_or_default());
        position += 1;
    }
    family
}

/// Whether a process descends from another one, or is it. `false` where the system does not say: outside of Linux.
pub(crate) fn descends_from(process: u32, ancestor: u32) -> bool {
    let mut next = Some(process);
    while let Some(process) = next.filter(|process| *process != ancestor) {
        next = parent_of(process);
    }
    next.is_some()
}

/// The memory of this machine, in bytes.
pub(crate) fn memory_of_machine() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// The most that forks can take, in bytes: all that is in no file. Quick, where [`memory_of_forks`] looks at each page.
pub(crate) fn most_memory_of_forks(forks: &[u32]) -> u64 {
    forks.iter().map(|fork| unshared(*fork)).sum()
}

/// The memory that sleeping forks take beside the process that they were forked from, in bytes: what they alone hold, with what
/// that process had to copy since. `None` if the system does not say.
pub(crate) fn memory_of_forks(forks: &[u32], origin: Option<u32>) -> Option<u64> {
    let mut all = 0;
    for fork in forks {
        all += anonymous(*fork)?.share;
    }
    // Of a page that it shares, the forks carry only their parts.
    let ours = origin.and_then(anonymous).unwrap_or_default();
    Some((all + ours.share).saturating_sub(ours.whole))
}

/// The anonymous memory of a process, in bytes.
#[derive(Default)]
struct Anonymous {
    whole: u64,
    /// With its part of what it shares with others.
    share: u64,
}

/// Nothing for a process that has ended.
fn anonymous(process: u32) -> Option<Anonymous> {
    match std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")) {
        Ok(text) => Some(Anonymous {
            whole: kilobytes(&text, "Anonymous:")? + kilobytes(&text, "Swap:").unwrap_or(0),
            share: kilobytes(&text, "Pss_Anon:")? + kilobytes(&text, "SwapPss:").unwrap_or(0),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(Anonymous::default()),
    }
}

/// The anonymous memory of a process and what is swapped out of it, in bytes; 0 if it has ended.
fn unshared(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    ["RssAnon:", "VmSwap:"].into_iter().filter_map(|name| kilobytes(&text, name)).sum()
}

fn own_memory(process: u32) -> Option<u64> {
    kilobytes(&std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?, "Pss:")
}

/// The parent of a process: we are that of those that we have adopted.
fn parent_of(process: u32) -> Option<u32> {
    #[cfg(target_os = "linux")]
    if super::adopted::is_adopted(process) {
        return Some(std::process::id());
    }
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A value in kilobytes, as bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn descent_is_known() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(descends_from(child.id(), own) && descends_from(own, own));
        assert!(!descends_from(own, child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A process that waits, and takes no more memory meanwhile.
    fn waiting() -> std::process::Child {
        let mut cat = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("`cat` starts");
        cat.stdin.as_mut().expect("it is piped").write_all(b"1").expect("it reads");
        cat.stdout.as_mut().expect("it is piped").read_exact(&mut [0]).expect("it answers");
        cat
    }

    #[test]
    fn the_most_that_forks_take_is_all_that_is_in_no_file() {
        let mut cats = [waiting(), waiting()];
        let forks = [cats[0].id(), cats[1].id()];
        let all = most_memory_of_forks(&forks);
        let one = most_memory_of_forks(&forks[..1]);
        assert!(0 < one && one < all && memory_of_forks(&forks, None).unwrap() <= all, "{one} {all}");
        for cat in &mut cats {
            cat.kill().unwrap();
            cat.wait().unwrap();
        }
        assert_eq!(most_memory_of_forks(&forks), 0, "they have ended");
    }

    #[test]
    fn children_count() {
        let own = own_memory(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let child_memory = own_memory(child.id()).unwrap();
        let family = memory_of_family(std::process::id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(child_memory > 0 && own > 0 && family > child_memory, "{own} {child_memory} {family}");
        assert!(memory_of_machine().unwrap() > family);
    }
}
