//! What threads, tasks and child processes of earlier cells show after their cell has ended.
//!
//! The next cell's outcome reports it, apart from that cell's own output.

use super::images::Places;
use super::record::{Record, Recorded};
use crate::kernels::kernel::{Content, Shown, Transcript};

/// How many characters of it are reported.
const LIMIT: usize = 5_000;

/// Late output in an answer, marked so that nobody takes it for the cell's own; `None` if there is none.
pub(crate) fn late_section(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| {
        format!(
            "[Output of earlier cells, after they had ended:]\n{text}\n[End of the output of earlier cells]"
        )
    })
}

/// Collects late output between one outcome and the next.
#[derive(Debug)]
pub(crate) struct Late {
    places: Places,
    transcript: Transcript,
    /// `None` until there is output.
    record: Option<Record>,
}

impl Late {
    /// Begins with nothing; long output and images are kept in files of `places`.
    pub(crate) fn new(places: Places) -> Self {
        Self { places, transcript: Transcript::default(), record: None }
    }

    /// Records a message that belongs to no running cell.
    pub(crate) async fn take(&mut self, content: Content) {
        let shown = match content {
            Content::Shown(shown) => shown,
            Content::Error(error) => Shown::Stream(format!("{}\n", error.text())),
            _ => return,
        };
        let record = self.record.get_or_insert_with(|| Record::new(&self.places, LIMIT));
        record.keep(self.transcript.take(shown)).await;
    }

    /// Takes the output so far.
    pub(crate) async fn drain(&mut self) -> Recorded {
        match self.record.take() {
            Some(record) => record.finish(std::mem::take(&mut self.transcript).finish()).await,
            None => Recorded::default(),
        }
    }

    /// Where files are kept.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }
}
