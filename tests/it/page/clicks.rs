//! What a click and a connection must not do, although something has changed just before.

use std::time::Duration;

use serde_json::json;

use super::{Browser, Visitor, code_after, start, start_with_both};
use crate::support::{Place, eventually};

/// Calls a tool in four threads, and prints how many calls were allowed.
const FOUR: &str = "
from concurrent.futures import ThreadPoolExecutor
from mcptools.files import change
def call(number):
    try:
        change.run(path=f'part-{number}')
        return True
    except Exception:
        return False
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(call, range(4))), 'of 4')";

#[tokio::test]
async fn clicks_for_chosen_calls_never_answer_the_others() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let running = ipybox.start_cell(FOUR).await;
    browser
        .run(
            "await page.waitForFunction(() => document.getElementById('choose-label').textContent === 'Choose all 4');
             await page.focus('tr.row');
             for (const key of ['x', 'j', 'x']) await page.keyboard.press(key);
             await page.waitForFunction(() => document.querySelector('#bulk button.deny').textContent === 'Deny 2 chosen');
             // Two clicks at once, and one as soon as the chosen calls are over.
             await page.evaluate(() => new Promise((resolve) => {
                 const deny = document.querySelector('#bulk button.deny');
                 new MutationObserver((_, observer) => {
                     if (document.querySelectorAll('tr.over').length < 2) return;
                     observer.disconnect();
                     deny.click();
                     resolve();
                 }).observe(document.getElementById('groups'), { subtree: true, attributes: true });
                 deny.click();
                 deny.click();
             }));
             await page.waitForFunction(() => document.getElementById('choose-label').textContent === 'Choose all 2');
             await page.click('#choose-all');
             await page.waitForFunction(() => document.querySelector('#bulk button.primary').textContent === 'Allow all 2');
             await page.click('#bulk button.primary');
             await page.waitForFunction(() => document.querySelectorAll('tr.over').length === 4);",
        )
        .await;
    assert!(running.answer().await.ok().contains("2 of 4"));
    ipybox.stop().await;
}

/// No row takes its time to be answered any more.
const READY: &str = "page.waitForFunction(() =>
    [...document.querySelectorAll('tr.row:not(.over) .allow')].every((button) => button.ariaDisabled === 'false'))";

