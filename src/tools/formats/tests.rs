//! Files as users of each client have them.

mod servers;

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

    fn read(&self, client: Option<KnownClient>, file: &str) -> Result<FileServers, UnreadableFile> {
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
