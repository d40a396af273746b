//! Code with odd characters, of enormous size, with enormous failures, or that destroys its own interpreter.

use crate::support::{Place, all_fail, all_say};

#[tokio::test]
async fn odd_code_is_run_or_refused_as_python_would() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            // First, since it repeats answers where there are any.
            ("\n\n  \n", "[no output]"),
            ("for i in range(2):\r\n    print(i)\r\nprint('end')\r\n", "0\n1\nend"),
            ("if True:\n\tprint('tab')\n", "tab"),
            ("# nothing\n# but comments", "[no output]"),
            ("'''docstring'''", "'docstring'"),
            ("x = 1; \\\ny = 2; x, \\\n    y", "(1, 2)"),
            ("print('''a\n\tb\r\nc''')", "a\n\tb\nc"),
            ("π = 3; print(f'{π} ☃ 👩‍👩‍👧')", "3 ☃ 👩‍👩‍👧"),
        ],
    )
    .await;
    all_fail(
        &mut ipybox,
        &[
            ("if", "SyntaxError"),
            ("if True:\n\tx = 1\n        y = 2\n", "TabError"),
            ("1 + \0 1", "null bytes"),
            ("return 1", "outside function"),
            ("x = 'unclosed", "SyntaxError"),
        ],
    )
    .await;
    // A lone surrogate in JSON, which is no Unicode text.
    let members = r#""jsonrpc":"2.0","method":"tools/call","params":{"name":"execute_ipython_cell","arguments":{"code":"len('\ud800')"}}"#;
    assert_eq!(ipybox.raw_request(members).await.answer().await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn five_megabytes_of_code_are_run() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let list = format!("items = [\n{}]\nlen(items)", format!("'{}',\n", "a".repeat(96)).repeat(50_000));
    assert_eq!(ipybox.cell(&list).await.ok(), "50000");
    let text = format!("len('''{}''')", "é\n".repeat(1_700_000));
    assert_eq!(ipybox.cell(&text).await.ok(), "3400000");
    ipybox.stop().await;
}

#[tokio::test]
async fn huge_failures_are_shown_in_brief() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let chain = "
def fail(count):
    cause = None
    for number in range(count):
        try: raise ValueError(f'link {number}') from cause
        except ValueError as error: cause = error
    raise cause
fail(300)";
    for (code, end) in [
        ("def deeper(): deeper()\ndeeper()", "RecursionError: maximum recursion depth exceeded"),
        ("import sys; sys.setrecursionlimit(20_000)\ndeeper()", "frames in the middle are left out]"),
        ("sys.setrecursionlimit(1_000)\n1 / 0", "division by zero"),
        (chain, "ValueError: link 299"),
        (
            "raise ExceptionGroup('many', [ValueError(i) for i in range(10_000)])",
            "many (10000 sub-exceptions)",
        ),
        ("10 ** 5000", "use sys.set_int_max_str_digits() to increase the limit"),
        (
            "class Silent(Exception):\n    def __str__(self): raise RuntimeError('no text')\nraise Silent",
            "RuntimeError: no text",
        ),
    ] {
        let text = ipybox.cell(code).await.error();
        assert!(text.len() < 20_000 && text.contains(end), "{code}: {text}");
    }
    assert_eq!(ipybox.cell("print(10 ** 4000)").await.ok().len(), 4001);
    ipybox.stop().await;
}

#[tokio::test]
async fn vandalism_lasts_until_the_reset() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for code in [
        "import sys, os; sys.stdout = sys.stderr = open(os.devnull, 'w')",
        "import builtins; del builtins.print, builtins.len",
        "del __builtins__",
        "get_ipython().kernel = None",
        "import builtins; builtins.__dict__.clear()",
        "import os; os.close(0); os.close(1); os.close(2)",
        "import os; os.environ.clear()",
        "get_ipython().reset(); get_ipython().display_pub = get_ipython().displayhook = None",
    ] {
        ipybox.cell(code).await;
        ipybox.reset().await;
        let check = "import os\nprint(len(os.environ) > 0)\nos.path.exists(os.getcwd())";
        assert_eq!(ipybox.cell(check).await.ok(), "True\nTrue", "{code}");
    }
    ipybox.stop().await;
}
