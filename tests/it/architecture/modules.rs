//! The modules of `src/`, and to what the paths in them lead. The program `main.rs` and the library count as one tree,
//! in which `ipybox::` means the library's root.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use super::names::{Named, Names, Segments};

/// How many imports of imports are followed: more than code has.
const FOLLOWED: usize = 16;

/// To what a path leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// A module of `src/`, or what is in it, by its path from the root.
    Inside(Segments),
    /// Another crate, or what is in it.
    Outside(Segments),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside(segments) => write!(formatter, "crate::{}", segments.join("::")),
            Self::Outside(segments) => formatter.write_str(&segments.join("::")),
        }
    }
}

/// That a module names something.
#[derive(Clone, Debug)]
pub(super) struct Mention {
    pub(super) module: Segments,
    pub(super) target: Target,
    /// File and line.
    pub(super) place: String,
}

#[derive(Debug)]
struct Module {
    file: String,
    names: Names,
    /// The path below which its own modules are.
    directory: Segments,
}

/// All modules that are compiled without tests.
#[derive(Debug)]
pub(super) struct Modules {
    modules: BTreeMap<Segments, Module>,
    crates: BTreeSet<String>,
}

impl Modules {
    /// Reads the modules of the directory `src`. `crates` are those that it may name, as code writes them.
    pub(super) fn read(src: &Path, crates: BTreeSet<String>) -> Self {
        Self::of(crates, |file| std::fs::read_to_string(src.join(file)).ok())
    }

    /// Follows `mod` from `lib.rs` and `main.rs`; `text_of` has the text of a file, if there is one.
    pub(super) fn of(crates: BTreeSet<String>, text_of: impl Fn(&str) -> Option<String>) -> Self {
        let mut modules = Self { modules: BTreeMap::new(), crates };
        for (file, path) in [("lib.rs", vec![]), ("main.rs", vec!["main".to_owned()])] {
            if let Some(text) = text_of(file) {
                modules.add(path, &[], file, Names::of(&text), &text_of);
            }
        }
        modules
    }

    fn add(
        &mut self,
        path: Segments,
        directory: &[String],
        file: &str,
        mut names: Names,
        text_of: &impl Fn(&str) -> Option<String>,
    ) {
        for (name, inner) in std::mem::take(&mut names.inline) {
            let child = joined(directory, &name);
            self.add(child.clone(), &child, file, inner, text_of);
        }
        for name in &names.files {
            let child = joined(directory, name);
            let files = [".rs", "/mod.rs"].map(|ending| child.join("/") + ending);
            let found = files.iter().find_map(|file| Some((file, text_of(file)?)));
            let (file, text) = found.unwrap_or_else(|| panic!("neither {} nor {}", files[0], files[1]));
            self.add(child.clone(), &child, file, Names::of(&text), text_of);
        }
        self.modules.insert(path, Module { file: file.to_owned(), names, directory: directory.to_vec() });
    }

    /// Whether there is a module of this path from the root.
    pub(super) fn contain(&self, path: &[String]) -> bool {
        self.modules.contains_key(path)
    }

    /// The file that a module is in, from `src/`.
    pub(super) fn file(&self, path: &[String]) -> Option<&str> {
        self.modules.get(path).map(|module| module.file.as_str())
    }

    /// The modules that the library and the program consist of.
    pub(super) fn at_the_root(&self) -> impl Iterator<Item = &Segments> {
        self.modules.keys().filter(|path| path.len() == 1)
    }

    /// The modules right inside another one.
    pub(super) fn inside(&self, path: &[String]) -> impl Iterator<Item = &Segments> {
        self.modules.keys().filter(move |inner| inner.len() == path.len() + 1 && inner.starts_with(path))
    }

    /// Whether `name`, as `Cargo.toml` writes it, is a crate that code may name.
    pub(super) fn may_name(&self, name: &str) -> bool {
        self.crates.contains(&crate_name(name))
    }

    /// Everything that the modules name and that is not known to be within themselves.
    pub(super) fn mentions(&self) -> Vec<Mention> {
        let mentions = self.modules.iter().flat_map(|(path, module)| {
            module.names.paths.iter().filter_map(move |named| {
                let target = self.lookup(path, &named.segments, FOLLOWED)?;
                Some(Mention { module: path.clone(), target, place: place(module, named) })
            })
        });
        mentions.collect()
    }

