use super::super::*;
use super::Host;
use crate::ground::env::MovedPlace;

#[test]
fn the_default_holds_for_every_home_and_wherever_variables_have_moved_a_place() {
    let mut host = Host::new();
    let at = |name: &str| host.root.join(name);
    let moved = |usual: &str, actual: &str| MovedPlace { usual: at(usual), actual: at(actual) };
    let moved = vec![
        moved("home/.config", "xdg"),
        moved("home/.kube/config", "kube"),
        moved("home/.cache/huggingface", "hf"),
        moved("home/.duckdb", "home/ws/.."),
    ];
    (host.paths.other_homes, host.paths.foreign_homes) =
        (vec![at("own")], vec![at("alice"), at("home/ws/.")]);
    host.paths.moved = moved;
    let rules = SandboxPolicy::embedded().unwrap().rules(&host.paths).unwrap();
    let hidden = host.settings(&rules, "denyRead");
    for expected in
        ["ROOT/own", "ROOT/alice", "ROOT/xdg/gh", "ROOT/kube", "ROOT/hf/token", "ROOT/own/.cargo/credentials"]
    {
        assert!(hidden.iter().any(|path| path == expected), "{expected} is not in {hidden:?}");
    }
    assert!(!hidden.contains(&"ROOT/home/ws".to_owned()), "{hidden:?}");
    let opened = host.settings(&rules, "allowRead");
    for expected in ["ROOT/own/.local/bin", "ROOT/hf", "ROOT/xdg/matplotlib"] {
        assert!(opened.iter().any(|path| path == expected), "{expected} is not in {opened:?}");
    }
    let of_user = host.rules(r#""denyRead": ["~/.ssh"]"#).unwrap();
    assert_eq!(
        host.settings(&of_user, "denyRead").len(),
        3,
        "a policy of the user's names its places itself"
    );
}

#[test]
fn a_home_that_the_workspace_contains_is_not_hidden_but_its_secrets_are() {
    let mut host = Host::new();
    host.paths.workspace = host.root.join("home");
    for home in ["home", "home/ws", "/"] {
        host.paths.home = host.root.join(home);
        let rules = SandboxPolicy::embedded().unwrap().rules(&host.paths).unwrap();
        let hidden = host.settings(&rules, "denyRead");
        let shown = host.paths.home.display().to_string().replace(host.root.to_str().unwrap(), "ROOT");
        assert!(!hidden.contains(&shown), "{shown}: {hidden:?}");
        let ssh = format!("{}/.ssh", shown.trim_end_matches('/'));
        assert!(hidden.contains(&ssh), "{ssh}: {hidden:?}");
    }
}

#[test]
fn another_home_above_the_workspace_is_hidden() {
    let mut host = Host::new();
    (host.paths.home, host.paths.other_homes) = (host.root.join("snap"), vec![host.root.join("home")]);
    let rules = SandboxPolicy::embedded().unwrap().rules(&host.paths).unwrap();
    assert!(host.settings(&rules, "denyRead").contains(&"ROOT/home".to_owned()));
}
