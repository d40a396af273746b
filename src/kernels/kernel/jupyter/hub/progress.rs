//! The progress of a server's start, which the Hub sends as events (`text/event-stream`).

use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;

use super::super::rest::innermost;
use super::client::HubClient;

/// The time without any byte after which the stream counts as broken: the Hub sends some every 8 seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// The longest line of an event.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The characters of an event's text that are shown.
const WORDS_CHARS: usize = 200;

/// The end of the progress.
#[derive(Debug)]
pub(super) enum FollowedStart {
    Ready,
    /// The server has not started, with the Hub's words.
    Failed(String),
    /// The events ended before the start did.
    Broken(String),
}

#[derive(Deserialize)]
struct ProgressEvent {
    #[serde(default)]
    message: String,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    failed: bool,
}

impl HubClient {
    /// Follows the start of the server, and reports the Hub's words.
    pub(super) async fn follow(&self, user: &str, report: &(dyn Fn(&str) + Send + Sync)) -> FollowedStart {
        let path = [&self.server_path(user)[..], &["progress"]].concat();
        // Without a time for the whole: a start may take minutes.
        let request = self.http.stream(Method::GET, &path, "text/event-stream");
        let response = match tokio::time::timeout(SILENCE, self.http.send_stream(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return FollowedStart::Broken(error.to_string()),
            Err(_) => return FollowedStart::Broken("no answer".to_owned()),
        };
        if !response.status().is_success() {
            return FollowedStart::Broken(format!("the Hub answers {}", response.status()));
        }
        self.read_events(response, report).await
    }

    async fn read_events(
        &self,
        mut response: reqwest::Response,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> FollowedStart {
        let mut buffer = Vec::new();
        loop {
            let chunk = match tokio::time::timeout(SILENCE, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return FollowedStart::Broken("the events ended".to_owned()),
                Ok(Err(error)) => return FollowedStart::Broken(innermost(&error)),
                Err(_) => return FollowedStart::Broken("no events".to_owned()),
            };
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let Some(event) = event(&line) else { continue };
                let message = self.http.shown(&event.message);
                if event.failed {
                    return FollowedStart::Failed(message);
                }
                if event.ready {
                    return FollowedStart::Ready;
                }
                let words: String = message
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .chars()
                    .take(WORDS_CHARS)
                    .collect();
                if !words.is_empty() {
                    report(&format!("JupyterHub: {words}"));
                }
            }
            if buffer.len() > LINE_BYTES_MAX {
                return FollowedStart::Broken("an event is too long".to_owned());
            }
        }
    }
}

/// The event in a line; `None` for others, which keep the connection alive.
fn event(line: &[u8]) -> Option<ProgressEvent> {
    serde_json::from_slice(line.strip_prefix(b"data:")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_other_lines_left_out() {
        let read =
            event(b"data: {\"progress\": 100, \"failed\": true, \"message\": \"no seats\"}\n").unwrap();
        assert!(read.failed && !read.ready);
        assert_eq!(read.message, "no seats");
        assert!(event(b"\n").is_none() && event(b"data: no json\n").is_none());
    }
}
