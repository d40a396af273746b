//! Kernel messages, reduced to the parts that a cell's outcome depends on.
//!
//! Independent of the transport: it reads message contents of the [Jupyter messaging
//! protocol](https://jupyter-client.readthedocs.io/en/stable/messaging.html).

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Error;
use super::insight::CodeInsight;
use super::terminal::plain;
use crate::ground::budget::TimedLease;

/// An object's representations, by MIME type.
pub(crate) type MimeBundle = Map<String, Value>;

/// A message from the kernel.
#[derive(Debug)]
pub(crate) struct KernelMessage {
    /// The id of the request that it belongs to; `None` for messages without a request.
    pub(crate) parent: Option<String>,
    /// The content.
    pub(crate) content: MessageContent,
    /// The memory of a long message, which ends with it: whoever takes the content keeps the rest until it is done.
    pub(crate) _held: Option<TimedLease>,
}

impl KernelMessage {
    /// A short message, whose memory is not counted.
    pub(crate) fn new(parent: Option<String>, content: MessageContent) -> Self {
        Self { parent, content, _held: None }
    }
}

/// The content of a message.
#[derive(Debug)]
pub(crate) enum MessageContent {
    /// Output that is shown, changed or cleared.
    Shown(ShownOutput),
    /// An uncaught exception.
    Error(PythonError),
    /// The kernel is done with the request: everything that it printed was sent before this.
    Idle,
    /// The code of a request is about to run.
    ExecuteInput,
    /// The answer to a request to execute code, and the exception that ended it. Some exceptions are reported
    /// only here: exception groups, and wrong use of a magic.
    ExecuteReply {
        /// The exception that ended the code.
        error: Option<PythonError>,
        /// The number of messages with output that were sent before, if the kernel reports it.
        shown: Option<u64>,
    },
    /// The answer to an inquiry.
    Insight(CodeInsight),
    /// The answer to a request to fork for a branch.
    BranchReply(BranchReply),
    /// The answer to a request to interrupt: the signal has been sent.
    InterruptReply,
    /// The kernel's implementation and language.
    KernelInfoReply(KernelInfo),
    /// The server between us and the kernel drops output because there is too much of it.
    Limited(RateLimit),
    /// The answer to a request to end: Python's exit is over.
    ShutdownReply {
        /// Whether no part of it was interrupted because it took too long.
        is_complete: bool,
    },
    /// A kernel of our own is ready.
    Welcome,
    /// Something else, which a cell's outcome does not depend on.
    Other,
}

/// The answer of a kernel that was asked to fork. Code may have made it up.
#[derive(Debug, Deserialize)]
pub(crate) struct BranchReply {
    /// The reasons why it has not forked.
    pub(super) refusals: Vec<String>,
    /// The differences of the fork.
    pub(super) notes: Vec<String>,
}

/// Output for the reader.
#[derive(Debug)]
pub(crate) enum ShownOutput {
    /// Text written to stdout or stderr.
    Stream(String),
    /// An object shown by `display()`, or the value of the last expression.
    Object {
        /// Its representations.
        bundle: MimeBundle,
        /// Under this id it can be updated.
        id: Option<String>,
        /// Whether its text goes on in streams, because it is too long for one message.
        is_begun: bool,
        /// Whether it is the value of the last expression.
        is_value: bool,
    },
    /// A new representation of an object shown before.
    Update {
        /// Its representations.
        bundle: MimeBundle,
        /// The id under which it was shown.
        id: Option<String>,
    },
    /// All output is cleared.
    Clear {
        /// Only when the next output is shown.
        is_delayed: bool,
    },
}

/// A limit of a Jupyter server on what kernels publish.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateLimit {
    /// The setting's name.
    pub(crate) setting: &'static str,
    /// Bytes or messages a second.
    pub(crate) rate: Option<f64>,
}

