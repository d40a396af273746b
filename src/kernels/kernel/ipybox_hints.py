"""Adds hints to errors about wrong names: of registered MCP servers, of their tools, and of the tools' members; and
to those about packages that are not installed.

Only names that are close to an existing one, or belong to a server's package, get a hint: for all others
the exception itself is enough. Standard library only.
"""

import difflib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys

from ipybox_loading import later

missing = later("ipybox_missing")

ROOT = "mcptools"
RUNTIME = "ipybox_runtime"
ACTIONS = "gentools"
# The most categories of actions, and actions of one, that are looked at.
MOST_ACTIONS = 500
# ipybox's own functions.
OWN = ("search", "batch", "save")
# Python's error for calling a module, which may be a tool's.
NO_FUNCTION = re.compile(r"'(module|ToolModule)' object is not callable")
# Python's error for using a result as a dict or a list.
NO_CONTAINER = re.compile(
    r"'(\w+)' object (?:is not (?:subscriptable|iterable)|does not support item)"
    r"|argument of type '(\w+)' is not|object of type '(\w+)' has no len"
)
# The most names that a hint lists.
MOST_NAMES = 8
HOW_TO_REGISTER = "register one with `register_mcp_server`"


def hint_of_place(error):
    """The hint to add to an error that has to do with where the kernel is, wherever it was raised; a sandbox has some."""


def hint_for(error, by_library):
    """The hint to add to the text of `error`, or None. `by_library` says whether a library has raised it."""
    if isinstance(error, ImportError):
        return hint_of_import(error) or hint_of_package(error)
    if by_library:
        # A name that a library does not find is no name of a tool, unless it looks for it in `mcptools`.
        is_own_name = isinstance(error, AttributeError)
        return (is_own_name and hint_of_attribute(error)) or missing().hint_of_message(
            error
        )
    if isinstance(error, UnboundLocalError):
        return None
    if isinstance(error, NameError):
        return hint_of_name(getattr(error, "name", None))
    if isinstance(error, AttributeError):
        return hint_of_attribute(error)
    if isinstance(error, TypeError) and NO_FUNCTION.search(str(error)):
        return hint_of_called_module(error)
    if isinstance(error, TypeError):
        return hint_of_result(NO_CONTAINER.search(str(error)))
    return None


def hint_of_result(found):
    """A hint on reading the fields of a tool's result, if the class that was `found` is one of results."""
    name = found and next(filter(None, found.groups()))
    modules = [
        module
        for path, module in list(sys.modules.items())
        if path.startswith(f"{ROOT}.")
    ]
    classes = [vars(module).get(name) for module in modules] if name else []
    fields = [
        tuple(kind.model_fields) for kind in classes if hasattr(kind, "model_fields")
    ]
    if not fields:
        return None
    shown = f": {listed(fields[0])}" if len(set(fields)) == 1 and fields[0] else ""
    return f"the fields of a tool's result are attributes, as in `result.field`{shown}"


def hint_of_import(error):
    wanted = error.name or ""
    if not isinstance(error, ModuleNotFoundError):
        # `from wanted import name`
        found = re.match(r"cannot import name '(\w+)'", str(error))
        if found is None:
            return None
        wanted = f"{wanted}.{found[1]}"
    root, _, rest = wanted.partition(".")
    if root == ACTIONS:
        return hint_of_action(rest.rpartition(".")[2])
    if root != ROOT:
        return (
            hint_of_name(wanted)
            if wanted == root and isinstance(error, ModuleNotFoundError)
            else None
        )
    server, _, tool = rest.partition(".")
    if tool and server in servers():
        return hint_of_tool(server, tool)
    return hint_of_server(server)


def hint_of_attribute(error):
    if getattr(error, "obj", None) is sys.modules.get(ROOT, error):
        return hint_of_server(error.name, is_attribute=True)
    return None


def hint_of_package(error):
    """The hint for a package that is not installed."""
    name = error.name or ""
    if f"{name}.".startswith(f"{ROOT}."):
        return None
    said = missing().hint_of_message(error)
    if said is None and isinstance(error, ModuleNotFoundError) and name:
        return missing().hint_of_module(error)
    member = re.match(r"cannot import name '(\w+)'", str(error))
    return missing().hint_of_name(f"{name}.{member[1]}") if member else said


def hint_of_server(name, is_attribute=False):
    known = servers()
    if not known:
        return f"no MCP server is registered; {HOW_TO_REGISTER}"
    if is_attribute and name in known:
        return f"import it first: `from {ROOT} import {name}`"
    if name in known:
        return None
    near = nearest(name, known)
    if near:
        return f"did you mean {listed(near)}? Registered MCP servers: {listed(known)}"
    return f"registered MCP servers: {listed(known)}"


