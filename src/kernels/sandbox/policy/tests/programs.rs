use std::os::unix::fs::symlink;

use super::Host;

#[test]
fn no_code_makes_a_package_that_npx_takes_for_ipybox() {
    let host = Host::new();
    let is_closed = |name: &str| {
        host.settings(&host.rules("").unwrap(), "denyWrite").contains(&format!("ROOT/home/ws/{name}"))
    };
    let names = ["node_modules/ipybox", "node_modules/@ipybox-rs", "node_modules/.bin/ipybox"];
    assert!(names.iter().all(|name| is_closed(name)));
    // Of an installation: nothing can be mounted on a link, and code could replace it.
    std::fs::create_dir_all(host.root.join("home/ws/node_modules/.bin")).unwrap();
    symlink("../ipybox/bin/ipybox.js", host.root.join("home/ws/node_modules/.bin/ipybox")).unwrap();
    assert_eq!(names.map(is_closed), [true, true, false]);
    assert!(is_closed("node_modules/.bin"));
    symlink(".pnpm/ipybox", host.root.join("home/ws/node_modules/ipybox")).unwrap();
    assert!(is_closed("node_modules"));
}

#[test]
fn packages_are_closed_where_a_link_leads_to_though_nothing_is_there() {
    for target in ["store/modules", "missing"] {
        let host = Host::new();
        std::fs::create_dir_all(host.root.join("home/ws/store/modules")).unwrap();
        symlink(target, host.root.join("home/ws/node_modules")).unwrap();
        let denied = host.settings(&host.rules("").unwrap(), "denyWrite");
        assert!(denied.contains(&format!("ROOT/home/ws/{target}/ipybox")), "{denied:?}");
    }
}

#[test]
fn what_was_there_before_stays_closed_however_much_code_makes_later() {
    let mut host = Host::new();
    let workspace = host.root.join("home/ws");
    std::fs::create_dir_all(workspace.join("zz/deep/project/.git")).unwrap();
    std::fs::create_dir_all(workspace.join("zz/deep/project/.vscode")).unwrap();
    let is_closed = |host: &Host, name: &str| {
        let denied = host.settings(&host.rules("").unwrap(), "denyWrite");
        denied.contains(&format!("ROOT/home/ws/zz/deep/project/{name}"))
    };
    assert!([".git", ".vscode"].iter().all(|name| is_closed(&host, name)));
    assert!(!host.rules("").unwrap().is_search_cut);
    for decoy in 0..1100 {
        std::fs::create_dir_all(workspace.join(format!("a{decoy}/.git"))).unwrap();
        std::fs::create_dir_all(workspace.join(format!("a{decoy}/.vscode"))).unwrap();
    }
    assert!(host.rules("").unwrap().is_search_cut);
    assert!(![".git", ".vscode"].iter().any(|name| is_closed(&host, name)));
    host.paths.protected_before = vec![workspace.join("zz/deep/project/.git")];
    assert!([".git", ".vscode"].iter().all(|name| is_closed(&host, name)));
}

#[test]
fn a_policy_permits_what_configures_other_programs_by_its_own_name() {
    let host = Host::new();
    std::fs::create_dir_all(host.root.join("home/ws/sub/.vscode")).unwrap();
    let opened = r#""allowWrite": [".", ".vscode", "opencode.json", "sub", "sub/.vscode", ".git", "HEAD"]"#;
    let denied = host.settings(&host.rules(opened).unwrap(), "denyWrite");
    for (name, is_closed) in [
        (".vscode", false),
        ("opencode.json", false),
        ("sub/.vscode", false),
        (".zed", true),
        (".git", true),
        ("HEAD", true),
    ] {
        assert_eq!(denied.contains(&format!("ROOT/home/ws/{name}")), is_closed, "{name}");
    }
}

#[test]
fn hooks_of_submodules_stay_closed_where_git_is_open() {
    let host = Host::new();
    let git = host.root.join("home/ws/.git");
    for module in ["modules/lib", "modules/vendor/name", "modules/lib/modules/inner"] {
        std::fs::create_dir_all(git.join(module).join("objects")).unwrap();
        std::fs::write(git.join(module).join("HEAD"), "ref: refs/heads/main").unwrap();
    }
    let denied = host.settings(&host.rules(r#""allowGitConfig": true"#).unwrap(), "denyWrite");
    for module in ["modules/lib", "modules/vendor/name", "modules/lib/modules/inner"] {
        assert!(denied.contains(&format!("ROOT/home/ws/.git/{module}/hooks")), "{module}: {denied:?}");
    }
}

#[test]
fn other_directories_that_the_policy_opens_are_protected_as_the_workspace_is() {
    let host = Host::new();
    std::fs::create_dir_all(host.root.join("home/lib/sub/.git")).unwrap();
    std::fs::create_dir_all(host.root.join("home/.cache/x")).unwrap();
    symlink("elsewhere", host.root.join("home/lib/.npmrc")).unwrap();
    let opened = r#""allowWrite": [".", "ROOT/home/lib", "ROOT/home/.cache/x"]"#;
    let denied = host.settings(&host.rules(opened).unwrap(), "denyWrite");
    for (name, is_closed) in [
        ("lib/.git", true),
        ("lib/.envrc", true),
        ("lib/sub/.git", true),
        ("lib/node_modules/ipybox", true),
        ("lib/.npmrc", false),
        (".cache/x/.git", false),
    ] {
        assert_eq!(denied.contains(&format!("ROOT/home/{name}")), is_closed, "{name}");
    }
}
