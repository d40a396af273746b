# %% Structured and plain results, defaults, text that is not ASCII.
import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

from mcptools.probe import add, big, echo, fail, slow

result = add.run(add.Params(a=1))
assert (
    isinstance(result, add.Result) and result.total == 6 and result.terms == [1, 5]
), result
for number in range(20):
    result = add.run(add.Params(a=result.total, b=number))
assert result.total == 196, result
assert echo.run(echo.Params(text="Grüße, 世界 🌍\n\x00")) == "Grüße, 世界 🌍\n\x00"
assert len(big.run(big.Params(characters=3_000_000))) == 3_000_000

# %% Tool errors carry the server's text.
try:
    fail.run(fail.Params(reason="out of paper"))
except Exception as error:  # noqa: BLE001 - its class is known by name only
    names = [cls.__name__ for cls in type(error).__mro__]
    assert "ToolRunnerError" in names, names
    assert "failed: out of paper" in str(error), error
else:
    raise AssertionError("a failing tool is no error")

# %% From threads, at the same time.
begin = time.monotonic()
slow.run(slow.Params(seconds=5))
alone = time.monotonic() - begin
begin = time.monotonic()
with ThreadPoolExecutor(8) as threads:
    slept = list(threads.map(slow.run, [slow.Params(seconds=5)] * 8))
assert slept == ["slept 5.0 s"] * 8, slept
assert time.monotonic() - begin < 6 * alone, "the calls waited for each other"

# %% From asyncio code, whose other tasks go on.
ticks = 0


async def tick():
    global ticks
    while True:
        await asyncio.sleep(0.02)
        ticks += 1


ticking = asyncio.create_task(tick())
# A loop that waits for the call ticks once at its end. On a slow machine one that does not wait may too.
for _ in range(20):
    before = ticks
    await asyncio.to_thread(slow.run, slow.Params(seconds=0.5))  # noqa: F704, PLE1142 - a cell may
    if ticks > before + 1:
        break
else:
    raise AssertionError(f"{ticks} ticks during 20 calls")
ticking.cancel()

# %% From child processes, forked and started afresh.
with get_context("fork").Pool(2) as pool:
    assert pool.map(echo.run, [echo.Params(text=letter) for letter in "abcd"]) == list(
        "abcd"
    )
script = (
    "from mcptools.probe import echo; print(echo.run(echo.Params(text='from a child')))"
)
child = subprocess.run(
    [sys.executable, "-c", script],
    check=True,
    capture_output=True,
    text=True,
    timeout=300,
)
assert child.stdout.strip() == "from a child", child
assert echo.run(echo.Params(text="still here")) == "still here"

# %%
print("probe: done")
