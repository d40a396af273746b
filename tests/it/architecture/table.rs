//! The table of rooms in `ARCHITECTURE.md`, which says what each room never knows.
//!
//! A cell of its last column has clauses between semicolons: `–`, "everybody", "everybody but" and a list, or a list. Lists
//! name rooms, modules of rooms and crates between backticks, with commas between them.

const HEAD: &str = "| room | what it is | never knows |";

/// A row: what holds for each of its rooms.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// As the document names them: `kernel/`, `sandbox/check/`, `main.rs`.
    pub(super) rooms: Vec<String>,
    pub(super) never: Never,
}

/// What a room never knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Never {
    /// All rooms but these.
    pub(super) everybody_but: Option<Vec<String>>,
    /// These rooms, modules and crates.
    pub(super) names: Vec<String>,
}

/// The rows of the table in `document`. Panics if there is none, and if one cannot be understood.
pub(super) fn rows(document: &str) -> Vec<Row> {
    let lines = document.lines().skip_while(|line| *line != HEAD);
    let rows: Vec<Row> = lines.skip(2).take_while(|line| line.starts_with('|')).map(row).collect();
    assert!(!rows.is_empty(), "there is no table of rooms: `{HEAD}`");
    rows
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [rooms, _, never] = cells[..] else { panic!("a row has three cells: {line}") };
    Row { rooms: list(rooms), never: clauses(never) }
}

fn clauses(cell: &str) -> Never {
    let mut never = Never::default();
    if cell == "–" {
        return never;
    }
    for clause in cell.split(';').map(str::trim) {
        match clause.strip_prefix("everybody") {
            Some("") => never.everybody_but = Some(Vec::new()),
            Some(rest) => {
                let exceptions = rest.strip_prefix(" but ");
                never.everybody_but = Some(list(exceptions.unwrap_or_else(|| unknown(rest))));
            }
            None => never.names.extend(list(clause)),
        }
    }
    never
}

fn list(text: &str) -> Vec<String> {
    let name = |item: &str| {
        let name = item.trim().strip_prefix('`').and_then(|item| item.strip_suffix('`'));
        name.unwrap_or_else(|| unknown(item)).to_owned()
    };
    text.split(',').map(name).collect()
}

fn unknown(words: &str) -> ! {
    panic!("`{words}` says nothing about rooms: names are between backticks, see `architecture/table.rs`")
}

mod tests {
    use super::{HEAD, Never, rows};

    fn never(cell: &str) -> Never {
        let mut rows =
            rows(&format!("# Rooms\n\n{HEAD}\n|---|---|---|\n| `a/` | first | {cell} |\n\nMore.\n"));
        assert_eq!(rows.len(), 1);
        rows.remove(0).never
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_row_may_have_several_rooms() {
        let rows =
            rows(&format!("{HEAD}\n|---|---|---|\n| `a/`, `b.rs` | two | – |\n| `a/c/` | one | `a` |\n"));
        let rooms: Vec<&[String]> = rows.iter().map(|row| row.rooms.as_slice()).collect();
        assert_eq!(rooms, [strings(&["a/", "b.rs"]), strings(&["a/c/"])]);
    }

    #[test]
    fn a_cell_lists_rooms_modules_and_crates() {
        assert_eq!(never("–"), Never::default());
        let listed = Never { everybody_but: None, names: strings(&["b", "c/d", "rmcp"]) };
        assert_eq!(never("`b`, `c/d`, `rmcp`"), listed);
    }

    #[test]
    fn everybody_has_exceptions() {
        assert_eq!(never("everybody"), Never { everybody_but: Some(vec![]), names: vec![] });
        let some = Never { everybody_but: Some(strings(&["b", "c/d"])), names: strings(&["axum"]) };
        assert_eq!(never("everybody but `b`, `c/d`; `axum`"), some);
    }

    #[test]
    #[should_panic(expected = "says nothing about rooms")]
    fn an_unknown_word_fails() {
        never("`b`, and most of the others");
    }

    #[test]
    #[should_panic(expected = "says nothing about rooms")]
    fn an_empty_cell_fails() {
        never("");
    }

    #[test]
    #[should_panic(expected = "no table of rooms")]
    fn a_document_without_the_table_fails() {
        rows("| room | what it is |\n|---|---|\n| `a/` | first |\n");
    }
}
