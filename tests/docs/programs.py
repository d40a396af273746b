"""The programs that the documentation's commands start, where the real one would cost minutes, a login or the internet.

The runner puts a directory on PATH in which every name of `NAMES` leads here. A program does one of three things:

- it starts what it would start, from what is installed for the tests: `npx -y ipybox` is the binary under test, `uvx
  mcp-server-time` the real server, `ssh host command` a shell, as sshd would start it, a virtual environment's
  `jupyter` the real one; what `kubectl port-forward` leads to is a real Enterprise Gateway;
- it ends at once, since another test runs this very command (`COVERED`), and logs which, for the runner;
- it refuses: no test knows the command.

The environment, which `install` writes into each of them, says where things are and by which name it was called.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

COVERED = {
    # What is minutes of building, and is done by the tests of the packages.
    "cargo install --path .": "tests/packaging/cargo.py",
    "cargo install --locked --path .": "tests/packaging/cargo.py",
    "cargo install --locked ipybox": "tests/packaging/cargo.py",
    "pip install ipybox-rs": "tests/packaging/wheel.py",
    "uv add ipybox-rs": "tests/packaging/wheel.py",
    "pipx install ipybox-rs": "tests/packaging/wheel.py",
    "uv tool install ipybox-rs": "tests/packaging/wheel.py",
    "npm install -g ipybox": "tests/packaging/npm.py",
    "./docker-build.sh": "tests/packaging/docker.py",
    "claude plugin marketplace add ipybox-rs/ipybox": "tests/packaging/claude.py",
    "claude plugin install codeact-default@ipybox-rs": "tests/packaging/claude.py",
    # What wants a cluster, or a registry of images.
    "docker build --tag registry.example.com/ipybox-kernel:3.3.0 packaging/kubernetes/kernel": "tests/packaging/manifests.py",
    "docker push registry.example.com/ipybox-kernel:3.3.0": "tests/packaging/manifests.py",
    # What the tests are made of, or install for themselves.
    "npm install -g @anthropic-ai/sandbox-runtime@0.0.78": "tests/tools/package.json",
    "sudo apt install bubblewrap socat ripgrep": "tests/tools/install",
    "tests/run": ".ci/run",
    "tests/tools/install": "tests/run",
    "cargo build": "tests/run",
    "python3 examples/demo.py": "tests/run",
    "cargo run --example quickstart": "tests/it/examples.rs",
    "cargo run --example approval_policy": "tests/it/examples.rs",
    "cargo run --example streaming": "tests/it/examples.rs",
    "cargo run --example plots": "tests/it/examples.rs",
    "cargo run --example sandbox": "tests/it/examples.rs",
    # Measurements, made by hand on a quiet machine.
    "cargo build --release": "benches/side_by_side.py",
    "uv run benches/code_mode/run.py --binary target/release/ipybox": "tests/packaging/code_mode.py",
}
"""Commands that are not run here, and the file by which they are."""

COVERED_WITH_ARGUMENTS = {
    "cargo clippy": "tests/run",
    "cargo doc": "tests/run",
    "cargo fmt": "tests/run",
    "cargo test": "tests/run",
    "git clone https://github.com/ipybox-rs/ipybox": ".ci/run",
    "kubectl apply": "tests/packaging/manifests.py",
    "kubectl create secret generic": "tests/packaging/manifests.py",
    "kubectl rollout status": "tests/packaging/manifests.py",
}
"""The same, whatever follows these words."""

SERVERS = {
    "mcp-server-time": ["{tools}/servers/bin/mcp-server-time"],
    "mcp-server-git": ["{tools}/servers/bin/mcp-server-git"],
    "@modelcontextprotocol/server-filesystem": [
        "{tools}/npm/node_modules/.bin/mcp-server-filesystem"
    ],
    "@modelcontextprotocol/server-everything": [
        "{tools}/npm/node_modules/.bin/mcp-server-everything"
    ],
    # These speak to the internet, some with a key.
    "mcp-server-fetch": ["{tools}/mcp1/bin/python", "{here}/servers.py", "fetch"],
    "@brave/brave-search-mcp-server": [
        "{tools}/mcp1/bin/python",
        "{here}/servers.py",
        "brave_search",
    ],
}
"""MCP servers by their packages."""

NAMES = [
    *(
        "brew",
        "cargo",
        "claude",
        "docker",
        "git",
        "ipybox",
        "ipybox-rs",
        "just",
        "kubectl",
        "npm",
        "npx",
        "pip",
        "pipx",
    ),
    *(
        "python3",
        "ssh",
        "sudo",
        "uv",
        "uvx",
        "./docker-build.sh",
        "tests/run",
        "tests/tools/install",
    ),
]
"""Programs by the names that documents call them by; one with a slash is below the working directory."""

GATEWAY_TOKEN = "of-the-gateway-in-the-cluster"
"""The token that `kubectl get secret` prints, and that the Enterprise Gateway behind `kubectl port-forward` wants."""


def install(directory, working_directory, places):
    """Makes the programs: those called by a path in the working directory, the others in `directory`."""
    for name in NAMES:
        install_one(
            Path(working_directory if "/" in name else directory) / name, name, places
        )


def install_one(file, name, places):
    """Makes a program that leads here by `name`."""
    exports = "".join(
        f"export IPYBOX_DOCS_{key}={shlex.quote(str(value))}\n"
        for key, value in places.items()
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    # MCP servers inherit few variables: what a program needs stands in it.
    file.write_text(
        f"#!/bin/sh\n{exports}export IPYBOX_DOCS_NAME={name}\n"
        f'exec {shlex.quote(sys.executable)} -IS {shlex.quote(str(HERE / "programs.py"))} "$@"\n'
    )
    file.chmod(0o755)


def refuse(why):
    """Fails the block, with the command."""
    sys.exit(
        f"{why}\nhint: tests/docs/programs.py knows the commands of the documentation; add this one there"
    )


def ipybox(arguments):
    """Becomes the binary under test, with the tests' Python and a port that is free."""
    binary, tools = os.environ["IPYBOX_DOCS_BINARY"], os.environ["IPYBOX_DOCS_TOOLS"]
    subcommand = (
        next((one for one in arguments if not one.startswith("-")), None)
        if arguments
        else None
    )
    subcommand = subcommand if arguments[:1] == [subcommand] else None
    if subcommand == "tool-server" and "--port" not in arguments:
        arguments = [*arguments, "--port", os.environ["IPYBOX_DOCS_PORT"]]
    elif subcommand in (None, "doctor") and not {
        "--python",
        "--kernel-gateway-url",
    } & set(arguments):
        arguments = [*arguments, "--python", f"{tools}/kernel/bin/python"]
    os.execv(binary, ["ipybox", *arguments])


