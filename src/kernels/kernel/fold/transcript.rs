//! The shown text and objects, in order, as long as they can still change: a display can be updated, everything can be cleared.
//! Pure.
//!
//! Output grows without bound, so only the newest is held. The rest is settled: it is handed on and will not
//! change any more.

use std::mem;

use super::bundle::{self, FileRole, ShownFile, ShownImage};
use crate::kernels::kernel::message::{MimeBundle, ShownOutput};
use crate::kernels::kernel::terminal::{Terminal, plain};

/// The bytes of text that are held before everything older than the newest object is settled.
const HELD_BYTES: usize = 256 * 1024;

/// The cost of a piece besides its text, in bytes.
const PIECE_BYTES: usize = 128;

/// The number of an image or a file, in order of appearance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AttachmentId(u32);

/// Streams and shown objects, in order.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    joined: JoinedText,
    pieces: Vec<TranscriptPiece>,
    attachments: u32,
    /// The attachments of pieces that are settled.
    settled_attachments: Vec<AttachmentId>,
    /// The bytes of text that were added since text was last settled.
    held_bytes: usize,
    /// Whether the next thing that is shown replaces everything before it.
    is_clear_pending: bool,
    /// Whether all text that was handed on has been cleared.
    is_cleared: bool,
}

/// The effect of one message.
#[derive(Debug, Default)]
pub(crate) struct MessageEffect {
    /// The text that it added, as written, for readers of chunks.
    pub(crate) chunk: Option<String>,
    /// Images that it showed.
    pub(crate) images: Vec<(AttachmentId, ShownImage)>,
    /// Files that it showed.
    pub(crate) files: Vec<(AttachmentId, ShownFile)>,
    /// Images and files that are no longer shown.
    pub(crate) discarded: Vec<AttachmentId>,
    /// Text that will not change any more.
    pub(crate) settled: Option<SettledText>,
}

impl MessageEffect {
    /// The effects of two messages, one after the other.
    pub(super) fn and(mut self, next: Self) -> Self {
        self.chunk = match (self.chunk, next.chunk) {
            (Some(one), Some(other)) => Some(one + &other),
            (one, other) => one.or(other),
        };
        self.images.extend(next.images);
        self.files.extend(next.files);
        self.discarded.extend(next.discarded);
        self.settled = match (self.settled, next.settled) {
            (Some(one), Some(other)) if !other.is_anew => {
                Some(SettledText { is_anew: one.is_anew, text: one.text + &other.text })
            }
            (one, other) => other.or(one),
        };
        self
    }
}

/// Text that will not change any more. It continues the earlier settled text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SettledText {
    /// Whether all that was settled before has been cleared.
    pub(crate) is_anew: bool,
    /// The text.
    pub(crate) text: String,
}

#[derive(Debug)]
enum TranscriptPiece {
    Stream(Terminal),
    Object(TranscriptObject),
}

/// A shown object.
#[derive(Debug)]
struct TranscriptObject {
    id: Option<String>,
    text: Option<String>,
    attachments: Vec<AttachmentId>,
}

/// Joins text and objects: objects are on lines of their own.
#[derive(Debug)]
struct JoinedText {
    text: String,
    is_at_line_start: bool,
    is_after_object: bool,
}

impl Transcript {
    /// Adds a shown thing.
    pub(crate) fn take(&mut self, shown: ShownOutput) -> MessageEffect {
        let mut taken = MessageEffect::default();
        match shown {
            ShownOutput::Stream(text) => {
                self.clear_if_pending(&mut taken);
                self.write(text, &mut taken);
            }
            ShownOutput::Object { bundle, id, is_begun, .. } => {
                self.clear_if_pending(&mut taken);
                if is_begun {
                    self.write_object(&bundle, &mut taken)
                } else {
                    self.show(&bundle, id, &mut taken)
                }
            }
            ShownOutput::Update { bundle, id } => self.update(&bundle, id, &mut taken),
            ShownOutput::Clear { is_delayed: true } => self.is_clear_pending = true,
            ShownOutput::Clear { is_delayed: false } => self.clear(&mut taken),
        }
        if self.held_bytes > HELD_BYTES {
            self.settle();
            taken.settled = Some(self.hand_on());
        }
        taken
    }

    /// The text that has not been handed on yet.
    pub(crate) fn finish(mut self) -> SettledText {
        for piece in mem::take(&mut self.pieces) {
            self.join(piece);
        }
        self.hand_on()
    }

    fn write(&mut self, text: String, taken: &mut MessageEffect) {
        if text.is_empty() {
            return;
        }
        self.held_bytes += text.len();
        let break_before = if self.joined_end().is_after_object { "\n" } else { "" };
        match self.pieces.last_mut() {
            Some(TranscriptPiece::Stream(terminal)) => {
                terminal.write(&text);
                // If the cursor moves right, more text is shown than was written.
                self.held_bytes = self.held_bytes.max(terminal.settled_bytes());
            }
            _ => {
                let mut terminal = Terminal::default();
                terminal.write(&text);
                self.pieces.push(TranscriptPiece::Stream(terminal));
            }
        }
        taken.chunk = Some(break_before.to_owned() + &text);
    }

