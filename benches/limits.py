#!/usr/bin/env python3
"""Attacks one session by each kind of exhaustion, and measures how soon another session's cells answer meanwhile.

    python3 benches/limits.py PYTHON [--program target/release/ipybox] [--cells 300] [--only WORD] [-- FLAGS]

PYTHON has ipython and pydantic. Linux only. Both sessions have the flags after `--`, or limits of their own. The first figure of
the other session is without an attack.
"""

import argparse
import tempfile
import time

from mcp_session import McpSession, ipybox_command, text_of

LIMITS = ["--limit-memory", "1G", "--limit-cpu", "1"]
LIMITS += ["--limit-processes", "200", "--limit-disk", "256M"]

ATTACKS = {
    "nothing": "import time\nwhile True: time.sleep(1)",
    "a fork bomb": "%%bash\nbomb() { bomb | bomb & }\nwhile :; do bomb; sleep 0.1; done 2>/dev/null",
    "100 GB of memory": "import mmap\nheld = [mmap.mmap(-1, 1 << 30) for _ in range(100)]\n"
    "for one in held:\n    for at in range(0, 1 << 30, 4096): one[at] = 1",
    "a full disk": "import tempfile\nfile = tempfile.NamedTemporaryFile(delete=False)\nwhile True: file.write(bytes(1 << 20))",
    "a busy loop": "import subprocess\nfor _ in range(8): subprocess.Popen(['sh', '-c', 'while :; do :; done'])\nwhile True: pass",
}


def measured(session, cells):
    """The times of cells in milliseconds, from the shortest to the longest."""
    times = []
    for number in range(cells):
        begun = time.perf_counter()
        text = session.cell(f"{number} + 1")
        times.append((time.perf_counter() - begun) * 1000)
        assert text.startswith(str(number + 1)), text
    return sorted(times)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("python")
    arguments.add_argument("--program", default="target/release/ipybox")
    arguments.add_argument("--cells", type=int, default=300)
    arguments.add_argument(
        "--only", default="", metavar="WORD", help="attacks whose name has it"
    )
    arguments.add_argument("flags", nargs="*")
    options = arguments.parse_args()
    flags = ["--python", options.python, *(options.flags or LIMITS)]
    print(f"{'ATTACK':<20}{'p50':>8}{'p99':>8}  ms; the attacked session says")
    for name, code in ATTACKS.items():
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as directory:
            attacked, other = (
                McpSession(ipybox_command(options.program, place, *flags))
                for place in (f"{directory}/attacked", f"{directory}/other")
            )
            measured(attacked, 1), measured(other, 20)
            attack = attacked.begin_cell(code, timeout=20)
            times = measured(other, options.cells)
            words = text_of(attacked.result(attack))
            said = [
                line
                for line in words.splitlines()
                if "out of" in line or "timed" in line
            ]
            p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
            print(f"{name:<20}{p50:>8.2f}{p99:>8.2f}  {' '.join(said)[-110:]}")
            for session in (attacked, other):
                session.stop()


if __name__ == "__main__":
    main()
