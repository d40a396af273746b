//! Reads a saved result of a `tools/list` request.

use serde_json::{Map, Value};

use super::generate::{is_for_apps, left_out};
use ipybox_codegen::Tool;

/// The tools of a file, and warnings about skipped ones.
pub(super) struct ToolListing {
    pub(super) tools: Vec<Tool>,
    pub(super) problems: Vec<String>,
}

/// Why a file is not a list of tools.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("it is not JSON")]
    Json(#[from] serde_json::Error),
    #[error("it has no list `tools`; expected the result of `tools/list`, {{\"tools\": […]}}")]
    NoTools,
}

/// Reads `{"tools": […]}`. A tool without a name is skipped with a warning; one invalid tool does not prevent
/// the others.
pub(super) fn read(text: &str) -> Result<ToolListing, Error> {
    let document: Value = serde_json::from_str(text)?;
    let Some(Value::Array(listed)) = document.get("tools") else { return Err(Error::NoTools) };
    let mut listing = ToolListing { tools: Vec::with_capacity(listed.len()), problems: Vec::new() };
    for (index, tool) in listed.iter().enumerate() {
        match read_tool(tool) {
            Ok(Tool { name, .. }) if is_for_apps(tool["_meta"].get("ui")) => {
                listing.problems.extend(left_out([&name]));
            }
            Ok(tool) => listing.tools.push(tool),
            Err(problem) => listing.problems.push(format!("tool {index} was passed over: {problem}")),
        }
    }
    Ok(listing)
}

fn read_tool(listed: &Value) -> Result<Tool, &'static str> {
    let text = |key: &str| listed.get(key).and_then(Value::as_str).map(str::to_owned);
    let schema = |key: &str| match listed.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(schema)) => Ok(Some(schema.clone())),
        Some(_) => Err("a schema of it is not an object"),
    };
    Ok(Tool {
        name: text("name").filter(|name| !name.is_empty()).ok_or("it has no name")?,
        title: text("title"),
        description: text("description"),
        input_schema: schema("inputSchema")?.unwrap_or_else(Map::new),
        output_schema: schema("outputSchema")?,
        observed: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_tools_do_not_spoil_the_rest() {
        let text = r#"{"tools": [{"name": "a"}, {"description": "no name"}, {"name": "b", "inputSchema": 5}, 7,
            {"name": "c", "inputSchema": {"type": "object"}, "outputSchema": null},
            {"name": "d", "_meta": {"ui": {"visibility": ["app"]}}},
            {"name": "e", "_meta": {"ui": {"visibility": ["app", "model"]}}}]}"#;
        let listing = read(text).unwrap();
        let names: Vec<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "c", "e"]);
        assert_eq!(listing.problems.len(), 4, "{:?}", listing.problems);
        assert!(listing.problems[3].starts_with("tools left out") && listing.problems[3].ends_with(": d"));
    }

    #[test]
    fn what_is_no_list_of_tools_is_refused() {
        for text in ["", "[]", r#"{"tool": []}"#, r#"{"tools": {}}"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
