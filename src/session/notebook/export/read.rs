//! The parts of a notebook that are shown, whoever has written it: what is not understood is left out.

use serde_json::Value;

use super::ExportError;
use crate::ground::text::plain;
use crate::kernels::kernel::{IMAGES, is_placeholder};
use crate::session::notebook::document::OURS;

/// A notebook.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) cells: Vec<Cell>,
}

#[derive(Debug)]
pub(super) enum Cell {
    Words(String),
    Code(Code),
}

/// A cell with code.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) number: Option<u64>,
    pub(super) source: String,
    /// Whether Python has understood it, as far as its outputs show, and nothing was left out of its source.
    pub(super) is_python: bool,
    pub(super) outputs: Vec<Output>,
    /// How it ended, if not by itself.
    pub(super) end: Option<&'static str>,
    /// What it called, in a line each.
    pub(super) calls: Vec<String>,
    /// When it began, and for how long it ran, in words.
    pub(super) time: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Output {
    Text(String),
    Error(String),
    Markdown(String),
    /// Only where there is no text that says as much.
    Html(String),
    Image(Image),
}

/// An image.
#[derive(Debug, PartialEq)]
pub(super) struct Image {
    pub(super) kind: &'static str,
    pub(super) extension: &'static str,
    /// In Base64, and nothing else.
    pub(super) data: String,
}

impl Page {
    pub(super) fn read(content: &[u8]) -> Result<Self, ExportError> {
        let notebook: Value = serde_json::from_slice(content).map_err(|_| ExportError::NoNotebook)?;
        match (notebook["nbformat"].as_i64(), notebook["cells"].as_array()) {
            (Some(4), Some(cells)) => Ok(Self { cells: cells.iter().filter_map(Cell::read).collect() }),
            (Some(4) | None, _) => Err(ExportError::NoNotebook),
            (Some(other), _) => Err(ExportError::Version(other)),
        }
    }
}

impl Cell {
    fn read(cell: &Value) -> Option<Self> {
        let written = joined(&cell["source"])?;
        let source = plain(&written);
        if cell["cell_type"] != "code" {
            return Some(Self::Words(source));
        }
        let ours = &cell["metadata"][OURS];
        let outputs = || cell["outputs"].as_array().into_iter().flatten();
        let is_broken = |output: &Value| {
            ["SyntaxError", "IndentationError", "TabError"].iter().any(|name| output["ename"] == *name)
        };
        Some(Self::Code(Code {
            number: cell["execution_count"].as_u64(),
            is_python: source == written && !outputs().any(is_broken),
            source,
            outputs: outputs().filter_map(Output::read).collect(),
            end: ours["end"].as_str().and_then(end),
            calls: ours["calls"].as_array().into_iter().flatten().map(call).collect(),
            time: time(cell),
        }))
    }
}

impl Output {
    fn read(output: &Value) -> Option<Self> {
        match output["output_type"].as_str()? {
            "stream" => Some(Self::Text(plain(&joined(&output["text"])?))),
            "error" => {
                let lines = output["traceback"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let traceback = plain(&lines.collect::<Vec<_>>().join("\n"));
                let [name, value] = ["ename", "evalue"].map(|part| output[part].as_str().unwrap_or_default());
                let last = plain(&format!("{name}: {value}"));
                Some(Self::Error(if traceback.is_empty() { last } else { traceback }))
            }
            "display_data" | "execute_result" => Self::of_object(&output["data"]),
            _ => None,
        }
    }

    fn of_object(data: &Value) -> Option<Self> {
        let text = |kind: &str| joined(&data[kind]).filter(|text| !text.trim().is_empty());
        let image = IMAGES.into_iter().find_map(|(kind, extension)| {
            let data = image_data(kind, &text(kind)?)?;
            Some(Self::Image(Image { kind, extension, data }))
        });
        let words = text("text/plain").filter(|text| !is_placeholder(text));
        let markdown = || text("text/markdown").map(|text| Self::Markdown(plain(&text)));
        let html = || text("text/html").map(|html| Self::Html(plain(&html)));
        let latex = || text("text/latex").map(|text| Self::Text(plain(&text)));
        let any = || text("text/plain").map(|text| Self::Text(plain(&text)));
        image
            .or_else(markdown)
            .or_else(|| words.map(|text| Self::Text(plain(&text))))
            .or_else(latex)
            .or_else(html)
            .or_else(any)
    }
}

/// A text, or the lines of one.
fn joined(text: &Value) -> Option<String> {
    match text {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => Some(lines.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

fn image_data(kind: &str, text: &str) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    if kind == "image/svg+xml" {
        return Some(BASE64.encode(text));
    }
    let packed: String = text.split_ascii_whitespace().collect();
    BASE64.decode(&packed).is_ok().then_some(packed)
}

fn end(word: &str) -> Option<&'static str> {
    Some(match word {
        "timed_out" => "stopped at its timeout",
        "cancelled" => "cancelled",
        "reset" => "stopped by a reset",
        "died" => "its kernel died",
        "stopped" => "stopped with its session",
        "unknown" => "its end is not known",
        _ => return None,
    })
}

/// `github.list_issues(…): accepted (policy), result, 12 ms`.
fn call(call: &Value) -> String {
    let text = |name: &str| plain(call[name].as_str().unwrap_or_default()).replace('\n', " ");
    let arguments = match &call["arguments"] {
        Value::Object(arguments) => {
            let each = arguments.iter().map(|(name, value)| format!("{name}={value}"));
            each.collect::<Vec<_>>().join(", ")
        }
        Value::String(long) => long.clone(),
        _ => String::new(),
    };
    let arguments = crate::ground::text::shortened(&crate::ground::text::one_line(&arguments), 400);
    let mut words = format!("{}.{}({arguments}): {}", text("server"), text("tool"), text("decision"));
    if !text("by").is_empty() {
        words.push_str(&format!(" ({})", text("by")));
    }
    for part in ["outcome", "error", "reason"].map(text) {
        if !part.is_empty() {
            words.push_str(&format!(", {part}"));
        }
    }
    if let Some(time) = call["duration_ms"].as_u64() {
        words.push_str(&format!(", {time} ms"));
    }
    words
}

fn time(cell: &Value) -> Option<String> {
    let began = plain(cell["metadata"]["execution"]["iopub.execute_input"].as_str()?).replace('\n', " ");
    let took = cell["metadata"][OURS]["duration_ms"].as_u64()?;
    Some(format!("{began}, {}.{:03} s", took / 1000, took % 1000))
}
