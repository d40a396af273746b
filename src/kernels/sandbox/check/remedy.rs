//! The commands that install what is missing, by the package manager of this machine.

use super::finding::CheckRemedy;
use crate::ground::env::on_path;

/// The advice for a missing or old Node.js if packages are often too old.
pub(crate) const NODE: &str = "install Node.js 20.11 or newer (https://nodejs.org/)";

/// Package managers by their programs, and how they install, in the order in which they are looked for.
const MANAGERS: &[(&str, &str)] = &[
    ("apt-get", "apt install"),
    ("dnf", "dnf install"),
    ("pacman", "pacman -S"),
    ("zypper", "zypper install"),
    ("apk", "apk add"),
    ("brew", "brew install"),
];

/// Installs packages here.
#[derive(Debug)]
pub(super) struct PackageManager {
    manager: Option<(&'static str, &'static str)>,
    is_root: bool,
}

impl PackageManager {
    /// Finds the package manager on `path`.
    pub(super) fn of(path: &str, is_root: bool) -> Self {
        let manager = MANAGERS.iter().find(|(program, _)| on_path(program, path).is_some());
        Self { manager: manager.copied(), is_root }
    }

    /// The way to install `program`.
    pub(super) fn remedy(&self, program: &str) -> CheckRemedy {
        let Some((manager, install)) = self.manager else {
            return CheckRemedy::Advice(match program {
                "node" => NODE.to_owned(),
                _ => format!("install the package `{}` with your package manager", package(program, "")),
            });
        };
        match (program, manager) {
            // The packages of Debian 12 and Ubuntu 24.04 are older.
            ("node", "apt-get" | "zypper") => CheckRemedy::Advice(NODE.to_owned()),
            (_, "brew") => CheckRemedy::Command(format!("{install} {}", package(program, manager))),
            _ => CheckRemedy::Command(self.as_root(&format!("{install} {}", package(program, manager)))),
        }
    }

    /// A command that only root may run.
    pub(super) fn as_root(&self, command: &str) -> String {
        if self.is_root { command.to_owned() } else { format!("sudo {command}") }
    }
}

fn package<'a>(program: &'a str, manager: &str) -> &'a str {
    match (program, manager) {
        ("bwrap", _) => "bubblewrap",
        ("rg", _) => "ripgrep",
        ("which", "apt-get") => "debianutils",
        ("node", "brew") => "node",
        ("node", _) => "nodejs npm",
        _ => program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(manager: &str, program: &str, expected: &str) {
        let manager = MANAGERS.iter().find(|(name, _)| *name == manager).copied();
        let packages = PackageManager { manager, is_root: false };
        assert_eq!(packages.remedy(program).words(), expected);
    }

    #[test]
    fn the_command_is_the_package_managers_own() {
        check("apt-get", "bwrap", "run `sudo apt install bubblewrap`");
        check("apt-get", "which", "run `sudo apt install debianutils`");
        check("apt-get", "node", NODE);
        check("dnf", "rg", "run `sudo dnf install ripgrep`");
        check("pacman", "node", "run `sudo pacman -S nodejs npm`");
        check("brew", "node", "run `brew install node`");
        check("", "socat", "install the package `socat` with your package manager");
    }

    #[test]
    fn root_needs_no_sudo() {
        let packages = PackageManager { manager: Some(MANAGERS[0]), is_root: true };
        assert_eq!(packages.remedy("socat").words(), "run `apt install socat`");
    }
}
