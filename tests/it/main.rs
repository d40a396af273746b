//! End-to-end tests: the built binary, real kernels, real MCP servers and clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod abuse;
mod approval;
mod architecture;
mod audit;
mod calls;
mod cells;
mod clients;
mod deaths;
mod environment;
mod examples;
mod hardship;
mod library;
mod life;
mod limits;
mod output;
mod pictures;
mod protocol;
mod registration;
mod rounds;
mod shell;
mod standalone;
mod standalone_approval;
mod start;
mod support;
mod terminal;
mod tool_server;
