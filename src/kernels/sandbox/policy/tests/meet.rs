use std::path::Path;

use serde_json::{Value, json};

use super::{Host, SandboxPolicy, SandboxRules, words};
use crate::kernels::sandbox::ClientPermissions;

/// The permissions of a client with these entries; `ROOT` in paths is the test's directory.
fn client(host: &Host, entries: &[(&str, &str)], network: &str) -> ClientPermissions {
    let root = host.root.to_str().unwrap();
    let entries = entries.iter().map(|(path, access)| match path.strip_prefix('*') {
        Some(kind) => json!({"path": {"type": "special", "value": {"kind": kind}}, "access": access}),
        None if path.contains('*') => {
            json!({"path": {"type": "glob_pattern", "pattern": path.replace("ROOT", root)}, "access": access})
        }
        None => json!({"path": {"type": "path", "path": path.replace("ROOT", root)}, "access": access}),
    });
    let entries: Vec<Value> = entries.collect();
    let files = json!({"type": "restricted", "entries": entries});
    let state = json!({
        "permissionProfile": {"type": "managed", "file_system": files, "network": network},
        "sandboxCwd": format!("file://{root}/home/ws"),
    });
    ClientPermissions::of_codex(&state).unwrap()
}

fn within(host: &Host, filesystem: &str, entries: &[(&str, &str)]) -> SandboxRules {
    let rules = host.rules(filesystem).unwrap();
    rules.within(&client(host, entries, "restricted"), &host.paths).unwrap()
}

#[track_caller]
fn has(list: &[String], names: &[&str], is_in: bool) {
    for name in names {
        assert_eq!(list.iter().any(|entry| entry == name), is_in, "{name} in {list:?}");
    }
}

#[test]
fn code_writes_where_both_write() {
    let host = Host::new();
    for name in ["home/ws/sub", "home/ws/data", "home/other"] {
        std::fs::create_dir_all(host.root.join(name)).unwrap();
    }
    let ours = r#""allowWrite": [".", "ROOT/home/other"]"#;
    let entries = [("*root", "read"), ("ROOT/home/ws/sub", "write"), ("ROOT/home/data", "write")];
    let rules = within(&host, ours, &entries);
    let open = host.settings(&rules, "allowWrite");
    has(&open, &["ROOT/home/ws/sub", "ROOT/private/w"], true);
    has(&open, &["ROOT/home/ws", "ROOT/home/other", "ROOT/home/data"], false);

    let reading = within(&host, ours, &[("*root", "read")]);
    assert_eq!(host.settings(&reading, "allowWrite"), ["ROOT/private/w"]);
}

#[test]
fn what_is_hidden_from_code_is_not_opened_because_the_client_writes_there() {
    let host = Host::new();
    for name in ["home/ws/keys/sub", "home/ws/data/x.key/sub", "home/ws/data/sub"] {
        std::fs::create_dir_all(host.root.join(name)).unwrap();
    }
    let ours = r#""denyRead": ["keys", "data/*.key"]"#;
    let all = ["ROOT/home/ws/keys/sub", "ROOT/home/ws/data/x.key/sub", "ROOT/home/ws/data/sub"];
    let entries = all.map(|path| (path, "write"));
    let rules = within(&host, ours, &[&[("*root", "read")], &entries[..]].concat());
    let open = host.settings(&rules, "allowWrite");
    has(&open, &all[2..], true);
    has(&open, &all[..2], false);
}

#[test]
fn what_the_client_closes_within_an_open_directory_is_closed() {
    let host = Host::new();
    std::fs::create_dir_all(host.root.join("home/ws/keys")).unwrap();
    std::fs::create_dir_all(host.root.join("home/ws/.git")).unwrap();
    let entries = [("*root", "read"), ("*project_roots", "write"), ("ROOT/home/ws/keys", "read")];
    let rules = within(&host, "", &entries);
    has(&host.settings(&rules, "denyWrite"), &["ROOT/home/ws/keys", "ROOT/home/ws/.git"], true);
    has(&host.settings(&rules, "allowWrite"), &["ROOT/home/ws"], true);
}

