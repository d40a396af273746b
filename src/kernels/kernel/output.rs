//! The output of a kernel of our own in its one pipe: text, and marks that give its cell and the position of
//! messages. Pure. `ipybox_host.py` writes it, and documents the format.
//!
//! Code in the kernel can write anything into the pipe. The worst that a forged mark can do is to forge
//! output of its own cells.

use bytes::{Buf as _, BytesMut};

use crate::ground::text::unfinished_character;

/// No mark is longer.
const MARK_BYTES_MAX: usize = 128;
const EDGE: u8 = 0;

/// A word that code in the kernel cannot guess, by which the kernel marks places in its output.
pub(super) fn new_mark() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// A piece of the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputPiece {
    /// Text of a cell; its name is empty before the first.
    Text { cell: String, text: String },
    /// This cell begins.
    Begin(String),
    /// The position of the message with this number.
    Place(u64),
}

/// Parses the output.
#[derive(Debug)]
pub(super) struct OutputParser {
    /// The bytes that a mark begins with.
    mark: Vec<u8>,
    unread: BytesMut,
    /// The cell that text without a mark belongs to.
    cell: String,
    /// Set if the next bytes are a text of another cell: the cell and their count.
    other: Option<(String, usize)>,
}

impl OutputParser {
    /// `mark` is the random text that marks begin with, which programs do not print by chance.
    pub(super) fn new(mark: &str) -> Self {
        let mark = [&[EDGE], mark.as_bytes()].concat();
        Self { mark, unread: BytesMut::new(), cell: String::new(), other: None }
    }

    /// The buffer for reading from the pipe.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.unread
    }

    /// The next piece, if it is complete; `is_end` is set if no more bytes will come.
    pub(super) fn next(&mut self, is_end: bool) -> Option<OutputPiece> {
        loop {
            if let Some((cell, length)) = self.other.take() {
                if self.unread.len() < length && !is_end {
                    self.other = Some((cell, length));
                    return None;
                }
                let bytes = self.unread.split_to(length.min(self.unread.len()));
                return Some(OutputPiece::Text { cell, text: decode(&bytes) });
            }
            match self.unread.iter().position(|&byte| byte == EDGE) {
                None => return self.text(self.unread.len(), is_end),
                Some(0) => match self.read_mark(is_end) {
                    Mark::Piece(piece) => return Some(piece),
                    Mark::Other => {}
                    Mark::Unfinished => return None,
                    Mark::Text(length) => return self.text(length, true),
                },
                Some(length) => return self.text(length, true),
            }
        }
    }

    /// So many bytes of text; if more may follow, without an incomplete last character.
    fn text(&mut self, length: usize, is_whole: bool) -> Option<OutputPiece> {
        let length = if is_whole { length } else { length - unfinished_character(&self.unread[..length]) };
        if length == 0 {
            return None;
        }
        let bytes = self.unread.split_to(length);
        Some(OutputPiece::Text { cell: self.cell.clone(), text: decode(&bytes) })
    }

    /// Parses the mark at the beginning of the buffer, which is an edge.
    fn read_mark(&mut self, is_end: bool) -> Mark {
        let known = self.mark.len().min(self.unread.len());
        if self.unread[..known] != self.mark[..known] {
            return Mark::Text(self.text_from_edge());
        }
        let body =
            self.unread.iter().skip(self.mark.len()).take(MARK_BYTES_MAX).position(|&byte| byte == EDGE);
        let Some(length) = body else {
            let is_too_long = self.unread.len() >= self.mark.len() + MARK_BYTES_MAX;
            return if is_too_long || is_end { Mark::Text(self.text_from_edge()) } else { Mark::Unfinished };
        };
        let body = &self.unread[self.mark.len()..self.mark.len() + length];
        let Some(read) = str::from_utf8(body).ok().and_then(read_body) else {
            return Mark::Text(self.text_from_edge());
        };
        self.unread.advance(self.mark.len() + length + 1);
        match read {
            MarkBody::Begin(cell) => {
                self.cell.clone_from(&cell);
                Mark::Piece(OutputPiece::Begin(cell))
            }
            MarkBody::Place(number) => Mark::Piece(OutputPiece::Place(number)),
            MarkBody::Other(cell, length) => {
                self.other = Some((cell, length));
                Mark::Other
            }
        }
    }

    /// An edge that begins no mark is text, up to the next one.
    fn text_from_edge(&self) -> usize {
        let next = self.unread.iter().skip(1).position(|&byte| byte == EDGE);
        next.map_or(self.unread.len(), |length| length + 1)
    }
}

