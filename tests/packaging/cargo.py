"""The crate as its users have it: what it is built from, packed, built from the package, installed by `cargo install`.

Builds in the dev profile, in Cargo's own target directory, so that what is built there already is not built again. Exit
code: 0 all steps passed, 1 some failed, 2 wrong usage. `--no-build` builds nothing, and takes seconds.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from report import Steps, expect, run

REPOSITORY = Path(__file__).parents[2]
BUILD_SECS = 3_600
"""The longest time of a build that finds nothing built before."""

TARGETS = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
]
"""The revision that is released."""

COMPILES_C = {"ring", "psm", "stacker"}
"""The crates that build C and assembly, for which a cross compiler needs nothing but `cc`; the last two come with kube."""

LINKS = {"ring", "k8s-openapi", "rayon-core", "wasm-bindgen-shared"}
"""Crates with the key `links`; all but the first use it to be there but once, and link nothing."""

UNWANTED = {
    "another TLS": r"openssl|openssl-(sys|src)|native-tls|aws-lc-.*|boring.*|mbedtls.*|s2n-.*",
    "another build system than Cargo": r"cmake|bindgen|pkg-config|vcpkg|autotools|nasm-rs|protobuf-src",
    "C that comes along": r"(zstd|bzip2|lzma|libz|libgit2|libssh2|libsqlite3|zmq|libzmq|jemalloc|mimalloc)-?sys.*",
}

TOP = {
    ".cargo_vcs_info.json",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "Cargo.toml.orig",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "docs",
    "examples",
    "packaging",
    "sandbox-default.json",
    "src",
}
"""The files of the package; the tests, recordings, pictures and the other channels stay outside."""

MOST_BYTES = 3_800_000
"""The most bytes of the sources, the libraries of views (1.9 MB) and chapters, compressed; more would have been packed by mistake."""


def cargo(*arguments, **options):
    """Runs Cargo in the repository; gives its standard output."""
    done = subprocess.run(
        ["cargo", *map(str, arguments)],
        check=False,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        **{"timeout": BUILD_SECS, **options},
    )
    expect(done.returncode == 0, f"cargo {arguments[0]} failed\n{done.stderr[-4000:]}")
    return done.stdout


def package():
    """The package of the program, by its Cargo.toml."""
    metadata = cargo("metadata", "--locked", "--no-deps", "--format-version", "1")
    packages = json.loads(metadata)["packages"]
    return next(each for each in packages if each["name"] == "ipybox")


def crates(target, *more):
    """The crates that the program is built from, for one target, as names and versions."""
    tree = ["tree", "--locked", "-e", "normal,build", "--prefix", "none"]
    output = cargo(*tree, "--target", target, "--format", "{p}", *more)
    found = re.findall(r"^(\S+) v(\S+)", output, re.MULTILINE)
    return {tuple(each) for each in found}


def one_tls():
    """There is one TLS library with one provider, and little that builds C."""
    metadata = cargo("metadata", "--locked", "--format-version", "1")
    packages = json.loads(metadata)["packages"]
    linking = {(each["name"], each["version"]) for each in packages if each["links"]}
    for target in TARGETS:
        found = crates(target)
        names = [name for name, _ in found]
        for what, pattern in UNWANTED.items():
            bad = sorted(name for name in names if re.fullmatch(pattern, name))
            expect(not bad, f"{target}: {what}: {bad}")
        for name in ["rustls", "ring", "tokio", "hyper", "reqwest"]:
            expect(names.count(name) == 1, f"{target}: {names.count(name)} of {name}")
        native = {name for name, _ in found & linking}
        expect(native <= LINKS, f"{target}: these link something: {native - LINKS}")
        users = {
            name
            for name, _ in crates(target, "--invert", "cc", "--depth", "1")
            if name != "cc"
        }
        expect(users == COMPILES_C, f"{target}: C is compiled by {sorted(users)}")


def embedded():
    """The files that the sources embed, as paths in the repository."""
    found = set()
    sources = (REPOSITORY / "src").rglob("*.rs")
    for path in [*sources, REPOSITORY / "packaging/order/build.rs"]:
        for name in re.findall(
            r'include(?:_str|_bytes)?!\("([^"]+)"\)', path.read_text()
        ):
            found.add(str((path.parent / name).resolve().relative_to(REPOSITORY)))
    return found


def complete(target_directory, builds):
    """`cargo package` packs all that is embedded, and little else; if it may build, it builds from that."""
    # Whether all is committed is for whoever publishes.
    verification = [] if builds else ["--no-verify"]
    # All packages at once: the program's is built with the libraries', which no registry has yet.
    cargo("package", "--locked", "--allow-dirty", "--quiet", *verification)
    version = package()["version"]
    for name in ("codegen", "team"):
        archive = f"ipybox-{name}-{version}.crate"
        library(name, Path(target_directory) / "package" / archive)
    stem = f"ipybox-{version}"
    archive = Path(target_directory) / "package" / f"{stem}.crate"
    with tarfile.open(archive) as packed:
        names = {name.removeprefix(f"{stem}/") for name in packed.getnames()}
    lost = embedded() - names
    expect(len(embedded()) > 15 and not lost, f"not packed: {sorted(lost)}")
    tops = {name.split("/")[0] for name in names} | {".cargo_vcs_info.json"}
    expect(tops == TOP, f"packed or not packed by mistake: {sorted(tops ^ TOP)}")
    strange = [
        name
        for name in names - embedded()
        if not re.search(r"\.(rs|py|sh|md|json|toml|lock|orig)$|^LICENSE$", name)
    ]
    expect(not strange, f"packed by mistake: {strange}")
    size = archive.stat().st_size
    print(f"             {len(names)} files, {size / 1000:.0f} kB")
    expect(size <= MOST_BYTES, f"the package has {size} bytes, more than {MOST_BYTES}")


def library(name, archive):
    """The package of a library has its sources and the Python that they embed, and no tests of the team server's."""
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    sources = REPOSITORY / "crates" / name
    wanted = {
        str(path.relative_to(sources))
        for path in (sources / "src").rglob("*")
        if path.suffix in {".rs", ".py"}
        and (
            name == "codegen"
            or not {"tests", "tests.rs"} & set(path.relative_to(sources).parts)
        )
    }
    own = {name for name in names if name.startswith("src/")}
    expect(own == wanted, f"packed or not packed by mistake: {sorted(own ^ wanted)}")
    tops = {name for name in names if not name.startswith("src/")}
    made = {
        ".cargo_vcs_info.json",
        "Cargo.lock",
        "Cargo.toml",
        "Cargo.toml.orig",
        "README.md",
    }
    expect(tops | {".cargo_vcs_info.json"} == made, f"packed were {sorted(tops)}")


