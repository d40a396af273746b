//! The shape of JSON values: which types were seen at each spot.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// An object with more properties is a map: nobody declares so many.
const MAX_PROPERTIES: usize = 500;

/// Deeper values can be anything. Shapes are kept as JSON, in which a level takes four, and of which
/// serde_json reads 128.
const MAX_DEPTH: usize = 20;

/// The observed values at one spot. If empty, it can be anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ObservedShape {
    #[serde(skip_serializing_if = "is_false")]
    null: bool,
    #[serde(skip_serializing_if = "is_false")]
    boolean: bool,
    #[serde(skip_serializing_if = "is_false")]
    integer: bool,
    /// A number with a fraction.
    #[serde(skip_serializing_if = "is_false")]
    number: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    string: Option<Format>,
    /// All items of all arrays.
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Box<ObservedShape>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<ObservedObject>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Format {
    Any,
    Date,
    DateTime,
    Uri,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ObservedObject {
    /// Objects of one class.
    Properties(IndexMap<String, Property>),
    /// Objects whose names are data.
    Values(Box<ObservedShape>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Property {
    /// Whether all objects had it.
    is_required: bool,
    shape: ObservedShape,
}

// serde hands over a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl ObservedShape {
    /// The shape of one value.
    pub(super) fn of(value: &Value) -> Self {
        Self::within(value, MAX_DEPTH)
    }

    fn within(value: &Value, depth_left: usize) -> Self {
        let mut shape = Self::default();
        match value {
            _ if depth_left == 0 => {}
            Value::Null => shape.null = true,
            Value::Bool(_) => shape.boolean = true,
            Value::Number(number) if number.is_f64() => shape.number = true,
            Value::Number(_) => shape.integer = true,
            Value::String(text) => shape.string = Some(Format::of(text)),
            Value::Array(items) => {
                let merged = Self::merged(items.iter().map(|item| Self::within(item, depth_left - 1)));
                shape.items = Some(Box::new(merged));
            }
            Value::Object(members) => {
                let property =
                    |member| Property { is_required: true, shape: Self::within(member, depth_left - 1) };
                let properties = members.iter().map(|(name, member)| (name.clone(), property(member)));
                shape.object = Some(ObservedObject::Properties(properties.collect()).settled());
            }
        }
        shape
    }

    fn merged(shapes: impl Iterator<Item = Self>) -> Self {
        shapes.fold(Self::default(), |mut merged, shape| {
            merged.merge(shape);
            merged
        })
    }

    /// Adds the values observed in another result at the same spot.
    pub(super) fn merge(&mut self, other: Self) {
        self.null |= other.null;
        self.boolean |= other.boolean;
        self.integer |= other.integer;
        self.number |= other.number;
        self.string = joined(self.string, other.string, |a, b| if a == b { a } else { Format::Any });
        self.items = joined(self.items.take(), other.items, |mut a, b| {
            a.merge(*b);
            a
        });
        self.object = joined(self.object.take(), other.object, ObservedObject::merged);
    }

    /// The number of its spots.
    pub(super) fn size(&self) -> usize {
        let in_object = match &self.object {
            Some(ObservedObject::Properties(properties)) => {
                properties.values().map(|property| property.shape.size()).sum()
            }
            Some(ObservedObject::Values(values)) => values.size(),
            None => 0,
        };
        1 + in_object + self.items.as_ref().map_or(0, |items| items.size())
    }

    /// A JSON Schema that admits the observed values.
    pub(super) fn schema(&self) -> Map<String, Value> {
        let number = if self.number { "number" } else { "integer" };
        let types: Vec<&str> = [
            (self.boolean, "boolean"),
            (self.integer || self.number, number),
            (self.string.is_some(), "string"),
            (self.items.is_some(), "array"),
            (self.object.is_some(), "object"),
        ]
        .into_iter()
        .filter_map(|(is_seen, name)| is_seen.then_some(name))
        .chain(self.null.then_some("null"))
        .collect();
        let mut schema = Map::new();
        match types[..] {
            // Nothing is known about a value that was always null.
            [] | ["null"] => return schema,
            [only] => schema.insert("type".to_owned(), json!(only)),
            _ => schema.insert("type".to_owned(), json!(types)),
        };
        if let Some(format) = self.string.and_then(Format::name) {
            schema.insert("format".to_owned(), json!(format));
        }
        if let Some(items) = &self.items {
            schema.insert("items".to_owned(), items.schema().into());
        }
        match &self.object {
            Some(ObservedObject::Properties(properties)) => {
                let schemas =
                    properties.iter().map(|(name, property)| (name.clone(), property.shape.schema().into()));
                schema.insert("properties".to_owned(), Value::Object(schemas.collect()));
                let required = properties.iter().filter(|(_, property)| property.is_required);
                let required: Vec<_> = required.map(|(name, _)| name.as_str()).collect();
                if !required.is_empty() {
                    schema.insert("required".to_owned(), json!(required));
                }
            }
            Some(ObservedObject::Values(values)) => {
                schema.insert("additionalProperties".to_owned(), values.schema().into());
            }
            None => {}
        }
        schema
    }
}

fn joined<T>(one: Option<T>, other: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(join(one, other)),
        (one, other) => one.or(other),
    }
}

impl ObservedObject {
    fn merged(self, other: Self) -> Self {
        match (self, other) {
            (Self::Properties(mut own), Self::Properties(other)) => {
                own.iter_mut().for_each(|(name, property)| property.is_required &= other.contains_key(name));
                for (name, property) in other {
                    match own.get_mut(&name) {
                        Some(known) => {
                            known.is_required &= property.is_required;
                            known.shape.merge(property.shape);
                        }
                        None => drop(own.insert(name, Property { is_required: false, ..property })),
                    }
                }
                Self::Properties(own).settled()
            }
            (one, other) => {
                let mut values = one.values();
                values.merge(other.values());
                Self::Values(Box::new(values))
            }
        }
    }

    /// The same, as a map if its names are data.
    fn settled(self) -> Self {
        match self {
            Self::Properties(properties) if are_data(&properties) => {
                Self::Values(Box::new(Self::Properties(properties).values()))
            }
            settled => settled,
        }
    }

    /// The shape of all its values.
    fn values(self) -> ObservedShape {
        match self {
            Self::Properties(properties) => {
                ObservedShape::merged(properties.into_values().map(|property| property.shape))
            }
            Self::Values(values) => *values,
        }
    }
}

/// Whether names are data rather than property names: dates, numbers, paths, addresses.
fn are_data(properties: &IndexMap<String, Property>) -> bool {
    let is_data = |name: &String| {
        !name.starts_with(|first: char| first.is_alphabetic() || "_$@#".contains(first))
            || name.contains(['/', ' ', ':', '.'])
            || name.chars().skip(1).any(|char| char == '@')
    };
    properties.len() > MAX_PROPERTIES || (properties.len() > 1 && properties.keys().all(is_data))
}

impl Format {
    fn of(text: &str) -> Self {
        if text.starts_with("https://") || text.starts_with("http://") {
            return if url::Url::parse(text).is_ok() { Self::Uri } else { Self::Any };
        }
        if chrono::DateTime::parse_from_rfc3339(text).is_ok() {
            return Self::DateTime;
        }
        let is_date = text.len() == 10 && chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok();
        if is_date { Self::Date } else { Self::Any }
    }

    /// Its name in JSON Schema.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::Date => Some("date"),
            Self::DateTime => Some("date-time"),
            Self::Uri => Some("uri"),
        }
    }
}
