//! What an agent reads of exceptions: the message, the user's own lines, and help with names that are wrong.

use serde_json::json;

use crate::support::{Ipybox, Place, probe, tool};

/// What nobody who calls a tool wants to read.
const MACHINERY: &[&str] = &[
    "ipybox_runtime.py",
    "ipybox_shell.py",
    "_base.py",
    "probe/fail.py",
    "pydantic/main.py",
    "http/client.py",
    "concurrent/futures",
    "errors.pydantic.dev",
    "/ipykernel_",
];

async fn with_probe(place: &Place) -> Ipybox {
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox
        .cell("import asyncio, json, threading, traceback\nfrom mcptools.probe import add, echo, fail")
        .await
        .ok();
    ipybox
}

/// Runs cells. What is shown of the exception of each has all these words, in this order, and no machinery.
async fn all_show(ipybox: &mut Ipybox, cells: &[(&str, &[&str])]) {
    for (code, words) in cells {
        let shown = ipybox.cell(code).await.text;
        let mut rest = shown.as_str();
        for word in *words {
            let Some((_, after)) = rest.split_once(word) else { panic!("{code}\nlacks {word:?}:\n{shown}") };
            rest = after;
        }
        for word in MACHINERY {
            assert!(!shown.contains(word), "{code}\nshows {word}:\n{shown}");
        }
    }
}

