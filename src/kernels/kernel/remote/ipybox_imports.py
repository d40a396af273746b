"""Makes packages of the workspace importable in a kernel that has no access to its files.

An entry of `sys.path` represents the workspace. Its files are requested from the host on import: first the list
of files, once for each package, then the text of each imported one.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import stat
import sys
import tempfile

ROOT = "ipybox:"
PACKAGES = ("mcptools", "mcpparse", "gentools")
INIT = "/__init__.py"
# Functions in `mcptools` that need no file, by their modules, if the workspace has none of this name.
OWN = {
    "mcptools/search": "ipybox_search",
    "mcptools/batch": "ipybox_batch",
    "mcptools/save": "ipybox_actions",
}

# The module that programs started by the kernel import instead of one of the packages.
REFUSAL = '''"""A stand-in."""
raise ImportError(
    "{name} can be imported in the kernel's own process only, since this kernel is not on ipybox's machine"
)
'''


def install(ask):
    """Make imports request files by `ask`, which takes a path and a request and returns the answer."""
    workspace = WorkspaceFiles(ask)

    def find(entry):
        if not entry.startswith(ROOT):
            raise ImportError
        return WorkspaceFinder(workspace, entry[len(ROOT) :])

    sys.path_hooks.insert(0, find)
    sys.path.insert(0, ROOT)
    warn_children()


def warn_children():
    """Show programs that the kernel starts why they cannot import these packages."""
    directory = own_directory()
    for name in (*PACKAGES, "ipybox_runtime"):
        with open(os.path.join(directory, f"{name}.py"), "w") as file:
            file.write(REFUSAL.format(name=name))
    users = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [users, directory]))


def own_directory():
    """A directory for all kernels of this user, so that those which are killed leave no more than one."""
    directory = os.path.join(tempfile.gettempdir(), f"ipybox-stand-ins-{os.getuid()}")
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    # Code is imported from it, so another user must not have created it.
    found = os.lstat(directory)
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if is_own and stat.S_IMODE(found.st_mode) == 0o700:
        return directory
    return tempfile.mkdtemp(prefix="ipybox-stand-ins-")


class WorkspaceFiles:
    """The files of the packages, as far as they were requested."""

    def __init__(self, ask):
        self._ask = ask
        # By package: its Python files, and their directories.
        self._known = {}

    def has(self, path):
        """True if there is a file or a directory of this path. A missing one may have been written since."""
        package = path.partition("/")[0]
        return path in self._known.get(package, ()) or path in self.look(package)

    def look(self, package):
        files = self._ask("/files", {"package": package})
        known = set(files)
        for file in files:
            while "/" in file:
                file = file.rpartition("/")[0]
                known.add(file)
        self._known[package] = known
        return known

    def children(self, directory):
        """The names of the modules in a directory, and whether each is a package."""
        if not directory:
            return {name: True for name in PACKAGES if self.look(name)}
        package = directory.partition("/")[0]
        known = self._known[package] if package in self._known else self.look(package)
        found = {}
        for path in known:
            parent, _, name = path.rpartition("/")
            if parent == directory and name != INIT[1:]:
                found[name.removesuffix(".py")] = not name.endswith(".py")
        return found

    def read(self, path):
        return self._ask("/source", {"file": path})

    def forget(self):
        self._known.clear()


class WorkspaceFinder(importlib.abc.PathEntryFinder):
    """Finds modules in one directory of the workspace."""

    def __init__(self, workspace, directory):
        self._workspace = workspace
        self._directory = directory

    def find_spec(self, fullname, target=None):
        name = fullname.rpartition(".")[2]
        if not self._directory and fullname not in PACKAGES:
            return None
        path = f"{self._directory}/{name}".lstrip("/")
        has = self._workspace.has
        if self._directory and has(f"{path}.py"):
            return self._spec(fullname, f"{path}.py", None)
        if not has(path):
            return own_spec(fullname, path)
        if has(path + INIT):
            return self._spec(fullname, path + INIT, [ROOT + path])
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [ROOT + path]
        return spec

    def _spec(self, fullname, file, locations):
        loader = WorkspaceLoader(self._workspace, fullname, file)
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=ROOT + file)
        # Sets `__file__`, and makes tracebacks look for the source.
        spec.has_location = True
        spec.submodule_search_locations = locations
        return spec

    def invalidate_caches(self):
        self._workspace.forget()

    def iter_modules(self, prefix=""):
        """Called by `pkgutil`."""
        children = self._workspace.children(self._directory)
        return sorted(
            (prefix + name, is_package) for name, is_package in children.items()
        )


def own_spec(fullname, path):
    """The module spec of ipybox's own functions in `mcptools`, and of `mcptools` itself before a server is registered."""
    if path in OWN:
        return importlib.machinery.ModuleSpec(fullname, OwnFunction(OWN[path]))
    if path == "mcptools":
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [ROOT + path]
        return spec
    return None


class OwnFunction(importlib.abc.Loader):
    """Loads a function of ipybox in the place of a module of its name."""

    def __init__(self, source):
        self._source = source

    def exec_module(self, module):
        name = module.__name__.rpartition(".")[2]
        function = getattr(importlib.import_module(self._source), name)
        sys.modules[module.__name__] = function


def has_pydantic():
    return "pydantic" in sys.modules or importlib.util.find_spec("pydantic") is not None


class WorkspaceLoader(importlib.abc.ExecutionLoader):
    """Loads one module."""

    def __init__(self, workspace, fullname, file):
        self._workspace = workspace
        self._fullname = fullname
        self._file = file
        self._source = None

    def get_filename(self, fullname):
        return ROOT + self._file

    def get_source(self, fullname):
        if self._source is None:
            self._source = self._workspace.read(self._file)
        return self._source

    def exec_module(self, module):
        if self._fullname.startswith("mcptools.") and not has_pydantic():
            raise ModuleNotFoundError(
                "the kernel lacks `pydantic`, which the API of tools is made with: "
                "install it in the kernel's environment, with `install_package` for instance",
                name="pydantic",
            )
        # The file may have changed since it was read.
        self._source = None
        linecache.cache.pop(ROOT + self._file, None)
        super().exec_module(module)
