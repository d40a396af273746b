//! Cells: what `execute_ipython_cell` runs, and how it ends.

mod checkpoint;
mod concurrency;
pub(crate) mod execution;
pub(crate) mod exits;
mod interrupts;
pub(crate) mod kernel_deaths;
mod kernel_limits;
mod libraries;
pub(crate) mod magics;
pub(crate) mod sources;
mod surroundings;
mod unusual_code;
