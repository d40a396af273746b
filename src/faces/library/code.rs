//! Code to run, and how.

use std::time::Duration;

use crate::session::DEFAULT_TIMEOUT;

/// The default limit of output in a result, in characters.
const DEFAULT_MAX_OUTPUT_CHARS: usize = 1_000_000;

/// Code to run, and how. A string is code with the defaults.
///
/// ```
/// use std::time::Duration;
///
/// use ipybox::Code;
///
/// let code = Code::new("1 + 1").timeout(Duration::from_secs(10)).with_chunks();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it does not run before it is given to an executor"]
pub struct Code {
    pub(super) source: String,
    pub(super) timeout: Duration,
    pub(super) has_chunks: bool,
    pub(super) max_output_chars: usize,
}

impl Code {
    /// Python code, as a user would type it into IPython: magics, `!commands` and `await` at top level work.
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            timeout: DEFAULT_TIMEOUT,
            has_chunks: false,
            max_output_chars: DEFAULT_MAX_OUTPUT_CHARS,
        }
    }

    /// The time that it may run before it is interrupted; default: 120 seconds. Waiting for other code to end, for the kernel
    /// to start and for approval does not count.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Requests output as it is produced, as
    /// [`CodeExecutionEvent::Chunk`](super::CodeExecutionEvent::Chunk)s. Default: only the result.
    pub fn with_chunks(mut self) -> Self {
        self.has_chunks = true;
        self
    }

    /// The number of characters of its output that the result holds; default: 1,000,000. Of more, it holds the beginning and the
    /// end, and the path of a file with all of it.
    pub fn max_output_chars(mut self, count: usize) -> Self {
        self.max_output_chars = count;
        self
    }
}

impl From<&str> for Code {
    fn from(source: &str) -> Self {
        Self::new(source)
    }
}

impl From<String> for Code {
    fn from(source: String) -> Self {
        Self::new(source)
    }
}

impl From<&String> for Code {
    fn from(source: &String) -> Self {
        Self::new(source)
    }
}
