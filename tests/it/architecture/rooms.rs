//! What the rooms of `src/` know of each other, and whether their layers and the law allow it.

use std::collections::{BTreeMap, BTreeSet};

use super::law::{Law, Names};
use super::modules::{Mention, Modules, Target, crate_name};
use super::names::Segments;
use super::order;
use super::picture::Layer;

/// The rooms of the picture with the code that is in them. A folder that has a rule of its own is a room in another.
pub(super) struct Rooms {
    modules: Modules,
    mentions: Vec<Mention>,
    /// What holds for each room, by the path of its module.
    rules: BTreeMap<Segments, Rules>,
    /// The rooms that may name a crate.
    crates: BTreeMap<String, Vec<Segments>>,
    /// The places that name a room above theirs, in the rooms whose rooms have an order.
    upward: Vec<String>,
    /// What is wrong with the picture and the law themselves.
    faults: Vec<String>,
}

/// What holds for a room.
#[derive(Debug, Default)]
struct Rules {
    /// Counted from the top.
    layer: usize,
    /// Whether the picture has the room, and not the law alone.
    is_in_picture: bool,
    only: Option<Names>,
    never: Names,
}

impl Rooms {
    pub(super) fn new(modules: Modules, layers: Vec<Layer>, law: Law) -> Self {
        let mentions = modules.mentions();
        let mut rooms = Self {
            modules,
            mentions,
            rules: BTreeMap::new(),
            crates: BTreeMap::new(),
            upward: Vec::new(),
            faults: Vec::new(),
        };
        for (number, layer) in layers.into_iter().enumerate() {
            for name in layer.rooms {
                rooms.add(&name, number);
            }
        }
        let missing = rooms.modules.at_the_root().filter(|path| !rooms.rules.contains_key(*path));
        let missing: Vec<String> =
            missing.map(|path| format!("`{}` is not in the picture", path.join("/"))).collect();
        rooms.faults.extend(missing);
        rooms.enact(law);
        rooms
    }

    /// Adds a room of the picture.
    fn add(&mut self, name: &str, layer: usize) {
        let path = segments(name.trim_end_matches(".rs").trim_end_matches('/'));
        let file = if name.ends_with('/') { format!("{name}mod.rs") } else { name.to_owned() };
        if self.modules.file(&path) != Some(file.as_str()) {
            self.faults.push(format!("there is no `src/{name}`"));
        }
        if self.rules.insert(path, Rules { layer, is_in_picture: true, ..Rules::default() }).is_some() {
            self.faults.push(format!("`{name}` is in the picture twice"));
        }
    }

    fn enact(&mut self, law: Law) {
        for (name, names) in law.only {
            self.check_names("knows only", &name, &names, false);
            if let Some(rules) = self.rules_of(&name) {
                rules.only = Some(names);
            }
        }
        for (name, names) in law.never {
            self.check_names("never knows", &name, &names, true);
            if let Some(rules) = self.rules_of(&name) {
                rules.never = names;
            }
        }
        for (name, rooms) in law.crates {
            if !self.modules.may_name(&name) {
                self.faults.push(format!("`{name}` is no crate that may be named"));
            }
            let unknown = rooms.iter().filter(|room| !self.rules.contains_key(&segments(room)));
            let unknown: Vec<String> =
                unknown.map(|room| format!("`{room}` may name `{name}`, and is no room")).collect();
            self.faults.extend(unknown);
            let rooms = rooms.iter().map(|room| segments(room)).collect();
            self.crates.insert(crate_name(&name), rooms);
        }
        for (name, rooms) in law.order {
            let folder = segments(&name);
            self.faults.extend(order::faults(&self.modules, &folder, &rooms));
            self.upward.extend(order::upward(&self.modules, &self.mentions, &folder, &rooms));
        }
    }

    /// The rules of a room which the law names: one of the picture, or a folder in one, which becomes a room by that.
    fn rules_of(&mut self, name: &str) -> Option<&mut Rules> {
        let path = segments(name);
        let around = self.room_of(&path).map(|room| self.rules[room].layer);
        let Some(layer) = around.filter(|_| self.modules.contain(&path)) else {
            self.faults.push(format!("the law names `{name}`, which is no room"));
            return None;
        };
        Some(self.rules.entry(path).or_insert(Rules { layer, ..Rules::default() }))
    }

