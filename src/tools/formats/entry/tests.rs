use super::*;

fn adopt_as(name: &str, value: &Value) -> Result<(ServerParameters, Vec<String>), ParametersError> {
    let has_program = |command: &str| command == "/opt/My App/server";
    adopt(name, value.as_object().unwrap(), &has_program)
}

/// Checks what is made of a configuration, and the beginnings of the notes on it.
#[track_caller]
fn check(value: Value, expected: Value, notes: &[&str]) {
    let (parameters, reported) = adopt_as("x", &value).unwrap_or_else(|error| panic!("{value}: {error}"));
    let expected = ServerParameters::parse(expected.as_object().unwrap()).unwrap();
    assert_eq!(parameters.to_json(), expected.to_json(), "{value}");
    assert_eq!(reported.len(), notes.len(), "{reported:?}");
    for (note, reported) in notes.iter().zip(&reported) {
        assert!(reported.starts_with(note), "{reported:?}");
    }
}

/// The same, whatever the notes are.
#[track_caller]
fn check_ignoring(value: Value, expected: Value) {
    let (parameters, _) = adopt_as("x", &value).unwrap_or_else(|error| panic!("{value}: {error}"));
    let expected = ServerParameters::parse(expected.as_object().unwrap()).unwrap();
    assert_eq!(parameters.to_json(), expected.to_json(), "{value}");
}

#[track_caller]
fn check_error(value: Value, expected: &str) {
    let error = adopt_as("x", &value).err().unwrap_or_else(|| panic!("{value} is taken")).to_string();
    assert!(error.contains(expected), "{value}: {error}");
}

fn npx() -> Value {
    json!({"command": "npx", "args": ["-y", "x"]})
}

#[test]
fn our_own_form_is_taken_as_it_is() {
    check(npx(), npx(), &[]);
    let server =
        json!({"url": "http://a/mcp", "headers": {"A": "${B}"}, "type": "streamable_http", "timeout": 300});
    check(server.clone(), server, &[]);
}

#[test]
fn a_server_is_found_in_the_configuration_of_a_client() {
    check(json!({"mcpServers": {"a": npx()}}), npx(), &[]);
    check(json!({"inputs": [], "servers": {"a": npx()}}), npx(), &["Ignored: `inputs`."]);
    check(json!({"mcp": {"servers": {"a": npx()}}}), npx(), &[]);
    check(
        json!({"mcp": {"a": {"type": "local", "command": ["npx", "-y", "x"], "enabled": true}}}),
        npx(),
        &["Ignored: `enabled`: the server is registered all the same."],
    );
    check(
        json!({"context_servers": {"a": {"source": "custom", "command": "npx", "args": ["-y", "x"]}}}),
        npx(),
        &["Ignored: `source`."],
    );
    check(
        json!({"mcpServers": [{"name": "a", "command": "npx", "args": ["-y", "x"]}]}),
        npx(),
        &["Ignored: `name`."],
    );
    check(json!({"github": npx()}), npx(), &[]);
    check(json!({"mcpServers": {"a": {"command": "a"}, "x": npx()}}), npx(), &[]);
    check_error(
        json!({"mcpServers": {"a": npx(), "b": npx()}}),
        "`mcpServers` has 2 servers and none that is called as this one: `a`, `b`",
    );
    check_error(json!({"mcpServers": {}}), "`mcpServers` has no server");
    check_error(json!({"mcpServers": {"a": "npx"}}), "`mcpServers.a` must be an object, not a string");
    check_error(json!({}), "the parameters have no keys");
}

#[test]
fn keys_of_other_clients_are_taken_where_they_mean_something() {
    check(json!({"serverUrl": "http://a/mcp"}), json!({"url": "http://a/mcp"}), &[]);
    let streamable = json!({"url": "http://a/", "type": "streamable_http"});
    check(json!({"httpUrl": "http://a/"}), streamable.clone(), &[]);
    check(json!({"url": "http://a/", "transport": "streamable-http"}), streamable.clone(), &[]);
    check(json!({"url": "http://a/", "type": "streamableHttp"}), streamable.clone(), &[]);
    check(json!({"uri": "http://a/", "type": "http", "name": null}), streamable, &[]);
    check(json!({"transport": {"type": "stdio", "command": "npx", "args": ["-y", "x"]}}), npx(), &[]);
    check(
        json!({"cmd": "npx", "args": ["-y", "x"], "envs": {"PORT": 3}, "env_keys": ["KEY"], "workingDirectory": "d"}),
        json!({"command": "npx", "args": ["-y", "x"], "env": {"PORT": "3", "KEY": "${KEY}"}, "cwd": "d"}),
        &[],
    );
    let bearer =
        json!({"url": "http://a/mcp", "headers": {"Authorization": "Bearer ${T}", "X": "${Y}", "Z": "z"}});
    let codex = json!({"url": "http://a/mcp", "bearer_token_env_var": "T", "env_http_headers": {"X": "Y"}, "http_headers": {"Z": "z"}});
    check(codex, bearer, &[]);
    let continued =
        json!({"url": "http://a/mcp", "requestOptions": {"headers": {"A": "b"}, "verifySsl": true}});
    check(
        continued,
        json!({"url": "http://a/mcp", "headers": {"A": "b"}}),
        &["Ignored: `requestOptions.verifySsl`."],
    );
}

