//! Opens sessions: a session with a first kernel that starts, or a branch with a kernel that runs.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::actions::SessionActions;
use super::audience::SessionAudience;
use super::offers::ServerOffers;
use super::permissions::{ClientObedience, PlaceInForce};
use super::queue::{CellQueue, SessionKernels};
use super::records::{notebook, open_audit, recorder};
use super::registrar::Registrar;
use super::site::{self, HeldLimits, SiteInstaller, SiteKernels, TemplateOfOthers};
use super::undo::{CellEffect, UndoHistory, WatchedPlaces};
use super::worker::CellTools;
use super::{Session, SessionTools, StartError, ToolOptions, checkpoint};
use crate::approval::{
    ApprovalEffect, ApprovalPolicy, Audit, Gate, SessionFace, StandingAnswers, Target, TooLong, question,
};
use crate::config::{self, Config};
use crate::ground::files::TemporaryDirectory;
use crate::ground::text::{Redactor, one_line, shortened};
use crate::kernels::kernel::Kernel;
use crate::kernels::output::OutputPlaces;
use crate::tools::actions::ActionSaver;
use crate::tools::import::offered_at_start;
use crate::tools::recording::{CallTape, SessionRecorder};
use crate::tools::registry::Registry;
use crate::tools::servers::{ByGate, ConnectionPool};
use crate::tools::tool_server::ToolEndpoint;

/// The number of characters of a call that an undo shows.
const CALL_CHARS: usize = 160;

/// The options that a branch takes over.
#[derive(Clone)]
pub(super) struct OpenedWith {
    pub(super) config: Arc<Config>,
    /// `None` if code has no tools.
    pub(super) face: Option<SessionFace>,
    pub(super) registry: Option<Registry>,
    /// The template of its kernels, for sessions beside it.
    pub(super) template: TemplateOfOthers,
}

/// The parts of a session that is about to begin.
pub(super) struct OpeningSession {
    pub(super) opened: OpenedWith,
    pub(super) gate: Arc<Gate>,
    pub(super) tools: Option<SessionTools>,
    /// The kernel of a branch; others start one.
    pub(super) kernel: Option<Kernel>,
    pub(super) kernels: SiteKernels,
    pub(super) installer: Arc<SiteInstaller>,
    pub(super) directory: Option<Arc<TemporaryDirectory>>,
    pub(super) audience: SessionAudience,
    pub(super) limits: Arc<HeldLimits>,
}

impl Session {
    /// Opens a session. Its first kernel starts in the background; see [`started`](Self::started). Its code has no tools
    /// without `tools`.
    ///
    /// # Errors
    /// See [`StartError`]; no process is left behind.
    pub(crate) async fn open(config: &Config, tools: Option<ToolOptions>) -> Result<Self, StartError> {
        config.check_sandbox().await?;
        let beside = tools.as_ref().and_then(|options| options.beside.as_ref());
        let template = beside.and_then(|other| other.opened.template.get()).unwrap_or_default();
        let mut opened = OpenedWith {
            config: Arc::new(config.clone()),
            face: None,
            registry: None,
            template: template.downgrade(),
        };
        let replay = tools.as_ref().and_then(|options| options.replay.as_ref());
        let (recorder, tape) = match replay {
            Some(replay) => {
                (Some(Arc::clone(&replay.recorder)), CallTape::Replaying(Arc::clone(&replay.broker)))
            }
            None => {
                let recorder = recorder(config, None)?;
                let tape = tape(config, recorder.as_ref());
                (recorder, tape)
            }
        };
        let calls = tape.recorder().cloned();
        let (gate, tools) = match tools {
            Some(options) => {
                (opened.face, opened.registry) = (Some(options.face), options.registry.clone());
                let audit = open_audit(config, options.face)?;
                let standing = StandingAnswers::of_workspace(&config.state_dir);
                let gate = Gate::new(options.policy, standing, config.approval.timeout, audit);
                let gate = Arc::new(match &options.beside {
                    Some(other) => gate.beside(&other.gate),
                    None => gate,
                });
                (Arc::clone(&gate), Some(SessionTools::open(config, options.registry, gate, tape).await?))
            }
            None => (Arc::new(closed_gate()), None),
        };
        let tool_server = tools.as_ref().map(|tools| &tools.server);
        let site = site::open(config, tool_server, template)?;
        Ok(OpeningSession {
            opened,
            gate,
            tools,
            kernel: None,
            kernels: site.kernels,
            installer: Arc::new(site.installer),
            directory: site.directory.map(Arc::new),
            audience: SessionAudience::new(notebook(config, None), recorder).with_calls_of(calls.as_ref()),
            limits: site.limits,
        }
        .begin())
    }
}

/// The history of a session with this notebook, whose memory may be limited, and whose kernels may work in a copy of the workspace.
fn history(
    config: &Config,
    memory: Option<u64>,
    notebook: Option<PathBuf>,
    copy: Option<PathBuf>,
) -> UndoHistory {
    let workspace = copy.unwrap_or_else(|| config.workspace.clone());
    let ours = [".ipybox", "mcptools"].map(|name| workspace.join(name));
    let apart = ours.into_iter().chain([config.images_dir.clone()]).chain(notebook).collect();
    let is_elsewhere = matches!(config.site, config::KernelSite::Pod(_));
    let places = (!is_elsewhere).then_some(WatchedPlaces { workspace, apart });
    UndoHistory::new(config.undo_memory, memory, matches!(config.site, config::KernelSite::Remote(_)), places)
}

