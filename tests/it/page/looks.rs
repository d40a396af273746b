//! What the page shows of many calls, and how little room that takes.

use serde_json::json;

use super::{Browser, start, start_with_both};
use crate::support::Place;

/// Writes thirty files, of which every third is new, in as many threads.
const THIRTY: &str = "
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from mcptools.files import change
Path('reports').mkdir()
paths = [Path('reports', f'part-{number:03}.md').absolute() for number in range(30)]
for path in paths[::3] + paths[1::3]: path.write_text('# Plan\\nrevenue = 120\\ncosts = 80\\n')
def call(path):
    try: return bool(change.run(path=str(path), mode='replace', text='# Plan\\nrevenue = 131\\ncosts = 80\\n'))
    except Exception: return False
with ThreadPoolExecutor(30) as pool: print(sum(pool.map(call, paths)), 'of 30')";

#[tokio::test]
async fn thirty_writes_with_their_changes_fit_into_two_thousand_pixels() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let running = ipybox.start_cell(THIRTY).await;
    browser
        .run(
            "await page.setViewport({ width: 1280, height: 1900 });
             await page.waitForFunction(() => document.querySelectorAll('tr.row:not(.over)').length === 30);
             await page.waitForFunction(() => document.querySelectorAll('td.preview .plus').length === 30);
             // Those that were read while few calls waited are below their rows.
             const previews = await page.$$eval('tr.row', (rows) => rows.map((row) => {
               const next = row.nextElementSibling;
               const below = next?.classList.contains('below') ? next.innerText : '';
               return row.querySelector('td.preview').innerText + below;
             }));
             const changed = previews.filter((text) => /\\+1 −1[^]*revenue = 120[^]*revenue = 131/.test(text));
             const added = previews.filter((text) => /new file \\+3[^]*# Plan/.test(text));
             if (changed.length !== 20 || added.length !== 10) throw new Error(JSON.stringify(previews));
             const height = await page.evaluate(() => document.documentElement.scrollHeight);
             if (height > 2000) throw new Error(`${height} pixels`);
             // Each row has two buttons and a menu, and no value looks like Python.
             const buttons = await page.$$eval('tr.row', (rows) => rows.map((row) => row.querySelectorAll('button').length));
             if (new Set(buttons).size !== 1 || buttons[0] !== 3) throw new Error(buttons);
             const table = await page.$eval('.group', (group) => group.innerText);
             if (/['\"]/.test(table.replace(/Run by .*/, ''))) throw new Error(table);",
        )
        .await;
    for (name, width, scheme) in
        [("30-light", 1280, "light"), ("30-dark", 1280, "dark"), ("30-narrow", 360, "light")]
    {
        super::browser::look(&mut browser, name, width, scheme).await;
    }
    // What is decided folds as soon as nobody can be about to click there, and can be seen again.
    browser
        .run(
            "await page.setViewport({ width: 1280, height: 900 });
             await page.mouse.move(640, 5);
             await page.focus('tr.row');
             for (const key of ['x', 'j', 'x', 'j', 'x']) await page.keyboard.press(key);
             await page.waitForFunction(() => document.querySelector('#bulk .deny').textContent === 'Deny 3 chosen');
             await page.click('#bulk .deny');
             await page.mouse.move(640, 5);
             await page.waitForFunction(() => document.querySelectorAll('tr.row:not([hidden])').length === 27);
             const folded = await page.$eval('.folded', (line) => line.innerText);
             if (!folded.includes('3 decided: 3 denied')) throw new Error(folded);
             await page.click('.folded button');
             await page.waitForFunction(() => document.querySelectorAll('tr.row:not([hidden])').length === 30);",
        )
        .await;
    browser.screenshot("30-folded").await;
    browser
        .run(
            "await page.click('#choose-all');
             await page.waitForFunction(() => document.querySelector('#bulk .primary').textContent === 'Allow all 27');
             await page.click('#bulk .primary');
             await page.waitForFunction(() => document.querySelectorAll('tr.over').length === 30);",
        )
        .await;
    assert!(running.answer().await.ok().contains("27 of 30"));
    ipybox.stop().await;
}

#[tokio::test]
async fn the_header_says_whose_calls_these_are_and_code_has_colours() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    ipybox.cell("for name in ['a']: print(f'{name}')  # a comment").await.ok();
    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('.cell .keyword')?.textContent === 'for');
             const code = await page.$eval('.cell pre', (pre) => pre.textContent);
             if (code !== \"for name in ['a']: print(f'{name}')  # a comment\") throw new Error(code);
             const kinds = await page.$$eval('.cell pre span', (all) => all.map((each) => each.className).join());
             if (kinds !== 'keyword,keyword,string,string,comment') throw new Error(kinds);
             await page.waitForFunction(() => document.title === 'workspace · ipybox');
             await page.waitForFunction(() => /^workspace .*[/]workspace.+/.test(document.getElementById('about').innerText));",
        )
        .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn the_menu_of_a_row_works_by_keyboard_and_what_it_gave_is_seen_to_decide() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let running =
        ipybox.start_cell("from mcptools.files import change\nfor name in 'ab': change.run(path=name)").await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('tr.row button.allow')?.ariaDisabled === 'false');
             await page.focus('tr.row');
             await page.keyboard.press('m');
             const at = () => page.evaluate(() => document.activeElement.textContent);
             await page.keyboard.press('ArrowDown');
             if (!(await at()).startsWith('Allow every call of files.change in this session')) throw new Error(await at());
             // It closes, and the focus is where it was.
             await page.keyboard.press('Escape');
             if (await page.$('.menu')) throw new Error('the menu is open');
             await page.keyboard.press('m');
             for (const key of ['ArrowDown', 'Enter']) await page.keyboard.press(key);
             // The second call is decided without a question, and shown.
             await page.waitForFunction(() =>
                 document.getElementById('decisions').innerText.includes('allowed for this session, by an earlier answer'));",
        )
        .await;
    running.answer().await.ok();
    ipybox.stop().await;
}

#[tokio::test]
async fn the_button_of_a_grant_says_what_it_covers_and_gives_one_at_a_time() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let code = "from mcptools.files import change
call = change.run
for number in range(6): call(path=f'/work/out/{number}.txt', mode='write')";
    let running = ipybox.start_cell(code).await;
    browser
        .run(
            "for (const number of [0, 1, 2]) {
                 await page.waitForFunction(`document.querySelector('tr.row:not(.over)')?.ariaLabel.includes('/${number}.txt')
                     && document.querySelector('tr.row:not(.over) .allow').ariaDisabled === 'false'`);
                 await page.focus('tr.row:not(.over)');
                 await page.keyboard.press('a');
             }
             await page.waitForFunction(() => document.querySelector('button.grant:not([hidden])')?.ariaDisabled === 'false');
             const words = await page.$eval('button.grant', (grant) => grant.textContent);
             if (!/^Allow up to 50 like this in this cell: .*<a path within '[/]work[/]out'>/.test(words)) throw new Error(words);
             await page.focus('button.grant');
             await page.keyboard.press('Enter');
             const row = await page.evaluate(() => document.activeElement.matches('tr.row'));
             if (!row) throw new Error('the focus stays at the button');
             await page.waitForFunction(() => document.getElementById('decisions').innerText.includes('allowed by grant 1'));",
        )
        .await;
    browser.screenshot("grant").await;
    running.answer().await.ok();
    ipybox.stop().await;
}
