"""Scenarios that are recorded: for each name a sentence and the steps. A text is a cell, run to its end."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wait:
    """Let the kernel speak between cells, for as long as it takes to say `until` (a text in a message)."""

    until: str


@dataclass(frozen=True)
class Interrupt:
    """Run the cell and interrupt it once it has said `after`."""

    code: str
    after: str


@dataclass(frozen=True)
class Silent:
    """Run the cell as Jupyter's own housekeeping is run."""

    code: str


@dataclass(frozen=True)
class RecordedScenario:
    what: str
    steps: tuple


def cells(what, *steps):
    return RecordedScenario(what, steps)


# Every picture is a few pixels: what is tested is what comes with it.
FIGURE = """
import matplotlib.pyplot as plt
plt.rcParams.update({'figure.figsize': (0.4, 0.4), 'figure.dpi': 20, 'savefig.dpi': 20, 'svg.hashsalt': 'salt'})
def draw(*points):
    plt.plot(points)
    plt.axis('off')
    plt.show()
"""
NO_WIDGETS = "import sys\nsys.modules['ipywidgets'] = None\n"
PIXEL = "R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="


def figures(what, formats, *points):
    draw = "\n".join(f"draw({point}, 2)" for point in points or (1,))
    setup = f"%matplotlib inline\n%config InlineBackend.figure_formats = {formats}\n"
    return cells(what, setup + FIGURE, draw)


