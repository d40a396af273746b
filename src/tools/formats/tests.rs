//! Files as users of each client have them.

use std::path::Path;

use serde_json::{Value, json};

use super::*;

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        Self(directory)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(file)
    }

    fn write(&self, file: &str, content: &str) {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, client: Option<KnownClient>, file: &str) -> Result<FileServers, Unreadable> {
        let (workspace, home) = (self.path("work"), self.path(""));
        let reader =
            ConfigurationReader { workspace: &workspace, home: Some(&home), has_program: &|_| false };
        reader.read(&ConfigurationFile { client, path: self.path(file) })
    }

    /// Writes and reads a file.
    #[track_caller]
    fn check(
        &self,
        client: KnownClient,
        file: &str,
        content: &str,
        expected: &[(&str, Value)],
    ) -> FileServers {
        self.write(file, content);
        let contents = self.read(Some(client), file).unwrap();
        let found: Vec<(&str, Value)> = contents
            .offered
            .iter()
            .map(|server| (server.name.as_str(), Value::Object(server.parameters.to_json())))
            .collect();
        let parsed = |server: &Value| {
            Value::Object(ServerParameters::parse(server.as_object().unwrap()).unwrap().to_json())
        };
        let expected: Vec<(&str, Value)> =
            expected.iter().map(|(name, server)| (*name, parsed(server))).collect();
        assert_eq!(found, expected);
        contents
    }
}

#[track_caller]
fn check_left(contents: &FileServers, expected: &[(&str, &str)]) {
    assert_eq!(contents.left.len(), expected.len(), "{:?}", contents.left);
    for (left, (name, why)) in contents.left.iter().zip(expected) {
        assert!(left.name == *name && left.why.contains(why), "{left:?}");
    }
}

#[test]
fn claude_code_in_a_project() {
    let contents = Home::new().check(
        KnownClient::ClaudeCode,
        "work/.mcp.json",
        r#"{
          "mcpServers": {
            "brave-search": {"command": "npx", "args": ["-y", "@brave/brave-search-mcp-server"],
                             "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"}},
            "sentry": {"type": "http", "url": "https://mcp.sentry.dev/mcp"},
            "api": {"type": "http", "url": "${API_BASE_URL:-https://api.example.com}/mcp",
                    "headers": {"Authorization": "Bearer ${API_KEY}"}, "timeout": 600000},
            "asana": {"type": "sse", "url": "https://mcp.asana.com/sse"},
            "local": {"type": "stdio", "command": "${CLAUDE_PROJECT_DIR}/tools/server", "args": [], "env": {}},
            "helped": {"type": "http", "url": "https://a.example/mcp", "headersHelper": "/opt/headers.sh"},
            "socket": {"type": "ws", "url": "wss://a.example/mcp"},
            "ipybox": {"command": "uvx", "args": ["ipybox-rs"]}
          }
        }"#,
        &[
            (
                "brave_search",
                json!({"command": "npx", "args": ["-y", "@brave/brave-search-mcp-server"], "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"}}),
            ),
            ("sentry", json!({"url": "https://mcp.sentry.dev/mcp", "type": "http"})),
            (
                "api",
                json!({"url": "${API_BASE_URL:-https://api.example.com}/mcp", "type": "http", "headers": {"Authorization": "Bearer ${API_KEY}"}, "timeout": 600}),
            ),
            ("asana", json!({"url": "https://mcp.asana.com/sse", "type": "sse"})),
            ("local", json!({"command": "${workspace}/tools/server"})),
            ("helped", json!({"url": "https://a.example/mcp", "type": "http"})),
        ],
    );
    check_left(&contents, &[("socket", "`type` must be"), ("ipybox", "it is ipybox itself")]);
    assert!(contents.offered[0].notes.contains(&"`brave-search` is the package `brave_search`.".to_owned()));
    assert!(contents.offered[5].notes[0].contains("`headersHelper`"), "{:?}", contents.offered[5].notes);
}

