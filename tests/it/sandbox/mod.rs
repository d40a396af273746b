//! Kernels in a sandbox.

mod inside;
mod installation;
mod lifetime;
mod network;
mod other_subjects;
mod policies;
mod session;
mod workspace;
