//! The code generator from outside: what its text looks like, that it is always Python, and how it behaves when run.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what helps it")]

mod behaviour;
mod golden;
mod limits;
mod names;
mod properties;
mod resources;
mod support;
