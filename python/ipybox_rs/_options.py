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


def remote_place(**places: str | None) -> str | None:
    """The remote place for kernels, if one is given.

    Raises:
        ValueError: There are two.
    """
    given = [name for name, place in places.items() if place is not None]
    if len(given) > 1:
        raise ValueError(f"{given[1]} excludes {given[0]}")
    return places[given[0]] if given else None


def gateway_options(
    url: str | None,
    token: str | None,
    ca: str | os.PathLike[str] | None,
    kernel_name: str | None,
    headers: Mapping[str, str] | None = None,
    other: str | None = None,
) -> dict[str, Any]:
    """The options for kernels on a Jupyter server, or at another remote place for which most of them hold too."""
    if url is None and other is None:
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


def pod_options(url: str | None, token: str | None) -> dict[str, Any]:
    """The options for kernels in a pod."""
    if url is None:
        return {}
    return {
        "kernel_pod_url": _checks.text("kernel_pod_url", url),
        "kernel_pod_token": _checks.optional_text("kernel_pod_token", token),
    }


def pool_options(
    pool: str | None,
    namespace: str | None,
    port: int,
    router_url: str | None,
    router_token: str | None,
    timeout: float,
    lease: float,
) -> dict[str, Any]:
    """The options for kernels in sandboxes that are claimed from a pool."""
    if pool is None:
        return {}
    return {
        "kernel_pool": _checks.text("kernel_pool", pool),
        "kernel_namespace": _checks.optional_text("kernel_namespace", namespace),
        "kernel_pool_port": _checks.port("kernel_pool_port", port),
        "kernel_router_url": _checks.optional_text("kernel_router_url", router_url),
        "kernel_router_token": _checks.optional_text(
            "kernel_router_token", router_token
        ),
        "kernel_claim_timeout": _checks.duration("kernel_claim_timeout", timeout),
        "kernel_claim_lease": _checks.duration("kernel_claim_lease", lease),
    }


def notebook(file: str | os.PathLike[str] | None) -> str | None:
    """The text for the host, which reads a relative path from the working directory."""
    if file is None:
        return None
    _checks.path("notebook", file)
    return os.fspath(file)