    fn check_names(&mut self, verb: &str, room: &str, names: &[String], may_be_crates: bool) {
        for name in names {
            let is_crate = may_be_crates && self.modules.may_name(name);
            if !is_crate && !self.modules.contain(&segments(name)) {
                self.faults.push(format!("`{room}` {verb} `{name}`, which does not exist"));
            }
        }
    }

    /// Where the picture or the law names what is not there, or does not name what is there.
    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }

    /// The places where a room inside a room names one above it.
    pub(super) fn upward(&self) -> &[String] {
        &self.upward
    }

    /// Where a room knows what it must not.
    pub(super) fn violations(&self) -> Vec<String> {
        let judged = self.mentions.iter().filter_map(|mention| {
            let room = self.room_of(&mention.module)?;
            let word = self.forbidden(room, &mention.target)?;
            let Mention { target, place, .. } = mention;
            Some(format!("`{}` never knows {word}: {place} names {target}", room.join("/")))
        });
        judged.collect()
    }

    /// What `room` knows against its rules, if `target` is such a thing.
    fn forbidden(&self, room: &[String], target: &Target) -> Option<String> {
        let rules = &self.rules[room];
        let path = match target {
            Target::Outside(path) => {
                let is_reserved = self.crates.get(&path[0]).is_some_and(|rooms| !may_name(rooms, room));
                let is_named = rules.never.iter().any(|word| crate_name(word) == path[0]);
                return (is_reserved || is_named).then(|| format!("`{}`", path[0]));
            }
            Target::Inside(path) if path.is_empty() => return Some("the whole crate".to_owned()),
            Target::Inside(path) => path,
        };
        let Some(known) = self.room_of(path) else { return Some("what is in no room".to_owned()) };
        if known == room {
            return None;
        }
        if self.rules[known].layer < rules.layer {
            return Some(format!("`{}`, which is in a layer above it", known.join("/")));
        }
        if let Some(word) = rules.never.iter().find(|word| path.starts_with(&segments(word))) {
            return Some(format!("`{word}`"));
        }
        let exceptions = rules.only.as_ref()?;
        let is_exception = exceptions.iter().any(|word| path.starts_with(&segments(word)));
        (!is_exception).then(|| format!("`{}`", known.join("/")))
    }

    /// What the law permits and no code needs.
    pub(super) fn needless_permissions(&self) -> Vec<String> {
        let only = self
            .rules
            .iter()
            .flat_map(|(room, rules)| rules.only.iter().flatten().map(move |exception| (room, exception)));
        let unused = only.filter(|(room, exception)| {
            let exception = segments(exception);
            !self.mentions.iter().any(|mention| {
                self.room_of(&mention.module) == Some(*room)
                    && matches!(&mention.target, Target::Inside(path) if path.starts_with(&exception))
            })
        });
        let unused = unused.map(|(room, name)| format!("`{}` does not know `{name}`", room.join("/")));
        let crates = self.crates.iter().flat_map(|(name, rooms)| rooms.iter().map(move |room| (room, name)));
        let unnamed = crates.filter(|(room, name)| {
            !self.mentions.iter().any(|mention| {
                mention.module.starts_with(room)
                    && matches!(&mention.target, Target::Outside(path) if path[0] == **name)
            })
        });
        let unnamed = unnamed.map(|(room, name)| format!("`{}` does not name `{name}`", room.join("/")));
        unused.chain(unnamed).collect()
    }

    /// The places that name one of `paths`, which are of other crates, in those modules of `src/` for whose paths
    /// `is_meant` holds.
    pub(super) fn namings(&self, paths: &[&str], is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let paths: Vec<Segments> =
            paths.iter().map(|path| path.split("::").map(crate_name).collect()).collect();
        let found = self.mentions.iter().filter(|mention| {
            let is_listed = |target: &Segments| paths.iter().any(|path| target.starts_with(path));
            is_meant(&mention.module.join("/"))
                && matches!(&mention.target, Target::Outside(target) if is_listed(target))
        });
        found.map(|mention| format!("{} names {}", mention.place, mention.target)).collect()
    }

    /// Which rooms of the picture know which.
    pub(super) fn pairs(&self) -> BTreeSet<(String, String)> {
        self.known().map(|(knowing, known)| (knowing.join("/"), known.join("/"))).collect()
    }

    /// The same as one sees it who opens folder after folder: what leads from a room in one folder to a room in another
    /// is an arrow between the two folders.
    pub(super) fn arrows(&self) -> BTreeSet<(String, String)> {
        let arrows = self.known().map(|(knowing, known)| {
            let shared = knowing.iter().zip(known).take_while(|(one, other)| one == other).count();
            let seen = |path: &[String]| path[..path.len().min(shared + 1)].join("/");
            (seen(knowing), seen(known))
        });
        arrows.collect()
    }

    fn known(&self) -> impl Iterator<Item = (&Segments, &Segments)> {
        let pairs = self.mentions.iter().filter_map(|mention| {
            let Target::Inside(path) = &mention.target else { return None };
            Some((self.room_in_picture(&mention.module)?, self.room_in_picture(path)?))
        });
        pairs.filter(|(knowing, known)| knowing != known)
    }

    /// The arrows that are parts of circles, or between two of them.
    pub(super) fn circles(&self) -> BTreeSet<(String, String)> {
        in_circles(self.arrows())
    }

    /// The same of files. That a folder's `mod.rs` knows what is in the folder does not count: it is its face.
    pub(super) fn circles_of_files(&self) -> BTreeSet<(String, String)> {
        let pairs = self.mentions.iter().filter_map(|mention| {
            let Target::Inside(path) = &mention.target else { return None };
            let home = self.modules.home(path);
            let is_below = home.starts_with(&mention.module);
            let [knowing, known] = [&mention.module, &home].map(|path| self.modules.file(path));
            (!is_below).then_some((knowing?.to_owned(), known?.to_owned()))
        });
        in_circles(pairs.filter(|(knowing, known)| knowing != known).collect())
    }

    /// The same of folders, and of files beside them, at each level of the tree: a path leads from the one of two siblings in
    /// which it is written to the other in which it ends. That a folder and the `mod.rs` above it know each other does not count.
    pub(super) fn circles_of_folders(&self) -> BTreeSet<(String, String)> {
        let pairs = self.mentions.iter().filter_map(|mention| {
            let Target::Inside(path) = &mention.target else { return None };
            let home = self.modules.home(path);
            let shared = mention.module.iter().zip(&home).take_while(|(one, other)| one == other).count();
            let [knowing, known] = [&mention.module, &home].map(|path| path.get(..=shared));
            Some((knowing?.join("/"), known?.join("/")))
        });
        in_circles(pairs.collect())
    }

    /// The innermost room that a module, or what is in one, belongs to. The root is no room.
    fn room_of(&self, path: &[String]) -> Option<&Segments> {
        self.rooms_around(path).next()
    }

    fn room_in_picture(&self, path: &[String]) -> Option<&Segments> {
        self.rooms_around(path).find(|room| self.rules[*room].is_in_picture)
    }

    fn rooms_around(&self, path: &[String]) -> impl Iterator<Item = &Segments> {
        let paths = (1..=path.len()).rev().map(|length| &path[..length]);
        paths.filter_map(|path| self.rules.get_key_value(path)).map(|(room, _)| room)
    }
}

