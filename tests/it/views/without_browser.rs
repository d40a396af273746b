//! What answers say about views, and to whom.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{apps, call, result, text, views};
use crate::support::{Ipybox, Place, kernel_python};

/// ipybox with a client that says this of itself.
async fn with_client(place: &Place, flags: &[&str], capabilities: Value) -> Ipybox {
    let python = kernel_python();
    let mut ipybox = place.start(&[&["--python", python.to_str().unwrap()], flags].concat()).await;
    ipybox.initialize_with(capabilities).await;
    ipybox
}

async fn tools(ipybox: &mut Ipybox) -> Value {
    let response = ipybox.request("tools/list", json!({})).await.response().await.unwrap();
    response["result"]["tools"].clone()
}

const TABLE: &str =
    "import pandas\ntable = pandas.DataFrame({'a': range(20), 'b': list('abcdefghijklmnopqrst')})\ntable";

#[tokio::test]
async fn other_clients_get_texts_alone() {
    let place = Place::new();
    let mut others = Vec::new();
    for (flags, capabilities) in [
        (&[][..], json!({})),
        (&["--no-views"], apps()),
        (&[], json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}})),
        (&[], json!({"extensions": {"io.modelcontextprotocol/ui": {}}})),
    ] {
        let mut ipybox = with_client(&place, flags, capabilities).await;
        let shown = result(&mut ipybox, TABLE).await;
        assert_eq!(shown.get("_meta"), None, "{shown}");
        let expected =
            "DataFrame of 20 rows and 2 columns\nColumns: a int64, b str\nThe first 5 rows:\na,b\n0,a\n";
        assert!(text(&shown).starts_with(expected) && text(&shown).ends_with("4,e"), "{shown}");
        let tools = tools(&mut ipybox).await;
        assert!(!tools.to_string().contains("read_view"), "{tools}");
        if flags.contains(&"--no-views") {
            let params = json!({"name": "read_view", "arguments": {"library": "vega"}});
            let response = ipybox.request("tools/call", params).await.response().await.unwrap();
            assert!(response["error"].is_object(), "{response}");
        }
        others.push(tools);
        ipybox.stop().await;
    }
    assert!(others.iter().all(|tools| *tools == others[0]));
    assert!(!place.workspace().join(".ipybox/views").exists());
}

#[tokio::test]
async fn tools_say_who_may_call_them() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &["--long-cells"], apps()).await;
    let tools = tools(&mut ipybox).await;
    let seen = tools.as_array().unwrap().iter().map(|tool| {
        let ui = &tool["_meta"]["ui"];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (word(&tool["name"]), word(&ui["visibility"][0]), word(&ui["resourceUri"]))
    });
    let page = "ui://ipybox/cell";
    let expected = [
        ("execute_ipython_cell", "model", page),
        ("register_mcp_server", "model", ""),
        ("install_package", "model", ""),
        ("reset", "model", ""),
        ("wait_for_cell", "model", page),
        ("read_view", "app", page),
    ];
    let expected = expected.map(|(name, who, page)| (name.to_owned(), who.to_owned(), page.to_owned()));
    assert_eq!(Vec::from_iter(seen), expected);
    let page = ipybox.request("resources/read", json!({ "uri": page })).await.response().await.unwrap();
    assert_eq!(page["result"]["contents"][0]["mimeType"], "text/html;profile=mcp-app");
}

