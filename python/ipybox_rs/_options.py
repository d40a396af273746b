"""Options as the host reads them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ipybox_rs import _checks

MANAGED = "managed"
"""For `python`: an environment that ipybox makes for the working directory."""


def interpreter(python: str | os.PathLike[str] | None) -> str | None:
    """The interpreter for kernels; `None` means a managed environment."""
    if python == MANAGED:
        return None
    # An application that was frozen to one program is no interpreter.
    if python is None and (getattr(sys, "frozen", False) or not sys.executable):
        return None
    return _checks.path("python", sys.executable if python is None else python)


def gateway_options(
    url: str | None,
    token: str | None,
    ca: str | os.PathLike[str] | None,
    kernel_name: str | None,
    headers: Mapping[str, str] | None = None,
    hub_url: str | None = None,
) -> dict[str, Any]:
    """The options for kernels on a Jupyter server."""
    if url is not None and hub_url is not None:
        raise ValueError("kernel_hub_url excludes kernel_gateway_url")
    if url is None and hub_url is None:
        return {}
    return {
        "kernel_gateway_url": _checks.optional_text("kernel_gateway_url", url),
        "kernel_gateway_token": _checks.optional_text("kernel_gateway_token", token),
        "kernel_gateway_ca": _checks.path("kernel_gateway_ca", ca),
        "kernel_name": _checks.optional_text("kernel_name", kernel_name),
        "kernel_gateway_headers": _checks.headers("kernel_gateway_headers", headers),
    }


def hub_options(
    url: str | None,
    token: str | None,
    server: str | None,
    user: str | None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The options for kernels on a server of a JupyterHub's user."""
    if url is None:
        return {}
    return {
        "kernel_hub_url": _checks.text("kernel_hub_url", url),
        "kernel_hub_token": _checks.optional_text("kernel_hub_token", token),
        "kernel_hub_server": _checks.optional_text("kernel_hub_server", server),
        "kernel_hub_user": _checks.optional_text("kernel_hub_user", user),
        "kernel_hub_options": _checks.mapping(
            "kernel_hub_options", {} if options is None else options
        ),
    }


def notebook(file: str | os.PathLike[str] | None) -> str | None:
    """The text for the host, which reads a relative path from the working directory."""
    if file is None:
        return None
    _checks.path("notebook", file)
    return os.fspath(file)
