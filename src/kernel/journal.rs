//! What a kernel printed and no message brought: read from the file that `ipybox_journal.py` writes, which survives
//! the kernel's sudden death.
//!
//! Code in the kernel can write anything into the file. It is read with bounds on everything, and the worst that it can
//! do is to put words into the mouth of its own request.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::message::{Stream, Written};

/// How much of the newest output is kept. A kernel prints so much in some milliseconds, and a model reads less.
const RING_BYTES: usize = 1024 * 1024;
/// The number of bytes ever written, before the ring.
const HEADER_BYTES: usize = 8;
/// How much of the oldest output a write that was not finished may have overwritten, and more than the longest
/// distance between two labels.
const UNSURE_BYTES: usize = 160 * 1024;
/// The longest label: a stream, a number, a request's id of at most 100 bytes.
const LABEL_BYTES: usize = 128;
/// How many requests to know the progress of. Threads may print for requests that ended long ago.
const KNOWN_REQUESTS: usize = 64;

const LABEL_START: u8 = 0xff;
const LABEL_END: u8 = 0xfe;

/// The file, and what need not be read from it since messages brought it.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    received: Received,
}

impl Journal {
    /// Makes the file at `path`.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        // Written, not just made long: memory that is mapped to a file needs its blocks on the disk, and a process
        // that writes to it when the disk is full gets a SIGBUS.
        file.write_all_at(&vec![0; HEADER_BYTES + RING_BYTES], 0)?;
        Ok(Self { file, received: Received::default() })
    }

    /// Expects output of `request`.
    pub(super) fn expect(&mut self, request: &str) {
        self.received.expect(request);
    }

    /// Takes note of a message.
    pub(super) fn note(&mut self, request: &str, written: Written) {
        if let Some(end) = self.received.end(request, written.stream) {
            *end = (*end).max(written.end);
        }
    }

    /// What the messages so far did not bring, as messages, in order. Of use once the kernel is dead.
    pub(super) fn recover(&mut self) -> Vec<(String, String)> {
        let mut content = vec![0; HEADER_BYTES + RING_BYTES];
        match self.file.read_exact_at(&mut content, 0) {
            Ok(()) => recover(&content, &mut self.received),
            // Code in the kernel may have cut it.
            Err(error) => {
                tracing::debug!(%error, "could not read a kernel's journal");
                Vec::new()
            }
        }
    }
}

/// How much has been received of the newest requests, in characters, from stdout and stderr.
#[derive(Debug, Default)]
struct Received(VecDeque<(String, [u64; 2])>);

impl Received {
    fn expect(&mut self, request: &str) {
        if self.0.len() == KNOWN_REQUESTS {
            self.0.pop_front();
        }
        self.0.push_back((request.to_owned(), [0; 2]));
    }

    fn end(&mut self, request: &str, stream: Stream) -> Option<&mut u64> {
        let (_, ends) = self.0.iter_mut().rev().find(|(known, _)| known == request)?;
        Some(&mut ends[stream as usize])
    }
}

/// Text that was written in one go.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    request: String,
    stream: Stream,
    /// How many characters the request had written to the stream before.
    offset: u64,
    text: String,
}

fn recover(content: &[u8], received: &mut Received) -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for entry in entries(&newest(content)) {
        let Some(end) = received.end(&entry.request, entry.stream) else { continue };
        let text = missing(&entry, end);
        match texts.last_mut() {
            _ if text.is_empty() => {}
            Some((request, last)) if *request == entry.request => last.push_str(&text),
            _ => texts.push((entry.request, text)),
        }
    }
    texts
}

/// What of the entry is behind `end`, which moves to the entry's end.
fn missing(entry: &Entry, end: &mut u64) -> String {
    let lost = entry.offset.saturating_sub(*end);
    let known = usize::try_from(end.saturating_sub(entry.offset)).unwrap_or(usize::MAX);
    let text: String = entry.text.chars().skip(known).collect();
    let length = u64::try_from(entry.text.chars().count()).unwrap_or(u64::MAX);
    *end = (*end).max(entry.offset.saturating_add(length));
    if lost == 0 || text.is_empty() { text } else { format!("[… {lost} characters lost …]{text}") }
}