#[tokio::test]
pub(crate) async fn tables_of_all_kinds_have_views_and_short_texts() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    for (code, size, name) in [
        (TABLE, "DataFrame of 20 rows and 2 columns", "table.jsonl"),
        ("table['a']", "Series of 20 rows and 1 column", "table.jsonl"),
        ("table.set_index('b')", "DataFrame of 20 rows and 1 column", "table.jsonl"),
        (
            "import polars\npolars.DataFrame({'a': range(9), 'b': [[1]] * 9})",
            "DataFrame of 9 rows and 2 columns",
            "table.jsonl",
        ),
        ("polars.Series('s', [1, None])", "Series of 2 rows and 1 column", "table.jsonl"),
        ("import pyarrow\npyarrow.table({'a': [1, 2]})", "Table of 2 rows and 1 column", "table.jsonl"),
        ("pyarrow.record_batch({'a': [1, 2]})", "RecordBatch of 2 rows and 1 column", "table.jsonl"),
        ("table.head(0)", "DataFrame of 0 rows and 2 columns", "table.jsonl"),
        ("table.style", "", "html.html"),
    ] {
        let shown = result(&mut ipybox, code).await;
        assert!(text(&shown).contains(size), "{shown}");
        let names = views(&shown);
        assert!(names.len() == 1 && names[0].ends_with(name), "{code}: {shown}");
        let read = call(&mut ipybox, "read_view", json!({"view": names[0], "rows": 2})).await;
        assert_eq!(read["isError"], false, "{read}");
    }
    let shown = result(&mut ipybox, TABLE).await;
    let text = text(&shown);
    assert_eq!(text.lines().count(), 9, "{text}");
    assert!(text.contains("Columns: a int64, b str") && text.contains("\n4,e"), "{text}");
    let query =
        json!({"view": views(&shown)[0], "sort": {"column": 0, "descending": true}, "rows": 1, "from": 1});
    let page = call(&mut ipybox, "read_view", query).await["structuredContent"].clone();
    assert_eq!(page["page"], json!([{"number": 19, "values": [18, "s"]}]));
    assert_eq!((&page["rows"], &page["held"], &page["matching"]), (&json!(20), &json!(20), &json!(20)));
}

#[tokio::test]
pub(crate) async fn plots_have_views_wherever_they_are_made() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    let code = "from IPython.display import HTML
display({'application/vnd.vegalite.v5+json': {'mark': 'bar', 'encoding': {'x': {'field': 'a', 'type': 'nominal'}}}}, raw=True)
display({'application/vnd.plotly.v1+json': {'data': [{'type': 'bar', 'name': 'one', 'y': [1, float('nan')]}], 'layout': {'title': 'T'}},
         'text/plain': 'a long text'}, raw=True)
HTML('<b>bold</b>')";
    let shown = result(&mut ipybox, code).await;
    let kinds = views(&shown).into_iter().map(|view| view.split_once('-').unwrap().1);
    assert_eq!(Vec::from_iter(kinds), ["vegalite.json", "plotly.json", "html.html"], "{shown}");
    for words in [
        "Vega-Lite chart, which the user sees; mark: bar; x: a nominal",
        "Plotly figure “T”, which",
        "bar “one”",
    ] {
        assert!(text(&shown).contains(words), "{shown}");
    }
    assert!(!text(&shown).contains("a long text"), "{shown}");
    let part =
        call(&mut ipybox, "read_view", json!({"view": views(&shown)[1]})).await["structuredContent"].clone();
    let spec = BASE64.decode(part["data"].as_str().unwrap()).unwrap();
    let spec: Value = serde_json::from_slice(&spec).unwrap();
    // ipykernel 6 makes a text of what JSON does not have.
    assert!([json!([1, null]), json!([1, "nan"])].contains(&spec["data"][0]["y"]), "{spec}");
}

#[tokio::test]
async fn what_is_no_more_shown_has_no_view() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    let code = format!(
        "{TABLE}\nhandle = display(table, display_id=True)\nhandle.update(table.head(3))\nfrom IPython.display import clear_output"
    );
    let shown = result(&mut ipybox, &code).await;
    assert_eq!(views(&shown).len(), 1, "{shown}");
    assert!(text(&shown).contains("of 3 rows"), "{shown}");
    let shown = result(&mut ipybox, "display(table)\nclear_output()\ndisplay(table['a'])").await;
    assert_eq!(views(&shown).len(), 1, "{shown}");
    let files = std::fs::read_dir(place.workspace().join(".ipybox/views")).unwrap().count();
    assert_eq!(files, 2);
    // More than an answer names: the rest is text.
    let shown = result(&mut ipybox, "for n in range(40): display(table)").await;
    assert_eq!(views(&shown).len(), 32);
    assert!(text(&shown).contains("Only the first 32 of the views"), "{shown}");
}