def package(name, arguments):
    """Becomes the program of a package that `npx` or `uvx` would download."""
    bare, _mark, version = name.rpartition("@") if "@" in name[1:] else (name, "", "")
    if bare in ("ipybox", "ipybox-rs"):
        if version not in ("", "latest", own_version()):
            refuse(f"`{name}` is not the version of this repository, {own_version()}")
        ipybox(arguments)
    if bare not in SERVERS:
        refuse(f"the package `{name}` is installed for no test")
    places = {"tools": os.environ["IPYBOX_DOCS_TOOLS"], "here": HERE}
    command = [part.format(**places) for part in SERVERS[bare]]
    os.execv(command[0], [*command, *arguments])


def own_version():
    """The version in Cargo.toml."""
    manifest = (HERE.parents[1] / "Cargo.toml").read_text()
    return re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)[1]


def npx(arguments):
    if arguments[:1] != ["-y"]:
        refuse(
            "`npx` without `-y` asks before it downloads, which no MCP client can answer"
        )
    if arguments[1] in ("ipybox-rs",):
        refuse("the package on npm is `ipybox`")
    package(arguments[1], arguments[2:])


def uvx(arguments):
    if arguments[:1] == ["ipybox"]:
        refuse("`ipybox` on PyPI is the Python original; ours is `ipybox-rs`")
    package(arguments[0], arguments[1:])


