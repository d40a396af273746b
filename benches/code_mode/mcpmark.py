"""MCPMark's PostgreSQL tasks, as far as they bring their data and a reference solution, on a server of their own.

The suite prepares a database by its `prepare_environment.py`, the reference is its `ground_truth.sql`, and its `verify.py`
says whether the end state is right. Most of its tasks need dumps or directories from the suite's own storage.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from arms import Misfit, call
from assets import Missing
from suite import Task, replay, tools

NAME = "postgres"
CATEGORY = "tasks/postgres/standard/security"
TASKS = ("rls_business_access", "user_permission_audit")
USER = "nobody"
"""The user who runs the database if we are root, as which PostgreSQL does not start."""


def programs():
    """The directory of PostgreSQL's programs: distributions leave `initdb` out of PATH."""
    found = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found and not places:
        raise Missing(
            "PostgreSQL is not installed\nhint: `apt install postgresql`, or your system's package"
        )
    return Path(found or places[-1]).resolve().parent


def run(command, **more):
    """Runs a program, or says what it said."""
    made = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **more,
    )
    if made.returncode:
        raise Misfit(
            f"{command[0]} failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}"
        )
    return made.stdout


@contextlib.contextmanager
def postgres(directory):
    """A PostgreSQL of our own on a Unix socket, and what clients need in their environment."""
    place = Path(directory) / "postgres"
    place.mkdir()
    us = {}
    if os.geteuid() == 0:
        Path(directory).chmod(0o755)
        shutil.chown(place, USER)
        us = {"user": USER}
    bin_directory, data = programs(), place / "data"
    run(
        [bin_directory / "initdb", "-D", data, "-U", "postgres", "--auth=trust"],
        cwd=place,
        **us,
    )
    control = [bin_directory / "pg_ctl", "-D", data, "-w"]
    # A Unix socket, and no port: nobody else's database is met by accident.
    options = f"-c listen_addresses='' -c unix_socket_directories={place}"
    start = [*control, "-l", place / "log", "-o", options, "start"]
    run(start, cwd=place, **us)
    try:
        yield {"PGHOST": str(place), "PGUSER": "postgres"}
    finally:
        run([*control, "-m", "immediate", "stop"], cwd=place, **us)


def suite_environment(libpq, database):
    """The environment of the suite's scripts."""
    return {
        **os.environ,
        **libpq,
        "POSTGRES_HOST": libpq["PGHOST"],
        "POSTGRES_PORT": "5432",
        "POSTGRES_USERNAME": libpq["PGUSER"],
        "POSTGRES_PASSWORD": "",
        "POSTGRES_DATABASE": database,
    }


class Databases:
    """A fresh database for each replay, made and verified by the suite's scripts."""

    def __init__(self, suite, libpq):
        self.place, self.libpq, self.number = Path(suite) / CATEGORY, libpq, 0
        self.name = None

    def fresh(self, task):
        """Makes the task's database."""
        self.number += 1
        self.name = f"task{self.number}"
        self.sql("postgres", f"CREATE DATABASE {self.name}")
        self.script(task, "prepare_environment.py")

    def verify(self, task):
        """Raises if the suite says no, and forgets the roles, which databases share."""
        self.script(task, "verify.py")
        self.sql("postgres", f"DROP DATABASE {self.name} WITH (FORCE)")
        roles = self.sql(
            "postgres",
            "SELECT rolname FROM pg_roles WHERE rolname NOT LIKE 'pg\\_%' AND rolname <> 'postgres'",
        ).split()
        for role in roles:
            self.sql("postgres", f'DROP ROLE "{role}"')

    def script(self, task, name):
        command = [sys.executable, self.place / task / name]
        run(command, env=suite_environment(self.libpq, self.name))

    def sql(self, database, statement):
        command = [programs() / "psql", "-qAtX", "-d", database, "-c", statement]
        return run(command, env={**os.environ, **self.libpq})


def read(suite):
    """The tasks, with their reference solutions."""
    found = []
    for name in TASKS:
        place = Path(suite) / CATEGORY / name
        sql = (place / "ground_truth.sql").read_text()
        solution = [[call(NAME, "execute_sql", sql=sql)]]
        prompt = (place / "description.md").read_text()
        found.append(Task(name, prompt, solution, "Done."))
    return found


async def rows(suite, program, directory, count):
    """The figures of all tasks."""
    with postgres(directory) as libpq:
        databases = Databases(suite, libpq)
        serving = tools(NAME, "postgres.py", directory, suite, **libpq)
        async with serving as server:

            def begin(task):
                databases.fresh(task.name)
                server.task(database=databases.name)

            def verify(task, _talk):
                databases.verify(task.name)

            async for row in replay(
                "mcpmark postgres",
                server,
                read(suite),
                program,
                directory,
                count,
                verify,
                arms=("direct", "ipybox", "hybrid"),
                begin=begin,
            ):
                yield row
