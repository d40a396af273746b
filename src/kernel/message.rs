//! What a kernel says, reduced to what a cell's outcome is made of.
//!
//! Independent of the transport: a message comes as the JSON parts of the
//! [Jupyter messaging protocol](https://jupyter-client.readthedocs.io/en/stable/messaging.html).

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Error;
use super::death::Ended;
use super::terminal::plain;
use super::wire::Parts;

/// An object's representations, by MIME type.
pub(crate) type MimeBundle = Map<String, Value>;

/// A message from the kernel.
#[derive(Debug)]
pub(crate) struct Message {
    /// The id of the request that it belongs to; `None` for what the kernel says of its own accord.
    pub(crate) parent: Option<String>,
    /// What it says.
    pub(crate) content: Content,
}

/// What a message says.
#[derive(Debug)]
pub(crate) enum Content {
    /// Something that is shown to the reader of the output, or shown no more.
    Shown(Shown),
    /// An uncaught exception.
    Error(PythonError),
    /// The kernel is done with the request: everything that it printed was sent before this.
    Idle,
    /// The code of a request is about to run.
    ExecuteInput,
    /// The answer to a request to execute code, and the exception that ended it. Of some exceptions nothing else tells:
    /// groups of them, and wrong use of a magic.
    ExecuteReply(Option<PythonError>),
    /// The answer to a request to interrupt: the signal has been sent.
    InterruptReply,
    /// The subscription to the kernel's output is in place (JEP 65).
    Welcome,
    /// The kernel has ended, says who runs it.
    Dead(Ended),
    /// Something else, which a cell's outcome does not depend on.
    Other,
}

/// What a reader of the output sees.
#[derive(Debug)]
pub(crate) enum Shown {
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
    },
    /// An object shown before looks different now.
    Update {
        /// Its representations.
        bundle: MimeBundle,
        /// The id under which it was shown.
        id: Option<String>,
    },
    /// All that was shown is gone.
    Clear {
        /// Only when something else is shown.
        is_delayed: bool,
    },
}

/// A stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// How much a request had written to a stream, in characters, with the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) stream: Stream,
    pub(super) end: u64,
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
    /// The traceback without colours, which names the exception and its value; those alone if there is none.
    pub(crate) fn text(&self) -> String {
        let traceback = plain(&self.traceback.join("\n"));
        if traceback.contains(&self.name) {
            return traceback;
        }
        let line = plain(&format!("{}: {}", self.name, self.value));
        if traceback.is_empty() { line } else { format!("{traceback}\n{line}") }
    }
}

#[derive(Deserialize)]
struct Header {
    msg_type: String,
}

#[derive(Deserialize)]
struct ParentHeader {
    msg_id: Option<String>,
}

#[derive(Deserialize)]
struct StreamContent {
    text: String,
    /// `stdout` or `stderr`.
    #[serde(default)]
    name: Option<String>,
    /// How many characters the kernel's own process had written with this text, if it says so.
    #[serde(default)]
    end: Option<u64>,
}

impl StreamContent {
    fn written(&self) -> Option<Written> {
        let stream = match self.name.as_deref()? {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            _ => return None,
        };
        Some(Written { stream, end: self.end? })
    }
}

#[derive(Deserialize)]
struct Display {
    data: MimeBundle,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    transient: Transient,
}

/// What boot.py adds to the metadata of an object.
#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, rename = "ipybox_begun")]
    is_begun: Value,
}

#[derive(Default, Deserialize)]
struct Transient {
    // Any value: what code in the kernel puts here must not cost its output.
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
#[serde(tag = "status", rename_all = "snake_case")]
enum ExecuteReply {
    Error(PythonError),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "execution_state", rename_all = "snake_case")]
enum Status {
    Idle,
    Dead(Ended),
    #[serde(other)]
    Other,
}

