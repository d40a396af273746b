//! In headless Chromium: by keyboard alone, on a narrow screen, light and dark, with 200 calls at once.

use serde_json::json;

use super::{Browser, TAKES_ALL, start, start_with_both};
use crate::support::{Place, tool};

/// Calls a tool in 200 threads, and prints how many calls were allowed.
const MANY: &str = "
import ipybox_runtime
from concurrent.futures import ThreadPoolExecutor
from mcptools.files import change
def call(number):
    try:
        change.run(path=f'/home/me/reports/2026/part-{number:03}.txt', mode='replace')
        return True
    except Exception as error:
        return False
with ThreadPoolExecutor(200) as pool:
    print(sum(pool.map(call, range(200))), 'of 200')";

/// What a page must have, however it is shown: nothing wider than the screen, and no trouble.
const SOUND: &str = "
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (wide > 0) throw new Error(`the page is ${wide} pixels wider than the screen`);
    if (page.troubles.length) throw new Error(page.troubles.join('; '));";

/// Shows the page in a window of this width with these colours: it is sound there.
pub(super) async fn look(browser: &mut Browser, name: &str, width: u32, scheme: &str) {
    browser
        .run(&format!(
            "await page.emulateMediaFeatures([{{name: 'prefers-color-scheme', value: {scheme:?}}}]);
             await page.setViewport({{width: {width}, height: 740}});
             {SOUND}"
        ))
        .await;
    browser.screenshot(name).await;
}

#[tokio::test]
async fn a_call_is_allowed_by_keyboard_alone() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let running = ipybox.start_cell("print('before', flush=True)\n!echo by hand").await;
    browser
        .run(
            "await page.waitForFunction(() => document.title === '(1) workspace · ipybox');
             await page.waitForFunction(() => document.querySelector('tr.row button.allow').ariaDisabled === 'false');
             await page.waitForFunction(() => document.querySelector('.output').textContent === 'before\\n');
             await page.keyboard.press('j');
             const label = await page.evaluate(() => document.activeElement.ariaLabel);
             if (!label.includes('cmd: \"echo by hand\"')) throw new Error(label);
             await page.keyboard.press('Enter');
             await page.waitForFunction(() => document.querySelector('tr.full pre')?.textContent === 'echo by hand');
             await page.keyboard.press('Tab');
             await page.keyboard.press('Tab');
             const button = await page.evaluate(() => document.activeElement.ariaLabel);
             if (!button.startsWith('Allow once: ')) throw new Error(button);
             await page.keyboard.press('Space');",
        )
        .await;
    assert!(running.answer().await.ok().contains("by hand"));
    browser
        .run(&format!(
            "await page.waitForFunction(() => document.title === 'workspace · ipybox');
             await page.waitForFunction(() => document.querySelector('tr.row').textContent.includes('allowed once'));
             // What had the focus is still there.
             if (!await page.evaluate(() => document.activeElement.matches('tr.row'))) throw new Error('the focus is lost');
             await page.waitForFunction(() => document.querySelector('#decisions li').textContent.includes('allowed once'));
             await page.waitForFunction(() => document.querySelector('.cell').textContent.includes('by hand'));
             {SOUND}"
        ))
        .await;
    let running = ipybox.start_cell("!echo never").await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('tr.row:not(.over) button.deny')?.ariaDisabled === 'false');
             await page.focus('tr.row:not(.over)');
             await page.keyboard.press('d');",
        )
        .await;
    let denied = running.answer().await;
    assert!(denied.text.contains("rejected"), "{}", denied.text);
    ipybox.stop().await;
}

