//! The text of a notebook: how cells are put into one, and how one stays below its limit. Pure.
//!
//! ```text
//! {"cells": [ <cell>,      head, then cells, then the tail, which begins after the last cell: so another cell is put
//!             <cell> ],    between the two without reading the others
//!  "metadata": …, … }
//! ```

use std::collections::HashMap;

use nbformat::v4::{Cell, DisplayData, KernelSpec, LanguageInfo, Metadata, Notebook, Output};
use serde_json::{Map, Value, json};

use crate::kernel::MimeBundle;

/// The key of what is ours, in the metadata of notebooks and cells.
pub(super) const OURS: &str = "ipybox";

/// What parts cells from each other.
pub(super) const SEPARATOR: &str = ",\n";

/// What the tail begins with. A line of a cell is indented more.
const TAIL: &str = "\n ],\n \"metadata\"";

/// What a notebook with cells begins with.
const HEAD: &str = "{\n \"cells\": [\n";

/// What tells that the outputs of a cell were left out.
const LEFT_OUT: &str = "outputs_left_out";

/// A notebook's text, of which all is known that is needed to append to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    /// The head, and the cells.
    pub(super) begin: String,
    /// What follows the last cell.
    pub(super) tail: String,
    pub(super) has_cells: bool,
}

/// Why a file is not appended to.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Refusal {
    #[error("it is no notebook")]
    NoNotebook,
    #[error("it is a notebook in another version of the format: {major}.{minor} instead of 4.5")]
    Version { major: i64, minor: i64 },
    #[error("it is a notebook that ipybox has not begun")]
    NotOurs,
}

/// An empty notebook.
pub(super) fn empty() -> Text {
    let metadata = Metadata {
        kernelspec: Some(KernelSpec {
            display_name: "Python 3 (ipykernel)".to_owned(),
            name: "python3".to_owned(),
            language: Some("python".to_owned()),
            additional: HashMap::new(),
        }),
        language_info: Some(LanguageInfo {
            name: "python".to_owned(),
            version: None,
            codemirror_mode: None,
            additional: HashMap::new(),
        }),
        authors: None,
        additional: [(OURS.to_owned(), json!({ "format": 1 }))].into(),
    };
    let placeholder =
        Cell::Raw { id: uuid::Uuid::nil().into(), metadata: Default::default(), source: Vec::new() };
    let text = serialized(vec![placeholder], metadata);
    let tail = text.find(TAIL).map_or("", |at| &text[at..]).to_owned();
    Text { begin: HEAD.to_owned(), tail, has_cells: false }
}

/// The text of a cell in a notebook.
pub(super) fn cell_text(cell: Cell) -> String {
    let text = serialized(vec![cell], Metadata::default());
    let end = text.find(TAIL).unwrap_or(text.len());
    text.get(HEAD.len()..end).unwrap_or_default().to_owned()
}

/// An output that shows representations of an object; `number` if they are the cell's value.
pub(super) fn object(bundle: MimeBundle, number: Option<i32>, metadata: Map<String, Value>) -> Output {
    let output = match number {
        Some(number) => json!({
            "output_type": "execute_result", "execution_count": number, "data": bundle, "metadata": &metadata
        }),
        None => json!({ "output_type": "display_data", "data": bundle, "metadata": &metadata }),
    };
    serde_json::from_value(output).unwrap_or_else(|error| {
        tracing::debug!(%error, "an object is not shown in the notebook");
        Output::DisplayData(DisplayData { metadata, ..DisplayData::default() })
    })
}

fn serialized(cells: Vec<Cell>, metadata: Metadata) -> String {
    let notebook = Notebook { metadata, nbformat: 4, nbformat_minor: 5, cells };
    // Only a notebook of another version cannot be written.
    nbformat::serialize_notebook(&nbformat::Notebook::V4(notebook)).unwrap_or_default()
}

/// Reads a notebook that is to be appended to.
pub(super) fn read(content: &[u8]) -> Result<Value, Refusal> {
    if content.is_empty() {
        let Text { begin, tail, .. } = empty();
        return serde_json::from_str(&(begin + &tail)).map_err(|_| Refusal::NoNotebook);
    }
    let notebook: Value = serde_json::from_slice(content).map_err(|_| Refusal::NoNotebook)?;
    let [major, minor] = ["nbformat", "nbformat_minor"].map(|name| notebook[name].as_i64());
    let (Some(major), Some(minor), true) = (major, minor, notebook["cells"].is_array()) else {
        return Err(Refusal::NoNotebook);
    };
    match (major, minor) {
        (4, 5..) if notebook["metadata"][OURS].is_object() => Ok(notebook),
        (4, 5..) => Err(Refusal::NotOurs),
        _ => Err(Refusal::Version { major, minor }),
    }
}

