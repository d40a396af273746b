//! What the rooms of `src/` know of each other, and whether the table of rooms allows it.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Mention, Modules, Target, crate_name};
use super::names::Segments;
use super::table::{Never, Row};

/// The rooms of the table with the code that is in them. A folder that has a row of its own is a room in another.
pub(super) struct Rooms {
    modules: Modules,
    mentions: Vec<Mention>,
    /// What each room never knows, by the path of its module.
    never: BTreeMap<Segments, Never>,
    /// What is wrong with the table itself.
    faults: Vec<String>,
}

impl Rooms {
    pub(super) fn new(modules: Modules, rows: Vec<Row>) -> Self {
        let mentions = modules.mentions();
        let mut rooms = Self { modules, mentions, never: BTreeMap::new(), faults: Vec::new() };
        for row in rows {
            for name in row.rooms {
                rooms.add(&name, row.never.clone());
            }
        }
        let missing = rooms.modules.at_the_root().filter(|path| !rooms.never.contains_key(*path));
        let missing: Vec<String> = missing.map(|path| format!("`{}` has no row", path.join("/"))).collect();
        rooms.faults.extend(missing);
        rooms
    }

    fn add(&mut self, name: &str, never: Never) {
        let path = segments(name.trim_end_matches(".rs").trim_end_matches('/'));
        let file = if name.ends_with('/') { format!("{name}mod.rs") } else { name.to_owned() };
        if self.modules.file(&path) != Some(file.as_str()) {
            self.faults.push(format!("there is no `src/{name}`"));
        }
        for word in never.everybody_but.iter().flatten() {
            if !self.modules.contain(&segments(word)) {
                self.faults.push(format!("`{name}` may know `{word}`, which is no room and no module"));
            }
        }
        for word in &never.names {
            if !self.modules.contain(&segments(word)) && !self.modules.may_name(word) {
                self.faults.push(format!("`{name}` never knows `{word}`, which is no room, module or crate"));
            }
        }
        if self.never.insert(path, never).is_some() {
            self.faults.push(format!("`{name}` has two rows"));
        }
    }

    /// Where the table names what is not there, or does not name what is there.
    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Where a room knows what the table forbids.
    pub(super) fn violations(&self) -> Vec<String> {
        let judged = self.mentions.iter().filter_map(|mention| {
            let room = self.room_of(&mention.module)?;
            let word = self.forbidden(room, &mention.target)?;
            let Mention { target, place, .. } = mention;
            Some(format!("`{}` never knows {word}: {place} names {target}", room.join("/")))
        });
        judged.collect()
    }

    /// What the table says in `room` of `target`, if it forbids it.
    fn forbidden(&self, room: &[String], target: &Target) -> Option<String> {
        let never = &self.never[room];
        let path = match target {
            Target::Outside(path) => {
                let word = never.names.iter().find(|word| crate_name(word) == path[0]);
                return word.map(|word| format!("`{word}`"));
            }
            Target::Inside(path) if path.is_empty() => return Some("the whole crate".to_owned()),
            Target::Inside(path) => path,
        };
        let Some(known) = self.room_of(path) else { return Some("what is in no room".to_owned()) };
        if known == room {
            return None;
        }
        if let Some(word) = never.names.iter().find(|word| path.starts_with(&segments(word))) {
            return Some(format!("`{word}`"));
        }
        let exceptions = never.everybody_but.as_ref()?;
        let is_exception = exceptions.iter().any(|word| path.starts_with(&segments(word)));
        (!is_exception).then(|| format!("`{}`", known.join("/")))
    }

    /// The exceptions of "everybody" that no code needs.
    pub(super) fn needless_exceptions(&self) -> Vec<String> {
        let exceptions = self.never.iter().flat_map(|(room, never)| {
            never.everybody_but.iter().flatten().map(move |exception| (room, exception))
        });
        let needless = exceptions.filter(|(room, exception)| {
            let exception = segments(exception);
            !self.mentions.iter().any(|mention| {
                self.room_of(&mention.module) == Some(*room)
                    && matches!(&mention.target, Target::Inside(path) if path.starts_with(&exception))
            })
        });
        needless
            .map(|(room, exception)| format!("`{}` does not know `{exception}`", room.join("/")))
            .collect()
    }

