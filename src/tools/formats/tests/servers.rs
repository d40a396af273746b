//! Servers in files that are right and wrong, and of several files together.

use super::*;

#[test]
fn what_is_wrong_with_one_server_does_not_cost_the_others() {
    let contents = Home::new().check(
        KnownClient::ClaudeCode,
        "x.json",
        r#"{"mcpServers": {"good": {"command": "a"}, "null": null, "text": "npx", "日本": {"command": "a"},
            "no": {}, "args": {"command": "a", "args": "b"}, "arg": {"command": "a", "arg": ["b"]},
            "nul": {"command": "a", "env": {"A=B": "c"}}, "secret": {"url": "https://e/mcp?x=${secret:github.X}"}}}"#,
        &[("good", json!({"command": "a"}))],
    );
    check_left(
        &contents,
        &[
            ("null", "it is null"),
            ("text", "it is a string"),
            ("日本", "no letter or digit"),
            ("no", "needs `command`"),
            ("args", "`args` must be a list"),
            ("arg", "did you mean `args`?"),
            ("nul", "cannot be the name"),
            ("secret", "another server"),
        ],
    );
}

#[test]
fn files_that_are_no_configuration_are_named() {
    let home = Home::new();
    let check = |file: &str, content: &str, expected: &str| {
        home.write(file, content);
        let error = home.read(None, file).unwrap_err();
        let text = crate::ground::text::describe(&error);
        assert!(text.contains(file) && text.contains(expected), "{text}");
    };
    check("a.json", "{", "not valid JSON: EOF while parsing an object (line 1, column 1)");
    check("a.toml", "a = [", "not valid TOML");
    check("a.json", "[1]", "it has a list instead of an object");
    check("a.json", "{}", "it is an empty object");
    check("a.json", r#"{"mcpServers": {}}"#, "it names none");
    check("a.json", r#"{"mcpServer": {"a": 1}}"#, "it has `mcpServer`");
    check(".mcp.json", r#"{"mcpServers": 1}"#, "it has `mcpServers`");
    let huge = format!("{{\"a\": \"{}\"}}", "x".repeat(2 << 20));
    check("work/huge.json", &huge, "larger than");
    let text = |file: &str| crate::ground::text::describe(&home.read(None, file).unwrap_err());
    assert!(text("work").contains("not a regular file"));
    assert!(text("gone.json").contains("gone.json"));
    std::os::unix::fs::symlink(home.path("a.json"), home.path("work/link.json")).unwrap();
    assert!(text("work/link.json").contains("symbolic link out of the workspace"));
}

fn merged(files: impl IntoIterator<Item = FileServers>) -> FileServers {
    merge(
        files,
        &PathDirectories { workspace: Path::new("/home/me/work"), home: Some(Path::new("/home/me")) },
    )
}

#[test]
fn remarks_are_no_servers_and_no_parameters() {
    for (client, wrapper) in [(KnownClient::ClaudeCode, "mcpServers"), (KnownClient::VsCode, "servers")] {
        let content = json!({
            "_comment": "of the whole file",
            wrapper: {
                "//": "of the servers",
                "_note": "too",
                "// old": {"command": "old"},
                "#old": {"command": "old"},
                "a": {"command": "a", "//args": ["x"], "_env": {"A": "b"}, "#cwd": "d", "comment": "x", "comments": []},
            }
        });
        let contents =
            Home::new().check(client, "x.json", &content.to_string(), &[("a", json!({"command": "a"}))]);
        check_left(&contents, &[]);
    }
    let home = Home::new();
    home.write("team.json", r#"{"_comment": "x", "a": {"command": "a"}}"#);
    assert_eq!(home.read(None, "team.json").unwrap().offered[0].name, "a");
}

#[test]
fn servers_that_are_turned_off_are_left() {
    let mut servers = serde_json::Map::new();
    let off = [
        ("disabled", json!(true)),
        ("disabled", json!("true")),
        ("enabled", json!(false)),
        ("isActive", json!(false)),
        ("active", json!(false)),
        ("isEnabled", json!("false")),
    ];
    for (number, (key, value)) in off.iter().enumerate() {
        servers.insert(format!("off{number}"), json!({"command": "a", *key: value}));
    }
    for (number, (key, value)) in
        [("disabled", json!(false)), ("isActive", json!(true)), ("enabled", json!("true"))].iter().enumerate()
    {
        servers.insert(format!("on{number}"), json!({"command": "a", *key: value}));
    }
    let on = ["on0", "on1", "on2"].map(|name| (name, json!({"command": "a"})));
    let content = json!({"mcpServers": servers}).to_string();
    let contents = Home::new().check(KnownClient::Cursor, "x.json", &content, &on);
    assert!(contents.left.iter().all(|left| left.why == "it is disabled there"), "{:?}", contents.left);
    assert_eq!(contents.left.len(), off.len());
    assert!(contents.offered.iter().all(|server| server.notes.is_empty()), "{contents:?}");
}

#[test]
fn clients_write_members_that_they_do_not_use() {
    // Cherry Studio, Goose, and a list of servers for a model.
    let cherry = json!({"mcpServers": {
        "remote": {"name": "r", "type": "streamableHttp", "description": "", "isActive": true, "baseUrl": "https://a/x",
            "command": "", "args": [], "env": {}, "headers": {}},
        "local": {"name": "l", "type": "stdio", "isActive": true, "baseUrl": "", "command": "npx", "args": ["x"],
            "env": {}, "headers": {}},
        "either": {"type": "url", "url": "https://a/x", "name": "e", "authorization_token": "${T}"},
        "events": {"type": "url", "url": "https://a/sse"},
        "model": {"type": "mcp", "server_label": "m", "server_url": "https://a/x", "require_approval": "never",
            "authorization": "Bearer ${T}"},
    }});
    let authorized =
        json!({"url": "https://a/x", "type": "http", "headers": {"Authorization": "Bearer ${T}"}});
    Home::new().check(
        KnownClient::Cursor,
        "x.json",
        &cherry.to_string(),
        &[
            ("remote", json!({"url": "https://a/x", "type": "http"})),
            ("local", json!({"command": "npx", "args": ["x"]})),
            ("either", authorized.clone()),
            ("events", json!({"url": "https://a/sse"})),
            ("model", authorized),
        ],
    );
}

#[test]
fn a_server_by_path_is_the_one_by_placeholder() {
    let offered = |client: KnownClient, parameters: Value| FileServers {
        offered: vec![OfferedServer {
            name: "tools".to_owned(),
            original: "tools".to_owned(),
            parameters: ServerParameters::parse(parameters.as_object().unwrap()).unwrap(),
            places: vec![ConfigurationFile { client: Some(client), path: Path::new("/x.json").to_owned() }],
            read: Vec::new(),
            notes: Vec::new(),
        }],
        left: Vec::new(),
    };
    let merged = merged([
        offered(
            KnownClient::ClaudeCode,
            json!({"command": "python", "args": ["/home/me/work/tools/server.py"]}),
        ),
        offered(KnownClient::Cursor, json!({"command": "python", "args": ["${workspace}/tools/server.py"]})),
        offered(KnownClient::VsCode, json!({"command": "python", "args": ["${HOME}/work/tools/server.py"]})),
        offered(KnownClient::Codex, json!({"command": "python", "args": ["${workspace}/other/server.py"]})),
    ]);
    let places: Vec<_> = merged.offered.iter().map(|server| server.places.len()).collect();
    assert_eq!(places, [3, 1]);
}

#[test]
fn servers_of_several_clients_are_put_together() {
    let offered = |name: &str, client: KnownClient, command: &str| {
        let parameters = json!({"command": command});
        FileServers {
            offered: vec![OfferedServer {
                name: name.replace('-', "_"),
                original: name.to_owned(),
                parameters: ServerParameters::parse(parameters.as_object().unwrap()).unwrap(),
                places: vec![ConfigurationFile {
                    client: Some(client),
                    path: Path::new("/x.json").to_owned(),
                }],
                read: Vec::new(),
                notes: Vec::new(),
            }],
            left: Vec::new(),
        }
    };
    let merged = merged([
        offered("git-hub", KnownClient::ClaudeCode, "a"),
        offered("git-hub", KnownClient::Cursor, "a"),
        offered("git_hub", KnownClient::Cursor, "b"),
        offered("git_hub", KnownClient::VsCode, "b"),
        offered("git-hub", KnownClient::Cursor, "c"),
    ]);
    let names: Vec<(&str, usize)> =
        merged.offered.iter().map(|server| (server.name.as_str(), server.places.len())).collect();
    assert_eq!(names, [("git_hub", 2), ("git_hub_cursor", 2), ("git_hub_cursor_2", 1)]);
    assert!(merged.offered[1].notes[0].contains("Another server is called `git_hub`"));
}
