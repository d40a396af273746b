"""The simulation of a day of many users (`benches/scaling.py`), by days whose figures are known."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ROOT / "benches"
sys.path.insert(0, str(BENCHES))

import scaling


def printed(*arguments):
    command = [sys.executable, str(BENCHES / "scaling.py"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_session_is_awake_until_it_was_idle_for_a_time():
    tasks = [(0, 10), (20, 30), (100, 110)]
    assert scaling.awake_times(tasks, idle=15) == [[0, 45], [100, 125]]
    assert scaling.awake_times(tasks, idle=5) == [[0, 15], [20, 35], [100, 115]]
    assert scaling.awake_times([(scaling.DAY - 5, scaling.DAY + 5)], idle=15) == [
        [scaling.DAY - 5, scaling.DAY]
    ]


def test_sessions_that_are_awake_are_counted():
    users = [[(0, 10)], [(5, 20)], [(60, 70)]]
    day = scaling.simulate(users, idle=10, pool=0, start=10)
    assert (day.wakes, day.peak) == (3, 2)
    assert day.mean == pytest.approx((20 + 25 + 20) / scaling.DAY)


@pytest.mark.parametrize(
    ("pool", "waits"),
    [
        (0, [60, 60, 60]),
        # The first takes the place. The second waits for what the first has begun to start, the third for the next one.
        (1, [0, 30, 60]),
        (2, [0, 0, 30]),
        (3, [0, 0, 0]),
    ],
)
def test_users_wait_where_the_pool_is_empty(pool, waits):
    users = [[(0, 1)], [(0.5, 1)], [(0.5, 1)]]
    day = scaling.simulate(users, idle=1, pool=pool, start=60)
    assert day.waits == pytest.approx(waits)


def test_starts_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(scaling, "STARTS_AT_ONCE", 1)
    day = scaling.simulate([[(0, 1)], [(0, 1)]], idle=1, pool=0, start=60)
    assert day.waits == [60, 120]


def test_drawn_numbers_have_the_quantiles():
    class Level:
        def __init__(self, level):
            self.level = level

        def random(self):
            return self.level

    for level, pause in zip(scaling.LEVELS, scaling.PAUSES, strict=True):
        assert scaling.drawn(scaling.PAUSES, Level(level)) == pytest.approx(pause)
    assert 18 < scaling.drawn(scaling.PAUSES, Level(0.92)) < 47


def test_the_same_arguments_print_the_same():
    few = ("--users", "200")
    assert printed(*few) == printed(*few)
    assert printed(*few) != printed(*few, "--seed", "2")


def test_another_trace_is_refused(tmp_path):
    other = tmp_path / "trace.csv"
    other.write_text("submit_time,duration\n1,2\n")
    with pytest.raises(SystemExit, match="is not the trace"):
        scaling.traced_days(other)


def test_the_page_has_the_measured_figures():
    page = (ROOT / "docs/scaling.md").read_text()
    for figure in (
        f"{scaling.SESSION_MB:.0f} MB",
        f"{scaling.FRONT_MB} MB",
        f"{scaling.FRONT_USER_MB} MB",
    ):
        assert figure in page
