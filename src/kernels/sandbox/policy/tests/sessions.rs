use std::os::unix::fs::symlink;

use super::super::*;
use super::{Host, document, words};

const OWN: [&str; 8] = [
    "ROOT/home/ws/.env",
    "ROOT/home/ws/mcptools",
    "ROOT/home/ws/.ipybox",
    "ROOT/home/ws/sandbox-config.json",
    "ROOT/home/approval.toml",
    "ROOT/private/settings.json",
    "ROOT/home/state",
    "ROOT/home/audit",
];

#[track_caller]
fn refused(filesystem: &str, expected: &str) {
    let host = Host::new();
    let words = words(&host.rules(filesystem).unwrap_err()).replace(host.root.to_str().unwrap(), "ROOT");
    assert!(words.contains(expected), "{words}");
}

#[test]
fn our_protections_are_in_whatever_the_policy_says() {
    let host = Host::new();
    let rules = host.rules("").unwrap();
    let denied = host.settings(&rules, "denyWrite");
    assert_eq!(denied[denied.len() - OWN.len()..], OWN);
    assert_eq!(host.settings(&rules, "denyRead"), ["ROOT/home/state", "ROOT/home/audit"]);
    assert_eq!(host.settings(&rules, "allowRead"), ["ROOT/private", "ROOT/home/state/python"]);
    assert_eq!(host.settings(&rules, "allowWrite"), ["ROOT/home/ws", "ROOT/private/w"]);
}

#[test]
fn the_embedded_policy_is_made_concrete() {
    let host = Host::new();
    let rules = SandboxPolicy::embedded().unwrap().rules(&host.paths).unwrap();
    let hidden = host.settings(&rules, "denyRead");
    for expected in
        ["ROOT/home", "ROOT/home/ws/.env", "ROOT/home/ws/.env.*", "ROOT/home/.cargo/credentials.toml"]
    {
        assert!(hidden.iter().any(|path| path == expected), "{expected} is not in {hidden:?}");
    }
    // They are hidden with the home.
    for beneath in ["ROOT/home/.ssh", "ROOT/home/state", "ROOT/home/audit"] {
        assert!(!hidden.iter().any(|path| path == beneath), "{beneath} is in {hidden:?}");
    }
    let opened = host.settings(&rules, "allowRead");
    assert!(opened.contains(&"ROOT/home/.cargo".to_owned()), "{opened:?}");
    assert!(rules.allowed_domains.is_empty() && !rules.allow_all_unix_sockets);
}

#[test]
fn a_workspaces_own_policy_is_taken_if_there_is_one() {
    let host = Host::new();
    let workspace = &host.paths.workspace;
    let name = || SandboxPolicy::of_workspace(workspace).map(|policy| policy.name().to_owned());
    let embedded = SandboxPolicy::embedded().unwrap();
    assert_eq!(name().unwrap(), embedded.name());
    let file = workspace.join("sandbox-config.json");
    std::fs::write(&file, document("", "", "")).unwrap();
    assert!(name().unwrap().contains("sandbox-config.json"));
    for broken in ["", "{", "\n"] {
        std::fs::write(&file, broken).unwrap();
        assert!(words(&name().unwrap_err()).contains("sandbox-config.json"));
    }
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    name().unwrap_err();
}

#[test]
fn the_file_of_the_policy_cannot_be_written_inside() {
    let host = Host::new();
    let file = host.root.join("home/ws/sandbox.json");
    std::fs::write(&file, document("", "", "")).unwrap();
    let rules = SandboxPolicy::read(&file).unwrap().rules(&host.paths).unwrap();
    assert!(host.settings(&rules, "denyWrite").contains(&"ROOT/home/ws/sandbox.json".to_owned()));
}

#[test]
fn programs_that_the_policy_has_run_on_the_host_cannot_be_written_inside() {
    let host = Host::new();
    let program = |name: &str| host.root.join("home/ws/bin").join(name).display().to_string();
    let top = format!(
        r#""bwrapPath": "{}", "ripgrep": {{"command": "{}"}}, "seccomp": {{"applyPath": "bin/apply"}}"#,
        program("bwrap"),
        program("rg")
    );
    let policy = SandboxPolicy::parse(&document("", "", &top), "`p.json`").unwrap();
    let denied = host.settings(&policy.rules(&host.paths).unwrap(), "denyWrite");
    for name in ["bwrap", "rg", "apply"] {
        assert!(denied.contains(&format!("ROOT/home/ws/bin/{name}")), "{denied:?}");
    }
}

