//! One JSON Schema document: the targets of its `$ref`s. Independent of Python.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// A JSON Schema object. (`true` and `false` are schemas too, so a place that holds a schema holds a [`Value`].)
pub(super) type Schema = Map<String, Value>;

/// The place of keywords that came from another schema than the ones around them and cannot be merged into one: a list
/// of schemas that must hold as well. No server sends this.
pub(super) const ALSO: &str = "$also";

/// Keywords whose value is itself data or names, never a schema: a search for `$id` must not descend into them.
pub(super) const DATA_KEYWORDS: [&str; 5] = ["const", "default", "enum", "examples", "required"];

/// The longest `$id` to which references are relative, in bytes: it is written into each of them.
const MAX_BASE_BYTES: usize = 200;

/// A schema document with the places in it that references can name.
pub(super) struct SchemaDocument<'a> {
    root: &'a Value,
    /// `$id`, `$anchor` and `$dynamicAnchor` values, as a `$ref` would spell them.
    anchors: HashMap<String, &'a Value>,
}

/// The target of a `$ref`.
pub(super) struct RefTarget<'a> {
    /// The same for all spellings of the same place.
    pub(super) key: String,
    /// The name of the place: the last step of the reference.
    pub(super) name: String,
    pub(super) schema: &'a Value,
}

impl<'a> SchemaDocument<'a> {
    /// Reads the anchors of `root`.
    pub(super) fn new(root: &'a Value) -> Self {
        let mut anchors = HashMap::new();
        collect_anchors(root, "", &mut anchors);
        Self { root, anchors }
    }

    /// The root schema.
    pub(super) fn root(&self) -> &'a Value {
        self.root
    }

    /// The place that `reference` names, if it lies in this document.
    pub(super) fn resolve(&self, reference: &str) -> Option<RefTarget<'a>> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let (start, base) = match self.anchors.get(base) {
            Some(schema) => (*schema, base),
            None if base.is_empty() => (self.root, ""),
            None => return None,
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let plain = format!("#{fragment}");
            let key = if self.anchors.contains_key(reference) { reference.to_owned() } else { plain };
            let schema = *self.anchors.get(&key)?;
            return Some(RefTarget { key, name: fragment.to_owned(), schema });
        }
        let steps: Vec<String> = fragment.split('/').skip(1).map(unescape).collect();
        let schema = steps.iter().try_fold(start, |at, step| match at {
            Value::Object(object) => object.get(step),
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        })?;
        let base = if std::ptr::eq(start, self.root) { "" } else { base };
        let name =
            steps.last().cloned().unwrap_or_else(|| base.rsplit('/').next().unwrap_or_default().to_owned());
        Some(RefTarget { key: format!("{base}#/{}", steps.join("/")), name, schema })
    }
}

/// `~1` is `/`, `~0` is `~`, and percent-encoding is undone: RFC 6901, section 6.
fn unescape(step: &str) -> String {
    percent_decode_str(step).decode_utf8_lossy().replace("~1", "/").replace("~0", "~")
}

/// Finds every schema under `schema` that has a name of its own. `base` is the `$id` that holds for `schema`.
fn collect_anchors<'a>(schema: &'a Value, base: &str, anchors: &mut HashMap<String, &'a Value>) {
    // Outer schemas come first: of several dynamic anchors of one name, the outermost is meant.
    let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
    if let Some(id) = text("$id") {
        anchors.entry(id.trim_end_matches('#').to_owned()).or_insert(schema);
        anchors.entry(id.to_owned()).or_insert(schema);
    }
    for anchor in [text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
        anchors.entry(format!("{base}#{anchor}")).or_insert(schema);
    }
    if let Some(anchor) = text("$dynamicAnchor") {
        anchors.entry(format!("#{anchor}")).or_insert(schema);
    }
    match schema {
        Value::Object(object) => {
            let schemas = object.iter().filter(|(keyword, _)| !DATA_KEYWORDS.contains(&keyword.as_str()));
            schemas.for_each(|(_, inner)| collect_anchors(inner, base_of(inner).unwrap_or(base), anchors));
        }
        Value::Array(items) => {
            items.iter().for_each(|inner| collect_anchors(inner, base_of(inner).unwrap_or(base), anchors));
        }
        _ => {}
    }
}