#[tokio::test]
async fn two_hundred_calls_are_one_table() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let running = ipybox.start_cell(MANY).await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelectorAll('tr.row:not(.over)').length === 200);
             await page.waitForFunction(() => document.getElementById('choose-label').textContent === 'Choose all 200');
             const about = await page.$eval('.same', (same) => same.textContent);
             if (about !== 'In all of them: mode replace') throw new Error(about);
             const head = await page.$$eval('thead th', (heads) => heads.map((head) => head.textContent));
             if (head[1] !== 'path') throw new Error(head);
             if ((await page.$$('table')).length !== 1) throw new Error('several tables');",
        )
        .await;
    browser.screenshot("200-light").await;
    for (name, width, scheme) in
        [("200-dark", 1280, "dark"), ("200-narrow", 360, "light"), ("200-narrow-dark", 360, "dark")]
    {
        look(&mut browser, name, width, scheme).await;
    }
    browser.run("await page.evaluate(() => document.querySelector('tr.row').scrollIntoView());").await;
    browser.screenshot("200-narrow-rows").await;
    // Some are denied one by one, three are chosen and denied together, and the rest is allowed at once.
    browser
        .run(
            "const before = await page.$$eval('tr.row', (rows) => rows.map((row) => row.ariaLabel));
             const height = () => page.$eval('tbody', (rows) => rows.scrollHeight);
             const tall = await height();
             // Where the pointer is, nothing folds.
             await page.hover('tr.row');
             await page.focus('tr.row');
             await page.keyboard.press('d');
             await page.waitForFunction(() => document.querySelectorAll('tr.over').length === 1);
             if (await height() !== tall) throw new Error('what was below the row has moved');
             for (const key of ['j', 'x', 'j', 'x', 'j', 'j', 'x']) await page.keyboard.press(key);
             await page.waitForFunction(() => document.querySelector('#bulk button.deny').textContent === 'Deny 3 chosen');
             await page.click('#bulk button.deny');
             await page.waitForFunction(() => document.querySelectorAll('tr.over').length === 4);
             await page.waitForFunction(() => document.getElementById('choose-label').textContent === 'Choose all 196');
             const after = await page.$$eval('tr.row', (rows) => rows.map((row) => row.ariaLabel));
             if (JSON.stringify(before) !== JSON.stringify(after)) throw new Error('rows have moved');
             await page.click('#choose-all');
             await page.waitForFunction(() => document.querySelector('#bulk button.primary').textContent === 'Allow all 196');
             await page.click('#bulk button.primary');
             await page.waitForFunction(() => document.querySelectorAll('tr.over').length === 200);",
        )
        .await;
    assert!(running.answer().await.ok().contains("196 of 200"));
    browser.screenshot("200-over").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn details_show_what_would_change_in_a_file() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let path = place.workspace().join("plan.md");
    let text: String = (1..=40).map(|line| format!("line {line}\n")).collect();
    std::fs::write(&path, &text).unwrap();
    let code = format!(
        "from mcptools.files import change\ntext = open({path:?}).read().replace('line 7\\n', 'line <b>seven</b>\\n')\nchange.run(path={path:?}, text=text)",
    );
    let running = ipybox.start_cell(&code).await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('tr.row:not(.over) button.allow')?.ariaDisabled === 'false');
             await page.focus('tr.row:not(.over)');
             await page.keyboard.press('Enter');
             await page.waitForSelector('tr.full .diff');
             const lines = await page.$$eval('tr.full .diff span', (lines) => lines.map((line) => line.textContent));
             const kinds = await page.$$eval('tr.full .diff .added, tr.full .diff .removed', (lines) => lines.map((line) => line.className));
             if (lines.length !== 8 || kinds.join() !== 'removed,added') throw new Error(JSON.stringify([lines, kinds]));
             if (lines[3] !== '− line 7' || lines[4] !== '+ line <b>seven</b>') throw new Error(JSON.stringify(lines));",
        )
        .await;
    for (name, width, scheme) in [("diff-light", 1280, "light"), ("diff-narrow-dark", 360, "dark")] {
        look(&mut browser, name, width, scheme).await;
    }
    browser.run("await page.keyboard.press('d');").await;
    assert!(running.answer().await.error().contains("rejected"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_registration_can_be_labelled() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let params = json!({"command": tool("mcp1/bin/python"), "args": ["-c", TAKES_ALL]});
    let named = json!({"server_name": "files", "server_params": params});
    let registering = ipybox.start_call("register_mcp_server", named).await;
    browser
        .run(&format!(
            "await page.waitForFunction(() => document.querySelector('tr.row button.allow')?.ariaDisabled === 'false');
             await page.select('.group select', 'confidential');
             {SOUND}"
        ))
        .await;
    browser.screenshot("label").await;
    browser.run("await page.click('tr.row button.allow');").await;
    registering.answer().await.ok();
    let calling =
        ipybox.start_cell("from mcptools.files import change\nfor path in 'ab': change.run(path=path)").await;
    browser
        .run(
            "const ready = (path) => page.waitForFunction(`
                 document.querySelector('tr.row:not(.over)')?.ariaLabel.includes('path: \"${path}\"')
                     && document.querySelector('tr.row:not(.over) .allow').ariaDisabled === 'false'`);
             await ready('a');
             await page.click('tr.row:not(.over) button.allow');
             await ready('b');
             await page.focus('tr.row:not(.over)');
             await page.waitForFunction(() => document.getElementById('read').textContent.includes('confidential'));
             await page.keyboard.press('a');",
        )
        .await;
    calling.answer().await.ok();
    ipybox.stop().await;
}

#[tokio::test]
async fn an_image_a_file_and_an_exception_are_shown() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &[], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let drawing = "from IPython.display import display, Image\nimport base64\n\
         display(Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')))\n\
         for step in range(3):\n    print(f'\\r{step}', end='')\nprint()\n\
         show_file(b'content', 'a.txt')\n1/0";
    ipybox.cell(drawing).await.error();
    browser
        .run(&format!(
            "await page.waitForFunction(() => document.querySelector('.cell img')?.naturalWidth === 1);
             await page.waitForFunction(() => document.querySelector('.cell .error').textContent.includes('ZeroDivisionError'));
             await page.waitForFunction(() => document.querySelector('.cell .output').textContent === '2\\n');
             await page.waitForFunction(() => /shown file is in .*-a\\.txt/.test(document.querySelector('.cell').textContent));
             {SOUND}"
        ))
        .await;
    browser.screenshot("cell").await;
    // One long line, which begins anew at last.
    ipybox.cell("for _ in range(120): print('x' * 4000, end='', flush=True)\nprint('\\rend')").await.ok();
    browser
        .run("await page.waitForFunction(() => document.querySelector('.cell .output').textContent === 'end\\n');")
        .await;
    // What the page itself leaves out is counted in bytes, too.
    browser
        .run(
            "const bytes = await page.evaluate(() => {
                 const cell = [...cells.values()].at(-1);
                 const before = cell.leftOut;
                 take({ event: 'text', cell: cell.id, text: 'é'.repeat(200_201) });
                 return cell.leftOut - before;
             });
             if (bytes !== 406) throw new Error(`${bytes} bytes`);",
        )
        .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_second_tab_has_the_key_of_the_first_and_sees_the_same() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    browser
        .run(&format!(
            "browser.other = await open();
             // Its second script is late, and the key is not taken before.
             await browser.other.setRequestInterception(true);
             browser.other.on('request', (request) =>
                 setTimeout(() => request.continue(), request.url().endsWith('/waiting.js') ? 1000 : 0));
             await browser.other.goto({url:?});
             await browser.other.waitForFunction(() => document.getElementById('state').textContent.includes('2 browser tabs'));"
        ))
        .await;
    let running = ipybox.start_cell("!echo twice").await;
    browser
        .run(
            "for (const tab of [page, browser.other]) {
                 await tab.waitForFunction(() => document.querySelector('tr.row button.allow')?.ariaDisabled === 'false');
             }
             await browser.other.click('tr.row button.allow');
             for (const tab of [page, browser.other]) {
                 await tab.waitForFunction(() => document.querySelector('tr.row').textContent.includes('allowed once'));
             }",
        )
        .await;
    assert!(running.answer().await.ok().contains("twice"));
    // The key is in memory alone: without a tab that has it, the code is asked for.
    browser
        .run(
            "await browser.other.close();
             await page.reload();
             await page.waitForSelector('#enter:not([hidden])');
             const kept = await page.evaluate(() => JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}]));
             if (kept !== '[\"\",{},{}]') throw new Error(kept);",
        )
        .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn many_tabs_leave_connections_for_each_other() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    browser
        .run(&format!(
            "browser.tabs = [];
             for (let each = 0; each < 8; each += 1) {{
                 const tab = await open();
                 await tab.goto({url:?}, {{ timeout: 30_000 }});
                 await tab.waitForFunction(() => document.getElementById('state').textContent.startsWith('Connected'));
                 browser.tabs.push(tab);
             }}
             await browser.tabs.at(-1).waitForFunction(() => document.getElementById('state').textContent === 'Connected, in 2 browser tabs');"
        ))
        .await;
    let running = ipybox.start_cell("!echo seen").await;
    browser
        .run(
            "// The tab that is shown, and one that is not: at first the one that was hidden first.
             const counting = async (count) => {
                 for (let tries = 0; tries < 600; tries += 1) {
                     const titles = await Promise.all(browser.tabs.map((tab) => tab.title()));
                     const counted = titles.flatMap((title, number) => title === '(1) workspace · ipybox' ? [number] : []);
                     if (counted.length === count) return counted.join();
                     await new Promise((done) => setTimeout(done, 50));
                 }
                 throw new Error(`there are not ${count} tabs that count the call`);
             };
             await page.waitForFunction(() => document.title === '(1) workspace · ipybox');
             if (await counting(1) !== '7') throw new Error(await counting(1));
             await page.close();
             if (!(await counting(2)).endsWith(',7')) throw new Error(await counting(2));
             // One without a connection has one as soon as it is shown.
             const tab = browser.tabs[5];
             await tab.bringToFront();
             await tab.waitForFunction(() => document.querySelector('tr.row .allow')?.ariaDisabled === 'false');
             await tab.click('tr.row button.allow');
             await tab.waitForFunction(() => document.querySelector('tr.row').textContent.includes('allowed once'));",
        )
        .await;
    assert!(running.answer().await.ok().contains("seen"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_call_takes_the_same_work_however_many_wait() {
    let place = Place::new();
    let (ipybox, url, code) = start(&place, &[], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let work = browser
        .run(
            "return page.evaluate(() => {
                 let count = 0;
                 for (const [owner, name] of [[Element.prototype, 'getAttribute'], [Element.prototype, 'querySelectorAll'], [window, 'setTimeout']]) {
                     const own = owner[name];
                     owner[name] = function (...given) {
                         count += 1;
                         return own.apply(this, given);
                     };
                 }
                 const call = (id, mode = 'w') => ({
                     id, server: 'files', tool: `change-${id % 2}`, kind: null, behind: '', changes: null, batch: null, hints: [],
                     grant: null, outside: null, scope: '', like: '', compared: [], origins: [], read: null, labels: [],
                     get arguments() {
                         count += 1;
                         const text = (name, value) => ({ name, parts: [value], is_text: true, is_cut: false });
                         return [text('path', `part-${id}`), text('mode', mode)];
                     },
                 });
                 let id = 1_000_000;
                 const add = () => {
                     const before = count;
                     for (let each = 0; each < 250; each += 1) take({ event: 'question', question: { row: call(id++), left_ms: null } });
                     return count - before;
                 };
                 window.addAnother = () => take({ event: 'question', question: { row: call(id++, 'a'), left_ms: null } });
                 return Array.from({ length: 8 }, add);
             });",
        )
        .await;
    let (first, last) = (work[0].as_u64().unwrap(), work[7].as_u64().unwrap());
    assert!(last < 2 * first, "{work}");
    browser
        .run(
            "await page.waitForFunction(() => document.getElementById('choose-label').textContent === 'Choose all 2000');
             const about = () => page.$$eval('.same', (all) => all.map((same) => same.textContent).join());
             if (await about() !== 'In all of them: mode w,In all of them: mode w') throw new Error(await about());
             // One that differs makes a column, for the calls that were there as well.
             await page.evaluate(() => window.addAnother());
             await page.waitForFunction(() => document.title === '(2001) workspace · ipybox');
             if (await about() !== ',In all of them: mode w') throw new Error(await about());
             const row = await page.$eval('tr.row', (row) => [...row.querySelectorAll('.value')].map((value) => value.textContent).join());
             if (row !== 'part-1000000,w') throw new Error(row);
             await page.click('#choose-all');
             await page.waitForFunction(() => document.querySelector('#bulk button.primary').textContent === 'Allow all 2001');
             await page.waitForFunction(() => document.querySelector('tr.row .deny').ariaDisabled === 'false');
             if (!await page.$eval('#choose-all', (box) => box.checked)) throw new Error('the box is not checked');
             // Of so many calls, those that are over do not stay. What moves up takes no answer for a moment.
             const guarded = await page.evaluate(() => {
                 const decision = { how: 'denied', server: 's', tool: 't', arguments: [], at: '' };
                 for (const id of [1_000_001, 1_000_002]) take({ event: 'decided', id, decision });
                 return [...document.querySelectorAll('tr.row .deny')].filter((button) => button.ariaDisabled === 'true').length;
             });
             if (guarded !== 1999) throw new Error(`${guarded} rows take no answer`);
             await page.waitForFunction(() => document.querySelector('tr.row .deny').ariaDisabled === 'false');",
        )
        .await;
    ipybox.stop().await;
}
