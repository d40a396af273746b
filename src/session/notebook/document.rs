//! The text of a notebook: how cells are put into one, and how one stays below its limit. Pure.
//!
//! ```text
//! {"cells": [ <cell>,      head, then cells, then the tail, which begins after the last cell: so another cell is put
//!             <cell> ],    between the two without reading the others
//!  "metadata": …, … }
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Formatter};

use nbformat::v4::{Cell, DisplayData, KernelSpec, LanguageInfo, Metadata, Notebook, Output};
use serde::de::{Deserializer as _, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::kernels::kernel::MimeBundle;

/// The key of what is ours, in the metadata of notebooks and cells.
pub(super) const OURS: &str = "ipybox";

/// The text between cells.
pub(super) const SEPARATOR: &str = ",\n";

/// The beginning of the tail. A line of a cell is indented more.
const TAIL: &str = "\n ],\n \"metadata\"";

/// The beginning of a notebook with cells.
const HEAD: &str = "{\n \"cells\": [\n";

/// The greatest size of what is beside the cells, in bytes: it is written anew with each cell.
const OTHERS_BYTES: usize = 1024 * 1024;

/// The number of cells that a notebook may have, and of members of an object that is looked into.
const MOST_CELLS: usize = 100_000;
const MOST_MEMBERS: usize = 1_000;

/// The metadata key of a cell whose outputs were left out.
const LEFT_OUT: &str = "outputs_left_out";

/// A notebook's text, of which all is known that is needed to append to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotebookText {
    /// The head, and the cells.
    pub(super) begin: String,
    /// The text after the last cell.
    pub(super) tail: String,
    pub(super) has_cells: bool,
}

/// Why a file is not appended to.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum NotebookRefusal {
    #[error("it is no notebook")]
    NoNotebook,
    #[error("it is a notebook in another version of the format: {major}.{minor} instead of 4.5")]
    Version { major: i64, minor: i64 },
    #[error("it is a notebook that ipybox has not begun")]
    NotOurs,
    #[error("what it has beside its cells is larger than {OTHERS_BYTES} bytes")]
    LargeMetadata,
}

/// An empty notebook.
pub(super) fn empty() -> NotebookText {
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
            // `nbconvert` makes a Python file of a notebook that says so.
            additional: [
                ("file_extension", ".py"),
                ("mimetype", "text/x-python"),
                ("nbconvert_exporter", "python"),
                ("pygments_lexer", "ipython3"),
            ]
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .into(),
        }),
        authors: None,
        additional: [(OURS.to_owned(), json!({ "format": 1 }))].into(),
    };
    let placeholder =
        Cell::Raw { id: uuid::Uuid::nil().into(), metadata: Default::default(), source: Vec::new() };
    let text = serialized(vec![placeholder], metadata);
    let tail = text.find(TAIL).map_or("", |at| &text[at..]).to_owned();
    NotebookText { begin: HEAD.to_owned(), tail, has_cells: false }
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

/// A notebook that was read. Its parts are kept as they are written: their values may be a hundred times as large.
#[derive(Debug)]
pub(super) struct NotebookDocument<'a> {
    cells: Vec<Cow<'a, str>>,
    /// The members beside the cells.
    others: Vec<(String, Cow<'a, str>)>,
}

/// Reads a notebook that is to be appended to.
pub(super) fn read(content: &[u8]) -> Result<NotebookDocument<'_>, NotebookRefusal> {
    if content.is_empty() {
        let NotebookText { begin, tail, .. } = empty();
        let text = begin + &tail;
        let NotebookDocument { cells, others } = parse(&text)?;
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        return Ok(NotebookDocument {
            cells: cells.into_iter().map(owned).collect(),
            others: others.into_iter().map(|(name, value)| (name, owned(value))).collect(),
        });
    }
    parse(std::str::from_utf8(content).map_err(|_| NotebookRefusal::NoNotebook)?)
}

fn parse(text: &str) -> Result<NotebookDocument<'_>, NotebookRefusal> {
    let parts = members(text).ok_or(NotebookRefusal::NoNotebook)?;
    let part = |name: &str| parts.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
    let number = |name: &str| part(name)?.parse::<i64>().ok();
    let cells = part("cells").and_then(items);
    let (Some(major), Some(minor), Some(cells)) = (number("nbformat"), number("nbformat_minor"), cells)
    else {
        return Err(NotebookRefusal::NoNotebook);
    };
    let is_ours = part("metadata")
        .and_then(members)
        .is_some_and(|metadata| metadata.iter().any(|(name, value)| name == OURS && value.starts_with('{')));
    match (major, minor) {
        (4, 5..) if !is_ours => return Err(NotebookRefusal::NotOurs),
        (4, 5..) => {}
        _ => return Err(NotebookRefusal::Version { major, minor }),
    }
    let others: Vec<_> = parts.into_iter().filter(|(name, _)| name != "cells").collect();
    if others.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > OTHERS_BYTES {
        return Err(NotebookRefusal::LargeMetadata);
    }
    Ok(NotebookDocument {
        cells: cells.into_iter().map(Cow::Borrowed).collect(),
        others: others.into_iter().map(|(name, value)| (name, Cow::Borrowed(value))).collect(),
    })
}