#[tokio::test]
async fn a_table_of_a_million_rows_says_what_is_not_there() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    let code = "import numpy, pandas\npandas.DataFrame({n: range(1_000_000) for n in range(12)})";
    let shown = result(&mut ipybox, code).await;
    assert!(text(&shown).contains("DataFrame of 1,000,000 rows and 12 columns"), "{shown}");
    assert!(text(&shown).len() < 1000, "{shown}");
    let page =
        call(&mut ipybox, "read_view", json!({"view": views(&shown)[0]})).await["structuredContent"].clone();
    // As many as fit, or fewer if the machine takes too long to read them.
    let held = page["held"].as_u64().unwrap();
    assert!(page["rows"] == json!(1_000_000) && (1..=41_666).contains(&held), "{held}");
    let code = "pandas.DataFrame(numpy.zeros((3, 700)))";
    let shown = result(&mut ipybox, code).await;
    let page =
        call(&mut ipybox, "read_view", json!({"view": views(&shown)[0]})).await["structuredContent"].clone();
    assert_eq!((page["columns"].as_array().unwrap().len(), &page["left_out"]), (500, &json!(200)));
}

/// Tables of classes and objects that nobody has foreseen.
const ODD: &str = "import pandas, unittest.mock
class Refusing:
    __ne__ = __eq__ = lambda self, other: 1 / 0
    __repr__ = lambda self: 'refusing'
class Broken:
    __str__ = lambda self: 1 / 0
    __repr__ = lambda self: 'broken'
class Own(pandas.DataFrame):
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'a text of its own'}
class Styled(pandas.DataFrame):
    def _repr_html_(self): return '<b>styled</b>'";

#[tokio::test]
async fn no_table_fails_because_of_views() {
    let place = Place::new();
    let mut with = with_client(&place, &[], apps()).await;
    let mut without = with_client(&place, &[], json!({})).await;
    for (code, expected, view) in [
        ("pandas.DataFrame({'a': [Refusing()]})", "refusing", "table.jsonl"),
        ("pandas.DataFrame({'a': [unittest.mock.MagicMock()]})", "<MagicMock", "table.jsonl"),
        ("pandas.DataFrame()", "Empty DataFrame", "html.html"),
        ("Own({'a': [1]})", "a text of its own", "html.html"),
        ("Styled({'a': [1]})", "   a\n0  1", "html.html"),
    ] {
        let code = format!("{ODD}\n{code}");
        let shown = result(&mut with, &code).await;
        assert!(shown["isError"] != true && text(&shown).contains(expected), "{shown}");
        assert!(!text(&shown).contains("Traceback"), "{shown}");
        assert!(views(&shown)[0].ends_with(view), "{shown}");
        let shown = result(&mut without, &code).await;
        assert!(text(&shown).contains(expected) && views(&shown).is_empty(), "{shown}");
    }
    // pandas itself says no more of this one.
    let code = format!("{ODD}\npandas.DataFrame({{'a': [Broken()]}})");
    let (with, without) = (result(&mut with, &code).await, result(&mut without, &code).await);
    assert_eq!(text(&with), text(&without));
}

#[tokio::test]
async fn a_view_does_not_wait_for_slow_texts() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    // All of them would take an hour.
    let code = "import pandas, time
class Slow:
    def __str__(self):
        time.sleep(0.1)
        return 'slow'
pandas.DataFrame({'a': [Slow()] * 40_000, 'b': [[0.5] * 10_000] * 40_000})";
    let shown = result(&mut ipybox, code).await;
    let page =
        call(&mut ipybox, "read_view", json!({"view": views(&shown)[0]})).await["structuredContent"].clone();
    let held = page["held"].as_u64().unwrap();
    assert!((1..1000).contains(&held) && page["rows"] == 40_000, "{page}");
}

