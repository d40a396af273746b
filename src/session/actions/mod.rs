//! Saves the actions of a session's code: each is tested first, and then decided about.

mod again;
mod proposal;
mod publication;
mod trial;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) use self::again::{RepeatedTest, SavedTest};
use self::publication::PublishError;
pub(crate) use self::trial::TrialError;
use self::trial::{ActionTrial, TrialResult};
use super::permissions::PlaceInForce;
use super::registrar::record_end;
use crate::approval::{DenialReason, Gate};
use crate::config::Config;
use crate::ground::text::{describe, rfc3339};
use crate::tools::actions::{
    ActionBundle, ActionDraft, ActionFiles, ActionSaver, ActionStore, ActionTest, BundleError,
    ImportedActions, SandboxOfTest, SavedAction, TEST, ToolDigests, UnusableDraft, WorkspaceActions,
};
use crate::tools::recording::{
    CellItem, RecordedCall, RecordedServer, SessionRecorder, TestRecording, as_one_cell,
};
use crate::tools::registry::{digests_of_recorded, tool_called};
use crate::tools::servers::ConnectionPool;

/// The part of the example's result that an answer shows, in characters.
const RESULT_CHARS: usize = 500;

/// Why an action was not saved. The version before is as it was.
#[derive(Debug, thiserror::Error)]
enum SaveActionError {
    #[error(transparent)]
    Draft(#[from] UnusableDraft),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("save an action: another one is being saved; save one after the other")]
    Busy,
    #[error(
        "save the action `{name}`: `{path}` has this name already; choose another, or save it in that category"
    )]
    Taken { name: String, path: String },
    #[error("save the action `{name}`: {what} has this name, which it would hide; choose another")]
    Shadows { name: String, what: String },
    #[error("save the action `{path}`: its test has not passed: {why}{hint}")]
    Red { path: String, why: String, hint: &'static str },
    #[error("test the action")]
    Trial(#[from] TrialError),
    #[error(transparent)]
    Denied(#[from] DenialReason),
    #[error("keep the action")]
    Store(#[from] io::Error),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("`{path}` is saved, and not published")]
    Unpublished { path: String, source: PublishError },
}

/// The hint for a call that has no recorded answer.
const MAKE_THE_CALLS: &str = "\nhint: call the function in a cell with the arguments of the example, then save it: the test takes the \
     answers of the newest cells";

/// The saver of a session.
pub(super) struct SessionActions {
    pub(super) config: Arc<Config>,
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) gate: Arc<Gate>,
    /// Has the newest calls of code.
    pub(super) recorder: Arc<SessionRecorder>,
    /// Set when the session begins.
    pub(super) place: OnceLock<Arc<PlaceInForce>>,
    /// One at a time: each starts a kernel.
    pub(super) turn: tokio::sync::Mutex<()>,
    pub(super) imported: Mutex<ImportedActions>,
}

/// An action that has passed its test.
struct TestedAction {
    action: SavedAction,
    files: ActionFiles,
    /// The files of the version before.
    before: Option<ActionFiles>,
    calls: usize,
    result: String,
}

impl ActionSaver for SessionActions {
    fn save(&self, draft: ActionDraft) -> BoxFuture<'_, Result<String, String>> {
        async move { self.save_and_publish(draft).await.map_err(|error| describe(&error)) }.boxed()
    }
}

impl SessionActions {
    /// A cell of the session has ended: counts it for the actions that its code calls.
    pub(super) async fn cell_ended(&self, code: &str, has_worked: bool) {
        let called = self.imported.lock().called(code);
        if called.is_empty() {
            return;
        }
        let store = ActionStore::in_directory(&self.config.state_dir);
        let counting = blocking(move || {
            let mut names = Vec::new();
            for (category, name) in called {
                if store.get(&name)?.is_some_and(|known| known.category == category) {
                    names.push(name);
                }
            }
            if names.is_empty() { Ok(()) } else { store.uses().count(&names, has_worked) }
        });
        if let Err(error) = counting.await {
            tracing::warn!(%error, "a cell is not counted for the actions that it has called");
        }
    }

    async fn save_and_publish(&self, draft: ActionDraft) -> Result<String, SaveActionError> {
        if !draft.publish {
            return self.save_draft(draft).await;
        }
        // Before anything is done.
        self.publishers()?;
        let name = draft.name.clone();
        let path = format!("gentools.{}.{name}", draft.category);
        let words = self.save_draft(draft).await?;
        match self.publish(&name).await {
            Ok(()) => Ok(format!("{words}\npublished: the server of the team serves it to everybody")),
            Err(source) => Err(SaveActionError::Unpublished { path, source }),
        }
    }

    async fn save_draft(&self, draft: ActionDraft) -> Result<String, SaveActionError> {
        let files = draft.check()?;
        let Ok(_turn) = self.turn.try_lock() else { return Err(SaveActionError::Busy) };
        let servers = self.pool.servers();
        let servers = blocking(move || servers.recorded()).await?;
        if let Some(what) = tool_called(&draft.name, &servers) {
            return Err(SaveActionError::Shadows { name: draft.name, what });
        }
        let store = ActionStore::in_directory(&self.config.state_dir);
        let name = draft.name.clone();
        let known = blocking(move || earlier(&store, &name)).await?;
        if let Some((known, _)) = known.as_ref().filter(|(known, _)| known.category != draft.category) {
            return Err(SaveActionError::Taken { name: draft.name, path: known.path() });
        }
        let digests = digests_of_recorded(&servers);
        let bundle = self.bundle(&draft, files, digests.clone()).await?;
        let tested = self.test(draft, bundle, servers, &digests, known).await?;
        let action = proposal::proposal(&tested.action, &tested.files, tested.before.as_ref());
        let on_record = self.gate.decide_at_once_for_code(action).await?;
        let words = tested.words();
        let saved = self.put(tested).await;
        record_end(Some(on_record), &saved, |()| json!(words));
        saved?;
        Ok(words)
    }

    /// The files of an action, and those of all that it uses.
    async fn bundle(
        &self,
        draft: &ActionDraft,
        files: ActionFiles,
        digests: ToolDigests,
    ) -> Result<ActionBundle, SaveActionError> {
        let store = ActionStore::in_directory(&self.config.state_dir);
        let copies = WorkspaceActions::of_workspace(&self.config.workspace);
        let names = [draft.category.clone(), draft.name.clone()];
        let gathering = move || {
            let [category, name] = &names;
            Ok(ActionBundle::of_draft([category, name], files, &store, &copies, &digests))
        };
        Ok(blocking(gathering).await??)
    }

    /// Runs the example, and makes a recording of it.
    async fn test(
        &self,
        draft: ActionDraft,
        bundle: ActionBundle,
        servers: Vec<RecordedServer>,
        digests: &ToolDigests,
        known: Option<(SavedAction, Option<ActionFiles>)>,
    ) -> Result<TestedAction, SaveActionError> {
        let (version, before) = known.map_or((1, None), |(known, files)| (known.version + 1, files));
        let servers: Vec<RecordedServer> =
            servers.into_iter().filter(|server| bundle.names_word(&server.name)).collect();
        let action = SavedAction { sandbox: self.sandbox(), ..new_record(draft, version) };
        let has_models = action.input_schema.contains_key("$defs");
        let code = trial::code(
            &action.path(),
            action.function(),
            has_models,
            &Value::Object(action.example.clone()),
        );
        let recent = self.recorder.recent_calls();
        let workspace = self.config.workspace.display().to_string();
        let seed = self.config.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_fields().0);
        let trial = ActionTrial {
            config: &self.config,
            clients: self.place.get().map(|place| place.clients()).unwrap_or_default(),
            bundle: &bundle,
            servers: &servers,
            calls: in_order(&recent),
            code: &code,
            seed,
            workspace: workspace.clone(),
        };
        let result = trial.run().await?;
        if let Some(why) = result.failure(&self.config.workspace) {
            let hint = if result.differences.is_empty() { "" } else { MAKE_THE_CALLS };
            return Err(SaveActionError::Red { path: action.path(), why, hint });
        }
        let TrialResult { cell, used, .. } = result;
        let calls = as_one_cell(&recent, &used);
        let shown = shown(&cell.outputs);
        let action =
            SavedAction { servers: used_tools(&servers, &calls, digests), uses: bundle.uses(), ..action };
        let count = calls.len();
        let site = super::records::site_name(&self.config.site);
        let mut files = bundle.files;
        let recording = TestRecording {
            time: action.saved.clone(),
            workspace,
            site,
            seed,
            environment: self.config.kernel_locale(),
            servers,
            calls,
            cell,
        };
        files.push((TEST.to_owned(), recording.text().map_err(io::Error::other)?));
        Ok(TestedAction { action, files, before, calls: count, result: shown })
    }

    /// The sandbox of the session.
    fn sandbox(&self) -> Option<SandboxOfTest> {
        self.config.sandbox().map(|settings| SandboxOfTest {
            backend: settings.backend.name().to_owned(),
            config: settings.config.as_ref().map(|file| self.config.workspace.join(file)),
            workspace_config: settings.workspace_config,
        })
    }

    /// Keeps the action, and then puts its copy into the workspace: after a crash in between, it counts as changed.
    async fn put(&self, tested: TestedAction) -> Result<(), SaveActionError> {
        let store = ActionStore::in_directory(&self.config.state_dir);
        let copies = WorkspaceActions::of_workspace(&self.config.workspace);
        let saving = move || {
            let TestedAction { action, files, .. } = tested;
            let _turn = store.turn()?;
            // Another session may have saved one meanwhile, which was not shown.
            let known = store.get(&action.name)?;
            let expected = known.as_ref().map_or(1, |known| known.version + 1);
            if expected != action.version || known.is_some_and(|known| known.category != action.category) {
                return Err(io::Error::other("another session has saved an action of this name meanwhile"));
            }
            let action = store.put(action, &files)?;
            copies.put(&action.category, &action.name, &files)
        };
        Ok(blocking(saving).await?)
    }
}

