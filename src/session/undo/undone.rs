//! The answer of an undo, in words.

use super::effects::CellEffect;

/// The number of lines about each kind of things.
const MOST_LINES: usize = 20;

/// The result of an undo.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoResult {
    /// The cells that are undone, the oldest first.
    pub(crate) cells: Vec<String>,
    /// Lines about effects that it could not take back, and about differences to the state as it was.
    pub(crate) remains: Vec<String>,
}

impl UndoResult {
    /// The result for cells with these effects and changes of files, by a state with these differences.
    pub(crate) fn new(
        cells: Vec<String>,
        effects: Vec<CellEffect>,
        files: Vec<String>,
        differences: Vec<String>,
    ) -> Self {
        let words = effects.into_iter().filter_map(|effect| match effect {
            CellEffect::Call(call) => Some(format!("called: `{}`", call.replace('`', "'"))),
            CellEffect::Installed(what) => Some(what),
            CellEffect::Regenerated(_) => None,
        });
        let mut remains = shown(words.collect(), "calls and installations");
        remains.extend(shown(files, "changes of files"));
        remains.extend(differences);
        Self { cells, remains }
    }

    /// The answer for an agent.
    pub(crate) fn words(&self) -> String {
        let Some(first) = self.cells.first() else { return String::new() };
        let mut lines = vec![match self.cells.len() {
            1 => format!("The kernel is as it was before {first}, which is undone."),
            count => format!("The kernel is as it was before {first}: the last {count} cells are undone."),
        }];
        if !self.remains.is_empty() {
            lines.push("Not taken back:".to_owned());
            lines.extend(self.remains.iter().map(|line| format!("- {line}")));
        }
        lines.join("\n")
    }
}

/// Lines, shortened if there are many.
fn shown(mut lines: Vec<String>, what: &str) -> Vec<String> {
    let count = lines.len();
    if count > MOST_LINES {
        // The newest matter most.
        lines.drain(..count - MOST_LINES);
        lines.insert(0, format!("{} earlier {what}", count - MOST_LINES));
    }
    lines
}
