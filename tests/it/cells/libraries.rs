//! Libraries that look closely at where they run: other event loops, widgets, charts, output of C code.

use crate::support::{Place, all_say};

#[tokio::test]
async fn event_loops_run_as_in_a_script() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import asyncio\nasync def five(): return 5", "[no output]"),
            ("asyncio.run(five())", "5"),
            ("import uvloop\nuvloop.run(five())", "5"),
            ("import trio\nasync def nap():\n    await trio.sleep(0.01)\n    return 7\ntrio.run(nap)", "7"),
            ("await five()", "5"),
            ("%autoawait trio", "[no output]"),
            ("await nap()", "7"),
            ("%autoawait asyncio\ntask = asyncio.create_task(five())", "[no output]"),
            ("await task", "5"),
            ("import nest_asyncio\nnest_asyncio.apply()", "[no output]"),
            ("asyncio.get_event_loop().run_until_complete(five())", "5"),
            ("async def nested(): return asyncio.run(five())\nawait nested()", "5"),
            ("await five()", "5"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn what_needs_a_browser_is_text() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let frame = "DataFrame of 1 row and 2 columns\nColumns: a Int64, b String\nRows:\na,b\n1,x";
    all_say(
        &mut ipybox,
        &[
            ("import polars\npolars.DataFrame({'a': [1], 'b': ['x']})", frame),
            ("import ipywidgets\nipywidgets.IntSlider()", "IntSlider(value=0)"),
            ("get_ipython().kernel.__class__.__name__", "'Kernel'"),
            ("get_ipython().kernel.comm_manager.register_target('a', print)", "[no output]"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn output_of_c_code_comes_once_with_wurlitzer_too() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let put = "import ctypes\nstatus = ctypes.CDLL(None).puts(b'by C'), ctypes.CDLL(None).fflush(None)";
    all_say(&mut ipybox, &[("%load_ext wurlitzer", "[no output]"), (put, "by C"), ("print(1)", "1")]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn lines_of_c_code_come_in_order_and_before_a_crash() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "import ctypes\nlibrary = ctypes.CDLL(None)\nprint('one'); size = library.puts(b'two'); print('three')";
    assert_eq!(ipybox.cell(code).await.ok(), "one\ntwo\nthree");
    let text = ipybox.cell("library.puts(b'last'); ctypes.string_at(0)").await.error();
    assert!(text.starts_with("last\n") && text.contains("SIGSEGV"), "{text}");
    ipybox.stop().await;
}