/// Has an undo name the calls of code that may have changed something, without secrets.
fn note_calls(gate: &Gate, history: &Arc<UndoHistory>, redactor: Redactor) {
    let history = Arc::clone(history);
    gate.watch_effects(Box::new(move |action| {
        // An action for the client is no call of code.
        if action.target != Target::Host {
            let call = question(action)
                .unwrap_or_else(|TooLong| format!("{}.{}(…)", action.server_name, action.tool_name));
            let call = shortened(&one_line(&redactor.redact(&call)), CALL_CHARS);
            history.note(CellEffect::Call(call));
        }
    }));
}

/// The tape of a session with this recording; without one, it keeps the newest calls if actions can be saved.
pub(super) fn tape(config: &Config, recorder: Option<&Arc<SessionRecorder>>) -> CallTape {
    match recorder {
        Some(recorder) => CallTape::Recording(Arc::clone(recorder)),
        None if config.is_temporary() => CallTape::Off,
        None => CallTape::Recording(SessionRecorder::of_recent_calls(config.variables.redactor().clone())),
    }
}

/// The gate of code without tools, which makes no calls to decide about.
pub(super) fn closed_gate() -> Gate {
    Gate::new(
        ApprovalPolicy::always(ApprovalEffect::Deny),
        StandingAnswers::default(),
        Duration::ZERO,
        Audit::off(),
    )
}

impl OpeningSession {
    pub(super) fn begin(self) -> Session {
        let Self { opened, gate, tools, kernel, kernels, installer, directory, audience, limits } = self;
        let config = &opened.config;
        let places = OutputPlaces { workspace: config.workspace.clone(), images: config.images_dir.clone() };
        let cell_tools = tools.as_ref().map(|tools| tools.of_cells.clone());
        if let Some(notebook) = audience.notebook() {
            gate.keep_calls(Arc::clone(notebook.calls()));
        }
        let audience = Arc::new(audience);
        let watching = Arc::clone(&audience);
        let watched = Arc::clone(&audience);
        gate.watch(Box::new(move |notice| watching.notice(notice)));
        let place = PlaceInForce::new(installer, kernels.clients());
        if let Some(actions) = tools.as_ref().and_then(|tools| tools.of_cells.actions.as_ref()) {
            // A session begins once.
            actions.place.set(Arc::clone(&place)).ok();
        }
        let obedience = ClientObedience {
            config: Arc::clone(&opened.config),
            place: Arc::clone(&place),
            has_run: kernel.is_some(),
            has_noted_wider: false,
        };
        let notebook = audience.notebook().map(|notebook| notebook.path().to_owned());
        let history = Arc::new(history(config, limits.memory(), notebook, kernels.copy_of_workspace()));
        note_calls(&gate, &history, config.variables.redactor().clone());
        let owned = Arc::clone(&gate);
        let queue = CellQueue::start(
            SessionKernels { running: kernel, kernels },
            owned,
            cell_tools,
            places.clone(),
            watched,
            obedience,
            history,
        );
        Session {
            queue,
            gate,
            tools,
            place,
            places,
            opened,
            stopping: TaskTracker::new(),
            audience,
            limits,
            directory: Mutex::new(directory),
        }
    }
}

impl SessionTools {
    pub(super) async fn open(
        config: &Config,
        registry: Option<Registry>,
        gate: Arc<Gate>,
        tape: CallTape,
    ) -> Result<Self, StartError> {
        let progress = watch::Sender::new(String::new());
        let asker = ByGate { gate: Arc::clone(&gate), progress: progress.clone(), tape: tape.clone() };
        let connector = config.connector().asking(Arc::new(asker));
        if tape.is_replay() || config.is_temporary() {
            config.record_exposed_elsewhere()?;
        } else {
            config.record_exposed()?;
        }
        let registry = match registry {
            Some(registry) => {
                registry.keep_apart(config.exposed());
                registry
            }
            None => Registry::in_directory(&config.state_dir, connector.clone()),
        };
        registry.settle(&config.workspace);
        registry.report_placeholders(&config.variables);
        let at_start = offered_at_start(config, &connector)?;
        // The registry of an application does not know the vault.
        let offering = registry.with_connector(connector.clone());
        let pool = Arc::new(ConnectionPool::new(
            registry.lookup_with_actions(&config.workspace, &config.further_state_dirs(), &config.state_dir),
            connector,
        ));
        let checkpoint = checkpoint::of(config);
        // What an action keeps ends with its call.
        let recorder = tape.recorder().filter(|_| !config.is_temporary());
        let actions = recorder.map(|recorder| {
            Arc::new(SessionActions {
                config: Arc::new(config.clone()),
                pool: Arc::clone(&pool),
                gate: Arc::clone(&gate),
                recorder: Arc::clone(recorder),
                place: OnceLock::new(),
                turn: tokio::sync::Mutex::default(),
                imported: Mutex::default(),
            })
        });
        let saver = actions.clone().map(|actions| actions as Arc<dyn ActionSaver>);
        let mut server =
            ToolEndpoint::new(Arc::clone(&pool), Arc::clone(&gate), checkpoint.clone(), tape, saver);
        if matches!(config.site, config::KernelSite::Pod(_)) {
            server = server.with_files(site::file_answers(&config.workspace));
        }
        let server = Arc::new(server);
        if let Some((host, port)) = config.tool_server_address() {
            server.listen(host, port).await?;
        }
        let registrar =
            Registrar { registry, pool: Arc::clone(&pool), gate, workspace: config.workspace.clone() };
        let offers = ServerOffers::start(Registrar { registry: offering, ..registrar.clone() }, at_start);
        let of_cells = CellTools { pool, offers, checkpoint, actions };
        Ok(Self { registrar, server, progress, of_cells })
    }
}
