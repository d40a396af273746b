//! Tables and plots as users see and use them: by keyboard, on a narrow screen, light and dark.

use serde_json::json;

use super::host;
use crate::support::{Browser, Place};

/// 1,000 rows.
const SALES: &str = "import pandas as pd
regions = ['north', 'south', 'east', 'west'] * 250
sales = pd.DataFrame({'region': regions, 'amount': [1.5 * n for n in range(1000)],
                      'when': pd.date_range('2026-01-01', periods=1000),
                      'note': [None if n % 7 else 'a note that is longer than a narrow screen ' * 3 for n in range(1000)]})";

/// What a view must be, however it is shown: no wider than its frame, and without trouble.
const SOUND: &str = "
    const wide = await host.frame.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (wide > 0) throw new Error(`the view is ${wide} pixels wider than its frame`);
    const said = await host.frame.$$eval('.trouble:not([hidden])', (said) => said.map((it) => it.textContent));
    if (said.length) throw new Error(said.join('; '));
    if (host.troubles.length) throw new Error(host.troubles.join('; '));
    if (host.fetched.length) throw new Error(`fetched: ${host.fetched}`);";

/// Waits until all views are shown.
const SHOWN: &str = "await host.wait(() => document.querySelector('.view') && !document.querySelector('[aria-busy], .busy'));";

/// Shows a cell's views in a window of this size, with these colours: they are sound there.
async fn show(host: &mut Browser, name: &str, code: &str, width: u32, height: u32, theme: &str) {
    let size = json!({"width": width, "height": height});
    host.run(&format!(
        "host.context.theme = {theme:?};
         await host.cell({}, {size});
         {SHOWN}
         // Plots are drawn in steps.
         await new Promise((done) => setTimeout(done, 500));
         {SOUND}",
        json!(code)
    ))
    .await;
    host.screenshot(name).await;
}

#[tokio::test]
async fn a_table_is_sorted_filtered_and_paged_by_keyboard() {
    let place = Place::new();
    let mut host = host(&place, &[]);
    show(&mut host, "table-light", &format!("{SALES}\nsales"), 800, 700, "light").await;
    host.run(&format!(
        "const rows = () => host.frame.$$eval('tbody tr', (rows) => rows.map((row) => row.textContent));
         const note = (words) => host.frame.waitForFunction((words) => document.querySelector('.note').textContent === words, {{polling: 50}}, words);
         await note('1–50 of 1,000');
         // To the header of the second column, and twice for the opposite direction.
         await host.frame.focus('thead th:nth-child(3) button');
         await host.page.keyboard.press('Enter');
         await host.wait(() => document.querySelector('th[aria-sort=ascending]'));
         await host.page.keyboard.press('Space');
         await host.wait(() => document.querySelector('th[aria-sort=descending]'));
         await host.wait(() => document.querySelector('tbody td:nth-child(3)').textContent === '1498.5');
         if (!await host.frame.evaluate(() => document.activeElement.matches('thead button'))) throw new Error('the focus is lost');
         await host.frame.evaluate(() => [...document.querySelectorAll('.controls button')].find((it) => it.textContent === 'Filter').click());
         if (!await host.frame.evaluate(() => document.activeElement.matches('.filter input'))) throw new Error('the filter has no focus');
         await host.page.keyboard.type('north');
         await note('1–50 of 250; 250 of 1,000 rows fit');
         await host.frame.focus('[aria-label=Last]');
         await host.page.keyboard.press('Enter');
         await note('201–250 of 250; 250 of 1,000 rows fit');
         if ((await rows()).at(-1) !== '1north02026-01-01a note that is longer than a narrow screen '.repeat(1) + 'a note that is longer than a narrow screen '.repeat(2)) throw new Error((await rows()).at(-1));
         await host.frame.evaluate(() => [...document.querySelectorAll('button')].find((it) => it.textContent === 'Add a filter').click());
         await host.frame.select('.filter:nth-child(2) select', '1');
         await host.frame.select('.filter:nth-child(2) select:nth-of-type(2)', '<');
         await host.frame.type('.filter:nth-child(2) input', '9');
         await note('2 of 1,000 rows fit');
         // One line of controls stands above the rows, and columns are summed up, of the rows that fit.
         const summary = () => host.frame.$eval('thead th:nth-child(3) .summary', (words) => words.textContent);
         await host.wait(() => document.querySelector('thead th:nth-child(3) .summary')?.textContent === '2 distinct · 0 – 6');
         // All rows that fit are copied, with all that they have.
         await host.frame.evaluate(() => Object.defineProperty(navigator, 'clipboard', {{ value: {{ writeText: async (text) => {{ window.copied = text; }} }} }}));
         await host.frame.evaluate(() => [...document.querySelectorAll('button')].find((it) => it.textContent === 'Copy').click());
         await host.wait(() => window.copied);
         const copied = await host.frame.evaluate(() => window.copied.split('\\n'));
         if (copied.length !== 3 || !copied.at(-1).startsWith('north\\t0\\t2026-01-01T00:00:00\\ta note')) throw new Error(JSON.stringify(copied));
         {SOUND}
         // Rows cost no token: the model's text has five.
         if (host.result.content[0].text.split('\\n').length !== 9) throw new Error(host.result.content[0].text);
         const names = new Set(host.calls.map((call) => call.name));
         if ([...names].join() !== 'read_view') throw new Error([...names]);"
    ))
    .await;
    let code = "sales.set_index(['region', 'when'])";
    show(&mut host, "table-dark", code, 800, 700, "dark").await;
    show(&mut host, "table-narrow", "sales", 360, 740, "light").await;
    show(&mut host, "table-narrow-dark", "sales", 360, 740, "dark").await;
}