enum Mark {
    Piece(OutputPiece),
    /// A text of another cell follows.
    Other,
    Unfinished,
    /// No mark: so many bytes are text.
    Text(usize),
}

enum MarkBody {
    Begin(String),
    Place(u64),
    Other(String, usize),
}

fn read_body(body: &str) -> Option<MarkBody> {
    let (kind, rest) = body.split_at_checked(1)?;
    match kind {
        "b" => Some(MarkBody::Begin(rest.to_owned())),
        "m" => rest.parse().ok().map(MarkBody::Place),
        "t" => {
            let (cell, length) = rest.split_once(' ')?;
            let length = length.parse().ok().filter(|&length: &usize| length <= PIECE_BYTES_MAX)?;
            Some(MarkBody::Other(cell.to_owned(), length))
        }
        _ => None,
    }
}

/// The size of a write that is atomic on every system.
const PIECE_BYTES_MAX: usize = 4096;

/// Bytes that are not UTF-8 become replacement characters: output must not be lost over them.
fn decode(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARK: &str = "a mark";

    fn text(cell: &str, text: &str) -> OutputPiece {
        OutputPiece::Text { cell: cell.to_owned(), text: text.to_owned() }
    }

    fn begin(cell: &str) -> OutputPiece {
        OutputPiece::Begin(cell.to_owned())
    }

    /// Parses `bytes` that arrive in portions of this size; consecutive texts are joined.
    fn read(bytes: &[u8], portion: usize) -> Vec<OutputPiece> {
        let mut output = OutputParser::new(MARK);
        let mut pieces: Vec<OutputPiece> = Vec::new();
        for portion in bytes.chunks(portion).map(Some).chain([None]) {
            output.buffer().extend_from_slice(portion.unwrap_or_default());
            while let Some(piece) = output.next(portion.is_none()) {
                match (pieces.last_mut(), piece) {
                    (
                        Some(OutputPiece::Text { cell, text }),
                        OutputPiece::Text { cell: next, text: more },
                    ) if *cell == next => {
                        text.push_str(&more);
                    }
                    (_, piece) => pieces.push(piece),
                }
            }
        }
        assert!(output.unread.is_empty(), "{:?}", output.unread);
        pieces
    }

    fn check(bytes: &[u8], expected: &[OutputPiece]) {
        for portion in 1..=bytes.len().max(1) {
            assert_eq!(read(bytes, portion), expected, "in portions of {portion}");
        }
    }

    #[test]
    fn text_belongs_to_the_cell_that_has_begun() {
        check(
            "first\0a markbone\0été\0a markm7\0\0a markbtwo\0😀".as_bytes(),
            &[
                text("", "first"),
                begin("one"),
                text("one", "été"),
                OutputPiece::Place(7),
                begin("two"),
                text("two", "😀"),
            ],
        );
    }

    #[test]
    fn text_with_a_mark_belongs_to_its_cell() {
        check(
            b"\0a markbtwo\0a\0a marktone 5\0b\0\0cd\0a markt 0\0e",
            &[begin("two"), text("two", "a"), text("one", "b\0\0cd"), text("", ""), text("two", "e")],
        );
    }

    #[test]
    fn what_is_no_mark_is_text() {
        let parts = [
            "\0",
            "\0\0",
            "a\0b",
            "\0a mar",
            "\0a mark",
            "\0a markx\0",
            "\0a markm-1\0",
            "\0a marktone 4097\0",
        ];
        for bytes in parts {
            check(bytes.as_bytes(), &[text("", bytes)]);
        }
        let long = format!("\0a markb{}\0", "x".repeat(MARK_BYTES_MAX));
        check(long.as_bytes(), &[text("", &long)]);
    }

    #[test]
    fn text_is_there_before_more_comes() {
        let mut output = OutputParser::new(MARK);
        output.buffer().extend_from_slice("aé".as_bytes());
        output.buffer().extend_from_slice(&"😀".as_bytes()[..2]);
        assert_eq!(output.next(false), Some(text("", "aé")));
        assert_eq!(output.next(false), None);
        assert_eq!(output.next(true), Some(text("", "\u{fffd}")));
    }

    proptest! {
        #[test]
        fn garbage_is_survived(
            parts in prop::collection::vec(
                prop_oneof![
                    any::<u8>().prop_map(|byte| vec![byte]),
                    Just(b"\0a mark".to_vec()),
                    Just(b"\0a markm1\0".to_vec()),
                    Just(b"tone 9\0".to_vec()),
                ],
                0..40,
            ),
            portion in 1..20usize,
        ) {
            read(&parts.concat(), portion);
        }
    }
}
