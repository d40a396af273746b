//! Schema → model: every JSON Schema becomes a type, and objects and enums become classes with the names that
//! datamodel-code-generator would give them. Nothing here fails: a schema without a type becomes `Any`, with
//! a reason.

mod array;
mod combine;
mod object;
mod scalar;
mod union;

use std::collections::{HashMap, HashSet};

use combine::FoldedSchema;
use serde_json::{Value, json};

use super::Degradation;
use super::classes::SchemaClasses;
use super::document::{ALSO, Schema, SchemaDocument};
use super::identifier;
use super::merge::type_names;
use super::model::{ClassBody, ClassId, FieldDoc, PythonClass, PythonType, ValueCheck};
use super::reserved;
use super::rules;
use super::scope::{NameNumbering, NameScope};
use super::singular::singular;

/// Schemas nested deeper than this become `Any`. Python refuses more than 200 brackets inside each other and pydantic
/// builds nested models by recursion; the deepest schema of a real server that we know has 12 levels.
const MAX_DEPTH: usize = 40;

/// The number of times that the same part of a schema may be read on average, through `$ref`s with siblings and unions within
/// unions, before the rest becomes `Any`: such combinations can grow exponentially.
const MAX_READINGS: usize = 64;

/// Why a schema is given up when [`MAX_READINGS`] are used up.
const TOO_LARGE: &str = "grows without bounds";

/// Keywords that say nothing about which values are valid. Those that begin with `$` or `x-` do not either.
#[rustfmt::skip]
const ANNOTATIONS: [&str; 16] = [
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "definitions", "nullable", "discriminator", "externalDocs", "xml", "contentMediaType", "contentEncoding",
    "contentSchema",
];

/// The classes of a schema, and the parts that Python cannot express.
pub(super) struct LoweredSchema {
    /// The class of the schema itself first.
    pub(super) classes: SchemaClasses,
    pub(super) degraded: Vec<Degradation>,
}

/// Which of a tool's two schemas is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaSide {
    Arguments,
    Output,
}

/// Turns a schema of `nodes` JSON values into classes, the first of which is called `name`.
pub(super) fn lower<'a>(root: &'a Value, nodes: usize, name: &'a str, side: SchemaSide) -> LoweredSchema {
    let mut lowering = Lowering {
        document: SchemaDocument::new(root),
        classes: SchemaClasses::default(),
        root_name: name,
        names: NameScope::default(),
        known: HashMap::new(),
        active: HashSet::new(),
        degraded: Vec::new(),
        trail: Vec::new(),
        readings_left: nodes.saturating_mul(MAX_READINGS).saturating_add(1_000),
    };
    lowering.root(name, side);
    lowering.classes.join_equals();
    LoweredSchema { classes: lowering.classes, degraded: lowering.degraded }
}

/// The position of a schema, as far as its name and depth depend on it.
#[derive(Clone, Copy)]
struct SchemaSpot<'s> {
    /// The name that its class is derived from.
    name: &'s str,
    /// Whether `name` is that of a list whose item this is, so that the class gets the singular.
    is_item: bool,
    /// A named class that this schema will fill.
    slot: Option<ClassId>,
    depth: usize,
}

impl<'s> SchemaSpot<'s> {
    /// A part of this schema that shares its name, such as a branch of a union.
    fn part(self) -> Self {
        SchemaSpot { slot: None, depth: self.depth + 1, ..self }
    }

    /// A schema below this one, called `name`.
    fn child(self, name: &str) -> SchemaSpot<'_> {
        SchemaSpot { name, is_item: false, slot: None, depth: self.depth + 1 }
    }

    /// The items of this list.
    fn item(self) -> Self {
        SchemaSpot { is_item: true, ..self.part() }
    }
}

/// The class of the schema itself.
const ROOT: ClassId = ClassId(0);

/// The kind of class to be named: it decides the name of an item whose list has no plural name.
#[derive(Clone, Copy)]
enum ClassKind {
    Model,
    Enum,
}

struct Lowering<'a> {
    document: SchemaDocument<'a>,
    classes: SchemaClasses,
    /// The name of the class of the schema itself.
    root_name: &'a str,
    names: NameScope,
    /// The types of `$ref` targets seen so far.
    known: HashMap<String, PythonType>,
    /// The combinations of `$ref` and siblings that are being read.
    active: HashSet<String>,
    degraded: Vec<Degradation>,
    /// The path from the root to the schema being read.
    trail: Vec<String>,
    readings_left: usize,
}

