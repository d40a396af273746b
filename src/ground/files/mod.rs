//! Files that other processes write too: documents that processes share, and files that a stranger may have
//! made; and directories where no stranger can make any.

mod changed;
mod front_socket;
mod identity;
pub(crate) mod inside;
mod journal;
mod private;
pub(crate) mod replacement;
pub(crate) mod small;
mod state;
mod temporary;

pub(crate) use self::changed::{ChangedFiles, changed_since, file_time};
pub(crate) use self::front_socket::{ConnectionUse, FrontServer, FrontSocket};
pub(crate) use self::identity::FileIdentity;
pub(crate) use self::journal::{Journal, JournalNote};
pub(crate) use self::private::{check_parents, check_private, create_private_directory, real_path};
pub(crate) use self::replacement::{persist, sweep_state};
pub(crate) use self::small::{if_there, is_at};
pub(crate) use self::state::{FileStamp, StateFile, held_too_long, lock};
pub(crate) use self::temporary::{TemporaryDirectory, remove_tree, remove_tree_in};
