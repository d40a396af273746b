//! Which room of `src/` may know which, by the paths in its code: rooms know no layer above their own in the picture of
//! `ARCHITECTURE.md`, and nothing that `law.toml` forbids.

mod law;
mod modules;
mod names;
mod order;
mod picture;
mod python;
mod rooms;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use self::law::Law;
use self::modules::{Modules, crate_name};
use self::rooms::{Rooms, in_circles};
use crate::support::repository;

/// The number of pairs of rooms of which the first knows the second. To lower it is progress. Saved actions have made it 25
/// more: a store that sessions, search, code and a command use (10), and a room for kernels and scripts without a session (15);
/// pods and claims of them nine; claims that a team's server makes for sessions, who ask it by its socket, two.
const PAIRS: usize = 249;

/// The number of arrows in the pictures of the folders: of `src/`, and of each folder of rooms in it. Saved
/// actions have made it three more: to their store, and from their server to their kernels; pods and claims two.
const ARROWS: usize = 66;

/// The crates that the language brings along.
const BUILT_IN: [&str; 3] = ["alloc", "core", "std"];

/// The crates in `Cargo.toml`, those for tests left out, with whether they are optional.
fn dependencies() -> Vec<(String, bool)> {
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let targets = manifest["target"].as_table().unwrap().values();
    let tables = [&manifest["dependencies"]].into_iter().chain(targets.map(|target| &target["dependencies"]));
    let tables = tables.filter_map(toml::Value::as_table);
    let is_optional =
        |details: &toml::Value| details.get("optional").is_some_and(|value| value.as_bool() == Some(true));
    tables.flatten().map(|(name, details)| (name.clone(), is_optional(details))).collect()
}

static ROOMS: LazyLock<Rooms> = LazyLock::new(|| {
    let crates = dependencies().into_iter().map(|(name, _)| crate_name(&name));
    let crates = crates.chain(BUILT_IN.map(str::to_owned)).collect();
    let document = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let law = std::fs::read_to_string(repository().join("tests/it/architecture/law.toml")).unwrap();
    let modules = Modules::read(&repository().join("src"), crates);
    Rooms::new(modules, picture::layers(&document), Law::read(&law))
});

fn listed(pairs: &BTreeSet<(String, String)>) -> String {
    let lines: Vec<String> = pairs.iter().map(|(knowing, known)| format!("{knowing} → {known}")).collect();
    lines.join("\n")
}

/// The files of Rust below a directory of the repository, with their texts.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    with_extension(directory, "rs")
}

/// The files with this extension below a directory of the repository, with their texts.
fn with_extension(directory: &str, wanted: &str) -> Vec<(PathBuf, String)> {
    let (mut found, mut directories) = (Vec::new(), vec![repository().join(directory)]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == wanted) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

#[track_caller]
fn check_none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_picture_and_the_law_name_what_is_there() {
    check_none(ROOMS.faults());
}

#[test]
fn no_room_knows_what_it_never_knows() {
    check_none(&ROOMS.violations());
}

#[test]
fn every_permission_of_the_law_is_needed() {
    check_none(&ROOMS.needless_permissions());
}

#[test]
fn rooms_inside_a_room_use_those_below_them() {
    check_none(ROOMS.upward());
}

#[test]
fn there_is_no_circle_of_rooms() {
    let circles = ROOMS.circles();
    assert!(circles.is_empty(), "\n{}", listed(&circles));
}

#[test]
fn there_is_no_circle_of_files() {
    let circles = ROOMS.circles_of_files();
    assert!(circles.is_empty(), "\n{}", listed(&circles));
}

#[test]
fn there_is_no_circle_of_folders() {
    let circles = ROOMS.circles_of_folders();
    assert!(circles.is_empty(), "\n{}", listed(&circles));
}

#[test]
fn rooms_do_not_know_more_of_each_other() {
    let pairs = ROOMS.pairs();
    assert!(pairs.len() <= PAIRS, "{} pairs instead of {PAIRS}:\n{}", pairs.len(), listed(&pairs));
}

#[test]
fn folders_do_not_know_more_of_each_other() {
    let arrows = ROOMS.arrows();
    assert!(arrows.len() <= ARROWS, "{} arrows instead of {ARROWS}:\n{}", arrows.len(), listed(&arrows));
}

#[test]
fn code_generation_is_pure() {
    let impure = ["std::env", "std::fs", "std::net", "std::process", "std::time", "tokio"];
    let sources = sources("crates/codegen/src");
    assert!(sources.len() > 20, "{} files", sources.len());
    let names =
        |text: &str| impure.into_iter().filter(|path| text.contains(path)).collect::<Vec<_>>().join(", ");
    let found = sources.into_iter().map(|(path, text)| (path, names(&text)));
    let found = found.filter(|(_, named)| !named.is_empty());
    check_none(&found.map(|(path, named)| format!("{}: {named}", path.display())).collect::<Vec<_>>());
}

/// The optional crates, those of OpenTelemetry or the others, but for those that `law.toml` keeps in one room.
fn optional(are_of_telemetry: bool) -> Vec<String> {
    let optional = dependencies().into_iter().filter(|(_, is_optional)| *is_optional);
    let names =
        optional.map(|(name, _)| name).filter(|name| !["k8s-openapi", "kube"].contains(&name.as_str()));
    names.filter(|name| name.starts_with("opentelemetry") == are_of_telemetry).collect()
}

fn is_in(module: &str, room: &str) -> bool {
    Path::new(module).starts_with(room)
}

#[track_caller]
fn check_only(rooms: &[&str], crates: &[String]) {
    let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
    let is_meant = |module: &str| rooms.iter().any(|room| is_in(module, room));
    assert!(!ROOMS.namings(&crates, is_meant).is_empty(), "it has another name");
    check_none(&ROOMS.namings(&crates, |module| !is_meant(module)));
}

#[test]
fn only_the_binary_reads_flags() {
    check_only(&["cli", "main"], &optional(false));
}

#[test]
fn only_one_room_knows_opentelemetry() {
    check_only(&["ground/telemetry"], &optional(true));
}

/// `attach` shows colours of code by `ColouredText`, `tool_server` writes a line of JSON for programs, and `progress` moves the cursor.
#[test]
fn commands_print_by_the_printer_that_lets_nothing_steer_a_terminal() {
    const BY_THEMSELVES: [&str; 4] = ["mod.rs", "logging.rs", "tool_server.rs", "progress.rs"];
    let is_meant = |path: &Path| {
        !path.starts_with(repository().join("src/cli/attach"))
            && !BY_THEMSELVES.iter().any(|name| path.ends_with(name))
    };
    let prints = |text: &str| {
        let by_itself = |line: &str| {
            ["io::stdout()", "io::stderr()", "anstream::std"].iter().any(|way| line.contains(way))
                && !line.contains("is_terminal")
        };
        text.lines().any(by_itself)
    };
    let found = sources("src/cli").into_iter().filter(|(path, text)| is_meant(path) && prints(text));
    let found: Vec<String> = found.map(|(path, _)| path.display().to_string()).collect();
    check_none(&found);
}

#[test]
fn no_crate_speaks_to_kernels() {
    for (name, _) in dependencies() {
        assert!(!name.starts_with("jupyter") && name != "zeromq", "{name}");
    }
}
