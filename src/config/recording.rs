//! The recording of a session, and what has it replayed alike: seed, locale and time zone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Config;

/// The place of the recording of a session.
#[derive(Debug, Clone)]
pub(crate) enum RecordingPlace {
    /// There is none.
    None,
    /// This file, or a new one in this directory.
    Named(PathBuf),
    /// A file beside this one, or a new one in this directory, for another session.
    Beside(PathBuf),
}

impl RecordingPlace {
    /// The place that the settings name. The working directory may change later.
    pub(super) fn of(file: Option<PathBuf>) -> Self {
        file.map_or(Self::None, |file| Self::Named(std::path::absolute(&file).unwrap_or(file)))
    }
}

/// The variables that a seed is the value of: Python's own for hashes, and ours for generators.
const SEEDS: [&str; 2] = ["PYTHONHASHSEED", "IPYBOX_SEED"];

/// The variable with the seconds that the kernel's clock is ahead.
const CLOCK: &str = "IPYBOX_CLOCK";

/// Whether a variable is of the locale or the time zone.
pub(crate) fn is_of_locale(name: &str) -> bool {
    ["LANG", "LANGUAGE", "TZ"].contains(&name) || name.starts_with("LC_")
}

impl Config {
    /// The variables of the kernel's seed and clock, where they are set.
    pub(super) fn seed_and_clock(&self) -> impl Iterator<Item = (String, String)> {
        let seeds =
            self.seed.into_iter().flat_map(|seed| SEEDS.map(|name| (name.to_owned(), seed.to_string())));
        let clock = self.clock_ahead.map(|ahead| (CLOCK.to_owned(), ahead.as_seconds_f64().to_string()));
        seeds.chain(clock)
    }

    /// The locale and time zone of the kernel.
    pub(crate) fn kernel_locale(&self) -> BTreeMap<String, String> {
        let mut variables = self.kernel_variables();
        variables.retain(|name, _| is_of_locale(name));
        variables
    }
}
