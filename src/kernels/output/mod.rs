//! The output of cells, kept within bounds: an excerpt for the answer; long texts, images and files in the workspace.
//!
//! Reasons: `docs/decisions/output.md`.

mod excerpt;
mod files;
mod images;
mod kept;
mod late;
#[cfg(feature = "views")]
mod plots;
mod record;
mod shown_files;
mod unread;

pub(crate) use self::excerpt::{Excerpt, excerpt};
pub(crate) use self::files::{OUTPUTS, OutputFile};
pub(crate) use self::images::{OutputPlaces, SavedImage};
pub(crate) use self::kept::{KeptFiles, directory_below};
pub(crate) use self::late::{LateOutput, late_section};
#[cfg(feature = "views")]
pub(crate) use self::plots::PlotLibrary;
pub(crate) use self::record::{CutText, OutputRecorder, OutputText, RecordedOutput};
pub(crate) use self::shown_files::{FILES, SavedFile, VIEWS};
pub(crate) use self::unread::UnreadText;
