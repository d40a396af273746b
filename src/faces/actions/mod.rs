//! The commands for the saved actions of a workspace outside of a session: list, show, test, remove.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::{self, Config, SandboxBackend, SandboxSettings, Settings};
use crate::ground::text::{describe, listed, nearest, rfc3339};
use crate::session::actions::{RepeatedTest, SavedTest};
use crate::tools::actions::{
    ActionBundle, ActionState, ActionStore, ActionTest, SandboxOfTest, SavedAction, ToolDigests, UseCount,
    UsedAction, WorkspaceActions,
};
use crate::tools::recording::{ReadRecording, RecordedServer};
use crate::tools::registry::{Registry, digests_of_recorded};

/// The saved actions of a workspace.
#[derive(Debug)]
pub struct KnownActions {
    store: ActionStore,
    copies: WorkspaceActions,
    workspace: PathBuf,
    state_dir: Option<PathBuf>,
    python: Option<PathBuf>,
    sandbox: Option<SandboxBackend>,
    sandbox_config: Option<PathBuf>,
    /// The servers that are registered now.
    registered: Vec<RecordedServer>,
    tools: ToolDigests,
    uses: BTreeMap<String, UseCount>,
}

/// The options of [`KnownActions`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ActionOptions {
    /// The workspace.
    pub workspace: PathBuf,
    /// The directory of state. Default: as for sessions.
    pub state_dir: Option<PathBuf>,
    /// The interpreter of tests. Default: the environment of the workspace.
    pub python: Option<PathBuf>,
    /// The sandbox of tests. Default: that of the session that saved the action, else none; srt if its kernels were remote.
    pub sandbox: Option<SandboxBackend>,
    /// The policy of the sandbox. Default: that of the session that saved the action.
    pub sandbox_config: Option<PathBuf>,
}

/// Why something cannot be done with an action.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnownActionError {
    /// The workspace or its state cannot be used.
    #[error(transparent)]
    Workspace(#[from] config::Error),
    /// No action has the name.
    #[error("find the action `{name}`{}", unknown(name, known))]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// Its test could not be run at all.
    #[error("test the action `{name}`: {why}")]
    Test {
        /// Its name.
        name: String,
        /// Why, complete.
        why: String,
    },
    /// The kept actions cannot be read or written.
    #[error("read or write the saved actions")]
    Store(#[from] io::Error),
}

/// A saved action, as a list shows it. The keys of its JSON do not change.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct KnownAction {
    /// Its name, unique over all categories.
    pub name: String,
    /// Its category.
    pub category: String,
    /// The newest version.
    pub version: u32,
    /// The first line of its docstring.
    pub summary: String,
    /// `usable`, `red`, `drifted` or `changed`.
    pub state: &'static str,
    /// Why it is not usable.
    pub why: Option<String>,
    /// The time of the newest test (RFC 3339).
    pub tested: String,
    /// The number of cells that called it and worked.
    pub worked: u64,
    /// The number of cells that called it and did not.
    pub failed: u64,
}

/// All of a saved action.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ShownAction {
    /// As a list shows it.
    #[serde(flatten)]
    pub action: KnownAction,
    /// The import and the signature, as Python text.
    pub call: String,
    /// Its docstring.
    pub description: String,
    /// Arguments for which it has worked.
    pub example: Map<String, Value>,
    /// The tools that its test calls, by server.
    pub servers: BTreeMap<String, Vec<String>>,
    /// The versions of the saved actions that it uses, by name.
    pub uses: BTreeMap<String, u32>,
    /// The versions that are kept.
    pub versions: Vec<u32>,
    /// The texts of its files; empty if they were edited.
    pub files: BTreeMap<String, String>,
}

impl KnownActions {
    /// The actions of a workspace.
    ///
    /// # Errors
    /// The workspace or its state cannot be used.
    pub async fn open(options: ActionOptions) -> Result<Self, KnownActionError> {
        let ActionOptions { workspace, state_dir, python, sandbox, sandbox_config } = options;
        let settings =
            Settings { workspace: workspace.clone(), state_dir: state_dir.clone(), ..Settings::default() };
        let config = Config::new(settings)?;
        let registry = Registry::in_directory(config.state_dir(), config.connector());
        let registered = registry.recorded_servers(config.workspace()).await?;
        let store = ActionStore::in_directory(config.state_dir());
        Ok(Self {
            uses: store.uses().all()?,
            tools: digests_of_recorded(&registered),
            store,
            copies: WorkspaceActions::of_workspace(config.workspace()),
            workspace: config.workspace().to_owned(),
            state_dir,
            python,
            sandbox,
            sandbox_config,
            registered,
        })
    }

    /// All actions, by category and name.
    ///
    /// # Errors
    /// The kept actions cannot be read.
    pub fn list(&self) -> Result<Vec<KnownAction>, KnownActionError> {
        Ok(self.store.all()?.iter().map(|action| self.known(action)).collect())
    }

    /// All of an action.
    ///
    /// # Errors
    /// There is no such action, or what is kept cannot be read.
    pub fn show(&self, name: &str) -> Result<ShownAction, KnownActionError> {
        let action = self.find(name)?;
        let servers = action.servers.iter();
        Ok(ShownAction {
            call: action.call(),
            description: action.description.clone(),
            example: action.example.clone(),
            servers: servers
                .map(|(server, tools)| (server.clone(), tools.keys().cloned().collect()))
                .collect(),
            uses: action.uses.iter().map(|(name, used)| (name.clone(), used.version)).collect(),
            versions: self.store.versions(&action)?,
            // That they were edited is its state.
            files: self.store.files(&action).unwrap_or_default().into_iter().collect(),
            action: self.known(&action),
        })
    }

