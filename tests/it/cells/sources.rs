//! The text of cells: what is left in it, and how it is found again.

use crate::support::{Place, all_fail, all_say};

#[tokio::test]
pub(crate) async fn prompts_are_taken_only_from_a_cell_that_begins_with_one() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            (
                "text = '''\n    >>> f(1)\n    ... 2\nIn [1]: x\n   ...: y'''\nprint(text)",
                "\n    >>> f(1)\n    ... 2\nIn [1]: x\n   ...: y",
            ),
            ("%%bash\ncat <<END\n>>> mail\nIn [1]: x\nEND", ">>> mail\nIn [1]: x"),
            ("%%writefile README.md\n>>> f(1)\n... 2\nIn [1]: x", "Writing README.md"),
            ("print(open('README.md').read(), end='')", ">>> f(1)\n... 2\nIn [1]: x"),
            // What is pasted with prompts runs as ever.
            (">>> x = 1\n>>> if x:\n...     print(x)", "1"),
            ("\n\nIn [7]: x = 2\n   ...: print(x)", "2"),
            ("  >>> print(3)", "3"),
            ("%%capture captured\n>>> print(4)", "[no output]"),
            ("captured.stdout", "'4\\n'"),
            (">>> log = '''\n... In [1]: x\n... '''\n>>> log", "'\\nIn [1]: x\\n'"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn the_source_of_each_cell_is_found_and_people_read_its_number() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("%%capture\nx = 1\ndef captured():\n    return 1 / 0  # in the captured cell").await.ok();
    ipybox.cell("import inspect, traceback, warnings\nclass Plain:\n    value = 1\nclass Full:\n    def method(self): pass").await.ok();
    let text = ipybox.cell("captured()").await.error();
    assert!(
        text.contains("return 1 / 0  # in the captured cell") && text.contains("], line 3, in captured()"),
        "{text}"
    );
    let text = ipybox.cell("try: captured()\nexcept Exception: traceback.print_exc()").await.ok();
    assert!(text.contains("]\", line 3, in captured\n    return 1 / 0  # in the captured cell"), "{text}");
    assert!(text.contains("File \"Cell In[") && !text.contains("ipykernel"), "{text}");
    let text = ipybox
        .cell("class Broken:\n    def __del__(self): raise ValueError('at the end')\nBroken()\nlen('')")
        .await
        .ok();
    assert!(
        text.contains("File \"Cell In[") && text.contains("line 2, in __del__\n    def __del__(self)"),
        "{text}"
    );
    let text = ipybox.cell("def (").await.error();
    assert!(
        text.contains("Cell In[") && text.contains("], line 1\n    def (") && !text.contains("ipykernel"),
        "{text}"
    );
    all_say(
        &mut ipybox,
        &[
            (
                "print(inspect.getsource(captured), end='')",
                "def captured():\n    return 1 / 0  # in the captured cell",
            ),
            ("print(inspect.getsource(Plain), end='')", "class Plain:\n    value = 1"),
            ("print(inspect.getsource(Full), end='')", "class Full:\n    def method(self): pass"),
            ("captured.__code__.co_filename != Full.method.__code__.co_filename", "True"),
        ],
    )
    .await;
    let text = ipybox.cell("warnings.warn('careful')").await.ok();
    assert!(
        text.starts_with("Cell In[")
            && text.ends_with("]:1: UserWarning: careful\n  warnings.warn('careful')"),
        "{text}"
    );
    all_fail(&mut ipybox, &[("inspect.getsource(int)", "built-in class")]).await;
    ipybox.reset().await;
    // The same number, another cell.
    ipybox.cell("def other():\n    pass").await.ok();
    let text = ipybox.cell("import inspect\nprint(inspect.getsource(other), end='')").await.ok();
    assert_eq!(text, "def other():\n    pass");
    ipybox.stop().await;
}

/// The names by which numba, joblib and line_profiler know that code is of a cell, without these libraries.
#[tokio::test]
async fn libraries_recognise_the_file_names_of_cells_and_find_what_they_have_stored() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let name = "import os, tempfile\ndef f(): pass\nprint(f.__code__.co_filename)";
    let first = ipybox.cell(name).await.ok();
    let check = "name = f.__code__.co_filename\n\
                 name.startswith(os.path.join(tempfile.gettempdir(), 'ipykernel_')), \
                 os.path.basename(os.path.dirname(name)).startswith('ipykernel_')";
    all_say(&mut ipybox, &[(check, "(True, True)")]).await;
    ipybox.reset().await;
    ipybox.cell("1").await.ok();
    assert_eq!(ipybox.cell(name).await.ok(), first);
    ipybox.stop().await;
}
