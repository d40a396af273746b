//! What is shown of a cell's output to a reader without a screen: progress bars, objects, displays, figures, tables.

use std::path::Path;

use serde_json::json;

use crate::support::{Place, all_say};

/// Cells and what they show, in one session.
async fn check(cells: &[(&str, &str)]) {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (code, expected) in cells {
        assert_eq!(ipybox.cell(code).await.ok(), *expected, "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn progress_bars_collapse_to_their_final_state() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import sys, time
for step in range(101):
    sys.stderr.write(f'\\r{step:3}%|' + '#' * (step // 10)); sys.stderr.flush()
print()";
    assert_eq!(ipybox.cell(code).await.ok(), "100%|##########");
    let text = ipybox.cell("from tqdm import tqdm\nfor _ in tqdm(range(300)): time.sleep(0.001)").await.ok();
    assert!(text.starts_with("100%|") && text.contains("300/300") && text.lines().count() == 1, "{text:?}");
    let code =
        "from tqdm.notebook import tqdm as bar\nfor _ in bar(range(3), desc='Rows', ncols='100%'): pass";
    let text = ipybox.cell(code).await.ok();
    assert!(text.starts_with("Rows: 100%|") && text.contains("3/3") && text.lines().count() == 1, "{text:?}");
    // What pip and rich write to the pseudo-terminal of a `!command`: several lines, drawn anew.
    let code = r#"!printf 'a 0%%\nb 0%%\r\033[2K\033[1A\033[2K\033[32ma 9%%\033[0m\nb 9%%\n'"#;
    assert_eq!(ipybox.cell(code).await.ok(), "a 9%\nb 9%");
    ipybox.stop().await;
}

#[tokio::test]
async fn every_kind_of_object_is_shown_as_text() {
    let html =
        "from IPython.display import HTML; HTML('<style>td {}</style><table><tr><td>1</td></tr></table>')";
    let point = "class Point:\n    def __repr__(self): return '<POINT (1 2)>'\n    \
                 def _repr_html_(self): return '<b>a point</b>'\nPoint()";
    check(&[
        ("from IPython.display import Markdown; Markdown('**bold**')", "**bold**"),
        ("from IPython.display import Latex; Latex('$x^2$')", "$x^2$"),
        ("from IPython.display import JSON; JSON({'a': [1, 2]})", r#"{"a":[1,2]}"#),
        (html, "1"),
        (
            "import pandas; pandas.DataFrame({'a': [1, 2]})",
            "DataFrame of 2 rows and 1 column\nColumns: a int64\nRows:\na\n1\n2",
        ),
        (
            "pandas.DataFrame({'a': [0.123]}).style.format('{:.0%}')",
            "DataFrame of 1 row and 1 column\nColumns: a float64\nRows:\na\n0.123",
        ),
        (point, "<POINT (1 2)>"),
        ("display('one', 2)", "'one'\n2"),
        ("display({'text/plain': 'raw'}, raw=True)", "raw"),
        ("print('\\x1b[31mred\\x1b[0m')", "red"),
    ])
    .await;
}

#[tokio::test]
async fn displays_are_updated_and_cleared() {
    check(&[
        ("handle = display('first', display_id=True); print('x'); handle.update('second')", "'second'\nx"),
        ("handle.update('third')", "'third'"),
        ("display('a', display_id='odd'); display('b', display_id='odd', update=True);", "'b'"),
        ("from IPython.display import clear_output\nprint('a'); clear_output(); print('b')", "b"),
        ("for i in range(5):\n    clear_output(wait=True); print(i)", "4"),
        ("print('kept'); clear_output(wait=True)", "kept"),
    ])
    .await;
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn figures_are_saved_with_the_extension_of_their_format() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let images = place.workspace().join("images");
    ipybox.cell("%matplotlib inline\nimport matplotlib.pyplot as plt").await.ok();
    for (format, extension, magic) in
        [("jpeg", "jpg", b"\xff\xd8\xff".as_slice()), ("svg", "svg", b"<?xml"), ("pdf", "pdf", b"%PDF")]
    {
        let code = format!(
            "from matplotlib_inline.backend_inline import set_matplotlib_formats\n\
             set_matplotlib_formats('{format}')\nplt.plot([1, 2]); plt.show()"
        );
        let text = ipybox.cell(&code).await.ok();
        let name = names(&images).into_iter().find(|name| name.ends_with(&format!(".{extension}"))).unwrap();
        assert!(text.contains(&name), "{text}");
        assert!(std::fs::read(images.join(name)).unwrap().starts_with(magic));
    }
    let gif = "
import base64
from IPython.display import Image, display
data = base64.b64decode('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7')
display(Image(data, format='gif'))";
    assert!(ipybox.cell(gif).await.ok().contains(".gif)"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_picture_in_two_formats_is_shown_once() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // IPython asks PIL for PNG and for JPEG.
    let code = "from PIL import Image\nImage.new('RGB', (20, 20), 'red')";
    let text = ipybox.cell(code).await.ok();
    let saved = names(&place.workspace().join("images"));
    assert!(
        matches!(&saved[..], [name] if name.ends_with(".png") && text.contains(name)),
        "{saved:?}: {text}"
    );
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn a_figure_is_shown_once() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let figure = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n\
                  ax.plot([1, 2]); ax.set_title('Growth, 2026')";
    for (code, count) in [
        (format!("{figure}\nfig"), 1),
        (format!("{figure}\ndisplay(fig)"), 1),
        (format!("{figure}\nplt.show()\nfig"), 1),
        (format!("{figure}\nax.figure"), 1),
        // It has changed, or is shown again in another cell.
        (format!("{figure}\ndisplay(fig)\nax.plot([2, 1]);"), 2),
        ("fig".to_owned(), 1),
        // What was cleared is not shown any more.
        (format!("{figure}\ndisplay(fig)\nfrom IPython.display import clear_output\nclear_output()\nfig"), 1),
    ] {
        let text = ipybox.cell(&code).await.ok();
        assert_eq!(text.matches("[growth-2026](").count(), count, "{code}\n{text}");
        assert!(text.contains("/growth-2026-"), "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn tables_are_short_unless_code_says_how_long() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let head = "of 30 rows and 2 columns\nColumns: a";
    for code in [
        "import pandas\ntable = pandas.DataFrame({'a': range(30), 'b': ['x'] * 30})\ntable",
        "import polars\npolars.from_pandas(table)",
        "import pyarrow\npyarrow.Table.from_pandas(table)",
    ] {
        let text = ipybox.cell(code).await.ok();
        assert!(text.contains(head) && text.contains("The first 5 rows:\na,b\n0,x\n"), "{text}");
        assert!(text.lines().count() == 9 && !text.contains("the user sees"), "{text}");
    }
    let text = ipybox.cell("pandas.set_option('display.max_rows', 100)\ntable").await.ok();
    assert!(text.contains("\n29  29  x"), "{text}");
    let text = ipybox.cell("pandas.reset_option('display.max_rows')\ntable").await.ok();
    assert!(text.contains(head), "{text}");
    let text = ipybox.cell("size = polars.Config.set_tbl_rows(40)\npolars.from_pandas(table)").await.ok();
    assert!(text.contains("│ 29"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_animation_leaves_its_last_frame() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import matplotlib.pyplot as plt
from IPython.display import clear_output
for frame in range(4):
    clear_output(wait=True)
    plt.plot([frame, 1]); plt.show()";
    let text = ipybox.cell(code).await.ok();
    let saved = names(&place.workspace().join("images"));
    assert_eq!(saved.len(), 1, "{saved:?}");
    assert!(text.contains(&saved[0]), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn libraries_know_that_nobody_has_a_browser() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.cell("from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass").await.ok();
    assert!(text.starts_with("100%|") && text.contains("3/3") && text.lines().count() == 1, "{text:?}");
    let code = "from rich.progress import track\nfor _ in track(range(3)): pass\nprint('done')";
    let text = ipybox.cell(code).await.ok();
    assert!(text.contains("100%") && text.ends_with("done") && text.lines().count() == 2, "{text:?}");
    let text = ipybox.cell("import rich; rich.print('[red]red[/red]', {'a': 1})").await.ok();
    assert_eq!(text, "red\n{'a': 1}");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_is_too_large_to_be_shown_is_an_error_of_the_cell() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "x = 1\nfrom IPython.display import Image\nImage(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(32_000_000), format='png')";
    let text = ipybox.cell(code).await.error();
    assert!(text.contains("at most 39 MiB can be shown"), "{text}");
    assert_eq!(ipybox.cell("x").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn logs_warnings_and_tables_are_shown() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import logging, sys, warnings\nlogging.basicConfig()\nlogging.warning('first')\nlogging.getLogger('own').error('second')\nlogging.info('hidden')", "WARNING:root:first\nERROR:own:second"),
            ("import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})", "DataFrame of 2 rows and 2 columns\nColumns: a int64, b str\nRows:\na,b\n1,x\n2,y"),
            ("display(pandas.Series([1.5], name='s'))", "Series of 1 row and 1 column\nColumns: s float64\nRows:\ns\n1.5"),
            ("print(1, end=''); print(2, end='', file=sys.stderr)", "12"),
        ],
    )
    .await;
    let text = ipybox.cell("warnings.warn('careful')\n'done'").await.ok();
    assert!(text.contains("UserWarning: careful") && text.ends_with("'done'"), "{text}");
    let many = json!({"code": "for i in range(100): print(f'\\r{i}%', end='', flush=True)"});
    let text = ipybox.call("execute_ipython_cell", many).await.ok();
    assert!(text.ends_with("99%"), "{text}");
    ipybox.stop().await;
}