#[tokio::test]
async fn an_answer_to_the_chosen_calls_is_one_alone_and_the_keys_go_on() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let running = ipybox.start_cell(FOUR).await;
    browser
        .run(&format!(
            "const over = (count) => page.waitForFunction(`document.querySelectorAll('tr.over').length === ${{count}}`);
             await page.waitForFunction(() => document.getElementById('choose-label').textContent === 'Choose all 4');
             // Nothing is chosen: there are no buttons.
             const isArmed = () => page.$eval('#bulk .answers', (answers) => answers.checkVisibility({{ visibilityProperty: true }}));
             if (await isArmed()) throw new Error('the buttons are about nothing');
             await page.focus('tr.row');
             await page.keyboard.press('x');
             await page.waitForFunction(() => document.querySelector('#bulk button.primary').textContent === 'Allow 1 chosen');
             await page.focus('#bulk button.primary');
             for (const key of ['Enter', 'Enter']) await page.keyboard.press(key);
             await over(1);
             await {READY};
             // The same keys again, as late as somebody likes.
             for (const key of ['Enter', 'Space', 'Space', 'Enter']) await page.keyboard.press(key);
             // A key that is held.
             for (let each = 0; each < 3; each += 1) await page.keyboard.down('Enter');
             await page.keyboard.up('Enter');
             await page.waitForFunction(() => !document.querySelector('#bulk .answers').checkVisibility({{ visibilityProperty: true }}));
             const words = await page.$eval('#bulk', (bar) => bar.innerText);
             if (!words.includes('Choose all 3') || words.includes('Allow 1')) throw new Error(words);
             // From the bar, the keys lead to the next call.
             await page.focus('#choose-all');
             await page.keyboard.press('j');
             await page.keyboard.press('d');
             await over(2);
             await page.click('#choose-all');
             await page.waitForFunction(() => document.querySelector('#bulk button.deny').textContent === 'Deny all 2');
             await page.click('#bulk button.deny');
             await over(4);"
        ))
        .await;
    assert!(running.answer().await.ok().contains("1 of 4"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_click_without_a_move_does_not_answer_a_call_that_has_come_under_the_pointer() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let code = "from mcptools.files import change
for name in 'ab':
    try: change.run(path=name)
    except Exception as error: print(name, 'denied')";
    let running = ipybox.start_cell(code).await;
    browser
        .run(&format!(
            "const row = (path) => page.waitForFunction(`document.querySelector('tr.row:not(.over)')?.ariaLabel.includes('${{path}}')`);
             await row('a');
             await {READY};
             await page.click('tr.row button.deny');
             // The second call has the place of the first one, and its buttons that of those that were clicked.
             await row('b');
             await {READY};
             await page.mouse.down();
             await page.mouse.up();
             await page.waitForFunction(() => document.getElementById('failure').textContent.includes('Click again'));
             if (await page.$('tr.over')) throw new Error('the second call is answered');
             await page.mouse.down();
             await page.mouse.up();
             await page.waitForSelector('tr.over');"
        ))
        .await;
    let printed = running.answer().await.ok();
    assert!(printed.contains("a denied") && printed.contains("b denied"), "{printed}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_row_that_a_new_one_moves_takes_no_answer_for_a_moment() {
    let place = Place::new();
    let (mut ipybox, _url, _visitor, mut browser) = start_with_both(&place).await;
    let code = "
import pathlib, time
from threading import Thread
from mcptools.files import change
first = Thread(target=lambda: change.run(path='a'))
first.start()
while not pathlib.Path('go').exists(): time.sleep(0.05)
change.run(text='b')
first.join()";
    let running = ipybox.start_cell(code).await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('tr.row .allow')?.ariaDisabled === 'false');
             await page.evaluate(() => {
                 const before = document.querySelector('tr.row');
                 new MutationObserver((_, observer) => {
                     if (document.querySelectorAll('tr.row').length < 2) return;
                     observer.disconnect();
                     window.wasGuarded = before.querySelector('.allow').ariaDisabled;
                 }).observe(document.getElementById('groups'), { subtree: true, childList: true });
             });",
        )
        .await;
    std::fs::write(place.workspace().join("go"), "").unwrap();
    browser
        .run(
            "await page.waitForFunction(() => window.wasGuarded);
             const wasGuarded = await page.evaluate(() => window.wasGuarded);
             if (wasGuarded !== 'true') throw new Error('the row that was there took answers');
             await page.waitForFunction(() =>
                 [...document.querySelectorAll('tr.row .allow')].every((button) => button.ariaDisabled === 'false'));
             await page.click('#choose-all');
             await page.waitForFunction(() => document.querySelector('#bulk button.primary').textContent === 'Allow all 2');
             await page.click('#bulk button.primary');",
        )
        .await;
    running.answer().await.ok();
    ipybox.stop().await;
}