#[tokio::test]
async fn a_client_whose_locale_is_no_language_tag_sees_tables() {
    let place = Place::new();
    let mut host = host(&place, &[]);
    host.run("host.context.locale = 'en_US';").await;
    show(&mut host, "table-locale", &format!("{SALES}\nsales"), 800, 700, "light").await;
    host.run(
        "const shown = await host.frame.$eval('.view', (view) => [view.querySelector('.note').textContent, view.querySelectorAll('tbody tr').length]);
         if (shown.join() !== '1–50 of 1,000,50') throw new Error(shown);",
    )
    .await;
}

#[tokio::test]
async fn a_page_of_long_rows_is_followed_by_the_next_row() {
    let place = Place::new();
    let mut host = host(&place, &[]);
    // 25 KB each: 20 of them are an answer.
    let code = "import pandas as pd\npd.DataFrame({f'c{n}': ['x' * 990] * 30 for n in range(25)})";
    show(&mut host, "table-long-rows", code, 800, 700, "light").await;
    host.run(&format!(
        "const rows = () => host.frame.$$eval('tbody td.row', (cells) => cells.map((cell) => Number(cell.textContent)));
         const first = await rows();
         if (first.length >= 30) throw new Error('the answer has all rows');
         await host.frame.evaluate(() => [...document.querySelectorAll('button:not([hidden])')].find((it) => it.ariaLabel === 'Next').click());
         await host.wait(() => document.querySelector('tbody td.row').textContent !== '1');
         const all = [...first, ...await rows()];
         if (all.join() !== Array.from({{length: 30}}, (_, number) => number + 1).join()) throw new Error(all);
         await host.frame.evaluate(() => [...document.querySelectorAll('button:not([disabled])')].find((it) => it.ariaLabel === 'Previous').click());
         await host.wait(() => document.querySelector('tbody td.row').textContent === '1');
         {SOUND}"
    ))
    .await;
}

#[tokio::test]
async fn a_client_that_refuses_a_page_or_its_full_screen_leaves_no_error() {
    let place = Place::new();
    let mut host = host(&place, &[]);
    show(&mut host, "refused-wide", &format!("{SALES}\nsales"), 800, 700, "light").await;
    host.run(&format!(
        "const refused = new Promise((done) => host.bridge.onrequestdisplaymode = async () => {{
           done();
           throw new Error('there is no room');
         }});
         await host.frame.click('.wide');
         await refused;
         await new Promise((done) => setTimeout(done, 300));
         {SOUND}
         host.refusal = 'this version is not known';
         await host.cell('sales');
         await host.wait(() => document.querySelector('.trouble')?.textContent === 'This output cannot be shown: this version is not known');
         await new Promise((done) => setTimeout(done, 300));
         if (host.troubles.length) throw new Error(host.troubles.join('; '));"
    ))
    .await;
    host.screenshot("refused").await;
}

#[tokio::test]
async fn a_table_that_cannot_be_read_has_no_buttons() {
    let place = Place::new();
    let mut host = host(&place, &[]);
    host.run(
        "host.calls.push = () => { throw new Error('not now'); };
         await host.cell('import pandas; pandas.DataFrame({1: [1]})');
         await host.wait(() => document.querySelector('.trouble:not([hidden])'));
         const buttons = await host.frame.$$eval('.controls button:not([hidden])', (buttons) => buttons.map((it) => it.textContent));
         if (buttons.some((name) => name !== '⤢')) throw new Error(buttons);",
    )
    .await;
}

/// A figure, a chart, an image and HTML.
const PLOTS: &str = "import altair, plotly.express
import matplotlib.pyplot as plt
from IPython.display import HTML
plotly.express.scatter(sales.head(200), x='when', y='amount', color='region', title='By Plotly').show()
chart = altair.Chart(sales.head(200)).mark_line().encode(x='when:T', y='amount:Q', color='region:N')
display(chart.properties(title='By Altair'))
plt.plot([1, 3, 2])
plt.show()
HTML('<h3>Some <i>HTML</i></h3><p>and a text</p>')";

