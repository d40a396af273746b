//! Views: what clients with [MCP Apps](https://modelcontextprotocol.io/seps/1865-mcp-apps-interactive-user-interfaces-for-mcp)
//! show of cells beside their text.
//!
//! The client shows one page, `view.html`, for each answer. The answer names files, and the page reads them by the tool
//! [`NAME`], which no model sees: of tables the rows that it shows, of everything else parts. All of that comes from code in
//! the kernel. The page shows it as text, or in frames without a network.

mod part;
mod summary;
mod table;

use std::path::PathBuf;

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, MetaObject, ResourceContents, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::arguments::{parse, schema};
use super::reply;
use super::resource_address::ResourceAddress;
use crate::kernels::output::{OutputPlaces, PlotLibrary};

/// The tool by which the page reads.
pub(super) const NAME: &str = "read_view";

/// The page.
const PAGE: &str = "ui://ipybox/cell";
/// The type that pages of MCP Apps have.
const PAGE_TYPE: &str = "text/html;profile=mcp-app";
/// The name of the extension.
const EXTENSION: &str = "io.modelcontextprotocol/ui";

/// The key under which an answer names its views.
const VIEWS: &str = "ipybox/views";
/// The number of views that an answer names.
const MOST_VIEWS: usize = 32;

/// Reads one view at a time, to bound memory however many pages ask at once.
static TURNSTILE: Mutex<()> = Mutex::const_new(());

/// Whether the client that made a request shows views.
pub(super) fn are_shown_by(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let extensions = capabilities.and_then(|capabilities| capabilities.extensions);
    let types = extensions.and_then(|mut extensions| extensions.remove(EXTENSION)?.remove("mimeTypes"));
    types.as_ref().and_then(Value::as_array).is_some_and(|types| types.iter().any(|it| it == PAGE_TYPE))
}

/// The tools as such a client gets them: the results of those that run cells have the page, which may call the tool for
/// reading alone.
pub(super) fn add_to(tools: Vec<Tool>, of_cells: &[&str]) -> Vec<Tool> {
    let with = |tool: Tool, visibility: &str| {
        let mut ui = json!({ "visibility": [visibility] });
        if of_cells.contains(&&*tool.name) || tool.name == NAME {
            ui["resourceUri"] = PAGE.into();
        }
        tool.with_meta(meta("ui", ui))
    };
    let tools = tools.into_iter().map(|tool| with(tool, "model"));
    tools.chain([with(definition(), "app")]).collect()
}

/// The page, if the URI is its.
pub(super) fn page(uri: &str) -> Option<ResourceContents> {
    let content = || {
        let page = include_str!("view.html");
        let page = page.replace("/* style */", include_str!("view.css"));
        let page = page
            .replace("/* plots */", &json!(include_str!("plot.html")).to_string().replace('<', "\\u003c"));
        let page = page.replace("/* script */", concat!(include_str!("table.js"), include_str!("view.js")));
        // It brings its own borders, and none if there is nothing to show.
        let about = meta("ui", json!({ "prefersBorder": false }));
        ResourceContents::text(page, uri).with_mime_type(PAGE_TYPE).with_meta(about)
    };
    (uri == PAGE).then(content)
}

/// Adds to a result the names of the views and images that the page can show.
pub(super) fn add_names(result: CallToolResult, views: &[PathBuf]) -> CallToolResult {
    let names = views.iter().filter_map(|view| Some(address(view.file_name()?.to_str()?)?.name().to_owned()));
    let names: Vec<String> = names.take(MOST_VIEWS).collect();
    if names.is_empty() {
        return result;
    }
    result.with_meta(Some(meta(VIEWS, json!(names))))
}

/// The address of a view, by the name of its file.
fn address(name: &str) -> Option<ResourceAddress> {
    let kinds = ["views", "images"];
    kinds.into_iter().find_map(|kind| ResourceAddress::of_file(kind, name.as_ref()))
}

fn meta(key: &str, value: Value) -> MetaObject {
    let mut meta = MetaObject::new();
    meta.0.insert(key.to_owned(), value);
    meta
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewArguments {
    view: Option<String>,
    library: Option<PlotLibrary>,
    #[serde(default)]
    from: u64,
    rows: Option<usize>,
    sort: Option<table::TableSort>,
    #[serde(default)]
    filters: Vec<table::RowFilter>,
    #[serde(default)]
    summary: bool,
}

fn definition() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "view": {"type": "string", "description": "The name of a view, as an answer has it"},
            "library": {"enum": ["plotly", "vega"], "description": "A library that draws plots, instead of a view"},
            "from": {"type": "integer", "minimum": 0, "description": "The first row of a table, or the first byte"},
            "rows": {"type": "integer", "minimum": 1, "description": "How many rows of a table"},
            "sort": {
                "type": "object",
                "properties": {"column": {"type": "integer", "minimum": 0}, "descending": {"type": "boolean"}},
                "required": ["column"],
            },
            "summary": {"type": "boolean", "description": "What each column holds, instead of rows"},
            "filters": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "column": {"type": "integer", "minimum": 0, "description": "Any column if it is missing"},
                        "is": {"enum": ["containing", "=", "!=", "<", "<=", ">", ">=", "empty", "filled"]},
                        "value": {"type": "string"},
                    },
                    "required": ["is"],
                },
            },
        },
    });
    Tool::new(NAME, "Read a part of a table, a plot or an image that a cell has shown", schema(input))
        .with_title("Read a view")
        .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

