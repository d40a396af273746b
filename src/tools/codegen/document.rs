//! One JSON Schema document: the targets of its `$ref`s. Independent of Python.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// A JSON Schema object. (`true` and `false` are schemas too, so a place that holds a schema holds a [`Value`].)
pub(super) type Schema = Map<String, Value>;

/// Where keywords stand that came from another schema than the ones around them and cannot be merged into one: a list
/// of schemas that must hold as well. No server sends this.
pub(super) const ALSO: &str = "$also";

/// Keywords whose value is itself data or names, never a schema: a search for `$id` must not descend into them.
const DATA_KEYWORDS: [&str; 5] = ["const", "default", "enum", "examples", "required"];

/// A schema document with the places in it that references can name.
pub(super) struct Document<'a> {
    root: &'a Value,
    /// `$id`, `$anchor` and `$dynamicAnchor` values, as a `$ref` would spell them.
    anchors: HashMap<String, &'a Value>,
}

/// The target of a `$ref`.
pub(super) struct Target<'a> {
    /// The same for all spellings of the same place.
    pub(super) key: String,
    /// The name of the place: the last step of the reference.
    pub(super) name: String,
    pub(super) schema: &'a Value,
}

impl<'a> Document<'a> {
    /// Reads the anchors of `root`.
    pub(super) fn new(root: &'a Value) -> Self {
        let mut anchors = HashMap::new();
        collect_anchors(root, &mut anchors);
        Self { root, anchors }
    }

    /// The root schema.
    pub(super) fn root(&self) -> &'a Value {
        self.root
    }

    /// The place that `reference` names, if it lies in this document.
    pub(super) fn resolve(&self, reference: &str) -> Option<Target<'a>> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let (start, base) = match self.anchors.get(base) {
            Some(schema) => (*schema, base),
            None if base.is_empty() => (self.root, ""),
            None => return None,
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let schema =
                *self.anchors.get(reference).or_else(|| self.anchors.get(&format!("#{fragment}")))?;
            return Some(Target { key: format!("#{fragment}"), name: fragment.to_owned(), schema });
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
        Some(Target { key: format!("{base}#/{}", steps.join("/")), name, schema })
    }
}

/// `~1` is `/`, `~0` is `~`, and percent-encoding is undone: RFC 6901, section 6.
fn unescape(step: &str) -> String {
    percent_decode_str(step).decode_utf8_lossy().replace("~1", "/").replace("~0", "~")
}

/// Finds every schema under `schema` that has a name of its own.
fn collect_anchors<'a>(schema: &'a Value, anchors: &mut HashMap<String, &'a Value>) {
    match schema {
        Value::Object(object) => {
            for (keyword, value) in object {
                match (keyword.as_str(), value) {
                    ("$id", Value::String(id)) => {
                        anchors.entry(id.trim_end_matches('#').to_owned()).or_insert(schema);
                        anchors.entry(id.clone()).or_insert(schema);
                    }
                    ("$anchor" | "$dynamicAnchor", Value::String(anchor)) => {
                        anchors.entry(format!("#{anchor}")).or_insert(schema);
                    }
                    (keyword, _) if DATA_KEYWORDS.contains(&keyword) => {}
                    _ => collect_anchors(value, anchors),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_anchors(item, anchors)),
        _ => {}
    }
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
        let document = Document::new(&root);
        let kind = |reference: &str| Some(document.resolve(reference)?.schema["type"].as_str()?.to_owned());
        assert_eq!(kind("#/$defs/a~1b%20c").as_deref(), Some("string"));
        assert_eq!(kind("#thing").as_deref(), Some("integer"));
        assert_eq!(kind("https://example.com/root.json#/$defs/item").as_deref(), Some("integer"));
        assert_eq!(kind("#/properties/x/items/0").as_deref(), Some("null"));
        assert_eq!(kind("#/$defs/missing"), None);
        assert_eq!(kind("other.json#/a"), None);
        assert!(document.resolve("#").is_some_and(|target| target.schema == &root));
    }
}
