//! The sessions of users: which process serves them, and which requests go there.
//!
//! ```text
//! handler ─→ directory ─→ UserSession ─→ SessionLink ═ stdio ═ the process of the session
//!                             └ records: which session a client has, also after a restart
//! ```

mod caller;
mod directory;
mod handler;
mod link;
mod records;
mod user_session;

pub(crate) use self::directory::SessionDirectory;
pub(crate) use self::handler::TeamHandler;
pub(crate) use self::records::{SessionRecords, SessionSlot};