/// The pairs that are parts of circles, or between two of them.
pub(super) fn in_circles(mut pairs: BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    loop {
        let (knowing, known): (BTreeSet<String>, BTreeSet<String>) = pairs.iter().cloned().unzip();
        let before = pairs.len();
        // Who knows nobody who is left, or is known to nobody, is in no circle.
        pairs.retain(|(one, other)| known.contains(one) && knowing.contains(other));
        if pairs.len() == before {
            return pairs;
        }
    }
}

/// Whether `room` is one of `rooms`, or in one.
fn may_name(rooms: &[Segments], room: &[String]) -> bool {
    rooms.iter().any(|path| room.starts_with(path))
}

/// The path of a room or module from the root.
fn segments(name: &str) -> Segments {
    name.split('/').map(str::to_owned).collect()
}

mod tests {
    use std::collections::BTreeSet;

    use super::{Law, Rooms};
    use crate::architecture::modules::Modules;
    use crate::architecture::picture::layers;

    const ONE_LAYER: &str = "kernel/, mcp/, describe.rs  ALL";

    /// A small crate. `kernel` has `own`, and `mcp` has `wire`.
    fn rooms_in(picture: &str, law: &str, own: &str, wire: &str) -> Rooms {
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
        let layers = layers(&format!("## The rooms\n```text\n{picture}\n```\n"));
        Rooms::new(Modules::of(crates, text_of), layers, Law::read(law))
    }