#[tokio::test]
async fn the_agent_gets_results_as_they_are() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    // All rows of a small table, with cents, the index, and quotes where a text needs them.
    let code = "import pandas\npandas.DataFrame({'sum, total': [1234567.891, 1/3, -0.5]}, index=['a', 'b\"', 'c']).describe()";
    let shown = result(&mut ipybox, code).await;
    let expected = "(index),\"sum, total\"\ncount,3\nmean,411522.57\n";
    assert!(text(&shown).contains(expected) && text(&shown).ends_with("max,1234567.89"), "{shown}");
    let shown = result(&mut ipybox, "pandas.DataFrame({'a': range(100)}).tail(2)").await;
    assert!(text(&shown).ends_with("(index),a\n98,98\n99,99"), "{shown}");
    // What a forked process shows is text, for which there is no view.
    let code = "import os, sys\nprint('', end='', flush=True)\nif not (child := os.fork()):\n    display(pandas.DataFrame({'a': range(30)}))
    sys.stdout.flush()\n    os._exit(0)\n_ = os.waitpid(child, 0)";
    let shown = result(&mut ipybox, code).await;
    let expected = "DataFrame of 30 rows and 1 column\nColumns: a int64\n";
    assert!(text(&shown).starts_with(expected) && views(&shown).is_empty(), "{shown}");
}

#[tokio::test]
async fn numbers_of_any_kind_are_sorted_as_numbers() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    let code = "import pandas, decimal
pandas.DataFrame({'d': [decimal.Decimal('10.50'), decimal.Decimal('9'), decimal.Decimal('nan')],
                  'f': [float('inf'), 1.5, float('-inf')], 'i': [2**70, 2**53 + 1, 2**53]})";
    let shown = result(&mut ipybox, code).await;
    for (column, expected) in [(0, [1, 0, 2]), (1, [2, 1, 0]), (2, [2, 1, 0])] {
        let query = json!({"view": views(&shown)[0], "sort": {"column": column}});
        let page = call(&mut ipybox, "read_view", query).await["structuredContent"].clone();
        let rows = page["page"].as_array().unwrap().iter().map(|row| row["number"].as_u64().unwrap() - 1);
        assert_eq!(Vec::from_iter(rows), expected, "{page}");
    }
}

#[tokio::test]
async fn a_view_takes_the_place_of_the_one_that_it_replaces() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &[], apps()).await;
    let code = format!(
        "{TABLE}\nhandles = [display(table, display_id=True) for _ in range(32)]\nhandles[0].update(table.head(3))"
    );
    let shown = result(&mut ipybox, &code).await;
    assert_eq!(views(&shown).len(), 32);
    assert!(!text(&shown).contains("Only the first 32"), "{shown}");
}

#[tokio::test]
async fn a_cell_that_is_waited_for_has_its_views() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &["--long-cells"], apps()).await;
    let go = place.workspace().join("go");
    let code = format!(
        "import os, time\n{TABLE}\nwhile not os.path.exists({go:?}): time.sleep(0.05)\ndisplay(table)"
    );
    let left = call(&mut ipybox, "execute_ipython_cell", json!({"code": code, "wait": 0.1})).await;
    assert!(text(&left).contains("cell-1"), "{left}");
    std::fs::write(&go, "").unwrap();
    let done = call(&mut ipybox, "wait_for_cell", json!({"cell": "cell-1"})).await;
    assert_eq!(views(&done).len(), 1, "{done}");
}

#[tokio::test]
async fn revision_2026_07_28_says_with_each_request_what_the_client_can() {
    let place = Place::new();
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    let mut request = async |method: &str, mut params: Value, capabilities: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        ipybox.request(method, params).await.response().await.unwrap()["result"].clone()
    };
    let cell = json!({"name": "execute_ipython_cell", "arguments": {"code": TABLE}});
    let without = request("tools/call", cell.clone(), json!({})).await;
    assert_eq!(views(&without), Vec::<&str>::new());
    let with = request("tools/call", cell, apps()).await;
    assert_eq!(views(&with).len(), 1, "{with}");
    for (capabilities, count) in [(json!({}), 4), (apps(), 5)] {
        let tools = request("tools/list", json!({}), capabilities).await;
        assert_eq!(tools["tools"].as_array().unwrap().len(), count, "{tools}");
    }
}

#[tokio::test]
async fn a_notebook_has_the_tables_and_not_their_views() {
    let place = Place::new();
    let mut ipybox = with_client(&place, &["--notebook", "run.ipynb"], apps()).await;
    result(&mut ipybox, TABLE).await;
    ipybox.stop().await;
    let notebook = place.read("run.ipynb");
    assert!(notebook.contains("<table") && !notebook.contains("vnd.ipybox"), "{notebook}");
}
