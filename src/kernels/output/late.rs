//! Output of threads, tasks and child processes of earlier cells after their cell has ended.
//!
//! The next cell's outcome reports it, apart from that cell's own output.

use super::images::OutputPlaces;
use super::record::{OutputRecorder, RecordedOutput};
use crate::kernels::kernel::{MessageContent, ShownOutput, Transcript};

/// The number of its characters that are reported.
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
pub(crate) struct LateOutput {
    places: OutputPlaces,
    transcript: Transcript,
    /// `None` until there is output.
    record: Option<OutputRecorder>,
}

impl LateOutput {
    /// Begins with nothing; long output and images are kept in files of `places`.
    pub(crate) fn new(places: OutputPlaces) -> Self {
        Self { places, transcript: Transcript::default(), record: None }
    }

    /// Records a message that belongs to no running cell.
    pub(crate) async fn take(&mut self, content: MessageContent) {
        let shown = match content {
            MessageContent::Shown(shown) => shown,
            MessageContent::Error(error) => ShownOutput::Stream(format!("{}\n", error.text())),
            _ => return,
        };
        let record = self.record.get_or_insert_with(|| OutputRecorder::new(&self.places, LIMIT));
        record.keep(self.transcript.take(shown)).await;
    }

    /// Takes the output so far.
    pub(crate) async fn drain(&mut self) -> RecordedOutput {
        match self.record.take() {
            Some(record) => record.finish(std::mem::take(&mut self.transcript).finish()).await,
            None => RecordedOutput::default(),
        }
    }

    /// The places for files.
    pub(crate) fn places(&self) -> &OutputPlaces {
        &self.places
    }
}
