"""Ends ipybox at each of its changes to files, or has that change fail, and looks at what the next start finds.

    python tests/faults/sweep.py target/debug/ipybox [--every N] [--only OPERATION] [--how kill,EIO,ENOSPC] [--python PYTHON]

Each operation is run once to learn its changes to files below the workspace and the state directory: writes, new files,
renames, removals, flushes. Then it is run again for each of them, from the same beginning. After each run ipybox is started
again, and then all has to be old or all new:

- no error or warning at that start, and no temporary file and no note in the journal after it;
- the package is the one that belongs to the registration; its server starts with the secrets that it needs, and has as
  many tools as the package;
- the vault has the secrets that registrations name, and no others;
- a change that was reported as done is there, and one that was reported as failed has left the old state, or the new one.

Prints a table for tests/README.md, and ends with 1 if there is a violation. Linux only (`faults.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import faults

HERE = Path(__file__).resolve().parent
LEFTOVER = re.compile(
    r"\.ipybox-new-|\.tmp\w{6}$|^\.[a-z]+-[0-9a-f]{32}$|\.ipynb\.tmp$"
)
TOOLS = {"v1": {"version", "only_in_v1"}, "v2": {"version", "only_in_v2"}}
INFER = """
import json
from ipybox_runtime import infer_result
from mcptools.probe import version
infer_result(version, version.run())
saved = [1, 2, 3]
"""


class Violation(Exception):
    pass


@dataclass
class Operation:
    name: str
    prepare: Callable[[Sweep], None]
    command: Callable[[Sweep], list[str]]
    # What is old, and what is new.
    state: Callable[[Sweep], object]
    # How many runs of others one of its runs takes; so many times fewer are tried, if not all are.
    weight: int = 1


class Sweep:
    def __init__(self, ipybox: Path, python: str | None, place: Path):
        self.ipybox, self.python, self.place = str(ipybox.resolve()), python, place
        self.root, self.kept = place / "root", place / "kept"
        self.workspace = self.root / "work"
        home = place / "home"
        home.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "IPYBOX_KEYRING": "off",
            "NO_COLOR": "1",
        }
        self.env["IPYBOX_STATE_DIR"] = str(self.root / "states")

    # Running ipybox.

    def args(self, *args: str) -> list[str]:
        return [self.ipybox, *args, "--workspace", str(self.workspace)]

    def quiet(self, *args: str) -> str:
        """Runs ipybox, which has to succeed without a warning."""
        done = subprocess.run(
            self.args(*args),
            check=False,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0 or re.search(r"WARN|ERROR|error:", done.stderr):
            raise Violation(
                f"`ipybox {' '.join(args)}` ended with {done.returncode}:\n{done.stderr}"
            )
        return done.stdout

    def entry(self, version: str, label: str = "") -> str:
        file = self.place / f"{version}.json"
        command = {
            "command": sys.executable,
            "args": ["-I", "-S", str(HERE / "server.py"), version],
        }
        server = command | {"env": {"PROBE_TOKEN": f"the-secret-of-{version}"}}
        file.write_text(json.dumps({"mcpServers": {"probe": server}}))
        return str(file)

    def importing(self, version: str) -> list[str]:
        return self.args("import", "--yes", "--replace", "--from", self.entry(version))

    def session(self, cell: str) -> list[str]:
        flags = [
            "--python",
            self.python or "",
            "--checkpoint",
            "--kernel-exit-timeout",
            "300s",
            "--notebook",
            str(self.workspace / "run.ipynb"),
        ]
        client = [sys.executable, str(HERE / "session.py"), cell]
        return [*client, str(self.root / "states"), *self.args(*flags)]

    # Beginning again.

    def begin(self, operation: Operation) -> None:
        for path in (self.root, self.kept):
            shutil.rmtree(path, ignore_errors=True)
        self.workspace.mkdir(parents=True)
        operation.prepare(self)
        shutil.copytree(self.root, self.kept, symlinks=True)

    def again(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.kept, self.root, symlinks=True)

    # Looking.

    @property
    def state(self) -> Path:
        return next((self.root / "states" / "workspaces").iterdir())

    def document(self, name: str) -> dict:
        path = self.state / name
        return json.loads(path.read_text()) if path.exists() else {}

    def package(self) -> set[str] | None:
        package = self.workspace / "mcptools" / "probe"
        if not package.exists():
            return None
        names = {path.stem for path in package.glob("*.py")}
        return names & (TOOLS["v1"] | TOOLS["v2"])

    def registered(self) -> str | None:
        """The version that is registered, if all that belongs to it fits."""
        servers = self.document("servers.json").get("servers", {})
        text = json.dumps(servers)
        named = set(re.findall(r"\$\{(secret:[^}]*)\}", text))
        known = set(self.document("secrets.json").get("secrets", {}))
        if named != known:
            raise Violation(f"the vault has {known}, and registrations name {named}")
        definitions = sorted(
            path.name for path in (self.state / "definitions").glob("*.json")
        )
        if "probe" not in servers:
            if self.package() is not None:
                raise Violation(
                    f"there is no registration, and a package with {self.package()}"
                )
            if definitions:
                raise Violation(
                    f"there is no registration, and there are definitions: {definitions}"
                )
            return None
        version = servers["probe"]["parameters"]["args"][-1]
        if self.package() != TOOLS[version]:
            raise Violation(
                f"{version} is registered, and the package has {self.package()}"
            )
        if len(definitions) != 1:
            raise Violation(f"one server has the definitions {definitions}")
        listed = self.quiet("servers", "test", "probe")
        if "2 tools" not in listed:
            raise Violation(f"the registered server says: {listed}")
        return version

    def labelled(self) -> tuple[str | None, str | None]:
        label = self.document("approvals.json").get("labels", {})
        return self.registered(), json.dumps(label) if label else None

    def inferred(self) -> tuple:
        """The state after a session: inferred types in the package and in the definitions, saved variables, and the notebook."""
        self.registered()
        module = (self.workspace / "mcptools" / "probe" / "version.py").read_text()
        definitions = next((self.state / "definitions").glob("*.json")).read_text()
        types = ("run_parsed" in module, '"observed": {' in definitions)
        if types[0] != types[1]:
            raise Violation(
                f"the type is inferred in the package and in the definitions: {types}"
            )
        for manifest in self.state.glob("checkpoints/*/manifest.json"):
            for variable in json.loads(manifest.read_text())["variables"]:
                if not (manifest.parent / variable["digest"]).exists():
                    raise Violation(f"the value of `{variable['name']}` is not there")
        notebook = self.workspace / "run.ipynb"
        if notebook.exists():
            json.loads(notebook.read_text())
        return types

    def leftovers(self) -> list[str]:
        found = []
        for directory, names, files in os.walk(self.root):
            journal = Path(directory).suffix == ".journal"
            found += [
                os.path.join(directory, name)
                for name in names + files
                if journal or LEFTOVER.search(name)
            ]
        return found

    # The sweep.

    def look(self, operation: Operation) -> object:
        """The state that the next start finds."""
        self.quiet("servers")
        if operation.name.startswith("session"):
            done = subprocess.run(
                self.session("1"),
                check=False,
                env=self.env,
                capture_output=True,
                text=True,
                timeout=300,
            )
            if done.returncode != 0 or re.search(r"WARN|ERROR", done.stderr):
                raise Violation(
                    f"the next session ended with {done.returncode}:\n{done.stderr}{done.stdout}"
                )
        state = operation.state(self)
        if left := self.leftovers():
            raise Violation(f"left after the next start: {left}")
        return state

    def one(self, operation: Operation, at: int | None, how: str) -> faults.FaultRun:
        return faults.run(
            operation.command(self),
            [self.root],
            program=self.ipybox,
            at=at,
            how=how,
            env=self.env,
            cwd=str(self.place),
        )

    def sweep(
        self, operation: Operation, hows: list[str], every: int
    ) -> tuple[int, dict[str, int], list[str]]:
        self.begin(operation)
        old = self.look(operation)
        self.again()
        whole = self.one(operation, None, "kill")
        if whole.status != 0:
            raise SystemExit(f"{operation.name} fails without a fault:\n{whole.output}")
        new = self.look(operation)
        if old == new:
            raise SystemExit(f"{operation.name} changes nothing: {old}")
        tried, violations = {}, []
        if every > 1:
            every *= operation.weight
        for place, how in enumerate(hows):
            tried[how] = 0
            # Other ones for each.
            begin = 1 + place * every // len(hows)
            for at in range(begin, len(whole.changes) + 1, every):
                self.again()
                run = self.one(operation, at, how)
                # The order of threads differs a little from run to run.
                if not run.was_hit:
                    continue
                tried[how] += 1
                try:
                    found = self.look(operation)
                    if found not in (old, new):
                        raise Violation(f"it is neither {old} nor {new}, but {found}")
                    if run.status == 0 and found != new:
                        raise Violation(f"it is reported as done, and is {found}")
                except Violation as violation:
                    where = f"{operation.name}: {how} at {at} of {len(whole.changes)}, {run.changes[at - 1]}"
                    violations.append(f"{where}: {violation}\n{run.output[-1500:]}")
                    print(violations[-1], file=sys.stderr, flush=True)
        return len(whole.changes), tried, violations


def operations() -> list[Operation]:
    def install(version: str) -> Callable[[Sweep], None]:
        return lambda sweep: void(
            subprocess.run(
                sweep.importing(version), env=sweep.env, check=True, capture_output=True
            )
        )

    def labelled(sweep: Sweep) -> None:
        install("v1")(sweep)
        sweep.quiet("servers", "label", "probe", "confidential")

    def nothing(sweep: Sweep) -> None:
        sweep.quiet("servers")

    return [
        Operation(
            "registration, with a secret",
            nothing,
            lambda it: it.importing("v1"),
            Sweep.registered,
        ),
        Operation(
            "registration in place of another",
            install("v1"),
            lambda it: it.importing("v2"),
            Sweep.registered,
        ),
        Operation(
            "label",
            install("v1"),
            lambda it: it.args("servers", "label", "probe", "confidential"),
            Sweep.labelled,
        ),
        Operation(
            "removal",
            labelled,
            lambda it: it.args("servers", "remove", "probe"),
            Sweep.labelled,
        ),
        Operation(
            "session: inferred types, variables, notebook",
            install("v1"),
            lambda it: it.session(INFER),
            Sweep.inferred,
            weight=3,
        ),
    ]


def void(_: object) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ipybox", type=Path)
    parser.add_argument(
        "--every", type=int, default=1, help="try each N-th change only"
    )
    parser.add_argument(
        "--only", default="", help="the beginning of an operation's name"
    )
    parser.add_argument("--how", default="kill,EIO,ENOSPC")
    parser.add_argument(
        "--python", help="the kernel's interpreter; without it, there is no session"
    )
    given = parser.parse_args()
    if not faults.is_possible():
        raise SystemExit("needs Linux on x86_64 or aarch64")
    hows, total = given.how.split(","), 0
    print(
        "| operation | changes to files |",
        " | ".join(hows),
        "| violations |",
        flush=True,
    )
    print("|---|---|" + "---|" * len(hows) + "---|", flush=True)
    for operation in operations():
        if (
            not operation.name.startswith(given.only)
            or operation.name.startswith("session")
            and not given.python
        ):
            continue
        with tempfile.TemporaryDirectory(prefix="sweep-") as place:
            sweep = Sweep(given.ipybox, given.python, Path(place).resolve())
            changes, tried, violations = sweep.sweep(operation, hows, given.every)
        cells = [
            operation.name,
            changes,
            *(tried[how] for how in hows),
            len(violations),
        ]
        print("|", " | ".join(map(str, cells)), "|", flush=True)
        total += len(violations)
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
