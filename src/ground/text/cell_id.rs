//! The ids of cells, such as `cell-7`, as agents and applications write them; pure.

/// The id of a cell.
pub(crate) fn cell_id(number: u64) -> String {
    format!("cell-{number}")
}

/// The number in the id of a cell.
pub(crate) fn cell_number(id: &str) -> Option<u64> {
    id.trim().strip_prefix("cell-")?.parse().ok()
}