def docker(arguments):
    """A container of the image is the binary with the mounted workspace."""
    if arguments[:1] != ["run"]:
        refuse(f"no test knows `docker {' '.join(arguments)}`")
    rest, flags, workspace = arguments[1:], set(), None
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-i", "--interactive", "--rm"):
            flags.add(option.strip("-")[0])
        elif option in ("-e", "--env", "--env-file"):
            rest.pop(0)
        elif option in ("-v", "--volume") and rest[0].endswith(":/app/workspace"):
            workspace = rest.pop(0).removesuffix(":/app/workspace")
        else:
            refuse(f"no test knows `docker run {option}`")
    if flags != {"i", "r"}:
        refuse("an MCP client starts a container by `docker run -i --rm`")
    image = rest[0].removesuffix(f":{own_version()}") if rest else None
    if image not in ("ipyboxrs/ipybox", "ipybox") or not workspace:
        refuse(
            "the image is `ipyboxrs/ipybox`, or `ipybox` if built here, with a volume at /app/workspace"
        )
    ipybox(["--workspace", workspace, *rest[1:]])


def ssh(arguments):
    """As sshd does: the words are joined by blanks and given to the login shell, quoted by nobody."""
    while arguments and arguments[0].startswith("-"):
        arguments = (
            arguments[2:] if arguments[0] in ("-o", "-p", "-i", "-L") else arguments[1:]
        )
    if not arguments[1:]:
        return 0  # A tunnel: there is no command.
    return os.execvp("sh", ["sh", "-c", " ".join(arguments[1:])])


def claude(arguments):
    """`claude mcp add … -- COMMAND`: the command has to be one that starts."""
    if arguments[:2] != ["mcp", "add"] or "--" not in arguments:
        refuse("no test knows this command of Claude Code")
    command = arguments[arguments.index("--") + 1 :]
    subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
    )
    return log_covered("claude mcp add …", "tests/packaging/claude.py")


def python3(arguments):
    """The tests' own; an environment that it makes has what `venv_pip` and `venv_jupyter` are about."""
    if arguments[:2] != ["-m", "venv"]:
        os.execv(sys.executable, [sys.executable, *arguments])
    directory, tools = Path(arguments[2]), os.environ["IPYBOX_DOCS_TOOLS"]
    prefix = "IPYBOX_DOCS_"
    places = {
        name.removeprefix(prefix): value
        for name, value in os.environ.items()
        if name.startswith(prefix) and name != f"{prefix}NAME"
    }
    for name in ("pip", "jupyter"):
        install_one(
            directory / "bin" / name, f"venv/{name}", places | {"VENV": directory}
        )
    write_kernel_spec(
        directory / "share/jupyter", "python3", f"{tools}/kernel/bin/python"
    )


def write_kernel_spec(data, name, python):
    """Does as `ipykernel` does when it is installed: writes how its kernel is started."""
    file = data / "kernels" / name / "kernel.json"
    file.parent.mkdir(parents=True)
    spec = {
        "display_name": name,
        "language": "python",
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    }
    file.write_text(json.dumps(spec))


def venv_pip(arguments):
    """`pip install` of what the tests have installed: in the server's environment or in the kernel's."""
    if arguments[:1] != ["install"]:
        refuse(f"no test knows `pip {' '.join(arguments)}`")
    tools = os.environ["IPYBOX_DOCS_TOOLS"]
    asks = "import importlib.metadata, sys; importlib.metadata.version(sys.argv[1])"
    for package in arguments[1:]:
        pythons = [f"{tools}/{place}/bin/python" for place in ("jupyter", "kernel")]
        if not any(
            subprocess.run(
                [python, "-c", asks, package], stderr=subprocess.DEVNULL, check=False
            ).returncode
            == 0
            for python in pythons
        ):
            refuse(
                f"neither Jupyter's servers nor the kernel need the package `{package}`"
            )


