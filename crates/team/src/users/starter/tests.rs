use std::path::Path;

use super::*;

#[test]
fn published_actions_run_in_the_same_sandbox_and_are_logged() {
    let starter =
        SessionStarter::new(PathBuf::from("ipybox"), SessionSettings::default(), PackageSettings::default());
    let place = UserPlace::at(Path::new("/users/a"));
    let of_actions = starter.action_arguments(&place, Path::new("/actions"));
    let words: Vec<&str> = of_actions.iter().map(|word| word.to_str().unwrap()).collect();
    assert_eq!(words[..4], ["actions", "serve", "--published", "/actions"]);
    assert!(!words.contains(&"--no-sandbox"));
    let pairs = |list: &[OsString]| -> Vec<[OsString; 2]> {
        let begin = list.iter().position(|word| word == "--sandbox-backend").unwrap();
        list[begin..].chunks(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect()
    };
    assert_eq!(pairs(&of_actions), pairs(&starter.arguments(&place, None)));
    assert!(words.windows(2).any(|pair| pair == ["--audit-log", "/users/a/audit/log.jsonl"]));
}

#[test]
fn a_session_is_kept_saved_logged_and_in_a_sandbox() {
    let starter =
        SessionStarter::new(PathBuf::from("ipybox"), SessionSettings::default(), PackageSettings::default());
    let place = UserPlace::at(Path::new("/users/a"));
    let arguments = starter.arguments(&place, None);
    let arguments: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
    assert_eq!(
        arguments,
        [
            "--workspace",
            "/users/a/workspace",
            "--state-dir",
            "/users/a/state",
            "--keep-session",
            "28800s",
            "--audit-log",
            "/users/a/audit/log.jsonl",
            "--checkpoint",
            "--sandbox",
            "--sandbox-backend",
            "bwrap",
            "--sandbox-hide",
            "/home",
            "--sandbox-hide",
            "/root",
            "--sandbox-hide",
            "/run",
            "--sandbox-hide",
            "/tmp",
            "--sandbox-hide",
            "/var/tmp",
        ]
    );
}

#[test]
fn indexes_are_the_only_ones_of_uv_and_pip() {
    assert_eq!(index_variables(&[]), []);
    let indexes = ["https://one.example/simple", "https://two.example/simple"];
    let indexes = indexes.map(|url| SecureUrl::try_from(url.to_owned()).unwrap());
    assert_eq!(
        index_variables(&indexes),
        [
            ("UV_NO_CONFIG", "1".to_owned()),
            ("UV_DEFAULT_INDEX", "https://two.example/simple".to_owned()),
            ("PIP_CONFIG_FILE", "/dev/null".to_owned()),
            ("PIP_INDEX_URL", "https://one.example/simple".to_owned()),
            ("UV_INDEX", "https://one.example/simple".to_owned()),
            ("PIP_EXTRA_INDEX_URL", "https://two.example/simple".to_owned()),
        ]
    );
}

#[test]
fn a_session_with_a_kernel_at_a_hub_has_nothing_of_kernels_of_this_machine() {
    let kernels = toml::from_str("gpu.hub_options = { profile = \"gpu\" }");
    let starter =
        SessionStarter::new(PathBuf::from("ipybox"), SessionSettings::default(), PackageSettings::default())
            .with_kernels(kernels.unwrap());
    let name = crate::login::ClaimedName { claim: "sub".to_owned(), value: "Ann".to_owned() };
    let hub = ("https://hub.example/", HubName::of(&name).unwrap());
    let arguments = starter.arguments(&UserPlace::at(Path::new("/users/a")), Some(&hub));
    let arguments: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
    assert_eq!(
        arguments[6..],
        [
            "--audit-log",
            "/users/a/audit/log.jsonl",
            "--kernel-hub-url",
            "https://hub.example/",
            "--kernel-hub-user",
            "ann",
            "--kernel-hub-token-team",
            "--kernel-hub-options",
            "gpu={\"profile\":\"gpu\"}",
        ]
    );
}

#[test]
fn a_session_with_a_kernel_in_a_cluster_has_the_way_to_its_sandbox_and_saves_its_variables() {
    let kernels = toml::from_str(
        "pool = \"python\"\nnamespace = \"n\"\npool_port = 9999\nrouter_url = \"http://router/\"\nrouter_token_env = \"ROUTER\"\n\
         claim_timeout = \"90s\"\nclaim_lease = \"1m\"\nidle_timeout = \"30m\"\ngpu = { pool = \"python-gpu\", max = 1 }",
    );
    let starter =
        SessionStarter::new(PathBuf::from("ipybox"), SessionSettings::default(), PackageSettings::default())
            .with_kernels(kernels.unwrap());
    let arguments = starter.arguments(&UserPlace::at(Path::new("/users/a")), None);
    let arguments: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
    assert_eq!(
        arguments[8..],
        [
            "--checkpoint",
            "--kernel-pool",
            "python",
            "--kernel-pool",
            "gpu=python-gpu",
            "--kernel-pool-team",
            "--kernel-pool-port",
            "9999",
            "--kernel-router-url",
            "http://router/",
            "--kernel-router-token-env",
            "ROUTER",
            "--kernel-claim-timeout",
            "90",
            "--kernel-idle-timeout",
            "1800s",
        ]
    );
}
