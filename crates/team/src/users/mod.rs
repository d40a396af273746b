//! The users of a server on its machine: a directory of each, an id of the system of each where the server runs as root, and
//! the processes of their sessions.

mod account;
mod identity;
mod retention;
mod starter;

pub use self::account::{AccountError, TeamAccount};
pub(crate) use self::account::{UserAccounts, UserPlace, user_key};
pub use self::identity::{MakeGroups, UserLimits, UserSystem, become_user};
pub(crate) use self::starter::{SessionStarter, SocketWay};
