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
    // Of an installation, which cannot be protected, and does not keep a session from starting.
    std::fs::create_dir_all(host.root.join("home/ws/node_modules/.bin")).unwrap();
    symlink("../ipybox/bin/ipybox.js", host.root.join("home/ws/node_modules/.bin/ipybox")).unwrap();
    assert_eq!(names.map(is_closed), [true, true, false]);
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