impl Lowering<'_> {
    /// Lowers the root: an object becomes a model even without properties, all else a named type.
    fn root(&mut self, name: &str, side: SchemaSide) {
        let slot = self.new_class(name.to_owned());
        debug_assert_eq!(slot, ROOT);
        let root = self.document.root();
        self.known.insert("#/".to_owned(), awaited(slot, root));
        let spot = SchemaSpot { name, is_item: false, slot: Some(slot), depth: 0 };
        let ty = match self.root_object(root, side) {
            Some(object) if rules::any(&object) => self.ruled(&object, spot),
            Some(object) => self.model(&object, spot),
            None => self.lower(root, spot),
        };
        self.classes.0[slot.0].is_nullable = ty.admits_null();
        self.fill(slot, ty);
    }

    /// Reads any schema.
    fn lower(&mut self, schema: &Value, spot: SchemaSpot<'_>) -> PythonType {
        if self.readings_left == 0 || spot.depth > MAX_DEPTH {
            return self.give_up(if self.readings_left == 0 { TOO_LARGE } else { "nested too deeply" });
        }
        self.readings_left -= 1;
        match schema {
            Value::Object(object) => self.object(object, spot),
            Value::Bool(true) => PythonType::Any,
            Value::Bool(false) => PythonType::Never,
            _ => self.give_up("not a schema"),
        }
    }

    /// Reads a schema object: first references to other schemas, then listed values, then types.
    fn object(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        if let Some(reference) =
            ["$ref", "$dynamicRef", "$recursiveRef"].iter().find_map(|k| schema.get(*k)?.as_str())
        {
            return self.reference(reference, schema, spot);
        }
        if let Some(whole) = self.fold_all_of(schema) {
            return match whole {
                FoldedSchema::Reference(reference) => self.reference(&reference, &Schema::new(), spot),
                FoldedSchema::Schema(whole) => {
                    self.lower(&Value::Object(whole), SchemaSpot { depth: spot.depth + 1, ..spot })
                }
                FoldedSchema::Contradiction => PythonType::Never,
            };
        }
        if rules::any(schema) {
            return self.ruled(schema, spot);
        }
        if schema.contains_key("const") || matches!(schema.get("enum"), Some(Value::Array(_))) {
            return self.listed(schema, spot);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(keyword) {
                return self.union(keyword, branches, schema, spot);
            }
        }
        self.by_type(schema, spot)
    }

    /// Reads a schema some of whose keywords are left to a check at run time.
    fn ruled(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        let (mut schema, apart) = rules::split(schema);
        // Which properties are evaluated depends on rules.
        schema.shift_remove("unevaluatedProperties");
        let ty = self.object(&schema, spot);
        let Some(rule) = self.rule(&apart) else {
            let named = |keyword| if keyword == ALSO { "allOf" } else { keyword };
            let keywords: Vec<_> = apart.keys().map(|keyword| format!("`{}`", named(keyword))).collect();
            self.degrade(format!("{} is not checked", keywords.join(", ")));
            return ty;
        };
        self.with_rule(ty, rule, spot)
    }

    /// The demands of `schema` as a check at run time, if they can be expressed.
    fn rule(&self, schema: &Schema) -> Option<Schema> {
        rules::rule(schema, &self.document)
    }

    /// A type whose values must satisfy `rule` as well.
    fn with_rule(&mut self, ty: PythonType, rule: Schema, spot: SchemaSpot<'_>) -> PythonType {
        if rule.is_empty() {
            return ty;
        }
        if let PythonType::Class(id) = ty
            && spot.slot.is_none_or(|slot| slot == id)
            && let ClassBody::Model(model) = &mut self.classes.0[id.0].body
        {
            let own = std::mem::take(&mut model.rules);
            model.rules = if own.keys().any(|keyword| rule.contains_key(keyword)) {
                Schema::from_iter([("allOf".to_owned(), json!([own, rule]))])
            } else {
                own.into_iter().chain(rule).collect()
            };
            return ty;
        }
        ty.checked(vec![ValueCheck::Rule(rule)])
    }

    /// Reads a schema by its `type`, or by the one that its other keywords speak of.
    fn by_type(&mut self, schema: &Schema, spot: SchemaSpot<'_>) -> PythonType {
        let named = schema.get("type").map(type_names).unwrap_or_default();
        let types = if named.is_empty() { implied_type(schema).into_iter().collect() } else { named };
        // Null needs no name: the other type keeps the one that waits for it.
        let several = types.iter().filter(|name| **name != "null").count() > 1;
        let lowered: Vec<PythonType> = types
            .iter()
            .map(|name| match *name {
                "null" => PythonType::Null,
                "boolean" => PythonType::Bool,
                "integer" => self.number(PythonType::Int, schema),
                "number" => self.number(PythonType::Float, schema),
                "string" => self.string(schema),
                "array" => self.array(schema, if several { spot.part() } else { spot }),
                "object" => self.object_type(schema, if several { spot.part() } else { spot }),
                other => self.give_up(&format!("unknown type `{other}`")),
            })
            .collect();
        if lowered.is_empty() { PythonType::Any } else { PythonType::union(lowered) }
    }

    /// The class for `spot`: the one that waits for it, or a new one. The schema itself is no enum: results are
    /// instances of models.
    fn claim(&mut self, spot: SchemaSpot<'_>, kind: ClassKind) -> ClassId {
        let slot = spot.slot.filter(|slot| matches!(kind, ClassKind::Model) || *slot != ROOT);
        slot.unwrap_or_else(|| self.new_class(self.class_name(spot, kind)))
    }

    fn class_name(&self, spot: SchemaSpot<'_>, kind: ClassKind) -> String {
        let name = identifier::class(spot.name);
        match (spot.is_item, kind) {
            (false, _) => name,
            (true, ClassKind::Model) => singular(&name).unwrap_or_else(|| name + "Item"),
            (true, ClassKind::Enum) => singular(&name).unwrap_or_else(|| name + "Enum"),
        }
    }

    fn new_class(&mut self, name: String) -> ClassId {
        let wanted = name.clone();
        let is_of_other_schema = reserved::is_root(&name) && name != self.root_name;
        let name = match &name {
            keyword if reserved::is_keyword(keyword) => name + "_",
            taken if reserved::is_taken(taken) || is_of_other_schema => name + "Model",
            _ => name,
        };
        let name = self.names.take(name, NameNumbering::Joined);
        self.classes.0.push(PythonClass {
            name,
            wanted,
            description: None,
            is_duplicate: false,
            is_nullable: false,
            body: ClassBody::Vacant,
        });
        ClassId(self.classes.0.len() - 1)
    }

    /// Fills a named class with the type of its schema. A schema that is nothing but itself says nothing.
    fn fill(&mut self, slot: ClassId, ty: PythonType) {
        if matches!(self.classes.get(slot).body, ClassBody::Vacant) {
            self.classes.0[slot.0].body =
                ClassBody::Root(if ty == PythonType::Class(slot) { PythonType::Any } else { ty });
        }
    }

    /// The documentation of a value of this schema.
    fn doc(&self, schema: &Value) -> FieldDoc {
        let text =
            |keyword: &str| Some(schema.get(keyword)?.as_str()?.trim().to_owned()).filter(|t| !t.is_empty());
        let mut notes = Vec::new();
        if schema.get("deprecated") == Some(&json!(true)) {
            notes.push("deprecated".to_owned());
        }
        if let Some(format) = format_of(schema) {
            notes.push(format!("format: {format}"));
        }
        FieldDoc { description: text("description"), notes }
    }

    /// `Any`, because of `reason`.
    fn give_up(&mut self, reason: &str) -> PythonType {
        self.degrade(format!("{reason}; left as Any"));
        PythonType::Any
    }

    fn degrade(&mut self, what: String) {
        self.degraded.push(Degradation { path: self.location(), what });
    }

    /// The path from the root to the schema being read, as one text.
    fn location(&self) -> String {
        self.trail.iter().flat_map(|step| ["/", step]).collect()
    }
}

