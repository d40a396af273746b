//! MCP between ipybox and its clients.

mod clients;
pub(crate) mod requests;
mod undelivered_answers;
mod unread_pipes;
