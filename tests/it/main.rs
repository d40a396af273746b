//! End-to-end tests: the built binary, real kernels, real MCP servers and clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod abuse;
mod approval;
mod architecture;
mod attacks;
mod audit;
mod breaks;
mod calls;
mod cells;
mod clients;
mod content;
mod deaths;
mod deliveries;
mod doctor;
mod environment;
mod examples;
mod ground;
mod hardship;
mod inference;
mod installation;
mod jupyter_servers;
mod library;
mod life;
mod limits;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod network;
mod output;
mod pictures;
mod protocol;
mod registration;
mod remote;
mod rounds;
#[cfg(target_os = "linux")]
mod sandbox;
mod shell;
mod shown;
mod standalone;
mod standalone_approval;
mod start;
mod starting;
mod support;
mod terminal;
mod tool_server;
mod tracebacks;
#[cfg(target_os = "linux")]
mod workspace;