def installed(target_directory, python):
    """`cargo install` installs the program `ipybox` alone from the package, and it answers a cell."""
    # Where `cargo package` has built it already.
    source = Path(target_directory) / "package" / f"ipybox-{package()['version']}"
    with tempfile.TemporaryDirectory(prefix="ipybox-cargo-") as scratch:
        root = Path(scratch) / "root"
        command = ["install", "--locked", "--path", source, "--debug", "--quiet"]
        cargo(*command, "--root", root)
        programs = [path.name for path in (root / "bin").iterdir()]
        expect(programs == ["ipybox"], f"installed were {programs}")
        program = root / "bin/ipybox"
        version = f"ipybox {package()['version']}\n"
        expect(run([program, "--version"]) == version, "another version")
        requests = [
            ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        ]
        requests[0][1]["clientInfo"] = {"name": "test", "version": "1"}
        code = {"name": "execute_ipython_cell", "arguments": {"code": "6 * 7"}}
        requests.append(("tools/call", code))
        lines = [
            json.dumps(
                {"jsonrpc": "2.0", "id": number, "method": name, "params": params}
            )
            for number, (name, params) in enumerate(requests)
        ]
        command = [program, "--workspace", Path(scratch) / "workspace"]
        command += ["--state-dir", Path(scratch) / "state", "--python", python]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            # The end of input comes after the answers: it would end the cell.
            for line in lines:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
            process.stdin.close()
            expect(process.wait(60) == 0, f"it ended with {process.returncode}")
        text = answer["result"]["content"][0]["text"]
        expect("42" in text, f"the answer is {answer}")


def main():
    """Runs the steps; ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-build", action="store_true", help="takes seconds")
    parser.add_argument("--kernel-python", help="a Python for kernels")
    options = parser.parse_args()
    steps = Steps()
    steps.step(sentence(one_tls), one_tls)
    metadata = cargo("metadata", "--locked", "--no-deps", "--format-version", "1")
    target_directory = json.loads(metadata)["target_directory"]
    steps.step(sentence(complete), complete, target_directory, not options.no_build)
    if not options.no_build:
        if not options.kernel_python:
            parser.error("--kernel-python or --no-build is required")
        python = os.path.abspath(options.kernel_python)
        steps.step(sentence(installed), installed, target_directory, python)
    steps.end()


def sentence(function):
    """The sentence of a step, from its documentation."""
    return function.__doc__.strip().rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
