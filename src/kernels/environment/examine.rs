//! Predicts what `prepare` would find or do, without creating or changing anything.

use std::path::PathBuf;

use super::create;
use super::installer::Installer;
use super::managed_place::ManagedPlace;
use super::named;
use super::probe::{self, PythonFacts, dotted};
use super::record::RecordContent;
use super::search;
use super::{EnvironmentSettings, Error, FailedAttempts};
use crate::ground::env::Variables;

/// The Python that the kernel would get.
#[derive(Debug)]
pub(crate) enum PythonOutlook {
    /// It exists and has the required packages.
    Ready {
        /// Version, path and packages, in words.
        words: String,
        /// Whether it is newer than what ipybox is tested with.
        is_untested: bool,
    },
    /// An environment will be created or repaired when the first cell runs.
    ToBeMade {
        /// The words for it.
        words: String,
    },
}

/// The uv program that would be used.
pub(crate) fn find_uv(variables: &Variables) -> Option<PathBuf> {
    search::uv(variables)
}

/// Examines the Python that `settings` select.
///
/// # Errors
/// As [`Environment::prepare`](super::Environment::prepare), except those that only occur while an
/// environment is made.
pub(crate) async fn examine(settings: &EnvironmentSettings) -> Result<PythonOutlook, Error> {
    let installer = Installer::new(&settings.variables);
    let path = settings.variables.in_process("PATH").unwrap_or_default();
    if let Some(named) = &settings.python {
        return Ok(ready(&named::examine(named, path, &installer).await?));
    }
    let lock = settings.state_dir.join("python.lock");
    let place = ManagedPlace::of(settings, &lock, &installer, path);
    let python = place.directory.join("bin/python");
    let known = match place.record.recall(&python) {
        RecordContent::True(record) => return Ok(ready(&record.facts)),
        RecordContent::Stale(record) if record.python == python => Some(record.facts.minor_version()),
        RecordContent::Unreadable => None,
        RecordContent::Missing | RecordContent::Stale(_) => return made(&place, &installer).await,
    };
    if place.is_sandboxed {
        return made(&place, &installer).await;
    }
    match probe::probe(&python, installer.environment()).await {
        Ok(facts)
            if facts.lacking().is_empty() && known.is_none_or(|known| known == facts.minor_version()) =>
        {
            Ok(ready(&facts))
        }
        _ => made(&place, &installer).await,
    }
}

/// The way in which an environment would be made.
async fn made(place: &ManagedPlace<'_>, installer: &Installer) -> Result<PythonOutlook, Error> {
    if let Some(uv) = installer.uv() {
        return Ok(to_be_made(&format!("`{}`", uv.display())));
    }
    let beside = search::base_beside(place.executable.as_deref(), installer.environment()).await;
    let base = match beside.filter(|facts| facts.details.has_venv) {
        Some(facts) => facts,
        None => create::base_for_venv(place, &FailedAttempts::default()).await?,
    };
    Ok(to_be_made(&described(&base)))
}

fn to_be_made(by: &str) -> PythonOutlook {
    PythonOutlook::ToBeMade { words: format!("an environment will be made by {by}, for the first cell") }
}

fn ready(facts: &PythonFacts) -> PythonOutlook {
    let packages = [("ipython", &facts.details.ipython), ("pydantic", &facts.details.pydantic)];
    let packages =
        packages.into_iter().filter_map(|(name, found)| Some(format!("{name} {}", found.as_ref()?.version)));
    let words = format!("{}, {}", described(facts), Vec::from_iter(packages).join(", "));
    PythonOutlook::Ready { words, is_untested: facts.is_untested() }
}

fn described(facts: &PythonFacts) -> String {
    format!("Python {} (`{}`)", dotted(facts.version), facts.details.executable.display())
}