/// The bytes of the ring that are sure, the oldest first.
fn newest(content: &[u8]) -> Vec<u8> {
    let Some((header, ring)) = content.split_first_chunk::<HEADER_BYTES>() else { return Vec::new() };
    let written = u64::from_ne_bytes(*header);
    let size = ring.len();
    let Ok(length) = usize::try_from(written.min(size.saturating_sub(UNSURE_BYTES) as u64)) else {
        return Vec::new();
    };
    let Some(stop) = written.checked_rem(size as u64).and_then(|stop| usize::try_from(stop).ok()) else {
        return Vec::new();
    };
    let mut bytes = [&ring[stop..], &ring[..stop]].concat();
    bytes.drain(..size - length);
    bytes
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> {
    // What stands before the first label belongs to one that was overwritten.
    bytes.split(|&byte| byte == LABEL_START).skip(1).filter_map(entry)
}

fn entry(bytes: &[u8]) -> Option<Entry> {
    let length = bytes.iter().take(LABEL_BYTES).position(|&byte| byte == LABEL_END)?;
    let label = str::from_utf8(&bytes[..length]).ok()?;
    let mut fields = label.splitn(3, ' ');
    let stream = match fields.next()? {
        "o" => Stream::Stdout,
        "e" => Stream::Stderr,
        _ => return None,
    };
    let offset = fields.next()?.parse().ok()?;
    let request = fields.next()?.to_owned();
    let text = String::from_utf8_lossy(&bytes[length + 1..]).into_owned();
    Some(Entry { request, stream, offset, text })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file as the kernel writes it, with a ring of `size` bytes.
    fn file(log: &[u8], size: usize) -> Vec<u8> {
        let mut content = vec![0; HEADER_BYTES + size];
        content[..HEADER_BYTES].copy_from_slice(&(log.len() as u64).to_ne_bytes());
        for (index, &byte) in log.iter().enumerate() {
            content[HEADER_BYTES + index % size] = byte;
        }
        content
    }

    fn label(stream: &str, offset: u64, request: &str) -> Vec<u8> {
        [b"\xff", format!("{stream} {offset} {request}").as_bytes(), b"\xfe"].concat()
    }

    fn log(entries: &[(&str, u64, &str, &str)]) -> Vec<u8> {
        entries
            .iter()
            .flat_map(|(stream, offset, request, text)| {
                [label(stream, *offset, request), text.as_bytes().to_vec()].concat()
            })
            .collect()
    }

    /// What is recovered of `content` when of request `1` so much was received.
    fn recovered(content: &[u8], ends: [u64; 2]) -> Vec<(String, String)> {
        let mut received = Received::default();
        received.expect("1");
        received.expect("2");
        for (stream, end) in [Stream::Stdout, Stream::Stderr].into_iter().zip(ends) {
            *received.end("1", stream).unwrap() = end;
        }
        recover(content, &mut received)
    }

    fn check(entries: &[(&str, u64, &str, &str)], ends: [u64; 2], expected: &[(&str, &str)]) {
        let actual = recovered(&file(&log(entries), RING_BYTES), ends);
        let actual: Vec<_> = actual.iter().map(|(request, text)| (request.as_str(), text.as_str())).collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn an_untouched_file_holds_nothing() {
        assert_eq!(recovered(&vec![0; HEADER_BYTES + RING_BYTES], [0, 0]), []);
    }

    #[test]
    fn what_messages_brought_is_left_out() {
        let entries = [("o", 0, "1", "é1"), ("e", 0, "1", "err"), ("o", 2, "1", "345")];
        check(&entries, [0, 0], &[("1", "é1err345")]);
        check(&entries, [1, 0], &[("1", "1err345")]);
        check(&entries, [3, 3], &[("1", "45")]);
        check(&entries, [5, 3], &[]);
        check(&entries, [u64::MAX, u64::MAX], &[]);
    }

    #[test]
    fn text_belongs_to_its_request() {
        check(
            &[("o", 0, "2", "a"), ("o", 0, "unknown", "b"), ("o", 0, "1", "c"), ("o", 1, "2", "d")],
            [0, 0],
            &[("2", "a"), ("1", "c"), ("2", "d")],
        );
    }

    #[test]
    fn a_gap_is_told() {
        check(&[("o", 7, "1", "a")], [4, 0], &[("1", "[… 3 characters lost …]a")]);
    }

    #[test]
    fn a_ring_that_went_round_keeps_the_newest() {
        let size = 2 * UNSURE_BYTES;
        let mut log = Vec::new();
        for offset in 0..2 * size as u64 {
            log.extend(label("o", offset, "1"));
            log.push(b'0' + u8::try_from(offset % 10).unwrap());
        }
        let messages = recovered(&file(&log, size), [0, 0]);
        let (_, text) = &messages[0];
        let (gap, kept) = text.split_once(" characters lost …]").unwrap();
        let lost: usize = gap.strip_prefix("[… ").unwrap().parse().unwrap();
        assert_eq!(lost + kept.len(), 2 * size);
        assert!(kept.len() > 10_000 && kept.ends_with("789"), "{}", kept.len());
    }

    #[test]
    fn only_the_newest_requests_are_known() {
        let mut received = Received::default();
        for request in 0..10_000 {
            received.expect(&request.to_string());
        }
        assert_eq!(received.0.len(), KNOWN_REQUESTS);
        assert!(received.end("9999", Stream::Stdout).is_some());
        assert!(received.end("0", Stream::Stdout).is_none());
    }

    #[test]
    fn a_file_that_was_cut_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = Journal::create(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
        assert!(journal.recover().is_empty());
    }

    proptest! {
        #[test]
        fn garbage_is_survived(
            written: u64,
            ring in prop::collection::vec(
                prop_oneof![any::<u8>(), Just(LABEL_START), Just(LABEL_END), Just(b' '), Just(b'o'), Just(b'1')],
                0..2 * UNSURE_BYTES / 1000,
            ),
            times in 1..1000usize,
        ) {
            let content = [written.to_ne_bytes().to_vec(), ring.repeat(times)].concat();
            recovered(&content, [0, 0]);
            recovered(&content[..content.len().min(5)], [0, 0]);
        }
    }
}