#[test]
fn opening_what_is_above_our_files_leaves_them_closed() {
    let host = Host::new();
    std::fs::write(host.root.join("private/lock"), "").unwrap();
    for opened in ["/", "~", "ROOT"] {
        let rules = host.rules(&format!(r#""allowWrite": ["{opened}"]"#)).unwrap();
        let denied = host.settings(&rules, "denyWrite");
        assert!(OWN.iter().all(|own| denied.iter().any(|path| path == own)), "{opened}: {denied:?}");
        let is_private_open = opened != "~";
        assert_eq!(denied.contains(&"ROOT/private/lock".to_owned()), is_private_open, "{opened}");
        assert!(!denied.iter().any(|path| path == "ROOT/private" || path == "ROOT/private/w"), "{denied:?}");
    }
}

#[test]
fn opening_what_is_ours_is_an_error() {
    let writing = |path: &str, closed: &str| {
        refused(
            &format!(r#""allowWrite": [".", "{path}"]"#),
            &format!("`filesystem.allowWrite[1]`: `{path}` would open `{closed}`"),
        );
    };
    writing("~/state", "ROOT/home/state");
    writing("~/state/python/lib", "ROOT/home/state");
    writing("../state/**", "ROOT/home/state");
    writing("mcptools", "ROOT/home/ws/mcptools");
    writing(".env", "ROOT/home/ws/.env");
    writing("sandbox-config.json", "ROOT/home/ws/sandbox-config.json");
    writing("~/approval.toml", "ROOT/home/approval.toml");
    writing("~/audit/today", "ROOT/home/audit");
    writing("~/../private", "ROOT/private");
    refused(
        r#""allowRead": ["~/state"]"#,
        "`filesystem.allowRead[0]`: `~/state` would open `ROOT/home/state`",
    );
    refused(r#""allowRead": ["~/state/approvals.json"]"#, "would open `ROOT/home/state`");
    refused(
        r#""allowRead": ["~/*/approvals.json"]"#,
        "`~/*/approvals.json`: this pattern may match what ipybox hides",
    );
    refused(r#""allowRead": ["~/state/python-*"]"#, "may match what ipybox hides");
    refused(r#""allowRead": ["~/state/old/*.json"]"#, "would open `ROOT/home/state`");
}

#[test]
fn what_is_readable_anyway_may_be_named() {
    let host = Host::new();
    let rules =
        host.rules(r#""denyRead": ["~"], "allowRead": ["~", "~/state/python/lib", "~/data/*.csv"]"#).unwrap();
    assert!(host.settings(&rules, "allowRead").contains(&"ROOT/home/data/*.csv".to_owned()));
    assert!(host.rules(r#""allowWrite": [".", "ROOT/private/w/x"]"#).is_ok());
}

#[test]
fn a_python_above_what_is_hidden_does_not_open_it() {
    let mut host = Host::new();
    host.paths.python_prefixes = vec![host.root.join("home")];
    let words = words(&host.rules(r#""allowRead": ["~/audit"]"#).unwrap_err());
    assert!(words.contains("would open"), "{words}");
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_covered_is_hidden_but_for_what_is_opened_in_it() {
    let mut host = Host::new();
    host.paths.covered = vec![host.root.join("shared"), "/run".into()];
    let rules = host.rules(r#""allowRead": ["ROOT/shared/data"]"#).unwrap();
    let hidden = host.settings(&rules, "denyRead");
    assert!(hidden.contains(&"ROOT/shared".to_owned()) && hidden.contains(&"/run".to_owned()), "{hidden:?}");
    let opened = host.settings(&rules, "allowRead");
    for path in ["ROOT/shared/data", "/run/current-system"] {
        assert!(opened.contains(&path.to_owned()), "{opened:?}");
    }
}

#[test]
fn globs_that_srt_would_skip_are_errors() {
    for key in ["allowWrite", "denyWrite"] {
        refused(
            &format!(r#""{key}": ["*.log"]"#),
            &format!("`filesystem.{key}[0]`: `*.log`: patterns are not supported"),
        );
    }
    refused(
        r#""denyRead": ["/**/*.pem"]"#,
        "`filesystem.denyRead[0]`: `/**/*.pem`: a pattern has to begin with a directory",
    );
}

#[test]
fn denying_what_the_sandbox_needs_is_an_error() {
    refused(
        r#""allowWrite": ["ROOT"], "denyWrite": ["ROOT/private"]"#,
        "the sandbox has to write in `ROOT/private/w`",
    );
    let host = Host::new();
    assert!(host.rules(r#""denyWrite": ["ROOT/private"]"#).is_ok());
}

#[test]
fn our_files_may_not_be_links_that_code_inside_could_replace() {
    let host = Host::new();
    let env = host.root.join("home/ws/.env");
    std::fs::remove_file(&env).unwrap();
    symlink("../shared.env", &env).unwrap();
    let words = words(&host.rules("").unwrap_err());
    assert!(words.contains("home/ws/.env` from code in the sandbox: it is a symbolic link"), "{words}");
    let rules = host.rules(r#""allowWrite": ["images"]"#).unwrap();
    assert!(host.settings(&rules, "denyWrite").contains(&"ROOT/home/shared.env".to_owned()));
}

#[test]
fn links_on_the_way_are_resolved() {
    let host = Host::new();
    symlink(host.root.join("home/state"), host.root.join("home/ws/link")).unwrap();
    let words = words(&host.rules(r#""allowWrite": ["link/x"]"#).unwrap_err());
    assert!(words.contains("`link/x` would open"), "{words}");
}

#[test]
fn a_place_that_srt_would_take_for_a_pattern_is_refused() {
    let mut host = Host::new();
    host.paths.hidden.push(host.root.join("home/[id]"));
    let words = words(&host.rules("").unwrap_err());
    assert!(
        words.contains("[id]` from code in the sandbox") && words.contains("taken for a pattern"),
        "{words}"
    );
}

#[test]
fn what_is_writable_exists() {
    let host = Host::new();
    let rules = host.rules(r#""allowWrite": [".", "later"]"#).unwrap();
    assert_eq!(rules.writable(), [host.root.join("home/ws"), host.root.join("private/w")]);
    assert_eq!(rules.missing_writable(), [host.root.join("home/ws/later")]);
}

#[test]
fn what_configures_other_programs_is_closed_at_the_top() {
    let host = Host::new();
    let is_closed = |rules: &SandboxRules, name: &str| {
        host.settings(rules, "denyWrite").contains(&format!("ROOT/home/ws/{name}"))
    };
    let rules = host.rules("").unwrap();
    for name in
        [".vscode", ".mcp.json", ".npmrc", ".husky", ".codex", ".pre-commit-config.yaml", ".git", "HEAD"]
    {
        assert!(is_closed(&rules, name), "{name}");
    }
    // No content would be accepted by the programs that read them, or is known for any program.
    for name in ["pnpm-workspace.yaml", ".unknown", ".unknown.d"] {
        assert!(!is_closed(&rules, name), "{name}");
        std::fs::write(host.root.join("home/ws").join(name), "").unwrap();
        assert!(is_closed(&host.rules("").unwrap(), name), "{name}");
    }
    std::fs::create_dir(host.root.join("home/ws/.cache")).unwrap();
    assert!(!is_closed(&host.rules("").unwrap(), ".cache"));
    for name in
        ["lefthook.toml", ".lefthook-local.json", "mise.dev.toml", "x.code-workspace", ".envrc.private"]
    {
        assert!(!is_closed(&host.rules("").unwrap(), name), "{name}");
        std::fs::write(host.root.join("home/ws").join(name), "").unwrap();
        assert!(is_closed(&host.rules("").unwrap(), name), "{name}");
    }
    for name in ["package.json", "Makefile", "CLAUDE.md", "pyproject.toml"] {
        assert!(!is_closed(&rules, name), "{name}");
    }
}

#[test]
fn git_is_closed_but_for_who_asks() {
    let host = Host::new();
    let closed = |filesystem: &str| {
        let closed = host.settings(&host.rules(filesystem).unwrap(), "denyWrite");
        let is_of_git =
            |path: &String| path.contains("/.git/") || path.ends_with("/.git") || path.ends_with("HEAD");
        closed.into_iter().filter(is_of_git).collect::<Vec<_>>()
    };
    let open = r#""allowGitConfig": true"#;
    assert_eq!(closed(""), ["ROOT/home/ws/HEAD", "ROOT/home/ws/.git"]);
    assert_eq!(closed(open), [""; 0]);
    let git = host.root.join("home/ws/.git");
    std::fs::create_dir(&git).unwrap();
    std::fs::write(git.join("HEAD"), "ref: refs/heads/main").unwrap();
    assert_eq!(closed(""), ["ROOT/home/ws/.git"]);
    assert_eq!(closed(open), ["ROOT/home/ws/.git/hooks"]);
    std::fs::remove_dir_all(&git).unwrap();
    std::fs::write(&git, "gitdir: ../other").unwrap();
    assert_eq!(closed(""), ["ROOT/home/ws/.git"], "of a worktree");
}

#[test]
fn what_configures_other_programs_further_down_is_closed_where_it_is() {
    let host = Host::new();
    let workspace = host.root.join("home/ws");
    for name in [
        "a/.vscode",
        "a/b/c/.husky",
        "a/b/c/d/.husky",
        "node_modules/x/.husky",
        "r/.git/hooks",
        "r/.github/hooks",
        "r/.github/workflows",
        "w",
        "wb/objects",
        "wb/hooks",
    ] {
        std::fs::create_dir_all(workspace.join(name)).unwrap();
    }
    for name in ["a/.npmrc", "a/lefthook.json", "a/plain", "r/.git/config", "w/.git", "wb/HEAD"] {
        std::fs::write(workspace.join(name), "").unwrap();
    }
    symlink(workspace.join("a"), workspace.join("link")).unwrap();
    let closed = |filesystem: &str| {
        let closed = host.settings(&host.rules(filesystem).unwrap(), "denyWrite").into_iter();
        let below = closed.filter_map(|path| path.strip_prefix("ROOT/home/ws/").map(str::to_owned));
        let mut below: Vec<String> = below
            .filter(|path| {
                ["a/", "node_modules/x", "r/", "w", "link"].iter().any(|top| path.starts_with(top))
            })
            .collect();
        below.sort();
        below
    };
    let expected = ["a/.npmrc", "a/.vscode", "a/b/c/.husky", "a/lefthook.json"];
    // A repository is closed as a whole: `commondir` in it leads git to another configuration.
    let repositories = ["r/.git", "r/.github/hooks", "w/.git", "wb"];
    assert_eq!(closed(""), [expected, repositories].concat());
    let repositories = ["r/.git/hooks", "r/.github/hooks", "w/.git", "wb/hooks"];
    assert_eq!(closed(r#""allowGitConfig": true"#), [expected, repositories].concat());
}

#[test]
fn links_that_code_may_have_made_open_nothing() {
    let check = |filesystem: &str, is_refused: bool| {
        let host = Host::new();
        std::fs::create_dir(host.root.join("home/other")).unwrap();
        symlink("../other", host.root.join("home/ws/link")).unwrap();
        symlink("/nowhere", host.root.join("home/ws/dangling")).unwrap();
        match host.rules(filesystem) {
            Ok(_) => assert!(!is_refused, "{filesystem}"),
            Err(error) => assert!(is_refused && words(&error).contains("symbolic link"), "{error}"),
        }
    };
    check(r#""allowWrite": [".", "link"]"#, true);
    check(r#""allowWrite": [".", "link/deeper"]"#, true);
    check(r#""allowWrite": [".", "dangling"]"#, true);
    check(r#""allowRead": ["link/*.txt"]"#, true);
    check(r#""denyWrite": ["link"]"#, true);
    // Nothing inside can change this one.
    check(r#""allowWrite": ["link"]"#, false);
    check(r#""allowWrite": [".", "~/other"]"#, false);
    let host = Host::new();
    symlink("conf", host.root.join("home/ws/.vscode")).unwrap();
    assert!(words(&host.rules("").unwrap_err()).contains(".vscode"));
}

#[test]
fn what_is_missing_below_a_denied_directory_is_not_named_to_srt() {
    let mut host = Host::new();
    let directory = host.root.join("home/ws/.codex");
    host.paths.hidden.push(directory.join("config.toml"));
    let name = "ROOT/home/ws/.codex/config.toml".to_owned();
    let is_named = || host.settings(&host.rules("").unwrap(), "denyWrite").contains(&name);
    assert!(!is_named());
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), "").unwrap();
    assert!(is_named());
}

#[test]
fn what_srt_opens_unasked_is_closed_unless_asked_for() {
    let host = Host::new();
    std::fs::create_dir_all(host.root.join("home/.npm/_logs")).unwrap();
    let logs = "ROOT/home/.npm/_logs".to_owned();
    assert!(host.settings(&host.rules("").unwrap(), "denyWrite").contains(&logs));
    let asked = host.rules(r#""allowWrite": ["~/.npm"]"#).unwrap();
    assert!(!host.settings(&asked, "denyWrite").contains(&logs));
}

#[test]
fn an_installation_writes_its_target_and_reaches_the_index_alone() {
    let host = Host::new();
    let text = document(r#""allowAllUnixSockets": true, "allowLocalBinding": true"#, "", "")
        .replace(r#""deniedDomains": []"#, r#""deniedDomains": ["*", "*:22", "evil.example"]"#);
    let rules = SandboxPolicy::parse(&text, "`p.json`").unwrap().rules(&host.paths).unwrap();
    let (target, temporary) = (host.root.join("home/state/python"), host.root.join("private/install"));
    let install = rules.for_installation(&[&target, &temporary], &["pypi.org".to_owned()]).unwrap();
    assert_eq!(host.settings(&install, "allowWrite"), ["ROOT/home/state/python", "ROOT/private/install"]);
    assert!(!host.settings(&install, "denyWrite").contains(&"ROOT/home/state".to_owned()));
    assert!(host.settings(&install, "allowRead").contains(&"ROOT/home/ws".to_owned()));
    assert_eq!(host.settings(&install, "denyRead"), host.settings(&rules, "denyRead"));
    let network = &install.srt_settings()["network"];
    assert_eq!(network["allowedDomains"], serde_json::json!(["pypi.org"]));
    assert_eq!(network["deniedDomains"], serde_json::json!(["evil.example"]));
    assert_eq!(network["allowAllUnixSockets"], false);
    assert_eq!(network["allowLocalBinding"], true);
    let words = words(&rules.for_installation(&[], &["https://x".to_owned()]).unwrap_err());
    assert!(words.contains("use the package index's hosts"), "{words}");
}

#[test]
fn the_rest_of_the_users_document_is_handed_on() {
    let host = Host::new();
    let text = document(r#""httpProxyPort": 8080"#, "", r#""allowPty": true, "bwrapPath": "/opt/bwrap""#);
    let rules = SandboxPolicy::parse(&text, "`p.json`").unwrap().rules(&host.paths).unwrap();
    let settings = rules.srt_settings();
    assert_eq!(settings["allowPty"], true);
    assert_eq!(settings["network"]["httpProxyPort"], 8080);
    assert_eq!(rules.bwrap_path, Some(PathBuf::from("/opt/bwrap")));
}

#[test]
fn domains_are_handed_on_in_the_form_in_which_hosts_are_compared() {
    let host = Host::new();
    let text = document(r#""deniedDomainReasons": {"BÜCHER.example:22": "no"}"#, "", "")
        .replace(r#""deniedDomains": []"#, r#""deniedDomains": ["BÜCHER.example:22"]"#);
    let rules = SandboxPolicy::parse(&text, "`p.json`").unwrap().rules(&host.paths).unwrap();
    let network = &rules.srt_settings()["network"];
    assert_eq!(network["deniedDomains"], serde_json::json!(["xn--bcher-kva.example:22"]));
    assert_eq!(network["deniedDomainReasons"], serde_json::json!({"xn--bcher-kva.example:22": "no"}));
}

#[test]
fn a_private_directory_that_cannot_be_listed_is_an_error() {
    let mut host = Host::new();
    host.paths.private_directory = host.root.join("missing");
    host.paths.writable_directory = host.root.join("missing/w");
    let words = words(&host.rules(r#""allowWrite": ["ROOT"]"#).unwrap_err());
    assert!(
        words.contains("missing` from code in the sandbox: look where it leads: No such file"),
        "{words}"
    );
}

#[test]
fn what_bubblewrap_alone_cannot_do_is_listed() {
    let host = Host::new();
    let check = |network: &str, top: &str, expected: &[&str]| {
        let policy = SandboxPolicy::parse(&document(network, "", top), "`p.json`").unwrap();
        assert_eq!(policy.rules(&host.paths).unwrap().unsupported_by_bubblewrap(), expected);
    };
    check("", "", &[]);
    check(
        r#""strictAllowlist": true, "allowMachLookup": ["a"]"#,
        r#""allowPty": true, "git": {"safeDirectories": []}"#,
        &[],
    );
    check(r#""httpProxyPort": 8080"#, "", &["`network.httpProxyPort` (`8080`)"]);
    check(
        r#""parentProxy": {"http": "http://me:secret@proxy:3128"}, "tlsTerminate": {}"#,
        r#""credentials": {"envVars": [{"name": "TOKEN", "mode": "deny"}]}"#,
        &["`network.tlsTerminate` (`{}`)", "`network.parentProxy` (`{…}`)", "`credentials` (`{…}`)"],
    );
}
