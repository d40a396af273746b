//! From the messages of one cell to its output: pure, without sockets, files or clocks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::message::{Content, Message, PythonError};

/// What a cell has produced so far.
#[derive(Debug)]
pub(crate) struct Fold {
    request: String,
    has_begun: bool,
    is_idle: bool,
    is_replied: bool,
    output: Output,
}

/// Everything that a cell produced.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Streams and shown objects, in order.
    pub(crate) text: Text,
    /// Images, decoded, in order.
    pub(crate) images: Vec<Png>,
    /// The exception that ended the cell.
    pub(crate) error: Option<PythonError>,
}

/// A PNG file's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Png(pub(crate) Vec<u8>);

impl Fold {
    /// Begins with nothing, for the messages that belong to `request`. Text beyond `limit` is dropped.
    pub(crate) fn new(request: String, limit: TextLimit) -> Self {
        let output = Output { text: Text::new(limit), ..Output::default() };
        Self { request, has_begun: false, is_idle: false, is_replied: false, output }
    }

    /// Takes in a message, if it belongs to this cell, and returns the text that it added.
    pub(crate) fn take(&mut self, message: Message) -> Option<String> {
        if message.parent.as_ref() != Some(&self.request) {
            return None;
        }
        match message.content {
            Content::Stream(text) => return Some(self.output.text.push_stream(&text)),
            Content::Display(bundle) => return self.output.take_display(&bundle),
            Content::Error(error) => self.output.error = Some(error),
            Content::ExecuteInput => self.has_begun = true,
            Content::Idle => self.is_idle = true,
            Content::ExecuteReply => self.is_replied = true,
            Content::InterruptReply | Content::Welcome | Content::Other => {}
        }
        None
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

    /// What the cell produced.
    pub(crate) fn into_output(self) -> Output {
        self.output
    }
}

impl Output {
    fn take_display(&mut self, bundle: &Map<String, Value>) -> Option<String> {
        let image = bundle.get("image/png").and_then(Value::as_str).and_then(decode_png);
        let text = bundle.get("text/plain").and_then(Value::as_str);
        let is_placeholder = |text: &str| text.starts_with('<') && text.ends_with('>');
        let text = match image {
            Some(image) => {
                self.images.push(image);
                // `<Figure size 640x480 with 1 Axes>` says nothing beside the figure itself.
                text.filter(|text| !is_placeholder(text))
            }
            None => text,
        };
        text.map(|text| self.text.push_block(text))
    }
}

/// Decodes what ipykernel sends for an image: Base64, possibly in lines.
fn decode_png(encoded: &str) -> Option<Png> {
    let packed: String = encoded.split_ascii_whitespace().collect();
    match BASE64.decode(packed) {
        Ok(bytes) => Some(Png(bytes)),
        Err(error) => {
            // Not a warning: code in the kernel must not fill the log.
            tracing::debug!(%error, "a cell showed an image that cannot be decoded");
            None
        }
    }
}

/// How much text to keep.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum TextLimit {
    /// All of it.
    #[default]
    None,
    /// This many characters from the beginning.
    Chars(usize),
}

/// Text that grows to a limit, and knows whether more came.
#[derive(Debug, Default)]
pub(crate) struct Text {
    kept: String,
    kept_chars: usize,
    limit: TextLimit,
    is_cut: bool,
    ends_with_block: bool,
    at_line_start: bool,
    /// The stream ended with a carriage return, which may be the first half of a line's end.
    has_pending_return: bool,
}

impl Text {
    fn new(limit: TextLimit) -> Self {
        Self { limit, at_line_start: true, ..Self::default() }
    }

    /// Adds what was written to a stream. Lines end with `\n`, also those of `!commands`, whose terminal ends
    /// them with `\r\n`.
    fn push_stream(&mut self, text: &str) -> String {
        let mut added = self.settle_return(text.starts_with('\n'));
        let text = match text.strip_suffix('\r') {
            Some(text) => {
                self.has_pending_return = true;
                text
            }
            None => text,
        };
        if self.ends_with_block && !text.is_empty() {
            added.push('\n');
            self.ends_with_block = false;
        }
        added.push_str(&text.replace("\r\n", "\n"));
        self.push(&added);
        added
    }

    /// A pending carriage return was half of a line's end if the text goes on with a newline.
    fn settle_return(&mut self, is_followed_by_newline: bool) -> String {
        let is_lone = std::mem::take(&mut self.has_pending_return) && !is_followed_by_newline;
        if is_lone { "\r".to_owned() } else { String::new() }
    }

