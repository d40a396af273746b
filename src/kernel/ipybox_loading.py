"""Patches modules when they are imported, so none is imported at the start only for that. Standard library only."""

import os
import sys
from importlib.machinery import PathFinder

_adjustments = {}


def after_import(name, adjust):
    """Call `adjust` with the module `name` once it has been imported; at once if it has been."""
    if name in sys.modules:
        adjust(sys.modules[name])
        return
    if not _adjustments:
        sys.meta_path.insert(0, _Finder)
    _adjustments[name] = adjust


class _Finder:
    """Finds those modules by the usual finders, and patches each after it was loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        adjust = _adjustments.get(name)
        if adjust is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_adjust(module):
                execute(module)
                adjust(module)

            spec.loader.exec_module = execute_and_adjust
        return spec


def prefer_own_tests():
    """Prefer a `test` of the working directory to Python's own tests."""
    sys.meta_path.insert(0, _OwnTests)


class _OwnTests:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [os.getcwd()]) if name == "test" else None
