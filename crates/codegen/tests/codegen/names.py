"""Prints the names that tools might use for their own things, or checks packages whose tools or servers do.

Arguments: `pool`, `check` or `servers`, the directory in which `mcptools` is, and the one of the runtime.
"""

import builtins
import enum
import importlib
import json
import keyword
import re
import sys
import typing
import warnings

import pydantic

sys.path[:0] = sys.argv[2:4]
warnings.simplefilter("error")

import ipybox_modules
import ipybox_results
import ipybox_runtime


def pool():
    from mcptools.demo import _base, _rules, _values
    from mcptools.demo import any as module

    sources = [
        builtins,
        typing,
        pydantic.BaseModel,
        pydantic.RootModel,
        str,
        int,
        enum.Enum,
        module,
        _base,
        _rules,
        _values,
        ipybox_modules,
        ipybox_modules.ToolPackage,
        ipybox_modules.ToolModule,
        type(ipybox_modules.ToolPackage),
        ipybox_results,
        ipybox_runtime,
        sys.modules["mcptools.demo"],
    ]
    names = {name for source in sources for name in (*dir(source), *vars(source))}
    names |= {*pydantic.__all__, *keyword.kwlist, *keyword.softkwlist}
    names |= {"params", "fields", "self", "cls", "data", "__pydantic_extra__"}
    spelt = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in names}
    return sorted(names | spelt | {name.capitalize() for name in names})


def imported(package, name):
    """The object that `from package import name` gives."""
    return getattr(__import__(package, {}, {}, [name]), name)


def check(cases):
    def call_sync(self, tool_name, tool_args):
        sent.append((tool_name, tool_args))
        return tool_args

    sent = []
    ipybox_runtime.ToolRunner.call_sync = call_sync
    for case in cases:
        try:
            # First as code does: what the package has itself would be found in the place of the module.
            module = imported("mcptools.demo", case["module"])
            assert importlib.import_module("mcptools.demo." + case["module"]) is module
            result = module.run(module.Params.model_validate(case["value"]))
            assert sent[-1] == (case["tool"], case["value"]), sent[-1]
            given = module.run(**case["value"])
            assert sent[-1] == (case["tool"], case["value"]), sent[-1]
            assert given == result and type(result) is module.Result
            dumped = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
            assert dumped == case["value"], dumped
            assert module.run.__signature__ is not None
        except Exception as error:  # noqa: BLE001 - whatever it is, with its cause
            source = sys.modules.get("mcptools.demo." + case["module"])
            print(case, repr(error), getattr(source, "__file__", None), sep="\n")
            sys.exit(1)


def check_servers(names):
    for name in names:
        package = imported("mcptools", name)
        assert package.CLIENT.server_name == name
        assert "ping" in dir(package), name


if sys.argv[1] == "pool":
    print(json.dumps(pool()))
elif sys.argv[1] == "servers":
    check_servers(json.load(sys.stdin))
else:
    check(json.load(sys.stdin))
