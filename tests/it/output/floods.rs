//! Output in amounts and forms that could harm the server: it costs neither memory nor time, and the session goes on.

use std::time::Duration;

use serde_json::json;

use crate::support::{Place, eventually, peak_kib};

#[tokio::test]
async fn no_output_makes_much_of_little() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("from IPython.display import *; print('x' * 100_000)").await.ok();
    let before = peak_kib(&ipybox).await;
    for code in [
        // The cursor far to the right, again and again.
        r"print('\x1b[60000Cx\n' * 50_000)",
        // Backspaces in a long line of characters of several bytes.
        r"print('é' * 4000 + '\bü' * 300_000)",
        r"print('\x1b[A\x1b[B' * 50_000)",
        // Ids and texts that are larger than what they are for.
        "for i in range(50): display({}, raw=True, display_id=str(i) + 'x' * 500_000)",
        "Markdown('y' * 30_000_000)",
        "HTML('y' * 30_000_000)",
        "JSON(['y' * 30_000_000])",
        "for i in range(5_000): print('', flush=True, end=''); display({}, raw=True)",
        "for i in range(3_000): clear_output(wait=True); print(i)",
    ] {
        let answer = ipybox
            .call("execute_ipython_cell", json!({"code": code, "timeout": 250, "max_output_chars": 100}))
            .await;
        assert!(!answer.is_error && answer.text.len() < 2_000, "{code}: {}", answer.text);
    }
    let grown = peak_kib(&ipybox).await - before;
    assert!(grown < 64 * 1024, "the server grew by {grown} KiB");
    ipybox.stop().await;
}

#[tokio::test]
async fn messages_that_make_no_sense_cost_nothing_but_themselves() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
import os
host = get_ipython().kernel._host
say = host.send
say('stream', {'name': 5, 'text': None})
say('display_data', {'data': {'text/plain': 5, 'image/png': []}, 'metadata': 7, 'transient': 'x'})
say('clear_output', {'wait': 'x'})
say('error', {'ename': 1})
display('odd id', display_id='x'); display({'text/plain': 'raw'}, raw=True, metadata={'ipybox_begun': 'x'})
say(5, None); say('x' * 100_000, [{}] * 1000); say('display_data', {'data': {'image/png': '%'}})
for garbage in (b'\\0', host._mark, host._mark + b'm-1\\0', host._mark + b't 99\\0', host._mark + b'b' + b'x' * 1000 + b'\\0'):
    os.write(1, garbage)
# The place of a message that never comes.
os.write(1, host._mark + b'm99\\0')
print('still here')";
    let text = ipybox.cell(code).await.ok();
    assert!(text.ends_with("still here") && text.contains("odd id") && text.contains("raw"), "{text}");
    assert_eq!(ipybox.cell("1").await.ok(), "1");
    ipybox.stop().await;
}

#[tokio::test]
async fn deep_json_is_shown() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
from IPython.display import JSON
deep = {}
for _ in range(300): deep = {'a': deep}
JSON(deep)";
    let text = ipybox.cell(code).await.ok();
    assert!(text.starts_with(r#"{"a":{"a":"#), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn output_without_end_ends_with_its_cell_and_the_next_works() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // Not for a certain time, in which a fast machine prints much and a slow one nothing.
    let endless = "
lines = 0
while True:
    print('x' * 1000)
    lines += 1
    if lines == 20_000: open('flooded', 'w').close()";
    let running = ipybox.start_cell(endless).await;
    let flooded = place.workspace().join("flooded");
    eventually("it has printed much", || flooded.exists()).await;
    ipybox.cancel(&running).await;
    let text = ipybox.cell("1 + 1").await.ok();
    assert!(text.contains("]\nxxxx") && text.contains("still there"), "{} bytes", text.len());
    assert!(text.ends_with("\n\n2"), "{} bytes", text.len());
    // From a thread, between cells and during them.
    let code = "
import threading
stop = threading.Event()
def flood():
    while not stop.is_set(): print('flood ' * 100)
threading.Thread(target=flood).start()";
    ipybox.cell(code).await.ok();
    tokio::time::sleep(Duration::from_millis(500)).await;
    // `print` writes a line and its end apart, so that the thread may be in the middle of one.
    let text = ipybox.cell("print('own')").await.ok();
    assert!(text.contains("flood flood") && text.ends_with("own"), "{text}");
    let before = peak_kib(&ipybox).await;
    assert!(before < 200 * 1024, "{before} KiB");
    ipybox.cell("stop.set()").await.ok();
    ipybox.cell(code).await.ok();
    // Still flooding.
    ipybox.stop().await;
}

#[tokio::test]
async fn output_beyond_the_limit_costs_no_memory() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("1").await.ok();
    let before = peak_kib(&ipybox).await;
    let much = json!({"code": "print('x' * 150_000_000)", "timeout": 280});
    let text = ipybox.call("execute_ipython_cell", much).await.ok();
    assert!(text.contains("[Output truncated: exceeded 5000 character limit]"), "{} bytes", text.len());
    let text = ipybox.cell("raise ValueError('y' * 100_000_000)").await.error();
    assert!(text.len() < 20_000, "{} bytes", text.len());
    let grown = peak_kib(&ipybox).await - before;
    assert!(grown < 64 * 1024, "the server grew by {grown} KiB");
    ipybox.stop().await;
}
