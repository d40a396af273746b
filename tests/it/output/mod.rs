//! The output of cells, as the client gets it.

pub(crate) mod displays;
mod floods;
pub(crate) mod images;
pub(crate) mod long_output;
pub(crate) mod notebook;
pub(crate) mod plots;
pub(crate) mod streams;
pub(crate) mod tracebacks;