    /// Runs the tests of these actions again, or of all, and keeps the results. One that passes is found again.
    ///
    /// # Errors
    /// There is no such action, or what is kept cannot be read or written.
    pub async fn test(&self, names: &[String]) -> Result<Vec<KnownAction>, KnownActionError> {
        let actions = match names {
            [] => self.store.all()?,
            names => names.iter().map(|name| self.find(name)).collect::<Result<_, _>>()?,
        };
        let mut tested = Vec::new();
        for mut action in actions {
            let failed = |why| KnownActionError::Test { name: action.name.clone(), why };
            let (RepeatedTest { why, tools }, uses) = self.test_one(&action).await.map_err(failed)?;
            let passed = why.is_none();
            if passed {
                action.servers = tools;
                action.uses = uses;
            }
            action.test = ActionTest { passed, why, time: rfc3339(SystemTime::now()) };
            let _turn = self.store.turn()?;
            self.store.put_record(&action)?;
            tested.push(action);
        }
        // Some may use others, which are all tested by now.
        Ok(tested.iter().map(|action| self.known(action)).collect())
    }

    /// Removes an action with all its versions, and its copy in the workspace if that is as it was saved. Returns whether it was.
    ///
    /// # Errors
    /// There is no such action, or it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool, KnownActionError> {
        let action = self.find(name)?;
        let _turn = self.store.turn()?;
        let was_same = self.copies.remove(&action)?;
        self.store.remove(&action)?;
        Ok(was_same)
    }

    /// The error says why its test cannot be run.
    async fn test_one(
        &self,
        action: &SavedAction,
    ) -> Result<(RepeatedTest, BTreeMap<String, UsedAction>), String> {
        let read = || -> io::Result<(ActionBundle, String)> {
            // An edited file is named, before one that is missing elsewhere.
            let test = self.store.test(action)?;
            Ok((ActionBundle::of_saved(&self.store, action)?, test))
        };
        let (bundle, test) = match read() {
            Ok(read) => read,
            Err(error) => {
                let test = RepeatedTest { why: Some(error.to_string()), tools: ToolDigests::new() };
                return Ok((test, BTreeMap::new()));
            }
        };
        let recording = ReadRecording::of(Path::new("test.jsonl"), test.as_bytes());
        let recording = recording.map_err(|error| describe(&error))?;
        let config = self.config(&recording, action.sandbox.as_ref()).map_err(|error| describe(&error))?;
        let test = SavedTest { bundle: &bundle, recording, registered: self.registered.clone() };
        let tested = Box::pin(test.run(&config)).await.map_err(|error| describe(&error))?;
        Ok((tested, bundle.uses()))
    }

    /// The settings of the session that saved it, as far as they matter to its test.
    fn config(
        &self,
        recording: &ReadRecording,
        kept: Option<&SandboxOfTest>,
    ) -> Result<Config, config::Error> {
        let mut settings = Settings {
            workspace: self.workspace.clone(),
            state_dir: self.state_dir.clone(),
            clock_ahead: recording.session.clock_ahead(),
            ..Settings::default()
        };
        settings.kernel.python = self.python.clone();
        settings.kernel.env = recording.session.environment.clone();
        // The code of a remote session has never run on this machine.
        let was_confined = recording.session.site != "local";
        let known = [SandboxBackend::Srt, SandboxBackend::Bubblewrap];
        let kept_backend = kept.and_then(|kept| known.into_iter().find(|known| known.name() == kept.backend));
        let backend = kept_backend.or_else(|| was_confined.then(SandboxBackend::default));
        if let Some(backend) = self.sandbox.or(backend) {
            settings.sandbox = Some(SandboxSettings {
                backend,
                config: self.sandbox_config.clone().or_else(|| kept.and_then(|kept| kept.config.clone())),
                workspace_config: kept.is_some_and(|kept| kept.workspace_config),
                ..SandboxSettings::default()
            });
        }
        Config::new(settings)
    }

    fn find(&self, name: &str) -> Result<SavedAction, KnownActionError> {
        if let Some(action) = self.store.get(name)? {
            return Ok(action);
        }
        let known = self.store.all()?.into_iter().map(|action| action.name).collect();
        Err(KnownActionError::Unknown { name: name.to_owned(), known })
    }

    fn known(&self, action: &SavedAction) -> KnownAction {
        let state: ActionState = self.store.state(action, &self.tools, Some(&self.copies));
        let UseCount { worked, failed } = self.uses.get(&action.name).copied().unwrap_or_default();
        KnownAction {
            name: action.name.clone(),
            category: action.category.clone(),
            version: action.version,
            summary: action.summary.clone(),
            state: state.word(),
            why: state.why().map(str::to_owned),
            tested: action.test.time.clone(),
            worked,
            failed,
        }
    }
}

fn unknown(name: &str, known: &[String]) -> String {
    let near = nearest(name, known.iter().map(String::as_str));
    match (known, near.as_slice()) {
        ([], _) => ": no action is saved in this workspace".to_owned(),
        (_, []) => format!(": there are {}", listed(known.iter().map(String::as_str))),
        (_, near) => format!("; did you mean {}?", listed(near.iter().copied())),
    }
}
