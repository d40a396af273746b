//! How long schemas take, and that the time grows with their size and not faster.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ipybox_codegen::{Server, Tool, generate};
use serde_json::{Value, json};

/// A tool with `properties` arguments of the usual kinds.
fn tool(properties: usize) -> Tool {
    let argument = |number: usize| match number % 5 {
        0 => json!({"type": "string", "description": "What to look for", "minLength": 1}),
        1 => json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 30}),
        2 => json!({"type": "string", "enum": ["created", "updated", "comments"], "default": "created"}),
        3 => {
            json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": null})
        }
        _ => json!({"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]+-\\d+$"}}}),
    };
    let properties: Value =
        (0..properties).map(|number| (format!("argument_{number}"), argument(number))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": ["argument_0"]});
    Tool {
        name: "search".to_owned(),
        title: None,
        description: Some("Search for things.".to_owned()),
        input_schema: schema.as_object().cloned().unwrap_or_default(),
        output_schema: schema.as_object().cloned(),
        observed: None,
    }
}

fn by_size(criterion: &mut Criterion) {
    let server = Server { name: "bench".to_owned(), description: None };
    let mut group = criterion.benchmark_group("one tool");
    for properties in [5, 50, 500, 5_000] {
        let tools = [tool(properties)];
        group.throughput(Throughput::Elements(properties as u64));
        group.bench_with_input(BenchmarkId::from_parameter(properties), &tools, |bencher, tools| {
            bencher.iter(|| generate(&server, tools));
        });
    }
    group.finish();
}

criterion_group!(benches, by_size);
criterion_main!(benches);
