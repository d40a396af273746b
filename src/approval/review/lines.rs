//! The lines of a log, whatever is in it: bounded in memory, however long they are.

use std::io::{self, BufRead};

use crate::approval::audit::chain::TAIL;

/// The longest line that can be a record: several texts of 64 KiB, all escaped.
const LONGEST: usize = 8 * 1024 * 1024;

/// A line without its newline.
pub(super) struct AuditLine<'a> {
    /// The line, or if it is longer than any record, its end.
    pub(super) bytes: &'a [u8],
    pub(super) is_too_long: bool,
    /// Whether a newline ends it.
    pub(super) is_ended: bool,
}

/// Reads lines into one buffer.
pub(super) struct LineReader<R> {
    input: R,
    buffer: Vec<u8>,
}

impl<R: BufRead> LineReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new() }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<AuditLine<'_>>> {
        self.buffer.clear();
        let mut is_ended = false;
        let mut is_too_long = false;
        let mut is_at_end = true;
        while !is_ended {
            let available = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            if available.is_empty() {
                break;
            }
            is_at_end = false;
            let newline = memchr::memchr(b'\n', available);
            is_ended = newline.is_some();
            let length = newline.unwrap_or(available.len());
            self.buffer.extend_from_slice(&available[..length]);
            self.input.consume(length + usize::from(is_ended));
            if self.buffer.len() > LONGEST {
                is_too_long = true;
                self.buffer.drain(..self.buffer.len() - TAIL);
            }
        }
        Ok((!is_at_end).then_some(AuditLine { bytes: &self.buffer, is_too_long, is_ended }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn check(text: &[u8], expected: &[(&[u8], bool)]) {
        let mut lines = LineReader::new(text);
        for (bytes, is_ended) in expected {
            let line = lines.next().unwrap().unwrap();
            assert_eq!((line.bytes, line.is_ended, line.is_too_long), (*bytes, *is_ended, false));
        }
        assert!(lines.next().unwrap().is_none());
    }

    #[test]
    fn lines_end_at_newlines_and_at_the_end() {
        check(b"", &[]);
        check(b"a\n\nb\0\xff", &[(b"a", true), (b"", true), (b"b\0\xff", false)]);
        check(b"\r\n", &[(b"\r", true)]);
    }

    #[test]
    fn of_an_endless_line_the_end_is_kept() {
        let text = io::repeat(b'x').take(3 * LONGEST as u64).chain(&b"end\nnext\n"[..]);
        let mut lines = LineReader::new(io::BufReader::new(text));
        let line = lines.next().unwrap().unwrap();
        assert!(line.is_too_long && line.is_ended && line.bytes.ends_with(b"xend"));
        assert!(line.bytes.len() >= TAIL && lines.buffer.capacity() < 3 * LONGEST);
        assert_eq!(lines.next().unwrap().unwrap().bytes, b"next");
    }
}
