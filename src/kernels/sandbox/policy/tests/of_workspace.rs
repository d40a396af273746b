use super::super::*;
use super::Host;

/// The openings of a workspace's policy with these sections.
fn openings(network: &str, filesystem: &str, top: &str) -> Vec<String> {
    let host = Host::new();
    let text = super::document(network, filesystem, top);
    std::fs::write(host.root.join("home/ws/sandbox-config.json"), text).unwrap();
    SandboxPolicy::of_workspace(&host.paths.workspace).unwrap().openings(&host.paths)
}

#[track_caller]
fn opens(filesystem: &str, expected: &[&str]) {
    let text = super::document("", filesystem, "");
    let entries = text.replace(
        r#""denyRead": [], "allowWrite": ["."], "denyWrite": [], "#,
        r#""denyRead": [], "denyWrite": [], "#,
    );
    let host = Host::new();
    std::fs::write(host.root.join("home/ws/sandbox-config.json"), entries).unwrap();
    let openings = SandboxPolicy::of_workspace(&host.paths.workspace).unwrap().openings(&host.paths);
    assert_eq!(openings, expected, "{filesystem}");
}

#[test]
fn what_only_closes_opens_nothing() {
    assert_eq!(openings("", "", ""), [""; 0]);
    assert_eq!(
        openings(r#""deniedResolvedAddresses": ["10.0.0.0/8"], "allowAllUnixSockets": false"#, "", ""),
        [""; 0]
    );
    assert_eq!(openings("", r#""allowGitConfig": false"#, r#""mandatoryDenySearchDepth": 5"#), [""; 0]);
    opens(r#""allowWrite": ["part", "a/b"], "allowRead": ["~/.cargo"]"#, &[]);
    opens(r#""allowWrite": []"#, &[]);
}

#[test]
fn each_opening_is_named() {
    opens(
        r#""allowWrite": [".", "~/.ssh", "..", ".env.local", "part/../.x", "/"], "allowRead": ["~", "~/.cargo"]"#,
        &[
            "`filesystem.allowWrite`: `\"~/.ssh\"`",
            "`filesystem.allowWrite`: `\"..\"`",
            "`filesystem.allowWrite`: `\".env.local\"`",
            "`filesystem.allowWrite`: `\"part/../.x\"`",
            "`filesystem.allowWrite`: `\"/\"`",
            "`filesystem.allowRead`: `\"~\"`",
        ],
    );
    for name in [
        "opencode.json",
        "mise.toml",
        "Makefile",
        "node_modules",
        "HEAD",
        "sub/uv.toml",
        "a/lefthook.yml",
        "b/node_modules/ipybox",
    ] {
        let entry = format!(r#""allowWrite": [".", "{name}", "data"]"#);
        opens(&entry, &[&format!("`filesystem.allowWrite`: `\"{name}\"`")]);
    }
    let network = r#""allowAllUnixSockets": true, "tlsTerminate": {}, "httpProxyPort": 8080"#;
    assert_eq!(openings(network, "", "").len(), 3);
    let top = r#""bwrapPath": "/opt/bwrap", "mandatoryDenySearchDepth": 1, "seccomp": {}, "credentials": {}"#;
    assert_eq!(openings("", r#""allowGitConfig": true"#, top).len(), 5);
}

#[test]
fn the_denials_of_the_default_stay() {
    let host = Host::new();
    let text = super::document("", r#""allowRead": ["~/data"]"#, "")
        .replace(r#""denyRead": []"#, r#""denyRead": ["part"]"#);
    let file = host.root.join("home/ws/sandbox-config.json");
    std::fs::write(&file, &text).unwrap();
    let policy = SandboxPolicy::of_workspace(&host.paths.workspace).unwrap();
    let rules = policy.rules(&host.paths).unwrap();
    let hidden = host.settings(&rules, "denyRead");
    for expected in ["ROOT/home", "ROOT/home/ws/.env", "ROOT/home/ws/part", "ROOT/home/.cargo/credentials"] {
        assert!(hidden.iter().any(|path| path == expected), "{expected} is not in {hidden:?}");
    }
    assert!(host.settings(&rules, "allowRead").contains(&"ROOT/home/data".to_owned()));
    let content = policy.content_of_workspace();
    std::fs::write(&file, format!("\n{text} ")).unwrap();
    assert_eq!(SandboxPolicy::of_workspace(&host.paths.workspace).unwrap().content_of_workspace(), content);
    std::fs::write(&file, text.replace("~/data", "~/datb")).unwrap();
    assert_ne!(SandboxPolicy::of_workspace(&host.paths.workspace).unwrap().content_of_workspace(), content);
    assert_eq!(SandboxPolicy::embedded().unwrap().content_of_workspace(), None);
}
