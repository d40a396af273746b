//! From the messages of one cell to its output: pure, without sockets, files or clocks.

mod bundle;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod tests;
mod transcript;

pub(crate) use self::bundle::Image;
pub(crate) use self::transcript::{ImageId, Settled, Taken, Transcript};

use super::message::{Content, Message, PythonError, Shown};

/// What a cell has produced so far.
#[derive(Debug)]
pub(crate) struct Fold {
    request: String,
    has_begun: bool,
    is_idle: bool,
    is_replied: bool,
    transcript: Transcript,
    /// The last thing that was shown, if it was an exception. Nothing is known of its being the end of the cell.
    exception: Option<PythonError>,
    /// The exception that ended the cell, by its reply.
    error: Option<PythonError>,
}

impl Fold {
    /// Begins with nothing, for the messages that belong to `request`.
    pub(crate) fn new(request: String) -> Self {
        Self {
            request,
            has_begun: false,
            is_idle: false,
            is_replied: false,
            transcript: Transcript::default(),
            exception: None,
            error: None,
        }
    }

    /// Whether a message belongs to this cell.
    pub(crate) fn is_parent_of(&self, message: &Message) -> bool {
        message.parent.as_ref() == Some(&self.request)
    }

    /// Takes in a message of this cell.
    pub(crate) fn take(&mut self, content: Content) -> Taken {
        match content {
            Content::Shown(shown) => {
                let told = self.tell_exception();
                return told.and(self.transcript.take(shown));
            }
            Content::Error(error) => {
                let told = self.tell_exception();
                self.exception = Some(error);
                return told;
            }
            Content::ExecuteInput => self.has_begun = true,
            Content::Idle => self.is_idle = true,
            Content::ExecuteReply(error) => {
                self.is_replied = true;
                self.error = error;
            }
            Content::InterruptReply | Content::Welcome | Content::Dead(_) | Content::Other => {}
        }
        Taken::default()
    }

    /// Whether nothing more will come: the reply alone does not say so, output may still follow it.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_idle && self.is_replied
    }

    /// Whether the code runs, or has run: an interrupt before that is lost.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun || self.is_idle || self.is_replied
    }

    /// Whether the kernel is done with the request. A reply that has not come by now hardly ever comes.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// The rest of what the cell showed, and the exception that ended it.
    ///
    /// An exception that was the last thing shown counts as one, also if the reply does not say so: `%run script.py`
    /// shows what ended the script.
    pub(crate) fn finish(self) -> (Settled, Option<PythonError>) {
        (self.transcript.finish(), self.exception.or(self.error))
    }

    /// Something else follows an exception that was shown: it was output, and stands in its place.
    fn tell_exception(&mut self) -> Taken {
        match self.exception.take() {
            Some(error) => self.transcript.take(Shown::Stream(format!("{}\n", error.text()))),
            None => Taken::default(),
        }
    }
}