    /// The places that name one of `paths`, which are of other crates, in those folders and files of `src/` for which
    /// `is_meant` holds.
    pub(super) fn namings(&self, paths: &[&str], is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let paths: Vec<Segments> =
            paths.iter().map(|path| path.split("::").map(crate_name).collect()).collect();
        let found = self.mentions.iter().filter(|mention| {
            let is_listed = |target: &Segments| paths.iter().any(|path| target.starts_with(path));
            mention.module.first().is_some_and(|room| is_meant(room))
                && matches!(&mention.target, Target::Outside(target) if is_listed(target))
        });
        found.map(|mention| format!("{} names {}", mention.place, mention.target)).collect()
    }

    /// Which folders and files of `src/` know which. A room in another is a part of it here.
    pub(super) fn pairs(&self) -> BTreeSet<(&str, &str)> {
        let pairs = self.mentions.iter().filter_map(|mention| {
            let Target::Inside(path) = &mention.target else { return None };
            Some((mention.module.first()?.as_str(), path.first()?.as_str()))
        });
        pairs.filter(|(knowing, known)| knowing != known).collect()
    }

    /// The pairs that are parts of circles, or between two of them.
    pub(super) fn circles(&self) -> BTreeSet<(&str, &str)> {
        let mut pairs = self.pairs();
        loop {
            let knowing: BTreeSet<&str> = pairs.iter().map(|(knowing, _)| *knowing).collect();
            let known: BTreeSet<&str> = pairs.iter().map(|(_, known)| *known).collect();
            let before = pairs.len();
            // Who knows nobody who is left, or is known to nobody, is in no circle.
            pairs.retain(|(one, other)| known.contains(one) && knowing.contains(other));
            if pairs.len() == before {
                return pairs;
            }
        }
    }

    /// The innermost room that a module, or what is in one, belongs to. The root is no room.
    fn room_of(&self, path: &[String]) -> Option<&Segments> {
        let paths = (1..=path.len()).rev().map(|length| &path[..length]);
        paths.filter_map(|path| self.never.get_key_value(path)).map(|(room, _)| room).next()
    }
}

/// The path of a room or module from the root.
fn segments(name: &str) -> Segments {
    name.split('/').map(str::to_owned).collect()
}

mod tests {
    use super::Rooms;
    use crate::architecture::modules::Modules;
    use crate::architecture::table::rows;

    const ALL_ALLOWED: &str = "| `kernel/`, `mcp/`, `describe.rs` | all | – |";

    /// A small crate. `kernel` has `own`, and `mcp` has `wire`.
    fn rooms(table: &str, own: &str, wire: &str) -> Rooms {
        let texts = [
            ("lib.rs", "mod kernel; mod mcp; mod describe; pub use mcp::Client;"),
            ("kernel/mod.rs", "mod own;"),
            ("kernel/own.rs", own),
            ("mcp/mod.rs", "mod wire;"),
            ("mcp/wire.rs", wire),
            ("describe.rs", ""),
        ];
        let crates = ["rmcp", "tokio_util"].map(str::to_owned).into();
        let text_of = |file: &str| Some(texts.iter().find(|(name, _)| *name == file)?.1.to_owned());
        let head = "| room | what it is | never knows |\n|---|---|---|\n";
        Rooms::new(Modules::of(crates, text_of), rows(&format!("{head}{table}\n")))
    }

    #[track_caller]
    fn check(never: &str, own: &str, expected: &[&str]) {
        let table = format!("| `kernel/` | all | {never} |\n| `mcp/`, `describe.rs` | all | – |");
        let rooms = rooms(&table, own, "");
        assert_eq!(rooms.faults().join("; "), "");
        assert_eq!(rooms.violations(), expected);
    }

    #[test]
    fn a_room_may_know_what_its_row_does_not_forbid() {
        check("–", "use crate::mcp::Client; use rmcp::model;", &[]);
        check("`mcp`", "use crate::describe::describe; use crate::kernel::own;", &[]);
    }

    #[test]
    fn a_forbidden_room_is_found_with_its_place() {
        let found = "`kernel` never knows `mcp`: src/kernel/own.rs:2 names crate::mcp::wire::Line";
        check("`mcp`", "\nuse crate::mcp::wire::Line;", &[found]);
        check(
            "`mcp/wire`",
            "\nuse crate::mcp::wire::Line;",
            &[&found.replace("knows `mcp`", "knows `mcp/wire`")],
        );
        check("`mcp/wire`", "use crate::mcp::Client;", &[]);
    }

    #[test]
    fn a_forbidden_room_is_found_behind_a_public_name() {
        check(
            "`mcp`",
            "use crate::Client;",
            &["`kernel` never knows `mcp`: src/kernel/own.rs:1 names crate::mcp::Client"],
        );
    }

