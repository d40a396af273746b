//! Kernels and their surroundings: their Python environments, the sandbox around them, their output.

pub(crate) mod changes;
pub(crate) mod checkpoint;
#[cfg(feature = "kubernetes")]
pub(crate) mod claims;
pub(crate) mod environment;
pub(crate) mod kernel;
pub(crate) mod output;
pub(crate) mod pod;
pub(crate) mod sandbox;
