"""Plants what the host would trust later: in the workspace, and in the home directory."""

import os
import shutil

from attack import TARGETS, attempt

OUTSIDE, HOME = TARGETS["outside"], os.path.expanduser("~")
PLANT = "LD_PRELOAD=/planted.so\nNODE_OPTIONS=--require=/planted.js\n"


def write(path, text=PLANT):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "a") as opened:
        opened.write(text)
    return path


def replace(path):
    write("harmless")
    os.rename("harmless", path)
    return path


def link_instead(path):
    if os.path.isdir(path):
        os.rmdir(path)
    elif os.path.exists(path):
        os.unlink(path)
    os.symlink(OUTSIDE, path)
    return path


def move_away(path):
    os.rename(path, path + "-away")
    os.symlink(OUTSIDE, path)
    return path


def swap(path):
    """Exchanges it for a link, in one step."""
    import ctypes

    if not os.path.islink("link"):
        os.symlink(OUTSIDE, "link")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, b"link", -100, path.encode(), 2):
        raise OSError(ctypes.get_errno(), path)
    return path


def remove(path):
    shutil.rmtree(path)
    return path


def directory(path):
    os.mkdir(path)
    return path


FILES = [".env", ".mcp.json", ".bashrc", ".gitmodules", ".ripgreprc"]
for path in FILES:
    for act in (write, replace, link_instead, move_away, swap, directory):
        attempt(
            f"{act.__name__} {path}",
            lambda act=act, path=path: act(path),
            needs_denial=False,
        )
CONFIGURATIONS = [
    ".npmrc",
    ".yarnrc.yml",
    ".yarn/releases/yarn.cjs",
    ".pnpmfile.cjs",
    "bunfig.toml",
    "uv.toml",
    ".cargo/config.toml",
    ".tool-versions",
    "mise.toml",
    "mise.local.toml",
    ".config/mise.toml",
    ".pre-commit-config.yaml",
    ".husky/pre-commit",
    ".githooks/pre-commit",
    "lefthook-local.yml",
    ".gitattributes",
    ".git/config",
    "HEAD",
    ".hg/hgrc",
    ".direnv/x",
    ".gemini/settings.json",
    ".codex/config.toml",
    ".windsurf/mcp.json",
    ".opencode/plugin/x.js",
    ".zed/tasks.json",
    ".helix/languages.toml",
    ".devcontainer/devcontainer.json",
    ".nvim.lua",
    ".pdbrc",
    ".Rprofile",
    ".Renviron",
    ".iex.exs",
    ".ocamlinit",
]
for path in CONFIGURATIONS:
    for act in (write, replace):
        attempt(
            f"{act.__name__} {path}",
            lambda act=act, path=path: act(path),
            needs_denial=False,
        )
    top = path.split("/")[0]
    attempt(f"swap {top}", lambda top=top: swap(top), needs_denial=False)
# npx takes ipybox from there, and runs it without a sandbox.
for path in (
    "node_modules/ipybox",
    "node_modules/@ipybox-rs",
    "node_modules/.bin/ipybox",
):
    for act in (write, replace, link_instead, move_away, swap, directory):
        attempt(
            f"{act.__name__} {path}",
            lambda act=act, path=path: act(path),
            needs_denial=False,
        )
    attempt(f"write {path}/x", lambda path=path: write(f"{path}/x"), needs_denial=False)
for act in (move_away, swap):
    attempt(
        f"{act.__name__} node_modules",
        lambda act=act: act("node_modules"),
        needs_denial=False,
    )
# git takes another configuration from where `commondir` leads.
for path in ("repository/.git/commondir", "repository/.git/config", "bare/commondir"):
    attempt(f"write {path}", lambda path=path: write(path))
for path in ("mcptools", ".ipybox"):
    for act in (replace, link_instead, move_away, swap, remove):
        attempt(
            f"{act.__name__} {path}",
            lambda act=act, path=path: act(path),
            needs_denial=False,
        )
    for name in (
        "planted.py",
        "probe/planted.py",
        "probe/__init__.py",
        "__pycache__/x.pyc",
        "late/__init__.py",
        "outputs/x",
    ):
        attempt(
            f"write {path}/{name}",
            lambda path=path, name=name: write(f"{path}/{name}"),
            needs_denial=False,
        )
for name in (
    ".ipython/profile_default/startup/00.py",
    ".jupyter/jupyter_config.py",
    ".bashrc",
    ".profile",
    ".config/x",
    ".local/lib/python3.11/site-packages/x.pth",
    ".ssh/authorized_keys",
    ".npmrc",
    ".config/ipybox/x",
    ".gitconfig",
    ".config/git/config",
    ".config/uv/uv.toml",
    ".config/pip/pip.conf",
):
    attempt(
        f"write ~/{name}", lambda name=name: write(f"{HOME}/{name}"), needs_denial=False
    )
for name in (
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/commands/planted.md",
    ".cursor/mcp.json",
    ".vscode/tasks.json",
    ".mcp.json",
    ".gitconfig",
    ".envrc",
    ".zshenv",
    ".bash_login",
):
    attempt(f"write {name}", lambda name=name: write(name), needs_denial=False)


def make(mode):
    """Makes a file with this mode, and leaves none without it."""
    descriptor = os.open("set-id", os.O_CREAT | os.O_WRONLY | os.O_EXCL, mode)
    try:
        return oct(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        os.unlink("set-id")


def change(act, mode):
    with open("plain", "w") as opened:
        act(opened.fileno() if act is os.fchmod else "plain", mode)
    return oct(os.stat("plain").st_mode)


for mode in (0o4755, 0o2755, 0o6755):
    attempt(f"make a file of mode {mode:o}", lambda mode=mode: make(mode))
    for act in (os.chmod, os.fchmod):
        attempt(
            f"{act.__name__} to {mode:o}",
            lambda act=act, mode=mode: change(act, mode),
        )
    attempt(
        f"mknod of mode {mode:o}",
        lambda mode=mode: os.mknod("node", 0o100000 | mode),
    )