impl NotebookDocument<'_> {
    /// Its text.
    pub(super) fn text(&self) -> NotebookText {
        let mut begin = String::with_capacity(HEAD.len() + self.cells_bytes());
        begin.push_str(HEAD);
        for (place, cell) in self.cells.iter().enumerate() {
            begin.push_str(if place > 0 { SEPARATOR } else { "" });
            begin.push_str("  ");
            begin.push_str(cell);
        }
        // What follows is written as with a cell, of which there is room for one.
        let mut tail = "\n ]".to_owned();
        for (name, value) in &self.others {
            tail.push_str(&format!(",\n {}: {value}", json!(name)));
        }
        tail.push_str("\n}\n");
        NotebookText { begin, tail, has_cells: !self.cells.is_empty() }
    }

    /// The number of bytes of the text of its cells.
    pub(super) fn cells_bytes(&self) -> usize {
        self.cells.iter().map(|cell| cell_bytes(cell)).sum()
    }

    /// Leaves out the outputs of the oldest cells, and cells where that is not enough, until the cells have about `limit`
    /// bytes.
    pub(super) fn shorten(&mut self, limit: usize) {
        let mut total = self.cells_bytes();
        for cell in &mut self.cells {
            if total <= limit {
                return;
            }
            if let Some(shorter) = without_outputs(cell) {
                total = total - cell_bytes(cell) + cell_bytes(&shorter);
                *cell = Cow::Owned(shorter);
            }
        }
        let surplus = self.cells.iter().scan(total, |total, cell| {
            let is_too_much = *total > limit;
            *total -= cell_bytes(cell);
            is_too_much.then_some(())
        });
        let surplus = surplus.count();
        self.cells.drain(..surplus);
    }
}

/// The bytes of a cell with what is between it and the next one.
fn cell_bytes(cell: &str) -> usize {
    cell.len() + SEPARATOR.len() + 2
}

/// A cell of ours without its outputs; `None` if it is another one, or has none.
fn without_outputs(cell: &str) -> Option<String> {
    let mut parts = members(cell)?;
    let place = |parts: &[(String, &str)], name: &str| parts.iter().position(|(other, _)| other == name);
    let outputs = place(&parts, "outputs")?;
    let metadata = place(&parts, "metadata")?;
    if parts[outputs].1.trim_start_matches('[').trim_start().starts_with(']') {
        return None;
    }
    let mut of_cell = members(parts[metadata].1)?;
    let ours = place(&of_cell, OURS)?;
    let mut of_ours = members(of_cell[ours].1)?;
    of_ours.retain(|(name, _)| name != LEFT_OUT);
    of_ours.push((LEFT_OUT.to_owned(), "true"));
    let of_ours = object_text(&of_ours);
    of_cell[ours].1 = &of_ours;
    let of_cell = object_text(&of_cell);
    (parts[outputs].1, parts[metadata].1) = ("[]", &of_cell);
    Some(object_text(&parts))
}

fn object_text(members: &[(String, &str)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}: {value}", json!(name))).collect();
    format!("{{{}}}", members.join(", "))
}

/// The members of an object, with their values as they are written; `None` if it is something else, or has too many.
fn members(text: &str) -> Option<Vec<(String, &str)>> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de str)>;

        fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                if members.len() >= MOST_MEMBERS {
                    return Err(A::Error::custom("it has too many members"));
                }
                members.push((name, value.get()));
            }
            Ok(members)
        }
    }

    let mut reader = serde_json::Deserializer::from_str(text);
    let members = reader.deserialize_map(Members).ok()?;
    reader.end().ok()?;
    Some(members)
}