    fn rooms(law: &str, own: &str, wire: &str) -> Rooms {
        rooms_in(ONE_LAYER, law, own, wire)
    }

    #[track_caller]
    fn check(law: &str, own: &str, expected: &[&str]) {
        let rooms = rooms(law, own, "");
        assert_eq!(rooms.faults().join("; "), "");
        assert_eq!(rooms.violations(), expected);
    }

    #[test]
    fn a_room_may_know_what_no_rule_forbids() {
        check("", "use crate::mcp::Client; use rmcp::model;", &[]);
        check("never.kernel = ['mcp']", "use crate::describe::describe; use crate::kernel::own;", &[]);
    }

    #[test]
    fn a_forbidden_room_is_found_with_its_place() {
        let found = "`kernel` never knows `mcp`: src/kernel/own.rs:2 names crate::mcp::wire::Line";
        check("never.kernel = ['mcp']", "\nuse crate::mcp::wire::Line;", &[found]);
        let law = "never.kernel = ['mcp/wire']";
        check(law, "\nuse crate::mcp::wire::Line;", &[&found.replace("knows `mcp`", "knows `mcp/wire`")]);
        check(law, "use crate::mcp::Client;", &[]);
    }

    #[test]
    fn a_forbidden_room_is_found_behind_a_public_name() {
        let found = "`kernel` never knows `mcp`: src/kernel/own.rs:1 names crate::mcp::Client";
        check("never.kernel = ['mcp']", "use crate::Client;", &[found]);
    }

    #[test]
    fn a_room_of_a_layer_above_is_found() {
        let picture = "mcp/  TOP\nkernel/, describe.rs  BOTTOM";
        let text = "use crate::mcp::Client; use crate::describe::describe;";
        let found = "`kernel` never knows `mcp`, which is in a layer above it: src/kernel/own.rs:1 names crate::mcp::Client";
        assert_eq!(rooms_in(picture, "", text, "use crate::kernel::own;").violations(), [found]);
    }

    #[test]
    fn a_forbidden_crate_is_found() {
        let text = "fn f() { tokio_util::io::read(); }";
        let found = "`kernel` never knows `tokio_util`: src/kernel/own.rs:1 names tokio_util::io::read";
        check("never.kernel = ['tokio-util']", text, &[found]);
        check("crates.tokio-util = ['mcp']", text, &[found]);
        check("crates.tokio-util = ['kernel']", text, &[]);
    }

    #[test]
    fn only_is_no_other_room() {
        check("only.kernel = []", "use super::own; use crate::kernel::own::f; use rmcp::model;", &[]);
        let text = "use crate::mcp::wire; use crate::describe::describe;";
        let [wire, describe] = [
            "`kernel` never knows `mcp`: src/kernel/own.rs:1 names crate::mcp::wire",
            "`kernel` never knows `describe`: src/kernel/own.rs:1 names crate::describe::describe",
        ];
        check("only.kernel = []", text, &[wire, describe]);
        check("only.kernel = ['describe']", text, &[wire]);
        check("only.kernel = ['mcp/wire']", text, &[describe]);
        check("only.kernel = ['describe', 'mcp/wire']", text, &[]);
    }

    #[test]
    fn nobody_imports_the_whole_crate() {
        let found = "`kernel` never knows the whole crate: src/kernel/own.rs:1 names crate::";
        check("", "use crate::*;", &[found]);
    }

    #[test]
    fn a_room_in_another_has_rules_of_its_own() {
        let law = "never.mcp = ['describe']\nnever.'mcp/wire' = ['kernel']";
        let rooms = rooms(law, "", "use crate::describe::describe; use crate::kernel::own;");
        assert_eq!(rooms.faults(), [""; 0]);
        let found = "`mcp/wire` never knows `kernel`: src/mcp/wire.rs:1 names crate::kernel::own";
        assert_eq!(rooms.violations(), [found]);
    }

    #[test]
    fn the_picture_has_every_room_once() {
        let faults = |picture: &str| rooms_in(picture, "", "", "").faults().to_vec();
        assert_eq!(faults(ONE_LAYER), [""; 0]);
        assert_eq!(faults("kernel/, describe.rs  ALL"), ["`mcp` is not in the picture"]);
        assert_eq!(faults(&format!("{ONE_LAYER}\ntools/  none")), ["there is no `src/tools/`"]);
        assert_eq!(faults(&format!("{ONE_LAYER}\nmcp/  again")), ["`mcp/` is in the picture twice"]);
    }