#[test]
fn what_one_of_both_hides_is_hidden_and_ours_opens_nothing_of_the_clients() {
    let host = Host::new();
    let ours = r#""denyRead": ["~"], "allowRead": ["~/a", "~/secret/b"]"#;
    let entries = [("*root", "read"), ("ROOT/home/secret", "deny"), ("ROOT/home/**/*.pem", "none")];
    let rules = within(&host, ours, &entries);
    has(&host.settings(&rules, "denyRead"), &["ROOT/home", "ROOT/home/secret", "ROOT/home/**/*.pem"], true);
    let open = host.settings(&rules, "allowRead");
    has(&open, &["ROOT/home/a", "ROOT/home/state/python"], true);
    has(&open, &["ROOT/home/secret/b"], false);
}

#[test]
fn the_rest_of_the_machine_is_hidden_if_the_client_reads_parts_of_it() {
    let host = Host::new();
    std::fs::create_dir_all(host.root.join("home/docs")).unwrap();
    let entries = [("*minimal", "read"), ("*project_roots", "write"), ("ROOT/home/docs", "read")];
    let rules = within(&host, r#""denyRead": ["~/docs/secret"]"#, &entries);
    let (hidden, open) = (host.settings(&rules, "denyRead"), host.settings(&rules, "allowRead"));
    let top = Path::new("/").join(host.root.components().nth(1).unwrap());
    has(&hidden, &[top.to_str().unwrap(), "ROOT/home/docs/secret"], true);
    has(&hidden, &["/usr", "/proc", "/dev"], false);
    has(&open, &["ROOT/home/docs", "ROOT/home/ws", "ROOT/private", "ROOT/home/state/python"], true);
}

#[test]
fn no_kernel_is_started_that_cannot_start() {
    let host = Host::new();
    let allowed = client(&host, &[("*project_roots", "write")], "restricted");
    let refusal = host.rules("").unwrap().within(&allowed, &host.paths).unwrap_err();
    assert!(words(&refusal).contains("no Python starts"), "{}", words(&refusal));
}

#[test]
fn the_network_is_reached_if_both_reach_it() {
    let host = Host::new();
    for (network, hosts) in [("restricted", 0), ("enabled", 1)] {
        let text = r#"{"network": {"allowedDomains": ["example.com"], "deniedDomains": [], "allowAllUnixSockets": true},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}"#;
        let rules = SandboxPolicy::parse(text, "`p.json`").unwrap().rules(&host.paths).unwrap();
        let rules = rules.within(&client(&host, &[("*root", "read")], network), &host.paths).unwrap();
        assert_eq!(
            (rules.allowed_domains.len(), rules.allow_all_unix_sockets),
            (hosts, hosts == 1),
            "{network}"
        );
    }
}

#[test]
fn without_a_policy_of_ours_the_clients_directories_are_open_but_no_place_that_programs_share() {
    let host = Host::new();
    std::fs::create_dir_all(host.root.join("other")).unwrap();
    let policy = |entries: &[(&str, &str)], network: &str| {
        let client = client(&host, entries, network);
        let policy = SandboxPolicy::of_client(&client, &host.paths.workspace, &host.paths.home);
        policy.rules(&host.paths).unwrap().within(&client, &host.paths).unwrap()
    };
    let entries =
        [("*root", "read"), ("*slash_tmp", "write"), ("*project_roots", "write"), ("ROOT/other", "write")];
    let rules = policy(&entries, "enabled");
    let mut open = host.settings(&rules, "allowWrite");
    open.sort();
    assert_eq!(open, ["ROOT/home/ws", "ROOT/other", "ROOT/private/w"]);
    assert_eq!(rules.allowed_domains.len(), 1);
    assert!(policy(&entries, "restricted").allowed_domains.is_empty());

    let open = host.settings(&policy(&[("*root", "write")], "enabled"), "allowWrite");
    assert_eq!(open, ["ROOT/home/ws", "ROOT/private/w"]);
}
