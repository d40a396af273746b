//! The MCP server: four tools, and a fifth for cells that take long. Beside it one whose tools are saved actions.
//!
//! It translates between MCP and a session; one file per tool.
//!
//! Reasons: `docs/decisions/mcp_server.md`.

mod answer_news;
mod approver_questions;
mod arguments;
mod arrivals;
mod asking;
mod attached;
mod call_context;
mod calls;
mod client_sandbox;
mod execute;
mod handler;
mod icons;
mod install;
mod instructions;
mod ledger;
mod line_transport;
mod methods;
mod open_session;
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
mod served_actions;
mod server;
mod serving;
mod session_names;
mod sessions;
mod skills;
mod stdio;
mod streams;
mod tools;
mod traced_handler;
mod uploads;
#[cfg(feature = "views")]
mod views;
mod wait;
#[cfg(not(feature = "views"))]
mod without_views;

pub(crate) use self::receipt::receipt;
pub use self::served_actions::{ServeActionsError, ServeActionsOptions, serve_actions};
pub use self::serving::Error;
pub(crate) use self::serving::{ApprovalCodes, ServedSession};
pub(crate) use self::stdio::end_on_signals;
pub use self::stdio::serve_stdio;
pub(crate) use self::streams::ClientStreams;
#[cfg(not(feature = "views"))]
use self::without_views as views;
pub use crate::approval::UserAnswer as PromptAnswer;
pub use crate::faces::people::{CellAuthor, PersonMessage, SessionMessage, named_rows};
pub(crate) use crate::session::saved_sessions;
