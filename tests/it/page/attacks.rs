//! What code and other pages try, and do not reach.

use serde_json::{Value, json};

use super::{Browser, Visitor, start, start_with_both};
use crate::support::Place;

/// What would do something if it were HTML, a script, a style or a link.
const MARKUP: &str = r#"</pre></td></table><script>alert(1)</script><img src=x onerror="alert(2)"><style>*{display:none}</style><a href="javascript:alert(3)">allow</a>${alert(4)}'"`\u202e"#;

#[tokio::test]
async fn no_argument_name_output_or_error_becomes_markup() {
    let place = Place::new();
    let (mut ipybox, url, visitor, mut browser) = start_with_both(&place).await;
    let hostile = serde_json::to_string(MARKUP).unwrap();
    let cell = format!(
        "hostile = {hostile}\nprint(hostile)\nfrom mcptools.files import change\n\
         change.run(path=hostile, mode=hostile, text=hostile)"
    );
    let running = ipybox.start_cell(&cell).await;
    browser
        .run(
            "await page.waitForFunction(() => document.querySelectorAll('tr.row:not(.over)').length === 1);
             await page.focus('tr.row:not(.over)');
             await page.keyboard.press('Enter');
             await page.waitForFunction(() => document.querySelectorAll('tr.full pre').length === 3);
             await page.waitForFunction(() => document.querySelector('.output').textContent.includes('onerror'));",
        )
        .await;
    assert!(visitor.answer(&visitor.question().await, "no").await);
    running.answer().await.error();
    // Names: of a server, a tool and an argument, which code or a server has chosen; and an exception's text.
    let raising = ipybox.start_cell(&format!("raise ValueError({hostile})")).await;
    raising.answer().await.error();
    let sound = browser
        .run(
            "await page.waitForFunction(() => document.querySelector('.error')?.textContent.includes('onerror'));
             await page.waitForFunction(() => document.querySelector('#decisions').textContent.includes('onerror'));
             return {
                 troubles: page.troubles,
                 scripts: await page.$$eval('script', (all) => all.map((each) => each.src)),
                 images: (await page.$$('img')).length,
                 links: (await page.$$('a')).length,
                 styles: (await page.$$('style, [style]')).length,
                 tables: (await page.$$('table')).length,
                 turned: await page.evaluate(() => document.body.textContent.includes('\\u202e')),
             };",
        )
        .await;
    let scripts = ["page", "activity", "changes", "python", "row", "table", "waiting"];
    assert_eq!(sound["scripts"], json!(scripts.map(|name| format!("{url}{name}.js"))));
    for (what, count) in [("images", 0), ("links", 0), ("styles", 0)] {
        assert_eq!(sound[what], json!(count), "{what}");
    }
    assert_eq!((&sound["troubles"], &sound["turned"]), (&json!([]), &json!(false)));
    ipybox.stop().await;
}

/// Sends a call whose argument is nested as deeply as `depth` says, and prints the beginning of the answer.
const DEEP: &str = "
from ipybox_runtime import _thread_connection
def deep(depth):
    body = b'{\"server_name\":\"files\",\"tool_name\":\"change\",\"tool_args\":{\"path\":'
    print(_thread_connection().exchange('/run', body + b'[' * depth + b']' * depth + b'}}')[:2])
deep(118)
deep(119)";

#[tokio::test]
async fn arguments_as_deep_as_can_be_are_shown_and_deeper_ones_refused() {
    let place = Place::new();
    let (mut ipybox, _url, visitor, mut browser) = start_with_both(&place).await;
    let running = ipybox.start_cell(DEEP).await;
    let question = visitor.question().await;
    assert_eq!(question["row"]["arguments"][0]["name"], "path");
    assert!(visitor.answer(&question, "no").await);
    let answer = running.answer().await.ok();
    assert!(answer.contains("nested more than 120 levels deep"), "{answer}");
    // The page lives.
    let running = ipybox.start_cell("!echo alive").await;
    browser.run("await page.waitForFunction(() => document.title === '(1) workspace · ipybox');").await;
    assert!(visitor.answer(&visitor.question().await, "once").await);
    assert!(running.answer().await.ok().contains("alive"));
    ipybox.stop().await;
}

