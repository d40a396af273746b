//! Files that other processes write too: documents that processes share, and files that a stranger may have
//! made.

pub(crate) mod inside;
pub(crate) mod small;
mod state;
mod temporary;

pub(crate) use self::small::if_there;
pub(crate) use self::state::{Stamp, StateFile, create_private_directory, lock};
pub(crate) use self::temporary::{TemporaryDirectory, remove_tree};