def hint_of_tool(server, name):
    known = tools(server)
    near = nearest(name, known)
    number = count(server)
    package = f"{ROOT}.{server}"
    call = call_of(server, near[0]) if near else None
    calls = f"`{call}`; " if call else ""
    guess = f"did you mean {listed(near)}? {calls}" if near else ""
    others = [other for other in servers() if other != server and name in tools(other)]
    if others and not near:
        guess = (
            f"`{name}` is a tool of {listed(f'{ROOT}.{other}' for other in others)}; "
        )
    all_of_them = f"the {number} tools" if number != 1 else "the one tool"
    return (
        f"{guess}`import {package}; print({package})` shows {all_of_them} of `{server}`"
    )


def hint_of_name(name):
    """The hint for an undefined name. Names that only resemble others get none."""
    if not name or name == ROOT:
        known = servers() if name else []
        return (
            f"`import {ROOT}.<server>`; registered MCP servers: {listed(known)}"
            if known
            else None
        )
    if name in getattr(importlib.import_module(RUNTIME), "__all__", ()):
        return f"`from {RUNTIME} import {name}`"
    known = servers()
    if name in known:
        return f"the MCP server `{name}` is imported by `from {ROOT} import {name}`"
    if name in OWN:
        return f"`from {ROOT} import {name}`"
    found = [
        (server, tool)
        for server in known
        for tool in tools(server)
        if plain(tool) == plain(name)
    ]
    if not found:
        return hint_of_action(name)
    imports = [f"`from {ROOT}.{server} import {tool}`" for server, tool in found]
    shown = " or ".join(imports[:MOST_NAMES])
    call = call_of(*found[0]) if len(found) == 1 else None
    calls = f"; `{call}`" if call else ""
    return f"a tool of a registered MCP server has this name: {shown}{calls}"


def hint_of_action(name):
    """The hint for a name that a saved action has, or almost has."""
    known = {action: category for category, action in actions()}
    near = nearest(name, known) if name else []
    if not near or not can_be_used(known[near[0]], near[0]):
        return None
    category = known[near[0]]
    return f"`from {ACTIONS}.{category} import {near[0]}` is a saved action: `{near[0]}.run(...)`"


def can_be_used(category, action):
    """Return whether the host's search finds an action: one whose test failed, or that has changed, is left out."""
    request = {"query": f"{category} {action}", "server": None, "limit": 50}
    try:
        found = importlib.import_module(RUNTIME).ask_host("/search", request)
    except Exception:  # noqa: BLE001 - a hint must not hide the error that it is for
        return False
    imports = re.compile(
        rf"^from {ACTIONS}\.{category} import .*\b{action}\b", re.MULTILINE
    )
    return bool(imports.search(found)) or f"{ACTIONS}.{category}.{action}" in found


def actions():
    """The categories and names of the actions in the workspace."""
    spec = importlib.util.find_spec(ACTIONS)
    for location in list(spec.submodule_search_locations or ()) if spec else []:
        for category in directories(location):
            for action in directories(os.path.join(location, category)):
                if os.path.isfile(os.path.join(location, category, action, "api.py")):
                    yield category, action


def directories(place):
    """The names of the directories in a place, which may be missing."""
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []
    return [name for name in names if name.isidentifier()][:MOST_ACTIONS]


def hint_of_called_module(error):
    """A hint for code that has called the module of a tool, or None."""
    tb = error.__traceback__
    while tb.tb_next is not None:
        tb = tb.tb_next
    frame = tb.tb_frame
    known = {**frame.f_globals, **frame.f_locals}
    modules = {}
    for name in frame.f_code.co_names + frame.f_code.co_varnames:
        # A variable, or an attribute of a module that was named before.
        owners = [(f"{path}.{name}", vars(module)) for path, module in modules.items()]
        for path, names in [(name, known), *owners]:
            value = names.get(name)
            if not isinstance(value, type(sys)):
                continue
            if hasattr(value, "CLIENT") and hasattr(value, "run"):
                return (
                    f"a tool is called by the function of its module: `{path}.run(...)`"
                )
            modules[path] = value
    return None


def servers():
    """The names of the packages that were generated for servers."""
    return sorted(info.name for info in pkgutil.iter_modules(locations()) if info.ispkg)


def tools(server):
    """The names of the modules of a server."""
    places = [os.path.join(location, server) for location in locations()]
    names = (info.name for info in pkgutil.iter_modules(places))
    return sorted(name for name in names if not name.startswith("_"))


def count(server):
    """The number of a server's tools: the modules for its resources and prompts are none."""
    from ipybox_modules import tool_modules

    return len(tool_modules(importlib.import_module(f"{ROOT}.{server}")))


def call_of(server, tool):
    """The call of a tool in one line, or None."""
    from ipybox_modules import nearest_call

    return nearest_call(f"{ROOT}.{server}", [tool])


def locations():
    spec = importlib.util.find_spec(ROOT)
    return list(spec.submodule_search_locations or ()) if spec else []


def nearest(name, known):
    by_plain = {plain(other): other for other in known}
    return [by_plain[near] for near in difflib.get_close_matches(plain(name), by_plain)]


def plain(name):
    """A name without parts that are easily confused."""
    return name.replace("_", "").replace("-", "").lower()


def listed(names):
    names = list(names)
    shown = ", ".join(f"`{name}`" for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
