"""Runs the official conformance suite against ipybox as a client, and prints a line for each scenario.

    run.py --suite DIR --program PATH [--python PATH] [--only WORD] [--jobs N] [--allow SCENARIO:CHECK]

DIR is where `npm install @modelcontextprotocol/conformance` was run. Run by an interpreter that has the SDK `mcp` 1.x.
Exit code: 0 all passed, 1 a check failed or warned or the client did, 2 wrong usage.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCENARIO_SECS = 900
BAD = ("FAILURE", "WARNING")
ATTEMPTS = 10
"""The number of times that a scenario is run in which something came too late, as it may on a machine with much else to do."""


def suite(options, parser):
    """The command of the suite, and its version."""
    packages = options.suite.resolve() / "node_modules"
    package = packages / "@modelcontextprotocol" / "conformance"
    bundled = packages / "node" / "bin" / "node"
    node = options.node or (bundled if bundled.exists() else shutil.which("node"))
    if not node:
        parser.error("no node: neither in the suite's packages nor in PATH")
    try:
        about = json.loads((package / "package.json").read_text())
    except OSError as error:
        parser.error(f"no suite in {options.suite}: {error}")
    return [str(node), str(package / "dist" / "index.js")], about["version"]


def listed(command):
    """The names of the client's scenarios."""
    text = subprocess.check_output([*command, "list", "--client"], text=True)
    return re.findall(r"^\s+- (\S+)", text, re.MULTILINE)


def run_scenario(command, scenario, options, place):
    """Runs a scenario; gives its checks and what is wrong beside them."""
    place.mkdir(parents=True)
    client = options.command or shlex.join([sys.executable, str(HERE / "client.py")])
    arguments = ["client", "--command", client, "--scenario", scenario]
    limit = ["--timeout", str(SCENARIO_SECS * 1000), "--output-dir", str(place)]
    # A group of its own: at its time limit the suite kills the client's shell and nothing else.
    process = subprocess.Popen(
        [*command, *arguments, *limit],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        cwd=place,
    )
    try:
        text, _ = process.communicate(timeout=SCENARIO_SECS + 30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        text += "\nthe suite did not end"
    (place / "suite.txt").write_text(text)
    wrong = []
    found = list(place.rglob("checks.json"))
    checks = json.loads(found[0].read_text()) if found else []
    if not checks:
        wrong.append("no checks were made")
    code = re.search(r"^Client exited with code (-?\d+)$", text, re.MULTILINE)
    if code:
        wrong.append(f"the client ended with {code[1]}")
    if re.search(r"CLIENT TIMED OUT|the suite did not end$", text):
        wrong.append("the client did not end in time")
    # Some checks are made after the file was written.
    if process.returncode != 0 and not wrong and not bad(checks):
        wrong.append(f"the suite ended with {process.returncode}")
    return checks, wrong, place


def bad(checks):
    return [check for check in checks if check["status"] in BAD]


def is_only_late(outcome):
    """Says whether nothing is bad but that the client reconnected later than within the suite's 200 ms."""
    checks, wrong, _ = outcome
    failed = bad(checks)
    late = [check for check in failed if check.get("details", {}).get("slightlyLate")]
    return bool(failed) and late == failed and not wrong


def report(scenario, outcome, allowed, seconds):
    """Prints the line of a scenario; returns whether it passed."""
    checks, wrong, place = outcome
    failed = bad(checks)
    counted = [c for c in failed if f"{scenario}:{c['id']}" not in allowed]
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    is_good = not counted and not wrong
    said = [f"{passed} passed"]
    for check in failed:
        mark = "" if check in counted else " (allowed)"
        detail = check.get("errorMessage") or check.get("description", "")
        said.append(f"{check['status']} {check['id']}{mark}: {detail}")
    said += wrong
    if not is_good:
        said.append(f"see {place}")
    mark = "ok  " if is_good else "FAIL"
    print(f"{mark} {scenario} ({seconds:.0f} s): {'; '.join(said)}", flush=True)
    return is_good


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--suite", type=Path, required=True, metavar="DIR")
    add("--node", help="default: the one in the suite's packages, or in PATH")
    add("--program", type=Path, help="ipybox; needed without --command")
    add("--python", type=Path, help="the kernels' interpreter")
    add(
        "--login",
        choices=["command", "elicitation", "retry"],
        help="how the user logs in; see client.py",
    )
    add("--command", help="another client than client.py")
    add(
        "--only",
        action="append",
        metavar="WORD",
        help="scenarios whose name has this; may be repeated",
    )
    add("--jobs", type=int, default=4)
    add(
        "--allow",
        action="append",
        default=[],
        metavar="SCENARIO:CHECK",
        help="a check that may fail or warn, such as auth/basic-cimd:cimd-client-id-used; may be repeated; give a reason beside",
    )
    add("--output", type=Path, help="where to leave checks and logs")
    options = parser.parse_args()
    if not options.command and not options.program:
        parser.error("no --program")
    command, version = suite(options, parser)
    if options.program:
        os.environ["IPYBOX_PROGRAM"] = str(options.program.resolve())
    if options.python:
        # Not resolved: an environment is found by the link.
        python = shlex.quote(str(options.python.absolute()))
        os.environ["IPYBOX_OPTIONS"] = f"--python {python}"
    if options.login:
        os.environ["IPYBOX_CONFORMANCE_LOGIN"] = options.login
    scenarios = listed(command)
    if options.only:
        scenarios = [s for s in scenarios if any(word in s for word in options.only)]
    if not scenarios:
        parser.error("no such scenario")
    output = options.output or Path(tempfile.mkdtemp(prefix="conformance-"))
    output = output.resolve() / time.strftime("%Y%m%d-%H%M%S")
    print(f"conformance {version}: {len(scenarios)} scenarios", flush=True)

    def timed(scenario):
        start = time.monotonic()
        for attempt in range(ATTEMPTS):
            place = output / f"{scenario.replace('/', '-')}-{attempt}"
            outcome = run_scenario(command, scenario, options, place)
            if not is_only_late(outcome):
                break
        return outcome, time.monotonic() - start

    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for scenario, (outcome, seconds) in zip(
            scenarios, pool.map(timed, scenarios), strict=True
        ):
            results.append(report(scenario, outcome, options.allow, seconds))
    print(f"{sum(results)} of {len(results)} scenarios passed; output in {output}")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