impl RateLimit {
    /// Reads a server's notice, which code in the kernel can forge: none of its text is used.
    pub(super) fn read(notice: &str) -> Option<Self> {
        let setting = match notice.split_once(" rate exceeded.")?.0 {
            "IOPub data" => "iopub_data_rate_limit",
            "IOPub message" => "iopub_msg_rate_limit",
            _ => return None,
        };
        let rate =
            notice.split_once(&format!("{setting}=")).and_then(|(_, rest)| rest.split_whitespace().next());
        Some(Self {
            setting,
            rate: rate.and_then(|rate| rate.parse().ok()).filter(|rate: &f64| rate.is_finite()),
        })
    }
}

/// A kernel's description of itself.
#[derive(Debug)]
pub(crate) struct KernelInfo {
    /// `ipython`.
    pub(crate) implementation: String,
    /// `python`.
    pub(crate) language: String,
}

/// A Python exception that ended a cell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct PythonError {
    /// The exception's class, `ZeroDivisionError`.
    #[serde(rename = "ename")]
    pub(crate) name: String,
    /// Its text, `division by zero`.
    #[serde(rename = "evalue")]
    pub(crate) value: String,
    /// The traceback as IPython formats it.
    #[serde(default)]
    pub(crate) traceback: Vec<String>,
}

impl PythonError {
    /// The exception's class and text.
    pub(crate) fn last_line(&self) -> String {
        plain(&format!("{}: {}", self.name, self.value))
    }

    /// The traceback without colours, which names the exception and its value; those alone if there is none.
    pub(crate) fn text(&self) -> String {
        let traceback = plain(&self.traceback.join("\n"));
        if traceback.contains(&self.name) {
            return traceback;
        }
        let line = self.last_line();
        if traceback.is_empty() { line } else { format!("{traceback}\n{line}") }
    }
}

#[derive(Deserialize)]
struct StreamContent {
    text: String,
}

#[derive(Deserialize)]
struct Display {
    data: MimeBundle,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    transient: Transient,
}

/// The members that `ipybox_messages.py` adds to the metadata of an object.
#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, rename = "ipybox_begun")]
    is_begun: Value,
}

#[derive(Default, Deserialize)]
struct Transient {
    // Any JSON value: an odd value that code puts here must not lose its output.
    display_id: Option<Value>,
}

impl Transient {
    fn id(self) -> Option<String> {
        self.display_id.map(|id| id.to_string())
    }
}

#[derive(Deserialize)]
struct ClearOutput {
    #[serde(default)]
    wait: bool,
}

#[derive(Deserialize)]
struct KernelInfoReply {
    #[serde(default)]
    implementation: String,
    language_info: LanguageInfo,
}

#[derive(Deserialize)]
struct LanguageInfo {
    name: String,
}

/// The members that `ipybox_session.py` adds to the metadata of a reply.
#[derive(Default, Deserialize)]
struct ReplyMetadata {
    #[serde(default)]
    ipybox_shown: Option<u64>,
}

#[derive(Deserialize)]
struct ShutdownReply {
    // A Jupyter kernel does not say.
    #[serde(default)]
    is_complete: bool,
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum ExecuteReply {
    Error(PythonError),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "execution_state", rename_all = "snake_case")]
enum ExecutionState {
    Idle,
    #[serde(other)]
    Other,
}

