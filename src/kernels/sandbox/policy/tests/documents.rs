use super::super::*;
use super::{document, words};

#[track_caller]
fn refused(text: &str, expected: &str) {
    let words = words(&SandboxPolicy::parse(text, "`p.json`").unwrap_err());
    assert!(words.starts_with("use `p.json` as the sandbox policy: "), "{words}");
    assert!(words.contains(expected), "{words}");
}

#[track_caller]
fn refused_in_network(entry: &str, expected: &str) {
    refused(&document(entry, "", ""), expected);
}

#[track_caller]
fn refused_in_filesystem(entry: &str, expected: &str) {
    refused(&document("", entry, ""), expected);
}

#[track_caller]
fn refused_at_top(entry: &str, expected: &str) {
    refused(&document("", "", entry), expected);
}

#[track_caller]
fn accepted(text: &str) {
    if let Err(error) = SandboxPolicy::parse(text, "`p.json`") {
        panic!("{}\n{text}", words(&error));
    }
}

/// A document in which one list has these entries.
fn with_list(key: &str, entries: &str) -> String {
    let list = |name: &str| format!(r#""{name}": {}"#, if name == key { entries } else { "[]" });
    format!(
        r#"{{"network": {{{}, {}, {}}}, "filesystem": {{{}, {}, {}}}}}"#,
        list("allowedDomains"),
        list("deniedDomains"),
        list("deniedResolvedAddresses"),
        list("denyRead"),
        list("allowWrite"),
        list("denyWrite"),
    )
}

#[test]
fn the_embedded_policy_opens_the_workspace_and_no_network() {
    let policy = SandboxPolicy::embedded().unwrap();
    assert_eq!(policy.document["filesystem"]["allowWrite"], serde_json::json!(["."]));
    assert_eq!(policy.document["network"]["allowedDomains"], serde_json::json!([]));
}

#[test]
fn files_that_are_no_policy_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.json");
    let check = |content: Option<&[u8]>, expected: &str| {
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let words = words(&SandboxPolicy::read(&path).unwrap_err());
        assert!(words.contains(&path.display().to_string()) && words.contains(expected), "{words}");
    };
    check(None, "read the sandbox policy");
    check(Some(b""), "it is empty");
    check(Some(b" \n\t"), "it is empty\nhint: a policy that allows nothing is");
    check(Some(b"{\n\"\xff\"}"), "line 2 is not UTF-8");
    check(Some(b"{\n  \"network\": }"), "it is not JSON: expected value at line 2 column 14");
    check(Some(b"{} {}"), "trailing characters at line 1 column 4");
    check(Some(b"{}"), "`network`: it is missing\nhint: write an object");
}

#[test]
fn the_policy_that_the_hint_shows_can_be_used() {
    let hint = words(&SandboxPolicy::parse("", "`p.json`").unwrap_err());
    accepted(hint.split('`').nth(3).unwrap());
}

