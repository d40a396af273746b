"""Installs packages into the environment of this kernel, for ipybox."""

import contextlib
import importlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys


class InstallationError(Exception):
    """The packages are not installed; the installer's output was printed."""


def install(requirements):
    """Install requirements by pip, or by uv if there is no pip, and print the installer's output."""
    command = [*installer(), "--", *requirements]
    variables = {"NO_COLOR": "1", "GIT_TERMINAL_PROMPT": "0", "UV_NO_PROGRESS": "1"}
    with permitted(command):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Not in the working directory, whose files could change what is installed.
            cwd="/",
            env={**os.environ, **variables},
        )
    try:
        for line in process.stdout:
            print(line, end="")
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if status != 0:
        raise InstallationError(f"the installer ended with status {status}")
    importlib.invalidate_caches()
    print(
        f"On {platform.node()} in {sys.prefix}, the environment of the remote kernel."
    )


def installer():
    if importlib.util.find_spec("pip") is not None:
        options = [
            "--no-input",
            "--disable-pip-version-check",
            "--no-color",
            "--progress-bar",
            "off",
        ]
        return [sys.executable, "-I", "-m", "pip", "install", *options]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise InstallationError(
        f"{sys.executable} on {platform.node()} has no pip, and there is no uv: install one of them there"
    )


def permitted(command):
    """The context in which `command` can start even if starting programs is blocked."""
    commands = sys.modules.get("ipybox_commands")
    return contextlib.nullcontext() if commands is None else commands.permit(command)
