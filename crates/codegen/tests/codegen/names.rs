//! Whatever Python, pydantic, the runtime and the modules themselves define: a tool may call its own things so.

use std::fs;

use ipybox_codegen::{Server, generate};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::support::{RUNTIME, fixtures, package, python, taking, tool, written};

/// How many tools are tried beside those that have one name in all places.
const DRAWN: usize = 300;

/// A schema, and a value that it admits.
type Pair = (Value, Value);

/// All the names that there are, in the spellings in which they could come.
fn pool() -> Vec<String> {
    let tools = [tool(&json!({"name": "any", "outputSchema": {"type": "object"}}))];
    let root = written(&package(&tools));
    let program = fs::read_to_string(fixtures().join("names.py")).unwrap();
    serde_json::from_str(&python(&program, &["pool", root.path().to_str().unwrap(), RUNTIME], "")).unwrap()
}

/// An object whose only property, a required one, is called `name`.
fn object(name: &str, (schema, value): Pair) -> Pair {
    (json!({"type": "object", "properties": {name: schema}, "required": [name]}), json!({name: value}))
}

fn pair(names: Vec<String>) -> impl Strategy<Value = Pair> {
    let name = move || proptest::sample::select(names.clone());
    let leaf = prop_oneof![
        Just((json!({"type": "string", "minLength": 1}), json!("x"))),
        Just((json!({"type": "integer"}), json!(1))),
        Just((json!({"type": "number", "default": 0.5}), json!(1.5))),
        Just((json!({"type": "boolean", "default": true}), json!(false))),
        Just((json!({"type": ["string", "null"]}), Value::Null)),
        Just((json!({}), json!({"a": 1}))),
        Just((json!({"enum": [1, true, 2.5]}), json!(2.5))),
        prop::collection::vec(name(), 1..4)
            .prop_map(|names| (json!({"type": "string", "enum": names}), names[0].clone().into())),
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        prop_oneof![
            (name(), inner.clone()).prop_map(|(name, pair)| object(&name, pair)),
            inner
                .clone()
                .prop_map(|(schema, value)| { (json!({"type": "array", "items": schema}), json!([value])) }),
            (inner.clone(), inner.clone()).prop_map(|((a, x), (b, y))| {
                (json!({"type": "array", "prefixItems": [a, b], "minItems": 2, "maxItems": 2}), json!([x, y]))
            }),
            inner.prop_map(|(schema, value)| {
                (json!({"type": "object", "additionalProperties": schema}), json!({"k": value}))
            }),
        ]
    })
}

/// A tool with its arguments, which are its result too.
fn listed(name: String, members: Vec<(String, Pair)>) -> (Value, Value) {
    let mut properties = serde_json::Map::new();
    let mut value = serde_json::Map::new();
    for (name, (schema, member)) in members {
        properties.insert(name.clone(), schema);
        value.insert(name, member);
    }
    let schema = json!({"type": "object", "properties": properties});
    (json!({"name": name, "inputSchema": schema, "outputSchema": schema}), value.into())
}

/// A tool that has a name in all places: as its own, a field, a class by a property, an item and a definition, and a member.
fn everywhere(name: &str) -> (Value, Value) {
    let inner = || object(name, (json!({"type": "integer"}), json!(1)));
    let (class, instance) = inner();
    let list = (json!({"type": "array", "items": class}), json!([instance]));
    let members = (json!({"type": "string", "enum": [name, "other"], "default": "other"}), json!(name));
    let mut named = listed(
        name.to_owned(),
        vec![
            (name.to_owned(), inner()),
            (format!("{name}s"), list),
            (format!("{name}_kind"), members),
            ("by_reference".to_owned(), (json!({"$ref": format!("#/$defs/{name}")}), instance)),
        ],
    );
    for side in ["inputSchema", "outputSchema"] {
        named.0[side]["$defs"] = json!({name: class});
        named.0[side]["additionalProperties"] = json!({"type": "integer"});
    }
    named
}

#[test]
fn no_name_is_shadowed_or_shadows() {
    let names = pool();
    assert!(names.len() > 500, "{}", names.len());
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let name = proptest::sample::select(names.clone());
    let tools = (name.clone(), prop::collection::vec((name, pair(names.clone())), 1..8));
    let tools = tools.prop_map(|(name, members)| listed(name, members));
    let drawn = (0..DRAWN).map(|_| tools.new_tree(&mut runner).unwrap().current());
    let cases: Vec<(Value, Value)> = names.iter().map(|name| everywhere(name)).chain(drawn).collect();
    let tools: Vec<_> = cases.iter().map(|(listed, _)| tool(listed)).collect();
    let package = package(&tools);
    let root = written(&package);
    let modules = package.modules.iter().map(|module| &module.name);
    let input: Vec<_> = modules
        .zip(cases)
        .map(|(module, (listed, value))| json!({"module": module, "tool": listed["name"], "value": value}))
        .collect();
    let program = fs::read_to_string(fixtures().join("names.py")).unwrap();
    let input = serde_json::to_string(&input).unwrap();
    python(&program, &["check", root.path().to_str().unwrap(), RUNTIME], &input);
}

#[test]
fn a_server_may_have_any_name_that_is_admitted() {
    let names: Vec<_> =
        pool().into_iter().filter(|name| ipybox_codegen::validate_package_name(name).is_ok()).collect();
    assert!(names.len() > 200, "{}", names.len());
    let root = written(&package(&[]));
    for name in &names {
        let server = Server { name: name.clone(), description: None };
        let package = generate(&server, &[taking("ping", json!({"type": "object"}))]);
        let directory = root.path().join("mcptools").join(name);
        fs::create_dir_all(&directory).unwrap();
        for file in package.files {
            fs::write(directory.join(file.path), file.text).unwrap();
        }
    }
    let program = fs::read_to_string(fixtures().join("names.py")).unwrap();
    let input = serde_json::to_string(&names).unwrap();
    python(&program, &["servers", root.path().to_str().unwrap(), RUNTIME], &input);
}
