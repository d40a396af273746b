//! Whatever the schema, there is a package, and it is Python.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::support::{RUNTIME, package, python, tool, written};

/// How many random tools are tried; `PROPTEST_CASES` is for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_500)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "\\PC{0,6}",
        proptest::sample::select(vec![
            "from",
            "class",
            "None",
            "int",
            "list",
            "str",
            "schema",
            "model_config",
            "copy",
            "_x",
            "__a__",
            "1a",
            "a-b",
            "a_b",
            "A_B",
            "params",
            "fields",
            "self",
            "root",
            "Params",
            "Result",
            "Field",
            "Any",
            "CLIENT",
            "run",
            "mro",
            "name",
            "value",
            "title",
            "\"\"\"",
            "\\",
            "\0",
            "\u{202e}",
            "é",
            "ﬁ",
            "日本",
            "default",
            "type",
            "$ref",
        ])
        .prop_map(str::to_owned),
    ]
}

fn data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..3).prop_map(object),
        ]
    })
}

fn object(members: Vec<(String, Value)>) -> Value {
    Value::Object(members.into_iter().collect())
}

/// Schemas that use every keyword, rightly and wrongly.
fn schema() -> impl Strategy<Value = Value> {
    let types = proptest::sample::select(vec![
        json!("string"),
        json!("integer"),
        json!("number"),
        json!("boolean"),
        json!("null"),
        json!("array"),
        json!("object"),
        json!(["string", "null"]),
        json!(["integer", "object"]),
        json!("nonsense"),
        json!(7),
    ]);
    let reference = proptest::sample::select(vec![
        "#",
        "#/$defs/a",
        "#/$defs/b",
        "#/properties/a",
        "#/nowhere",
        "x.json",
    ]);
    let pattern = proptest::sample::select(vec![
        "^a+$",
        "\\d{2,}",
        "(?<n>x)\\k<n>",
        "\\p{L}",
        "(",
        "[^]",
        "a{,3}",
        "[a-\\d]",
    ]);
    let leaf = prop_oneof![
        4 => types.clone().prop_map(|ty| json!({"type": ty})),
        1 => any::<bool>().prop_map(Value::from),
        1 => data(),
        2 => prop::collection::vec(data(), 0..4).prop_map(|values| json!({"enum": values})),
        1 => data().prop_map(|value| json!({"const": value})),
        1 => reference.prop_map(|reference| json!({"$ref": reference})),
        1 => pattern.clone().prop_map(|pattern| json!({"type": "string", "pattern": pattern})),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let named = prop::collection::vec((name(), inner.clone()), 0..4).prop_map(object);
        let list = prop::collection::vec(inner.clone(), 0..4);
        let keyword = prop_oneof![
            4 => named.prop_map(|p| ("properties", p)),
            2 => prop::collection::vec(name(), 0..3).prop_map(|names| ("required", json!(names))),
            2 => inner.clone().prop_map(|s| ("items", s)),
            2 => inner.clone().prop_map(|s| ("additionalProperties", s)),
            1 => prop::collection::vec((pattern.clone(), inner.clone()), 0..3)
                .prop_map(|p| ("patternProperties", object(p.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))),
            1 => list.clone().prop_map(|l| ("prefixItems", Value::from(l))),
            2 => list.clone().prop_map(|l| ("anyOf", Value::from(l))),
            2 => list.clone().prop_map(|l| ("oneOf", Value::from(l))),
            2 => list.clone().prop_map(|l| ("allOf", Value::from(l))),
            1 => (proptest::sample::select(vec!["not", "if", "then", "else", "contains", "propertyNames"]), inner.clone()),
            2 => (proptest::sample::select(vec!["minimum", "maxLength", "minItems", "maxItems", "multipleOf", "minProperties"]), data()),
            1 => (proptest::sample::select(vec!["description", "title", "default", "format", "uniqueItems", "$id"]), data()),
            1 => types.clone().prop_map(|ty| ("type", ty)),
            1 => inner.clone().prop_map(|s| ("$defs", json!({"a": s, "b": {"$ref": "#/$defs/a"}}))),
        ];
        prop::collection::vec(keyword, 1..5)
            .prop_map(|keywords| object(keywords.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))
    })
}

fn listed() -> impl Strategy<Value = Value> {
    (name(), name(), schema(), prop::option::of(schema())).prop_map(|(name, description, input, output)| {
        json!({"name": name, "description": description, "inputSchema": input, "outputSchema": output})
    })
}

#[test]
fn every_schema_becomes_a_package_that_is_python() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let mut sources: Vec<Value> = Vec::new();
    let mut checked = 0;
    for case in 0..cases() {
        let listed = listed().new_tree(&mut runner).unwrap().current();
        let package = package(&[tool(&listed)]);
        assert_eq!(package, crate::support::package(&[tool(&listed)]), "the same input gives the same bytes");
        let texts =
            package.files.iter().filter(|file| file.path.ends_with(".py") && !file.path.starts_with("_base"));
        sources.extend(texts.map(|file| json!({"given": listed, "text": file.text})));
        if sources.len() > 3_000 || case + 1 == cases() {
            checked += parse(&std::mem::take(&mut sources));
        }
    }
    assert!(checked > 0, "nothing was checked");
}

#[test]
fn every_module_checks_arguments_and_results() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let listed: Vec<_> = (0..cases()).map(|_| listed().new_tree(&mut runner).unwrap().current()).collect();
    let package = package(&listed.iter().map(tool).collect::<Vec<_>>());
    let modules: Vec<_> = package.modules.iter().map(|module| module.name.as_str()).collect();
    let root = written(&package);
    let program = r"
import importlib, json, sys
sys.path[:0] = sys.argv[1:3]
from pydantic import ValidationError
for given, name in json.load(sys.stdin):
    module = importlib.import_module('mcptools.demo.' + name)
    for model in filter(None, map(vars(module).get, ('Params', 'Result'))):
        for value in ({}, {'a': {}}, {'a': [1]}, {'a': 'text'}, [], None):
            try:
                model.model_validate(value)
            except ValidationError:
                pass
            except Exception as error:
                print(json.dumps(given), repr(error), sep='\n')
                sys.exit(1)
";
    let input = serde_json::to_string(&listed.iter().zip(modules).collect::<Vec<_>>()).unwrap();
    python(program, &[root.path().to_str().unwrap(), RUNTIME], &input);
}

/// Has Python parse the sources, and report the first that it cannot.
fn parse(sources: &[Value]) -> usize {
    let program = r"
import ast, json, sys
for source in json.load(sys.stdin):
    try:
        compile(source['text'], 'generated', 'exec', ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError) as error:
        print(json.dumps(source['given']), source['text'], error, sep='\n')
        sys.exit(1)
";
    let input = serde_json::to_string(sources).unwrap();
    python(program, &[], &input);
    sources.len()
}
