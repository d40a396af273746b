//! The hierarchies of control groups that this process is in, and the places in them where it may make groups.

use std::io;
use std::path::{Path, PathBuf};

use super::super::memory::descends_from;

/// The two interfaces of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupVersion {
    One,
    Two,
}

/// A controller that holds one of our limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitController {
    Memory,
    Processes,
    Cpu,
}

impl LimitController {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::Processes, Self::Cpu];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
        }
    }

    fn named(names: &str) -> Vec<Self> {
        let has = |controller: &Self| names.split([',', ' ']).any(|name| name == controller.name());
        Self::ALL.into_iter().filter(has).collect()
    }
}

/// A hierarchy, and our place in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitHierarchy {
    pub(super) version: GroupVersion,
    /// The directory of the group that this process is in.
    pub(super) own: PathBuf,
    /// The directory that the hierarchy is mounted on.
    root: PathBuf,
    pub(super) controllers: Vec<LimitController>,
}

/// The hierarchies that have controllers of ours. None where the system has no control groups.
pub(super) fn hierarchies() -> Vec<LimitHierarchy> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut found = parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
    for hierarchy in found.iter_mut().filter(|hierarchy| hierarchy.version == GroupVersion::Two) {
        let names = std::fs::read_to_string(hierarchy.own.join("cgroup.controllers")).unwrap_or_default();
        hierarchy.controllers = LimitController::named(names.trim());
    }
    found.retain(|hierarchy| !hierarchy.controllers.is_empty());
    found
}

fn parse(mounts: &str, groups: &str) -> Vec<LimitHierarchy> {
    let mut found: Vec<LimitHierarchy> = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut after = after.split(' ');
        let version = match after.next() {
            Some("cgroup") => GroupVersion::One,
            Some("cgroup2") => GroupVersion::Two,
            _ => continue,
        };
        let controllers = LimitController::named(after.nth(1).unwrap_or_default());
        let mut fields = before.split(' ').skip(3);
        let (Some(top), Some(root)) = (fields.next(), fields.next()) else { continue };
        // One mount of each is enough.
        let is_known = found.iter().any(|known| known.version == version && known.controllers == controllers);
        if is_known || version == GroupVersion::One && controllers.is_empty() {
            continue;
        }
        let Some(path) = group_of(groups, version, &controllers) else { continue };
        // A mount of another part of the hierarchy does not show our group.
        let Ok(inside) = Path::new(path).strip_prefix(top) else { continue };
        let root = PathBuf::from(root);
        // Without a slash at its end.
        let own = root.join(inside).components().collect();
        found.push(LimitHierarchy { version, own, root, controllers });
    }
    found
}

/// The path of our group in the hierarchy with these controllers.
fn group_of<'a>(groups: &'a str, version: GroupVersion, controllers: &[LimitController]) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        let is_it = match version {
            GroupVersion::One => !names.is_empty() && LimitController::named(names) == controllers,
            GroupVersion::Two => number == "0" && names.is_empty(),
        };
        // Outside of what this process may see, a path begins with `/..`.
        (is_it && !path.split('/').any(|part| part == "..")).then_some(path)
    })
}

impl LimitHierarchy {
    /// The directory in which groups are made, with the controllers that hold there. `leaf` is the name of a group for the
    /// processes of ours that must make room.
    ///
    /// # Errors
    /// There is none, for a reason in words.
    pub(super) fn base(&self, leaf: &str) -> Result<PathBuf, String> {
        if self.version == GroupVersion::One {
            return Ok(self.own.clone());
        }
        // It has given its place up before.
        let is_leaf = self.own.file_name().is_some_and(|name| name == leaf);
        let below = if is_leaf { Err("no group is given".to_owned()) } else { self.delegated(leaf) };
        let Err(why) = below else { return below };
        let beside = self.own.parent().filter(|parent| parent.starts_with(&self.root));
        match beside {
            Some(parent) if gives_controllers(parent) => Ok(parent.to_owned()),
            _ => Err(why),
        }
    }

    /// Our own group, if it is ours to divide.
    fn delegated(&self, leaf: &str) -> Result<PathBuf, String> {
        let own = &self.own;
        let failed = |error: io::Error| format!("`{}` cannot be divided ({})", own.display(), error.kind());
        if gives_controllers(own) {
            return Ok(own.clone());
        }
        let is_top = !own.join("cgroup.type").exists();
        if !is_top {
            let members = members(own).map_err(failed)?;
            let ours = std::process::id();
            // A container's top group has its processes alone.
            if own != &self.root && members.iter().any(|process| !descends_from(*process, ours)) {
                return Err(format!("`{}` has other processes, too", own.display()));
            }
            let leaf = own.join(leaf);
            make_directory(&leaf).map_err(failed)?;
            for process in members {
                // It may have ended.
                std::fs::write(leaf.join("cgroup.procs"), process.to_string()).ok();
            }
        }
        let enabled = LimitController::ALL.into_iter().filter(|controller| {
            std::fs::write(own.join("cgroup.subtree_control"), format!("+{}", controller.name())).is_ok()
        });
        match enabled.count() {
            0 => Err(format!("`{}` gives no controllers to groups below it", own.display())),
            _ => Ok(own.clone()),
        }
    }
}

/// Makes a directory, or finds it.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The processes of a group.
pub(super) fn members(group: &Path) -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string(group.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn gives_controllers(group: &Path) -> bool {
    let text = std::fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    LimitController::named(text.trim()).contains(&LimitController::Memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "30 20 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                       31 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                       32 20 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";

    fn own(hierarchies: &[LimitHierarchy]) -> Vec<(&str, Vec<LimitController>)> {
        hierarchies.iter().map(|one| (one.own.to_str().unwrap(), one.controllers.clone())).collect()
    }

    #[test]
    fn each_controller_of_version_one_has_a_place() {
        let found = parse(ONE, "4:memory:/a/b\n2:cpu,cpuacct:/\n1:name=systemd:/c\n");
        let expected = [
            ("/sys/fs/cgroup/memory/a/b", vec![LimitController::Memory]),
            ("/sys/fs/cgroup/cpu,cpuacct", vec![LimitController::Cpu]),
        ];
        assert_eq!(own(&found), expected);
    }

    #[test]
    fn a_container_sees_its_own_part_of_the_hierarchy() {
        let mount = "30 20 0:26 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup ro,memory\n";
        let found = parse(mount, "4:memory:/docker/1/x\n");
        assert_eq!(own(&found), [("/sys/fs/cgroup/memory/x", vec![LimitController::Memory])]);
        assert_eq!(parse(mount, "4:memory:/docker/2\n"), []);
    }

    #[test]
    fn version_two_has_one_place() {
        let mount = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            own(&parse(mount, "0::/user.slice/a.scope\n")),
            [("/sys/fs/cgroup/user.slice/a.scope", vec![])]
        );
        assert_eq!(parse(mount, "0::/../elsewhere\n"), []);
        assert_eq!(parse(mount, ""), []);
    }
}