    /// Begins an object whose text is too long for one message: the rest follows as a stream.
    fn write_object(&mut self, bundle: &MimeBundle, taken: &mut MessageEffect) {
        let Some(text) = bundle::best_text(bundle, &[]) else { return };
        let end = self.joined_end();
        let is_line_broken = end.is_at_line_start || end.is_after_object;
        self.write(if is_line_broken { text } else { format!("\n{text}") }, taken);
    }

    fn show(&mut self, bundle: &MimeBundle, id: Option<String>, taken: &mut MessageEffect) {
        let object = self.object(bundle, id, taken);
        if let Some(text) = &object.text {
            let end = self.joined_end();
            let break_before = if end.is_after_object || !end.is_at_line_start { "\n" } else { "" };
            taken.chunk = Some(format!("{break_before}{text}"));
        }
        self.pieces.push(TranscriptPiece::Object(object));
    }

    fn object(
        &mut self,
        bundle: &MimeBundle,
        id: Option<String>,
        taken: &mut MessageEffect,
    ) -> TranscriptObject {
        let images = bundle::images(bundle);
        let file = bundle::file(bundle);
        let text = match &file {
            Some(file) if file.role == FileRole::Copy => None,
            _ => bundle::best_text(bundle, &images).map(|text| plain(&text)),
        };
        let bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.held_bytes += PIECE_BYTES + bytes(&text) + bytes(&id);
        let mut attachments = Vec::new();
        for image in images {
            let number = self.number(&mut attachments);
            taken.images.push((number, image));
        }
        if let Some(file) = file {
            let number = self.number(&mut attachments);
            taken.files.push((number, file));
        }
        TranscriptObject { id, text, attachments }
    }

    /// The number of the next attachment, which is added to those of its object.
    fn number(&mut self, attachments: &mut Vec<AttachmentId>) -> AttachmentId {
        let id = AttachmentId(self.attachments);
        self.attachments += 1;
        attachments.push(id);
        id
    }

    /// Updates a shown object. If it is settled, or was never shown here, it is shown again.
    fn update(&mut self, bundle: &MimeBundle, id: Option<String>, taken: &mut MessageEffect) {
        let is_same = |piece: &TranscriptPiece| matches!(piece, TranscriptPiece::Object(object) if object.id == id && id.is_some());
        let Some(place) = self.pieces.iter().rposition(is_same) else {
            return self.show(bundle, id, taken);
        };
        let object = self.object(bundle, id, taken);
        taken.chunk.clone_from(&object.text);
        if let TranscriptPiece::Object(before) =
            mem::replace(&mut self.pieces[place], TranscriptPiece::Object(object))
        {
            taken.discarded.extend(before.attachments);
        }
    }

    fn clear_if_pending(&mut self, taken: &mut MessageEffect) {
        if mem::take(&mut self.is_clear_pending) {
            self.clear(taken);
        }
    }

    fn clear(&mut self, taken: &mut MessageEffect) {
        self.is_clear_pending = false;
        taken.discarded.append(&mut self.settled_attachments);
        for piece in self.pieces.drain(..) {
            if let TranscriptPiece::Object(object) = piece {
                taken.discarded.extend(object.attachments);
            }
        }
        self.joined = JoinedText::default();
        self.held_bytes = 0;
        self.is_cleared = true;
    }

    /// Settles all but the newest piece, and of a stream all that it cannot change any more.
    fn settle(&mut self) {
        self.held_bytes = 0;
        let newest = self.pieces.pop();
        for piece in mem::take(&mut self.pieces) {
            self.join(piece);
        }
        if let Some(mut piece) = newest {
            if let TranscriptPiece::Stream(terminal) = &mut piece {
                self.joined.push_stream(&terminal.take_settled());
            }
            self.pieces.push(piece);
        }
    }

    fn join(&mut self, piece: TranscriptPiece) {
        match piece {
            TranscriptPiece::Stream(terminal) => self.joined.push_stream(&terminal.into_text()),
            TranscriptPiece::Object(object) => {
                self.settled_attachments.extend(object.attachments);
                if let Some(text) = object.text {
                    self.joined.push_object(&text);
                }
            }
        }
    }

    fn hand_on(&mut self) -> SettledText {
        SettledText { is_anew: mem::take(&mut self.is_cleared), text: mem::take(&mut self.joined.text) }
    }

    /// The end of the text so far.
    fn joined_end(&self) -> JoinedText {
        let mut end = JoinedText { text: String::new(), ..self.joined };
        let has_text = |piece: &&TranscriptPiece| match piece {
            TranscriptPiece::Stream(terminal) => !terminal.is_empty(),
            TranscriptPiece::Object(object) => object.text.is_some(),
        };
        match self.pieces.iter().rfind(has_text) {
            Some(TranscriptPiece::Stream(terminal)) => {
                end.is_after_object = false;
                end.is_at_line_start = terminal.is_at_line_start();
            }
            Some(TranscriptPiece::Object(_)) => end.is_after_object = true,
            None => {}
        }
        end
    }
}

impl Default for JoinedText {
    fn default() -> Self {
        Self { text: String::new(), is_at_line_start: true, is_after_object: false }
    }
}

impl JoinedText {
    fn push_stream(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if mem::take(&mut self.is_after_object) {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.is_at_line_start = text.ends_with('\n');
    }

    fn push_object(&mut self, text: &str) {
        if self.is_after_object || !self.is_at_line_start {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.is_after_object = true;
    }
}
