//! ipybox
pub mod env;
mod process;
