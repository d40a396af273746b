//! The paths that the text of a module names, as they are written there. What tests alone compile is left out.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, Token, UseTree, Visibility};

/// The segments of a path. One that begins with `::` has an empty first segment.
pub(super) type Segments = Vec<String>;

/// A path or a method, and the line that names it.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) segments: Segments,
    pub(super) line: usize,
}

/// A name that `use` brings into a module.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) name: String,
    pub(super) segments: Segments,
    /// It is not for this module alone: `pub use`, `pub(crate) use`.
    pub(super) is_shared: bool,
}

/// What the text of one module names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Modules that are declared here and have files of their own.
    pub(super) files: Vec<String>,
    /// Modules whose text is within this one.
    pub(super) inline: Vec<(String, Names)>,
    pub(super) imports: Vec<Import>,
    /// The modules whose names are all imported: `use a::b::*`.
    pub(super) globs: Vec<Segments>,
    /// Imports, and every path of more than one segment: what one segment names may be a variable.
    pub(super) paths: Vec<Named>,
}

impl Names {
    /// Panics if `text` is not Rust.
    pub(super) fn of(text: &str) -> Self {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"));
        Self::of_items(&file.items)
    }

    fn of_items(items: &[Item]) -> Self {
        let mut names = Self::default();
        items.iter().for_each(|item| names.visit_item(item));
        names
    }