/// The items of an array, as they are written; `None` if it is something else, or has too many.
fn items(text: &str) -> Option<Vec<&str>> {
    struct Items;

    impl<'de> Visitor<'de> for Items {
        type Value = Vec<&'de str>;

        fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
            formatter.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element::<&'de RawValue>()? {
                if all.len() >= MOST_CELLS {
                    return Err(A::Error::custom("it has too many items"));
                }
                all.push(item.get());
            }
            Ok(all)
        }
    }

    let mut reader = serde_json::Deserializer::from_str(text);
    let items = reader.deserialize_seq(Items).ok()?;
    reader.end().ok()?;
    Some(items)
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
    fn with(mut text: NotebookText, cells: &[&str]) -> String {
        for source in cells {
            if text.has_cells {
                text.begin.push_str(SEPARATOR);
            }
            text.begin.push_str(&cell(source));
            text.has_cells = true;
        }
        text.begin + &text.tail
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn sources(text: &str) -> Vec<String> {
        let notebook = value(text);
        let cells = notebook["cells"].as_array().unwrap().iter();
        cells.map(|cell| cell["source"][0].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn cells_are_put_before_the_tail() {
        let text = with(empty(), &["1", "2\n ],\n \"metadata\""]);
        assert_eq!(sources(&text), ["1", "2\n ],\n \"metadata\""]);
        assert!(text.ends_with(" \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n"), "{text}");
        let again = read(text.as_bytes()).unwrap().text();
        assert_eq!(again.begin.clone() + &again.tail, text);
        assert_eq!(sources(&with(again, &["3"])).len(), 3);
    }

    #[test]
    fn a_notebook_that_somebody_has_changed_is_gone_on_with() {
        let changed =
            r#"{"nbformat_minor": 5, "metadata": {"ipybox": {}, "a": [1, "é"]}, "cells": [], "nbformat": 4}"#;
        let text = with(read(changed.as_bytes()).unwrap().text(), &["1"]);
        let notebook = value(&text);
        assert_eq!(notebook["metadata"], json!({"ipybox": {}, "a": [1, "é"]}));
        assert_eq!(sources(&text), ["1"]);
    }

    #[test]
    fn only_notebooks_of_ours_are_gone_on_with() {
        let check = |content: &str, expected| {
            assert_eq!(read(content.as_bytes()).unwrap_err(), expected, "{content}")
        };
        for other in ["{", "[]", "print()", "{}", r#"{"nbformat": 4, "nbformat_minor": 5, "cells": 1}"#] {
            check(other, NotebookRefusal::NoNotebook);
        }
        let of = |rest: &str| format!(r#"{{"cells": [], "metadata": {{}}, {rest}}}"#);
        check(&of(r#""nbformat": 4, "nbformat_minor": 5"#), NotebookRefusal::NotOurs);
        check(&of(r#""nbformat": 4, "nbformat_minor": 4"#), NotebookRefusal::Version { major: 4, minor: 4 });
        check(&of(r#""nbformat": 5, "nbformat_minor": 0"#), NotebookRefusal::Version { major: 5, minor: 0 });
        assert_eq!(read(b"").unwrap().text(), empty());
    }

    #[test]
    fn the_oldest_outputs_make_room_and_then_the_oldest_cells() {
        let cell = |number: usize| json!({"source": [number.to_string()], "outputs": ["x".repeat(10_000)], "metadata": {"ipybox": {}}});
        let notebook = json!({
            "cells": (0..10).map(cell).collect::<Vec<_>>(),
            "metadata": {"ipybox": {}}, "nbformat": 4, "nbformat_minor": 5,
        });
        let notebook = notebook.to_string();
        let shortened = |limit: usize| {
            let mut document = read(notebook.as_bytes()).unwrap();
            document.shorten(limit);
            let NotebookText { begin, tail, .. } = document.text();
            value(&(begin + &tail))["cells"].as_array().unwrap().clone()
        };
        let cells = shortened(50_000);
        let is_left_out = |cell: &Value| cell["metadata"]["ipybox"][LEFT_OUT] == true;
        assert_eq!(cells.iter().map(is_left_out).filter(|it| *it).count(), 6);
        assert!(cells[..6].iter().all(is_left_out) && cells.len() == 10);
        assert!(cells[..6].iter().all(|cell| cell["outputs"] == json!([])), "{cells:?}");

        let cells = shortened(500);
        assert!(
            !cells.is_empty() && cells.len() < 6 && cells.last().unwrap()["source"][0] == "9",
            "{cells:?}"
        );
    }

    #[test]
    fn hostile_notebooks_do_not_grow() {
        let of = |cells: &str, metadata: &str| {
            format!(
                r#"{{"cells": [{cells}], "metadata": {{"ipybox": {{}}, "x": {metadata}}}, "nbformat": 4, "nbformat_minor": 5}}"#
            )
        };
        let nested = |count: usize| "[".repeat(100) + &"[],".repeat(count) + "[]" + &"]".repeat(100);
        let text = of(&format!(r#"{{"source": {}}}"#, nested(100_000)), "1");
        let NotebookText { begin, tail, .. } = read(text.as_bytes()).unwrap().text();
        assert!(begin.len() + tail.len() < text.len() + 100);
        assert_eq!(read(of("", &nested(400_000)).as_bytes()).unwrap_err(), NotebookRefusal::LargeMetadata);
        let many = "1,".repeat(MOST_CELLS) + "1";
        assert_eq!(read(of(&many, "1").as_bytes()).unwrap_err(), NotebookRefusal::NoNotebook);
    }
}
