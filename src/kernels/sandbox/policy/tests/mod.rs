//! Policies as users write them, and what becomes of them.

mod documents;
mod homes;
mod meet;
mod of_workspace;
mod programs;
mod sessions;

use super::*;

/// A document with these entries beside the ones that have to be there.
fn document(network: &str, filesystem: &str, top: &str) -> String {
    let network = joined(r#""allowedDomains": [], "deniedDomains": []"#, network);
    let filesystem = joined(r#""denyRead": [], "allowWrite": ["."], "denyWrite": []"#, filesystem);
    format!("{{{}}}", joined(&format!(r#""network": {{{network}}}, "filesystem": {{{filesystem}}}"#), top))
}

fn joined(first: &str, second: &str) -> String {
    if second.is_empty() { first.to_owned() } else { format!("{first}, {second}") }
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A home with a workspace and a state directory in it, and the session's private directory beside it.
pub(super) struct Host {
    _directory: tempfile::TempDir,
    pub(super) root: PathBuf,
    pub(super) paths: PolicyPaths,
}

impl Host {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["home/ws/mcptools", "home/ws/.ipybox", "private/w", "home/state/python"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("home/ws/.env"), "").unwrap();
        let paths = PolicyPaths {
            workspace: root.join("home/ws"),
            home: root.join("home"),
            private_directory: root.join("private"),
            writable_directory: root.join("private/w"),
            state_dir: root.join("home/state"),
            python_prefixes: vec![root.join("home/state/python")],
            protected: vec![root.join("home/approval.toml"), root.join("private/settings.json")],
            hidden: vec![root.join("home/audit")],
            ..PolicyPaths::default()
        };
        Self { _directory: directory, root, paths }
    }

    /// The rules of a policy with this in `filesystem`.
    pub(super) fn rules(&self, filesystem: &str) -> Result<SandboxRules, SandboxPolicyError> {
        let lists =
            [r#""denyRead": []"#, r#""allowRead": []"#, r#""allowWrite": ["."]"#, r#""denyWrite": []"#];
        let kept =
            lists.iter().filter(|list| !filesystem.contains(&list[..list.find(':').unwrap_or_default()]));
        let filesystem =
            kept.copied().chain([filesystem]).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let text = format!(
            r#"{{"network": {{"allowedDomains": [], "deniedDomains": []}}, "filesystem": {{{filesystem}}}}}"#
        );
        SandboxPolicy::parse(&text.replace("ROOT", self.root.to_str().unwrap()), "`p.json`")?
            .rules(&self.paths)
    }

    /// A list of srt's settings, one text per line.
    pub(super) fn settings(&self, rules: &SandboxRules, key: &str) -> Vec<String> {
        let settings = rules.srt_settings();
        let list = settings["filesystem"][key].as_array().unwrap().clone();
        list.iter().map(|path| path.as_str().unwrap().replace(self.root.to_str().unwrap(), "ROOT")).collect()
    }
}
