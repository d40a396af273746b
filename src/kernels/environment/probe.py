"""Describes the Python interpreter that runs it, as one line of JSON on stdout.

Standard library only. Everything up to the version also runs under Pythons that are too old for
ipybox, so that they can be refused by their version. Versions of packages are read from their
metadata: importing them would cost a second.
"""

import json
import os
import sys


def installed(name):
    """The version and the metadata directory of an installed distribution, or None."""
    from importlib import metadata

    try:
        distribution = metadata.distribution(name)
        version = distribution.version
    except (metadata.PackageNotFoundError, KeyError, OSError, ValueError):
        return None
    if not version:  # half removed
        return None
    path = getattr(distribution, "_path", None)
    return {"version": version, "path": str(path) if path else None}


def base_executable():
    """The interpreter that a virtual environment was made from."""
    base = getattr(sys, "_base_executable", None)
    if sys.prefix == sys.base_prefix or (base and base != sys.executable):
        return os.path.realpath(base or sys.executable)
    # Python 3.10 says that a virtual environment's python is its own base.
    for name in (
        f"python{sys.version_info[0]}.{sys.version_info[1]}",
        "python3",
        "python",
    ):
        path = os.path.join(sys.base_prefix, "bin", name)
        if os.access(path, os.X_OK):
            return path
    return os.path.realpath(sys.executable)


def facts():
    found = {"version": list(sys.version_info[:3])}
    if sys.version_info < (3, 10):  # noqa: UP036
        return found
    import sysconfig
    from importlib.util import find_spec

    is_venv = sys.prefix != sys.base_prefix
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")  # PEP 668
    found["details"] = {
        "executable": sys.executable,
        "base_executable": base_executable(),
        "prefix": sys.prefix,
        "scripts": sysconfig.get_path("scripts"),
        "is_venv": is_venv,
        "is_conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "is_externally_managed": not is_venv and os.path.exists(marker),
        "has_pip": find_spec("pip") is not None,
        "has_venv": find_spec("venv") is not None
        and find_spec("ensurepip") is not None,
        "ipython": installed("ipython"),
        "pydantic": installed("pydantic"),
    }
    return found


print(json.dumps(facts()))
