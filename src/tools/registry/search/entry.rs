//! The index's entry of a tool: the words by which it is found, and the texts that answers show.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use super::intent::SearchIntent;
use super::words::{spelled, words};
use ipybox_codegen::{self as codegen, Tool};

/// The part of a description that counts, in bytes. What matters comes first.
const DESCRIPTION_BYTES: usize = 4 * 1024;
/// The number of properties of a tool's arguments that count, those of nested objects among them.
const PROPERTIES: usize = 100;
/// The depth to which arguments are read.
const DEPTH: usize = 4;
/// The part of a property's description that counts, in bytes, and the number of its values.
const PROPERTY_BYTES: usize = 200;
const VALUES: usize = 20;

/// The weight of a word by its place; `benches/search.rs` measures the result.
const NAME: f32 = 3.0;
const TITLE: f32 = 1.5;
const SERVER: f32 = 3.0;
pub(super) const SUMMARY: f32 = 2.0;
const DESCRIPTION: f32 = 1.0;
const PROPERTY: f32 = 0.5;
const PROPERTY_TEXT: f32 = 0.25;

/// A tool in the index.
#[derive(Debug)]
pub(super) struct IndexEntry {
    /// The server, by the name of its package; of an action its own name, by which code calls it.
    pub(super) server: String,
    /// The tool, by the name of its module; of an action the package above, `gentools.<category>`.
    pub(super) module: String,
    pub(super) kind: EntryKind,
    pub(super) call: codegen::CallOverview,
    /// The words of its name, each with how rare it is.
    pub(super) name: Vec<(String, f32)>,
    pub(super) intent: SearchIntent,
}

/// The kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Tool,
    Action,
}

/// A saved action that can be used.
#[derive(Debug, Clone)]
pub(crate) struct FoundAction {
    pub(crate) category: String,
    pub(crate) name: String,
    pub(crate) summary: String,
    /// The number of cells in which it has worked, in words; may be empty.
    pub(crate) uses: String,
    pub(crate) description: String,
    /// `run(path: str) -> list[str]`
    pub(crate) call: String,
    pub(crate) input_schema: Map<String, Value>,
}

impl IndexEntry {
    /// The entry of an action, and the words by which it is found, each with its weight.
    pub(super) fn of_action(action: &FoundAction) -> (Self, BTreeMap<String, f32>) {
        let FoundAction { category, name, summary, uses, description, call, input_schema } = action;
        let rest = description.get(summary.len()..).unwrap_or_default();
        let mut weights = Weights::default();
        weights.add(NAME, name);
        weights.add(TITLE, category);
        weights.add(SUMMARY, summary);
        weights.add(DESCRIPTION, &rest[..rest.floor_char_boundary(DESCRIPTION_BYTES)]);
        weights.add_properties(input_schema, DEPTH, &mut PROPERTIES.clone());
        let overview = format!("{call}\n\n{description}");
        let call = codegen::CallOverview {
            summary: format!("{summary}{uses}"),
            signature: call.clone(),
            classes: String::new(),
            overview,
        };
        let entry = Self {
            server: name.clone(),
            module: format!("gentools.{category}"),
            kind: EntryKind::Action,
            call,
            name: words(name).into_iter().map(|word| (word, 0.0)).collect(),
            intent: SearchIntent::of(&spelled(name)),
        };
        (entry, weights.0)
    }

    /// The entry of a tool, and the words by which it is found, each with its weight.
    pub(super) fn new(server: &str, tool: &Tool, module: String) -> (Self, BTreeMap<String, f32>) {
        let call = codegen::call_overview(tool);
        let description = tool.description.as_deref().unwrap_or_default();
        let (first, rest) = description.split_at(description.floor_char_boundary(call.summary.len()));
        let mut weights = Weights::default();
        weights.add(NAME, &tool.name);
        weights.add(SERVER, server);
        weights.add(TITLE, tool.title.as_deref().unwrap_or_default());
        weights.add(SUMMARY, first);
        weights.add(DESCRIPTION, &rest[..rest.floor_char_boundary(DESCRIPTION_BYTES)]);
        weights.add_properties(&tool.input_schema, DEPTH, &mut PROPERTIES.clone());
        let name = words(&tool.name).into_iter().map(|word| (word, 0.0)).collect();
        let intent = SearchIntent::of(&spelled(&tool.name));
        (Self { server: server.to_owned(), module, kind: EntryKind::Tool, call, name, intent }, weights.0)
    }

    /// The part of its name that `words` cover, in which rare words count more.
    pub(super) fn covered(&self, words: &HashSet<&str>) -> f32 {
        let all: f32 = self.name.iter().map(|(_, rarity)| rarity).sum();
        let have = self.name.iter().filter(|(word, _)| words.contains(word.as_str()));
        if all > 0.0 { have.map(|(_, rarity)| rarity).sum::<f32>() / all } else { 0.0 }
    }

    /// The path by which code calls it.
    pub(super) fn path(&self) -> String {
        match self.kind {
            EntryKind::Tool => format!("{}.{}", self.server, self.module),
            EntryKind::Action => self.server.clone(),
        }
    }

    /// The package from which code imports the name that its call begins with.
    pub(super) fn package(&self) -> &str {
        match self.kind {
            EntryKind::Tool => "mcptools",
            EntryKind::Action => &self.module,
        }
    }
}

/// The weights of words, in an order of their own: sums of them are always the same.
#[derive(Default)]
struct Weights(BTreeMap<String, f32>);

impl Weights {
    fn add(&mut self, weight: f32, text: &str) {
        for word in words(text) {
            *self.0.entry(word).or_default() += weight;
        }
    }

    /// Adds the names, descriptions and values of an object's properties, and of those below, as long as some are `left`.
    fn add_properties(&mut self, schema: &Map<String, Value>, depth: usize, left: &mut usize) {
        if depth == 0 {
            return;
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            if *left == 0 {
                return;
            }
            *left -= 1;
            self.add(PROPERTY, name);
            let Some(property) = property.as_object() else { continue };
            let text = property.get("description").and_then(Value::as_str).unwrap_or_default();
            self.add(PROPERTY_TEXT, &text[..text.floor_char_boundary(PROPERTY_BYTES)]);
            let values = property.get("enum").and_then(Value::as_array);
            for value in values.into_iter().flatten().take(VALUES).filter_map(Value::as_str) {
                self.add(PROPERTY_TEXT, value);
            }
            self.add_properties(property, depth - 1, left);
            if let Some(items) = property.get("items").and_then(Value::as_object) {
                self.add_properties(items, depth - 1, left);
            }
        }
    }
}