#[tokio::test]
async fn a_call_can_be_answered_after_the_page_was_locked_meanwhile() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let code = code_after(&ipybox, "another one needs the code ").await;
    let running = ipybox.start_cell("!echo again").await;
    browser
        .run(&format!(
            "const ready = () => page.waitForFunction(() => document.querySelector('tr.row .allow')?.ariaDisabled === 'false');
             await ready();
             await page.deleteCookie(...await page.cookies());
             await page.click('tr.row button.allow');
             await page.waitForSelector('#enter:not([hidden])');
             await page.type('#code', {code:?});
             await page.keyboard.press('Enter');
             await page.waitForSelector('#inside:not([hidden])');
             await ready();
             await page.click('tr.row button.allow');"
        ))
        .await;
    assert!(running.answer().await.ok().contains("again"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_tab_that_gets_a_key_while_it_enters_has_one_connection() {
    let place = Place::new();
    let (ipybox, url, code) = start(&place, &[], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    assert_eq!(visitor.scene().await["browsers"], 1);
    let code = code_after(&ipybox, "another one needs the code ").await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let words = "another one needs the code ";
    eventually("there is a third code", || ipybox.log().matches(words).count() == 2).await;
    let log = ipybox.log();
    let code = log.rsplit(words).next().unwrap().split_whitespace().next().unwrap();
    browser
        .run(&format!(
            "const entered = new Promise((resolve) => {{
                 let count = 0;
                 page.on('response', (answer) => {{
                     count += answer.url().endsWith('/events');
                     if (count === 2) resolve();
                 }});
             }});
             await page.evaluate((code) => {{
                 const shared = key;
                 lock();
                 document.getElementById('code').value = code;
                 document.getElementById('enter').requestSubmit();
                 new BroadcastChannel('ipybox').postMessage({{ key: shared }});
             }}, {code:?});
             await entered;"
        ))
        .await;
    // This request is a connection, too.
    for tries in 0.. {
        if visitor.scene().await["browsers"] == 2 {
            break;
        }
        assert!(tries < 6_000, "a connection stays open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn details_of_a_decided_call_are_closed_and_opened_by_clicks() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let running = ipybox.start_cell("!echo detailed").await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('tr.row .allow')?.ariaDisabled === 'false');
             const details = async () => {
                 await page.click('tr.row button[aria-expanded]');
                 return page.$eval('tr.row button[aria-expanded]', (button) => button.ariaExpanded);
             };
             if (await details() !== 'true') throw new Error('the menu is not opened');
             await page.click('.menu button');
             await page.waitForFunction(() => document.querySelector('tr.full pre')?.textContent === 'echo detailed');
             await page.click('tr.row button.allow');
             await page.waitForFunction(() => document.querySelector('tr.row').textContent.includes('allowed once'));
             const isShown = () => page.$eval('tr.full pre', (text) => text.checkVisibility());
             if (await details() !== 'false' || await isShown()) throw new Error('they stay open');
             if (await details() !== 'true' || !await isShown()) throw new Error('they stay closed');",
        )
        .await;
    browser.screenshot("decided-details").await;
    assert!(running.answer().await.ok().contains("detailed"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_page_whose_ipybox_was_killed_tries_ever_less_often_and_says_which_answer_failed() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let _running = ipybox.start_cell("!echo never").await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('tr.row .allow')?.ariaDisabled === 'false');
             // Pauses are noted, and take no time once they may.
             await page.evaluate(() => {
                 const wait = window.setTimeout;
                 window.pauses = [];
                 window.setTimeout = (work, ms) => {
                     if (!(ms >= 1000)) return wait(work, ms);
                     window.pauses.push(ms);
                     if (window.isGoing) wait(work);
                     else window.goOn = () => { window.isGoing = true; work(); };
                 };
             });",
        )
        .await;
    ipybox.signal(nix::sys::signal::Signal::SIGKILL);
    ipybox.ended().await;
    browser
        .run(
            "await page.waitForFunction(() => window.goOn);
             await page.click('tr.row button.deny');
             await page.waitForFunction(() => document.getElementById('failure').textContent.includes('did not reach ipybox'));
             await page.evaluate(() => window.goOn());
             await page.waitForFunction(() => window.pauses.length >= 8);
             const pauses = await page.evaluate(() => window.pauses.slice(0, 8).join());
             if (pauses !== '1000,2000,4000,8000,16000,30000,30000,30000') throw new Error(pauses);
             const words = await page.$eval('body', (body) => body.innerText);
             if (!/connection is lost[^]*did not reach ipybox/.test(words)) throw new Error(words);",
        )
        .await;
}
