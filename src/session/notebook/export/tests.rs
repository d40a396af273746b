use serde_json::{Value, json};

use super::*;

fn notebook(cells: Value) -> Vec<u8> {
    json!({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).to_string().into_bytes()
}

fn code(source: &str, outputs: Value) -> Value {
    json!({"cell_type": "code", "execution_count": 1, "metadata": {}, "source": source, "outputs": outputs})
}

fn stream(text: &str) -> Value {
    json!([{"output_type": "stream", "name": "stdout", "text": [text]}])
}

fn object(data: Value) -> Value {
    json!([{"output_type": "display_data", "metadata": {}, "data": data}])
}

fn exported(cells: Value, format: ExportFormat) -> String {
    export(&notebook(cells), format, None).unwrap().text
}

#[test]
fn python_can_be_compiled() {
    let mut stopped = code("while True: pass", json!([]));
    stopped["metadata"]["ipybox"] = json!({"end": "timed_out"});
    let cells = json!([
        {"cell_type": "markdown", "metadata": {}, "source": ["# A title\n", "\n", "text"]},
        code("x = 1\nfor y in []:\n    !ls\n%time x", stream("1")),
        code("%%bash\nls", json!([])),
        stopped,
    ]);
    let expected = "# %% [markdown]\n# # A title\n#\n# text\n\n# %%\nx = 1\nfor y in []:\n    pass  # !ls\n# %time x\n\n\
                    # %%\n# %%bash\n# ls\n\n# %%\n# This cell did not end by itself: stopped at its timeout.\n\
                    # while True: pass\n";
    assert_eq!(exported(cells, ExportFormat::Python), expected);
}

#[test]
fn markdown_has_code_outputs_and_files() {
    let cells = json!([code("1", stream("```\n</x>")), code("2", object(json!({"image/png": "iVBORw=="})))]);
    let made = export(&notebook(cells.clone()), ExportFormat::Markdown, Some("run_files")).unwrap();
    assert_eq!(
        made.text,
        "```python\n1\n```\n\n````text\n```\n</x>\n````\n\n```python\n2\n```\n\n![an image](<run_files/1.png>)\n"
    );
    assert_eq!(made.files, [("1.png".to_owned(), b"\x89PNG".to_vec())]);
    assert!(exported(cells, ExportFormat::Markdown).ends_with("*[an image]*\n"));
}

#[test]
fn nothing_hostile_gets_into_the_page() {
    let evil = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'";
    let mut called = code(evil, json!([]));
    called["metadata"]["ipybox"] = json!({
        "end": evil, "duration_ms": 1,
        "calls": [{"server": evil, "tool": evil, "arguments": {evil: evil}, "decision": evil, "by": evil, "error": evil}],
    });
    called["metadata"]["execution"] = json!({"iopub.execute_input": evil});
    let error = json!([{"output_type": "error", "ename": evil, "evalue": evil, "traceback": [evil]}]);
    let svg = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";
    let page = exported(
        json!([
            {"cell_type": "markdown", "metadata": {}, "source": evil},
            called,
            code("1", stream(evil)),
            code("1", error),
            code("1", object(json!({"text/plain": evil, "text/html": evil}))),
            code("1", object(json!({"text/plain": "<IPython.core.display.HTML object>", "text/html": evil}))),
            code("1", object(json!({"image/svg+xml": svg}))),
            code("1", object(json!({"image/png": "AAAA\" onerror=\"alert(1)", "text/plain": "x"}))),
            code("1", object(json!({"text/markdown": evil}))),
            code("1", object(json!({"application/javascript": "alert(1)"}))),
        ]),
        ExportFormat::Html,
    );
    assert!(
        !page.contains("<script") && !page.contains("<img src=x") && !page.contains("onerror=\""),
        "{page}"
    );
    assert_eq!(page.matches("<iframe sandbox loading").count(), 1);
    assert_eq!(page.matches("<img alt=\"an image\" src=\"data:image/svg+xml;base64,").count(), 1);
    assert_eq!(page.matches("<img ").count(), 1);
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none';"));
}

#[test]
fn escape_sequences_do_not_reach_a_terminal() {
    let evil = "a\u{1b}]0;title\u{7}b\u{9b}31mc";
    for format in [ExportFormat::Python, ExportFormat::Markdown, ExportFormat::Html] {
        let text = exported(json!([code(evil, stream(evil))]), format);
        let is_control = |char: char| char.is_control() && char != '\n';
        assert!(!text.contains(is_control), "{format:?}: {text:?}");
    }
}

#[test]
fn odd_notebooks_are_read_as_far_as_they_go() {
    let cells = json!([1, {}, {"cell_type": "code"}, {"source": [1, "x"]}, code("y", json!([1, {}, {"output_type": 7}]))]);
    assert_eq!(exported(cells, ExportFormat::Python), "# %% [markdown]\n# x\n\n# %%\ny\n");
    let check = |content: &str, expected| {
        assert_eq!(export(content.as_bytes(), ExportFormat::Html, None).unwrap_err(), expected, "{content}");
    };
    check("", ExportError::NoNotebook);
    check("{}", ExportError::NoNotebook);
    check(r#"{"nbformat": 3, "worksheets": []}"#, ExportError::Version(3));
}

#[test]
fn what_is_written_follows_no_link_and_waits_for_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let made = Export { text: "text".to_owned(), files: vec![("1.png".to_owned(), b"image".to_vec())] };
    let save = |name: &str| made.save(&path(name), "run_files").map_err(|error| error.to_string());
    save("run.md").unwrap();
    save("run.md").unwrap();
    assert_eq!(std::fs::read_to_string(path("run.md")).unwrap(), "text");
    assert_eq!(std::fs::read(path("run_files/1.png")).unwrap(), b"image");

    std::fs::write(path("kept"), "kept").unwrap();
    std::os::unix::fs::symlink("kept", path("link.md")).unwrap();
    nix::unistd::mkfifo(&path("pipe.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::remove_file(path("run_files/1.png")).unwrap();
    std::os::unix::fs::symlink("../kept", path("run_files/1.png")).unwrap();
    assert!(save("link.md").unwrap_err().contains("a symbolic link"));
    assert!(save("pipe.md").unwrap_err().contains("not a regular file"));
    save("run.md").unwrap();
    assert_eq!(std::fs::read(path("run_files/1.png")).unwrap(), b"image");
    std::fs::remove_dir_all(path("run_files")).unwrap();
    std::fs::create_dir(path("other")).unwrap();
    std::os::unix::fs::symlink("other", path("run_files")).unwrap();
    assert!(save("run.md").unwrap_err().contains("no directory"));
    assert_eq!(std::fs::read_to_string(path("kept")).unwrap(), "kept");
    assert_eq!(std::fs::read_dir(path("other")).unwrap().count(), 0);
}

#[test]
fn what_was_no_python_is_none_in_the_file() {
    let broken = code(
        "x = \"\"\"",
        json!([{"output_type": "error", "ename": "SyntaxError", "evalue": "", "traceback": []}]),
    );
    let escaped = code("s = \"\u{1b}]0;\"; EVIL(\"\u{7}\")", json!([]));
    let text = exported(json!([broken, escaped, code("y", json!([]))]), ExportFormat::Python);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(lines, ["y"], "{text}");
}
