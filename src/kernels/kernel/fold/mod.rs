//! From the messages of one cell to its output: pure, without sockets, files or clocks.

mod bundle;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tests;
mod transcript;

pub(crate) use self::bundle::{FileRole, PlotKind, ShownFile, ShownImage, plot};
pub(crate) use self::transcript::{AttachmentId, MessageEffect, SettledText, Transcript};

use super::message::{KernelMessage, MessageContent, PythonError, RateLimit, ShownOutput};

/// The results of a cell so far.
#[derive(Debug)]
pub(crate) struct CellFold {
    request: String,
    has_begun: bool,
    is_idle: bool,
    is_replied: bool,
    transcript: Transcript,
    /// The last shown thing, if it was an exception. It may not have ended the cell.
    exception: Option<PythonError>,
    /// The exception that ended the cell, by its reply.
    error: Option<PythonError>,
    /// The number of messages that showed something.
    shown: u64,
    /// The number of messages that the kernel says it has sent, if it says so.
    promised: u64,
    /// The limit by which the server drops output, if it reports that.
    limit: Option<RateLimit>,
}

/// Output that was lost between the kernel and us.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LostOutput {
    /// The number of messages; 0 if unknown.
    pub(crate) messages: u64,
    /// The limit of a server that dropped them.
    pub(crate) limit: Option<RateLimit>,
}

impl CellFold {
    /// An empty fold for the messages that belong to `request`.
    pub(crate) fn new(request: String) -> Self {
        Self {
            request,
            has_begun: false,
            is_idle: false,
            is_replied: false,
            transcript: Transcript::default(),
            exception: None,
            error: None,
            shown: 0,
            promised: 0,
            limit: None,
        }
    }

    /// Whether a message belongs to this cell.
    pub(crate) fn is_parent_of(&self, message: &KernelMessage) -> bool {
        message.parent.as_ref() == Some(&self.request)
    }

    /// Adds a message of this cell.
    pub(crate) fn take(&mut self, content: MessageContent) -> MessageEffect {
        match content {
            MessageContent::Shown(shown) => {
                self.shown += 1;
                let taken = self.take_exception();
                return taken.and(self.transcript.take(shown));
            }
            MessageContent::Error(error) => {
                self.shown += 1;
                let taken = self.take_exception();
                self.exception = Some(error);
                return taken;
            }
            MessageContent::ExecuteInput => self.has_begun = true,
            MessageContent::Idle => self.is_idle = true,
            MessageContent::ExecuteReply { error, shown } => {
                self.is_replied = true;
                self.error = error;
                self.promised = shown.unwrap_or_default();
            }
            MessageContent::Limited(limit) => self.limit = Some(limit),
            MessageContent::Insight(_)
            | MessageContent::BranchReply(_)
            | MessageContent::InterruptReply
            | MessageContent::KernelInfoReply(_)
            | MessageContent::Welcome
            | MessageContent::ShutdownReply { .. }
            | MessageContent::Other => {}
        }
        MessageEffect::default()
    }

    /// Whether no more messages will come: after the reply output may still follow.
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

    /// The lost output, if any.
    pub(crate) fn missing(&self) -> Option<LostOutput> {
        let messages = self.promised.saturating_sub(self.shown);
        (messages > 0 || self.limit.is_some()).then_some(LostOutput { messages, limit: self.limit })
    }

    /// The rest of the output, and the exception that ended the cell.
    ///
    /// An exception that was the last thing shown counts as one, also if the reply does not say so: `%run script.py`
    /// shows what ended the script.
    pub(crate) fn finish(self) -> (SettledText, Option<PythonError>) {
        (self.transcript.finish(), self.exception.or(self.error))
    }

    /// After an exception something else was shown: the exception was output, and is put in its place.
    fn take_exception(&mut self) -> MessageEffect {
        match self.exception.take() {
            Some(error) => self.transcript.take(ShownOutput::Stream(format!("{}\n", error.text()))),
            None => MessageEffect::default(),
        }
    }
}
