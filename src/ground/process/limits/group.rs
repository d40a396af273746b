//! A control group for the processes of a session: made, joined, read and removed.
//!
//! Its name says which process has made it, so that groups of processes that were killed are found and removed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::super::guardian::guard_control_group;
use super::SessionLimits;
use super::hierarchy::{GroupVersion, LimitController, LimitHierarchy, hierarchies, make_directory, members};

/// Moves the process into each of the directories before `--`, and becomes the program after it.
const ENTER: &str =
    "while [ \"$1\" != -- ]; do echo 0 > \"$1/cgroup.procs\" || exit 126; shift; done; shift; exec \"$@\"";
/// The length of the intervals in which processor time is shared out, in microseconds.
const CPU_PERIOD: u32 = 100_000;
/// The shortest share that the system takes, in microseconds.
const CPU_QUOTA_MIN: u32 = 1_000;
/// The number of times that processes are killed until their group is empty, and the pause between.
const ROUNDS: u32 = 250;
const PAUSE: Duration = Duration::from_millis(20);
/// The same where nobody else can run meanwhile.
const SHORT_ROUNDS: u32 = 20;
const SHORT_PAUSE: Duration = Duration::from_millis(2);

/// The number of the group into which the processes of a delegated group move, since one with processes of its own limits no
/// others.
const OWN_GROUP: u32 = 0;
const OWN_GROUP_ENDING: &str = "-0";

/// The number of the next group that this process makes.
static NEXT: AtomicU32 = AtomicU32::new(OWN_GROUP + 1);

/// A control group. Dropping it kills all that is in it.
#[derive(Debug, Default)]
pub(super) struct ControlGroup {
    directories: GroupDirectories,
    memory: Option<(GroupVersion, PathBuf)>,
    processes: Option<PathBuf>,
    has_cpu: bool,
    /// The limits as they hold, which are those of a narrower group around it if there is one.
    pub(super) limits: SessionLimits,
    /// Why limits are not held, in words.
    pub(super) troubles: Vec<String>,
}

/// The directories of a group, one in each hierarchy that holds a part of its limits. Removed when they are dropped.
#[derive(Debug, Default)]
struct GroupDirectories(BTreeSet<PathBuf>);

impl ControlGroup {
    /// Makes a group with as many of these limits as can be held, after it has removed what killed processes have left.
    pub(super) fn make(limits: SessionLimits) -> Self {
        let mut group = Self { limits, ..Self::default() };
        let found = hierarchies();
        if found.is_empty() {
            group.troubles.push("this system shows no control groups with memory, pids or cpu".to_owned());
        }
        for hierarchy in &found {
            if let Err(why) = group.add(hierarchy) {
                group.troubles.push(why);
            }
        }
        if group.directories.0.is_empty() {
            return group;
        }
        match group.try_to_enter() {
            Ok(()) => group,
            Err(error) => {
                group.troubles.push(format!("the control group cannot be entered ({error})"));
                Self { limits, troubles: group.troubles, ..Self::default() }
            }
        }
    }

    /// Makes a group that outlives this process, or finds it, and sets its limits; its directories. The user with this id may
    /// make groups in it.
    pub(super) fn keep(
        name: &str,
        limits: SessionLimits,
        owner: Option<u32>,
    ) -> Result<Vec<PathBuf>, String> {
        let mut group = Self { limits, ..Self::default() };
        let mut directories = Vec::new();
        for hierarchy in &hierarchies() {
            let directory = hierarchy.base(&self::name(OWN_GROUP)?)?.join(name);
            let failed = |error: io::Error| format!("`{}`: {error}", directory.display());
            make_directory(&directory).map_err(failed)?;
            for controller in &hierarchy.controllers {
                lift(*controller, hierarchy.version, &directory).map_err(failed)?;
                group.set(*controller, hierarchy.version, &directory).map_err(failed)?;
            }
            let files = ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks"];
            for file in files.map(|file| directory.join(file)).iter().filter(|file| file.exists()) {
                std::os::unix::fs::chown(file, owner, owner).map_err(failed)?;
            }
            directories.push(directory);
        }
        let wanted = [
            (LimitController::Memory, limits.memory.is_some()),
            (LimitController::Processes, limits.processes.is_some()),
            (LimitController::Cpu, limits.cpu.is_some()),
        ];
        match wanted.iter().find(|(controller, is_wanted)| *is_wanted && !group.holds(*controller)) {
            Some((controller, _)) => Err(format!("no control group has `{}`", controller.name())),
            None => Ok(directories),
        }
    }