#[test]
fn what_is_empty_and_belongs_to_the_other_transport_is_absent() {
    let goose = json!({"type": "streamable_http", "name": "g", "uri": "http://a/mcp", "envs": {}, "env_keys": [],
        "headers": {}, "cmd": "", "args": [], "timeout": 300, "available_tools": [], "enabled": true});
    let expected = json!({"url": "http://a/mcp", "type": "streamable_http", "timeout": 300});
    let notes = ["Ignored: `name`.", "Ignored: `available_tools`", "Ignored: `enabled`"];
    check(goose, expected, &notes);
    let mut local = npx();
    for (key, value) in
        [("url", json!("")), ("baseUrl", json!("")), ("headers", json!({})), ("auth", json!(""))]
    {
        local[key] = value;
    }
    check(local, npx(), &[]);
    check(json!({"url": "http://a/mcp", "cwd": "", "type": ""}), json!({"url": "http://a/mcp"}), &[]);
    check(json!({"cmd": "", "command": "npx", "args": ["-y", "x"]}), npx(), &[]);
    check_error(
        json!({"url": "http://a/mcp", "env": {"A": "b"}}),
        "`env` is not a parameter of an HTTP server",
    );
    check_error(json!({"command": "", "url": ""}), "exclude each other");
}

#[test]
fn a_text_for_auth_is_a_token_unless_it_says_how_to_log_in() {
    let with = |auth: Value| json!({"url": "http://a/mcp", "auth": auth});
    let bearer =
        |token: &str| json!({"url": "http://a/mcp", "headers": {"Authorization": format!("Bearer {token}")}});
    for token in [json!("t0ken"), json!("Bearer t0ken"), json!({"type": "bearer", "token": "t0ken"})] {
        check_ignoring(with(token), bearer("t0ken"));
    }
    check(with(json!("${TOKEN}")), bearer("${TOKEN}"), &[]);
    for word in ["oauth", "OAuth", "none", ""] {
        check(with(json!(word)), json!({"url": "http://a/mcp"}), &[]);
    }
    check(json!({"url": "http://a/mcp", "oauth": "yes"}), json!({"url": "http://a/mcp"}), &[]);
    let mut twice = with(json!("t0ken"));
    twice["headers"] = json!({"Authorization": "Bearer other"});
    check_error(twice, "contradict each other");
}

#[test]
fn words_for_any_transport_leave_it_to_the_url() {
    for word in ["url", "mcp"] {
        check(json!({"type": word, "url": "http://a/mcp"}), json!({"url": "http://a/mcp"}), &[]);
        check(json!({"type": word, "baseUrl": "http://a/sse"}), json!({"url": "http://a/sse"}), &[]);
        let streamable = json!({"url": "http://a/x", "type": "streamable_http"});
        check(json!({"type": word, "server_url": "http://a/x"}), streamable, &[]);
        let mut local = npx();
        local["type"] = json!(word);
        check(local, npx(), &[]);
    }
}

#[test]
fn remarks_are_no_misspellings() {
    for key in ["_args", "//command", "#env", "comment", "_comment", "$schema", "commentary", "notes"] {
        let mut server = npx();
        server[key] = json!("x");
        check(server, npx(), &[&format!("Ignored: `{key}`.")]);
    }
    check(json!({"mcpServers": {"_comment": "x", "//": "y", "a": npx()}}), npx(), &[]);
    let mut server = npx();
    server["env"] = json!({"//": "x", "#A": "y", "B": "z"});
    let mut expected = npx();
    expected["env"] = json!({"B": "z"});
    check(server, expected, &[]);
}

