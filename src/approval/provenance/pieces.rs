//! Texts in pieces, so that neither memory nor a lock is taken for all of a long one at once.

use std::fmt;

/// The length of a piece, in bytes.
const PIECE: usize = 64 * 1024;

/// The part of a piece that the next one repeats, so that what lies on the border is found.
const AGAIN: usize = 2 * 1024;

/// Gives what is written to it in pieces. The last one comes when it is finished.
pub(super) struct PieceWriter<F: FnMut(&str)> {
    text: String,
    /// The part of it that an earlier piece had.
    old: usize,
    each: F,
}

impl<F: FnMut(&str)> PieceWriter<F> {
    pub(super) fn new(each: F) -> Self {
        Self { text: String::new(), old: 0, each }
    }

    pub(super) fn finish(mut self) {
        if self.text.len() > self.old {
            (self.each)(&self.text);
        }
    }
}

impl<F: FnMut(&str)> fmt::Write for PieceWriter<F> {
    fn write_str(&mut self, mut text: &str) -> fmt::Result {
        while !text.is_empty() {
            let room = PIECE.saturating_sub(self.text.len()).max(4);
            let (now, rest) = text.split_at(text.floor_char_boundary(room));
            self.text.push_str(now);
            text = rest;
            if self.text.len() + 4 > PIECE {
                (self.each)(&self.text);
                self.text.drain(..self.text.floor_char_boundary(PIECE - AGAIN - 4));
                self.old = self.text.len();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn every_place_is_in_a_piece_with_what_is_around_it() {
        let text: String = (0..30_000).map(|number| format!("é{number} ")).collect();
        let mut given = Vec::new();
        let mut pieces = PieceWriter::new(|piece: &str| given.push(piece.to_owned()));
        let mut rest = text.as_str();
        for length in [0, 1, 3, 70_000, 5, 100_000].into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at(rest.floor_char_boundary(length.min(rest.len())));
            pieces.write_str(now).unwrap();
            rest = later;
        }
        pieces.finish();
        assert!(given.len() > 3 && given.iter().all(|piece| piece.len() <= PIECE));
        for begin in (0..text.len() - 1000).step_by(501) {
            let part = &text[text.floor_char_boundary(begin)..text.floor_char_boundary(begin + 1000)];
            assert!(given.iter().any(|piece| piece.contains(part)), "{begin}");
        }
    }

    #[test]
    fn nothing_comes_twice_that_ends_with_a_piece() {
        let mut count = 0;
        let mut pieces = PieceWriter::new(|_: &str| count += 1);
        pieces.write_str("short").unwrap();
        pieces.finish();
        assert_eq!(count, 1);
        let mut count = 0;
        PieceWriter::new(|_: &str| count += 1).finish();
        assert_eq!(count, 0);
    }
}
