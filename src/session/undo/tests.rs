//! Claims of cells that can be undone, without kernels.

use std::time::Duration;

use super::*;

fn cell(code: &str, id: Option<u64>) -> BegunCell<'_> {
    BegunCell { code, id, audited: id, number: 0, begun: std::time::SystemTime::now() }
}

fn history(memory: u64) -> UndoHistory {
    let places = WatchedPlaces { workspace: PathBuf::from("/w"), apart: Vec::new() };
    UndoHistory::new(memory, Some(4000), false, Some(places))
}

#[test]
fn a_part_of_the_limit_is_the_most_that_states_take() {
    assert_eq!(history(900).budget, 900);
    assert_eq!(history(5000).budget, 1000);
    assert!(matches!(history(0).claim(UndoTarget::Cells(1)), Err(UndoError::Off)));
}

#[test]
fn cells_are_found_by_number_and_by_id() {
    let history = history(1);
    let refusal = |target| history.claim(target).err().map(|error| error.to_string()).unwrap_or_default();
    history.kernel_started();
    assert_eq!(refusal(UndoTarget::Cells(1)), "undo 1 cells: there are 0");
    history.cell_begins(cell("\n  x = `1`", Some(7)));
    history.enter(Err("a thread runs".to_owned()), Duration::ZERO);
    history.cell_begins(cell("y", None));
    assert_eq!(refusal(UndoTarget::Cells(0)), "undo 0 cells: there are 2");
    assert_eq!(refusal(UndoTarget::Cells(1)), "undo `y`: its state was not kept: a thread runs");
    assert_eq!(refusal(UndoTarget::From(8)), "undo `cell-8`: it is none of the last cells of this session");
    assert!(!history.is_claimed());
    let claim = history.claim(UndoTarget::From(7)).ok().unwrap();
    let titles: Vec<&str> = claim.cells.iter().map(|cell| cell.title.as_str()).collect();
    assert_eq!(titles, ["`cell-7` (`x = '1'`)", "`y`"]);
    assert!(matches!(claim.state, StateBefore::Fresh) && claim.parent == 0 && history.is_claimed());
}

#[test]
fn effects_are_those_since_the_cell() {
    let history = history(1);
    history.kernel_started();
    let called = |number: usize| CellEffect::Call(number.to_string());
    history.note(called(1));
    history.cell_begins(cell("x", None));
    (2..700).for_each(|number| history.note(called(number)));
    let effects = history.claim(UndoTarget::Cells(1)).ok().unwrap().effects;
    assert_eq!(
        (effects.len(), effects.first(), effects.last()),
        (500, Some(&called(200)), Some(&called(699)))
    );
    assert_eq!(history.past.lock().effects.since(1_000), []);
    history.kernel_started();
    history.cell_begins(cell("y", None));
    history.note(called(1));
    assert_eq!(history.claim(UndoTarget::Cells(1)).ok().unwrap().effects, [called(1)]);
}

#[test]
fn the_answer_names_cells_and_what_remains() {
    let undone = |cells: &[&str], remains: &[&str]| {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        UndoResult { cells: texts(cells), remains: texts(remains) }.words()
    };
    assert_eq!(undone(&["`x`"], &[]), "The kernel is as it was before `x`, which is undone.");
    assert_eq!(
        undone(&["`x`", "`y`"], &["new: `a.txt`"]),
        "The kernel is as it was before `x`: the last 2 cells are undone.\nNot taken back:\n- new: `a.txt`"
    );
}