impl MessageContent {
    /// Reads the content of a message by its kind, `msg_type`, with the metadata beside it.
    ///
    /// Bytes that are not UTF-8 become replacement characters: output must not be lost over them.
    pub(super) fn read(kind: &str, metadata: &[u8], content: &[u8]) -> Result<Self, Error> {
        Ok(match kind {
            "stream" => Self::Shown(ShownOutput::Stream(parse::<StreamContent>(content)?.text)),
            "display_data" | "execute_result" => {
                let Display { data, metadata, transient } = parse(content)?;
                Self::Shown(ShownOutput::Object {
                    bundle: data,
                    id: transient.id(),
                    is_begun: metadata.is_begun == true,
                    is_value: kind == "execute_result",
                })
            }
            "update_display_data" => {
                let Display { data, transient, .. } = parse(content)?;
                Self::Shown(ShownOutput::Update { bundle: data, id: transient.id() })
            }
            "clear_output" => {
                Self::Shown(ShownOutput::Clear { is_delayed: parse::<ClearOutput>(content)?.wait })
            }
            "error" => Self::Error(parse(content)?),
            "status" => match parse(content)? {
                ExecutionState::Idle => Self::Idle,
                ExecutionState::Other => Self::Other,
            },
            "execute_input" => Self::ExecuteInput,
            "execute_reply" => {
                let error = match parse::<ExecuteReply>(content)? {
                    ExecuteReply::Error(error) => Some(error),
                    ExecuteReply::Other => None,
                };
                let metadata: ReplyMetadata = parse(metadata).unwrap_or_default();
                Self::ExecuteReply { error, shown: metadata.ipybox_shown }
            }
            "complete_reply" => Self::Insight(CodeInsight::Completions(parse(content)?)),
            "is_complete_reply" => Self::Insight(CodeInsight::Completeness(parse(content)?)),
            "environment_reply" => Self::Insight(CodeInsight::Environment(parse(content)?)),
            "effort_reply" => Self::Insight(CodeInsight::Effort(parse(content)?)),
            "kernel_info_reply" => {
                let KernelInfoReply { implementation, language_info } = parse(content)?;
                Self::KernelInfoReply(KernelInfo { implementation, language: language_info.name })
            }
            "branch_reply" => Self::BranchReply(parse(content)?),
            "interrupt_reply" => Self::InterruptReply,
            "shutdown_reply" => {
                Self::ShutdownReply { is_complete: parse::<ShutdownReply>(content)?.is_complete }
            }
            "ready" => Self::Welcome,
            _ => Self::Other,
        })
    }
}

/// Reads JSON of a kernel, lossily where it is not UTF-8.
pub(super) fn parse<T: serde::de::DeserializeOwned>(part: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(part)
        .or_else(|_| serde_json::from_str(&String::from_utf8_lossy(part)))
        .map_err(Error::Message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, content: &[u8]) -> MessageContent {
        MessageContent::read(kind, b"{}", content).unwrap()
    }

    #[test]
    fn output_that_is_not_utf_8_is_kept() {
        let content = read("stream", b"{\"name\":\"stdout\",\"text\":\"a\xffb\"}");
        assert!(matches!(content, MessageContent::Shown(ShownOutput::Stream(text)) if text == "a\u{fffd}b"));
    }

    #[test]
    fn the_notice_of_a_server_is_read_and_not_repeated() {
        let notice = "IOPub data rate exceeded.\nThe Jupyter server will temporarily stop sending output\n\
            Current values:\nServerApp.iopub_data_rate_limit=1000000.0 (bytes/sec)\nServerApp.rate_limit_window=3.0 (secs)\n";
        let limit = RateLimit { setting: "iopub_data_rate_limit", rate: Some(1_000_000.0) };
        assert_eq!(RateLimit::read(notice), Some(limit));
        let notice = "IOPub message rate exceeded.\nServerApp.iopub_msg_rate_limit=nonsense";
        assert_eq!(RateLimit::read(notice), Some(RateLimit { setting: "iopub_msg_rate_limit", rate: None }));
        for other in ["", "IOPub other rate exceeded.", "IOPub data"] {
            assert_eq!(RateLimit::read(other), None, "{other}");
        }
    }

    #[test]
    fn only_idle_ends_a_request() {
        assert!(matches!(read("status", br#"{"execution_state":"idle"}"#), MessageContent::Idle));
        assert!(matches!(read("status", br#"{"execution_state":"busy"}"#), MessageContent::Other));
        assert!(matches!(read("comm_open", b"{}"), MessageContent::Other));
    }
}
