//! Checks for the kernel: a Python, and directories for its files.

use std::path::PathBuf;
use std::sync::Arc;

use super::{earlier, places};
use crate::config::{self, Settings};
use crate::ground::env::Variables;
use crate::ground::text::describe;
use crate::kernels::environment::{self, PythonOutlook};
use crate::kernels::sandbox::check::{CheckFinding, CheckRemedy};

pub(super) async fn examine(settings: &Settings, variables: &Variables) -> Vec<CheckFinding> {
    let (workspace, state_dir) = directories(settings, variables);
    let python = python(settings, variables, state_dir.as_ref().ok().cloned(), workspace.clone()).await;
    let state = match &state_dir {
        Ok(directory) => places::state_directory(directory),
        Err(error) => failed("state-directory", &describe(error), "ipybox does not start"),
    };
    let mut findings = vec![python, places::workspace(&workspace), state];
    if let Ok(directory) = state_dir {
        findings.extend(places::room(&directory));
        match config::recorded(&directory, &workspace) {
            Ok(exposed) => findings.extend(earlier::examine(settings, &workspace, &exposed)),
            Err(error) => {
                findings.push(failed("state-directory", &describe(&error), "ipybox does not start"))
            }
        }
    }
    findings
}

/// The workspace's path, and its state directory.
pub(super) fn directories(
    settings: &Settings,
    variables: &Variables,
) -> (PathBuf, Result<PathBuf, config::Error>) {
    // A workspace that does not exist yet has no real path.
    let named = std::path::absolute(&settings.workspace).unwrap_or_else(|_| settings.workspace.clone());
    let workspace = named.canonicalize().unwrap_or(named);
    let states = config::states_dir(settings.state_dir.clone(), variables);
    let state_dir = states.map(|states| config::workspace_state_dir(&states, &workspace));
    (workspace, state_dir)
}

async fn python(
    settings: &Settings,
    variables: &Variables,
    state_dir: Option<PathBuf>,
    workspace: PathBuf,
) -> CheckFinding {
    let settings = environment::EnvironmentSettings {
        is_sandboxed: false,
        python: settings.kernel.python.clone(),
        // Without a state directory no record is read.
        state_dir: state_dir.unwrap_or_default(),
        workspace,
        variables: Arc::new(variables.clone()),
    };
    match environment::examine(&settings).await {
        Ok(PythonOutlook::Ready { words, is_untested: true }) => CheckFinding::warning(
            "python",
            words,
            "ipybox is not tested with a Python so new",
            CheckRemedy::Advice("name an older one by `--python` if it makes trouble".to_owned()),
        ),
        Ok(PythonOutlook::Ready { words, .. } | PythonOutlook::ToBeMade { words }) => {
            CheckFinding::ok("python", words)
        }
        Err(error) => failed("python", &describe(&error), "no code can be run"),
    }
}

/// An error and its hint as a finding.
fn failed(name: &'static str, text: &str, consequence: &str) -> CheckFinding {
    let (found, hint) = text.split_once("\nhint: ").unwrap_or((text, "see `ipybox --help`"));
    let command = hint.strip_prefix("run `").and_then(|rest| rest.strip_suffix('`'));
    let remedy = match command {
        Some(command) if !command.contains('`') => CheckRemedy::Command(command.to_owned()),
        _ => CheckRemedy::Advice(hint.to_owned()),
    };
    CheckFinding::failed(name, format!("cannot {found}"), consequence, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_is_one_command_can_be_typed() {
        let check = |text: &str| failed("python", text, "").remedy.unwrap();
        assert_eq!(check("use x\nhint: run `a b`"), CheckRemedy::Command("a b".to_owned()));
        assert_eq!(check("use x\nhint: run `a`, or `b`"), CheckRemedy::Advice("run `a`, or `b`".to_owned()));
        assert_eq!(failed("python", "use x\nhint: y", "").found, "cannot use x");
    }
}