    /// To what `written` leads in `module`; nowhere, if it begins with an item that is in scope there.
    fn lookup(&self, module: &[String], written: &[String], left: usize) -> Option<Target> {
        let left = left.checked_sub(1)?;
        let (first, rest) = written.split_first()?;
        match first.as_str() {
            "" => self.outside(rest, left),
            "crate" => Some(self.follow(rest, left)),
            "self" => Some(self.follow(&[module, rest].concat(), left)),
            "super" => {
                let supers = written.iter().take_while(|segment| *segment == "super").count();
                let ancestor = &module[..module.len().checked_sub(supers)?];
                Some(self.follow(&[ancestor, &written[supers..]].concat(), left))
            }
            _ => self.in_scope(module, written, left).or_else(|| self.outside(written, left)),
        }
    }

    /// A path that begins with a name of `module`: a module in it, or what it imports.
    fn in_scope(&self, module: &[String], written: &[String], left: usize) -> Option<Target> {
        let (first, rest) = written.split_first()?;
        let Module { names, directory, .. } = self.modules.get(module)?;
        let child = joined(directory, first);
        if self.contain(&child) {
            return Some(self.follow(&[&child, rest].concat(), left));
        }
        if let Some(import) = names.import(first) {
            return self.lookup(module, &[&import.segments, rest].concat(), left);
        }
        let globs = names.globs.iter().filter(|glob| glob.as_slice() != std::slice::from_ref(first));
        let globs = globs.filter_map(|glob| self.lookup(module, glob, left));
        let mut imported = globs.filter_map(|glob| match glob {
            Target::Inside(glob) if self.has(&glob, first) => {
                Some(self.follow(&[&glob, written].concat(), left))
            }
            _ => None,
        });
        imported.next()
    }

    /// Whether `name` is a module in `module`, or imported there.
    fn has(&self, module: &[String], name: &str) -> bool {
        let imports = self.modules.get(module).and_then(|module| module.names.import(name));
        imports.is_some() || self.contain(&joined(module, name))
    }

    /// Goes along a path from the root. What the root imports means what it is imported from, since the root is a map and
    /// no room; so does what a module imports for itself, which those below it can name too.
    fn follow(&self, path: &[String], left: usize) -> Target {
        let known = (0..path.len()).take_while(|at| self.contain(&path[..=*at])).count();
        if let Some((name, rest)) = path[known..].split_first()
            && let Some(import) =
                self.modules.get(&path[..known]).and_then(|module| module.names.import(name))
            && (known == 0 || !import.is_shared)
            && let Some(target) = self.lookup(&path[..known], &[&import.segments, rest].concat(), left)
        {
            return target;
        }
        Target::Inside(path.to_vec())
    }

    /// The module that has what is at a path from the root, where modules share what others have.
    pub(super) fn home(&self, path: &[String]) -> Segments {
        let mut path = path.to_vec();
        for _ in 0..FOLLOWED {
            let known = (0..path.len()).take_while(|at| self.contain(&path[..=*at])).count();
            let (module, rest) = path.split_at(known);
            let import =
                rest.first().and_then(|name| self.modules.get(module).and_then(|it| it.names.import(name)));
            match import.and_then(|import| self.lookup(module, &import.segments, FOLLOWED)) {
                Some(Target::Inside(shared)) if shared != path => path = shared,
                _ => return module.to_vec(),
            }
        }
        path
    }

    fn outside(&self, path: &[String], left: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        if first == "ipybox" {
            return Some(self.follow(rest, left));
        }
        self.crates.contains(first).then(|| Target::Outside(path.to_vec()))
    }
}

fn joined(path: &[String], name: &str) -> Segments {
    [path, &[name.to_owned()]].concat()
}

fn place(module: &Module, named: &Named) -> String {
    format!("src/{}:{}", module.file, named.line)
}

/// A crate as code names it.
pub(super) fn crate_name(name: &str) -> String {
    name.replace('-', "_")
}

mod tests {
    use super::Modules;

