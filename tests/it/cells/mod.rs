//! Cells: what `execute_ipython_cell` runs, and how it ends.

#[cfg(target_os = "linux")]
mod branch_files;
pub(crate) mod branches;
mod checkpoint;
mod concurrency;
pub(crate) mod execution;
pub(crate) mod exits;
mod interrupts;
pub(crate) mod kernel_deaths;
mod kernel_limits;
mod leaks;
mod libraries;
pub(crate) mod magics;
#[cfg(target_os = "linux")]
mod session_limits;
pub(crate) mod sources;
mod surroundings;
#[cfg(target_os = "linux")]
mod templates;
pub(crate) mod undo;
mod unusual_code;
