//! The restrictions of the system's kernel and of our container: read from `/proc` and from the marks of
//! containers.

use std::path::Path;

use super::finding::{CheckFinding, CheckRemedy};

/// The number of the capability that mapping uid 0 into a user namespace takes since Linux 5.12.
const CAP_SETFCAP: u32 = 31;

/// Names in the control groups of processes in containers, and the kind of container.
const CGROUPS: &[(&str, &str)] = &[
    ("kubepods", "Kubernetes"),
    ("docker", "Docker"),
    ("libpod", "Podman"),
    ("containerd", "containerd"),
    ("lxc", "LXC"),
];

/// Settings of the kernel that decide who may make user namespaces; `None` where the kernel has no such setting.
#[derive(Debug, Default)]
pub(super) struct MachineSettings {
    pub(super) is_root: bool,
    /// The container that we run in.
    pub(super) container: Option<&'static str>,
    /// Ubuntu's, since 23.10: 1 leaves those to root and to programs with an AppArmor profile for it.
    pub(super) apparmor_restricts: Option<u64>,
    /// Debian's: 0 leaves them to root.
    pub(super) unprivileged_clone: Option<u64>,
    /// The most namespaces there may be.
    pub(super) most_namespaces: Option<u64>,
    /// Whether a program that we start as root may map uid 0.
    pub(super) has_setfcap: bool,
    /// Whether our system calls are filtered already.
    pub(super) is_filtered: bool,
}

impl MachineSettings {
    /// Reads what is below `root`, which is `/`.
    pub(super) fn read(root: &Path, is_root: bool, is_pod: bool) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let number = |path: &str| text(&format!("proc/sys/{path}")).trim().parse().ok();
        let status = text("proc/self/status");
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let bounding =
            field("CapBnd:").and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default();
        Self {
            is_root,
            container: container(root, is_pod),
            apparmor_restricts: number("kernel/apparmor_restrict_unprivileged_userns"),
            unprivileged_clone: number("kernel/unprivileged_userns_clone"),
            most_namespaces: number("user/max_user_namespaces"),
            has_setfcap: bounding >> CAP_SETFCAP & 1 == 1,
            is_filtered: field("Seccomp:").is_some_and(|mode| mode == "2"),
        }
    }
}

fn container(root: &Path, is_pod: bool) -> Option<&'static str> {
    let has = |path: &str| root.join(path).exists();
    let cgroup = || {
        let groups = ["proc/1/cgroup", "proc/self/cgroup"]
            .map(|path| std::fs::read_to_string(root.join(path)).unwrap_or_default())
            .concat();
        CGROUPS.iter().find(|(mark, _)| groups.contains(mark)).map(|(_, name)| *name)
    };
    if is_pod {
        Some("Kubernetes")
    } else if has(".dockerenv") {
        Some("Docker")
    } else if has("run/.containerenv") {
        Some("Podman")
    } else {
        cgroup()
    }
}

/// The finding about the hardening that this system supports: `support` has its description and whether it is
/// complete.
pub(super) fn hardening(support: Result<(String, bool), String>, is_root: bool) -> CheckFinding {
    let (found, is_complete) = match support {
        Ok(support) => support,
        Err(error) => {
            let report =
                CheckRemedy::Advice("report it as a bug, with the kernel's version (`uname -a`)".to_owned());
            return CheckFinding::failed("hardening", error, "no sandbox starts", report);
        }
    };
    match (is_complete, is_root) {
        (true, _) => CheckFinding::ok("hardening", found),
        (false, false) => CheckFinding::warning(
            "hardening",
            found,
            "the sandbox holds by namespaces and mounts, with less behind them",
            CheckRemedy::Advice("use a newer kernel".to_owned()),
        ),
        (false, true) => CheckFinding::failed(
            "hardening",
            found,
            "as root the sandbox needs it complete and does not start: `/proc/sys` would be writable inside",
            CheckRemedy::Advice("run ipybox as an ordinary user, or use a newer kernel".to_owned()),
        ),
    }
}

/// The finding about running as root.
pub(super) fn user(is_root: bool) -> CheckFinding {
    if is_root {
        CheckFinding::warning(
            "user",
            "root",
            "limits on the number of processes (RLIMIT_NPROC) do not bind root: code inside can start as many as the \
             machine has room for",
            CheckRemedy::Advice("run ipybox as an ordinary user".to_owned()),
        )
    } else {
        CheckFinding::ok("user", "an ordinary user, whom limits on the number of processes bind")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A root directory with these files.
    pub(in super::super) fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn check_container(files: &[(&str, &str)], expected: Option<&str>) {
        assert_eq!(MachineSettings::read(root(files).path(), false, false).container, expected, "{files:?}");
    }

    #[test]
    fn containers_are_known_by_their_marks() {
        check_container(&[], None);
        check_container(&[(".dockerenv", "")], Some("Docker"));
        check_container(&[("run/.containerenv", "engine=\"podman\"")], Some("Podman"));
        check_container(&[("proc/self/cgroup", "0::/kubepods.slice/x")], Some("Kubernetes"));
        check_container(&[("proc/1/cgroup", "0::/user.slice")], None);
        assert_eq!(MachineSettings::read(root(&[]).path(), false, true).container, Some("Kubernetes"));
    }

    #[test]
    fn what_the_kernel_allows_is_read() {
        let root = root(&[
            ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"),
            ("proc/sys/user/max_user_namespaces", "0\n"),
            ("proc/self/status", "CapBnd:\t00000000a80425fb\nSeccomp:\t2\n"),
        ]);
        let machine = MachineSettings::read(root.path(), true, false);
        assert_eq!((machine.apparmor_restricts, machine.most_namespaces), (Some(1), Some(0)));
        assert_eq!((machine.unprivileged_clone, machine.has_setfcap), (None, true));
        assert!(machine.is_filtered && machine.is_root);
        assert!(!MachineSettings::read(Path::new("/nonexistent"), true, false).has_setfcap);
    }

    #[test]
    fn incomplete_hardening_fails_for_root_alone() {
        let failed =
            |is_complete, is_root| hardening(Ok(("Landlock".to_owned(), is_complete)), is_root).is_failed();
        assert!(failed(false, true));
        assert!(!failed(false, false) && !failed(true, true));
        assert!(hardening(Err("broken".to_owned()), false).is_failed());
    }
}