#[test]
fn claude_code_of_a_user_has_servers_of_projects_too() {
    let home = Home::new();
    let content = json!({
        "numStartups": 12,
        "mcpServers": {"everywhere": {"type": "stdio", "command": "a", "args": [], "env": {}}},
        "projects": {
            home.path("work").to_str().unwrap(): {"mcpServers": {"here": {"command": "b"}}, "history": [],
                "disabledMcpjsonServers": ["off"]},
            "/other": {"mcpServers": {"there": {"command": "c"}, "yonder": {"command": "d"}}},
            "/nothing": {"mcpServers": {}},
        },
    });
    let servers = [("here", json!({"command": "b"})), ("everywhere", json!({"command": "a"}))];
    let contents = home.check(KnownClient::ClaudeCode, ".claude.json", &content.to_string(), &servers);
    check_left(&contents, &[("there, yonder", "other projects")]);
    let workspace = home.path("work");
    let reader = ConfigurationReader { workspace: &workspace, home: None, has_program: &|_| false };
    assert!(reader.disabled_in_claude_code(&home.path(".claude.json")).contains("off"));
}

#[test]
fn claude_desktop() {
    Home::new().check(
        KnownClient::ClaudeDesktop,
        "claude_desktop_config.json",
        r#"{"globalShortcut": "", "mcpServers": {"filesystem": {"command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"]}}}"#,
        &[(
            "filesystem",
            json!({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"]}),
        )],
    );
}

#[test]
fn cursor() {
    let home = Home::new();
    home.write("work/.env.mcp", "# for the server\nAPI_KEY='abc$1'\nexport MODE=fast\n");
    let contents = home.check(
        KnownClient::Cursor,
        "work/.cursor/mcp.json",
        r#"{"mcpServers": {
            "local": {"type": "stdio", "command": "python", "args": ["${workspaceFolder}/tools/server.py"],
                "env": {"API_KEY": "${env:API_KEY}", "CACHE": "${userHome}/.cache"}},
            "filed": {"command": "python3", "args": ["-m", "x"], "envFile": "${workspaceFolder}/.env.mcp"},
            "stolen": {"command": "python3", "envFile": "${userHome}/.aws/credentials"},
            "remote": {"url": "https://api.example.com/v1", "headers": {"X-Key": "${env:MY_KEY}"},
                "auth": {"CLIENT_ID": "x"}}
        }}"#,
        &[
            (
                "local",
                json!({"command": "python", "args": ["${workspace}/tools/server.py"], "env": {"API_KEY": "${API_KEY}", "CACHE": "${HOME}/.cache"}}),
            ),
            (
                "filed",
                json!({"command": "python3", "args": ["-m", "x"], "env": {"API_KEY": "abc$1", "MODE": "fast"}}),
            ),
            (
                "remote",
                json!({"url": "https://api.example.com/v1", "type": "http", "headers": {"X-Key": "${MY_KEY}"}, "oauth": {"client_id": "x"}}),
            ),
        ],
    );
    check_left(&contents, &[("stolen", "it is not in the workspace")]);
}

