//! MCP between ipybox and its clients.

mod clients;
pub(crate) mod requests;
pub(crate) mod resources;
mod undelivered_answers;
mod unread_pipes;
