//! Standing answers: they replace approval requests, never a denial.

mod saved;

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use self::saved::SavedAnswers;
use crate::approval::action::{Action, AlikeActions};
use crate::approval::provenance::{Label, ServerLabels};
use crate::approval::question::UserAnswer;

/// The answers of this session, and those that hold for good.
#[derive(Debug, Default)]
pub(crate) struct StandingAnswers {
    session: Mutex<Vec<AlikeActions>>,
    /// Without it, answers that hold for good hold for the session.
    saved: Option<SavedAnswers>,
}

impl StandingAnswers {
    /// Answers that hold for good are saved in the file at `path`, where its owner may remove them; its
    /// directory must exist.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { session: Mutex::default(), saved: Some(SavedAnswers::new(path)) }
    }

    /// The answers of a workspace, by its state directory.
    pub(crate) fn of_workspace(state: &Path) -> Self {
        Self::new(state.join("approvals.json"))
    }

    /// The standing answer for `action`, if there is one. An unusable file counts as empty. Blocks.
    pub(super) fn find(&self, action: &Action) -> Option<UserAnswer> {
        let like = AlikeActions::of(action);
        if self.session.lock().contains(&like) {
            return Some(UserAnswer::Session);
        }
        let is_saved = self.saved.as_ref()?.contains(&like).unwrap_or_else(|error| {
            tracing::warn!(%error, "earlier approvals are unknown, so everything is asked");
            false
        });
        is_saved.then_some(UserAnswer::Always)
    }

    /// Whether there was a standing answer for the tool as it was defined earlier. Blocks.
    pub(super) fn had_earlier(&self, action: &Action) -> bool {
        let now = AlikeActions::of(action);
        let session = self.session.lock();
        session.iter().any(|like| like.is_of_earlier(&now))
            || self.saved.as_ref().is_some_and(|saved| saved.has_earlier(&now).unwrap_or_default())
    }

    /// The user's labels for the data of servers. An unusable file has none. Blocks.
    pub(crate) fn labels(&self) -> ServerLabels {
        let labels =
            self.saved.as_ref().map(SavedAnswers::labels).unwrap_or_else(|| Ok(ServerLabels::default()));
        labels.unwrap_or_else(|error| {
            tracing::warn!(%error, "the labels that were given to servers are unknown");
            ServerLabels::default()
        })
    }

    /// Remembers what the user says of the data of a server, or forgets it. Blocks.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(crate) fn label(&self, server: &str, label: Option<Label>) -> io::Result<()> {
        self.saved.as_ref().map_or(Ok(()), |saved| saved.label(server, label))
    }

    /// Remembers `answer`, if it holds for more than this action. Blocks.
    ///
    /// # Errors
    /// An answer that was to hold for good cannot be saved. It has no effect then.
    pub(super) fn remember(&self, action: &Action, answer: UserAnswer) -> io::Result<()> {
        match (answer, &self.saved) {
            (UserAnswer::Once | UserAnswer::Grant | UserAnswer::No, _) => {}
            (UserAnswer::Always, Some(saved)) => saved.add(action)?,
            (UserAnswer::Always, None) | (UserAnswer::Session, _) => {
                let like = AlikeActions::of(action);
                let mut session = self.session.lock();
                if !session.contains(&like) {
                    session.push(like);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl StandingAnswers {
    /// As if another session had begun.
    fn forget_session(&self) {
        self.session.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Map, Value};

    use super::*;
    use crate::approval::action::{Target, ToolAnnotations};

    fn call(server_name: &str) -> Action {
        Action::new(server_name.to_owned(), "t".to_owned(), Map::new(), Target::Command("x".to_owned()))
    }

    fn shell(command: &str) -> Action {
        let tool_args = Map::from_iter([("cmd".to_owned(), Value::from(command))]);
        Action { target: Target::Kernel, tool_args, ..call("ipybox") }
    }

    fn at(directory: &Path) -> StandingAnswers {
        StandingAnswers::new(directory.join("approvals.json"))
    }

    #[track_caller]
    fn check(standing: &StandingAnswers, action: &Action, expected: impl Into<Option<UserAnswer>>) {
        assert_eq!(standing.find(action), expected.into());
    }

    #[test]
    fn an_answer_for_the_session_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let standing = at(directory.path());
        standing.remember(&call("a"), UserAnswer::Session).unwrap();
        check(&standing, &call("a"), UserAnswer::Session);
        check(&standing, &call("b"), None);
        check(&at(directory.path()), &call("a"), None);
        standing.forget_session();
        check(&standing, &call("a"), None);
    }

    #[test]
    fn an_answer_for_good_holds_in_other_processes() {
        let directory = tempfile::tempdir().unwrap();
        let (standing, other) = (at(directory.path()), at(directory.path()));
        standing.remember(&call("a"), UserAnswer::Always).unwrap();
        other.remember(&shell("ls"), UserAnswer::Always).unwrap();
        other.remember(&shell("ls"), UserAnswer::Always).unwrap();
        standing.forget_session();
        for standing in [&standing, &other] {
            check(standing, &call("a"), UserAnswer::Always);
            check(standing, &shell("ls"), UserAnswer::Always);
            check(standing, &shell("rm"), None);
        }
        let hinted = Action { annotations: Some(ToolAnnotations::default()), ..call("a") };
        check(&standing, &hinted, None);
        std::fs::remove_file(directory.path().join("approvals.json")).unwrap();
        check(&standing, &call("a"), None);
    }

    #[test]
    fn without_a_file_an_answer_for_good_holds_for_the_session() {
        let standing = StandingAnswers::default();
        standing.remember(&call("a"), UserAnswer::Always).unwrap();
        check(&standing, &call("a"), UserAnswer::Session);
    }

    #[test]
    fn answers_to_one_question_are_not_remembered() {
        let standing = StandingAnswers::default();
        for answer in [UserAnswer::Once, UserAnswer::No] {
            standing.remember(&call("a"), answer).unwrap();
        }
        check(&standing, &call("a"), None);
    }

    #[test]
    fn the_file_can_be_read_by_people() {
        let directory = tempfile::tempdir().unwrap();
        let standing = at(directory.path());
        let hinted = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
        standing.remember(&Action { annotations: Some(hinted), ..call("a") }, UserAnswer::Always).unwrap();
        standing.remember(&shell("ls"), UserAnswer::Always).unwrap();
        let text = std::fs::read_to_string(directory.path().join("approvals.json")).unwrap();
        insta::assert_snapshot!(text, @r#"
        {
          "version": 1,
          "approvals": [
            {
              "server_name": "a",
              "tool_name": "t",
              "target": {
                "command": "x"
              },
              "annotations": {
                "read_only": true
              }
            },
            {
              "server_name": "ipybox",
              "tool_name": "t",
              "target": "kernel",
              "arguments_sha256": "a908494c958996ec8cebfa2e10728536e84904384b2497a4fbba9f48d99215ba",
              "shown": "ipybox.t(cmd='ls')"
            }
          ]
        }
        "#);
    }

    #[test]
    fn a_damaged_file_is_named_and_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("approvals.json");
        for damage in ["{", r#"{"version": 2, "approvals": []}"#] {
            std::fs::write(&path, damage).unwrap();
            let standing = at(directory.path());
            check(&standing, &call("a"), None);
            let error = standing.remember(&call("a"), UserAnswer::Always).unwrap_err();
            assert!(error.to_string().contains("approvals.json"), "{error}");
            check(&standing, &call("a"), None);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damage);
        }
    }

    #[test]
    fn writers_wait_for_each_other() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let standing = at(directory.path());
                scope.spawn(move || standing.remember(&call(name), UserAnswer::Always).unwrap());
            }
        });
        for name in ["a", "b", "c", "d"] {
            check(&at(directory.path()), &call(name), UserAnswer::Always);
        }
    }
}