impl TestedAction {
    fn words(&self) -> String {
        let calls = if self.calls == 1 {
            "1 recorded call".to_owned()
        } else {
            format!("{} recorded calls", self.calls)
        };
        let result = if self.result.is_empty() {
            String::new()
        } else {
            format!("\nits example returned {}", self.result)
        };
        let action = &self.action;
        let path = action.path();
        let version = action.version;
        format!(
            "saved `{path}`, version {version}, tested with {calls}\n{call}{result}",
            call = action.call()
        )
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
}

/// The action of this name, with its files if they are as they were saved.
fn earlier(store: &ActionStore, name: &str) -> io::Result<Option<(SavedAction, Option<ActionFiles>)>> {
    let known = store.get(name)?;
    Ok(known.map(|known| {
        let files = store.files(&known).ok();
        (known, files)
    }))
}

fn new_record(draft: ActionDraft, version: u32) -> SavedAction {
    let now = rfc3339(SystemTime::now());
    let summary = draft.summary();
    let ActionDraft { category, name, description, signature, is_async, .. } = draft;
    SavedAction {
        category,
        name,
        version,
        saved: now.clone(),
        summary,
        description,
        signature,
        is_async,
        input_schema: draft.input_schema,
        output_schema: draft.output_schema,
        example: draft.example,
        servers: ToolDigests::new(),
        uses: BTreeMap::new(),
        files: BTreeMap::new(),
        sandbox: None,
        test: ActionTest { passed: true, why: None, time: now },
    }
}

/// The calls as a test finds them: in any cell, the first ones first.
fn in_order(calls: &[RecordedCall]) -> Vec<RecordedCall> {
    let placed = (0..).zip(calls).map(|(place, call): (u64, _)| RecordedCall {
        cell: 0,
        order: [2 * place + 1, 2 * place + 2],
        ..call.clone()
    });
    placed.collect()
}

/// The digests of the tools that these calls are of. Servers that are only named are there without tools.
fn used_tools(servers: &[RecordedServer], calls: &[RecordedCall], digests: &ToolDigests) -> ToolDigests {
    let mut used: ToolDigests = servers.iter().map(|server| (server.name.clone(), BTreeMap::new())).collect();
    for RecordedCall { server, tool, .. } in calls {
        if let Some(digest) = digests.get(server).and_then(|tools| tools.get(tool)) {
            used.entry(server.clone()).or_default().insert(tool.clone(), digest.clone());
        }
    }
    used
}

/// The beginning of the text that a cell has shown.
fn shown(outputs: &[CellItem]) -> String {
    let text = outputs.iter().rev().find_map(|item| match item {
        CellItem::Text(text) => Some(text.as_str()),
        CellItem::Data(bundle) => bundle.get("text/plain").and_then(Value::as_str),
        CellItem::Error(_) => None,
    });
    let text = text.unwrap_or_default().trim_end();
    let begin: String = text.chars().take(RESULT_CHARS).collect();
    if begin.len() < text.len() { format!("{begin}…") } else { begin }
}