impl Message {
    /// Reads a message from its header, parent header and content. With text of a stream comes how much its request
    /// had written by then.
    ///
    /// Bytes that are not UTF-8 become replacement characters: output must not be lost over them.
    pub(super) fn decode(parts: &Parts) -> Result<(Self, Option<Written>), Error> {
        let header: Header = parse(parts.header())?;
        let parent: ParentHeader = parse(parts.parent())?;
        let content = parts.content();
        let mut written = None;
        let content = match header.msg_type.as_str() {
            "stream" => {
                let stream: StreamContent = parse(content)?;
                written = stream.written();
                Content::Shown(Shown::Stream(stream.text))
            }
            "display_data" | "execute_result" => {
                let Display { data, metadata, transient } = parse(content)?;
                Content::Shown(Shown::Object {
                    bundle: data,
                    id: transient.id(),
                    is_begun: metadata.is_begun == true,
                })
            }
            "update_display_data" => {
                let Display { data, transient, .. } = parse(content)?;
                Content::Shown(Shown::Update { bundle: data, id: transient.id() })
            }
            "clear_output" => {
                Content::Shown(Shown::Clear { is_delayed: parse::<ClearOutput>(content)?.wait })
            }
            "error" => Content::Error(parse(content)?),
            "status" => match parse(content)? {
                Status::Idle => Content::Idle,
                Status::Dead(end) => Content::Dead(end),
                Status::Other => Content::Other,
            },
            "execute_input" => Content::ExecuteInput,
            "execute_reply" => match parse::<ExecuteReply>(content)? {
                ExecuteReply::Error(error) => Content::ExecuteReply(Some(error)),
                ExecuteReply::Other => Content::ExecuteReply(None),
            },
            "interrupt_reply" => Content::InterruptReply,
            "iopub_welcome" => Content::Welcome,
            _ => Content::Other,
        };
        Ok((Self { parent: parent.msg_id, content }, written))
    }
}

fn parse<T: serde::de::DeserializeOwned>(part: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(part)
        .or_else(|_| serde_json::from_str(&String::from_utf8_lossy(part)))
        .map_err(Error::Message)
}

#[cfg(test)]
mod tests {
    use super::super::wire::Channel;
    use super::*;

    fn message(header: &[u8], parent: &[u8], content: &[u8]) -> (Message, Option<Written>) {
        let parts = [header, parent, b"{}", content].map(|part| part.to_vec().into());
        Message::decode(&Parts::new(Channel::Iopub, parts.to_vec()).unwrap()).unwrap()
    }

    fn decode(kind: &str, content: &[u8]) -> Content {
        let header = format!(r#"{{"msg_id":"1","msg_type":"{kind}"}}"#);
        message(header.as_bytes(), br#"{"msg_id":"7"}"#, content).0.content
    }

    #[test]
    fn output_that_is_not_utf_8_is_kept() {
        let content = decode("stream", b"{\"name\":\"stdout\",\"text\":\"a\xffb\"}");
        assert!(matches!(content, Content::Shown(Shown::Stream(text)) if text == "a\u{fffd}b"));
    }

    #[test]
    fn text_tells_how_much_was_written_with_it() {
        let written = |content: &[u8]| message(br#"{"msg_type":"stream"}"#, b"{}", content).1;
        assert_eq!(
            written(br#"{"name":"stderr","text":"a","end":7}"#),
            Some(Written { stream: Stream::Stderr, end: 7 })
        );
        assert_eq!(written(br#"{"name":"stdout","text":"a"}"#), None);
        assert_eq!(written(br#"{"name":"other","text":"a","end":7}"#), None);
    }

    #[test]
    fn only_idle_ends_a_request() {
        assert!(matches!(decode("status", br#"{"execution_state":"idle"}"#), Content::Idle));
        assert!(matches!(decode("status", br#"{"execution_state":"busy"}"#), Content::Other));
        assert!(matches!(decode("comm_open", b"{}"), Content::Other));
    }

    #[test]
    fn an_empty_parent_header_is_no_parent() {
        let (message, _) = message(br#"{"msg_type":"iopub_welcome"}"#, b"{}", b"{}");
        assert!(message.parent.is_none());
    }
}