    /// To what the paths in the module `kernel::own` lead, if this is its text.
    fn targets(own: &str) -> Vec<String> {
        let texts = [
            (
                "lib.rs",
                "mod describe; mod kernel; mod mcp; mod sandbox; pub use mcp::{Client, Error as McpError};",
            ),
            ("main.rs", "mod cli;"),
            ("cli.rs", ""),
            ("describe.rs", ""),
            (
                "kernel/mod.rs",
                "mod own; mod http; use crate::mcp::Tool; pub(crate) use crate::sandbox::Backend;",
            ),
            ("kernel/http.rs", ""),
            ("kernel/own.rs", own),
            ("kernel/own/wire.rs", ""),
            ("mcp/mod.rs", "pub(crate) mod tool { pub(crate) mod name {} }"),
            ("sandbox/mod.rs", "pub(crate) mod check;"),
            ("sandbox/check.rs", ""),
        ];
        let crates = ["std", "rmcp", "http", "serde"].map(str::to_owned).into();
        let modules =
            Modules::of(crates, |file| Some(texts.iter().find(|(name, _)| *name == file)?.1.to_owned()));
        let mentions = modules.mentions().into_iter();
        let own = mentions.filter(|mention| mention.module.join("::").starts_with("kernel::own"));
        own.map(|mention| mention.target.to_string()).collect()
    }

    #[track_caller]
    fn check(own: &str, expected: &[&str]) {
        assert_eq!(targets(own), expected, "{own}");
    }

    #[test]
    fn uses_are_taken_apart() {
        check("use crate::mcp;", &["crate::mcp"]);
        check(
            "use crate::{describe::describe, mcp::tool::{self, name::Name}};",
            &["crate::describe::describe", "crate::mcp::tool", "crate::mcp::tool::name::Name"],
        );
        check("pub(crate) use crate::mcp::{tool as t, *};", &["crate::mcp::tool", "crate::mcp"]);
        check("use crate::mcp::Trait as _;", &["crate::mcp::Trait"]);
        check("fn f() { use crate::mcp::Client; }", &["crate::mcp::Client"]);
        check(
            "mod inner { use super::super::http; use crate::mcp::Client; }",
            &["crate::kernel::http", "crate::mcp::Client"],
        );
    }

    #[test]
    fn relative_paths_become_absolute() {
        check("use super::http;", &["crate::kernel::http"]);
        check("use super::super::mcp::Client;", &["crate::mcp::Client"]);
        check(
            "mod wire; use self::wire::Line; use wire::Word;",
            &["crate::kernel::own::wire::Line", "crate::kernel::own::wire::Word"],
        );
        check("fn f() { super::super::sandbox::check::examine(); }", &["crate::sandbox::check::examine"]);
    }

    #[test]
    fn paths_are_found_in_all_of_the_syntax() {
        let found = &["crate::mcp::Client"];
        for text in [
            "fn f() { crate::mcp::Client; }",
            "fn f(client: &[Option<crate::mcp::Client>]) {}",
            "fn f() -> impl Iterator<Item = crate::mcp::Client> {}",
            "fn f<T: crate::mcp::Client>() {}",
            "fn f() { g::<crate::mcp::Client>() }",
            "fn f() { x.g::<crate::mcp::Client>() }",
            "fn f() { if let crate::mcp::Client { .. } = x {} }",
            "fn f() { let f = async move |x| { match x { _ if x == crate::mcp::Client => 1 } }; }",
            "impl crate::mcp::Client for X {}",
            "impl X { const A: crate::mcp::Client = 1; }",
            "trait X: crate::mcp::Client {}",
            "type X = <crate::mcp::Client as Y>::Z;",
            "enum X { A(#[from] crate::mcp::Client) }",
            "static X: [crate::mcp::Client; 2] = [];",
            "crate::mcp::Client!();",
        ] {
            check(text, found);
        }
        check("struct X(pub(in crate::kernel) u8);", &["crate::kernel"]);
    }

    #[test]
    fn paths_are_found_in_the_tokens_of_macros() {
        let found = &["crate::mcp::Client"];
        for text in [
            "fn f() { format!(\"{}\", crate::mcp::Client); }",
            "fn f() { json!({\"a\": [{\"b\": crate::mcp::Client}]}); }",
            "fn f() { info!(a = %crate::mcp::Client, \"text\"); }",
            "fn f() { vec![0..crate::mcp::Client] }",
            "fn f() { vec![return crate::mcp::Client] }",
            "fn f() { matches!(x, Some(super::super::mcp::Client)) }",
            "macro_rules! m { () => { $crate::mcp::Client }; }",
            "macro_rules! m { ($x:ty) => { impl From<$x> for Y<crate::mcp::Client> {} }; }",
        ] {
            check(text, found);
        }
        check(
            "m! { use crate::{mcp::{self, tool::*}, describe as d}; }",
            &["crate::mcp", "crate::mcp::tool", "crate::describe"],
        );
    }

