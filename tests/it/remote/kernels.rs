//! What only sessions with remote kernels have.

use ipybox::{CodeExecutionEvent, CodeExecutor, KernelClient};
use serde_json::json;

use super::session::{start, with_tools};
use crate::support::jupyter::{Jupyter, Server, TOKEN};
use crate::support::{Place, probe, tool};

#[tokio::test]
async fn tools_are_called_from_code_but_not_from_child_processes() {
    for (server, kernel) in [(Server::JupyterServer, "python3"), (Server::EnterpriseGateway, "ipykernel6")] {
        let place = Place::new();
        let jupyter = Jupyter::shared(server).await;
        let mut ipybox = with_tools(&place, jupyter.url(), &["--kernel-name", kernel]).await;
        for (code, expected) in [
            ("echo.run(echo.Params(text='é'))", "'é'"),
            ("add.run(a=1, b=2).terms", "[1, 2]"),
            (
                "import threading\nsums = []\n\
                 threads = [threading.Thread(target=lambda i=i: sums.append(add.run(a=i, b=0).total)) for i in range(20)]\n\
                 for thread in threads: thread.start()\nfor thread in threads: thread.join()\n\
                 sorted(sums) == list(range(20))",
                "True",
            ),
            (
                "import asyncio\n\
                 sums = await asyncio.gather(*[add.run_async(add.Params(a=i, b=0)) for i in range(100)])\n\
                 [sum.total for sum in sums] == list(range(100))",
                "True",
            ),
        ] {
            assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
        }
        let forked = "import multiprocessing\n\
             def call(_):\n    try:\n        return add.run(a=1, b=1).total\n    except Exception as error:\n        \
             return f'{type(error).__name__}: {error}'\n\
             with multiprocessing.get_context('fork').Pool(1) as pool:\n    print(pool.map(call, [0])[0])";
        let said = ipybox.cell(forked).await.ok();
        assert!(
            said.starts_with("ToolRunnerError: tools can be called in the kernel's own process only"),
            "{said}"
        );
        let said = ipybox.cell("import sys\n!{sys.executable} -c 'import mcptools.probe'").await.ok();
        assert!(said.contains("mcptools can be imported in the kernel's own process only"), "{said}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn the_workspaces_packages_are_imported_as_they_are_now() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::JupyterServer).await;
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    let error = ipybox.cell("import gentools").await.error();
    assert!(error.ends_with("ModuleNotFoundError: No module named 'gentools'"), "{error}");
    place.write("gentools/report/__init__.py", "");
    place.write("gentools/report/api.py", "def run():\n    return 'first'\n");
    place.write("mcpparse/probe.py", "PARSED = 1\n");
    std::os::unix::fs::symlink("../.env", place.workspace().join("gentools/leak.py")).unwrap();
    place.write(".env", "SECRET = 'secret'\n");
    for (code, expected) in [
        ("import gentools.report.api as api, mcpparse.probe\napi.run()", "'first'"),
        ("import inspect\nprint(inspect.getsource(api), end='')", "def run():\n    return 'first'"),
        (
            "import pkgutil, gentools\n[module.name for module in pkgutil.iter_modules(gentools.__path__)]",
            "['report']",
        ),
        ("import os\nos.path.exists('gentools')", "False"),
    ] {
        assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
    }
    let error = ipybox.cell("import gentools.leak").await.error();
    assert!(error.ends_with("No module named 'gentools.leak'"), "{error}");
    // What is written later is found without a word from us, and what is changed by loading it again.
    place.write("gentools/report/later.py", "LATER = True\n");
    assert_eq!(ipybox.cell("from gentools.report.later import LATER\nLATER").await.ok(), "True");
    place.write("gentools/report/api.py", "def run():\n    return 'second'\n");
    assert_eq!(ipybox.cell("import importlib\nimportlib.reload(api).run()").await.ok(), "'second'");
    assert!(ipybox.cell("inspect.getsource(api.run)").await.ok().contains("second"));
    ipybox.stop().await;
}

#[tokio::test]
async fn calls_are_decided_and_recorded_as_ever() {
    let place = Place::new();
    let log = place.temporary().parent().unwrap().join("audit.jsonl");
    let jupyter = Jupyter::shared(Server::KernelGateway).await;
    let flags = ["--approval", "ask", "--audit-log", log.to_str().unwrap()];
    let mut ipybox = start(&place, jupyter.url(), &flags).await;
    let params = json!({"server_name": "probe", "server_params": probe()});
    let registration = ipybox.start_call("register_mcp_server", params).await;
    ipybox.decide("allow once").await;
    registration.answer().await.ok();
    let cell = ipybox.start_cell("from mcptools.probe import add\nadd.run(a=1, b=2).total").await;
    let question = ipybox.decide("allow once").await;
    assert!(question.contains("probe.add") && question.contains('1'), "{question}");
    assert_eq!(cell.answer().await.ok(), "3");
    let cell = ipybox.start_cell("add.run(a=5)").await;
    ipybox.decide("deny").await;
    assert!(cell.answer().await.error().contains("ApprovalRejectedError"));
    ipybox.stop().await;
    let recorded = std::fs::read_to_string(log).unwrap();
    assert!(recorded.contains("\"a\":1") && recorded.contains("\"a\":5"), "{recorded}");
    assert!(!recorded.contains(TOKEN), "{recorded}");
}

#[tokio::test]
async fn shell_commands_are_asked_for_and_nothing_else_starts() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::JupyterServer).await;
    let flags = ["--approval", "ask", "--approve-shell-cmds", "--require-shell-escape"];
    let mut ipybox = start(&place, jupyter.url(), &flags).await;
    let cell = ipybox.start_cell("!echo $((6 * 7))").await;
    assert!(ipybox.decide("allow once").await.contains("echo $((6 * 7))"));
    assert_eq!(cell.answer().await.ok(), "42");
    let error = ipybox.cell("import subprocess\nsubprocess.run(['true'])").await.error();
    assert!(error.contains("ProcessBlockedError"), "{error}");
    ipybox.stop().await;
}