    #[test]
    fn a_forbidden_crate_is_found() {
        let text = "fn f() { tokio_util::io::read(); }";
        check(
            "`tokio-util`",
            text,
            &["`kernel` never knows `tokio-util`: src/kernel/own.rs:1 names tokio_util::io::read"],
        );
    }

    #[test]
    fn everybody_is_every_other_room() {
        check("everybody", "use super::own; use crate::kernel::own::f; use rmcp::model;", &[]);
        let text = "use crate::mcp::wire; use crate::describe::describe;";
        let [wire, describe] = [
            "`kernel` never knows `mcp`: src/kernel/own.rs:1 names crate::mcp::wire",
            "`kernel` never knows `describe`: src/kernel/own.rs:1 names crate::describe::describe",
        ];
        check("everybody", text, &[wire, describe]);
        check("everybody but `describe`", text, &[wire]);
        check("everybody but `mcp/wire`", text, &[describe]);
        check("everybody but `describe`, `mcp/wire`", text, &[]);
    }

    #[test]
    fn nobody_imports_the_whole_crate() {
        check(
            "–",
            "use crate::*;",
            &["`kernel` never knows the whole crate: src/kernel/own.rs:1 names crate::"],
        );
    }

    #[test]
    fn a_room_in_another_has_rules_of_its_own() {
        let table = "| `kernel/`, `describe.rs` | all | – |\n| `mcp/` | all | `describe` |\n| `mcp/wire/` | all | `kernel` |";
        let text = "use crate::describe::describe; use crate::kernel::own;";
        let rooms = rooms(table, "", text);
        assert_eq!(rooms.faults(), ["there is no `src/mcp/wire/`"], "it is a file");
        let found = "`mcp/wire` never knows `kernel`: src/mcp/wire.rs:1 names crate::kernel::own";
        assert_eq!(rooms.violations(), [found]);
    }

    #[test]
    fn the_table_names_what_is_there() {
        let faults = |table: &str| rooms(table, "", "").faults().to_vec();
        assert_eq!(faults(ALL_ALLOWED), [""; 0]);
        assert_eq!(faults("| `kernel/`, `describe.rs` | all | – |"), ["`mcp` has no row"]);
        assert_eq!(faults(&format!("{ALL_ALLOWED}\n| `tools/` | none | – |")), ["there is no `src/tools/`"]);
        assert_eq!(faults(&format!("{ALL_ALLOWED}\n| `mcp/` | again | – |")), ["`mcp/` has two rows"]);
        let unknown =
            "| `kernel/` | all | everybody but `wire`; `zeromq` |\n| `mcp/`, `describe.rs` | all | – |";
        let expected = [
            "`kernel/` may know `wire`, which is no room and no module",
            "`kernel/` never knows `zeromq`, which is no room, module or crate",
        ];
        assert_eq!(faults(unknown), expected);
    }

    #[test]
    fn a_needless_exception_is_found() {
        let table =
            "| `kernel/` | all | everybody but `describe`, `mcp` |\n| `mcp/`, `describe.rs` | all | – |";
        let rooms = rooms(table, "use crate::mcp::Client;", "");
        assert_eq!(rooms.needless_exceptions(), ["`kernel` does not know `describe`"]);
    }

    #[test]
    fn pairs_and_circles_are_found() {
        let one_way = rooms(ALL_ALLOWED, "use crate::mcp::wire; use crate::describe::describe;", "");
        assert_eq!(Vec::from_iter(one_way.pairs()), [("kernel", "describe"), ("kernel", "mcp")]);
        assert_eq!(Vec::from_iter(one_way.circles()), []);
        let text = "fn f() { crate::kernel::own::f(); }";
        let circle = rooms(ALL_ALLOWED, "use crate::mcp::wire; use crate::describe::describe;", text);
        assert_eq!(Vec::from_iter(circle.circles()), [("kernel", "mcp"), ("mcp", "kernel")]);
    }

    #[test]
    fn namings_are_found() {
        let text = "fn f(gate: Gate) { assert!(gate.decide(rmcp::model::new())); }";
        let rooms = rooms(ALL_ALLOWED, text, "");
        let found = ["src/kernel/own.rs:1 names rmcp::model::new"];
        assert_eq!(rooms.namings(&["rmcp::model"], |room| room == "kernel"), found);
        assert_eq!(rooms.namings(&["rmcp::model"], |room| room != "kernel"), [""; 0]);
        assert_eq!(rooms.namings(&["rmcp::transport"], |room| room == "kernel"), [""; 0]);
    }
}
