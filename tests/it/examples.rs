//! The examples print what the documentation says they print.
//!
//! One source of truth: the `text` block that follows `cargo run --example NAME` in a page of `docs/`. What its prompts
//! are answered with is what is typed.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{environment, equipped, repository, tool};

/// What a prompt of an example ends with; the rest of its line is the answer.
const PROMPT: &str = "(Y/n): ";

/// They share a workspace, so that its environment is made once: one after the other, and in one test, which holds up no
/// others.
#[test]
fn examples_print_what_the_documentation_shows() {
    const EXAMPLES: [&str; 5] = ["quickstart", "streaming", "plots", "approval_policy", "sandbox"];
    build(&EXAMPLES);
    for name in EXAMPLES {
        check(name);
    }
}

#[test]
fn the_quickstart_page_shows_the_example_as_it_is() {
    let page = read("docs/rust.md");
    let example = read("examples/quickstart.rs");
    let (_, program) = example.split_once("\n\nuse ").unwrap();
    assert!(page.contains(&format!("```rust,no_run\nuse {program}```\n")), "copy `examples/quickstart.rs`");
}

/// Every example in Rust is in the documentation; `demo.py` is shown there as a picture.
#[test]
fn every_example_is_documented() {
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            documented(path.file_stem().unwrap().to_str().unwrap());
        }
    }
}

#[test]
fn every_page_is_in_the_book_and_its_code_is_compiled() {
    let (summary, guide) = (read("docs/SUMMARY.md"), read("src/guide.rs"));
    for page in pages().filter(|page| page != "docs/SUMMARY.md") {
        let link = page.replace("docs/", "(") + ")";
        assert!(summary.contains(&link), "docs/SUMMARY.md has no link to {page}");
        let has_code = read(&page).contains("```rust");
        assert!(!has_code || guide.contains(&page), "src/guide.rs does not include {page}");
    }
}

/// The pages of the documentation.
fn pages() -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(repository().join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// Runs an example as the documentation says, and compares what it prints.
#[track_caller]
fn check(name: &str) {
    let shown = documented(name);
    let typed: String = answers(&shown).map(|answer| format!("{answer}\n")).collect();
    let printed = run(name, &typed);
    assert_eq!(without_names(&printed), without_names(&as_printed(&shown)), "{name}");
}

fn build(names: &[&str]) {
    let mut cargo = Command::new(env!("CARGO"));
    // Variables that cargo sets for this test are not for another cargo: ring's build script would see a change, and
    // all that depends on it would be built anew, now and the next time.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&variable);
        }
    }
    cargo.args(["build", "--locked", "--quiet"]).args(names.iter().flat_map(|name| ["--example", name]));
    let built = cargo.current_dir(repository()).status().unwrap();
    assert!(built.success(), "{built}");
}

fn run(name: &str, typed: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_ipybox")).parent().unwrap();
    let mut example = Command::new(programs.join("examples").join(name))
        .current_dir(repository())
        .env_clear()
        .envs(environment())
        .env("UV", tool("bin/uv"))
        // Where `srt` is.
        .env("PATH", equipped())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = example.stdin.take().unwrap();
    // Few bytes: the pipe takes them all. An example that reads nothing may have ended.
    drop(input.write_all(typed.as_bytes()));
    drop(input);
    let output = example.wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// What the documentation says that an example prints, as a terminal shows it.
#[track_caller]
fn documented(name: &str) -> String {
    let command = format!("cargo run --example {name}\n```\n");
    for page in pages() {
        let page = read(&page);
        let Some((_, after)) = page.split_once(&command) else { continue };
        let (between, block) = after.split_once("```text\n").expect("a block with what it prints");
        assert!(!between.contains("```"), "the block of `{name}` comes next");
        return block.split_once("```").unwrap().0.to_owned();
    }
    panic!("no page of `docs/` has a line `cargo run --example {name}`");
}

/// What is typed at the prompts.
fn answers(shown: &str) -> impl Iterator<Item = &str> {
    shown.lines().filter_map(|line| line.split_once(PROMPT.trim_end())).map(|(_, answer)| answer.trim())
}

/// What is shown, without the answers, whose echo is the terminal's.
fn as_printed(shown: &str) -> String {
    let lines = shown.lines().map(|line| match line.split_once(PROMPT.trim_end()) {
        Some((before, _)) => format!("{before}{PROMPT}"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// The text with the names of images, which are random, alike.
fn without_names(text: &str) -> String {
    let parts = text.split("images/").enumerate();
    parts
        .map(|(number, part)| match (number, part.split_once('.')) {
            (1.., Some((_, rest))) => format!("images/….{rest}"),
            _ => part.to_owned(),
        })
        .collect()
}
