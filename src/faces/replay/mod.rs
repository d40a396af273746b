//! Replays recordings, and plays their servers to any client. A replay runs the recorded code in a real kernel, in a workspace of its own, with calls answered from the recording.
//!
//! ```text
//! recording ─ servers → packages of the new workspace
//!           ─ cells → session → kernel ─ calls → broker: the recording, or living servers
//!           ─ outputs ⇄ comparison by rules → report
//! ```
//!
//! A recording never chooses what runs on the host: servers are those that the user has registered, and are started in the
//! modes that need them alone. Its code runs as any code of a stranger would.
//!
//! Reasons: `docs/decisions/record.md`.

mod course;
mod judging;
mod mcp_form;
mod missing;
mod play;
mod report;
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::course::ReplayCourse;
use self::judging::PolicyCourse;
pub use self::missing::UpdateError;
pub use self::play::{PlayError, PlayOptions, play};
pub use self::report::{CellDifference, ReplayReport, ReplayedCell};
use self::source::ReplaySource;
use crate::approval::{ApprovalPolicy, SessionFace};
use crate::config::{self, Config, SandboxBackend, SandboxSettings, Settings};
use crate::ground::files::TemporaryDirectory;
use crate::session::{Session, SessionReplay, StartError, ToolOptions};
use crate::tools::recording::{
    ReadRecording, RecordingLine, ReplayBroker, ReplayMode, SessionRecorder, UnreadableRecording,
};
use crate::tools::registry::{RecordedServerError, Registry};

/// The memory that states of the kernel may take in the replay of a recording with an undo, in bytes.
const UNDO_MEMORY: u64 = 1 << 30;

/// The options of a replay.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReplayOptions {
    /// The recording; for [`ReplayMode::Policy`] also an audit log.
    pub file: PathBuf,
    /// The destination of calls. Default: [`ReplayMode::Strict`].
    pub mode: ReplayMode,
    /// The workspace whose registered servers are the living ones, and whose environment runs the code if no `python` is
    /// named. Default: the current directory.
    pub workspace: PathBuf,
    /// The directory of registered servers and Python environments. Default: as for sessions.
    pub state_dir: Option<PathBuf>,
    /// The interpreter. Default: the environment of the workspace.
    pub python: Option<PathBuf>,
    /// The sandbox of the kernel. Default: srt if the recorded session had one, else none.
    pub sandbox: Option<SandboxBackend>,
    /// The variables whose placeholders in the recording are filled with their values. Code gets to see these. Default: none.
    pub fill: Vec<String>,
    /// Decides about calls of living servers, or is asked about all in [`ReplayMode::Policy`]. Default: they run.
    pub policy: ApprovalPolicy,
}

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The recording cannot be read.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRecording),
    /// The kernel of the recorded session began as a copy of another.
    #[error("replay a branch: its kernel began as a copy of that of `{origin}`, which can be replayed")]
    Branch {
        /// The recording of that session.
        origin: String,
    },
    /// An audit log has no code.
    #[error(
        "replay an audit log: it has no code\nhint: `--mode policy` asks an approval policy about its calls"
    )]
    AuditLog,
    /// A variable has no value.
    #[error("fill `${{{name}}}`: the variable is neither set nor in the workspace's vault")]
    Variable {
        /// The variable.
        name: String,
    },
    /// No directory could be made for the code.
    #[error("make a workspace for the replay")]
    Directory(#[source] std::io::Error),
    /// The session cannot be configured.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The session cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A recorded server has no usable package, or a living one cannot be asked.
    #[error(transparent)]
    Server(#[from] RecordedServerError),
    /// The session has ended in the middle.
    #[error("replay cell {cell}: {why}")]
    Cell {
        /// The number of the cell.
        cell: u64,
        /// Why.
        why: String,
    },
}

impl ReplayOptions {
    /// The defaults, for this recording.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            mode: ReplayMode::Strict,
            workspace: ".".into(),
            state_dir: None,
            python: None,
            sandbox: None,
            fill: Vec::new(),
            policy: ApprovalPolicy::always(crate::approval::ApprovalEffect::Allow),
        }
    }
}

