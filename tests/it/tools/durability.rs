//! What is found after a process died in the middle of a change to files.

use std::process::Command;

use crate::support::{kernel_python, repository};

/// How many changes to files are passed over after each that is tried. `tests/README.md` has the command that tries all.
const EVERY: &str = "9";

#[test]
fn wherever_a_process_dies_the_next_one_finds_the_old_or_the_new() {
    let mut command = Command::new(kernel_python());
    command.arg(repository().join("tests/faults/sweep.py")).arg(env!("CARGO_BIN_EXE_ipybox"));
    command.args(["--every", EVERY, "--python"]).arg(kernel_python());
    let done = command.output().unwrap();
    let [table, violations] =
        [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{table}\n{violations}");
    assert!(table.contains("| removal |"), "{table}");
}
