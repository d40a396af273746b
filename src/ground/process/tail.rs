//! The last lines that a child wrote, kept to say why it failed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::ground::text::plain;

/// The number of a child's last lines that are kept to explain its failure.
const TAIL_LINES: usize = 30;
/// The longest part of a line that is kept, in characters.
const TAIL_LINE_CHARS: usize = 2_000;
/// The part of a line that is read: a child that writes no newline must not fill our memory. More than is kept: a truncated
/// secret would not be recognised.
const READ_LINE_BYTES: usize = 16 * 1024;

/// The last lines that a child wrote, kept to say why it failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputTail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl OutputTail {
    /// Reads `output` to its end, keeps its last lines and logs each at debug level under `name`.
    ///
    /// The returned task ends when every process that holds the other end has closed it.
    pub(crate) fn follow<R>(output: R, name: String) -> (Self, tokio::task::JoinHandle<()>)
    where
        R: AsyncRead + Unpin + Send + 'static,
    {
        Self::follow_edited(output, name, |line| line)
    }

    /// As [`follow`](Self::follow), with each line passed through `edit` before it is kept or logged.
    pub(crate) fn follow_edited<R, E>(output: R, name: String, edit: E) -> (Self, tokio::task::JoinHandle<()>)
    where
        R: AsyncRead + Unpin + Send + 'static,
        E: Fn(String) -> String + Send + 'static,
    {
        let tail = Self::default();
        let kept = tail.clone();
        let task = tokio::spawn(async move {
            let mut reader = BufReader::new(output);
            let mut line = Vec::new();
            // A read error means that there is nothing more to keep.
            while let Ok(true) = read_bounded_line(&mut reader, &mut line).await {
                let text = edit(plain(String::from_utf8_lossy(&line).trim_end()));
                let text: String = text.chars().take(TAIL_LINE_CHARS).collect();
                tracing::debug!(from = %name, "{text}");
                kept.push(text);
            }
        });
        (tail, task)
    }

    /// The kept lines, joined; empty if the child wrote nothing.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines.lock();
        Vec::from_iter(lines.iter().map(String::as_str)).join("\n")
    }

    /// The last line that is not empty.
    pub(crate) fn last_line(&self) -> Option<String> {
        let lines = self.lines.lock();
        lines.iter().rev().find(|line| !line.trim().is_empty()).cloned()
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads one line into `line`, dropping what exceeds [`READ_LINE_BYTES`]; `false` at the end.
async fn read_bounded_line<R>(reader: &mut BufReader<R>, line: &mut Vec<u8>) -> io::Result<bool>
where
    R: AsyncRead + Unpin,
{
    line.clear();
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        let room = READ_LINE_BYTES.saturating_sub(line.len());
        line.extend_from_slice(&chunk[..taken.min(room)]);
        reader.consume(end.map_or(taken, |newline| newline + 1));
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tail_keeps_the_last_lines_only() {
        let text: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let (tail, task) = OutputTail::follow(io::Cursor::new(text), "test".to_owned());
        task.await.unwrap();
        assert!(tail.text().starts_with("line 70\n"), "{}", tail.text());
        assert!(tail.text().ends_with("line 99"), "{}", tail.text());
    }

    #[tokio::test]
    async fn what_steers_a_terminal_is_left_out() {
        let text = "\u{1b}[31mError\u{1b}[0m: \u{1b}]0;title\u{7}no key\r\n";
        let (tail, task) = OutputTail::follow(io::Cursor::new(text), "test".to_owned());
        task.await.unwrap();
        assert_eq!(tail.text(), "Error: no key");
    }

    #[tokio::test]
    async fn an_endless_line_is_cut() {
        let (tail, task) = OutputTail::follow(io::Cursor::new(vec![b'x'; 1_000_000]), "test".to_owned());
        task.await.unwrap();
        assert_eq!(tail.text().len(), TAIL_LINE_CHARS);
    }

    #[tokio::test]
    async fn a_line_is_edited_before_it_is_cut() {
        let text = "x".repeat(TAIL_LINE_CHARS - 5) + "hunter2hunter2 and so on";
        let edit = |line: String| line.replace("hunter2hunter2", "${TOKEN}");
        let (tail, task) = OutputTail::follow_edited(io::Cursor::new(text), "test".to_owned(), edit);
        task.await.unwrap();
        assert!(tail.text().ends_with("x${TOK"), "{}", tail.text());
    }
}
