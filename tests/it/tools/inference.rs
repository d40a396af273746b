//! Result types, inferred from what tools have returned.

use serde_json::json;

use crate::support::{Place, probe, tool};

/// What all cells here need. The tool `echo` returns just the text that it is given.
const IMPORTS: &str = "from ipybox_runtime import ToolRunnerError, UnexpectedResultError, infer_result
from mcptools.probe import echo";

#[tokio::test]
pub(crate) async fn results_get_a_type_that_outlasts_the_kernel_and_the_registration() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(IMPORTS).await.ok();
    let code = r#"
first = echo.run(text='{"items": [{"name": "a", "size": 1}, {"name": "b"}], "at": "2026-01-01"}')
print(infer_result(echo, first))"#;
    let classes = ipybox.cell(code).await.ok();
    let expected = "class ParseResult(ToolModel):\n    items: list[Item]\n    at: str  # format: date\n\n\n\
                    class Item(ToolModel):\n    name: str\n    size: Int | None = None";
    assert_eq!(classes.trim_end(), expected);
    let code = r#"
held = echo.run_parsed(text='{"items": [{"name": "c"}], "at": "2026-01-02"}')
later = await echo.run_parsed_async(text='{"items": [], "at": "2026-01-03"}')
print(type(held).__name__, held.items[0].name, held.items[0].size, later.at)"#;
    let printed = "ParseResult c None 2026-01-03";
    assert_eq!(ipybox.cell(code).await.ok(), printed);
    ipybox.reset().await;
    ipybox.cell(IMPORTS).await.ok();
    assert_eq!(ipybox.cell(code).await.ok(), printed, "after a reset");
    ipybox.register("probe", probe()).await.ok();
    ipybox.reset().await;
    ipybox.cell(IMPORTS).await.ok();
    assert_eq!(ipybox.cell(code).await.ok(), printed, "registered again");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn literals_of_python_have_a_type_too() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(IMPORTS).await.ok();
    // As servers of databases send rows: by `str`.
    let code = r#"
rows = "[{'id': 1, 'name': None, 'at': datetime.date(2026, 1, 2)}, {'id': 2, 'name': \"O'Brien\", 'at': None}]"
infer_result(echo, echo.run(text=rows))
print([(row.id, row.name, row.at) for row in echo.run_parsed(text=rows)])
try:
    infer_result(echo, "[{'id': __import__('os').getpid()}]")
except ToolRunnerError as error:
    print('holds no JSON' in str(error))"#;
    assert_eq!(ipybox.cell(code).await.ok(), "[(1, None, '2026-01-02'), (2, \"O'Brien\", None)]\nTrue");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_result_that_does_not_fit_is_not_lost_and_widens_the_type() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(IMPORTS).await.ok();
    let code = r#"
infer_result(echo, echo.run(text='[{"a": 1}]'))
other = '[{"a": "x"}, {"a": null}]'
try:
    echo.run_parsed(text=other)
except UnexpectedResultError as error:
    print("a" in str(error), error.result == other)
    infer_result(echo, error.result)
parsed = echo.run_parsed(text=other)
print([item.a for item in parsed], parsed[0].a, len(parsed))"#;
    assert_eq!(ipybox.cell(code).await.ok(), "True True\n['x', None] x 2");
    // As servers send lists: a text for each item.
    let code = r#"
infer_result(echo, '{"a": 1}\n{"a": 2}')
print([item.a for item in echo.run_parsed(text='{"a": 3}')], len(echo.run_parsed(text='{"a": 1}\n[{"a": 2}]')))"#;
    assert_eq!(ipybox.cell(code).await.ok(), "[3] 2");
    ipybox.stop().await;
}

#[tokio::test]
async fn results_without_a_type_to_infer_are_refused() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell(IMPORTS).await.ok();
    for (code, words) in [
        ("infer_result(echo)", "no results were given"),
        ("infer_result(echo, '{}', 'It is sunny.')", "result 2 holds no JSON object or array"),
        ("infer_result(echo.run, '{}')", "the first argument must be a tool's module"),
        (
            "import types; m = types.ModuleType('a.b'); m.CLIENT = echo.CLIENT; infer_result(m, '{}')",
            "no tool whose module is `b`",
        ),
        (
            "m.CLIENT = type(echo.CLIENT)('../x'); infer_result(m, '{}')",
            "the tools of the MCP server `../x` are not known",
        ),
        ("infer_result(echo, '[' + '1,' * 5_000_000 + '1]')", "413"),
        ("infer_result(echo, object())", "not JSON serializable"),
    ] {
        let text = ipybox.cell(code).await.error();
        assert!(text.contains(words), "{code}: {text}");
    }
    assert!(!place.read("mcptools/probe/echo.py").contains("run_parsed"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_real_servers_results_get_a_type() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("time", json!({"command": tool("servers/bin/mcp-server-time")})).await.ok();
    let code = r#"
from ipybox_runtime import infer_result
from mcptools.time import get_current_time
infer_result(get_current_time, *[get_current_time.run(timezone=zone) for zone in ("Asia/Tokyo", "Europe/Berlin")])
now = get_current_time.run_parsed(timezone="Asia/Tokyo")
print(now.timezone, now.is_dst, now.datetime[-6:])"#;
    assert_eq!(ipybox.cell(code).await.ok(), "Asia/Tokyo False +09:00");
    ipybox.stop().await;
}