#[tokio::test]
pub(crate) async fn a_failed_call_shows_its_message_and_the_lines_of_the_users_code() {
    let place = Place::new();
    let mut ipybox = with_probe(&place).await;
    let shown = ipybox.cell("x = 1\nfail.run(reason='of the weather')").await.error();
    let (_, shown) = shown.split_once("line 2\n").unwrap();
    assert_eq!(
        shown,
        "      1 x = 1\n----> 2 fail.run(reason='of the weather')\n\n\
         ToolRunnerError: Error executing tool fail: failed: of the weather"
    );
    all_show(
        &mut ipybox,
        &[
            ("def f(x):\n    y = x\n    return fail.run()\ndef g():\n    return f(1)\ng()", &[
                "line 6", "----> 6 g()", "in g()", "----> 5     return f(1)", "in f(x)",
                "----> 3     return fail.run()", "ToolRunnerError: ",
            ]),
            ("await fail.run_async()", &["----> 1 await fail.run_async()", "ToolRunnerError: "]),
            ("await asyncio.gather(echo.run_async(text='a'), fail.run_async())", &["----> 1 await", "ToolRunnerError: "]),
            ("async def main():\n    await fail.run_async()\nawait asyncio.create_task(main())", &[
                "----> 3 await", "in main()", "----> 2     await fail", "ToolRunnerError: ",
            ]),
            ("from concurrent.futures import ThreadPoolExecutor\n\
              with ThreadPoolExecutor() as pool:\n    list(pool.map(lambda x: fail.run(), [1]))", &[
                "----> 3", "in <lambda>(x)", "ToolRunnerError: ",
            ]),
            ("thread = threading.Thread(target=lambda: fail.run())\nthread.start()\nthread.join()", &[
                "Exception in thread", "Cell In[", "line 1, in <lambda>", "thread = threading", "ToolRunnerError: ",
            ]),
            ("try:\n    fail.run()\nexcept Exception:\n    traceback.print_exc()", &[
                "Traceback (most recent call last):\n  File \"Cell In[", "line 2", "    fail.run()\n", "ToolRunnerError: ",
            ]),
            ("try:\n    fail.run()\nexcept Exception as error:\n    raise ValueError('no luck') from error", &[
                "ToolRunnerError: ", "direct cause", "----> 4", "ValueError: no luck",
            ]),
            ("%tb", &["ToolRunnerError: ", "direct cause", "----> 4", "ValueError: no luck"]),
            ("try:\n    {}['mine']\nexcept Exception:\n    fail.run()", &[
                "KeyError: 'mine'", "During handling", "----> 4", "ToolRunnerError: ",
            ]),
            ("echo.run(text=5)", &["----> 1 echo.run(text=5)", "ValidationError: 1 validation error for Params\ntext\n", "; it is called by mcptools.probe.echo.run(text: str) -> "]),
            ("def f():\n    return echo.Params(text=5)\nf()", &["----> 2", "ValidationError: 1 validation error for Params"]),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_group_of_exceptions_is_shown_as_the_cells_own() {
    let place = Place::new();
    let mut ipybox = with_probe(&place).await;
    ipybox.cell("1 / 0").await.error();
    let code = "async def call(reason):\n    await fail.run_async(reason=reason)\n\
                async with asyncio.TaskGroup() as group:\n    for reason in 'ab': group.create_task(call(reason))";
    all_show(
        &mut ipybox,
        &[(
            code,
            &[
                "line 3, in <module>",
                "line 2, in call",
                "await fail.run_async(reason=reason)",
                "ToolRunnerError: ",
            ],
        )],
    )
    .await;
    let shown = ipybox.cell("raise ExceptionGroup('both', [ValueError(1), KeyError(2)])").await.error();
    assert!(shown.contains("ExceptionGroup: both (2 sub-exceptions)"), "{shown}");
    assert!(!shown.contains("ZeroDivisionError") && !shown.contains("IPython"), "{shown}");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_repeats_the_message_is_left_out() {
    let place = Place::new();
    let mut ipybox = with_probe(&place).await;
    ipybox.cell("import os; os.environ['IPYBOX_TOOL_SERVER'] = '127.0.0.1:1'").await.ok();
    // A thread has a connection of its own.
    let in_thread = "def call():\n    echo.run(text='x')\n\
                     thread = threading.Thread(target=call); thread.start(); thread.join()";
    for code in ["await echo.run_async(text='x')", in_thread] {
        all_show(&mut ipybox, &[(code, &["ToolRunnerError: the tool server cannot be reached: "])]).await;
        let shown = ipybox.cell(code).await.text;
        assert!(!shown.contains("direct cause") && !shown.contains("ConnectionRefusedError"), "{shown}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn exceptions_of_other_code_say_where_they_were_raised() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    place.write("mine.py", "import json\ndef parse(text):\n    return json.loads(text)\n");
    for (code, words) in [
        // The user's frames, those of modules among them, and the last one of the library.
        (
            "import mine\nmine.parse('{')",
            &[
                "----> 2 mine.parse",
                "mine.py",
                "----> 3     return json.loads",
                "json/decoder.py",
                "JSONDecodeError: Expecting",
            ][..],
        ),
        (
            "import http.client\nhttp.client.HTTPConnection('127.0.0.1', 1).request('GET', '/')",
            &["----> 2", "socket.py", "Refused"],
        ),
        (
            "import json, concurrent.futures as futures\nwith futures.ThreadPoolExecutor() as pool:\n    pool.submit(json.loads, '{').result()",
            &["----> 3", "json/decoder.py", "JSONDecodeError"],
        ),
        ("sorted([1, 2], key=lambda x: x / 0)", &["----> 1", "in <lambda>(x)", "ZeroDivisionError"]),
        (
            "from pydantic import BaseModel\nclass M(BaseModel):\n    a: int\nM(a='x')",
            &["----> 4 M(a='x')", "1 validation error for M\na\n", "input_value='x'"],
        ),
        (
            "import traceback\ntry:\n    json.loads('{')\nexcept ValueError:\n    traceback.print_exc()",
            &["line 3", "in loads", "in decode", "in raw_decode", "JSONDecodeError"],
        ),
        (
            "class Frozen(Exception):\n    def __setattr__(self, *_): raise RuntimeError\nraise Frozen('it is')",
            &["----> 3 raise Frozen", "Frozen: it is"],
        ),
    ] {
        let shown = ipybox.cell(code).await.text;
        let mut rest = shown.as_str();
        for word in words {
            let Some((_, after)) = rest.split_once(word) else { panic!("{code}\nlacks {word:?}:\n{shown}") };
            rest = after;
        }
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn the_frame_of_a_library_is_one_line() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let shown = ipybox.cell("import pandas\npandas.read_csv('there_is_none.csv')").await.error();
    let (_, shown) = shown.split_once("----> 2 pandas.read_csv('there_is_none.csv')\n\n").unwrap();
    let lines = Vec::from_iter(shown.lines());
    let [place, "", message] = lines[..] else { panic!("{shown}") };
    assert!(place.starts_with("File pandas/io/common.py:") && place.ends_with(", in get_handle"), "{shown}");
    assert_eq!(message, "FileNotFoundError: [Errno 2] No such file or directory: 'there_is_none.csv'");
    let shown = ipybox.cell("%xmode Verbose\npandas.read_csv('there_is_none.csv')").await.error();
    assert!(shown.contains("path_or_buf="), "{shown}");
    ipybox.stop().await;
}

#[tokio::test]
async fn causes_within_libraries_are_shown_unless_the_message_quotes_them() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1/')";
    let shown = ipybox.cell(code).await.error();
    assert!(shown.contains("URLError: <urlopen error [Errno"), "{shown}");
    assert!(!shown.contains("During handling") && !shown.contains("socket.py"), "{shown}");
    place.write("mine.py", "def check(x):\n    raise ValueError('refused: it is wrong')");
    let code = "import mine\ntry: mine.check(1)\nexcept ValueError as error: raise RuntimeError(str(error)) from error";
    let shown = ipybox.cell(code).await.error();
    assert!(shown.contains("direct cause") && shown.contains("mine.py"), "{shown}");
    ipybox.stop().await;
}

#[tokio::test]
async fn nothing_is_lost_to_those_who_look_closer() {
    let place = Place::new();
    let mut ipybox = with_probe(&place).await;
    let code = "try:\n    fail.run()\nexcept Exception as error:\n    traceback.print_exc()\n    print(len(traceback.extract_tb(error.__traceback__)) > 2)";
    let shown = ipybox.cell(code).await.ok();
    assert!(shown.lines().any(|line| line == "True"), "{shown}");
    ipybox.cell("%xmode Verbose").await.ok();
    let shown = ipybox.cell("fail.run()").await.error();
    assert!(shown.contains("ipybox_runtime.py") && shown.contains("tool_name='fail'"), "{shown}");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn wrong_names_are_answered_with_the_right_ones() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let shown = ipybox.cell("import mcptools.probe").await.error();
    assert!(
        shown.ends_with("hint: no MCP server is registered; register one with `register_mcp_server`"),
        "{shown}"
    );
    ipybox.register("probe", probe()).await.ok();
    for (code, hint) in [
        ("import mcptools.prob", "did you mean `probe`? Registered MCP servers: `probe`"),
        ("from mcptools import weather", "registered MCP servers: `probe`"),
        ("import mcptools\nmcptools.weather", "registered MCP servers: `probe`"),
        (
            "from mcptools.probe import ecko",
            "did you mean `echo`? `mcptools.probe.echo.run(text: str) -> ToolResult`; `import mcptools.probe; print(mcptools.probe)` shows the 8 tools of `probe`",
        ),
        (
            "import mcptools.probe.weather",
            "`import mcptools.probe; print(mcptools.probe)` shows the 8 tools of `probe`",
        ),
        ("import probe", "the MCP server `probe` is imported by `from mcptools import probe`"),
        (
            "echo.run(text='a')",
            "a tool of a registered MCP server has this name: `from mcptools.probe import echo`; `mcptools.probe.echo.run(text: str) -> ToolResult`",
        ),
        (
            "def f(): return Echo\nf()",
            "a tool of a registered MCP server has this name: `from mcptools.probe import echo`; `mcptools.probe.echo.run(text: str) -> ToolResult`",
        ),
        ("probe", "the MCP server `probe` is imported by `from mcptools import probe`"),
        ("ToolRunnerError", "`from ipybox_runtime import ToolRunnerError`"),
        (
            "from mcptools.probe import echo as say\nsay(text='a')",
            "a tool is called by the function of its module: `say.run(...)`",
        ),
        (
            "from mcptools import probe\nprobe.echo(text='a')",
            "a tool is called by the function of its module: `probe.echo.run(...)`",
        ),
        (
            "from mcptools.probe import add\n[add.run(a=1, b=2)][0]['total']",
            "the fields of a tool's result are attributes, as in `result.field`: `total`, `terms`",
        ),
        (
            "'total' in add.run(a=1, b=2) or len(add.run(a=1, b=2))",
            "the fields of a tool's result are attributes, as in `result.field`: `total`, `terms`",
        ),
        (
            "from mcptools.probe import CLIENT\nCLIENT.run_sync(tool_name='eco', tool_args={})",
            "`probe` was registered without it; did you mean `echo`?",
        ),
        (
            "from ipybox_runtime import ToolRunner\nToolRunner('prob').run_sync('echo', {})",
            "did you mean `probe`? Registered are `probe`",
        ),
    ] {
        let shown = ipybox.cell(code).await.error();
        assert!(shown.ends_with(&format!("\nhint: {hint}")), "{code}\n{shown}");
    }
    for code in [
        "weather",
        "echoes",
        "import os; os.ekko",
        "from os import ekko",
        "None()",
        "import json; json.loads('{')",
        "print(x); x = 1",
        "{}['echo']",
        "class Own: pass\nOwn()['total']",
    ] {
        let shown = ipybox.cell(code).await.error();
        assert!(!shown.contains("hint:"), "{code}\n{shown}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_missing_package_is_named() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    place.write("src/of_the_workspace.py", "");
    place.write("uses_a_package.py", "import cv2");
    for (code, hint) in [
        ("import sklearn", r#"install_package("scikit-learn")"#),
        ("from Crypto.Cipher import AES", r#"install_package("pycryptodome")"#),
        ("import xarray as xr", r#"install_package("xarray")"#),
        ("def f():\n    from skimage.io import imread\nf()", r#"install_package("scikit-image")"#),
        ("import importlib; importlib.import_module('serial.tools')", r#"install_package("pyserial")"#),
        // Of a module that several packages share, and in a module of the workspace.
        ("import google.cloud.storage as storage", r#"install_package("google-cloud-storage")"#),
        ("from google.cloud import pubsub_v1", r#"install_package("google-cloud-pubsub")"#),
        ("from azure.storage.blob import BlobClient", r#"install_package("azure-storage-blob")"#),
        ("import uses_a_package", r#"install_package("opencv-python-headless")"#),
        // By what libraries say.
        ("import pandas; pandas.DataFrame({'a': [1]}).to_excel('a.xlsx')", r#"install_package("openpyxl")"#),
        ("pandas.DataFrame({'a': [1]}).to_hdf('a.h5', key='k')", r#"install_package("tables")"#),
        (
            "import altair; altair.Chart(pandas.DataFrame({'a': [1]})).mark_bar().save('a.png')",
            r#"install_package("vl-convert-python")"#,
        ),
        (
            "raise ImportError('This needs more: python -m pip install --upgrade \"dask[dataframe]\"')",
            r#"install_package("dask[dataframe]")"#,
        ),
        // No package will do.
        (
            "import of_the_workspace",
            "it is in `src/` of the workspace: `import sys; sys.path.insert(0, 'src')`",
        ),
        (
            "import msvcrt",
            "`msvcrt` belongs to Python's standard library, and is not in this build of it: no package brings it",
        ),
        ("import urllib2", "Python 3.0 and newer have no module `urllib2`: use `urllib.request`"),
        ("import numpyy", r#"did you mean `numpy`? If not, install_package("numpyy")"#),
    ] {
        let shown = ipybox.cell(code).await.error();
        assert!(shown.ends_with(&format!("\nhint: {hint}")), "{code}\n{shown}");
    }
    for code in [
        "import pandas.there_is_none",
        "from pandas import there_is_none",
        "import json.there_is_none",
        "import mcptools.there_is_none.either; 1",
        "raise ValueError('pip install foo')",
        "raise ImportError('try to pip install pandas')",
        "raise ImportError('no')",
    ] {
        let shown = ipybox.cell(code).await.error();
        assert!(!shown.contains("install_package"), "{code}\n{shown}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_package_that_changes_is_imported_anew() {
    let server = |names: &str, text: &str| {
        let code = format!(
            "from mcp.server.fastmcp import FastMCP\nserver = FastMCP('s', log_level='ERROR')\n\
             for name in {names:?}.split(): server.add_tool(lambda: {text:?}, name=name, description={text:?})\n\
             server.run()"
        );
        json!({"command": tool("mcp1/bin/python"), "args": ["-c", code]})
    };
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let answer = ipybox.register("s", server("one two", "old")).await.ok();
    let calls =
        "from mcptools import s\ns.one.run() -> ToolResult  # old\ns.two.run() -> ToolResult  # old\n";
    assert!(answer.starts_with(calls), "{answer}");
    ipybox.cell("from mcptools import s\nfrom mcptools.s import one, two").await.ok();
    // What has not changed stays what it is.
    ipybox.register("s", server("one two", "old")).await.ok();
    assert_eq!(ipybox.cell("from mcptools.s import one as again\nagain is one").await.ok(), "True");
    let answer = ipybox.register("s", server("one three", "new")).await.ok();
    assert!(
        answer.ends_with(
            "Import again what cells have imported from the package: names from before are the old modules."
        ),
        "{answer}"
    );
    let code =
        "from mcptools import s\nfrom mcptools.s import one, three\nprint('three' in s.__doc__, one.run())";
    assert_eq!(ipybox.cell(code).await.ok(), "True new");
    let shown = ipybox.cell("from mcptools.s import two").await.error();
    assert!(shown.contains("cannot import name 'two'"), "{shown}");
    // What we have the kernel do after registrations is not in its history.
    assert_eq!(ipybox.cell("len(In)").await.ok(), "6");
    ipybox.stop().await;
}