#[tokio::test]
async fn packages_are_installed_where_the_kernel_is() {
    let place = Place::new();
    let target = place.temporary().join("venv");
    let made =
        std::process::Command::new(tool("kernel/bin/python")).args(["-m", "venv"]).arg(&target).status();
    assert!(made.unwrap().success());
    let python = target.join("bin/python");
    let packages = std::process::Command::new(tool("kernel/bin/python"))
        .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        .output()
        .unwrap();
    let packages = String::from_utf8(packages.stdout).unwrap();
    // The venv's own pip, and the packages of the environment that the tests have.
    let bootstrap = format!(
        "import site, runpy; site.addsitedir({:?}); runpy.run_module('ipykernel_launcher', run_name='__main__')",
        packages.trim()
    );
    let argv = [python.to_str().unwrap(), "-c", &bootstrap, "-f", "{connection_file}"];
    let jupyter = Jupyter::of(Server::JupyterServer).spec("venv", &argv).start().await;
    let mut ipybox = start(&place, jupyter.url(), &["--kernel-name", "venv"]).await;
    let said = ipybox.install("six").await.ok();
    assert!(said.starts_with("Installed six ") && said.contains("\nOn "), "{said}");
    assert!(said.contains(target.to_str().unwrap()) && said.lines().count() == 2, "{said}");
    let said = ipybox.call("install_package", json!({"package_name": ["six", "toolz"]})).await.ok();
    assert!(said.starts_with("Installed toolz ") && said.contains("; already there: six 1"), "{said}");
    let found = ipybox.cell("import six\nsix.__file__").await.ok();
    assert!(found.contains(target.to_str().unwrap()), "{found}");
    let error = ipybox.install("no-such-package-of-anybody").await.error();
    assert!(
        error.contains("install `no-such-package-of-anybody`") && error.contains("No matching"),
        "{error}"
    );
    let error = ipybox.install("./local").await.error();
    assert!(error.contains("which does not have the files of this machine"), "{error}");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_library_runs_remote_kernels() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::KernelGateway).await;
    let executor = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .kernel_gateway_url(jupyter.url())
        .kernel_gateway_token(TOKEN)
        .kernel_name("python3")
        .start()
        .await
        .unwrap();
    executor.register_mcp_server("probe", &probe()).await.unwrap();
    let mut execution = executor.stream("from mcptools.probe import add\nadd.run(a=1, b=2).total");
    let (mut asked, mut result) = (0, None);
    while let Some(event) = execution.next().await {
        match event.unwrap() {
            CodeExecutionEvent::ApprovalRequest(request) => {
                asked += 1;
                request.accept();
            }
            CodeExecutionEvent::Result(end) => result = end.text,
            _ => {}
        }
    }
    assert_eq!((asked, result.as_deref()), (1, Some("3")));
    executor.reset().await.unwrap();
    assert!(executor.execute("add").await.is_err());
    executor.stop().await;
    let client = KernelClient::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .kernel_gateway_url(jupyter.url())
        .kernel_gateway_token(TOKEN)
        .start()
        .await
        .unwrap();
    assert_eq!(client.execute("1 + 1").await.unwrap().text.as_deref(), Some("2"));
    let error = client.execute("from mcptools.probe import add\nadd.run(a=1)").await.unwrap_err();
    assert!(error.to_string().contains("has no tools"), "{error}");
    client.stop().await;
}