#[test]
fn what_means_nothing_is_named() {
    let mut server = npx();
    server["autoApprove"] = json!(["*"]);
    server["alwaysAllow"] = json!([]);
    server["trust"] = json!(true);
    server["disabled"] = json!(true);
    server["envFile"] = json!(".env");
    server["description"] = json!("d");
    server["somethingOfTheFuture"] = json!({});
    server["excludeTools"] = json!(["a"]);
    server["headersHelper"] = json!("./headers.sh");
    check(
        server,
        npx(),
        &[
            "Ignored: `description`, `somethingOfTheFuture`.",
            "Ignored: `autoApprove`, `alwaysAllow`, `trust`, which give no permission here",
            "Ignored: `excludeTools`: all tools",
            "Ignored: `disabled`: the server is registered",
            "Ignored: `envFile`, which is not read",
            "Ignored: `headersHelper`, which is not run",
        ],
    );
}

#[test]
fn times_are_in_seconds_unless_they_cannot_be() {
    let with = |key: &str, value: Value| {
        let mut server = npx();
        server[key] = value;
        server
    };
    check(with("timeout", json!(60)), with("timeout", json!(60)), &[]);
    check(
        with("timeout", json!(60_000)),
        with("timeout", json!(60)),
        &["`timeout` 60000 is taken as milliseconds."],
    );
    check(with("startup_timeout_sec", json!(20)), with("timeout", json!(20)), &[]);
    check(with("startup_timeout_ms", json!(20_000)), with("timeout", json!(20)), &[]);
    let mut both = with("startup_timeout_sec", json!(20));
    both["timeout"] = json!(5);
    check(both, with("timeout", json!(20)), &["Ignored: `timeout`."]);
    check_error(with("timeout", json!("long")), "`timeout` must be a number, not a string");
    check_error(with("timeout", json!(0)), "`timeout` must be more than 0");
}

#[test]
fn a_command_line_is_taken_apart() {
    let note = "`command` is taken as a command line: npx -y x.";
    check(json!({"command": "npx -y x"}), npx(), &[note]);
    check(
        json!({"command": "npx -y", "args": ["x"]}),
        npx(),
        &["`command` is taken as a command line: npx -y."],
    );
    check(json!({"command": "sh -c 'a b'"}), json!({"command": "sh", "args": ["-c", "a b"]}), &["`command`"]);
    check(json!({"command": "/opt/My App/server"}), json!({"command": "/opt/My App/server"}), &[]);
    check(json!({"command": {"path": "npx", "args": ["-y", "x"]}}), npx(), &[]);
    check(json!({"command": "cmd", "args": ["/c", "npx", "-y", "x"]}), npx(), &["`cmd /c` was left out"]);
    for line in ["cd a && npx x", "npx x | tee y", "npx 'x", "sh $(which x)"] {
        check_error(json!({"command": line}), "which takes a shell");
    }
    check_error(json!({"command": []}), "`command` must not be empty");
    check_error(json!({"command": " "}), "`command` must not be empty");
}

#[test]
fn placeholders_of_other_clients_are_translated() {
    let server =
        json!({"command": "a", "args": ["${userHome}/b"], "env": {"A": "${env:B}", "C": "$D", "E": "$5"}});
    let expected = json!({"command": "a", "args": ["${HOME}/b"], "env": {"A": "${B}", "C": "$D", "E": "$5"}});
    check(server, expected, &["`env.C` is the text `$D`: write `${D}` for the variable."]);
    check_error(
        json!({"command": "a", "env": {"A": "x${input:key}"}}),
        "`env.A` has `${input:key}`, which another client fills",
    );
    check_error(
        json!({"command": "a", "args": ["${workspaceFolder}/b"]}),
        "`args` has `${workspaceFolder}`, which another client fills",
    );
}

#[test]
fn contradictions_are_errors() {
    check_error(json!({"command": "a", "url": "http://a/mcp"}), "exclude each other");
    check_error(
        json!({"url": "http://a/mcp", "serverUrl": "http://b/mcp"}),
        "`url` and `serverUrl` contradict",
    );
    check_error(
        json!({"url": "http://a/mcp", "type": "http", "transport": "sse"}),
        "`type` and `transport` contradict",
    );
    check_error(
        json!({"env": {"A": "1"}, "environment": {"A": "2"}, "command": "a"}),
        "`env.A` and `environment.A`",
    );
    check_error(json!({"url": "http://a/mcp", "type": "stdio"}), "`type` must be");
    check_error(
        json!({"url": "ws://a/mcp", "type": "ws"}),
        "`type` must be `stdio`, `streamable_http` or `sse`",
    );
    check_error(json!({"command": "a", "arg": ["b"]}), "did you mean `args`?");
    check_error(json!({"url": "http://a/mcp", "header": {}}), "did you mean `headers`?");
}
