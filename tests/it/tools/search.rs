//! `from mcptools import search`: which tools code finds, and where.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Place, all_say, kernel_python, probe, test_server, tool};

const SEARCH: &str = "from mcptools import search\n";

/// A server of the test's own, with a tool for each name.
fn server(names: &str) -> Value {
    let code = format!(
        "from mcp.server.fastmcp import FastMCP\nserver = FastMCP('s', log_level='ERROR')\n\
         def run(path: str, depth: int = 2): ...\n\
         for name in {names:?}.split(): server.add_tool(run, name=name, description=f'Does {{name}}.')\n\
         server.run()"
    );
    json!({"command": tool("mcp1/bin/python"), "args": ["-c", code]})
}

#[tokio::test]
pub(crate) async fn tools_are_found_and_called_as_the_answer_says() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // Before anything is registered, and so before there is a directory `mcptools`.
    let nothing = ipybox.cell(&format!("{SEARCH}search('add numbers')")).await.ok();
    assert!(nothing.starts_with("no MCP server is registered"), "{nothing}");
    let registered = ipybox.register("probe", probe()).await.ok();
    let call = "probe.add.run(a: int, b: int = 5) -> Result(total: int, terms: list[int])";
    assert!(
        registered.starts_with("from mcptools import probe\n") && registered.contains(call),
        "{registered}"
    );
    assert!(
        registered.contains("\nA `ToolResult` is a string, ") && registered.contains(".run_parsed`"),
        "{registered}"
    );
    let found = ipybox.cell("search('add numbers')").await.ok();
    assert!(found.starts_with(&format!("from mcptools import probe\n{call}")), "{found}");
    assert_eq!(ipybox.cell("print(search('add numbers'))").await.ok(), found);
    let lines = ipybox.cell("from mcptools import probe\nprobe.add.run(a=2).total").await.ok();
    assert_eq!(lines, "7");
    assert!(found.ends_with("of 8 tools fit"), "{found}");
    let shown = ipybox.cell("print(search('', server=probe).splitlines()[0])").await.ok();
    assert!(shown.starts_with("8 tools in `mcptools.probe`"), "{shown}");
    let module = ipybox.cell("print(search('add flights', limit=1))\nprint(probe.add)").await.ok();
    let (answer, printed) = module.split_once("\nmcptools.probe.add\n").unwrap();
    let (answer, count) = answer.rsplit_once("\n# ").unwrap();
    assert!(count.contains(" of 8 tools fit") && count.ends_with("none has `flights`"), "{count}");
    let calls = |text: &str| text[text.find("run(").unwrap()..].trim().to_owned();
    assert_eq!(calls(answer), calls(printed));
    ipybox.reset().await;
    assert_eq!(ipybox.cell(&format!("{SEARCH}search('add numbers')")).await.ok(), found, "after a reset");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_new_registration_is_found_at_once() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("one", server("alpha beta")).await.ok();
    all_say(
        &mut ipybox,
        &[
            ("from mcptools import search\nprint(search('gamma').splitlines()[0])",
             "none of the 2 registered tools fits `gamma`; try other words, or an empty query to see what there is"),
        ],
    )
    .await;
    ipybox.register("one", server("beta gamma")).await.ok();
    ipybox.register("two", server("gamma")).await.ok();
    all_say(
        &mut ipybox,
        &[
            ("print(search('gamma').splitlines()[0])", "from mcptools import one, two"),
            ("print(search('gamma').splitlines()[-1])", "# 2 of 3 tools fit"),
            ("print(search('gamma', server='two').splitlines()[-1])", "# 1 of 1 tools fit"),
            ("search('alpha').startswith('none of the 3 registered tools fits')", "True"),
            ("print(search('').splitlines()[0])", "3 tools: one 2, two 1"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_package_called_like_a_function_of_ours_can_be_called_like_it() {
    let place = Place::new();
    place.write("mcptools/own/__init__.py", "value = 7");
    let mut ipybox = place.ipybox().await;
    let code = "from mcptools import own, search\n(own.value, search.__name__)";
    assert_eq!(ipybox.cell(code).await.ok(), "(7, 'search')");
    ipybox.register("search", server("gamma")).await.ok();
    ipybox.register("batch", server("delta")).await.ok();
    all_say(
        &mut ipybox,
        &[
            ("from mcptools import batch, search\nfrom mcptools.search import gamma", "[no output]"),
            ("(search.__name__, search.gamma is gamma)", "('mcptools.search', True)"),
            ("print(search('gamma', limit=1).splitlines()[1])", "search.gamma: Does gamma."),
            ("with batch('two') as calls:\n    batch.delta.run(path='x')\nlen(calls)", "1"),
            ("from mcptools import own\n(callable(own), callable(search.gamma))", "(False, False)"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn wrong_searches_are_answered_with_what_is_wrong() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(SEARCH).await.ok();
    for (code, words) in [
        ("search('x', server='prob')", "no MCP server is registered as `prob`; did you mean `probe`?"),
        ("search('x', limit=0)", "`limit` must be 1 to 50, not 0"),
        ("search('x' * 2000)", "more than 1024 bytes"),
        ("search('x' * 1_000_000)", "413"),
        ("search(5)", "expected a string"),
        (
            "from ipybox_runtime import ask_host; ask_host('/search', {'query': 'x', 'workspace': '/'})",
            "unknown field",
        ),
    ] {
        let text = ipybox.cell(code).await.error();
        assert!(text.contains(words) && !text.contains("ask_host(\"/search\""), "{code}: {text}");
    }
    let text = ipybox.cell("del search\nsearch('x')").await.error();
    assert!(text.ends_with("hint: `from mcptools import search`"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_answer_has_nothing_of_how_a_server_is_started() {
    let place = Place::new();
    place.write(".env", "PROBE_KEY=s3cret-value\n");
    let mut ipybox = place.ipybox().await;
    let mut parameters = probe();
    parameters["env"] = json!({"KEY": "${PROBE_KEY}", "ADDRESS": "plain-value"});
    ipybox.register("probe", parameters).await.ok();
    let code = "for query in ('', 'probe.py', 'python', 'PROBE_KEY', 's3cret-value', 'plain value', 'echo add fail slow'):
    for limit in (1, 50): print(search(query, limit=limit))";
    let shown = ipybox.cell(&format!("{SEARCH}{code}")).await.ok();
    for secret in ["probe.py", "s3cret", "PROBE_KEY", "plain-value", "bin/python"] {
        // What was asked for is repeated.
        let shown =
            shown.replace(&format!("`{secret}`"), "").replace("`s3cret-value`", "").replace("`s3cret`", "");
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn many_tools_are_counted_by_the_words_of_their_names() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let names: Vec<_> = ["issue", "branch", "release"]
        .iter()
        .flat_map(|thing| (0..7).map(move |number| format!("{thing}_number{number}")))
        .collect();
    let answer = ipybox.register("hub", server(&names.join(" "))).await.ok();
    assert!(answer.starts_with("21 tools in `mcptools.hub`, by the words of their names: "), "{answer}");
    for words in ["branch 7", "issue 7", "release 7", "search(\"what to do\", server=\"hub\")"] {
        assert!(answer.contains(words), "{answer}");
    }
    let found = ipybox.cell(&format!("{SEARCH}search('release number5')")).await.ok();
    assert!(found.contains("hub.release_number5.run(path: str, depth: int = 2) -> "), "{found}");
    ipybox.stop().await;
}

#[tokio::test]
async fn child_processes_search_too() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "import subprocess, sys
print(subprocess.check_output([sys.executable, '-c', 'from mcptools import search; print(search(\"add\", limit=1))'], text=True))";
    let found = ipybox.cell(code).await.ok();
    assert!(found.contains("\nprobe.add: Adds two numbers.\n"), "{found}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_shell_searches_what_a_session_has_registered() {
    let place = Place::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.arg("search").args(arguments).arg("--workspace").arg(place.workspace());
        let output = command.arg("--state-dir").arg(place.states()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    assert!(run(&["add"]).1.starts_with("no MCP server is registered"));
    assert!(!place.states().exists());
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    ipybox.initialize().await;
    ipybox.register("probe", probe()).await.ok();
    let hub = json!({"command": tool("mcp1/bin/python"), "args": [test_server("hub.py")]});
    ipybox.register("hub", hub).await.ok();
    let found = ipybox.cell(&format!("{SEARCH}search('commits of a branch')")).await.ok();
    assert!(found.contains("hub.list_commits.run(owner: str, repo: str, "), "{found}");
    assert_eq!(run(&["commits of", "a branch"]), (true, found, String::new()));
    let one = run(&["add", "--server", "probe", "--limit", "1"]).1;
    assert!(one.contains("\nprobe.add: Adds two numbers.\n"), "{one}");
    let listed = run(&[]).1;
    assert!(listed.contains("hub ") && listed.contains("probe 8"), "{listed}");
    let (is_well, _, error) = run(&["add", "--server", "prob"]);
    assert!(!is_well && error.ends_with("did you mean `probe`?"), "{error}");
    ipybox.stop().await;
}
