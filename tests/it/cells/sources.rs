//! The text of cells: what is left in it, and how it is found again.

use crate::support::{Place, all_say};

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