#[tokio::test]
async fn plots_images_and_html_are_drawn() {
    let place = Place::new();
    let mut host = host(&place, &[]);
    let code = format!("{SALES}\n{PLOTS}");
    show(&mut host, "plots-light", &code, 800, 1500, "light").await;
    host.run(
        "const title = await (await host.within('.gtitle')).$eval('.gtitle', (title) => title.textContent);
         if (title !== 'By Plotly') throw new Error(title);
         await host.within('.vega-embed canvas, .vega-embed svg');
         if (await (await host.within('h3')).$eval('h3', (head) => head.textContent) !== 'Some HTML') throw new Error('no HTML');
         // In its own size, also if the client begins with a frame of a few pixels.
         const image = await host.frame.$eval('img', (image) => [image.naturalWidth, image.clientWidth]);
         if (image[0] < 100 || image[0] !== image[1]) throw new Error(`an image of ${image} pixels`);
         const text = host.result.content[0].text;
         for (const words of ['Plotly figure “By Plotly”', 'scatter “north”', 'Vega-Lite chart “By Altair”', 'mark: line']) {
           if (!text.includes(words)) throw new Error(text);
         }
         if (text.length > 1000) throw new Error('a long text for the model');",
    )
    .await;
    for (name, width, theme) in
        [("plots-dark", 800, "dark"), ("plots-narrow", 360, "light"), ("plots-narrow-dark", 360, "dark")]
    {
        show(&mut host, name, PLOTS, width, 1500, theme).await;
    }
    // Kinds of plots that take other parts of the libraries: in three dimensions, on a canvas, with expressions.
    let others = "plotly.express.scatter_3d(sales.head(9), x='amount', y='amount', z='amount').show()
plotly.express.scatter(x=range(5000), y=range(5000)).show()
plotly.express.sunburst(sales.head(9), path=['region', 'amount']).show()
plotly.express.density_heatmap(sales, x='amount', y='region').show()
bars = altair.Chart(sales.head(99)).mark_bar().encode(x=altair.X('amount:Q', bin=True), y='count()')
brush = altair.selection_interval()
display(bars | altair.Chart(sales.head(99)).mark_point().encode(x='amount', y='when:T', color=altair.condition(brush, 'region', altair.value('gray'))).add_params(brush).transform_calculate(double='datum.amount * 2'))";
    show(&mut host, "plots-others", others, 800, 2400, "light").await;
    // An animation has its frames, a sound is there, a chart without its data says so, and a long text leaves room for others.
    let others = "plotly.express.scatter(sales.head(4), x='amount', y='amount', animation_frame='region').show()
from IPython.display import Audio
display(Audio([0.0] * 8000, rate=8000))
display({'application/vnd.vegalite.v6+json': {'data': {'url': 'http://127.0.0.1:9/data.csv'}, 'mark': 'point', 'encoding': {'x': {'field': 'a'}}}}, raw=True)
pd.DataFrame({'text': ['word ' * 200, 'short']})";
    host.run(&format!(
        "await host.cell({}, {{width: 800, height: 2400}});
         {SHOWN}
         const plot = await host.within('.updatemenu-button');
         const frames = await plot.$eval('#plot', (plot) => plot._transitionData._frames.length);
         if (frames !== 4) throw new Error(`${{frames}} frames`);
         await host.wait(() => document.querySelector('.html iframe').contentDocument.querySelector('audio').readyState > 0);
         await host.wait(() => /no network/.test(document.querySelectorAll('.view')[2].querySelector('.note:not([hidden])')?.textContent));
         const high = await host.frame.$eval('tbody tr', (row) => row.clientHeight);
         if (high > 150) throw new Error(`a row of ${{high}} pixels`);
         host.troubles.length = 0;",
        json!(others)
    ))
    .await;
    host.screenshot("plots-more").await;
    // A cell without anything to show has a page of no height, and one that fails has what it has shown.
    host.run(
        "await host.cell('1 + 1');
         await new Promise((done) => setTimeout(done, 300));
         if (host.height) throw new Error(`${host.height} pixels`);",
    )
    .await;
}

#[tokio::test]
async fn a_changed_theme_redraws() {
    let place = Place::new();
    let mut host = host(&place, &[]);
    show(&mut host, "theme-light", &format!("{SALES}\n{PLOTS}"), 800, 1500, "light").await;
    host.run(&format!(
        "const plot = await host.within('.gtitle');
         const color = () => plot.$eval('.gtitle', (title) => getComputedStyle(title).fill);
         const before = await color();
         await host.bridge.sendHostContextChange?.({{ theme: 'dark' }}) ?? host.bridge.setHostContext({{ ...host.context, theme: 'dark' }});
         for (let tries = 0; await color() === before; tries += 1) {{
           if (tries > 1000) throw new Error('the plot keeps its colours');
           await new Promise((done) => setTimeout(done, 50));
         }}
         {SOUND}"
    ))
    .await;
    host.screenshot("theme-changed").await;
}