#[test]
fn a_key_that_stands_twice_is_an_error() {
    let text = document("", r#""denyRead": []"#, "");
    refused(&text, "it is not JSON: the key `denyRead` stands twice at line 1");
}

#[test]
fn unknown_keys_are_errors_that_say_what_may_be_meant() {
    refused_in_filesystem(
        r#""allowWrit": []"#,
        "`filesystem.allowWrit`: there is no such key\nhint: did you mean `allowWrite`?",
    );
    refused_in_filesystem(r#""allow_read": []"#, "did you mean `allowRead`?");
    refused_in_filesystem(r#""paths": []"#, "hint: known are `disabled`, `denyRead`");
    refused_in_filesystem(r#""allowedDomains": []"#, "did you mean `network.allowedDomains`?");
    refused_at_top(
        r#""denyRead": []"#,
        "`denyRead`: there is no such key\nhint: did you mean `filesystem.denyRead`?",
    );
    refused_at_top(r#""Network": {}"#, "did you mean `network`?");
    refused_in_network(r#""allowPty": true"#, "did you mean `allowPty` at the top of the document?");
    refused_in_network(r#""mitmProxy": {"socket": "/s", "domains": []}"#, "`network.mitmProxy.socket`");
    refused_at_top(
        r#""credentials": {"injectHosts": []}"#,
        "`credentials.injectHosts`: there is no such key",
    );
    refused_at_top(r#""": 1"#, "there is no such key");
}

#[test]
fn missing_keys_are_named() {
    refused(r#"{"network": {"allowedDomains": [], "deniedDomains": []}}"#, "`filesystem`: it is missing");
    refused(
        r#"{"network": {"allowedDomains": []}, "filesystem": {}}"#,
        "`network.deniedDomains`: it is missing\nhint: write a list of domains",
    );
    refused_at_top(r#""ripgrep": {}"#, "`ripgrep.command`: it is missing");
}

#[test]
fn values_of_the_wrong_kind_are_shown_with_what_is_allowed() {
    refused("[]", "the document: `[]` is not allowed\nhint: write an object in `{}`");
    refused("null", "the document: `null` is not allowed");
    refused(
        &with_list("allowWrite", "\".\""),
        "`filesystem.allowWrite`: `\".\"` is not allowed\nhint: write a list of paths",
    );
    refused(
        &with_list("allowWrite", "[\".\", 5]"),
        "`filesystem.allowWrite[1]`: `5` is not allowed\nhint: write a path",
    );
    refused(&with_list("denyRead", "[\"\"]"), "`filesystem.denyRead[0]`: `\"\"` is not allowed");
    refused(
        &with_list("allowedDomains", "{}"),
        "`network.allowedDomains`: `{}` is not allowed\nhint: write a list of domains",
    );
    refused(
        &with_list("allowedDomains", "[null]"),
        "`network.allowedDomains[0]`: `null` is not allowed\nhint: write a domain",
    );
    refused_in_network(
        r#""allowAllUnixSockets": "yes""#,
        "`\"yes\"` is not allowed\nhint: write `true` or `false`",
    );
    refused_in_network(
        r#""httpProxyPort": 0"#,
        "`0` is not allowed\nhint: write a whole number from 1 to 65535",
    );
    refused_in_network(r#""httpProxyPort": 80.5"#, "`80.5` is not allowed");
    refused_in_network(r#""deniedDomainReasons": {"a.b": ""}"#, "`network.deniedDomainReasons.a.b`: `\"\"`");
    refused_in_network(r#""mitmProxy": {"socketPath": "/s", "domains": []}"#, "with at least one");
    refused_in_network(r#""mitmProxy": {"socketPath": "/s", "domains": ["a.b:1"]}"#, "without a port");
    refused_at_top(r#""mandatoryDenySearchDepth": 11"#, "from 1 to 10");
    refused_at_top(r#""bwrapPath": "bwrap""#, "an absolute path");
    refused_at_top(r#""ignoreViolations": {"*": "/x"}"#, "`ignoreViolations.*`: `\"/x\"`");
    refused_at_top(&format!(r#""git": "{}""#, "ä".repeat(500)), "äää…` is not allowed");
}

#[test]
fn what_would_undo_the_sandbox_is_refused() {
    refused_in_filesystem(
        r#""disabled": true"#,
        "`filesystem.disabled`: `true` is not allowed: without rules",
    );
    refused_at_top(r#""enableWeakerNestedSandbox": true"#, "`true` is not allowed: it shows the processes");
    refused_in_network(
        r#""filterRequest": null"#,
        "`network.filterRequest`: `null` is not allowed: it is a function",
    );
    accepted(&document("", r#""disabled": false"#, r#""enableWeakerNestedSandbox": false"#));
}

#[test]
fn domains_are_checked_like_srt_checks_them() {
    refused(
        &with_list("allowedDomains", r#"["a.com", "*.com"]"#),
        "`network.allowedDomains[1]`: `*.com` would match",
    );
    refused(&with_list("allowedDomains", r#"["*"]"#), "`*` would match every host");
    refused(&with_list("allowedDomains", r#"["https://a.com/x"]"#), "more than a host");
    refused(&with_list("deniedDomains", r#"["2001:db8::1:443"]"#), "`network.deniedDomains[0]`");
    refused(
        &with_list("deniedResolvedAddresses", r#"["[::1]"]"#),
        "`network.deniedResolvedAddresses[0]`: `[::1]`",
    );
    accepted(&with_list(
        "allowedDomains",
        r#"["a.com", "*.a.com:443", "localhost", "[::1]:80", "192.0.2.1"]"#,
    ));
    accepted(&with_list("deniedDomains", r#"["*", "*:22", "a.com"]"#));
    accepted(&with_list("deniedResolvedAddresses", r#"["10.0.0.0/8", "fc00::/7", "192.0.2.1"]"#));
}

#[test]
fn deny_patterns_that_match_nothing_are_refused() {
    for key in ["denyRead", "denyWrite"] {
        for pattern in ["/build/*/", "~/x*/"] {
            refused(
                &with_list(key, &format!("[\"{pattern}\"]")),
                "a pattern that ends in `/` would match nothing",
            );
        }
    }
    accepted(&with_list("denyRead", r#"["build/*/", "/build/", "~/"]"#));
}

#[test]
fn all_that_srt_knows_is_known() {
    accepted(&document(
        r#""deniedDomainReasons": {"a.b": "no"}, "strictAllowlist": true, "deniedResolvedAddresses": [],
        "allowUnixSockets": ["/s"], "allowAllUnixSockets": false, "allowLocalBinding": true, "allowMachLookup": ["a.*"],
        "httpProxyPort": 1, "socksProxyPort": 65535, "mitmProxy": {"socketPath": "/s", "domains": ["*.a.b"]},
        "tlsTerminate": {"caCertPath": "/c", "caKeyPath": "/k", "excludeDomains": ["a.b"], "extraCaCertPaths": ["/e"]},
        "parentProxy": {"http": "http://p:1", "https": "http://p:1", "noProxy": ""}"#,
        r#""disabled": false, "allowRead": ["x"], "allowGitConfig": true"#,
        r#""credentials": {"files": [{"path": "x", "mode": "deny"}], "envVars": [{}], "allowPlaintextInject": false,
        "awsPairs": [{}], "sigv4": {}}, "ignoreViolations": {"*": ["/x"]}, "enableWeakerNestedSandbox": false,
        "enableWeakerNetworkIsolation": false, "allowAppleEvents": false,
        "ripgrep": {"command": "rg", "args": [], "argv0": "rg"}, "mandatoryDenySearchDepth": 3, "allowPty": true,
        "seccomp": {"applyPath": "/x", "argv0": "x"}, "bwrapPath": "/b", "socatPath": "/s", "javaAgentJarPath": "/j",
        "windows": {"sandboxUser": "u", "sublayerGuid": "g", "wfpSublayerGuid": "g", "proxyPortRange": [1, 2],
        "srtWin": {"path": "x"}}, "git": {"safeDirectories": ["/x"]}"#,
    ));
}
