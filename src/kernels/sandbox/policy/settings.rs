//! Rules as srt's settings, and the keys that only srt implements.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::closed::{NAMED_FILES, is_of_workspace};
use super::paths::PathPattern;
use super::rules::SandboxRules;
use super::schema::shown;
use crate::kernels::sandbox::domain::DomainRule;

/// Keys that only srt implements on Linux, and whether their values may hold secrets.
const ONLY_SRT: [(&str, PathContents); 13] = [
    ("network.deniedDomainReasons", PathContents::Open),
    ("network.httpProxyPort", PathContents::Open),
    ("network.socksProxyPort", PathContents::Open),
    ("network.mitmProxy", PathContents::Open),
    ("network.tlsTerminate", PathContents::Open),
    ("network.parentProxy", PathContents::Secret),
    ("credentials", PathContents::Secret),
    ("ignoreViolations", PathContents::Open),
    ("ripgrep", PathContents::Open),
    ("seccomp", PathContents::Open),
    ("socatPath", PathContents::Open),
    ("javaAgentJarPath", PathContents::Open),
    ("git", PathContents::Open),
];

/// Its presence switches it on, even if empty.
const SWITCH: &str = "network.tlsTerminate";

#[derive(Clone, Copy, PartialEq, Eq)]
enum PathContents {
    Open,
    Secret,
}

impl SandboxRules {
    /// The settings for srt: the user's document, with these rules instead of its own. Domains are in their
    /// normal form: srt compares `BÜCHER.example` with no host that a program asks for.
    pub(crate) fn srt_settings(&self) -> Value {
        let texts = |patterns: &[PathPattern]| patterns.iter().map(PathPattern::text).collect::<Vec<_>>();
        let domains = |rules: &[DomainRule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        let is_asked_for = |path: &Path| {
            let mut roots = self.allow_write.iter().map(PathPattern::root);
            roots.any(|open| path.starts_with(open) || open.starts_with(path))
        };
        let unasked = self.opened_by_srt.iter().filter(|path| !is_asked_for(path));
        let mut deny_write = texts(&self.makeable_denials());
        deny_write.extend(unasked.map(|path| path.to_string_lossy().into_owned()));
        let mut settings = Value::Object(self.document.clone());
        settings["network"]["allowedDomains"] = json!(domains(&self.allowed_domains));
        settings["network"]["deniedDomains"] = json!(domains(&self.denied_domains));
        if cfg!(target_os = "macos") {
            // One network for all: without this no process can listen on loopback or connect to it, not even
            // to the tool server.
            settings["network"]["allowLocalBinding"] = json!(true);
        }
        settings["network"]["allowAllUnixSockets"] = json!(self.allow_all_unix_sockets);
        if let Some(Value::Object(reasons)) = settings["network"].get_mut("deniedDomainReasons") {
            *reasons = std::mem::take(reasons)
                .into_iter()
                .map(|(domain, reason)| (normal(domain), reason))
                .collect();
        }
        for pointer in NAMED_FILES {
            if let Some(named) = settings.pointer_mut(pointer) {
                self.make_absolute(named);
            }
        }
        if let Some(Value::Array(files)) = settings.pointer_mut("/credentials/files") {
            files
                .iter_mut()
                .filter_map(|file| file.get_mut("path"))
                .for_each(|path| self.make_absolute(path));
        }
        settings["filesystem"]["denyRead"] = json!(texts(&self.deny_read));
        settings["filesystem"]["allowRead"] = json!(texts(&self.allow_read));
        settings["filesystem"]["allowWrite"] = json!(texts(&self.allow_write));
        settings["filesystem"]["denyWrite"] = json!(deny_write);
        settings
    }

    /// The paths that must not be written, without missing paths below others of the list: bubblewrap cannot make a place to mount on
    /// in a directory that is read-only.
    fn makeable_denials(&self) -> Vec<PathPattern> {
        let denied: BTreeSet<&Path> = self.deny_write.iter().filter_map(PathPattern::path).collect();
        let is_covered = |path: &Path| path.ancestors().skip(1).any(|above| denied.contains(above));
        let is_made = |pattern: &&PathPattern| {
            pattern.path().is_none_or(|path| !is_covered(path) || path.symlink_metadata().is_ok())
        };
        self.deny_write.iter().filter(is_made).cloned().collect()
    }

    /// Makes paths absolute: srt does not start in the workspace, to which they are relative.
    fn make_absolute(&self, named: &mut Value) {
        match named {
            Value::String(path) if is_of_workspace(path) => {
                *path = self.workspace.join(&*path).to_string_lossy().into_owned();
            }
            Value::Array(paths) => paths.iter_mut().for_each(|path| self.make_absolute(path)),
            _ => {}
        }
    }

    /// The keys in use that a bubblewrap of our own with a proxy that filters domains does not implement, as
    /// `` `key` (value) ``. Without keys that have no effect on Linux.
    pub(crate) fn unsupported_by_bubblewrap(&self) -> Vec<String> {
        let used = ONLY_SRT.iter().filter_map(|(key, contents)| {
            let value = match key.split_once('.') {
                Some((section, key)) => self.document.get(section)?.get(key)?,
                None => self.document.get(*key)?,
            };
            let is_idle = match value {
                Value::Object(object) => *key != SWITCH && object.values().all(is_empty),
                value => value == &Value::Bool(false),
            };
            let shown = if *contents == PathContents::Secret { "`{…}`".to_owned() } else { shown(value) };
            (!is_idle).then(|| format!("`{key}` ({shown})"))
        });
        used.collect()
    }
}

/// A denied domain as it stands in the settings; srt finds its reason by that text.
fn normal(domain: String) -> String {
    DomainRule::parse_denied(&domain).map_or(domain, |rule| rule.to_string())
}

/// Whether a value is empty.
fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}