SCENARIOS = {
    # Text.
    "empty": cells(
        "an empty cell, one of spaces, one of a comment", "", "  \n", "# nothing"
    ),
    "print": cells("a print", "print('hello')"),
    "print_pieces": cells(
        "three prints with pauses, as three messages",
        "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.3)",
    ),
    "print_parts_of_lines": cells(
        "lines written in parts, a last line without an end, and the value after it",
        "import sys\nfor part in ('a', 'b\\nc', 'd'):\n    print(part, end='', flush=True)\n'value'",
    ),
    "stdout_and_stderr": cells(
        "both streams in turn, flushed each time",
        "import sys\n"
        "for i in range(3):\n"
        "    print('out', i, flush=True)\n"
        "    print('err', i, file=sys.stderr, flush=True)",
    ),
    "stdout_and_stderr_unflushed": cells(
        "both streams in turn, never flushed",
        "import sys\nfor i in range(3):\n    print('out', i)\n    print('err', i, file=sys.stderr)",
    ),
    "value": cells(
        "the value of the last expression, `None`, one with a semicolon, which hides it only where history is stored",
        "6 * 7",
        "None",
        "6 * 7;",
    ),
    "value_after_output": cells("a print, then a value", "print('before')\n'value'"),
    "logging_and_warnings": cells(
        "`logging` and `warnings`, both on stderr",
        "import logging, warnings\n"
        "logging.basicConfig()\n"
        "logging.warning('logged')\n"
        "warnings.warn('warned')",
    ),
    # Failures.
    "exception": cells(
        "an exception in a function", "def broken():\n    1 / 0\nbroken()"
    ),
    "exception_after_output": cells(
        "a print and a display, then an exception",
        "print('before')\ndisplay('shown')\nraise ValueError('after')",
    ),
    "exception_chained": cells(
        "an exception from an exception, with a note",
        "try:\n"
        "    {}['key']\n"
        "except KeyError as error:\n"
        "    failure = RuntimeError('outer')\n"
        "    failure.add_note('a note') if hasattr(failure, 'add_note') else None\n"
        "    raise failure from error",
    ),
    "exception_group": cells(
        "an exception group, which IPython prints to stderr: no `error` comes, but the reply says that there was one",
        "raise ExceptionGroup('group', [ValueError('one'), TypeError('two')])",
    ),
    "usage_error": cells(
        "an unknown magic: again no `error`, but the reply says that there was one",
        "%nosuchmagic",
        "'next'",
    ),
    "syntax_error": cells("a cell that is no Python", "def ("),
    "input": cells("`input()`, which nobody can answer", "input('name? ')"),
    "system_exit": cells(
        "`sys.exit(3)`, and that the kernel goes on",
        "import sys\nsys.exit(3)",
        "'alive'",
    ),
    "interrupt": cells(
        "an interrupt while the code sleeps, and the next cell",
        Interrupt("import time\nprint('begun', flush=True)\ntime.sleep(60)", "begun"),
        "'alive'",
    ),
    "interrupt_await": cells(
        "an interrupt while the code awaits, with output in its `finally`",
        Interrupt(
            "import asyncio\n"
            "try:\n"
            "    print('begun', flush=True)\n"
            # Not longer: ipykernel on its own notices the interrupt only when something wakes its loop.
            "    for _ in range(600): await asyncio.sleep(0.1)\n"
            "finally:\n"
            "    print('cleaned up')",
            "begun",
        ),
        "'alive'",
    ),
    "interrupt_subprocess": cells(
        "an interrupt while a shell command runs",
        Interrupt("!echo begun; sleep 60", "begun"),
        "'alive'",
    ),
    "exit": cells("`exit`, which asks the client to end the kernel", "exit", "'alive'"),
    "pager": cells("`len?`, which shows help in a payload of the reply", "len?"),
    "silent": cells(
        "a silent cell, then an ordinary one", Silent("print('silent')\n1"), "2"
    ),
    # Rich output.
    "display_text": cells(
        "`display` of two objects in one call", "display('one', [2, 'two'])"
    ),
    "display_markup": cells(
        "Markdown, LaTeX, HTML, JSON, JavaScript, Math, Code, Pretty, each shown",
        "from IPython.display import *\n"
        "display(Markdown('# Title'))\n"
        "display(Latex(r'$x^2$'))\n"
        "display(HTML('<b>bold</b>'))\n"
        "display(JSON({'a': [1, 2]}))\n"
        "display(Javascript('1'))\n"
        "display(Math('x'))\n"
        "display(Code('x = 1', language='python'))\n"
        "display(Pretty('pretty'))",
    ),
    "value_markup": cells(
        "Markdown, LaTeX, HTML and JSON as values",
        "from IPython.display import *\nMarkdown('# Title')",
        "Latex(r'$x^2$')",
        "HTML('<b>bold</b>')",
        "JSON({'a': [1, 2]})",
    ),
    "display_raw": cells(
        "a bundle of MIME types of the caller's own, with metadata; an empty one",
        "display({'text/plain': 'plain', 'application/x-own': {'a': 1}}, raw=True, metadata={'m': 1})\n"
        "display({}, raw=True)",
    ),
    "dataframe": cells(
        "a DataFrame as a value and shown",
        "import pandas\nframe = pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\nframe",
        "display(frame)",
    ),
    "styler": cells(
        "a DataFrame's Styler, whose text is an address in memory",
        "import pandas\n"
        "pandas.DataFrame({'a': [1, 2]}).style.set_uuid('styled').highlight_max()",
    ),
    "figure_png": figures("two figures as PNG", "['png']", 1, 3),
    "figure_retina": figures(
        "a figure for a dense screen, with its size", "['retina']"
    ),
    "figure_jpeg": figures("a figure as JPEG", "['jpeg']"),
    "figure_svg": figures("a figure as SVG", "['svg']"),
    "figure_pdf": figures("a figure as PDF", "['pdf']"),
    "figure_formats": figures(
        "one figure in several formats", "['png', 'jpeg', 'svg']"
    ),
    "figure_unshown": cells(
        "a figure that is left open when the cell ends, after its value",
        "%matplotlib inline" + FIGURE,
        "plt.plot([1, 2]); plt.axis('off')\nprint('drawn')\n'value'",
    ),
    "image_gif": cells(
        "a GIF by `Image`, shown and as a value",
        f"from base64 import b64decode\nfrom IPython.display import Image\n"
        f"image = Image(b64decode('{PIXEL}'), format='gif')\ndisplay(image)\nimage",
    ),
    "image_url": cells(
        "an image that is only an address, and an SVG from text",
        "from IPython.display import *\n"
        "display(Image(url='http://localhost/a.png'))\n"
        'display(SVG(data=\'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\'))',
    ),
    # Output that changes what was shown.
    "update_display": cells(
        "a display that is updated in its cell, between prints",
        "shown = display('first', display_id=True)\n"
        "print('between')\n"
        "shown.update('second')\n"
        "print('after')\n"
        "shown.update('third')",
    ),
    "update_display_later": cells(
        "a display that is updated from the next cell, which shows it again, too",
        "display('first', display_id='named')",
        "from IPython.display import update_display\nupdate_display('second', display_id='named')",
        "display('third', display_id='named')\nprint('done')",
    ),
    "update_display_unknown": cells(
        "an update of what was never shown",
        "from IPython.display import update_display\nupdate_display('x', display_id='unknown')",
    ),
    "update_display_figure": cells(
        "a figure that is updated twice",
        "%matplotlib agg" + FIGURE,
        "figure, axes = plt.subplots()\n"
        "axes.axis('off')\n"
        "shown = display(figure, display_id=True)\n"
        "for i in (2, 3):\n"
        "    axes.plot([1, i])\n"
        "    shown.update(figure)",
    ),
    "clear_output": cells(
        "`clear_output()` after text; more text",
        "from IPython.display import clear_output\n"
        "print('gone')\ndisplay('gone too')\nclear_output()\nprint('stays')",
    ),
    "clear_output_wait": cells(
        "a loop of `clear_output(wait=True)` and text, and one wait that nothing follows",
        "from IPython.display import clear_output\n"
        "for i in range(3):\n    clear_output(wait=True)\n    print('step', i)",
        "print('stays')\nclear_output(wait=True)",
    ),
    "clear_output_figures": cells(
        "a loop of figures that replace each other",
        "%matplotlib inline" + FIGURE + "from IPython.display import clear_output\n"
        "for i in range(3):\n    clear_output(wait=True)\n    print('step', i)\n    draw(1, i)",
    ),
    "clear_output_value": cells(
        "a value after `clear_output(wait=True)`",
        "from IPython.display import clear_output\nprint('gone')\nclear_output(wait=True)\n'value'",
    ),
    # Progress bars and terminals.
    "carriage_return": cells(
        "a counter that writes over itself, shorter at the end than before",
        "import time\n"
        "for i in (8, 9, 10, 9):\n"
        "    print(f'\\rleft: {i} ', end='', flush=True)\n"
        "print('\\rdone')\n"
        "print('a\\r\\nb')",
    ),
    "backspace": cells(
        "backspaces, a bell, and erasing to the end of the line",
        "print('abc\\b\\bX')\nprint('bell\\a')\nprint('long line\\r\\x1b[Kshort')\nprint('one\\x1b[1A\\rup')",
    ),
    "tqdm": cells(
        "a bar of tqdm, on stderr",
        "import time\nfrom tqdm import tqdm\n"
        "for i in tqdm(range(5), ncols=40, mininterval=0): time.sleep(0.01)",
    ),
    "tqdm_nested": cells(
        "bars in a bar, which move the cursor up, and `tqdm.write`",
        "from tqdm import tqdm\n"
        "options = {'ncols': 40, 'mininterval': 0, 'bar_format': '{desc}: {percentage:3.0f}%|{bar}| {n_fmt}'}\n"
        "for i in tqdm(range(2), desc='outer', **options):\n"
        "    for j in tqdm(range(2), desc='inner', **options, leave=False): pass\n"
        "    tqdm.write(f'wrote {i}')",
    ),
    "tqdm_auto": cells(
        "`tqdm.auto` where there is ipywidgets: comm messages and a view of the widget",
        "from tqdm.auto import tqdm\nfor i in tqdm(range(2)): pass\nprint('done')",
    ),
    "tqdm_auto_without_widgets": cells(
        "`tqdm.auto` where ipywidgets is missing",
        NO_WIDGETS
        + "from tqdm.auto import tqdm\nfor i in tqdm(range(2), ncols=40): pass\nprint('done')",
    ),
    "rich_print": cells(
        "`rich.print` with colours, a table",
        "import rich\nfrom rich.table import Table\n"
        "rich.print('[bold red]red[/] text', {'a': 1})\n"
        "table = Table('a', 'b')\ntable.add_row('1', '2')\nrich.print(table)",
    ),
    "rich_track": cells(
        "`rich.progress.track` where ipywidgets is missing",
        NO_WIDGETS
        + "from rich.progress import track\nfor i in track(range(2)): pass\nprint('done')",
    ),
    "rich_terminal": cells(
        "a live display of rich that takes us for a terminal: it moves the cursor and erases",
        NO_WIDGETS
        + "from rich.console import Console\nfrom rich.progress import track\n"
        "console = Console(force_terminal=True, force_jupyter=False, width=60)\n"
        "console.print('[bold red]red[/] text')\n"
        "for i in track(range(2), console=console): pass",
    ),
    "shell_terminal": cells(
        "a shell command that takes us for a terminal: colours and carriage returns",
        "!printf 'first\\n\\033[32mgreen\\033[0m\\n 10%%\\r 50%%\\r100%%\\n'",
    ),
    "shell_download": cells(
        "a bar as pip draws it: hidden cursor, erased lines, colours, one write per step",
        "!printf '\\033[?25l'; for i in 1 2 3; do printf '\\r\\033[2K   \\033[32m━━━\\033[0m %s/3 MB' $i; "
        "sleep 0.1; done; printf '\\r\\033[2K\\033[?25hdone\\n'",
    ),
    "shell": cells(
        "`!`, its output as a list, `%%bash` with stderr and a failure",
        "!echo one; echo two",
        "lines = !echo one; echo two\nlines",
        "%%bash\necho out\necho err >&2\nexit 3",
    ),
    # Output that `sys.stdout` does not see.
    "subprocess": cells(
        "a child process and `os.write` that write to the descriptors, not to `sys.stdout`",
        "import os, subprocess\n"
        "subprocess.run('echo out; echo err >&2', shell=True)\n"
        "os.write(1, b'written\\n');",
        "'next'",
    ),
    "thread_idle": cells(
        "a thread that prints after its cell has ended, while nothing runs",
        "import threading, time\n"
        "ended = threading.Event()\n"
        "def late():\n    ended.wait()\n    time.sleep(1)\n    print('late')\n"
        "threading.Thread(target=late).start()\n"
        "get_ipython().events.register('post_run_cell', lambda result: ended.set())",
        Wait("late"),
        "'next'",
    ),
    "thread_next_cell": cells(
        "a thread that prints while the next cell runs",
        "import threading, time\n"
        "go = threading.Event()\n"
        "def late():\n    go.wait()\n    print('late', flush=True)\n"
        "thread = threading.Thread(target=late)\nthread.start()",
        "print('begun', flush=True)\ngo.set()\nthread.join()\nprint('done')",
    ),
    "thread_display": cells(
        "a thread that shows an object and fails while the next cell runs",
        "import threading\n"
        "go = threading.Event()\n"
        "def late():\n    go.wait()\n    display('late')\n    1 / 0\n"
        "thread = threading.Thread(target=late)\nthread.start()",
        "go.set()\nthread.join()\n'done'",
    ),
    "task": cells(
        "a task of the loop that prints during the next cell and after it",
        "import asyncio\n"
        "half, ended = asyncio.Event(), asyncio.Event()\n"
        "async def ticking():\n"
        "    for i in range(4):\n"
        "        await asyncio.sleep(0.3)\n"
        "        print('tick', i, flush=True)\n"
        "        if i == 1:\n"
        "            half.set()\n"
        "            await ended.wait()\n"
        "task = asyncio.create_task(ticking())",
        "print('begun', flush=True)\nawait half.wait()\nprint('done')\n"
        "get_ipython().events.register('post_run_cell', lambda result: ended.set())",
        Wait("tick 3"),
        "await task\n'joined'",
    ),
    "task_exception": cells(
        "a task of the loop that fails and that nobody awaits",
        "import asyncio, gc\nasync def fail(): raise ValueError('unseen')\ntask = asyncio.create_task(fail())",
        "await asyncio.sleep(0.1)\ndel task\ngc.collect();",
        "'next'",
    ),
    "comm": cells(
        "messages of a comm, as widgets send them",
        "from comm import create_comm\n"
        "comm = create_comm(target_name='own', data={'a': 1})\n"
        "comm.send({'b': 2})\nprint('between')\ncomm.close()",
    ),
    "widget": cells(
        "a widget as a value: a bundle with a view",
        "import ipywidgets\nipywidgets.IntSlider(3)",
    ),
    "input_hooks": cells(
        "output of callbacks before and after a cell",
        "events = get_ipython().events\n"
        "events.register('pre_run_cell', lambda info: print('pre'))\n"
        "events.register('post_run_cell', lambda result: print('post'))",
        "'value'",
        "1 / 0",
    ),
}
