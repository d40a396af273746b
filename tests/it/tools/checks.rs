//! Cells that call tools wrongly: nothing of them runs.

use crate::support::{Ipybox, Place, probe};

/// The beginning of a cell that would leave something behind.
const DONE: &str = "import pathlib\npathlib.Path('done.txt').write_text('x')\n";

async fn with_probe(place: &Place) -> Ipybox {
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    ipybox
}

/// Whether the cell has run, as far as its first effect.
fn has_begun(place: &Place) -> bool {
    std::fs::remove_file(place.workspace().join("done.txt")).is_ok()
}

#[tokio::test]
async fn wrong_names_and_arguments_are_told_before_anything_runs() {
    let place = Place::new();
    let mut ipybox = with_probe(&place).await;
    for (code, words) in [
        ("from mcptools import prob", ["no MCP server `prob`", "did you mean `probe`?"]),
        ("from mcptools.probe import ehco", ["`probe` has no tool `ehco`", "probe.echo.run(text: str)"]),
        (
            "from mcptools import probe\nprobe.ehco.run(text='x')",
            ["line 4: `probe.ehco`", "did you mean `echo`?"],
        ),
        (
            "import mcptools.probe.echo as say\nsay.rnu(text='x')",
            ["`probe.echo` has no `rnu`", "run(text: str)"],
        ),
        ("from mcptools.probe import echo\necho(text='x')", ["function of its module", "`echo.run(...)`"]),
        (
            "from mcptools.probe import echo\necho.run(txt='x')",
            ["it needs `text`; `txt` is none", "did you mean `text`?"],
        ),
        ("from mcptools.probe.add import run\nrun(b=1)", ["line 4: `run(b=1)`", "it needs `a`"]),
        (
            "from mcptools.probe import add\nadd.run(1, 2)",
            ["arguments have names", "add.run(a: int, b: int = 5)"],
        ),
        ("from mcptools.probe import add\nawait add.run_async(c=1)", ["it needs `a`", "add.run("]),
        (
            "from mcptools.probe import add\nr = add.run(a=1)\nr['total']",
            ["no items by name", "attributes: `total`, `terms`"],
        ),
        ("from mcptools.probe import echo\necho.run(text='x').content", ["has no `content`", "it is text"]),
        (
            "from mcptools.probe import add\ndef f():\n    return add.run(x=1)\nf()",
            ["line 5: `add.run(x=1)`", "it needs `a`"],
        ),
    ] {
        let error = ipybox.cell(&format!("{DONE}{code}")).await.error();
        for word in ["nothing of this cell has run"].iter().chain(&words) {
            assert!(error.contains(word), "{code}\nlacks {word:?}:\n{error}");
        }
        assert!(!has_begun(&place), "{code}");
    }
    // Calls within the faulty one are made before it.
    ipybox.cell("from mcptools.probe import add, echo\nimport pathlib").await.ok();
    for code in [
        "echo.run(txt=pathlib.Path('done.txt').write_text('x'))",
        "add.run(pathlib.Path('done.txt').write_text('x'), 2)",
        "echo.run(text=str(pathlib.Path('done.txt').write_text('x'))).content",
    ] {
        let error = ipybox.cell(code).await.error();
        assert!(error.contains("nothing of this cell has run") && !has_begun(&place), "{code}\n{error}");
    }
    // All faults are told at once, and the modules of earlier cells are known.
    ipybox.cell("from mcptools.probe import add, echo").await.ok();
    let error =
        ipybox.cell(&format!("{DONE}add.run()\necho.run()\n{}", "echo.rnu\n".repeat(9))).await.error();
    assert!(error.contains("line 3") && error.contains("line 4") && error.contains("and 6 more"), "{error}");
    assert!(!has_begun(&place));
    ipybox.stop().await;
}

#[tokio::test]
async fn what_cannot_be_known_is_left_to_python() {
    let place = Place::new();
    let mut ipybox = with_probe(&place).await;
    for code in [
        "try:\n    from mcptools import prob\nexcept ImportError:\n    pass",
        "from mcptools import probe\nimport contextlib\nwith contextlib.suppress(AttributeError):\n    probe.nope",
        "from mcptools import probe\nif hasattr(probe, 'nope'):\n    probe.nope.run()",
        "from mcptools.probe import add\nadd = len\nadd('x')",
        "def add(): pass\nadd()\nfrom mcptools.probe import add\nadd.run(a=1)",
        "from mcptools.probe import echo\ndef f(echo):\n    return echo.rnu\nimport types\nf(types.SimpleNamespace(rnu=1))",
        "from mcptools.probe import add\nadd.run(**{'a': 1})",
        "from mcptools.probe import add\nadd.run(*[add.Params(a=1)])",
        "from mcptools.probe import add\nadd.run(params=add.Params(a=1))",
        "from mcptools.probe import add\nadd.run(add.Params(a=1, more=2))",
        "def later():\n    from mcptools import registered_later\n    return registered_later.tool.run()",
        "from mcptools import batch, search\nfrom mcptools.probe import add\nwith batch('sums'):\n    r = add.run(a=1)\nr.result().total",
        "from mcptools.probe import echo\nr = echo.run(text='x')\nr.upper(), r.value, r.structured, r.blocks, r[0], r[:1]",
        "import mcptools\nfrom mcptools.probe import add\nwith mcptools.batch('sums'):\n    r = add.run(a=1)\nr.result().total",
        "from ipybox_runtime import infer_result\nfrom mcptools.probe import echo\n\
         _ = infer_result(echo, echo.run(text='[1]'))\necho.run_parsed(text='[2]')",
        "import mcptools.probe\nmcptools.probe.CLIENT, mcptools.probe.__doc__, mcptools.probe.add.Result",
        "from mcptools.probe import echo\necho.mine = 1\necho.run = lambda: 2\necho.run()",
        "import os\nos.makedirs('mcptools/own', exist_ok=True)\nopen('mcptools/own/__init__.py', 'w').write('x = 1')\n\
         import importlib\nimportlib.invalidate_caches()\nfrom mcptools.own import x",
    ] {
        let answer = ipybox.cell(&format!("{DONE}{code}")).await;
        assert!(!answer.text.contains("nothing of this cell has run"), "{code}\n{}", answer.text);
        answer.ok();
        assert!(has_begun(&place), "{code}");
        ipybox.reset().await;
    }
    // Earlier cells have put something of their own there.
    let replaced = "from mcptools import probe\nprobe.mine = probe.add.mine = 1\nkept = probe.add.run\n\
                    probe.add.run = lambda b: kept(a=b)";
    ipybox.cell(replaced).await.ok();
    let answer =
        ipybox.cell(&format!("{DONE}probe.mine, probe.add.mine, probe.add.run(b=3).total")).await.ok();
    assert!(answer.ends_with("(1, 1, 8)"), "{answer}");
    ipybox.reset().await;
    // Python's own error has its traceback, where nothing would be left undone.
    let error = ipybox.cell("from mcptools.probe import add\nadd.run()").await.error();
    assert!(error.contains("ValidationError") && error.contains("line 2"), "{error}");
    ipybox.stop().await;
}
