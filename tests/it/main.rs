//! End-to-end tests: the built binary, real kernels, real MCP servers and clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod approval;
mod architecture;
mod attacks;
mod cells;
mod examples;
mod lasting;
mod library;
mod oauth;
mod output;
mod page;
mod protocol;
mod record;
mod remote;
mod runner;
#[cfg(target_os = "linux")]
mod sandbox;
mod shutdown;
mod starting;
mod support;
#[cfg(target_os = "linux")]
mod team;
mod telemetry;
mod tool_server;
mod tools;
mod views;