    /// Removes what [`keep`](Self::keep) has made under this name, and what killed processes have left in it, unless processes
    /// are in it.
    pub(super) fn release(name: &str) {
        let bases = hierarchies()
            .into_iter()
            .filter_map(|hierarchy| hierarchy.base(&self::name(OWN_GROUP).ok()?).ok());
        for directory in bases.map(|base| base.join(name)) {
            sweep(&directory);
            remove(&BTreeSet::from([directory]));
        }
    }

    fn add(&mut self, hierarchy: &LimitHierarchy) -> Result<(), String> {
        let base = hierarchy.base(&name(OWN_GROUP)?)?;
        sweep(&base);
        let directory = base.join(name(NEXT.fetch_add(1, Ordering::Relaxed))?);
        make_directory(&directory)
            .map_err(|error| format!("`{}` takes no groups ({})", base.display(), error.kind()))?;
        guard_control_group(&directory);
        self.directories.0.insert(directory.clone());
        if hierarchy.version == GroupVersion::Two {
            // Beside our own group its limits would not hold; below it they would be what a session runs out of.
            self.limits = self.limits.within(&limits_of(&hierarchy.own));
        }
        let mut failed = Vec::new();
        for controller in &hierarchy.controllers {
            if let Err(error) = self.set(*controller, hierarchy.version, &directory) {
                failed.push(format!("`{}` of `{}`: {error}", controller.name(), directory.display()));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }

    /// Sets the limit that belongs to a controller.
    fn set(
        &mut self,
        controller: LimitController,
        version: GroupVersion,
        directory: &Path,
    ) -> io::Result<()> {
        let write = |file: &str, value: String| std::fs::write(directory.join(file), value);
        match controller {
            LimitController::Memory => {
                let (limit, swap) = match version {
                    GroupVersion::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
                    GroupVersion::Two => ("memory.max", "memory.swap.max"),
                };
                let Some(bytes) = self.limits.memory else { return Ok(()) };
                write(limit, bytes.to_string())?;
                if directory.join(swap).exists() {
                    let bytes = if version == GroupVersion::One { bytes } else { 0 };
                    write(swap, bytes.to_string())?;
                }
                self.memory = Some((version, directory.to_owned()));
            }
            LimitController::Processes => {
                let Some(count) = self.limits.processes else { return Ok(()) };
                write("pids.max", count.to_string())?;
                self.processes = Some(directory.to_owned());
            }
            LimitController::Cpu => {
                // Without a limit, too, it gets no more than another session when both want all.
                let Some(cpus) = self.limits.cpu else { return Ok(()) };
                let quota = quota_of(cpus);
                match version {
                    GroupVersion::One => {
                        write("cpu.cfs_period_us", CPU_PERIOD.to_string())?;
                        write("cpu.cfs_quota_us", quota.to_string())?;
                    }
                    GroupVersion::Two => write("cpu.max", format!("{quota} {CPU_PERIOD}"))?,
                }
                self.has_cpu = true;
            }
        }
        Ok(())
    }

    pub(super) fn holds(&self, controller: LimitController) -> bool {
        match controller {
            LimitController::Memory => self.memory.is_some(),
            LimitController::Processes => self.processes.is_some(),
            LimitController::Cpu => self.has_cpu,
        }
    }

    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.directories.0.iter().cloned().collect()
    }

    /// The beginning of a command line whose process is in the group before it becomes the program after it.
    pub(super) fn entrance(&self) -> Vec<OsString> {
        if self.directories.0.is_empty() {
            return Vec::new();
        }
        let directories = self.directories.0.iter().map(|directory| directory.as_os_str().to_owned());
        let begin = ["/bin/sh", "-c", ENTER, "ipybox-limits"].map(OsString::from);
        begin.into_iter().chain(directories).chain([OsString::from("--")]).collect()
    }

    fn try_to_enter(&self) -> io::Result<()> {
        let mut words = self.entrance().into_iter();
        let mut command = std::process::Command::new(words.next().unwrap_or_default());
        command.args(words).args(["/bin/sh", "-c", ":"]).env_clear().current_dir("/");
        let output = command.stdin(Stdio::null()).output()?;
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(io::Error::other(words)) }
    }

    /// The number of its processes that the system has killed for want of memory.
    pub(super) fn killed(&self) -> u64 {
        self.memory.as_ref().map_or(0, |(version, directory)| {
            let file = match version {
                GroupVersion::One => "memory.oom_control",
                GroupVersion::Two => "memory.events",
            };
            value(&directory.join(file), "oom_kill")
        })
    }

