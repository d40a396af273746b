//! The MCP server: four tools, and a fifth for cells that take long.
//!
//! It translates between MCP and a session; one file per tool.

mod answer_news;
mod arguments;
mod arrivals;
mod asking;
mod attached;
mod call_context;
mod calls;
mod execute;
mod handler;
mod icons;
mod install;
mod instructions;
mod ledger;
mod line_transport;
mod methods;
mod pictures;
mod progress;
mod questions;
mod queue;
mod receipt;
mod register;
mod reply;
mod reset;
mod resource_address;
mod resources;
mod server;
mod serving;
mod sessions;
mod skills;
mod stdio;
mod streams;
mod tools;
mod traced_handler;
mod uploads;
mod views;
mod wait;

pub(crate) use self::receipt::receipt;
pub use self::serving::Error;
pub(crate) use self::serving::{Codes, Serving};
pub(crate) use self::stdio::end_on_signals;
pub use self::stdio::serve_stdio;
pub(crate) use self::streams::ClientStreams;
pub use crate::approval::Answer as PromptAnswer;
pub use crate::faces::people::{CellAuthor, Heard, Said, named_rows};
