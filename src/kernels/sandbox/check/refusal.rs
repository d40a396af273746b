//! Why no user namespace can be made, and what to do about it. Pure.

use super::finding::{CheckFinding, CheckRemedy};
use super::machine::MachineSettings;
use super::remedy::PackageManager;

const NAME: &str = "user-namespaces";
const CONSEQUENCE: &str = "no sandbox can be made: it begins with a user namespace";

/// The words of bubblewrap if `/proc` numbers processes as an outer sandbox does, as inside srt.
const OTHER_NUMBERS: &str = "/ns/ns failed";

/// The finding if bubblewrap was refused with the output `said`.
pub(super) fn explain(machine: &MachineSettings, packages: &PackageManager, said: &str) -> CheckFinding {
    let failed = |found: String, remedy| CheckFinding::failed(NAME, found, CONSEQUENCE, remedy);
    let sysctl = |setting: &str| CheckRemedy::Command(packages.as_root(&format!("sysctl -w {setting}")));
    // A container may allow namespaces, but root in it cannot use them.
    if machine.is_root && !machine.has_setfcap && said.contains("uid map") {
        return failed(
            format!("root lacks the capability to map itself (CAP_SETFCAP): {said}"),
            CheckRemedy::Advice("run ipybox as an ordinary user, or grant it CAP_SETFCAP".to_owned()),
        );
    }
    if said.contains(OTHER_NUMBERS) {
        return CheckFinding::failed(
            NAME,
            format!(
                "ipybox is in a sandbox whose `/proc` has the numbers of another one, as srt makes it: {said}"
            ),
            "no sandbox can be made in here; the one around it is the sandbox",
            CheckRemedy::Advice(
                "start ipybox without `--sandbox` in that sandbox, or with `--sandbox` outside of it"
                    .to_owned(),
            ),
        );
    }
    if let Some(container) = machine.container {
        let filter = if machine.is_filtered { " and filters system calls" } else { "" };
        return CheckFinding::failed(
            NAME,
            format!(
                "refused by the container ({container}), which keeps them from what runs in it{filter}: {said}"
            ),
            "no sandbox can be made in here; the container is the sandbox, as tight as what is mounted into it and \
             what its network reaches",
            CheckRemedy::Advice(
                "start ipybox without `--sandbox` in this container, or with `--sandbox` outside of one"
                    .to_owned(),
            ),
        );
    }
    if !machine.is_root && machine.apparmor_restricts == Some(1) {
        return failed(
            format!(
                "AppArmor leaves them to root (kernel.apparmor_restrict_unprivileged_userns = 1): {said}"
            ),
            sysctl("kernel.apparmor_restrict_unprivileged_userns=0"),
        );
    }
    if !machine.is_root && machine.unprivileged_clone == Some(0) {
        return failed(
            format!("the kernel leaves them to root (kernel.unprivileged_userns_clone = 0): {said}"),
            sysctl("kernel.unprivileged_userns_clone=1"),
        );
    }
    if machine.most_namespaces == Some(0) {
        return failed(
            format!("the kernel allows none (user.max_user_namespaces = 0): {said}"),
            sysctl("user.max_user_namespaces=15000"),
        );
    }
    failed(
        said.to_owned(),
        CheckRemedy::Advice(
            "ask who administers this machine to allow user namespaces for bubblewrap".to_owned(),
        ),
    )
}

/// The finding if they can be made within the sandbox that ipybox is in, without a `/proc` of their own.
pub(super) fn nested(said: &str) -> CheckFinding {
    CheckFinding::warning(
        NAME,
        format!("bubblewrap makes them within the sandbox that ipybox is in: {said}"),
        "code reads `/proc` of the kernel's own process only; srt does not start here",
        CheckRemedy::Advice("use `--sandbox-backend bwrap`".to_owned()),
    )
}

/// The finding if one can be made.
pub(super) fn works(machine: &MachineSettings) -> CheckFinding {
    CheckFinding::ok(
        NAME,
        match machine.container {
            Some(container) => format!("bubblewrap makes them, in this container too ({container})"),
            None => "bubblewrap makes them".to_owned(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(machine: &MachineSettings, found: &str, remedy: &str) {
        let said = "no: setting up uid map: Operation not permitted";
        let finding = explain(machine, &PackageManager::of("", machine.is_root), said);
        assert!(finding.found.contains(found) && finding.is_failed(), "{finding:?}");
        assert!(finding.remedy.as_ref().unwrap().words().contains(remedy), "{finding:?}");
    }

    #[test]
    fn each_refusal_has_its_remedy() {
        let machine = MachineSettings::default;
        check(&machine(), "no", "administers");
        check(
            &MachineSettings { apparmor_restricts: Some(1), most_namespaces: Some(9), ..machine() },
            "AppArmor",
            "run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
        );
        check(
            &MachineSettings { unprivileged_clone: Some(0), ..machine() },
            "unprivileged_userns_clone = 0",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        );
        let root =
            MachineSettings { is_root: true, has_setfcap: true, most_namespaces: Some(0), ..machine() };
        check(&root, "allows none", "run `sysctl -w user.max_user_namespaces=15000`");
        check(
            &MachineSettings { is_root: true, apparmor_restricts: Some(1), ..machine() },
            "CAP_SETFCAP",
            "ordinary user",
        );
    }

    #[test]
    fn a_sandbox_around_it_is_reported() {
        let said = "bwrap: open /proc/25/ns/ns failed: No such file or directory";
        let machine = MachineSettings { container: Some("Docker"), ..MachineSettings::default() };
        let finding = explain(&machine, &PackageManager::of("", true), said);
        assert!(finding.is_failed() && finding.found.contains("as srt makes it"), "{finding:?}");
        assert!(!nested("Can't mount proc").is_failed());
    }

    #[test]
    fn in_a_container_the_container_is_the_sandbox() {
        let machine =
            MachineSettings { container: Some("Docker"), is_filtered: true, ..MachineSettings::default() };
        check(&machine, "filters system calls", "without `--sandbox`");
        let finding = explain(&machine, &PackageManager::of("", true), "no");
        assert!(finding.consequence.unwrap().contains("the container is the sandbox"));
    }
}