    #[test]
    fn paths_are_found_in_attributes() {
        check("#[derive(serde::Serialize)] struct X;", &["serde::Serialize"]);
        check("#[rmcp::tool] fn f() {}", &["rmcp::tool"]);
        check("struct X { #[serde(with = \"crate::mcp::tool\")] x: u8 }", &["crate::mcp::tool"]);
        check(
            "enum E { #[error(\"no {}\", crate::describe::describe(.0))] A(u8) }",
            &["crate::describe::describe"],
        );
    }

    #[test]
    fn imported_names_mean_what_they_stand_for() {
        check(
            "use crate::sandbox as s; fn f() { s::check::examine(); }",
            &["crate::sandbox", "crate::sandbox::check::examine"],
        );
        check(
            "use crate::mcp::tool; fn f() { tool::name::Name::new(); }",
            &["crate::mcp::tool", "crate::mcp::tool::name::Name::new"],
        );
        check(
            "use super::super::sandbox::*; fn f() { check::examine(); }",
            &["crate::sandbox", "crate::sandbox::check::examine"],
        );
        check("use rmcp::model as m; fn f() { m::new(); }", &["rmcp::model", "rmcp::model::new"]);
        check("use rmcp as r; fn f() { r::new(); }", &["rmcp", "rmcp::new"]);
    }

    #[test]
    fn names_of_the_root_mean_what_they_stand_for() {
        check("use crate::Client;", &["crate::mcp::Client"]);
        check("use crate::McpError;", &["crate::mcp::Error"]);
        check("use ipybox::McpError;", &["crate::mcp::Error"]);
        check("fn f() { ipybox::describe::describe(); }", &["crate::describe::describe"]);
    }

    #[test]
    fn what_a_module_imports_for_itself_is_not_its_own() {
        check("use super::Tool;", &["crate::mcp::Tool"]);
        check("use super::*; fn f() { Tool::new(); }", &["crate::kernel", "crate::mcp::Tool::new"]);
        check("use super::Backend;", &["crate::kernel::Backend"]);
    }

    #[test]
    fn other_crates_are_found() {
        check("use rmcp; use std::{env, fs as files};", &["rmcp", "std::env", "std::fs"]);
        check(
            "fn f() { rmcp::model::new(); ::rmcp::model::new(); }",
            &["rmcp::model::new", "rmcp::model::new"],
        );
        check("fn f() { vec![rmcp::model::new(), ::rmcp::A] }", &["rmcp::model::new", "rmcp::A"]);
        check("extern crate rmcp;", &["rmcp"]);
        check("fn f() { http::get(); }", &["http::get"]);
        check(
            "use super::http; fn f() { http::get(); }",
            &["crate::kernel::http", "crate::kernel::http::get"],
        );
    }

    #[test]
    fn what_is_in_the_module_itself_leads_nowhere() {
        check("enum E { A } fn f(rmcp: u8) { E::A; Self::b(); rmcp + 1; x.rmcp; vec![rmcp, x.http()] }", &[]);
        check("use E::*; enum E { A }", &[]);
    }

    #[test]
    fn texts_are_no_paths() {
        check("//! [`crate::mcp::Client`]\n/// crate::mcp::Client\nstruct X; // crate::mcp::Client", &[]);
        check("fn f() -> &str { m!(\"crate::mcp::Client\"); \"crate::mcp::Client\" }", &[]);
    }

    #[test]
    fn tests_are_left_out() {
        for text in [
            "#[cfg(test)] use crate::mcp::Client;",
            "#[cfg(test)] mod tests { use crate::mcp::Client; }",
            "#[cfg(test)] mod tests;",
            "#[cfg(all(test, target_os = \"linux\"))] fn f() { crate::mcp::Client; }",
            "#[cfg(test)] impl crate::mcp::Client for X {}",
            "impl X { #[cfg(test)] fn f(client: crate::mcp::Client) {} }",
            "fn f() { #[cfg(test)] use crate::mcp::Client; }",
        ] {
            check(text, &[]);
        }
        check("#[cfg(not(test))] use crate::mcp::Client;", &["crate::mcp::Client"]);
        check("#[cfg(target_os = \"linux\")] use crate::mcp::Client;", &["crate::mcp::Client"]);
        check("#[cfg(any(test, unix))] use crate::mcp::Client;", &["crate::mcp::Client"]);
    }

    #[test]
    #[should_panic(expected = "hides to which room")]
    fn a_module_does_not_hide_its_place() {
        targets("#[path = \"../mcp/mod.rs\"] mod mcp;");
    }
}
