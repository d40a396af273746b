"""pytest's option `--record-mode`, for tests with `ipybox_rs.testing.recorded`."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from ipybox_rs.testing import MODES, VARIABLE


def pytest_addoption(parser: Any) -> None:
    """Adds the option, unless pytest-recording has it: with the same words."""
    if importlib.util.find_spec("pytest_recording") is not None:
        return
    parser.getgroup("ipybox").addoption(
        "--record-mode",
        choices=MODES,
        default=None,
        help="when tests with ipybox_rs.testing.recorded are recorded (default: once)",
    )


def pytest_configure(config: Any) -> None:
    """Passes the option on, to the workers of pytest-xdist too."""
    mode = config.getoption("--record-mode", default=None)
    if mode is not None:
        os.environ[VARIABLE] = mode