def venv_jupyter(arguments):
    """The real one. A test may be root, a user of it should not."""
    allowed = ["--allow-root"] if arguments[0] == "server" and os.getuid() == 0 else []
    jupyter = f"{os.environ['IPYBOX_DOCS_TOOLS']}/jupyter/bin/jupyter"
    os.environ["JUPYTER_PATH"] = f"{os.environ['IPYBOX_DOCS_VENV']}/share/jupyter"
    os.execv(jupyter, [jupyter, *arguments, *allowed])


def kubectl(arguments):
    """Does as a cluster with the manifests would do: `tests/packaging/manifests.py` holds these commands against them."""
    if arguments[:1] == ["port-forward"]:
        return enterprise_gateway(arguments[-1].partition(":")[0])
    template = [word for word in arguments if word.startswith("go-template=")]
    if arguments[:2] != ["get", "secret"] or not template:
        refuse(f"no test knows `kubectl {' '.join(arguments)}`")
    text = template[0].removeprefix("go-template=")
    text = text.replace("{{.data.token | base64decode}}", GATEWAY_TOKEN)
    print(text.replace('{{"\\n"}}', "\n"), end="")
    return 0


def enterprise_gateway(port):
    """Becomes the gateway, with the manifest's kernel spec, whose kernels it starts here instead of in pods."""
    tools, data = os.environ["IPYBOX_DOCS_TOOLS"], Path.home() / "gateway"
    # Enterprise Gateway does not work with the newest ipykernel, and has one of its own.
    pythons = [f"{tools}/{place}/bin/python" for place in ("kernel6", "enterprise")]
    python = next(python for python in pythons if Path(python).exists())
    write_kernel_spec(data, "ipybox", python)
    environment = os.environ | {
        "JUPYTER_PATH": str(data),
        "EG_AUTH_TOKEN": GATEWAY_TOKEN,
        "EG_PORT": port,
        "EG_PORT_RETRIES": "0",
        "EG_DEFAULT_KERNEL_NAME": "ipybox",
        "EG_LIST_KERNELS": "False",
        "EG_INHERITED_ENVS": "PATH",
        # It refuses root, who runs tests in containers.
        "EG_UNAUTHORIZED_USERS": "nobody",
    }
    gateway = f"{tools}/enterprise/bin/jupyter-enterprisegateway"
    os.execve(gateway, [gateway], environment)


def log_covered(command, test):
    """Logs for the runner that another test runs a command."""
    with Path(os.environ["IPYBOX_DOCS_LOG"]).open("a") as log:
        log.write(f"{command}\t{test}\n")
    return 0


def main():
    name, arguments = os.environ["IPYBOX_DOCS_NAME"], sys.argv[1:]
    command = shlex.join([name, *arguments])
    if command in COVERED:
        return log_covered(command, COVERED[command])
    for words, test in COVERED_WITH_ARGUMENTS.items():
        if f"{command} ".startswith(f"{words} "):
            return log_covered(command, test)
    if name in ("ipybox", "ipybox-rs"):
        ipybox(arguments)
    starts = {
        "npx": npx,
        "uvx": uvx,
        "docker": docker,
        "ssh": ssh,
        "claude": claude,
        "python3": python3,
        "venv/pip": venv_pip,
        "venv/jupyter": venv_jupyter,
        "kubectl": kubectl,
    }
    if name in starts and arguments:
        return starts[name](arguments) or 0
    if name == "git":
        os.execv(shutil.which("git", path=os.defpath), ["git", *arguments])
    if name == "uv" and arguments[:1] != ["tool"]:
        os.execv(f"{os.environ['IPYBOX_DOCS_TOOLS']}/bin/uv", ["uv", *arguments])
    return refuse(f"no test runs `{command}`")


if __name__ == "__main__":
    sys.exit(main())
