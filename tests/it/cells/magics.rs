//! Magics, help, history and `exit`, as someone expects them who knows IPython from a terminal.

use crate::support::{Place, all_fail, all_say};

#[tokio::test]
async fn magics_do_what_they_say() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("%%writefile square.py\ndef square(x): return x * x", "Writing square.py"),
            ("from square import square; square(3)", "9"),
            ("%%writefile -a square.py\ncube = lambda x: x ** 3", "Appending to square.py"),
            ("%%capture captured\nprint('captured'); display(1)", "[no output]"),
            ("captured.stdout, len(captured.outputs)", "('captured\\n', 1)"),
            ("%%bash\necho one\necho two >&2", "one\ntwo"),
            ("%%bash --out text\necho one", "[no output]"),
            ("text", "'one\\n'"),
            ("%%script cat\ninput", "input"),
            ("!exit 3", "[no output]"),
            ("_exit_code", "3"),
            ("lines = !echo one; echo two\nlines", "['one', 'two']"),
            ("word = 'brace'\n!echo {word} $word {word.upper()} $$HOME | cut -d/ -f1", "brace brace BRACE"),
            ("%who_ls str", "['text', 'word']"),
            ("6 * 7", "42"),
            ("_", "42"),
            ("6 * 7;", "[no output]"),
            ("%reset -f", "[no output]"),
            ("'word' in globals()", "False"),
            ("%load_ext autoreload\n%autoreload 2", "[no output]"),
            ("%matplotlib inline", "[no output]"),
        ],
    )
    .await;
    for (code, part) in [
        ("%timeit -n1 -r1 pass", "per loop"),
        ("len?", "Return the number of items in a container."),
        ("%prun sum([1])", "function calls"),
        ("%history", "square(3)"),
    ] {
        let text = ipybox.cell(code).await.ok();
        assert!(text.contains(part), "{code}: {text}");
    }
    let text = ipybox.cell("%%time\n6 * 7").await.ok();
    assert!(text.contains("Wall time") && text.ends_with("\n42"), "{text}");
    let failing = [
        ("%%bash\necho before\nexit 2", "before\n"),
        ("%%bash\nexit 2", "CalledProcessError"),
        ("%run nosuchscript.py", "not found"),
        ("%nosuchmagic", "UsageError"),
        ("%timeit -z", "UsageError"),
    ];
    all_fail(&mut ipybox, &failing).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn leaving_python_leaves_the_kernel_running() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import sys; x = 1").await.ok();
    let ways = [("sys.exit(3)", "SystemExit: 3"), ("raise SystemExit('why')", "SystemExit: why")];
    all_fail(&mut ipybox, &ways).await;
    for way in ["exit", "quit()", "exit()"] {
        ipybox.cell(way).await.ok();
    }
    // ipykernel of its own ends a tenth of a second later.
    all_say(&mut ipybox, &[("import time; time.sleep(0.3); x", "1"), ("x + 1", "2")]).await;
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_program_that_ends_well_is_no_error() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import sys\nprint('before'); sys.exit()\nprint('after')", "before"),
            ("print('before')\nsys.exit(0)\nprint('after')", "before"),
            ("import asyncio\nawait asyncio.sleep(0); print('before'); raise SystemExit", "before"),
            (
                "import argparse\nargparse.ArgumentParser('p', usage='p', add_help=False).exit()",
                "[no output]",
            ),
            ("'next'", "'next'"),
        ],
    )
    .await;
    let tests = "import unittest\nclass Sums(unittest.TestCase):\n    def test(self): pass\n\
                 unittest.main(argv=['x'], verbosity=0)";
    assert!(ipybox.cell(tests).await.ok().ends_with("OK"));
    ipybox.stop().await;
}

