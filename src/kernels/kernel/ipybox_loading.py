"""Patches modules when they are imported, so none is imported at the start only for that. Standard library only."""

import functools
import importlib.util
import os
import sys
import types
from importlib.machinery import PathFinder

_adjustments = {}
# Our own modules that are not imported yet.
_found = {}


def after_import(name, adjust):
    """Call `adjust` with the module `name` once it has been imported; at once if it has been."""
    if name in sys.modules:
        adjust(sys.modules[name])
        return
    _adjustments.setdefault(name, []).append(adjust)


def later(name):
    """Return a function that imports one of our modules.

    Its source is read now: later, code could put another in its place, or remove it.
    """
    spec = importlib.util.find_spec(name)
    spec.loader = _KeptSource(spec.loader.get_source(name), spec.origin)
    _found[name] = spec
    return functools.partial(importlib.import_module, name)


class _Finder:
    """Finds those modules by the usual finders, and patches each after it was loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in _found:
            return _found.pop(name)
        adjustments = _adjustments.get(name)
        if adjustments is None:
            return None

        def adjust(module):
            for adjust_once in adjustments:
                adjust_once(module)

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is None:
            spec.loader = _NamespaceLoader(adjust)
        elif spec is not None:
            execute = spec.loader.exec_module

            def execute_and_adjust(module):
                execute(module)
                adjust(module)

            spec.loader.exec_module = execute_and_adjust
        return spec


class _KeptSource:
    """Loads a module whose source is known."""

    def __init__(self, source, path):
        self._source, self._path = source, path

    @staticmethod
    def create_module(spec):
        return None

    def exec_module(self, module):
        exec(compile(self._source, self._path, "exec"), vars(module))  # noqa: S102 - a module of ours

    def get_source(self, name):
        return self._source


class _NamespaceLoader:
    """Loads a package that has no file, and patches it."""

    def __init__(self, adjust):
        self.exec_module = adjust

    @staticmethod
    def create_module(spec):
        return None


class ImportingPackage(types.ModuleType):
    """A package whose modules are imported on first access."""

    def __getattr__(self, name):
        # Python looks up such names in every module.
        if not name.startswith("__"):
            module = f"{self.__name__}.{name}"
            try:
                return importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
        message = f"module {self.__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=self)

    def __reduce__(self):
        # By name, for `cloudpickle`, which does so for plain modules only.
        return importlib.import_module, (self.__name__,)

    def __dir__(self):
        import pkgutil

        modules = {module.name for module in pkgutil.iter_modules(self.__path__)}
        return sorted({*super().__dir__(), *modules})

    @classmethod
    def adopt(cls, package):
        """Make an imported package one of these."""
        package.__class__ = cls


sys.meta_path.insert(0, _Finder)


def prefer_own_tests():
    """Prefer a `test` of the working directory to Python's own tests."""
    sys.meta_path.insert(0, _OwnTests)


class _OwnTests:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [os.getcwd()]) if name == "test" else None
