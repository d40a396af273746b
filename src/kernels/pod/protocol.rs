//! The messages between a session and its pod, and the streams between them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A request to a pod.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PodRequest {
    /// Start a kernel with these variables, whose first message is the configuration.
    Start { kernel: u64, environment: BTreeMap<String, String>, configuration: serde_json::Value },
    /// Send a signal to a kernel and all that it started.
    Signal { kernel: u64, signal: i32 },
    /// Listen for tool calls, whose connections come as streams.
    Listen { listener: u64 },
    /// Say how much memory forks take beside the process that they were forked from.
    Measure { question: u64, forks: Vec<u32>, origin: Option<u32> },
    /// End: the session needs it no more.
    Leave,
}

/// A notice of a pod.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PodNotice {
    /// The first one.
    About(PodAbout),
    /// A listener listens on this port of its loopback interface.
    Listening { listener: u64, port: u16 },
    /// A kernel has not started.
    NotStarted { kernel: u64, why: String },
    /// A fork runs as this process.
    Forked { kernel: u64, process: u32, origin: Option<u32> },
    /// There is no fork.
    NotForked { kernel: u64 },
    /// A requested signal has been sent.
    Signalled { kernel: u64 },
    /// A kernel has ended with this wait status, if that is known.
    Ended { kernel: u64, wait_status: Option<i32> },
    /// The memory of forks in bytes; `None` if it cannot be measured.
    Measured { question: u64, bytes: Option<u64> },
}

/// The kernels' surroundings in a pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PodAbout {
    pub(crate) python: PathBuf,
    /// The version of Python: major and minor.
    pub(crate) python_version: (u32, u32),
    /// The working directory of kernels.
    pub(crate) workspace: PathBuf,
    /// The directory for files of kernels.
    pub(crate) private_directory: PathBuf,
}

/// The first message in each stream.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamHeader {
    /// Requests and notices; the only one that the session opens.
    Control,
    /// A kernel's socket.
    Socket { kernel: u64 },
    /// A kernel's output.
    Output { kernel: u64 },
    /// A connection to the tool server of a listener.
    Tools { listener: u64 },
}

/// A frame that the session sends in the stream of a kernel's socket: bytes behind a `0`, or behind a `1` a
/// [`PodForkRequest`] as JSON. The pod sends bytes alone.
pub(crate) struct SocketFrame;

impl SocketFrame {
    pub(crate) const BYTES: u8 = 0;
    pub(crate) const FORK: u8 = 1;
}

/// A message for a kernel that comes with the socket and the pipe of a fork.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PodForkRequest {
    /// The number of the fork.
    pub(crate) kernel: u64,
    /// The message as the kernel reads it, in base64.
    pub(crate) message: String,
    /// Whether the origin shows first which process it is.
    pub(crate) shows_origin: bool,
}