    /// The number of times that a process or thread could not be started.
    pub(super) fn refused(&self) -> u64 {
        self.processes.as_ref().map_or(0, |directory| value(&directory.join("pids.events"), "max"))
    }

    /// The memory of its processes in bytes, without what the system can take back at once.
    pub(super) fn memory_used(&self) -> Option<u64> {
        let (version, directory) = self.memory.as_ref()?;
        let (file, name) = match version {
            GroupVersion::One => ("memory.usage_in_bytes", "total_inactive_file"),
            GroupVersion::Two => ("memory.current", "inactive_file"),
        };
        let used = number(&directory.join(file))?;
        Some(used.saturating_sub(value(&directory.join("memory.stat"), name)))
    }

    /// The number of its processes and threads.
    pub(super) fn processes_used(&self) -> Option<u64> {
        number(&self.processes.as_ref()?.join("pids.current"))
    }

    /// Kills all that is in it; more can be started in it afterwards.
    pub(super) async fn clear(&self) {
        for _ in 0..ROUNDS {
            // One that has ended counts until its parent has noticed.
            if kill_members(&self.directories.0) && self.processes_used().unwrap_or(0) == 0 {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let most = self.limits.processes.map_or_else(|| "max".to_owned(), |count| count.to_string());
        for file in counting(&self.directories.0) {
            if let Err(error) = std::fs::write(file, &most) {
                tracing::warn!(%error, "the limit of processes could not be set again");
            }
        }
    }

    /// Kills all that is in it, and removes it.
    pub(super) async fn end(&self) {
        for _ in 0..ROUNDS {
            kill_members(&self.directories.0);
            if remove(&self.directories.0) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        tracing::warn!(directories = ?self.directories.0, "a control group could not be removed");
    }
}

impl Drop for GroupDirectories {
    fn drop(&mut self) {
        end_quickly(&self.0);
    }
}

/// The limits of a group of version two.
fn limits_of(group: &Path) -> SessionLimits {
    let read = |file: &str| std::fs::read_to_string(group.join(file)).unwrap_or_default();
    let cpu = read("cpu.max");
    let cpu = cpu
        .trim()
        .split_once(' ')
        .and_then(|(quota, period)| Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?));
    SessionLimits {
        memory: read("memory.max").trim().parse().ok(),
        cpu,
        processes: read("pids.max").trim().parse().ok(),
        disk: None,
    }
}

/// Takes the limit of a controller away: the group may be there since a time with other limits.
fn lift(controller: LimitController, version: GroupVersion, directory: &Path) -> io::Result<()> {
    let files: &[(&str, &str)] = match (controller, version) {
        // With swap first, which is never less than the memory in it.
        (LimitController::Memory, GroupVersion::One) => {
            &[("memory.memsw.limit_in_bytes", "-1"), ("memory.limit_in_bytes", "-1")]
        }
        (LimitController::Memory, GroupVersion::Two) => &[("memory.max", "max"), ("memory.swap.max", "max")],
        (LimitController::Processes, _) => &[("pids.max", "max")],
        (LimitController::Cpu, GroupVersion::One) => &[("cpu.cfs_quota_us", "-1")],
        (LimitController::Cpu, GroupVersion::Two) => &[("cpu.max", "max")],
    };
    let mut files = files.iter().map(|(file, value)| (directory.join(file), value));
    files.try_for_each(|(file, value)| if file.exists() { std::fs::write(file, value) } else { Ok(()) })
}

/// The processor time of an interval, in microseconds.
fn quota_of(cpus: f64) -> u32 {
    // A number beyond the largest becomes the largest.
    ((cpus * f64::from(CPU_PERIOD)) as u32).max(CPU_QUOTA_MIN)
}

/// The name of our group with this number: the namespace of processes, the process and its start.
fn name(number: u32) -> Result<String, String> {
    let own = std::process::id();
    let namespace = namespace().ok_or("`/proc/self/ns/pid` cannot be read")?;
    let started = started(own).ok_or("`/proc/self/stat` cannot be read")?;
    Ok(format!("ipybox-{namespace}-{own}-{started}-{number}"))
}

fn namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The start of a process, in clock ticks since the system's.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Whether a group is of a process that has ended. One of another namespace of processes is not known to be.
fn is_abandoned(name: &str) -> bool {
    let numbers: Option<Vec<u64>> = name
        .strip_prefix("ipybox-")
        .and_then(|numbers| numbers.split('-').map(|number| number.parse().ok()).collect());
    let Some(&[space, process, start, _]) = numbers.as_deref() else { return false };
    let Ok(process) = u32::try_from(process) else { return false };
    namespace() == Some(space) && started(process) != Some(start)
}

/// Removes the groups of processes that have ended, with all that is in them.
fn sweep(base: &Path) {
    let names = std::fs::read_dir(base).into_iter().flatten().flatten();
    let abandoned = names.filter(|entry| entry.file_name().to_str().is_some_and(is_abandoned));
    for directory in abandoned.map(|entry| entry.path()) {
        let directories = BTreeSet::from([directory]);
        // The group that others were moved into is theirs.
        if directories.iter().any(|directory| directory.to_string_lossy().ends_with(OWN_GROUP_ENDING)) {
            remove(&directories);
            continue;
        }
        tracing::info!(?directories, "removing the control group of a process that was killed");
        end_quickly(&directories);
    }
}

fn end_quickly(directories: &BTreeSet<PathBuf>) {
    for _ in 0..SHORT_ROUNDS {
        if remove(directories) {
            return;
        }
        kill_members(directories);
        std::thread::sleep(SHORT_PAUSE);
    }
}

/// Kills the processes of a group, which can start no more. Returns whether there were none.
fn kill_members(directories: &BTreeSet<PathBuf>) -> bool {
    for file in counting(directories) {
        if let Err(error) = std::fs::write(file, "0") {
            tracing::debug!(%error, "processes may be started while others are killed");
        }
    }
    let processes = members_of(directories);
    for process in processes.iter().filter_map(|process| Pid::from_raw(i32::try_from(*process).ok()?)) {
        // It may have ended.
        kill_process(process, Signal::KILL).ok();
    }
    processes.is_empty()
}

/// The files with the number of processes that may be started.
fn counting(directories: &BTreeSet<PathBuf>) -> impl Iterator<Item = PathBuf> {
    directories.iter().map(|directory| directory.join("pids.max")).filter(|file| file.exists())
}

/// The processes of a group, in any of its directories.
pub(super) fn members_of<'a>(directories: impl IntoIterator<Item = &'a PathBuf>) -> Vec<u32> {
    let members: BTreeSet<u32> =
        directories.into_iter().filter_map(|directory| members(directory).ok()).flatten().collect();
    members.into_iter().collect()
}

/// Removes a group that is empty. Returns whether it is gone.
fn remove(directories: &BTreeSet<PathBuf>) -> bool {
    let mut gone = true;
    for directory in directories {
        let removed = std::fs::remove_dir(directory);
        gone &= removed.is_ok() || removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    }
    gone
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The value after a name at the beginning of a line; 0 if there is none.
fn value(path: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_a_living_process_is_not_abandoned() {
        let own = name(7).unwrap();
        assert!(!is_abandoned(&own));
        let (rest, number) = own.rsplit_once('-').unwrap();
        let (rest, started) = rest.rsplit_once('-').unwrap();
        // Another process has had the id before.
        assert!(is_abandoned(&format!("{rest}-{}-{number}", started.parse::<u64>().unwrap() - 1)));
        for other in ["ipybox-1-1-1-1", "ipybox-1", "init.scope", "ipybox-a-b-c-d"] {
            assert!(!is_abandoned(other), "{other}");
        }
    }

    #[test]
    fn a_program_is_entered_with_its_arguments() {
        let directory = tempfile::tempdir().unwrap();
        let directories = GroupDirectories(BTreeSet::from([directory.path().to_owned()]));
        let group = ControlGroup { directories, ..ControlGroup::default() };
        let mut words = group.entrance();
        words.extend(["printf", "%s", "a  b"].map(OsString::from));
        let output = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a  b");
        assert_eq!(std::fs::read_to_string(directory.path().join("cgroup.procs")).unwrap(), "0\n");
        std::fs::remove_file(directory.path().join("cgroup.procs")).unwrap();
        drop(group);
        assert!(!directory.path().exists());
    }

    #[test]
    fn nothing_runs_outside_of_its_group() {
        let directories = GroupDirectories(BTreeSet::from(["/missing".into()]));
        let group = ControlGroup { directories, ..ControlGroup::default() };
        let mut words = group.entrance();
        words.extend(["echo", "ran"].map(OsString::from));
        let output = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
    }

    #[test]
    fn parts_of_processors_are_microseconds() {
        assert_eq!([quota_of(2.0), quota_of(0.5), quota_of(0.000_1)], [200_000, 50_000, CPU_QUOTA_MIN]);
    }
}
