//! What cells show, kept within bounds: an excerpt for the answer, long texts and images in files of the workspace.

mod excerpt;
mod files;
mod images;
mod late;
mod record;
mod unread;

pub(crate) use self::excerpt::{Excerpt, excerpt};
pub(crate) use self::files::OutputFile;
pub(crate) use self::images::{Places, SavedImage};
pub(crate) use self::late::Late;
pub(crate) use self::record::{Cut, Record, Recorded, Text};
pub(crate) use self::unread::Unread;
