//! Replays recordings, and plays their servers to any client. A replay runs the recorded code in a real kernel, in a workspace of
//! its own, with calls answered from the recording.
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
mod files;
mod judging;
mod mcp_form;
mod missing;
mod notebook;
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
    /// The recording, or a notebook of a session; for [`ReplayMode::Policy`] also an audit log.
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
    /// A directory whose files the code gets a copy of, at most 10,000 and 1 GiB, without `.env`. Default: none.
    pub files: Option<PathBuf>,
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
    /// The files that the code is to have cannot be copied.
    #[error("copy `{path}` for the replay", path = path.display())]
    Files {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The session cannot be configured.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The session cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A recorded server has no usable package, or a living one cannot be asked.
    #[error(transparent)]
    Server(#[from] RecordedServerError),
    /// The registered servers cannot be read.
    #[error("read the registered MCP servers")]
    Registry(#[source] std::io::Error),
    /// It was asked to end.
    #[error("replay all of the recording: it was asked to end")]
    Ended,
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
            files: None,
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
    replay_until(options, std::future::pending()).await
}

/// As [`replay`], until `ended`: then it leaves neither processes nor files, and returns [`ReplayError::Ended`].
///
/// # Errors
/// As there.
pub async fn replay_until(
    options: ReplayOptions,
    ended: impl Future<Output = ()>,
) -> Result<ReplayReport, ReplayError> {
    let path = options.file.clone();
    let reading = tokio::task::spawn_blocking(move || ReplaySource::read(&path));
    let source = reading.await.map_err(|error| ReplayError::Directory(error.into()))??;
    let mut recording = match source {
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
    let directory = TemporaryDirectory::new("ipybox-replay-").map_err(ReplayError::Directory)?;
    let workspace = directory.path().to_owned();
    if let Some(files) = options.files.clone() {
        let to = workspace.clone();
        let path = files.clone();
        let copying = tokio::task::spawn_blocking(move || files::copy(&files, &to));
        let copied = copying.await.map_err(std::io::Error::other).flatten();
        copied.map_err(|source| ReplayError::Files { path, source })?;
    }
    let config = config(&options, &recording, &workspace)?;
    if !recording.has_answers {
        add_registered_servers(&mut recording, &options, &config).await?;
    }
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
    let session = Arc::new(Session::open(&config, Some(tools)).await?);
    let living = matches!(options.mode, ReplayMode::Reads | ReplayMode::Live)
        .then(|| Registry::in_directory(config.state_dir(), config.connector()));
    let course = ReplayCourse {
        session,
        registry,
        living,
        broker,
        recorder,
        workspace,
        report: ReplayReport::new(&options, recording.is_complete),
    };
    course.run(recording, ended).await
}

/// A notebook has no definitions of servers: its code gets those that are registered.
async fn add_registered_servers(
    recording: &mut ReadRecording,
    options: &ReplayOptions,
    config: &Config,
) -> Result<(), ReplayError> {
    let registry = Registry::in_directory(config.state_dir(), config.connector());
    let servers = registry.recorded_servers(&options.workspace).await.map_err(ReplayError::Registry)?;
    let lines = servers.into_iter().map(|server| (0, RecordingLine::Server(Box::new(server))));
    recording.lines.splice(0..0, lines);
    Ok(())
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
        clock_ahead: recording.session.clock_ahead(),
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
    Ok(ReplayBroker::new(
        options.mode,
        calls.collect(),
        redactor,
        filled.collect::<Result<_, _>>()?,
        moved,
        recording.has_answers,
    ))
}