/// The type of a schema that is being read into the class at `slot`.
fn awaited(slot: ClassId, schema: &Value) -> PythonType {
    let types = schema.get("type").map(type_names).unwrap_or_default();
    let is_null = |branch: &Value| branch.get("type") == Some(&json!("null"));
    let is_nullable_union = |keyword: &str| match schema.get(keyword).and_then(Value::as_array) {
        Some(branches) => {
            branches.len() == 2 && branches.iter().filter(|branch| is_null(branch)).count() == 1
        }
        None => false,
    };
    let is_nullable = types.len() == 2 && types.contains(&"object") && types.contains(&"null");
    let null =
        (is_nullable || is_nullable_union("anyOf") || is_nullable_union("oneOf")).then_some(PythonType::Null);
    PythonType::union([PythonType::Class(slot)].into_iter().chain(null))
}

/// The keywords of `schema` that decide which values are valid, `$ref` left out.
fn validating(schema: &Schema) -> Schema {
    let is_validating = |keyword: &str| {
        (!keyword.starts_with('$') || keyword == ALSO)
            && !keyword.starts_with("x-")
            && !ANNOTATIONS.contains(&keyword)
    };
    schema.iter().filter(|(keyword, _)| is_validating(keyword)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Keywords that are about objects.
#[rustfmt::skip]
const OBJECT_KEYWORDS: [&str; 7] = [
    "properties", "additionalProperties", "patternProperties", "required", "propertyNames",
    "minProperties", "maxProperties",
];

/// The type that a schema without `type` likely means.
pub(super) fn implied_type(schema: &Schema) -> Option<&'static str> {
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| schema.contains_key(*keyword));
    if has(&OBJECT_KEYWORDS) {
        Some("object")
    } else if has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]) {
        Some("array")
    } else if has(&["pattern", "minLength", "maxLength", "format"]) {
        Some("string")
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        Some("number")
    } else {
        None
    }
}

/// The format of a string, also of one that may be null.
fn format_of(schema: &Value) -> Option<&str> {
    let branches = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    let own = schema.get("format").and_then(Value::as_str);
    own.or_else(|| branches?.iter().find_map(|branch| branch.get("format")?.as_str()))
        .filter(|format| !matches!(*format, "int32" | "int64" | "double" | "float" | "string"))
}
