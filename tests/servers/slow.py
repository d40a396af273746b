"""The server `probe.py` behind what `npx` and `uvx` do before a server runs: a download, which ends when the test says so.

`slow.py PLACE` appends a line to `PLACE/started`, holds `PLACE/lock`, and is ready when there is `PLACE/ready`. Asked to end
before, it takes its time and removes the lock, as npx does.
"""

import os
import runpy
import signal
import sys
import time

PLACE = sys.argv[1]
LOCK = os.path.join(PLACE, "lock")


def clean(*_):
    time.sleep(3.5)
    os.remove(LOCK)
    sys.exit(1)


signal.signal(signal.SIGTERM, clean)
with open(LOCK, "w"):
    pass
with open(os.path.join(PLACE, "started"), "a") as started:
    started.write("started\n")
print("\x1b[32mdownloading\x1b[0m", file=sys.stderr, flush=True)
while not os.path.exists(os.path.join(PLACE, "ready")):
    time.sleep(0.02)
os.remove(LOCK)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
sys.argv[1:] = ["--transport", "stdio"]
runpy.run_path(os.path.join(os.path.dirname(__file__), "probe.py"), run_name="__main__")
