//! `ipybox export`, of notebooks that sessions have written.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Place, environment, kernel_python};

fn export(place: &Place, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .arg("export")
        .args(arguments)
        .arg("--workspace")
        .arg(place.workspace())
        .arg("--state-dir")
        .arg(place.states())
        .current_dir(place.workspace())
        .env_clear()
        .envs(environment())
        .output()
        .unwrap()
}

#[track_caller]
fn exported(place: &Place, arguments: &[&str]) -> String {
    let output = export(place, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(place: &Place, arguments: &[&str], expected: &str) {
    let output = export(place, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains(expected), "{error}");
}

const EVIL: &str = "from IPython.display import HTML, display\ndisplay(HTML('<script>alert(1)</script>'))\n\
                    print('</pre><script>alert(2)</script>')";

/// Prints the tags and attributes of a page that could run something.
const CHECK_PAGE: &str = "import html.parser, sys\n\
    class Parser(html.parser.HTMLParser):\n\
    \x20   def handle_starttag(self, tag, attributes):\n\
    \x20       bad = [name for name, _ in attributes if name.startswith('on')]\n\
    \x20       if tag in ('script', 'object', 'embed', 'link', 'base') or bad: print(tag, bad)\n\
    Parser().feed(open(sys.argv[1]).read())";

/// Python that compiles a file as IPython does.
const CHECK_CODE: &str = "import ast, sys\n\
    compile(open(sys.argv[1]).read(), 'f', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)";

#[track_caller]
fn python(code: &str, file: &Path) -> String {
    let output = Command::new(kernel_python()).args(["-c", code]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_session_is_exported_after_its_end() {
    let place = Place::new();
    refused(&place, &["--to", "py"], "find a notebook of");
    let python_program = kernel_python();
    let flags = ["--python", python_program.to_str().unwrap(), "--notebook", "auto"];
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize().await;
    ipybox.cell("!echo shell\nimport asyncio\nawait asyncio.sleep(0)\nprint('printed')").await.ok();
    ipybox.cell("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()").await.ok();
    ipybox.cell(EVIL).await.ok();
    ipybox.stop().await;

    let path = |name: &str| place.workspace().join(name);
    exported(&place, &["--to", "py", "--output", "session.py"]);
    let code = place.read("session.py");
    assert!(code.contains("# !echo shell\n") && code.contains("# %%\n"), "{code}");
    python(CHECK_CODE, &path("session.py"));

    exported(&place, &["--to", "md", "--output", "session.md"]);
    let markdown = place.read("session.md");
    assert!(markdown.contains("![an image](<session_files/1.png>)"), "{markdown}");
    assert!(markdown.contains("\nprinted\n"), "{markdown}");
    assert!(std::fs::read(path("session_files/1.png")).unwrap().starts_with(b"\x89PNG"));

    exported(&place, &["--to", "html", "--output", "session.html"]);
    assert_eq!(python(CHECK_PAGE, &path("session.html")), "");
    let page = place.read("session.html");
    assert!(page.contains("<img alt=\"an image\" src=\"data:image/png;base64,"));
    assert!(page.contains("&lt;/pre&gt;&lt;script&gt;alert(2)") && page.contains("<iframe sandbox"));

    let workspace = std::fs::read_dir(place.states().join("workspaces")).unwrap().next().unwrap().unwrap();
    let notebook =
        std::fs::read_dir(workspace.path().join("notebooks")).unwrap().next().unwrap().unwrap().path();
    let id = notebook.file_stem().unwrap().to_str().unwrap().rsplit('-').next().unwrap().to_owned();
    assert_eq!(exported(&place, &[&id, "--to", "py"]), code);
    assert_eq!(exported(&place, &[&id[..5], "--to", "py"]), code);
    assert_eq!(exported(&place, &[notebook.to_str().unwrap(), "--to", "py"]), code);
}

/// Cells that IPython runs, most of them not as the Python that they seem to be.
const CELLS: [&str; 25] = [
    "for i in range(2):\n    !echo {i}",
    "if True:\n    x = !ls\nelse:\n    %cd /tmp",
    "try:\n    %load_ext EVIL\nexcept ImportError:\n    pass",
    "def f():\n    !echo \\\n    EVIL()\n    return 1",
    "    indented = 1\n    if indented:\n        %time indented",
    ">>> for x in [1]:\n...     print(x)\n1",
    "In [1]: print(1)\n   ...: print(2)",
    "/EVIL x",
    ",EVIL x y",
    ";EVIL x y",
    "x = EVIL?",
    "?EVIL",
    "EVIL.*a*?",
    "cd EVIL",
    "ls -l EVIL",
    "pip install EVIL",
    "%%bash\nEVIL",
    "\n\n%%time\nEVIL()",
    "!!EVIL",
    "with open('x') as f:\n\t!cat EVIL",
    "from __future__ import annotations\nx: int",
    "x = \"\"\"EVIL",
    "if True: !EVIL",
    "print EVIL",
    "x = 1; \\\n!EVIL",
];

/// Prints where the name `EVIL` is used in a file that is Python.
const CHECK_CELLS: &str = "import ast, sys\n\
    tree = ast.parse(open(sys.argv[1]).read())\n\
    compile(tree, 'f', 'exec')\n\
    for node in ast.walk(tree):\n\
    \x20   if isinstance(node, ast.Name) and node.id == 'EVIL': print(node.lineno)";

#[test]
fn whatever_cells_hold_the_file_is_python() {
    let place = Place::new();
    let cell = |source: &&str| serde_json::json!({"cell_type": "code", "source": source, "outputs": []});
    let cells: Vec<_> = CELLS.iter().map(cell).collect();
    place.write("all.ipynb", &serde_json::json!({"nbformat": 4, "cells": cells}).to_string());
    exported(&place, &["all.ipynb", "--to", "py", "--output", "all.py"]);
    assert_eq!(python(CHECK_CELLS, &place.workspace().join("all.py")), "", "{}", place.read("all.py"));
}

#[tokio::test]
async fn what_cannot_be_exported_is_named() {
    let place = Place::new();
    place.write("other.ipynb", "print(1)");
    place.write("old.ipynb", "{\"nbformat\": 3, \"worksheets\": []}");
    nix::unistd::mkfifo(&place.workspace().join("pipe.ipynb"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused(&place, &["other.ipynb", "--to", "py"], "export `other.ipynb`: it is no Jupyter notebook");
    refused(&place, &["old.ipynb", "--to", "py"], "version 3 of the format");
    refused(&place, &["gone.ipynb", "--to", "py"], "read the notebook `gone.ipynb`");
    refused(&place, &["pipe.ipynb", "--to", "py"], "not a regular file");
    refused(
        &place,
        &["ffffffff", "--to", "py"],
        "find the notebook of the session `ffffffff`: there is none",
    );
    refused(&place, &["other.ipynb", "--to", "pdf"], "invalid value 'pdf'");
    refused(&place, &["other.ipynb"], "--to");
}
