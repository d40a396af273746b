//! The library, used by an application.

mod approval;
mod execution;
mod session;