    #[test]
    fn the_law_names_what_is_there() {
        let law = "crates.zeromq = ['tools']\nonly.kernel = ['wire', 'rmcp']\nnever.kernel = ['zeromq']\nnever.tools = []";
        let expected = [
            "`kernel` knows only `wire`, which does not exist",
            "`kernel` knows only `rmcp`, which does not exist",
            "`kernel` never knows `zeromq`, which does not exist",
            "the law names `tools`, which is no room",
            "`zeromq` is no crate that may be named",
            "`tools` may name `zeromq`, and is no room",
        ];
        assert_eq!(rooms(law, "", "").faults(), expected);
    }

    #[test]
    fn a_needless_permission_is_found() {
        let law = "crates.rmcp = ['kernel', 'mcp']\nonly.kernel = ['describe', 'mcp']";
        let rooms = rooms(law, "use crate::mcp::Client; use rmcp::model;", "");
        let expected = ["`kernel` does not know `describe`", "`mcp` does not name `rmcp`"];
        assert_eq!(rooms.needless_permissions(), expected);
    }

    fn named<'a>(pairs: &[(&'a str, &'a str)]) -> BTreeSet<(String, String)> {
        pairs.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect()
    }

    #[test]
    fn pairs_and_circles_are_found() {
        let one_way = rooms("", "use crate::mcp::wire; use crate::describe::describe;", "");
        assert_eq!(one_way.pairs(), named(&[("kernel", "describe"), ("kernel", "mcp")]));
        assert_eq!(one_way.circles(), named(&[]));
        let text = "fn f() { crate::kernel::own::f(); }";
        let circle = rooms("", "use crate::mcp::wire; use crate::describe::describe;", text);
        assert_eq!(circle.circles(), named(&[("kernel", "mcp"), ("mcp", "kernel")]));
        let files = [("kernel/own.rs", "mcp/wire.rs"), ("mcp/wire.rs", "kernel/own.rs")];
        assert_eq!(circle.circles_of_files(), named(&files));
    }

    #[test]
    fn circles_of_folders_are_found_in_a_room() {
        let own = |of_z: &str| {
            format!(
                "mod a {{ mod x {{ use super::super::b::y; }} mod z {{}} }} mod b {{ mod y {{}} mod z {{ {of_z} }} }}"
            )
        };
        assert_eq!(rooms("", &own(""), "").circles_of_folders(), named(&[]));
        let circle = rooms("", &own("use super::super::a::z;"), "");
        let [a, b] = ["kernel/own/a", "kernel/own/b"];
        assert_eq!(circle.circles_of_folders(), named(&[(a, b), (b, a)]));
        assert_eq!(circle.circles_of_files(), named(&[]));
    }

    #[test]
    fn arrows_lead_between_the_folders_in_which_paths_part() {
        let picture = "kernel/  ONE\n  own.rs  in it\nmcp/, describe.rs  TWO\n  wire.rs  in it";
        let text = "use crate::kernel::f; use crate::mcp::wire; use crate::mcp::Client;";
        let rooms = rooms_in(picture, "", text, "");
        assert_eq!(rooms.faults(), [""; 0]);
        let pairs = [("kernel/own", "kernel"), ("kernel/own", "mcp"), ("kernel/own", "mcp/wire")];
        assert_eq!(rooms.pairs(), named(&pairs));
        assert_eq!(rooms.arrows(), named(&[("kernel", "mcp"), ("kernel/own", "kernel")]));
    }

    #[test]
    fn namings_are_found() {
        let text = "fn f(gate: Gate) { assert!(gate.decide(rmcp::model::new())); }";
        let rooms = rooms("", text, "");
        let found = ["src/kernel/own.rs:1 names rmcp::model::new"];
        assert_eq!(rooms.namings(&["rmcp::model"], |module| module == "kernel/own"), found);
        assert_eq!(rooms.namings(&["rmcp::model"], |module| module != "kernel/own"), [""; 0]);
        assert_eq!(rooms.namings(&["rmcp::transport"], |room| room == "kernel"), [""; 0]);
    }
}
