//! Lets the linker put the functions that sessions use (`functions.txt`) beside each other, which saves memory:
//! `docs/decisions/shipping.md#functions-that-sessions-use-come-first-in-the-program`.

use std::env::var;
use std::fmt::Write as _;
use std::fs;

const FUNCTIONS: &str = include_str!("functions.txt");

fn main() {
    println!("cargo::rerun-if-changed=packaging/order/functions.txt");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found.contains(value));
    // Other systems' linkers take no such script, and a linker that one chooses may not; the functions of a program for
    // development are many more.
    if !is("CARGO_CFG_TARGET_OS", "linux")
        || !is("PROFILE", "release")
        || !is("CARGO_ENCODED_RUSTFLAGS", "symbol-mangling-version=v0")
        || is("CARGO_ENCODED_RUSTFLAGS", "fuse-ld=")
    {
        return;
    }

    let mut sections = String::new();
    for function in FUNCTIONS.lines() {
        // The compiler puts a function that is seldom called into a section of the second kind.
        writeln!(sections, "*(.text.{function} .text.unlikely.{function})")
            .expect("a string takes everything");
    }
    let script = format!("{}/functions.ld", var("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(&script, format!("SECTIONS {{ .text.first : {{\n{sections}}} }} INSERT BEFORE .text;\n"))
        .expect("cargo's directory can be written");
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
