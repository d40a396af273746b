//! Whether an action can be used: its test, the tools that it was tested with, and its copies.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::Serialize;

use super::record::{SOURCES, SavedAction, TEST, ToolDigests, UsedAction, parser_path};
use super::store::ActionStore;
use super::workspace::WorkspaceActions;

/// The state of a saved action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum ActionState {
    /// Its test has passed, and nothing has changed since.
    Usable,
    /// Its test has not passed, or its saved files were edited.
    Red {
        /// Why.
        why: String,
    },
    /// A tool that it calls, or an action that it uses, is another one than in its test.
    Drifted {
        /// The tools or the action.
        why: String,
    },
    /// The copy in the workspace differs from the saved one.
    Changed {
        /// The files.
        why: String,
    },
}

impl ActionState {
    /// Whether code can rely on it.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self, Self::Usable)
    }

    /// The state of a published action, whose files nobody but the server of the team can change.
    pub(crate) fn of_published(action: &SavedAction, tools: &ToolDigests) -> Self {
        drift(action, tools).map_or(Self::Usable, |why| Self::Drifted { why })
    }

    /// The state in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Red { .. } => "red",
            Self::Drifted { .. } => "drifted",
            Self::Changed { .. } => "changed",
        }
    }

    /// Why it cannot be used; `None` if it can.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            Self::Usable => None,
            Self::Red { why } | Self::Drifted { why } | Self::Changed { why } => Some(why),
        }
    }
}

/// The marks of the files of an action in both places: if they are the same, the files are too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionStamp(Vec<Option<FileMark>>);

/// The marks of a file. The time of the change cannot be set by code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl ActionStore {
    /// The state of an action. `tools` are those that are registered now; code imports its copy in the `workspace`, or runs the
    /// saved one without. Blocks.
    pub(crate) fn state(
        &self,
        action: &SavedAction,
        tools: &ToolDigests,
        workspace: Option<&WorkspaceActions>,
    ) -> ActionState {
        let own = self.own_state(action, tools, workspace);
        if !own.is_usable() {
            return own;
        }
        match self.trouble_of_used(action, tools, workspace) {
            Some(why) => ActionState::Drifted { why },
            None => own,
        }
    }

    /// The state of an action without those that it uses.
    fn own_state(
        &self,
        action: &SavedAction,
        tools: &ToolDigests,
        workspace: Option<&WorkspaceActions>,
    ) -> ActionState {
        if let Err(error) = self.files(action).and_then(|_| self.test(action)) {
            return ActionState::Red { why: error.to_string() };
        }
        if !action.test.passed {
            let why = action.test.why.clone().unwrap_or_else(|| "its test has not passed".to_owned());
            return ActionState::Red { why };
        }
        if let Some(why) = drift(action, tools) {
            return ActionState::Drifted { why };
        }
        match workspace.and_then(|workspace| workspace.difference(action)) {
            Some(why) => ActionState::Changed { why },
            None => ActionState::Usable,
        }
    }

    /// The first action of those that it uses, and that these use, which is not as in the tests, in words.
    fn trouble_of_used(
        &self,
        action: &SavedAction,
        tools: &ToolDigests,
        workspace: Option<&WorkspaceActions>,
    ) -> Option<String> {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<(String, UsedAction)> = action.uses.clone().into_iter().collect();
        while let Some((name, used)) = waiting.pop() {
            let now = match self.used(&name) {
                Ok(now) => now,
                Err(error) => return Some(error.to_string()),
            };
            if now.as_used() != used {
                return Some(format!("`{}`, which it uses, was saved anew", now.path()));
            }
            if seen.insert(name) {
                let state = self.own_state(&now, tools, workspace);
                if let Some(why) = state.why() {
                    return Some(format!("`{}`, which it uses, is {}: {why}", now.path(), state.word()));
                }
                waiting.extend(now.uses);
            }
        }
        None
    }

    /// The marks of an action's files. Blocks.
    pub(crate) fn stamp(&self, action: &SavedAction, workspace: Option<&Path>) -> ActionStamp {
        let saved = self.place(&action.category, &action.name);
        let version = saved.join(action.version.to_string());
        let ours = SOURCES.iter().chain([&TEST]).map(|name| version.join(name));
        let theirs = workspace.into_iter().flat_map(|workspace| {
            let place = workspace.join("gentools").join(&action.category).join(&action.name);
            let own = SOURCES.map(|name| place.join(name));
            let parsers = action.files.keys().filter_map(|name| parser_path(name));
            own.into_iter().chain(parsers.map(|parser| workspace.join(parser)))
        });
        ActionStamp([saved.join("action.json")].into_iter().chain(ours).chain(theirs).map(mark).collect())
    }
}

fn mark(path: impl AsRef<Path>) -> Option<FileMark> {
    let found: io::Result<_> = std::fs::symlink_metadata(path);
    let changed = |metadata: &std::fs::Metadata| (metadata.ctime(), metadata.ctime_nsec());
    found.ok().map(|metadata| FileMark {
        inode: metadata.ino(),
        bytes: metadata.len(),
        changed: changed(&metadata),
    })
}

/// The tools of an action that are not defined as in its test, in words.
fn drift(action: &SavedAction, tools: &ToolDigests) -> Option<String> {
    let mut changed = Vec::new();
    for (server, used) in &action.servers {
        let Some(registered) = tools.get(server) else {
            changed.push(format!("the MCP server `{server}` is not registered"));
            continue;
        };
        for (tool, digest) in used {
            match registered.get(tool) {
                Some(now) if now == digest => {}
                Some(_) => changed.push(format!("`{server}.{tool}` is defined in another way")),
                None => changed.push(format!("`{server}` has no tool `{tool}`")),
            }
        }
    }
    (!changed.is_empty()).then(|| changed.join("; "))
}
