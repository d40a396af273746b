//! Recordings of sessions: the format, the file, and what follows the calls of code.
//!
//! ```text
//! calls of code → tape ┬ recorder → lines → writer's thread → file
//!                      └ broker ← matching ← recording ← reader ← file
//! ```
//!
//! A recording is a file of JSON lines that people put into git and review. It is untrusted when it is read.
//!
//! Reasons: `docs/decisions/record.md`.

mod addition;
mod broker;
mod comparison;
mod file;
mod line;
mod matching;
mod reader;
mod recent;
mod recorder;
mod tape;
mod test_recording;
mod writer;

pub(crate) use self::addition::add_line;
pub use self::broker::ReplayMode;
pub(crate) use self::broker::{CallDifference, ReplayBroker};
pub(crate) use self::comparison::{
    OutputLikeness, diff, outputs as compare_outputs, rules, shown as shown_outputs,
};
pub use self::file::RecordingError;
pub(crate) use self::line::{
    CellItem, RecordedCall, RecordedCell, RecordedEnvironment, RecordedFailure, RecordedMoment,
    RecordedServer, RecordedSession, RecordedUndo, RecordingLine,
};
pub use self::matching::PlayMatch;
pub(crate) use self::matching::{AskedCall, RecordedCalls};
pub(crate) use self::reader::ReadRecording;
pub use self::reader::UnreadableRecording;
pub(crate) use self::recorder::{RecordedConditions, SessionRecorder};
pub(crate) use self::tape::{AnswerWitness, CallTape, TapedCall};
pub(crate) use self::test_recording::{TestRecording, as_one_cell};

/// The largest line of a recording, in bytes. Answers that are larger are left out.
const LINE_BYTES: usize = 16 * 1024 * 1024;

/// The largest recording, in bytes.
pub(crate) const FILE_BYTES: u64 = 256 * 1024 * 1024;
