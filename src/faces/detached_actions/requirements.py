"""Finds the packages that the imports of an action come from. Runs in a cell of a kernel that has run nothing else."""

import ast
import sys
from importlib import metadata

# Found by ipybox, not on an index.
_OURS = ("gentools", "mcpparse", "mcptools")


def requirements(sources):
    """The requirements of these Python texts, with the versions that are installed, and the version of Python."""
    modules = {module for text in sources for module in _imported(ast.parse(text))}
    providers = metadata.packages_distributions()
    found = {
        requirement
        for module in modules
        for requirement in _requirements_of(module, providers)
    }
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "pydantic": metadata.version("pydantic"),
        "packages": sorted(found),
    }


def _imported(tree):
    """The modules that code imports from elsewhere, by their whole names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if (
                top not in sys.stdlib_module_names
                and top not in _OURS
                and not top.startswith("ipybox_")
            ):
                yield name


def _requirements_of(module, providers):
    top = module.partition(".")[0]
    packages = sorted(set(providers.get(top, [])))
    if not packages:
        # Not installed here: the name of a package that may bring it.
        from ipybox_missing import PACKAGES

        return [PACKAGES.get(top, top)]
    if len(packages) > 1:
        packages = _with_files(module, packages) or packages
    return [_pinned(package) for package in packages if package.lower() != "pydantic"]


def _with_files(module, packages):
    """Those of the packages that have the module, or the nearest one above it."""
    path = module.replace(".", "/")
    while "/" in path:
        has = [
            package
            for package in packages
            if any(
                str(file).startswith((f"{path}/", f"{path}."))
                for file in metadata.files(package) or ()
            )
        ]
        if has:
            return has
        path = path.rpartition("/")[0]
    return []


def _pinned(package):
    # Builds for one machine have a local version, which an index does not have.
    return f"{package}=={metadata.version(package).partition('+')[0]}"
