//! Generates a package for every saved `tools/list` result in a directory, and reports how long it took:
//! `cargo bench --bench corpus -- SERVERS ROOT`.

#![allow(clippy::print_stderr, reason = "a tool for developers")]

use std::{env, error::Error, fs, path::Path};

use ipybox::codegen::{Server, Tool, generate};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    // What Cargo adds.
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    let servers = args.next().ok_or("SERVERS")?;
    let root = args.next().ok_or("ROOT")?;
    let mut paths: Vec<_> = fs::read_dir(&servers)?.collect::<Result<_, _>>()?;
    paths.sort_by_key(|entry| entry.path());
    let (mut tools_made, mut degraded) = (0, 0);
    let mut spent = std::time::Duration::ZERO;
    for entry in paths {
        let path = entry.path();
        let list: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("name")?;
        let text = |tool: &Value, key: &str| tool[key].as_str().map(str::to_owned);
        let tools: Vec<Tool> = list["tools"]
            .as_array()
            .ok_or("tools")?
            .iter()
            .map(|tool| Tool {
                name: text(tool, "name").unwrap_or_default(),
                title: text(tool, "title"),
                description: text(tool, "description"),
                input_schema: tool["inputSchema"].as_object().cloned().unwrap_or_default(),
                output_schema: tool["outputSchema"].as_object().cloned(),
                observed: None,
            })
            .collect();
        let start = std::time::Instant::now();
        let package = generate(&Server { name: name.to_owned(), description: None }, &tools);
        spent += start.elapsed();
        let directory = Path::new(&root).join(name);
        fs::create_dir_all(&directory)?;
        for file in &package.files {
            fs::write(directory.join(&file.path), &file.text)?;
        }
        tools_made += package.modules.len();
        for module in &package.modules {
            for spot in &module.degraded {
                degraded += 1;
                eprintln!("{name}/{}: {}: {}", module.name, spot.path, spot.what);
            }
        }
    }
    eprintln!("{tools_made} tools, {degraded} spots degraded, {spent:?}");
    Ok(())
}
