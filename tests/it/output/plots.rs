//! Plots that need a browser: a short text for the agent, and a page that opens without a network.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, kernel_python};

/// The files that an answer links to.
fn files(text: &str) -> Vec<PathBuf> {
    text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().into()).collect()
}

/// Runs a cell that shows one plot, and returns its text and its page.
async fn shown(ipybox: &mut Ipybox, code: &str) -> (String, PathBuf) {
    let text = ipybox.cell(code).await.ok();
    let [file] = &files(&text)[..] else { panic!("{code}\n{text}") };
    assert_eq!(file.extension().unwrap(), "html", "{text}");
    (text.clone(), file.clone())
}

const RAW_PLOTLY: &str =
    "display({'application/vnd.plotly.v1+json': {'data': [{'type': 'bar', 'name': 'one', 'y': [1, 2]}],
    'layout': {'title': {'text': 'Sales by Region'}}}}, raw=True)";
const RAW_CHART: &str = "display({'application/vnd.vegalite.v5+json': {'mark': 'bar', 'title': 'A chart', 'data': {'values': [{'a': 1}]},
    'encoding': {'x': {'field': 'a', 'type': 'quantitative'}}}}, raw=True)";

#[tokio::test]
pub(crate) async fn plots_are_pages_for_clients_without_views() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let (text, file) = shown(&mut ipybox, RAW_PLOTLY).await;
    let expected =
        "Plotly figure “Sales by Region”; traces: bar “one”\n\nGenerated images:\n\n- [sales-by-region](";
    assert!(text.starts_with(expected), "{text}");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("sales-by-region-") && file.starts_with(place.workspace().join("images")));
    assert!(std::fs::read_to_string(file).unwrap().contains(r#""name": "one""#));
    let (text, file) = shown(&mut ipybox, RAW_CHART).await;
    assert!(text.starts_with("Vega-Lite chart “A chart”; mark: bar; x: a quantitative\n"), "{text}");
    assert!(std::fs::read_to_string(file).unwrap().contains(r#""mark": "bar""#));
    assert!(!place.workspace().join(".ipybox/views").exists());
    ipybox.stop().await;
}

#[tokio::test]
async fn every_way_to_show_a_plot_shows_it() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "import altair, pandas, plotly.express\ntable = pandas.DataFrame({'a': [1, 2], 'b': [3, 4]})\n\
                figure = plotly.express.bar(table, x='a', y='b', title='Bars')\n\
                chart = altair.Chart(table, title='Points').mark_point().encode(x='a', y='b')\n\
                import plotly.io";
    assert_eq!(ipybox.cell(code).await.ok(), "[no output]");
    for code in [
        "figure.show()",
        "figure",
        "display(figure)",
        "figure.show(renderer='notebook')",
        "plotly.io.renderers.default = 'browser'\nfigure.show()",
    ] {
        let (text, _) = shown(&mut ipybox, code).await;
        assert!(text.starts_with("Plotly figure “Bars”; traces: bar; x: a; y: b\n"), "{code}: {text}");
    }
    for code in [
        "chart",
        "display(chart)",
        "chart.show()",
        "chart.display()",
        "altair.renderers.enable('html')\nchart",
    ] {
        let (text, _) = shown(&mut ipybox, code).await;
        let expected = "Vega-Lite chart “Points”; mark: point; x: a quantitative; y: b quantitative\n";
        assert!(text.contains(expected), "{code}: {text}");
    }
    let (text, _) = shown(&mut ipybox, "chart | chart.mark_line()").await;
    assert!(text.starts_with("Vega-Lite chart; of point, line\n"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn pages_draw_their_plots_without_a_network() {
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (code, drawn) in [(RAW_PLOTLY, "class=\"gtitle\""), (RAW_CHART, "class=\"marks\"")] {
        let (_, file) = shown(&mut ipybox, code).await;
        let output = Command::new(&chromium)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"])
            .arg(format!("--user-data-dir={}", place.states().join("chromium").display()))
            // The page's own clock, which waits for its work.
            .args(["--virtual-time-budget=60000", "--dump-dom"])
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let page = String::from_utf8_lossy(&output.stdout);
        let said = &page[..page.find("<script").unwrap_or(0)];
        assert!(page.contains("data-drawn") && page.contains(drawn), "{code}: {said}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn notebooks_have_plots_as_jupyter_draws_them() {
    let place = Place::new();
    let python = kernel_python();
    let mut ipybox = place.start(&["--python", python.to_str().unwrap(), "--notebook", "run.ipynb"]).await;
    ipybox.initialize().await;
    ipybox.cell(RAW_PLOTLY).await.ok();
    ipybox.cell(RAW_CHART).await.ok();
    ipybox.stop().await;
    let notebook: Value = serde_json::from_str(&place.read("run.ipynb")).unwrap();
    let cells = notebook["cells"].as_array().unwrap().iter();
    let data: Vec<&Value> =
        cells.map(|cell| &cell["outputs"][0]["data"]).filter(|data| !data.is_null()).collect();
    assert_eq!(data[0]["application/vnd.plotly.v1+json"]["data"][0]["y"], json!([1, 2]));
    assert_eq!(data[1]["application/vnd.vegalite.v5+json"]["mark"], "bar");
    let text = notebook.to_string();
    assert!(text.contains("Plotly figure") && !text.contains("vnd.ipybox"), "{text}");
}

#[tokio::test]
async fn html_is_read_as_text_and_opened_as_a_page() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "from IPython.display import HTML\nHTML('<title>A sketch</title><p>Two &amp; more</p><svg><circle r=\"9\"/></svg>')";
    let (text, file) = shown(&mut ipybox, code).await;
    assert!(text.starts_with("Two & more\n\nGenerated images:\n\n- [a-sketch]("), "{text}");
    assert!(std::fs::read_to_string(file).unwrap().contains("<circle"));
    // Without a text, and without more than a text.
    let (text, _) = shown(&mut ipybox, "HTML('<div id=\"x\"></div><script>1</script>')").await;
    assert!(text.starts_with("Generated images:"), "{text}");
    let rows = "''.join(f'<tr><td>{n}</td><td>x</td></tr>' for n in range(40))";
    let code = format!(
        "HTML('<h1>Rows</h1><style>td {{}}</style><table><tr><th>a<th>b</tr>' + {rows} + '</table>end')"
    );
    let text = ipybox.cell(&code).await.ok();
    assert!(
        text.starts_with("Rows\na | b\n0 | x\n") && text.ends_with("14 | x\n… 25 more rows\nend"),
        "{text}"
    );
    ipybox.stop().await;
}