/// The text of a notebook that was read.
pub(super) fn text_of(mut notebook: Value) -> Text {
    let cells = notebook["cells"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let mut begin = HEAD.to_owned();
    for (place, cell) in cells.iter().enumerate() {
        begin.push_str(if place > 0 { SEPARATOR } else { "" });
        begin.push_str(&indented(cell));
    }
    // What follows is written as with a cell, of which there is room for one.
    let mut tail = "\n ]".to_owned();
    for (name, value) in notebook.as_object().into_iter().flatten().filter(|(name, _)| *name != "cells") {
        tail.push_str(&format!(",\n {}: {}", json!(name), pretty(value).replace('\n', "\n ")));
    }
    tail.push_str("\n}\n");
    Text { begin, tail, has_cells: !cells.is_empty() }
}

fn indented(cell: &Value) -> String {
    format!("  {}", pretty(cell).replace('\n', "\n  "))
}

fn pretty(value: &Value) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing to memory does not fail.
    serde::Serialize::serialize(value, &mut serializer).ok();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Leaves out the outputs of the oldest cells, and cells where that is not enough, until the cells have about `limit`
/// bytes.
pub(super) fn shorten(notebook: &mut Value, limit: usize) {
    let Some(cells) = notebook["cells"].as_array_mut() else { return };
    let mut lengths: Vec<usize> = cells.iter().map(|cell| indented(cell).len()).collect();
    let mut total: usize = lengths.iter().sum();
    for (cell, length) in cells.iter_mut().zip(&mut lengths) {
        if total <= limit {
            return;
        }
        let has_outputs = cell["outputs"].as_array().is_some_and(|outputs| !outputs.is_empty());
        if !has_outputs || !cell["metadata"][OURS].is_object() {
            continue;
        }
        cell["outputs"] = json!([]);
        cell["metadata"][OURS][LEFT_OUT] = json!(true);
        let shorter = indented(cell).len();
        total = total - *length + shorter;
        *length = shorter;
    }
    let surplus = lengths.iter().scan(total, |total, length| {
        let is_too_much = *total > limit;
        *total -= length;
        is_too_much.then_some(())
    });
    let surplus = surplus.count();
    cells.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(source: &str) -> String {
        cell_text(Cell::Raw {
            id: uuid::Uuid::new_v4().into(),
            metadata: Default::default(),
            source: vec![source.to_owned()],
        })
    }

    /// The text with these cells appended.
    fn with(mut text: Text, cells: &[&str]) -> String {
        for source in cells {
            if text.has_cells {
                text.begin.push_str(SEPARATOR);
            }
            text.begin.push_str(&cell(source));
            text.has_cells = true;
        }
        text.begin + &text.tail
    }

    fn sources(text: &str) -> Vec<String> {
        let notebook = read(text.as_bytes()).unwrap();
        let cells = notebook["cells"].as_array().unwrap().iter();
        cells.map(|cell| cell["source"][0].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn cells_are_put_before_the_tail() {
        let text = with(empty(), &["1", "2\n ],\n \"metadata\""]);
        assert_eq!(sources(&text), ["1", "2\n ],\n \"metadata\""]);
        assert!(text.ends_with(" \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n"), "{text}");
        let again = text_of(read(text.as_bytes()).unwrap());
        assert_eq!(again.begin.clone() + &again.tail, text);
        assert_eq!(sources(&with(again, &["3"])).len(), 3);
    }

    #[test]
    fn a_notebook_that_somebody_has_changed_is_gone_on_with() {
        let changed =
            r#"{"nbformat_minor": 5, "metadata": {"ipybox": {}, "a": [1, "é"]}, "cells": [], "nbformat": 4}"#;
        let text = with(text_of(read(changed.as_bytes()).unwrap()), &["1"]);
        let notebook = read(text.as_bytes()).unwrap();
        assert_eq!(notebook["metadata"], json!({"ipybox": {}, "a": [1, "é"]}));
        assert_eq!(sources(&text), ["1"]);
    }

    #[test]
    fn only_notebooks_of_ours_are_gone_on_with() {
        let check =
            |content: &str, expected| assert_eq!(read(content.as_bytes()), Err(expected), "{content}");
        for other in ["{", "[]", "print()", "{}", r#"{"nbformat": 4, "nbformat_minor": 5, "cells": 1}"#] {
            check(other, Refusal::NoNotebook);
        }
        let of = |rest: &str| format!(r#"{{"cells": [], "metadata": {{}}, {rest}}}"#);
        check(&of(r#""nbformat": 4, "nbformat_minor": 5"#), Refusal::NotOurs);
        check(&of(r#""nbformat": 4, "nbformat_minor": 4"#), Refusal::Version { major: 4, minor: 4 });
        check(&of(r#""nbformat": 5, "nbformat_minor": 0"#), Refusal::Version { major: 5, minor: 0 });
        assert_eq!(read(b"").unwrap()["cells"], json!([]));
    }

    #[test]
    fn the_oldest_outputs_make_room_and_then_the_oldest_cells() {
        let cell = |number: usize| json!({"source": [number.to_string()], "outputs": ["x".repeat(10_000)], "metadata": {"ipybox": {}}});
        let notebook = || json!({"cells": (0..10).map(cell).collect::<Vec<_>>()});
        let mut shortened = notebook();
        shorten(&mut shortened, 50_000);
        let cells = shortened["cells"].as_array().unwrap();
        let is_left_out = |cell: &Value| cell["metadata"]["ipybox"][LEFT_OUT] == true;
        assert_eq!(cells.iter().map(is_left_out).filter(|it| *it).count(), 6);
        assert!(cells[..6].iter().all(is_left_out) && cells.len() == 10);

        let mut shortened = notebook();
        shorten(&mut shortened, 500);
        let cells = shortened["cells"].as_array().unwrap();
        assert!(
            !cells.is_empty() && cells.len() < 6 && cells.last().unwrap()["source"][0] == "9",
            "{cells:?}"
        );
    }
}
