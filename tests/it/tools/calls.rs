//! Tool calls from Python: every way in which code can make them, and how they fail.

use serde_json::json;

use crate::support::{Place, eventually, is_running, probe, tool};

#[tokio::test]
pub(crate) async fn tools_are_called_from_every_kind_of_code() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("from mcptools.probe import add, echo, fail, slow").await.ok();
    for (code, expected) in [
        ("echo.run(echo.Params(text='é'))", "'é'"),
        ("add.run(add.Params(a=1)).total", "6"),
        ("add.run(add.Params(a=1, b=2)).terms", "[1, 2]"),
        (
            "import threading\nsums = []\n\
             threads = [threading.Thread(target=lambda i=i: sums.append(add.run(add.Params(a=i, b=0)).total)) for i in range(20)]\n\
             for thread in threads: thread.start()\nfor thread in threads: thread.join()\nsorted(sums) == list(range(20))",
            "True",
        ),
        (
            "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n    print(pool.map(lambda_free := echo.run, [echo.Params(text='a'), echo.Params(text='b')]))",
            "['a', 'b']",
        ),
        (
            "!python -c \"from mcptools.probe import echo; print(echo.run(echo.Params(text='child')))\"",
            "child",
        ),
        (
            "import cloudpickle, mcptools, sys\nfrom mcptools import probe\n\
             def call(): return echo.run(text='a'), probe.echo.run(text='b'), mcptools.probe.echo.run(text='c')\n\
             load = 'import pickle, sys; print(pickle.load(sys.stdin.buffer)())'\n\
             import subprocess; end = subprocess.run([sys.executable, '-c', load], input=cloudpickle.dumps(call))",
            "('a', 'b', 'c')",
        ),
        ("await echo.run_async(echo.Params(text='async'))", "'async'"),
        (
            "try:\n    echo.run(text='\\udcff')\nexcept Exception as error:\n    print(type(error).__name__, 'no Unicode' in str(error))",
            "ToolRunnerError True",
        ),
        (
            "try:\n    add.run(a=2**64, b=1)\nexcept Exception as error:\n    print(error)",
            "`a` has more than 64 bits: it would arrive as another number. Send it as text, if the server takes that",
        ),
        ("add.run(a=2**63 - 2, b=1).total == 2**63 - 1", "True"),
        (
            "import warnings\nwarnings.simplefilter('ignore')\n\
             try:\n    add.run(a=1, x={'y': [1, float('nan')]})\nexcept Exception as error:\n    print(error)",
            "`x.y[1]` is nan, a number that JSON does not have",
        ),
    ] {
        assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn asynchronous_calls_do_not_block_the_loop() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    // The ticks prove that the loop went on, and the end of the cell that the calls ran at the same time: one after the
    // other they take 300 seconds, and a cell has 120.
    let code = "
import asyncio
from mcptools.probe import slow
ticks = 0
async def tick():
    global ticks
    while True:
        await asyncio.sleep(0.01); ticks += 1
ticking = asyncio.create_task(tick())
answers = await asyncio.gather(*[slow.run_async(slow.Params(seconds=10)) for _ in range(30)])
ticking.cancel()
print(len(answers), ticks > 10)";
    assert_eq!(ipybox.cell(code).await.ok(), "30 True");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_request_of_a_server_that_is_not_supported_fails_with_what_would_help() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel
class Answer(BaseModel):
    yes: bool
server = FastMCP('asks', log_level='CRITICAL')
@server.tool()
async def sample(context: Context) -> str:
    text = TextContent(type='text', text='Hello?')
    return str(await context.session.create_message([SamplingMessage(role='user', content=text)], max_tokens=5))
@server.tool()
async def elicit(context: Context) -> str:
    return str(await context.elicit('Sure?', Answer))
@server.tool()
async def roots(context: Context) -> str:
    return str(await context.session.list_roots())
server.run()";
    let asking = json!({"command": tool("mcp1/bin/python"), "args": ["-c", code]});
    ipybox.register("asks", asking).await.ok();
    for (name, words) in [
        ("sample", "lends servers no language model (sampling). Use a tool that needs none"),
        ("elicit", "nobody can be asked: the MCP client does not support elicitation"),
        ("roots", "offers servers no directories (roots). Give them in the server's `args` or `env`"),
    ] {
        let shown = ipybox.cell(&format!("from mcptools.asks import {name}\n{name}.run()")).await.error();
        assert!(shown.contains(words), "{shown}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn work_in_the_background_outlives_the_cells_that_wait_for_it() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "import asyncio\nfrom mcptools.probe import slow\nsaid = []\n\
                async def work():\n    said.append(await slow.run_async(seconds=30))\n    print('done')\n\
                task = asyncio.create_task(work())";
    assert_eq!(ipybox.cell(code).await.ok(), "[no output]");
    let waiting = json!({"code": "await asyncio.wait([task])", "timeout": 0.5});
    let text = ipybox.call("execute_ipython_cell", waiting).await.error();
    assert!(text.starts_with("Execution timed out"), "{text}");
    let shown = ipybox.cell("await asyncio.wait([task], timeout=280)\nsaid").await.ok();
    assert!(shown.contains("done\n") && shown.ends_with("['slept 30.0 s']"), "{shown}");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn errors_of_tools_become_python_exceptions() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "
from mcptools.probe import CLIENT, ToolRunnerError, fail
try: fail.run(fail.Params(reason='of the weather'))
except ToolRunnerError as error: print(error)
try: CLIENT.run_sync(tool_name='no_such_tool', tool_args={})
except ToolRunnerError as error: print(error)";
    let text = ipybox.cell(code).await.ok();
    assert!(text.contains("failed: of the weather"), "{text}");
    assert!(text.contains("no_such_tool"), "{text}");
    let text = ipybox.cell("fail.run(fail.Params())").await.error();
    assert!(text.contains("ToolRunnerError") && text.contains("failed: asked to"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_is_reported_and_connected_again() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let text = ipybox.cell("from mcptools.probe import crash, echo\ncrash.run(crash.Params())").await.error();
    assert!(text.contains("ToolRunnerError") && text.contains("crashing as asked"), "{text}");
    assert_eq!(ipybox.cell("echo.run(echo.Params(text='again'))").await.ok(), "'again'");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_reset_closes_connections_and_the_next_call_opens_them() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "from mcptools.probe import pid\nprint(pid.run(pid.Params()))";
    let before: i32 = ipybox.cell(code).await.ok().parse().unwrap();
    assert_eq!(ipybox.cell(code).await.ok(), before.to_string(), "one connection serves all calls");
    ipybox.reset().await;
    eventually("the server is gone", || !is_running(before)).await;
    assert_ne!(ipybox.cell(code).await.ok(), before.to_string());
    ipybox.stop().await;
}

#[tokio::test]
async fn registered_servers_work_after_a_restart() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.stop().await;
    let mut ipybox = place.ipybox().await;
    let code = "from mcptools.probe import echo\necho.run(echo.Params(text='still'))";
    assert_eq!(ipybox.cell(code).await.ok(), "'still'");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn interrupting_a_cell_ends_its_call_and_not_the_connection() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("from mcptools.probe import slow, echo").await.ok();
    for call in ["slow.run(slow.Params(seconds=600))", "await slow.run_async(slow.Params(seconds=600))"] {
        let arguments = json!({"code": call, "timeout": 1});
        let text = ipybox.call("execute_ipython_cell", arguments).await.error();
        assert!(text.contains("timed out") && text.contains("still there"), "{text}");
        assert_eq!(ipybox.cell("echo.run(echo.Params(text='fine'))").await.ok(), "'fine'");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn large_arguments_and_results_pass() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "from mcptools.probe import big, echo\n\
                len(big.run(big.Params(characters=20_000_000))), len(echo.run(echo.Params(text='é' * 5_000_000)))";
    assert_eq!(ipybox.cell(code).await.ok(), "(20000000, 5000000)");
    ipybox.stop().await;
}

#[tokio::test]
async fn generated_code_is_found_from_every_directory() {
    let place = Place::new();
    place.write("sub/script.py", "from mcptools.probe import echo\nprint(echo.run(text='from a script'))");
    // A file that would hide a module of the standard library if the workspace came before it.
    place.write("random.py", "raise ImportError('not this one')");
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(ipybox.cell("!python sub/script.py").await.ok(), "from a script");
    let code = "import os; os.chdir('/')\nfrom mcptools.probe import echo\necho.run(text='from afar')";
    assert_eq!(ipybox.cell(code).await.ok(), "'from afar'");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_reset_does_not_wait_for_a_server_that_does_not_answer() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.reset().await;
    // From now on the server says nothing.
    let registry =
        std::fs::read_dir(place.states().join("workspaces")).unwrap().next().unwrap().unwrap().path();
    let registry = registry.join("servers.json");
    let text = std::fs::read_to_string(&registry).unwrap();
    let silent = text
        .replace(probe()["command"].as_str().unwrap(), "/bin/sleep")
        .replace(&probe()["args"][0].to_string(), "\"600\"");
    std::fs::write(&registry, silent.replace("\"--transport\"", "\"0\"").replace("\"stdio\"", "\"0\""))
        .unwrap();
    let calling =
        ipybox.start_cell("from mcptools.probe import echo\nopen('started', 'w')\necho.run(text='x')").await;
    let started = place.workspace().join("started");
    eventually("the call is under way", || started.exists()).await;
    ipybox.reset().await;
    calling.answer().await.error();
    ipybox.stop().await;
}
