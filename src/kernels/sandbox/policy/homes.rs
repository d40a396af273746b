//! The home in the default policy: where else it holds what is said of `~`, and when the home cannot be hidden.

use std::path::{Path, PathBuf};

use super::paths::{PathPattern, real};
use super::policy_paths::PolicyPaths;

/// The further paths for which an entry of the default policy holds too: the same place in the user's other homes, and
/// where variables have moved it. Texts of a policy.
pub(super) fn elsewhere(text: &str, is_denial: bool, paths: &PolicyPaths) -> Vec<String> {
    let Some(rest) = text.strip_prefix('~') else { return Vec::new() };
    let rest = rest.trim_start_matches('/');
    let mut places: Vec<PathBuf> = paths.other_homes.iter().map(|home| home.join(rest)).collect();
    if rest.is_empty() {
        if !is_denial {
            return Vec::new();
        }
        places.extend(paths.foreign_homes.iter().cloned());
    } else {
        let usual = paths.home.join(rest);
        for moved in &paths.moved {
            if let Ok(below) = usual.strip_prefix(&moved.usual) {
                places.push(moved.actual.join(below));
            } else if is_denial && moved.usual.starts_with(&usual) {
                places.push(moved.actual.clone());
            }
        }
    }
    // `a/` would be no file.
    let places = places.into_iter().map(|place| place.components().collect::<PathBuf>());
    // The workspace is open. What is above it can be hidden: an opening beneath holds.
    let is_hideable = |place: &PathBuf| {
        let is_workspace = is_above(place, &paths.workspace) && is_above(&paths.workspace, place);
        !is_workspace && !is_above(place, Path::new("/"))
    };
    places.filter(is_hideable).filter_map(|place| place.into_os_string().into_string().ok()).collect()
}

/// Whether the default policy can hide the home. It cannot hide what the workspace contains, and not the root directory,
/// which is the home of users that have none.
pub(super) fn is_hideable(paths: &PolicyPaths) -> bool {
    !is_above(&paths.workspace, &paths.home) && !is_above(&paths.home, Path::new("/"))
}

/// Whether an entry hides a home that cannot be hidden.
pub(super) fn hides_too_much(pattern: &PathPattern, paths: &PolicyPaths) -> bool {
    !is_hideable(paths) && real(&paths.home).is_ok_and(|home| pattern.path() == Some(&home))
}

fn is_above(directory: &Path, below: &Path) -> bool {
    let real_path = |path: &Path| real(path).unwrap_or_else(|_| path.to_owned());
    real_path(below).starts_with(real_path(directory))
}
