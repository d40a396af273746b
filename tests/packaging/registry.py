"""The entry for the MCP registry, `server.json`: checked against the registry's schema by a linter that carries it.

    registry.py --skillsaw SKILLSAW [--node NODE]

Also that the linter would report what is wrong, and that the entry of a release has its bundles with their checksums.
"""

import argparse
import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from report import Steps, expect, run

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "server.json"

WRONG = {
    "a version that is none": lambda entry: entry.update(version="latest"),
    "a transport that is missing": lambda entry: entry["packages"][0].pop("transport"),
}
"""Changes that the linter has to refuse."""


def lint(skillsaw, entry, directory, *, fails=False):
    """Has the entry checked."""
    (directory / "server.json").write_text(json.dumps(entry, indent=2))
    # Its exit code reports errors, not warnings.
    output = run([skillsaw, "lint", "--strict", directory], fails=fails)
    expect(
        "mcp-registry" in output, f"it was not taken for a registry entry:\n{output}"
    )


def refuse(skillsaw, entry, directory):
    """The linter reports that the entry is wrong."""
    lint(skillsaw, entry, directory, fails=True)


def check_rules_of_the_registry(entry):
    """Checks the rules that the registry has beside its schema."""
    for package in entry["packages"]:
        kind, identifier = package["registryType"], package["identifier"]
        expect(
            "registryBaseUrl" not in package,
            f"{identifier}: the registry knows where {kind} is",
        )
        if kind == "oci":
            expect(
                "version" not in package, "an image has its version in the identifier"
            )
            expect(
                identifier.endswith(f":{entry['version']}"),
                f"{identifier} is of another version",
            )
        elif kind == "mcpb":
            expect(
                "mcp" in identifier and "fileSha256" in package,
                f"{identifier} would be refused",
            )
        else:
            expect(
                package["version"] == entry["version"],
                f"{identifier} is of another version",
            )
    kinds = [package["registryType"] for package in entry["packages"]]
    # None of npm: clients start npx in the project, where code may have planted a package.
    expect(kinds[:2] == ["pypi", "oci"], f"the packages are {kinds}")


def check_release(skillsaw, node, directory):
    """The entry of a release, with two bundles."""
    bundles = [
        directory / f"ipybox-{target}.mcpb" for target in ("linux-x64", "darwin-arm64")
    ]
    for bundle in bundles:
        bundle.write_bytes(bundle.name.encode())
    program = [node, ROOT / "packaging/registry/with-bundles.mjs"]
    entry = json.loads(run([*program, *bundles]))
    lint(skillsaw, entry, directory)
    check_rules_of_the_registry(entry)
    for bundle, package in zip(bundles, entry["packages"][2:], strict=True):
        sha256 = hashlib.sha256(bundle.read_bytes()).hexdigest()
        expect(package["fileSha256"] == sha256, f"{bundle.name} has another checksum")
        expect(
            package["identifier"].endswith(f"/v{entry['version']}/{bundle.name}"),
            package["identifier"],
        )
    expect("no bundle" in run(program, fails=True), "no bundles are no error")
    expect(
        ".mcpb" in run([*program, COMMITTED], fails=True),
        "a file that is no bundle is no error",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--skillsaw", required=True, help="the linter, 0.22 or newer")
    parser.add_argument("--node", default=shutil.which("node"))
    options = parser.parse_args()
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="ipybox-") as scratch:
        directory = Path(scratch)
        entry = json.loads(COMMITTED.read_text())
        steps.step(
            "server.json is as the registry's schema wants it",
            lint,
            options.skillsaw,
            entry,
            directory,
        )
        steps.step(
            "server.json is as the registry itself wants it",
            check_rules_of_the_registry,
            entry,
        )
        for name, spoil in WRONG.items():
            wrong = json.loads(COMMITTED.read_text())
            spoil(wrong)
            steps.step(f"refused: {name}", refuse, options.skillsaw, wrong, directory)
        sentence = "the entry of a release has its bundles"
        steps.step(sentence, check_release, options.skillsaw, options.node, directory)
    steps.end()


if __name__ == "__main__":
    main()
