//! The output of cells, kept within bounds: an excerpt for the answer; long texts, images and files in the workspace.

mod excerpt;
mod files;
mod images;
mod kept;
mod late;
mod plots;
mod record;
mod shown_files;
mod unread;

pub(crate) use self::excerpt::{Excerpt, excerpt};
pub(crate) use self::files::{OUTPUTS, OutputFile};
pub(crate) use self::images::{Places, SavedImage};
pub(crate) use self::kept::{KeptFiles, directory_below};
pub(crate) use self::late::{Late, late_section};
pub(crate) use self::plots::Library;
pub(crate) use self::record::{Cut, OutputRecorder, OutputText, Recorded};
pub(crate) use self::shown_files::{FILES, SavedFile, VIEWS};
pub(crate) use self::unread::Unread;