#[test]
fn vs_code() {
    let contents = Home::new().check(
        KnownClient::VsCode,
        "work/.vscode/mcp.json",
        r#"{
          // A comment, as VS Code allows.
          "inputs": [
            {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
          ],
          "servers": {
            "Perplexity": {"type": "stdio", "command": "npx", "args": ["-y", "server-perplexity-ask"],
              "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}"}},
            "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/"},
            "odd": {"type": "stdio", "command": "x", "args": ["${command:pick}"], "dev": {"watch": "src/**"}},
          }
        }"#,
        &[
            (
                "perplexity",
                json!({"command": "npx", "args": ["-y", "server-perplexity-ask"], "env": {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"}}),
            ),
            ("github", json!({"url": "https://api.githubcopilot.com/mcp/", "type": "http"})),
        ],
    );
    check_left(&contents, &[("odd", "`${command:pick}`, which another client fills")]);
    assert!(contents.offered[0].notes[0].contains("set it in ipybox's environment"));
}

#[test]
fn codex() {
    let contents = Home::new().check(
        KnownClient::Codex,
        "config.toml",
        r#"
model = "gpt-5"

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp"]
env_vars = ["LOCAL_TOKEN"]
startup_timeout_sec = 20
tool_timeout_sec = 45
enabled_tools = ["open"]

[mcp_servers.context7.env]
MY_ENV_VAR = "MY_ENV_VALUE"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_OAUTH_TOKEN"
http_headers = { "X-Figma-Region" = "us-east-1" }
env_http_headers = { "X-Team" = "FIGMA_TEAM" }

[mcp_servers."plain url"]
url = "https://a.example/"

[mcp_servers.off]
command = "x"
enabled = false
"#,
        &[
            (
                "context7",
                json!({"command": "npx", "args": ["-y", "@upstash/context7-mcp"], "env": {"MY_ENV_VAR": "MY_ENV_VALUE", "LOCAL_TOKEN": "${LOCAL_TOKEN}"}, "timeout": 20}),
            ),
            (
                "figma",
                json!({"url": "https://mcp.figma.com/mcp", "headers": {"Authorization": "Bearer ${FIGMA_OAUTH_TOKEN}", "X-Figma-Region": "us-east-1", "X-Team": "${FIGMA_TEAM}"}}),
            ),
            ("plain_url", json!({"url": "https://a.example/", "type": "http"})),
        ],
    );
    check_left(&contents, &[("off", "it is disabled there")]);
    assert!(contents.offered[0].notes.iter().any(|note| note.contains("`enabled_tools`")));
}

#[test]
fn windsurf() {
    let contents = Home::new().check(
        KnownClient::Windsurf,
        "mcp_config.json",
        r#"{"mcpServers": {
            "remote": {"serverUrl": "https://a.example/mcp", "headers": {"API_KEY": "Bearer ${env:AUTH_TOKEN}"}},
            "off": {"command": "x", "disabled": true},
            "github": {"command": "docker", "args": ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN",
                "ghcr.io/github/github-mcp-server"], "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "x"}, "disabledTools": ["a"]}
        }}"#,
        &[
            (
                "remote",
                json!({"url": "https://a.example/mcp", "headers": {"API_KEY": "Bearer ${AUTH_TOKEN}"}}),
            ),
            (
                "github",
                json!({"command": "docker", "args": ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"], "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "x"}}),
            ),
        ],
    );
    check_left(&contents, &[("off", "it is disabled there")]);
}

#[test]
fn gemini_cli() {
    let contents = Home::new().check(
        KnownClient::Gemini,
        "settings.json",
        r#"{
          "theme": "GitHub", "mcp": {"excluded": ["off"]},
          "mcpServers": {
            "py": {"command": "python", "args": ["-m", "server"], "cwd": "./mcp", "timeout": 15000, "trust": true,
              "env": {"DB": "$DB_URL", "API_KEY": "${EXTERNAL_API_KEY}"}, "includeTools": ["safe"]},
            "http": {"httpUrl": "https://a.example/x", "headers": {"Authorization": "Bearer $TOKEN"}, "timeout": 5000},
            "sse": {"url": "http://localhost:8080/sse"},
            "off": {"command": "x"},
            "socket": {"tcp": "ws://a.example/"}
          }
        }"#,
        &[
            (
                "py",
                json!({"command": "python", "args": ["-m", "server"], "cwd": "./mcp", "timeout": 15, "env": {"DB": "${DB_URL}", "API_KEY": "${EXTERNAL_API_KEY}"}}),
            ),
            (
                "http",
                json!({"url": "https://a.example/x", "type": "http", "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 5}),
            ),
            ("sse", json!({"url": "http://localhost:8080/sse"})),
        ],
    );
    check_left(&contents, &[("off", "disabled"), ("socket", "`command`")]);
}

#[test]
fn a_file_of_no_known_client() {
    let home = Home::new();
    for content in [
        r#"{"mcpServers": {"mcp": {"command": "a"}}}"#,
        r#"{"mcp": {"servers": {"mcp": {"command": "a"}}}}"#,
        r#"{"mcp": {"command": "a"}}"#,
        r#"{"mcpServers": [{"name": "mcp", "command": "a"}]}"#,
        r#"{"context_servers": {"mcp": {"source": "custom", "command": "a"}}}"#,
    ] {
        home.write("team.json", content);
        let contents = home.read(None, "team.json").unwrap();
        assert_eq!(contents.offered[0].name, "mcp", "{content}: {contents:?}");
    }
}

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
    merge(files, &Directories { workspace: Path::new("/home/me/work"), home: Some(Path::new("/home/me")) })
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
        offered: vec![Offered {
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
            offered: vec![Offered {
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
