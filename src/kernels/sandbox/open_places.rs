//! The places that code in a sandbox can write, and the protection of single paths in them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::policy::{SandboxRules, resolution_steps};

/// The writable places.
pub(super) struct OpenPlaces(Vec<PathBuf>);

/// Why a path cannot be protected.
pub(super) enum UnprotectedPath {
    /// It is a whole writable place, or above one.
    Whole,
    /// It leads through a link that code can replace.
    Link(PathBuf),
}

impl OpenPlaces {
    pub(super) fn of(rules: &SandboxRules) -> Self {
        Self(rules.allow_write.iter().map(|open| open.root().to_owned()).collect())
    }

    /// The places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter()
    }

    /// Adds `path` to what is protected, and the directories of links that lead there, as far as code can write them.
    pub(super) fn protect(
        &self,
        path: &Path,
        protected: &mut BTreeSet<PathBuf>,
    ) -> Result<(), UnprotectedPath> {
        let Ok(mut steps) = resolution_steps(path) else {
            return Err(UnprotectedPath::Link(path.to_owned()));
        };
        let real = steps.pop().unwrap_or_default();
        for step in steps {
            if !step.is_symlink() || !self.are_above(&step) {
                continue;
            }
            match step.parent() {
                Some(directory) if !self.have(directory) => {
                    protected.insert(directory.to_owned());
                }
                _ => return Err(UnprotectedPath::Link(step)),
            }
        }
        if self.have(&real) {
            return Err(UnprotectedPath::Whole);
        }
        if self.are_above(&real) {
            protected.insert(real);
        }
        Ok(())
    }

    /// Whether code can write `path`.
    pub(super) fn are_above(&self, path: &Path) -> bool {
        self.0.iter().any(|open| path.starts_with(open))
    }

    /// Whether `path` cannot be protected without closing a whole writable place.
    fn have(&self, path: &Path) -> bool {
        self.0.iter().any(|open| open == path)
    }
}