/// Completes the references below `schema` that begin with `#` and do not mean the whole document, but the schema around
/// them that has an `$id`.
pub(super) fn complete_references(schema: &mut Value) {
    complete_below(schema, "");
}

fn complete_below(schema: &mut Value, base: &str) {
    match schema {
        Value::Object(object) => {
            let schemas = object.iter_mut().filter(|(keyword, _)| !DATA_KEYWORDS.contains(&keyword.as_str()));
            for (keyword, inner) in schemas {
                match inner {
                    Value::String(reference) if keyword == "$ref" && reference.starts_with('#') => {
                        reference.insert_str(0, base);
                    }
                    _ => complete_in(inner, base),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| complete_in(inner, base)),
        _ => {}
    }
}

fn complete_in(schema: &mut Value, base: &str) {
    match base_of(schema).map(str::to_owned) {
        Some(own) => complete_below(schema, &own),
        None => complete_below(schema, base),
    }
}

/// The `$id` of a schema to which the references in it are relative. Up to draft-07 one with `#` was an anchor.
fn base_of(schema: &Value) -> Option<&str> {
    let id = schema.get("$id")?.as_str()?.trim_end_matches('#');
    (!id.is_empty() && !id.starts_with('#') && id.len() <= MAX_BASE_BYTES).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_pointers_anchors_or_ids() {
        let root = json!({
            "$id": "https://example.com/root.json",
            "$defs": {"a/b c": {"type": "string"}, "item": {"$anchor": "thing", "type": "integer"}},
            "properties": {"x": {"items": [{"type": "null"}]}},
        });
        let document = SchemaDocument::new(&root);
        let kind = |reference: &str| Some(document.resolve(reference)?.schema["type"].as_str()?.to_owned());
        assert_eq!(kind("#/$defs/a~1b%20c").as_deref(), Some("string"));
        assert_eq!(kind("#thing").as_deref(), Some("integer"));
        assert_eq!(kind("https://example.com/root.json#/$defs/item").as_deref(), Some("integer"));
        assert_eq!(kind("#/properties/x/items/0").as_deref(), Some("null"));
        assert_eq!(kind("#/$defs/missing"), None);
        assert_eq!(kind("other.json#/a"), None);
        assert!(document.resolve("#").is_some_and(|target| target.schema == &root));
    }
    #[test]
    fn references_in_a_schema_with_an_id_are_relative_to_it() {
        let mut root = json!({
            "properties": {"a": {"$ref": "order"}, "b": {"$ref": "#/$defs/item"}},
            "$defs": {
                "order": {
                    "$id": "order",
                    "properties": {"x": {"$ref": "#/$defs/item"}, "y": {"$ref": "#key"}},
                    "const": {"$ref": "#/$defs/item"},
                    "$defs": {"item": {"type": "string"}, "key": {"$anchor": "key", "type": "null"}},
                    "$dynamicAnchor": "node",
                },
                "item": {"type": "integer"},
                "key": {"$anchor": "key", "type": "boolean"},
            },
            "$dynamicAnchor": "node",
        });
        complete_references(&mut root);
        let order = &root["$defs"]["order"];
        let reference = |at: &Value| at["$ref"].as_str().unwrap().to_owned();
        assert_eq!(reference(&order["properties"]["x"]), "order#/$defs/item");
        assert_eq!(reference(&root["properties"]["b"]), "#/$defs/item");
        assert_eq!(reference(&order["const"]), "#/$defs/item");
        let document = SchemaDocument::new(&root);
        let kind = |reference: &str| document.resolve(reference).unwrap().schema["type"].clone();
        assert_eq!(kind(&reference(&order["properties"]["x"])), "string");
        assert_eq!(kind(&reference(&order["properties"]["y"])), "null");
        assert_eq!((kind("#/$defs/item"), kind("#key")), (json!("integer"), json!("boolean")));
        assert_eq!(document.resolve("#node").unwrap().schema, &root);
    }
}
