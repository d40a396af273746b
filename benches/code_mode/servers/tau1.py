"""The airline of the first τ-bench, with whose tools its published runs were made: `tau1.py NAME ANNOUNCEMENT`.

A task ends with the hash of the data, as the suite computes it. `{"actions": […]}` asks for the hash to which actions lead.
"""

import importlib
import sys
import types

from toolbox import Tool, serve


def part(name):
    """A module of the suite, without the simulated user, which needs the client of a model."""
    for package in ("tau_bench", "tau_bench.envs", "tau_bench.envs.airline"):
        if package not in sys.modules:
            made = types.ModuleType(package)
            made.__path__ = [
                f"{place}/{package.replace('.', '/')}" for place in sys.path
            ]
            sys.modules[package] = made
    user = types.ModuleType("tau_bench.envs.user")
    user.load_user = user.UserStrategy = object
    sys.modules.setdefault("tau_bench.envs.user", user)
    return importlib.import_module(name)


TOOLS = {
    tool.get_info()["function"]["name"]: tool
    for tool in part("tau_bench.envs.airline.tools").ALL_TOOLS
}
load_data = part("tau_bench.envs.airline.data").load_data


def hash_of(data):
    """As the suite's environment does it."""
    base = part("tau_bench.envs.base")
    return base.consistent_hash(base.to_hashable(data))


class Task:
    """The data of the present task."""

    def __init__(self):
        self.data = load_data()

    def tools(self):
        found = {}
        for name, tool in TOOLS.items():
            function = tool.get_info()["function"]
            found[name] = Tool(
                function["description"],
                function["parameters"],
                lambda _tool=tool, **arguments: call(_tool, self.data, arguments),
            )
        return found

    def end(self, request):
        if "actions" in request:
            data = load_data()
            for action in request["actions"]:
                if action["name"] in TOOLS:
                    call(TOOLS[action["name"]], data, action["kwargs"])
            return {"hash": hash_of(data)}
        answer = {"hash": hash_of(self.data)}
        self.data = load_data()
        return answer


def call(tool, data, arguments):
    """The suite answers with the error where a tool raises one."""
    try:
        return tool.invoke(data=data, **arguments)
    except Exception as error:  # noqa: BLE001 - the suite does so
        return f"Error: {error}"


if __name__ == "__main__":
    task = Task()
    serve(sys.argv[1], task.tools, task.end, sys.argv[2])
