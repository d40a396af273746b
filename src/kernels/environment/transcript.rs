//! The output of an installer as plain text: the newest line at once, head and tail if it is long. Pure.

use std::collections::VecDeque;

use super::InstallProgress;
use crate::ground::text::plain;

/// The part of the beginning and of the end that is kept: together 1 MiB, more than any reader wants.
const HEAD_BYTES: usize = 512 * 1024;
const TAIL_BYTES: usize = 512 * 1024;
/// The longest line that is reported as progress, in bytes.
const LINE_BYTES: usize = 300;

/// Collects output without keeping more than 1 MiB of it.
#[derive(Debug, Default)]
pub(super) struct InstallTranscript {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: usize,
    line: Vec<u8>,
}

impl InstallTranscript {
    /// Adds `bytes` and reports each line that they complete.
    pub(super) fn push(&mut self, bytes: &[u8], progress: InstallProgress<'_>) {
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.dropped += excess;
        for &byte in bytes {
            match byte {
                b'\n' | b'\r' => self.report_line(progress),
                _ if self.line.len() < LINE_BYTES => self.line.push(byte),
                _ => {}
            }
        }
    }

    /// The kept output, with a note where a part is missing.
    pub(super) fn into_text(self) -> String {
        let mut bytes = self.head;
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[... {} bytes left out ...]\n", self.dropped).as_bytes());
        }
        bytes.extend(self.tail);
        plain(&String::from_utf8_lossy(&bytes))
    }

    fn report_line(&mut self, progress: InstallProgress<'_>) {
        let line = plain(&String::from_utf8_lossy(&self.line));
        self.line.clear();
        let line = line.trim();
        if !line.is_empty() {
            progress(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn lines_are_reported_when_complete() {
        let reported = Mutex::new(Vec::new());
        let report = |line: &str| reported.lock().unwrap().push(line.to_owned());
        let mut transcript = InstallTranscript::default();
        for part in ["Coll", "ecting a\n\n 10%\r", "20%", "x".repeat(1000).as_str(), "\nrest"] {
            transcript.push(part.as_bytes(), &report);
        }
        let reported = reported.lock().unwrap();
        assert_eq!(reported[..2], ["Collecting a", "10%"]);
        assert_eq!(reported[2].len(), LINE_BYTES);
        assert_eq!(reported.len(), 3);
    }

    #[test]
    fn much_output_keeps_its_head_and_its_tail() {
        let mut transcript = InstallTranscript::default();
        transcript.push(b"first\n", &|_| ());
        for _ in 0..4 {
            transcript.push(&vec![b'x'; HEAD_BYTES], &|_| ());
        }
        transcript.push(b"\nlast", &|_| ());
        let text = transcript.into_text();
        assert!(text.starts_with("first\n") && text.ends_with("\nlast"));
        assert!(text.contains(&format!("[... {} bytes left out ...]", 2 * HEAD_BYTES + 11)));
        assert!(text.len() < HEAD_BYTES + TAIL_BYTES + 100);
    }
}
