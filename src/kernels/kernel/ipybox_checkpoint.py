"""Brings variables of an earlier kernel back: `restore()` all of them, `restore("df", "model")` some.

ipybox saves the variables after each cell (`--checkpoint`) and loads none by itself. Names that begin with `_` are not
saved, nor is what the cells' code has not made.
"""

import hashlib
import http.client
import json
import os
import platform
import sys
import types

import ipybox_pickling
import ipybox_saving
from ipybox_pickling import NotSavedError

__all__ = ["restore"]

# The longest wait for the host's answer: it may write 128 MiB to a slow disk.
ANSWER_SECONDS = 30
# Variables that were saved within this time before the newest are shown without their age.
SAME_SECONDS = 60

_shell = None
_host = None
_address = ""
_token = ""
# The names that have come back: the host keeps them for nobody else.
_restored_names = set()


def restore(*names):
    """Load saved variables into this kernel, and print which came back, and why others did not.

    Without names, all are loaded whose names are not taken.
    """
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"restore() takes names, as in restore('df'), not {wrong[0]!r}")
    saved = ask("/checkpoint/list", {})
    python = saved["python"]
    if saved["variables"] and python != python_version():
        print(
            f"Nothing is restored: it was saved by {python}, and this is {python_version()}."
        )
        return
    report = Restoration(saved)
    report.restore(names or [each["name"] for each in saved["variables"]], bool(names))
    report.show(names)


class Restoration:
    """Variables that come back, and those that do not."""

    def __init__(self, saved):
        self._saved = {each["name"]: each for each in saved["variables"]}
        self._missing = {each["name"]: each["why"] for each in saved["missing"]}
        self._under_way = []
        self._restored = []
        self._failed = {}

    def restore(self, names, is_by_name):
        ipybox_pickling.find = self._load
        try:
            for name in dict.fromkeys(names):
                if name in self._restored:
                    continue
                if not is_by_name and name in ipybox_pickling.namespace:
                    self._failed[name] = (
                        f"the name is taken; restore({name!r}) replaces the value"
                    )
                    continue
                try:
                    self._load(name)
                except Exception as error:  # noqa: BLE001 - what is loaded runs the user's code
                    self._failed[name] = ipybox_pickling.reason(error)
        finally:
            ipybox_pickling.find = None

    def _load(self, name):
        if name in self._under_way:
            raise NotSavedError(f"`{name}` and what it refers to need each other")
        if name not in self._saved:
            why = self._missing.get(name)
            raise NotSavedError(f"was not saved: {why}" if why else "was not saved")
        self._under_way.append(name)
        try:
            each = self._saved[name]
            data = post("/checkpoint/load", {"name": name, "digest": each["digest"]})
            if hashlib.sha256(data).hexdigest() != each["digest"]:
                raise NotSavedError("the saved data is damaged: it was cut or changed")
            value = ipybox_pickling.load(data)
        except NotSavedError:
            raise
        except Exception as error:
            raise NotSavedError(f"cannot be loaded: {detailed(error)}") from error
        finally:
            self._under_way.remove(name)
        ipybox_pickling.namespace[name] = value
        self._restored.append(name)
        _restored_names.add(name)
        return value

    def show(self, names):
        failed = self._failed
        if not names:
            failed = {**failed, **self._missing_names()}
        newest = min((each["age"] for each in self._saved.values()), default=0)
        if self._restored:
            shown = []
            for name in self._restored:
                age = self._saved[name]["age"]
                is_older = age > newest + SAME_SECONDS
                shown.append(f"{name} (saved {ago(age)})" if is_older else name)
            print("Restored: " + ", ".join(shown))
        elif not failed:
            print("Nothing is saved that could be restored.")
        if failed:
            print("Not restored:")
        for name, why in failed.items():
            print(f"- {name}: {why}")

    def _missing_names(self):
        return {
            name: f"was not saved: {why}"
            for name, why in self._missing.items()
            if name not in ipybox_pickling.namespace
        }


def detailed(error):
    text = ipybox_pickling.reason(error)
    kind = type(error).__name__
    return text if text.startswith(kind) else f"{kind}: {text}"


def ago(seconds):
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{seconds:.0f} s ago"


# For ipybox itself


def prepare(shell, host):
    """Called once, before code runs: it may change its environment."""
    global _shell, _host, _address, _token
    _shell, _host = shell, host
    _address = os.environ["IPYBOX_TOOL_SERVER"]
    _token = os.environ["IPYBOX_TOOL_SERVER_TOKEN"]
    ipybox_pickling.namespace = shell.user_ns


def save(number):
    """Save the variables in the background. `number` is the host's for this time."""
    try:
        ipybox_saving.save(
            names_of_user,
            _host.output_descriptors(),
            lambda delivery: deliver(number, delivery),
        )
    except Exception:  # noqa: BLE001, S110 - no more processes are allowed, say: the host notices that nothing comes
        pass


def names_of_user():
    """The names that code of cells has given to values, the oldest first; modules at the end."""
    hidden = _shell.user_ns_hidden
    ours = (restore, sys.modules[__name__])
    names = [
        name
        for name, value in list(_shell.user_ns.items())
        if isinstance(name, str)
        and not name.startswith("_")
        and name.isidentifier()
        and (name not in hidden or hidden[name] is not value)
        and not any(value is one for one in ours)
    ]
    return sorted(names, key=lambda name: is_module(_shell.user_ns[name]))


def is_module(value):
    return type(value) is types.ModuleType


def deliver(number, delivery):
    """Send all variables to the host that it does not have; in the supervisor."""
    connection = connect()
    kept = set(ask("/checkpoint/list", {}, connection)["kept"])

    def keep(digest, data):
        if digest in kept:
            return None
        path = f"/checkpoint/{number}/value"
        status, content = exchange(connection, path, data, "octet-stream")
        if status != 200:
            return f"the host did not keep it: {content.decode(errors='replace')}"
        kept.add(digest)
        return None

    delivery.run(keep)
    report = {
        "python": python_version(),
        "has_cloudpickle": ipybox_pickling.cloudpickle is not None,
        "restored": sorted(_restored_names),
        "variables": [
            {"name": name, "digest": digest, "bytes": size}
            for name, digest, size in delivery.saved
        ],
        "missing": [{"name": name, "why": why} for name, why in delivery.missing],
    }
    ask(f"/checkpoint/{number}/end", report, connection)


def python_version():
    """The Python that pickled code needs: the implementation and the version."""
    return f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}"


def connect():
    host, _, port = _address.rpartition(":")
    return http.client.HTTPConnection(
        host.strip("[]"), int(port), timeout=ANSWER_SECONDS
    )


def ask(path, request, connection=None):
    """Send a request, and return its answer, which is JSON."""
    return json.loads(post(path, request, connection))


def post(path, request, connection=None):
    channel = connection or connect()
    status, content = exchange(channel, path, json.dumps(request).encode(), "json")
    if connection is None:
        channel.close()
    if status != 200:
        raise NotSavedError(content.decode(errors="replace") or f"status {status}")
    return content


def exchange(connection, path, body, kind):
    headers = {
        "Content-Type": f"application/{kind}",
        "Authorization": f"Bearer {_token}",
    }
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    return response.status, response.read()
