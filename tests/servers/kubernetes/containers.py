"""Containers of pods: processes in namespaces of their own, which die with the API server, and their probes."""

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import aiohttp
from kinds import CONFIG_MAPS, SECRETS
from registry import ObjectRegistry

REFERENCE = re.compile(r"\$(\$)?\(([A-Za-z_.][\w.-]*)\)")
KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class ContainerNotStarted(Exception):
    """A container that cannot be started as it is described; the reason is Kubernetes' name for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def isolated(command: list[str]) -> list[str]:
    """A command whose processes are all ended by the kernel when this process ends, or their first one does."""
    # `unshare` gets the signal of its parent's end, and passes it on to the first process of the namespace.
    with_user = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    namespaces = ["--pid", "--mount-proc", "--kill-child=KILL"]
    outer = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", *with_user]
    return [*outer, *namespaces, "--", *command]


class ContainerProcess:
    """One run of a container."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(
        cls, command: list[str], environment: dict[str, str], place: Path, log: Path
    ) -> "ContainerProcess":
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *isolated(command),
                cwd=place,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(process)

    async def signal(self, number: signal.Signals) -> None:
        """Signals the first process of the container, whose end is that of all others."""
        own = self.process.pid
        children: list[str] = []
        while not children and self.process.returncode is None:
            # It may be about to start.
            await asyncio.sleep(0.001)
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), number)

    async def wait(self) -> int:
        """The exit code, as a container's."""
        code = await self.process.wait()
        return code if code >= 0 else 128 - code


def command_of(container: dict[str, Any], environment: dict[str, str]) -> list[str]:
    """The command of a container with its variables filled in."""
    words = [*container.get("command", []), *container.get("args", [])]
    if not container.get("command"):
        image = container.get("image", "")
        raise ContainerNotStarted(
            "ImagePullBackOff", f'Back-off pulling image "{image}"'
        )
    expanded = [expand(word, environment) for word in words]
    if shutil.which(expanded[0], path=environment["PATH"]) is None:
        message = f'exec: "{expanded[0]}": executable file not found in $PATH'
        raise ContainerNotStarted("RunContainerError", message)
    return expanded


def expand(text: str, environment: dict[str, str]) -> str:
    """Fills in `$(NAME)`; unknown names stay as they are, `$$` is a `$`."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        return environment.get(found[2], found[0])

    return REFERENCE.sub(value, text)


def environment_of(
    registry: ObjectRegistry, pod: dict[str, Any], container: dict[str, Any], home: Path
) -> dict[str, str]:
    """The variables of a container. Nothing of the server's own is in them but `PATH`."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HOSTNAME": pod["metadata"]["name"],
    }
    for variable in container.get("env", []):
        source = variable.get("valueFrom")
        if source:
            value = value_from(registry, pod, source)
        else:
            value = expand(variable.get("value", ""), environment)
        environment[variable["name"]] = value
    return environment


def value_from(
    registry: ObjectRegistry, pod: dict[str, Any], source: dict[str, Any]
) -> str:
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"])
    for name, kind in (("secretKeyRef", SECRETS), ("configMapKeyRef", CONFIG_MAPS)):
        if name not in source:
            continue
        wanted = source[name]
        found = registry.store.get(kind, pod["metadata"]["namespace"], wanted["name"])
        text = ((found or {}).get("data") or {}).get(wanted["key"])
        if text is None:
            message = f'{kind.kind.lower()} "{wanted["name"]}" not found'
            if found:
                message = (
                    f"couldn't find key {wanted['key']} in {kind.kind} {wanted['name']}"
                )
            raise ContainerNotStarted("CreateContainerConfigError", message)
        return base64.b64decode(text).decode() if kind is SECRETS else text
    raise ContainerNotStarted("CreateContainerConfigError", f"unsupported: {source}")


def field_of(pod: dict[str, Any], path: str) -> str:
    """A value of the downward API."""
    keyed = KEYED.fullmatch(path)
    if keyed:
        return (pod["metadata"].get(keyed[1]) or {}).get(keyed[2], "")
    found: Any = pod
    for part in path.split("."):
        found = found.get(part, {})
    return found if isinstance(found, str) else ""


async def is_ready(container: dict[str, Any], address: str) -> bool:
    """Probes once."""
    probe = container["readinessProbe"]
    seconds = probe.get("timeoutSeconds", 1)
    action = probe.get("httpGet") or probe.get("tcpSocket")
    if action is None:
        # A command or gRPC: README.md says that they never succeed.
        return False
    host, port = action.get("host") or address, port_of(container, action["port"])
    try:
        if "tcpSocket" in probe:
            opened = asyncio.open_connection(host, port)
            _, writer = await asyncio.wait_for(opened, seconds)
            writer.close()
            return True
        scheme = action.get("scheme", "HTTP").lower()
        url = f"{scheme}://{host}:{port}/{action.get('path', '/').removeprefix('/')}"
        headers = {one["name"]: one["value"] for one in action.get("httpHeaders", [])}
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, ssl=False) as response,
        ):
            return 200 <= response.status < 400
    except (OSError, asyncio.TimeoutError, aiohttp.ClientError):
        return False


def port_of(container: dict[str, Any], port: int | str) -> int:
    """The number of a port that may be named."""
    for one in container.get("ports", []):
        if one.get("name") == port:
            return one["containerPort"]
    return int(port)