    /// What brings `name` into the module, unless it is a crate that is imported as itself.
    pub(super) fn import(&self, name: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.name == name && import.segments != [name])
    }

    fn path(&mut self, segments: Segments, line: usize) {
        self.paths.push(Named { segments, line });
    }

    fn longer_path(&mut self, segments: Segments, line: usize) {
        if segments.len() > 1 {
            self.path(segments, line);
        }
    }

    fn imports(&mut self, tree: &UseTree, prefix: &[String], is_shared: bool) {
        let (name, alias) = match tree {
            UseTree::Path(path) => {
                return self.imports(&path.tree, &joined(prefix, text(&path.ident)), is_shared);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.imports(tree, prefix, is_shared));
            }
            UseTree::Glob(glob) => {
                self.globs.push(prefix.to_vec());
                return self.path(prefix.to_vec(), line(glob.star_token.spans[0]));
            }
            UseTree::Name(name) => (&name.ident, None),
            UseTree::Rename(rename) => (&rename.ident, Some(text(&rename.rename))),
        };
        let line = line(name.span());
        let segments = if name == "self" { prefix.to_vec() } else { joined(prefix, text(name)) };
        if let Some(name) = alias.or_else(|| segments.last().cloned()) {
            self.imports.push(Import { name, segments: segments.clone(), is_shared });
        }
        self.path(segments, line);
    }

    /// Reads tokens that no syntax tree has been made of: the insides of macros and of attributes.
    fn tokens(&mut self, trees: &[TokenTree]) {
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            at = match tree {
                TokenTree::Group(group) => {
                    self.tokens(&trees_of(group.stream()));
                    at + 1
                }
                TokenTree::Ident(ident) if is_other_keyword(ident) => at + 1,
                TokenTree::Ident(_) if follows_dot(trees, at) => at + 1,
                TokenTree::Ident(_) if follows_separator(trees, at) => {
                    self.path_in_tokens(trees, at, vec![String::new()])
                }
                TokenTree::Ident(_) => self.path_in_tokens(trees, at, Vec::new()),
                _ => at + 1,
            };
        }
    }

    /// Reads the path that begins with the token `at`, and returns the number of the token after it.
    fn path_in_tokens(&mut self, trees: &[TokenTree], mut at: usize, mut segments: Segments) -> usize {
        let line = trees.get(at).map_or(0, |tree| line(tree.span()));
        while let Some(TokenTree::Ident(ident)) = trees.get(at) {
            if ident != "self" || segments.is_empty() {
                segments.push(text(ident));
            }
            at += 1;
            if !is_separator(trees, at) {
                break;
            }
            at += 2;
            if let Some(TokenTree::Group(group)) = trees.get(at)
                && group.delimiter() == Delimiter::Brace
            {
                let trees = trees_of(group.stream());
                for part in trees.split(|tree| is_punctuation(tree, ',')).filter(|part| !part.is_empty()) {
                    self.path_in_tokens(part, 0, segments.clone());
                }
                return at + 1;
            }
        }
        self.longer_path(segments, line);
        at
    }

    /// `#[serde(with = "crate::text")]`: a path in quotes.
    fn quoted_paths(&mut self, trees: &[TokenTree]) {
        for tree in trees {
            match tree {
                TokenTree::Group(group) => self.quoted_paths(&trees_of(group.stream())),
                TokenTree::Literal(literal) => {
                    let quoted = syn::parse_str::<syn::LitStr>(&literal.to_string());
                    if let Some(path) = quoted.ok().and_then(|quoted| quoted.parse::<syn::Path>().ok()) {
                        self.longer_path(segments_of(&path), line(literal.span()));
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let has_path = module.attrs.iter().any(|attribute| attribute.path().is_ident("path"));
        assert!(!has_path, "`#[path]` hides to which room the module `{}` belongs", module.ident);
        module.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        match &module.content {
            Some((_, items)) => self.inline.push((text(&module.ident), Self::of_items(items))),
            None => self.files.push(text(&module.ident)),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let prefix = if item.leading_colon.is_some() { vec![String::new()] } else { Vec::new() };
        self.imports(&item.tree, &prefix, !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.path(vec![String::new(), text(&item.ident)], line(item.ident.span()));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let line = path.segments.first().map_or(0, |segment| line(segment.ident.span()));
        self.longer_path(segments_of(path), line);
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        if let Meta::List(list) = &attribute.meta {
            self.quoted_paths(&trees_of(list.tokens.clone()));
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.tokens(&trees_of(tokens.clone()));
    }
}

pub(super) fn line(span: Span) -> usize {
    span.start().line
}

fn text(ident: &syn::Ident) -> String {
    ident.unraw().to_string()
}

fn joined(prefix: &[String], name: String) -> Segments {
    [prefix, &[name]].concat()
}

fn segments_of(path: &syn::Path) -> Segments {
    let start = path.leading_colon.is_some().then(String::new);
    start.into_iter().chain(path.segments.iter().map(|segment| text(&segment.ident))).collect()
}

fn trees_of(tokens: TokenStream) -> Vec<TokenTree> {
    tokens.into_iter().collect()
}

fn is_punctuation(tree: &TokenTree, character: char) -> bool {
    matches!(tree, TokenTree::Punct(punctuation) if punctuation.as_char() == character)
}

fn is_punctuation_at(trees: &[TokenTree], at: Option<usize>, character: char) -> bool {
    at.and_then(|at| trees.get(at)).is_some_and(|tree| is_punctuation(tree, character))
}

/// Whether the tokens at `at` and after it are `::`.
fn is_separator(trees: &[TokenTree], at: usize) -> bool {
    is_punctuation_at(trees, Some(at), ':') && is_punctuation_at(trees, Some(at + 1), ':')
}

/// Whether `::` is before the token at `at`, as the beginning of a path: not `>::`.
fn follows_separator(trees: &[TokenTree], at: usize) -> bool {
    at >= 2 && is_separator(trees, at - 2) && !is_punctuation_at(trees, at.checked_sub(3), '>')
}

/// Whether `.` is before the token at `at`: not `..`.
fn follows_dot(trees: &[TokenTree], at: usize) -> bool {
    is_punctuation_at(trees, at.checked_sub(1), '.') && !is_punctuation_at(trees, at.checked_sub(2), '.')
}

/// Whether it is a keyword with which no path begins.
fn is_other_keyword(ident: &proc_macro2::Ident) -> bool {
    let begins_paths = ["crate", "self", "super", "Self"].iter().any(|keyword| ident == keyword);
    !begins_paths && syn::parse_str::<syn::Ident>(&ident.to_string()).is_err()
}

/// Whether only tests compile what has these attributes: `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args().is_ok_and(|condition| needs_test(&condition))
    })
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|conditions| conditions.iter().any(needs_test)),
        _ => false,
    }
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
