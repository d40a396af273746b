//! Kernels in a sandbox.

mod changes;
mod clients;
mod inside;
mod installation;
mod lifetime;
mod nested;
mod network;
mod other_subjects;
mod policies;
mod session;
mod states;
mod workspace;