/// Reads a part of a view.
pub(super) async fn read(places: &OutputPlaces, arguments: &JsonObject) -> Result<CallToolResult, String> {
    let ViewArguments { view, library, from, rows, sort, filters, summary } = parse(arguments)?;
    let name = match (view, library) {
        (None, Some(library)) => return part::of_library(library, from).map(answer),
        (Some(name), None) => name,
        _ => return Err("either the argument `view` or the argument `library` is needed".to_owned()),
    };
    let place = address(&name).and_then(|address| address.place(places, None));
    let Some((root, path)) = place else {
        let shown: String = name.chars().take(200).collect();
        return Err(format!("there is no view `{shown}`: answers have names of views"));
    };
    let query = table::RowQuery { rows, sort, filters };
    let is_table = name.ends_with("-table.jsonl");
    let turn = TURNSTILE.lock().await;
    let reading = tokio::task::spawn_blocking(move || {
        let part = if is_table {
            part::whole(&root, &path).and_then(|text| {
                if summary { summary::summary(&text, &query) } else { table::page(&text, from, &query) }
            })
        } else {
            part::of_file(&root, &path, from)
        };
        // Dropped here, since the reading goes on if its caller is gone.
        drop(turn);
        part
    });
    reading.await.unwrap_or_else(|error| Err(error.to_string())).map(answer)
}

/// The answer for the page. Its text is for whoever else reads it.
fn answer(part: Value) -> CallToolResult {
    let mut result = reply::success("A part of a view.");
    result.structured_content = Some(part);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_views_and_images() {
        let views = ["/w/.ipybox/views/0a1b2c3d-table.jsonl", "/plots/0a1b2c3d.png", "/w/.ipybox/views/x"];
        let views = views.map(PathBuf::from);
        let result = serde_json::to_value(add_names(reply::success("x"), &views)).unwrap();
        assert_eq!(result["_meta"], json!({ VIEWS: ["0a1b2c3d-table.jsonl", "0a1b2c3d.png"] }));
        let result = serde_json::to_value(add_names(reply::success("x"), &views[2..])).unwrap();
        assert_eq!(result.get("_meta"), None);
        let result =
            serde_json::to_value(add_names(reply::success("x"), &vec![views[1].clone(); 100])).unwrap();
        assert_eq!(result["_meta"][VIEWS].as_array().unwrap().len(), MOST_VIEWS);
    }

    #[test]
    fn the_page_is_whole() {
        let Some(ResourceContents::TextResourceContents { text, .. }) = page(PAGE) else { panic!("no page") };
        for mark in ["/* style */", "/* plots */", "/* script */"] {
            assert!(!text.contains(mark), "{mark}");
        }
        // The text of another page within ends no script.
        assert_eq!((text.matches("<script>").count(), text.matches("</script>").count()), (1, 1));
        assert!(!text.contains("http:") && !text.contains("https:"), "it needs no network");
        assert_eq!(page("ui://ipybox/other"), None);
    }

    #[test]
    fn only_the_page_calls_the_tool_for_reading() {
        let tools =
            add_to(crate::faces::mcp_server::tools::definitions(true, &[]), &["execute_ipython_cell"]);
        let seen: Vec<_> = tools
            .iter()
            .map(|tool| (tool.name.as_ref(), tool.meta.as_ref().unwrap().0["ui"]["visibility"][0].as_str()))
            .collect();
        assert_eq!(seen.last().unwrap(), &(NAME, Some("app")));
        assert!(seen[..seen.len() - 1].iter().all(|(_, visibility)| *visibility == Some("model")));
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        let places = OutputPlaces { workspace: "/w".into(), images: "/w/images".into() };
        for (arguments, expected) in [
            (json!({}), "either the argument `view`"),
            (json!({"view": "a", "library": "vega"}), "either the argument `view`"),
            (json!({"library": "d3"}), "library"),
            (json!({"view": "../../.env"}), "there is no view `../../.env`"),
            (json!({"view": "0a1b2c3d-table.jsonl"}), "No such file"),
            (json!({"view": "0a1b2c3d-table.jsonl", "sort": 1}), "sort"),
        ] {
            let Value::Object(arguments) = arguments else { unreachable!() };
            let result = read(&places, &arguments).await.unwrap_or_else(reply::failure);
            let result = serde_json::to_value(result).unwrap();
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(result["isError"] == true && text.contains(expected), "{text}");
        }
    }
}
