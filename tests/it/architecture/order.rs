//! The order of the rooms inside a room: each uses those below it. So there is no circle of them, and no arrow upwards.

use super::modules::{Mention, Modules, Target};
use super::names::Segments;

/// The places in `folder` that name a room above their own, or what its `mod.rs` has of its own. `rooms` are all that are in it,
/// the top one first.
pub(super) fn upward(
    modules: &Modules,
    mentions: &[Mention],
    folder: &[String],
    rooms: &[String],
) -> Vec<String> {
    let height = |path: &[String]| {
        let room = path.strip_prefix(folder)?.first()?;
        rooms.iter().rev().position(|other| other == room)
    };
    let found = mentions.iter().filter_map(|mention| {
        let Target::Inside(target) = &mention.target else { return None };
        let (from, home) = (height(&mention.module)?, modules.home(target));
        // The folder itself is named where something is visible in all of it.
        let is_of_folder = home == folder && target != folder;
        let is_above = is_of_folder || height(&home).is_some_and(|to| to > from);
        is_above.then(|| format!("{} names {}, which is above it", mention.place, mention.target))
    });
    found.collect()
}

/// The rooms in `folder` that `rooms` does not list, and those that are not there.
pub(super) fn faults(modules: &Modules, folder: &[String], rooms: &[String]) -> Vec<String> {
    let inside = |room: &str| -> Segments { [folder, &[room.to_owned()]].concat() };
    let missing = rooms.iter().filter(|room| !modules.contain(&inside(room)));
    let missing = missing.map(|room| format!("there is no `{}`", inside(room).join("/")));
    let unlisted = modules.inside(folder).filter(|path| !rooms.iter().any(|room| **path == inside(room)));
    missing.chain(unlisted.map(|path| format!("`{}` is not in the order", path.join("/")))).collect()
}

mod tests {
    use super::{faults, upward};
    use crate::architecture::modules::Modules;

    fn modules(gate: &str, action: &str) -> Modules {
        let texts = [
            ("lib.rs", "mod approval;"),
            (
                "approval/mod.rs",
                "mod gate; mod action; pub use self::gate::Gate; pub use self::action::Action; const OURSELVES: u8 = 1;",
            ),
            ("approval/gate/mod.rs", gate),
            ("approval/action/mod.rs", "mod batch;"),
            ("approval/action/batch.rs", action),
        ];
        let crates = ["std"].map(str::to_owned).into();
        Modules::of(crates, |file| Some(texts.iter().find(|(name, _)| *name == file)?.1.to_owned()))
    }

    #[track_caller]
    fn check(gate: &str, action: &str, expected: &[&str]) {
        let modules = modules(gate, action);
        let rooms = ["gate", "action"].map(str::to_owned);
        let found = upward(&modules, &modules.mentions(), &["approval".to_owned()], &rooms);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_room_may_name_those_below_it_and_its_own_files() {
        let own = "use super::super::action::Action; use std::env; pub(in crate::approval) fn f() {}";
        check("use crate::approval::Action;", own, &[]);
    }

    #[test]
    fn a_room_above_is_found_also_behind_a_shared_name() {
        let place = "src/approval/action/batch.rs:1 names";
        let expected = format!("{place} crate::approval::gate::Gate, which is above it");
        check("", "use crate::approval::gate::Gate;", &[&expected]);
        let expected = format!("{place} crate::approval::Gate, which is above it");
        check("", "use super::super::Gate;", &[&expected]);
        let expected = format!("{place} crate::approval::OURSELVES, which is above it");
        check("", "use super::super::OURSELVES;", &[&expected]);
    }

    #[test]
    fn the_order_has_every_room() {
        let modules = modules("", "");
        let found = |rooms: &[&str]| {
            let rooms: Vec<String> = rooms.iter().map(|room| (*room).to_owned()).collect();
            faults(&modules, &["approval".to_owned()], &rooms)
        };
        assert_eq!(found(&["gate", "action"]), [""; 0]);
        assert_eq!(
            found(&["gate", "queue"]),
            ["there is no `approval/queue`", "`approval/action` is not in the order"]
        );
    }
}