    /// Adds what was shown, on lines of its own.
    fn push_block(&mut self, text: &str) -> String {
        let mut added = self.settle_return(false);
        if self.ends_with_block || !self.at_line_start {
            added.push('\n');
        }
        added.push_str(text);
        self.push(&added);
        self.ends_with_block = true;
        added
    }

    fn push(&mut self, text: &str) {
        if let Some(last) = text.chars().next_back() {
            self.at_line_start = last == '\n';
        }
        let TextLimit::Chars(limit) = self.limit else {
            self.kept.push_str(text);
            return;
        };
        let room = limit - self.kept_chars;
        match text.char_indices().nth(room) {
            // White space at the very end is not worth a notice: it would be trimmed anyway.
            Some((end, _)) => {
                self.kept.push_str(&text[..end]);
                self.kept_chars = limit;
                self.is_cut |= !text[end..].trim_end().is_empty();
            }
            None => {
                self.kept.push_str(text);
                self.kept_chars += text.chars().count();
            }
        }
    }

    /// Whether text was dropped.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The kept text without trailing white space.
    pub(crate) fn into_string(mut self) -> String {
        self.kept.truncate(self.kept.trim_end().len());
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(content: Content) -> Message {
        Message { parent: Some("cell".to_owned()), content }
    }

    fn stream(text: &str) -> Message {
        message(Content::Stream(text.to_owned()))
    }

    fn show(bundle: Value) -> Message {
        let Value::Object(bundle) = bundle else { panic!("a bundle is an object") };
        message(Content::Display(bundle))
    }

    fn fold(limit: TextLimit, messages: impl IntoIterator<Item = Message>) -> Output {
        let mut fold = Fold::new("cell".to_owned(), limit);
        for message in messages {
            fold.take(message);
        }
        fold.into_output()
    }

    fn check(messages: impl IntoIterator<Item = Message>, expected: &str) {
        assert_eq!(fold(TextLimit::None, messages).text.into_string(), expected);
    }

    #[test]
    fn streams_are_merged_in_order() {
        check([stream("a\n"), stream("b"), stream("c\n")], "a\nbc");
    }

    #[test]
    fn line_ends_of_terminals_become_newlines() {
        check(
            [stream("a\r\nb\r"), stream("\nc\r"), stream("d\r"), show(json!({"text/plain": "2"}))],
            "a\nb\nc\rd\r\n2",
        );
    }

    #[test]
    fn shown_objects_stand_on_lines_of_their_own() {
        let two = || show(json!({"text/plain": "2"}));
        check([two(), two()], "2\n2");
        check([stream("a"), two(), stream("b\n"), two()], "a\n2\nb\n2");
        check([stream("a\n"), two(), stream(""), stream("b")], "a\n2\nb");
    }

    #[test]
    fn a_picture_is_not_described_by_its_repr() {
        let output = fold(
            TextLimit::None,
            [show(json!({"image/png": "iVBO\nRw==\n", "text/plain": "<Figure size 1x1>"}))],
        );
        assert_eq!(output.images, [Png(vec![0x89, b'P', b'N', b'G'])]);
        assert_eq!(output.text.into_string(), "");
    }

    #[test]
    fn an_image_that_cannot_be_decoded_leaves_its_text() {
        check([show(json!({"image/png": "%", "text/plain": "<Figure>"}))], "<Figure>");
    }

    #[test]
    fn messages_of_other_requests_are_left_alone() {
        let other = Message { parent: Some("other".to_owned()), content: Content::Stream("x".to_owned()) };
        check([other, Message { parent: None, content: Content::Stream("y".to_owned()) }, stream("z")], "z");
    }

    #[test]
    fn a_cell_ends_at_idle_and_reply_in_either_order() {
        for (first, second) in
            [(Content::Idle, Content::ExecuteReply), (Content::ExecuteReply, Content::Idle)]
        {
            let mut fold = Fold::new("cell".to_owned(), TextLimit::None);
            fold.take(message(first));
            assert!(!fold.is_complete());
            fold.take(stream("late"));
            fold.take(message(second));
            assert!(fold.is_complete());
            assert_eq!(fold.into_output().text.into_string(), "late");
        }
    }

    #[test]
    fn text_is_cut_at_a_character_and_memory_stays_bounded() {
        let output = fold(TextLimit::Chars(3), ["é", "é", "éé", "x"].map(stream));
        assert!(output.text.is_cut());
        assert!(output.text.kept.capacity() < 64);
        assert_eq!(output.text.into_string(), "ééé");
    }

    #[test]
    fn text_of_just_the_limit_is_not_cut() {
        let output = fold(TextLimit::Chars(3), ["ab", "c", "\n"].map(stream));
        assert!(!output.text.is_cut());
        assert_eq!(output.text.into_string(), "abc");
    }
}
