//! What the cells are and what their answers have to be. In all texts `{n}` is the cell's number.

/// How a kind of cell is played.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A cell that succeeds with exactly this text.
    Says(&'static str, &'static str),
    /// A cell that fails with a text that begins and ends so.
    Fails(&'static str, &'static str, &'static str),
    /// A cell that succeeds with a text that begins so and contains this.
    Floods(&'static str, &'static str, &'static str),
    /// A cell with an image, which is saved and linked.
    Draws(&'static str),
    /// Sets a variable, after a look at what the last cell of this kind has set it to.
    Keeps,
    /// Five cells at once.
    Together,
    /// A cell whose progress is reported.
    Progresses,
    /// A cell that is cancelled while it runs.
    Cancelled(&'static str),
    /// A cell that is cancelled while another one runs.
    CancelledInQueue,
    /// A cell that is out of time at once.
    TimesOut(&'static str),
    /// A cell that ends its kernel.
    Exits,
    /// A kernel that is killed from outside.
    Killed,
    /// A reset, while a cell runs and another one waits.
    Reset,
    /// The MCP server registered again.
    Registers,
}

use Kind::{
    Cancelled, CancelledInQueue, Draws, Exits, Fails, Floods, Keeps, Killed, Progresses, Registers, Reset,
    Says, TimesOut, Together,
};

/// The kinds, and how many of a thousand cells are of each.
#[rustfmt::skip]
pub(crate) const KINDS: &[(u32, &str, Kind)] = &[
    (248, "print", Says("print('print {n}')", "print {n}")),
    (150, "value", Says("'value', {n}", "('value', {n})")),
    ( 60, "await", Says("import asyncio\nawait asyncio.sleep(0)\nprint('awaited {n}')", "awaited {n}")),
    (100, "exception", Fails("print('before {n}')\nraise ValueError('raised {n}')", "before {n}\n", "ValueError: raised {n}")),
    ( 20, "syntax error", Fails("{n} = 1", "", "instead of '='?")),
    ( 80, "display", Says("display('shown {n}')\ndisplay({'text/plain': 'raw {n}'}, raw=True)", "'shown {n}'\nraw {n}")),
    ( 10, "picture", Draws("display({'image/png': 'iVBORw0KGgo='}, raw=True)\nprint('drawn {n}')")),
    (  4, "plot", Draws("import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1))\nplt.plot([{n}])\nplt.show()\nprint('drawn {n}')")),
    ( 20, "thread", Says("import threading\nthread = threading.Thread(target=print, args=['threaded {n}'])\nthread.start(); thread.join()", "threaded {n}")),
    // What is late belongs to no cell's answer; see `own`.
    ( 20, "late thread", Says("import sys, threading\nthreading.Timer(0.02, sys.stdout.write, ['<late {n}>']).start()\n{n}", "{n}")),
    ( 20, "late task", Says("import asyncio, sys\nasync def late():\n    await asyncio.sleep(0.02)\n    sys.stdout.write('<late {n}>')\ntask = asyncio.create_task(late())\n{n}", "{n}")),
    ( 60, "tool call", Says("from mcptools.probe import echo\nprint(echo.run(text='echoed {n}'))", "echoed {n}")),
    ( 10, "tool calls", Says("import asyncio\nfrom mcptools.probe import add\nanswers = await asyncio.gather(*[add.run_async(a={n}, b=i) for i in range(10)])\n[answer.total - {n} for answer in answers] == [*range(10)], {n}", "(True, {n})")),
    ( 10, "failing tool", Fails("from mcptools.probe import fail\nfail.run(reason='refused {n}')", "", "failed: refused {n}")),
    (  1, "dying server", Fails("from mcptools.probe import crash\ncrash.run()\n{n}", "", "")),
    ( 20, "subprocess", Says("import subprocess\nprint(subprocess.check_output(['echo', 'child {n}'], text=True))", "child {n}")),
    ( 10, "shell", Says("!echo shell {n}", "shell {n}")),
    ( 10, "big output", Floods("print('{n} ' * 1_000_000)", "{n} {n} ", "[Output truncated: exceeded 5000 character limit]")),
    ( 50, "variable", Keeps),
    ( 20, "together", Together),
    ( 20, "progress", Progresses),
    ( 10, "cancelled", Cancelled("while True: pass")),
    ( 10, "cancelled await", Cancelled("import asyncio\nawait asyncio.sleep(600)")),
    (  2, "cancelled tool", Cancelled("from mcptools.probe import slow\nslow.run(seconds=600)")),
    ( 10, "cancelled queued", CancelledInQueue),
    ( 14, "timeout", TimesOut("while True: pass")),
    (  3, "exit", Exits),
    (  3, "killed", Killed),
    (  4, "reset", Reset),
    (  1, "register", Registers),
];
