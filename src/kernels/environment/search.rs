//! Finds programs: on `PATH`, beside our own executable, at a path that the user typed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::probe::{self, NEWEST, OLDEST, PythonFacts};
use crate::ground::env::{self, Variables};
pub(super) use crate::ground::env::{is_program, on_path};

/// The uv program: `$UV` of the real environment, else `uv` on its `PATH`.
pub(super) fn uv(variables: &Variables) -> Option<PathBuf> {
    let named = variables.in_process(env::UV).map(PathBuf::from);
    named
        .filter(|uv| uv.is_absolute() && is_program(uv))
        .or_else(|| on_path("uv", variables.in_process("PATH").unwrap_or_default()))
}

/// The interpreter under the virtual environment that `executable` lives in, as with `uvx`.
///
/// Only the base: the environment itself belongs to another installer and is not touched.
pub(super) async fn base_beside(
    executable: Option<&Path>,
    environment: &BTreeMap<String, String>,
) -> Option<PythonFacts> {
    let directory = executable?.canonicalize().ok()?.parent()?.to_owned();
    if !directory.parent()?.join("pyvenv.cfg").is_file() {
        return None;
    }
    let beside = probe::probe(&directory.join("python"), environment).await;
    let base = match beside {
        Ok(facts) => probe::probe(&facts.details.base_executable, environment).await,
        Err(error) => Err(error),
    };
    base.inspect_err(|error| tracing::debug!(%error, "no use of the interpreter beside the executable")).ok()
}

/// The interpreters on `PATH` of a supported version, best first.
///
/// `python3` comes first because users mean it by Python; then versioned names, newest first. Each is run,
/// because a name may be a shim for nothing.
pub(super) async fn pythons_on_path(path: &str, environment: &BTreeMap<String, String>) -> Vec<PythonFacts> {
    let plain = ["python3".to_owned(), "python".to_owned()];
    let versioned = (OLDEST.1..=NEWEST.1).rev().map(|minor| format!("python3.{minor}"));
    let mut found: Vec<PythonFacts> = Vec::new();
    for name in plain.into_iter().chain(versioned) {
        let Some(python) = on_path(&name, path) else { continue };
        match probe::probe(&python, environment).await {
            Ok(facts) if found.contains(&facts) => {}
            Ok(facts) if facts.details.has_venv => {
                found.push(facts);
                break;
            }
            Ok(facts) => found.push(facts),
            Err(error) => tracing::debug!(python = %python.display(), %error, "passed over an interpreter"),
        }
    }
    found.sort_by_key(|facts| !facts.details.has_venv);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uv_of_the_environment_wins_if_it_is_there() {
        let with = |uv: &str| Variables::from_pairs([("UV", uv), ("PATH", "/nonexistent")]);
        assert_eq!(uv(&with("/bin/sh")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(uv(&with("/nonexistent/uv")), None);
        assert_eq!(uv(&with("sh")), None);
    }

    #[tokio::test]
    async fn an_executable_outside_a_virtual_environment_has_no_base() {
        assert_eq!(base_beside(Some(Path::new("/bin/sh")), &BTreeMap::new()).await, None);
    }
}
