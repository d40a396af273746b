//! Questions to a kernel beside cells: how the code of a person could go on, whether it is complete, which Python runs, and how
//! much it works.
//!
//! The requests and answers are Jupyter's. To answer, the kernel may run code of the user's (`__dir__`, say), so that the
//! answer has a time limit, and nothing in it is believed.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::insight::{CodeCompleteness, CodeCompletions, CodeInsight};
use super::{Error, Kernel, KernelEvent, KernelMessage, MessageContent};
use crate::ground::text::visible::line;

/// The time that the kernel may take before it is interrupted.
const TIME: Duration = Duration::from_millis(1500);
/// The same for the versions of packages, of which there may be many on a slow disk.
const ENVIRONMENT_TIME: Duration = Duration::from_secs(60);
/// The time that it may take to react to that.
const GRACE: Duration = Duration::from_millis(1000);

/// The longest code that is asked about, in bytes.
const CODE_BYTES: usize = 64 * 1024;

/// The number of completions that are taken, and the length that one may have, in bytes.
const MATCHES: usize = 200;
const MATCH_BYTES: usize = 400;

/// A question about code.
#[derive(Debug, Clone)]
pub(crate) enum CodeInquiry {
    /// The continuations at this position, in bytes.
    Completions { code: String, cursor: usize },
    /// Whether it is complete.
    Completeness { code: String },
    /// The versions of Python and its packages; a kernel of a Jupyter server does not know the question.
    Environment,
    /// The processor time that it has taken; a kernel of a Jupyter server does not know the question.
    Effort,
}

impl CodeInquiry {
    fn code(&self) -> &str {
        match self {
            Self::Completions { code, .. } | Self::Completeness { code } => code,
            Self::Environment | Self::Effort => "",
        }
    }

    /// The position in characters: Python's unit.
    fn cursor(&self) -> usize {
        match self {
            Self::Completions { code, cursor } => {
                code[..code.floor_char_boundary((*cursor).min(code.len()))].chars().count()
            }
            Self::Completeness { .. } | Self::Environment | Self::Effort => 0,
        }
    }

    fn time(&self) -> Duration {
        if matches!(self, Self::Environment) { ENVIRONMENT_TIME } else { TIME }
    }
}

impl CodeInsight {
    /// The usable part of an answer of the kernel's, whose code may have made it up.
    fn believable(self, cursor: usize) -> Option<Self> {
        match self {
            Self::Completions(CodeCompletions { mut matches, start }) => {
                let before = cursor.checked_sub(start)?;
                matches.retain(|each| each.len() <= MATCH_BYTES && line(each) == *each);
                matches.truncate(MATCHES);
                Some(Self::Completions(CodeCompletions { matches, start: before }))
            }
            Self::Completeness(_) | Self::Environment(_) | Self::Effort(_) => Some(self),
        }
    }
}

impl CodeCompleteness {
    /// Whether it is complete, if that is known.
    pub(crate) fn is_complete(self) -> Option<bool> {
        match self {
            Self::Complete => Some(true),
            Self::Incomplete => Some(false),
            Self::Unknown => None,
        }
    }
}

impl Kernel {
    /// Asks about code. Returns the answer, if one came in time, and what else has happened meanwhile.
    ///
    /// Only for a kernel that runs no cell. After at most 2.5 seconds (61 for its versions) it does no longer work on it, or
    /// does not react to interrupts.
    pub(crate) async fn inquire(
        &mut self,
        inquiry: CodeInquiry,
    ) -> (Option<CodeInsight>, Vec<Result<KernelEvent, Error>>) {
        let is_unknown =
            matches!((&*self, &inquiry), (Self::Remote(_), CodeInquiry::Environment | CodeInquiry::Effort));
        if is_unknown || inquiry.code().len() > CODE_BYTES {
            return (None, Vec::new());
        }
        let id = match self.send_inquiry(&inquiry) {
            Ok(id) => id,
            Err(error) => return (None, vec![Err(error)]),
        };
        let mut others = Vec::new();
        let mut insight = None;
        let mut interrupted = None;
        let mut deadline = Instant::now() + inquiry.time();
        while insight.is_none() || interrupted == Some(false) {
            let event = match tokio::time::timeout_at(deadline, self.next()).await {
                Ok(event) => event,
                Err(_) if interrupted.is_none() => {
                    interrupted = Some(false);
                    deadline += GRACE;
                    if let Err(error) = self.request_interrupt() {
                        others.push(Err(error));
                        return (None, others);
                    }
                    continue;
                }
                Err(_) => break,
            };
            match event {
                Ok(KernelEvent::Message(KernelMessage {
                    content: MessageContent::InterruptReply, ..
                })) => {
                    interrupted = Some(true);
                }
                Ok(KernelEvent::Message(KernelMessage {
                    parent: Some(parent),
                    content: MessageContent::Insight(came),
                    ..
                })) if parent == id => {
                    insight = Some(came);
                }
                Ok(event @ (KernelEvent::Message(_) | KernelEvent::Torn)) => others.push(Ok(event)),
                ended => {
                    others.push(ended);
                    break;
                }
            }
        }
        (insight.and_then(|insight| insight.believable(inquiry.cursor())), others)
    }

    fn send_inquiry(&mut self, inquiry: &CodeInquiry) -> Result<String, Error> {
        let (kind, content) = match inquiry {
            CodeInquiry::Completions { code, .. } => {
                ("complete_request", json!({"code": code, "cursor_pos": inquiry.cursor()}))
            }
            CodeInquiry::Completeness { code } => ("is_complete_request", json!({ "code": code })),
            CodeInquiry::Environment => ("environment_request", json!({})),
            CodeInquiry::Effort => ("effort_request", json!({})),
        };
        match self {
            Self::Own(kernel) => {
                let id = uuid::Uuid::new_v4().simple().to_string();
                kernel.request(kind, &id, &content).map(|()| id)
            }
            Self::Remote(kernel) => kernel.request(kind, &content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completions(matches: &[&str], start: usize) -> CodeInsight {
        let matches = matches.iter().map(|&each| each.to_owned()).collect();
        CodeInsight::Completions(CodeCompletions { matches, start })
    }

    #[test]
    fn completions_that_could_mislead_are_left_out() {
        let long = "x".repeat(MATCH_BYTES + 1);
        let hostile =
            completions(&["name", "a\u{1b}[2J", "two\nlines", "\u{202e}", "p\u{430}y", "é", &long], 3);
        assert_eq!(hostile.believable(5), Some(completions(&["name", "é"], 2)));
        assert_eq!(completions(&["name"], 6).believable(5), None);
        let many: Vec<&str> = vec!["x"; 1000];
        assert_eq!(completions(&many, 0).believable(0), Some(completions(&many[..MATCHES], 0)));
    }

    #[test]
    fn positions_are_characters_for_python() {
        let inquiry = CodeInquiry::Completions { code: "é = 'é'".to_owned(), cursor: 6 };
        assert_eq!(inquiry.cursor(), 5);
        let beyond = CodeInquiry::Completions { code: "é".to_owned(), cursor: 1000 };
        assert_eq!(beyond.cursor(), 1);
    }

    #[test]
    fn answers_of_any_form_are_read() {
        let read = |json: &str| serde_json::from_str::<CodeCompleteness>(json).unwrap();
        assert_eq!(read(r#"{"status": "invalid", "indent": ""}"#), CodeCompleteness::Complete);
        assert_eq!(read(r#"{"status": "incomplete"}"#), CodeCompleteness::Incomplete);
        assert_eq!(read(r#"{"status": "what"}"#), CodeCompleteness::Unknown);
    }
}
