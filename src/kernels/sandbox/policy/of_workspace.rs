//! The policy of a workspace, which may come from a stranger: its denials are added to those of the default, and what it
//! opens beyond the default needs the consent of the user.

use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::paths::{PathPattern, real};
use super::policy_paths::PolicyPaths;
use super::schema::shown;
use super::top_names::takes_permission;
use super::trusted;
use crate::ground::text::visible::line;

/// Keys that can only close.
const CLOSING: [(&str, &str); 5] = [
    ("network", "deniedDomains"),
    ("network", "deniedResolvedAddresses"),
    ("network", "strictAllowlist"),
    ("filesystem", "denyRead"),
    ("filesystem", "denyWrite"),
];

/// Lists of `filesystem` that the default's entries are added to.
const ADDED: [&str; 3] = ["denyRead", "allowRead", "denyWrite"];

/// The depth to which protected files are searched for.
const SEARCH_DEPTH: &str = "mandatoryDenySearchDepth";

/// The document of a workspace, on the default's.
#[derive(Debug, Clone)]
pub(super) struct OnDefault {
    /// As it is in the file.
    own: Map<String, Value>,
    default: Map<String, Value>,
}

impl OnDefault {
    pub(super) fn new(own: Map<String, Value>, default: Map<String, Value>) -> Self {
        Self { own, default }
    }

    /// The document that holds: that of the workspace, with the default's lists for reading and its denials.
    pub(super) fn document(&self) -> Map<String, Value> {
        let mut document = self.own.clone();
        let Some(Value::Object(filesystem)) = document.get_mut("filesystem") else { return document };
        for key in ADDED {
            let mut entries = self.entries_of_default(key);
            for entry in filesystem.get(key).and_then(Value::as_array).into_iter().flatten() {
                if !entries.contains(entry) {
                    entries.push(entry.clone());
                }
            }
            filesystem.insert(key.to_owned(), json!(entries));
        }
        document
    }

    /// A digest of the document in the file, which has no keys twice.
    pub(super) fn digest(&self) -> String {
        format!("{:x}", Sha256::digest(Value::Object(self.own.clone()).to_string()))
    }

    /// The openings beyond the default, each as a key and a value. What is not known to open nothing is among it.
    pub(super) fn openings(&self, paths: &PolicyPaths) -> Vec<String> {
        let mut openings = Vec::new();
        for (name, value) in &self.own {
            match value {
                Value::Object(section) if name == "network" || name == "filesystem" => {
                    for (key, value) in section {
                        let opening = self.opening(name, key, value, paths);
                        openings.extend(opening.iter().map(|value| named(&format!("{name}.{key}"), value)));
                    }
                }
                value
                    if name == SEARCH_DEPTH
                        && value.as_u64().is_some_and(|depth| depth >= trusted::DEPTH) => {}
                value if is_off(value) => {}
                value => openings.push(named(name, value)),
            }
        }
        openings
    }

    /// The values of a key that open something.
    fn opening(&self, section: &str, key: &str, value: &Value, paths: &PolicyPaths) -> Vec<Value> {
        let entries = || value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        let opens =
            |is_open: &dyn Fn(&Value) -> bool| entries().into_iter().filter(|entry| is_open(entry)).collect();
        match (section, key) {
            key if CLOSING.contains(&key) => Vec::new(),
            ("network", "allowedDomains") => opens(&|_| true),
            ("filesystem", "allowRead") => {
                let known = self.entries_of_default(key);
                opens(&|entry| !known.contains(entry))
            }
            ("filesystem", "allowWrite") => {
                opens(&|entry| entry.as_str().is_none_or(|text| !is_ordinary(text, paths)))
            }
            _ if is_off(value) => Vec::new(),
            _ => vec![value.clone()],
        }
    }

    fn entries_of_default(&self, key: &str) -> Vec<Value> {
        let filesystem = self.default.get("filesystem");
        filesystem.and_then(|filesystem| filesystem.get(key)?.as_array()).cloned().unwrap_or_default()
    }
}

/// Whether a path is the workspace, which the default opens for writing, or lies in it and has no name that an entry permits: one
/// that begins with a dot, as what the default hides there, or one of a file or directory that configures programs.
fn is_ordinary(text: &str, paths: &PolicyPaths) -> bool {
    let Ok(pattern) = PathPattern::resolve(text, &paths.workspace, &paths.home) else { return false };
    let workspace = real(&paths.workspace).unwrap_or_else(|_| paths.workspace.clone());
    let below = pattern.path().and_then(|path: &Path| path.strip_prefix(&workspace).ok());
    below.is_some_and(|below| {
        let mut names = below.iter().map(|name| name.to_string_lossy());
        !names.any(|name| name.starts_with('.') || trusted::is_protected(&name) || takes_permission(&name))
    })
}

/// Whether a value leaves something closed.
fn is_off(value: &Value) -> bool {
    value == &Value::Bool(false) || value.as_array().is_some_and(Vec::is_empty)
}

fn named(key: &str, value: &Value) -> String {
    format!("`{}`: {}", line(key), line(&shown(value)))
}