#[tokio::test]
async fn help_and_debuggers_are_as_on_this_machine() {
    let place = Place::new();
    for (server, kernel) in [(Server::KernelGateway, "python3"), (Server::EnterpriseGateway, "ipykernel6")] {
        let jupyter = Jupyter::shared(server).await;
        let mut ipybox = start(&place, jupyter.url(), &["--kernel-name", kernel]).await;
        assert!(ipybox.cell("len?").await.ok().contains("Return the number of items"));
        for (code, expected) in
            [("breakpoint()", "nobody can give commands to a debugger"), ("input()", "gets no input")]
        {
            let error = ipybox.cell(code).await.error();
            assert!(error.contains(expected), "{code}: {error}");
        }
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn a_remote_kernel_is_not_copied() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::JupyterServer).await;
    let mut ipybox = start(&place, jupyter.url(), &[]).await;
    ipybox.cell("x = 1").await.ok();
    let copy = json!({"code": "x", "session": "copy"});
    let refused = ipybox.call("execute_ipython_cell", copy).await.error();
    assert!(refused.contains("only kernels of ipybox's own can be copied"), "{refused}");
    let refused = ipybox.call("reset", json!({"cells": 1})).await.error();
    assert!(refused.contains("a Jupyter server runs the kernel"), "{refused}");
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_action_is_saved_with_a_test_in_another_kernel_of_the_same_server() {
    let place = Place::new();
    let jupyter = Jupyter::shared(Server::JupyterServer).await;
    let mut ipybox = with_tools(&place, jupyter.url(), &[]).await;
    let code = "from mcptools import save\ndef total(numbers: list[int]) -> int:\n    'Add the numbers up.'\n\
                \x20   return sum(add.run(a=number, b=0).total for number in numbers)\ntotal([2, 3])";
    assert_eq!(ipybox.cell(code).await.ok(), "5");
    let answer = ipybox.cell("save(total, category='sums')").await.ok();
    assert!(
        answer.contains("`gentools.sums.total`, version 1, tested with 2 recorded calls")
            && answer.ends_with("its example returned 5"),
        "{answer}"
    );
    assert_eq!(ipybox.cell("from gentools.sums import total as saved\nsaved.run([4])").await.ok(), "4");
    // One that is written by hand is read through the session, too.
    place.write("gentools/sums/one/__init__.py", "from .api import run\n");
    place.write(
        "gentools/sums/one/api.py",
        "def run() -> int:\n    \"\"\"One.\"\"\"\n    from .impl import one\n\n    return one\n",
    );
    place.write("gentools/sums/one/impl.py", "one = 1\n");
    let answer = ipybox.cell("import gentools.sums.one\nsave(gentools.sums.one, example={})").await.ok();
    assert!(answer.ends_with("its example returned 1"), "{answer}");
    let error = ipybox
        .cell("def wrong() -> int:\n    'Fails.'\n    return 1 // 0\nsave(wrong, 'sums', {})")
        .await
        .error();
    assert!(error.contains("its test has not passed: ZeroDivisionError"), "{error}");
    ipybox.stop().await;
}
