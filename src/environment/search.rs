//! Where programs are: on `PATH`, beside our own executable, behind a path that the user typed.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::probe::{self, Facts, NEWEST, OLDEST};
use crate::env::{self, Variables};

/// The first program called `name` on `path`, the value of `PATH`.
///
/// Relative entries are passed over: what the current directory holds is not for us to run.
pub(super) fn on_path(name: &str, path: &str) -> Option<PathBuf> {
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(name)).find(|file| is_program(file))
}

pub(super) fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The uv program: `$UV` of the real environment, else `uv` on its `PATH`.
pub(super) fn uv(variables: &Variables) -> Option<PathBuf> {
    let named = variables.in_process(env::UV).map(PathBuf::from);
    named
        .filter(|uv| uv.is_absolute() && is_program(uv))
        .or_else(|| on_path("uv", variables.in_process("PATH").unwrap_or_default()))
}

/// The interpreter under the virtual environment that `executable` lives in, as with `uvx`.
///
/// Only the base: the environment itself belongs to whoever installed us and is not touched.
pub(super) async fn base_beside(executable: &Path, environment: &BTreeMap<String, String>) -> Option<Facts> {
    let directory = executable.canonicalize().ok()?.parent()?.to_owned();
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
/// `python3` comes first because it is what the user means by Python; then versioned names,
/// newest first. Each is run, because a name may be a shim for nothing.
pub(super) async fn pythons_on_path(path: &str, environment: &BTreeMap<String, String>) -> Vec<Facts> {
    let plain = ["python3".to_owned(), "python".to_owned()];
    let versioned = (OLDEST.1..=NEWEST.1).rev().map(|minor| format!("python3.{minor}"));
    let mut found: Vec<Facts> = Vec::new();
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
    fn only_programs_in_absolute_directories_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
        for entry in [&first, &second] {
            std::fs::create_dir(entry).unwrap();
            std::fs::write(entry.join("uv"), "").unwrap();
        }
        std::fs::create_dir(second.join("python")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(second.join("uv"), executable).unwrap();
        let path = format!(".::{}:{}", first.display(), second.display());
        assert_eq!(on_path("uv", &path), Some(second.join("uv")));
        assert_eq!(on_path("python", &path), None);
        assert_eq!(on_path("sh", "relative:/bin"), Some(PathBuf::from("/bin/sh")));
    }

    #[test]
    fn the_uv_of_the_environment_wins_if_it_is_there() {
        let with = |uv: &str| Variables::from_pairs([("UV", uv), ("PATH", "/nonexistent")]);
        assert_eq!(uv(&with("/bin/sh")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(uv(&with("/nonexistent/uv")), None);
        assert_eq!(uv(&with("sh")), None);
    }

    #[tokio::test]
    async fn an_executable_outside_a_virtual_environment_has_no_base() {
        assert_eq!(base_beside(Path::new("/bin/sh"), &BTreeMap::new()).await, None);
    }
}