/// A page of somebody else, on a port of this machine, which tries all that a browser lets it try.
const OTHER: &str = r"
    const { createServer } = await import('node:http');
    const seen = [];
    const server = createServer((request, response) => {
        seen.push({ path: request.url, cookie: request.headers.cookie ?? '' });
        response.setHeader('content-type', 'text/html');
        response.end('<!doctype html><title>other</title><form id=f method=post enctype=text/plain></form>');
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const other = await open();
    await other.goto(`http://127.0.0.1:${server.address().port}/`);
    const tried = await other.evaluate(async (url) => {
        const show = (promise) => promise.then(async (answer) => `${answer.type} ${answer.status}`, () => 'refused');
        const json = { 'content-type': 'application/json' };
        const body = JSON.stringify({ questions: [1, 2, 3, 4, 5, 6, 7, 8], answer: 'always' });
        const tried = {};
        tried.simple = await show(fetch(url + 'answer', { method: 'POST', mode: 'no-cors', credentials: 'include', body }));
        tried.json = await show(fetch(url + 'answer', { method: 'POST', credentials: 'include', headers: json, body }));
        tried.key = await show(fetch(url + 'answer', {
            method: 'POST', credentials: 'include', headers: { ...json, 'x-ipybox-key': 'x' }, body }));
        tried.events = await show(fetch(url + 'events', { method: 'POST', credentials: 'include', headers: json, body: '{}' }));
        tried.script = await new Promise((resolve) => {
            const script = document.createElement('script');
            script.onload = () => resolve('loaded');
            script.onerror = () => resolve('refused');
            script.src = url + 'page.js';
            document.head.append(script);
        });
        const frame = document.createElement('iframe');
        frame.src = url;
        document.body.append(frame);
        await new Promise((resolve) => { frame.onload = resolve; setTimeout(resolve, 120000); });
        try {
            tried.frame = frame.contentDocument === null ? 'closed' : 'open';
        } catch {
            tried.frame = 'closed';
        }
        const opened = window.open(url);
        const look = () => {
            try {
                return opened === null || opened.closed ? 'cut off' : String(opened.document.title);
            } catch {
                return 'cut off';
            }
        };
        const end = Date.now() + 60000;
        while (look() !== 'cut off' && Date.now() < end) await new Promise((resolve) => setTimeout(resolve, 50));
        tried.opened = look();
        const channel = new BroadcastChannel('ipybox');
        tried.channel = await new Promise((resolve) => {
            channel.onmessage = (event) => resolve(JSON.stringify(event.data));
            channel.postMessage({ ask: true });
            setTimeout(() => resolve('silence'), 1000);
        });
        return tried;
    }, URL_OF_PAGE);
    server.close();
    return { tried, seen };";

#[tokio::test]
async fn a_page_on_another_port_decides_nothing() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    let running = ipybox.start_cell("!echo unharmed").await;
    browser.run("await page.waitForFunction(() => document.title === '(1) workspace · ipybox');").await;
    let found = browser.run(&OTHER.replace("URL_OF_PAGE", &format!("{url:?}"))).await;
    let tried = &found["tried"];
    for what in ["simple", "json", "key", "events", "script"] {
        assert_eq!(tried[what], "refused", "{what}: {tried}");
    }
    assert_eq!((&tried["frame"], &tried["opened"]), (&json!("closed"), &json!("cut off")), "{tried}");
    assert_eq!(tried["channel"], "silence", "{tried}");
    // Nothing was decided.
    assert_eq!(browser.run("return await page.title();").await, "(1) workspace · ipybox");

    // Browsers send the cookie to other ports of the host. It opens nothing by itself.
    let seen = found["seen"].as_array().unwrap();
    let cookie = seen.iter().filter_map(|each| each["cookie"].as_str()).find(|cookie| !cookie.is_empty());
    let cookie = cookie.expect("browsers keep the ports of a host apart now: the key is no longer needed");
    let thief =
        Visitor { client: super::client(), url: url.clone(), cookie: cookie.to_owned(), key: String::new() };
    assert_eq!(thief.post("events", json!({})).await.status(), 401);
    assert_eq!(thief.post("answer", json!({"questions": [1], "answer": "always"})).await.status(), 401);

    browser
        .run(
            "await page.waitForFunction(() => document.querySelector('tr.row button.deny').ariaDisabled === 'false');
             await page.focus('tr.row');
             await page.keyboard.press('d');",
        )
        .await;
    running.answer().await.error();
    ipybox.stop().await;
}

/// Code that is not in a sandbox looks for what would let it in: in files, environments, command lines and on the page itself.
const SEARCH: &str = r"
import os, pathlib, re, urllib.error, urllib.request, json
found = []
def look(where, data):
    for secret in SECRETS:
        if secret.encode() in data:
            found.append(where)
for process in pathlib.Path('/proc').glob('[0-9]*'):
    # Those of other people's programs cannot be read, or are gone.
    try:
        look(f'{process}/cmdline', (process / 'cmdline').read_bytes())
        look(f'{process}/environ', (process / 'environ').read_bytes())
    except OSError:
        pass
for root in ROOTS:
    for path in pathlib.Path(root).rglob('*'):
        try:
            if path.is_file() and not path.is_symlink():
                look(str(path), path.read_bytes())
        except OSError:
            pass
def ask(path, headers, body=b'{}'):
    request = urllib.request.Request(URL + path, data=body, headers=headers, method='POST')
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
own = {'Origin': URL.rstrip('/'), 'Content-Type': 'application/json'}
tries = [ask('events', own), ask('answer', own, json.dumps({'questions': [1], 'answer': 'always'}).encode()),
         ask('enter', own, json.dumps({'code': 'AAAA-AAAA'}).encode())]
print(json.dumps({'found': found, 'tries': tries}))";

#[tokio::test]
async fn code_without_a_sandbox_finds_no_secret() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &[], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    let mut browser = Browser::start();
    let second = super::code_after(&ipybox, "another one needs the code ").await;
    browser.enter(&url, &second).await;
    // The secrets in two parts, so that the search does not find itself.
    let parts =
        [visitor.key.as_str(), visitor.cookie.split_once('=').unwrap().1, &code, &second].map(|secret| {
            let (begin, end) = secret.split_at(secret.len() / 2);
            format!("'{begin}' + '{end}'")
        });
    let roots = [place.workspace(), place.states(), place.temporary()];
    let code = format!("SECRETS = [{}]\nURL = {url:?}\nROOTS = {roots:?}\n{}", parts.join(", "), SEARCH);
    let printed = ipybox.cell(&code).await.ok();
    let report: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(report, json!({"found": [], "tries": [401, 401, 403]}));
    ipybox.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn code_in_a_sandbox_does_not_reach_the_page() {
    let place = Place::new();
    let flags = ["--sandbox", "--sandbox-backend", "bwrap"];
    let (mut ipybox, url, code) = start(&place, &flags, json!({})).await;
    // From outside, it is there.
    Visitor::enter(&url, &code).await;
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let (host, port) = address.split_once(':').unwrap();
    let cell = format!(
        "import os, socket, urllib.request\ntried = []\nfor host in ({host:?}, 'localhost', '0.0.0.0'):\n    try:\n        \
         socket.create_connection((host, {port}), 5).close()\n        tried.append('reached')\n    except OSError:\n        \
         tried.append('refused')\ntry:\n    tried.append(urllib.request.urlopen({url:?}, timeout=10).status)\nexcept OSError:\n    \
         tried.append('refused')\nprint(tried)"
    );
    assert_eq!(ipybox.cell(&cell).await.ok(), "['refused', 'refused', 'refused', 'refused']");
    ipybox.stop().await;
}
