//! Checks which limits hold around a session as a whole. A control group is made for that, and removed.

use crate::ground::process::limits_held_here;
use crate::kernels::sandbox::check::{CheckFinding, CheckRemedy};

/// The controllers, with the flags that need them and the effect of their absence.
const CONTROLLERS: [(&str, &str, &str); 3] = [
    ("memory", "--limit-memory", "it limits each process alone"),
    ("pids", "--limit-processes", "it counts all processes of the user, and does not bind root"),
    ("cpu", "--limit-cpu", "it is refused"),
];

/// A system that does not let us make control groups lets whoever starts us do so.
const ADVICE: &str = "start ipybox as a service or container of its own with a delegated control group (`Delegate=yes`), or set \
                      the limits of the container itself";

pub(super) fn examine() -> Vec<CheckFinding> {
    if !cfg!(target_os = "linux") {
        return vec![CheckFinding::not_needed("control-group", "the limits are available on Linux only")];
    }
    let (held, troubles) = limits_held_here();
    let is_missing = |(controller, ..): &&(&str, &str, &str)| !held.contains(controller);
    let missing: Vec<String> = CONTROLLERS
        .iter()
        .filter(is_missing)
        .map(|(_, flag, effect)| format!("`{flag}`: {effect}"))
        .collect();
    if missing.is_empty() {
        return vec![CheckFinding::ok("control-group", format!("holds {}", held.join(", ")))];
    }
    let held = if held.is_empty() { String::new() } else { format!("holds {}; ", held.join(", ")) };
    let found = format!("{held}{}", troubles.join("; "));
    vec![CheckFinding::warning(
        "control-group",
        found,
        missing.join("; "),
        CheckRemedy::Advice(ADVICE.to_owned()),
    )]
}