/// Replays a recording, and reports what is the same and what differs.
///
/// # Errors
/// See [`ReplayError`]. That something differs is no error.
pub async fn replay(options: ReplayOptions) -> Result<ReplayReport, ReplayError> {
    let path = options.file.clone();
    let reading = tokio::task::spawn_blocking(move || ReplaySource::read(&path));
    let source = reading.await.map_err(|error| ReplayError::Directory(error.into()))??;
    let recording = match source {
        source if options.mode == ReplayMode::Policy => {
            let judging = tokio::task::spawn_blocking(move || PolicyCourse::judge_all(&options, source));
            return judging.await.map_err(|error| ReplayError::Directory(error.into()));
        }
        ReplaySource::Recording(recording) => recording,
        ReplaySource::AuditLog(_) => return Err(ReplayError::AuditLog),
    };
    if let Some(origin) = &recording.session.branch_of {
        return Err(ReplayError::Branch { origin: origin.clone() });
    }
    let directory = tempfile::Builder::new().prefix("ipybox-replay-").tempdir();
    // Code may leave it deep and locked.
    let directory = TemporaryDirectory::from(directory.map_err(ReplayError::Directory)?);
    let workspace = directory.path().canonicalize().map_err(ReplayError::Directory)?;
    let config = config(&options, &recording, &workspace)?;
    let broker = Arc::new(broker(&options, &recording, &config)?);
    let recorder = SessionRecorder::in_memory(config.variables().redactor().clone());
    let registry = Registry::in_memory(config.connector());
    let tools = ToolOptions {
        registry: Some(registry.clone()),
        policy: options.policy.clone(),
        face: SessionFace::Command,
        beside: None,
        replay: Some(SessionReplay { broker: Arc::clone(&broker), recorder: Arc::clone(&recorder) }),
    };
    let session = Session::open(&config, Some(tools)).await?;
    session.started().await.map_err(StartError::from)?;
    let living = matches!(options.mode, ReplayMode::Reads | ReplayMode::Live)
        .then(|| Registry::in_directory(config.state_dir(), config.connector()));
    let course = ReplayCourse {
        session: Arc::new(session),
        registry,
        living,
        broker,
        recorder,
        workspace,
        report: ReplayReport::new(&options, recording.is_complete),
    };
    course.run(recording).await
}

fn config(
    options: &ReplayOptions,
    recording: &ReadRecording,
    workspace: &Path,
) -> Result<Config, ReplayError> {
    let mut settings = Settings {
        workspace: workspace.to_owned(),
        state_dir: options.state_dir.clone(),
        state_of: Some(options.workspace.clone()),
        seed: Some(recording.session.seed),
        ..Settings::default()
    };
    settings.kernel.python = options.python.clone();
    settings.kernel.env = recording.session.environment.clone();
    let was_sandboxed = recording.session.site == "sandboxed";
    if let Some(backend) = options.sandbox.or_else(|| was_sandboxed.then(SandboxBackend::default)) {
        settings.sandbox = Some(SandboxSettings { backend, ..SandboxSettings::default() });
    }
    if recording.lines.iter().any(|(_, line)| matches!(line, RecordingLine::Undo(_))) {
        settings.undo_memory = UNDO_MEMORY;
    }
    Ok(Config::new(settings)?)
}

fn broker(
    options: &ReplayOptions,
    recording: &ReadRecording,
    config: &Config,
) -> Result<ReplayBroker, ReplayError> {
    let names: BTreeSet<&String> = options.fill.iter().collect();
    let filled = names.into_iter().map(|name| {
        let filled = config.variables().fill(&format!("${{{name}}}"));
        filled.map(|value| (name.clone(), value)).map_err(|_| ReplayError::Variable { name: name.clone() })
    });
    let calls = recording.lines.iter().filter_map(|(_, line)| match line {
        RecordingLine::Call(call) => Some((**call).clone()),
        _ => None,
    });
    let redactor = config.variables().redactor().clone();
    let moved = (recording.session.workspace.clone(), config.workspace().display().to_string());
    Ok(ReplayBroker::new(options.mode, calls.collect(), redactor, filled.collect::<Result<_, _>>()?, moved))
}
