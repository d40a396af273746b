"""Runs `%%bash`, `%%script` and the like, and `lines = !command`, until the program has ended.

IPython waits until nobody holds the program's output any more: a server that is left in the background would hold the cell.
What such a process writes later to a pipe of ours is read, and dropped, so that it can go on. Standard library and IPython
only.
"""

import _thread
import codecs
import contextlib
import functools
import os
import select
import sys

from ipybox_shell import END_CHECK_MILLIS, MOST_READS_AFTER_END, end

READ_BYTES = 1 << 16


def install(script, shell, is_own_stream):
    """Have the magics of IPython's module `script` run their programs here.

    `is_own_stream` says of a stream that it writes to the descriptor that children inherit.
    """
    ScriptMagics = script.ScriptMagics
    run = ScriptMagics.shebang

    @functools.wraps(run)
    def shebang(self, line, cell):
        arguments, command = run.parser.parse_known_args(
            script.arg_split(line, posix=True)
        )
        if arguments.bg or arguments.proc or not command:
            return run(self, line, cell)
        names = {"stdout": arguments.out, "stderr": arguments.err}
        sinks = {}
        for stream, name in names.items():
            if name:
                self.shell.user_ns[name] = ""
                sinks[stream] = appending(self.shell.user_ns, name)
            elif not is_own_stream(getattr(sys, stream)):
                sinks[stream] = functools.partial(show, getattr(sys, stream))
        text = cell if cell.endswith("\n") else cell + "\n"
        run_script(
            command, text.encode("utf-8", "replace"), sinks, arguments.raise_error
        )

    ScriptMagics.shebang = shebang
    # Some versions of IPython have created the magics by now, others create them on first use.
    magics = shell.magics_manager.registry.get("ScriptMagics")
    if magics is not None:
        shell.magics_manager.magics["cell"]["script"] = magics.shebang


def appending(names, name):
    def append(text):
        names[name] += text

    return append


def show(stream, text):
    stream.write(text)
    stream.flush()


def run_script(command, script, sinks, raises):
    """Run a program with this input; `sinks` take the text of its streams, which go to the cell's output without one."""
    from subprocess import PIPE, CalledProcessError, Popen

    try:
        process = Popen(command, stdin=PIPE, **dict.fromkeys(sinks, PIPE))
    except FileNotFoundError:
        print(f"Couldn't find program: {command[0]!r}")
        return
    # More might not fit into the pipe.
    if len(script) <= select.PIPE_BUF:
        feed(process.stdin, script)
    else:
        _thread.start_new_thread(feed, (process.stdin, script))
    pipes = {getattr(process, stream): sink for stream, sink in sinks.items()}
    try:
        pass_on(pipes, process)
        process.wait()
    except KeyboardInterrupt:
        end(process)
        pass_on(pipes, process)
        raise
    if raises and process.returncode != 0:
        raise CalledProcessError(process.returncode, script)


def feed(pipe, data):
    # The program need not read it.
    with contextlib.suppress(OSError), pipe:
        pipe.write(data)


def output_of(command):
    """The output of a command in the user's shell, as IPython's function in this place returns it."""
    from subprocess import DEVNULL, PIPE, STDOUT, Popen

    shell = os.environ.get("SHELL") or "sh"
    process = Popen(
        [shell, "-c", command] if isinstance(command, str) else command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
    )
    texts = []
    try:
        pass_on({process.stdout: texts.append}, process)
        process.wait()
    except KeyboardInterrupt:
        end(process)
        raise
    return "".join(texts)


def pass_on(pipes, process):
    """Pass on what comes from the pipes until nobody holds their other ends, or the process has ended."""
    decoders = {
        pipe: codecs.getincrementaldecoder("utf-8")("replace") for pipe in pipes
    }
    poll = select.poll()
    by_number = {pipe.fileno(): pipe for pipe in pipes if not pipe.closed}
    for number in by_number:
        poll.register(number, select.POLLIN)
    reads_left = MOST_READS_AFTER_END
    while by_number and reads_left:
        has_ended = process.poll() is not None
        reads_left -= has_ended
        ready = poll.poll(0 if has_ended else END_CHECK_MILLIS)
        if has_ended and not ready:
            break
        for number, _ in ready:
            pipe = by_number[number]
            data = os.read(number, READ_BYTES)
            pipes[pipe](decoders[pipe].decode(data, final=not data))
            if not data:
                poll.unregister(number)
                del by_number[number]
                pipe.close()
    for pipe in by_number.values():
        _thread.start_new_thread(read_on, (pipe,))


def read_on(pipe):
    with contextlib.suppress(OSError), pipe:
        while pipe.read1(READ_BYTES):
            pass