#[tokio::test]
async fn code_that_magics_fetch_is_shown() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    place.write("script.py", "x = 1\nprint(x)\n");
    assert_eq!(ipybox.cell("%load script.py").await.ok(), "# %load script.py\nx = 1\nprint(x)");
    ipybox.cell("y = 'recalled'").await.ok();
    assert_eq!(ipybox.cell("%recall 2").await.ok(), "y = 'recalled'");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_block_of_markdown_runs_or_is_named() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let cells = [
        ("```python\nx = 20\nx + 1\n```", "21"),
        ("\n```\nawait __import__('asyncio').sleep(0, x)\n```\n", "20"),
        ("```bash\necho $((1 + 1))\n```", "2"),
        ("text = '''\n```python\n1\n```'''\nlen(text)", "16"),
    ];
    all_say(&mut ipybox, &cells).await;
    for code in
        ["Here it is:\n```python\nx\n```", "```javascript\n1\n```", "```python\n1\n```\n```python\n2\n```"]
    {
        let text = ipybox.cell(code).await.error();
        assert!(text.contains("SyntaxError"), "{code}: {text}");
        assert!(text.ends_with("hint: the cell is Markdown: give the Python code alone"), "{code}: {text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn failures_that_ipython_only_prints_are_errors() {
    let place = Place::new();
    place.write("bad.py", "print('script')\n1 / 0");
    let mut ipybox = place.ipybox().await;
    all_fail(
        &mut ipybox,
        &[
            ("%nosuchmagic", "UsageError: Line magic function `%nosuchmagic` not found."),
            ("%run bad.py", "ZeroDivisionError"),
            ("raise SystemExit(3)", "SystemExit: 3"),
        ],
    )
    .await;
    let version = ipybox.cell("import sys; sys.version_info >= (3, 11)").await.ok();
    if version == "True" {
        let text = ipybox.cell("raise ExceptionGroup('group', [ValueError('one')])").await.error();
        assert!(text.contains("ValueError: one") && text.contains("group (1 sub-exception)"), "{text}");
    }
    let handled = "try: 1 / 0\nexcept Exception: get_ipython().showtraceback()\nprint('after')";
    let text = ipybox.cell(handled).await.ok();
    assert!(text.ends_with("ZeroDivisionError: division by zero\nafter"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn exit_does_not_end_the_kernel() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("x = 1").await.ok();
    for code in ["exit", "quit()"] {
        assert_eq!(ipybox.cell(code).await.ok(), "`exit` does not end the kernel: reset it for a fresh one.");
    }
    all_say(&mut ipybox, &[("import time; time.sleep(0.5); x", "1"), ("x", "1")]).await;
    assert_eq!(ipybox.cell("import sys; sys.exit()").await.ok(), "[no output]");
    let text = ipybox.cell("sys.exit(1)").await.error();
    assert!(!text.contains("To exit: use"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn help_history_and_hidden_values_are_those_of_ipython() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    assert!(ipybox.cell("len?").await.ok().contains("Return the number of items in a container."));
    all_say(
        &mut ipybox,
        &[
            ("5;", "[no output]"),
            ("6", "6"),
            ("_ + 1", "7"),
            ("In[-2]", "'_ + 1'"),
            ("import sys; sys.argv", "['']"),
            ("import argparse; argparse.ArgumentParser().parse_args()", "Namespace()"),
            ("\u{feff}1 + 1", "2"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn interactive_plots_of_notebooks_are_shown_inline_with_a_line_that_says_so() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let inline = |name: &str| {
        format!(
            "the matplotlib backend `{name}` needs a notebook in a browser: plots are shown inline, as images"
        )
    };
    for name in ["notebook", "widget", "ipympl", "nbagg"] {
        assert_eq!(ipybox.cell(&format!("%matplotlib {name}")).await.ok(), inline(name));
        let text = ipybox.cell("import matplotlib.pyplot as plt\nlines = plt.plot([1, 2])").await.ok();
        assert!(text.contains("Generated images:"), "{name}: {text}");
    }
    assert_eq!(ipybox.cell("plt.switch_backend('nbagg')").await.ok(), inline("nbagg"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_shell_that_nobody_can_type_into_is_refused_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for code in [
        "import IPython; IPython.embed()",
        "from IPython.terminal.embed import embed; embed()",
        "import IPython; IPython.start_ipython(argv=[])",
        "import code; code.interact()",
        // Another shell takes the place of the kernel's.
        "from IPython.terminal.interactiveshell import TerminalInteractiveShell\n\
         TerminalInteractiveShell.clear_instance(); type(get_ipython()).clear_instance()\n\
         TerminalInteractiveShell.instance(); raise NotImplementedError('StdinNotImplementedError')",
    ] {
        assert!(ipybox.cell(code).await.error().contains("StdinNotImplementedError"), "{code}");
        let text = ipybox
            .cell("from IPython.display import HTML, display\ndisplay(HTML('<b>shown</b>')); 1")
            .await
            .ok();
        assert!(text.contains("shown") && text.ends_with('1'), "{code}: {text}");
        let text = ipybox.cell("1 / 0").await.error();
        assert!(text.contains("Cell In["), "{code}: {text}");
        let plot = "import matplotlib.pyplot as plt\nlines = plt.plot([1])";
        assert!(ipybox.cell(plot).await.ok().contains("Generated images:"), "{code}");
    }
    ipybox.stop().await;
}
