"""Hints for modules that are not installed: which package brings them. Loaded for the first one. Standard library only."""

import difflib
import dis
import importlib.util
import os
import pkgutil
import re
import sys
from importlib import metadata

# Packages that are called otherwise than their modules. Those that differ by case or `-` need no entry.
PACKAGES = {
    "absl": "absl-py",
    "ahocorasick": "pyahocorasick",
    "antlr4": "antlr4-python3-runtime",
    "attr": "attrs",
    "barcode": "python-barcode",
    "Bio": "biopython",
    "bs4": "beautifulsoup4",
    "cairo": "pycairo",
    "can": "python-can",
    "community": "python-louvain",
    "cpuinfo": "py-cpuinfo",
    "crontab": "python-crontab",
    "Crypto": "pycryptodome",
    "Cryptodome": "pycryptodomex",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "decouple": "python-decouple",
    "discord": "discord.py",
    "dns": "dnspython",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "engineio": "python-engineio",
    "faiss": "faiss-cpu",
    "ffmpeg": "ffmpeg-python",
    "fitz": "PyMuPDF",
    "gi": "PyGObject",
    "git": "GitPython",
    "github": "PyGithub",
    "gitlab": "python-gitlab",
    "google": "google-api-python-client",
    "google.auth": "google-auth",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "googleapiclient": "google-api-python-client",
    "graphql": "graphql-core",
    "grpc": "grpcio",
    "ibis": "ibis-framework",
    "imblearn": "imbalanced-learn",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "kafka": "kafka-python",
    "ldap": "python-ldap",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "mpl_toolkits.basemap": "basemap",
    "multipart": "python-multipart",
    "mysql": "mysql-connector-python",
    "MySQLdb": "mysqlclient",
    "nacl": "PyNaCl",
    "odf": "odfpy",
    "OpenGL": "PyOpenGL",
    "OpenSSL": "pyOpenSSL",
    "osgeo": "GDAL",
    "paho": "paho-mqtt",
    "pandas_profiling": "ydata-profiling",
    "PIL": "pillow",
    "pkg_resources": "setuptools<81",
    "playhouse": "peewee",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pylab": "matplotlib",
    "pytables": "tables",
    "pythoncom": "pywin32",
    "pyximport": "Cython",
    "rest_framework": "djangorestframework",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "snowflake": "snowflake-connector-python",
    "socketio": "python-socketio",
    "socks": "PySocks",
    "stdnum": "python-stdnum",
    "surprise": "scikit-surprise",
    "telegram": "python-telegram-bot",
    "tlz": "toolz",
    "umap": "umap-learn",
    "usb": "pyusb",
    "usb1": "libusb1",
    "vl_convert": "vl-convert-python",
    "vlc": "python-vlc",
    "websocket": "websocket-client",
    "win32api": "pywin32",
    "win32com": "pywin32",
    "wx": "wxPython",
    "Xlib": "python-xlib",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}

# Packages that a workspace has or has not: one of their names on an index is another's.
OF_WORKSPACES = ("mcptools", "mcpparse", "gentools")

# Modules that several packages share. The package has the name of the module below.
NAMESPACES = (
    "azure",
    "backports",
    "google",
    "google.cloud",
    "jaraco",
    "opentelemetry",
    "sphinxcontrib",
    "zope",
)
# Those whose packages are named by one part more.
DEEPER = {
    "azure": ("ai", "data", "keyvault", "mgmt", "monitor", "search", "storage"),
    "opentelemetry": ("exporter", "instrumentation"),
}

# Popular modules that are called as their packages: no mistyped names of others.
POPULAR_NAMES = """
    aiofiles aiohttp altair anthropic arrow bokeh boto3 botocore cartopy catboost celery chardet charset_normalizer click
    cryptography cupy cvxpy cycler dask datasets django duckdb fastapi fastparquet feedparser flask folium fsspec
    gensim geopandas geopy graphviz great_tables gymnasium h5py holoviews httpx huggingface_hub humanize hvplot imageio
    ipywidgets itables jinja2 joblib jsonschema keras kaleido langchain lightgbm llvmlite loguru lxml mako markdown
    matplotlib mistune mlflow mpmath msgpack mypy narwhals networkx nltk numba numexpr numpy openai openpyxl optuna
    orjson pandas pandera panel paramiko pdfplumber pendulum pikepdf pint plotly polars prettytable prophet psutil psycopg
    pyarrow pydantic pygments pymongo pymysql pyodbc pypdf pyproj pyspark pytest pytz rapidfuzz rasterio redis regex
    reportlab requests rich scipy seaborn selenium sentence_transformers shap shapely simplejson spacy sqlalchemy sqlmodel
    statsmodels streamlit sympy tabulate tensorflow textblob tiktoken tomli toml torch torchvision tornado tqdm transformers
    tweepy typer tzdata ujson unidecode urllib3 uvicorn wordcloud xarray xgboost xlrd xlsxwriter xlwt yfinance
    zstandard
"""
POPULAR = set(POPULAR_NAMES.split())

# Modules that the standard library has no more: the first version without it, and a package or a module in its place.
REMOVED = {
    "aifc": ("3.13", "standard-aifc", None),
    "asynchat": ("3.12", "pyasynchat", None),
    "asyncore": ("3.12", "pyasyncore", None),
    "audioop": ("3.13", "audioop-lts", None),
    "binhex": ("3.11", None, "binascii"),
    "cgi": ("3.13", "legacy-cgi", None),
    "cgitb": ("3.13", "legacy-cgi", None),
    "chunk": ("3.13", "standard-chunk", None),
    "crypt": ("3.13", "legacycrypt", None),
    "distutils": ("3.12", "setuptools", None),
    "formatter": ("3.10", None, None),
    "imghdr": ("3.13", "standard-imghdr", None),
    "imp": ("3.12", None, "importlib"),
    "lib2to3": ("3.13", None, "ast"),
    "mailcap": ("3.13", "standard-mailcap", None),
    "nis": ("3.13", None, None),
    "nntplib": ("3.13", "standard-nntplib", None),
    "parser": ("3.10", None, "ast"),
    "pipes": ("3.13", None, "subprocess"),
    "smtpd": ("3.12", "aiosmtpd", None),
    "sndhdr": ("3.13", "standard-sndhdr", None),
    "spwd": ("3.13", None, None),
    "sunau": ("3.13", "standard-sunau", None),
    "symbol": ("3.10", None, None),
    "telnetlib": ("3.13", "standard-telnetlib", None),
    "uu": ("3.13", "standard-uu", None),
    "xdrlib": ("3.13", "standard-xdrlib", None),
    # Of Python 2.
    "__builtin__": ("3.0", None, "builtins"),
    "ConfigParser": ("3.0", None, "configparser"),
    "cookielib": ("3.0", None, "http.cookiejar"),
    "cPickle": ("3.0", None, "pickle"),
    "cStringIO": ("3.0", None, "io"),
    "HTMLParser": ("3.0", None, "html.parser"),
    "httplib": ("3.0", None, "http.client"),
    "Queue": ("3.0", None, "queue"),
    "SocketServer": ("3.0", None, "socketserver"),
    "StringIO": ("3.0", None, "io"),
    "Tkinter": ("3.0", None, "tkinter"),
    "urllib2": ("3.0", None, "urllib.request"),
    "urlparse": ("3.0", None, "urllib.parse"),
}

# Messages of libraries about a package that they want, and about a module.
WANTED_PACKAGE = re.compile(
    r"\bpip3? install (?:-\S+ )*[`'\"]*([A-Za-z0-9][\w.-]*\w(?:\[[\w.,-]+\])?)"
)
WANTED_MODULE = re.compile(
    r"(?:Missing optional dependency '|`Import |requires the )([\w.-]+)(?:'|` failed| package\b)"
    r"|^(\w+) not found, please install|[Pp]lease install (?:the )?[`']?([a-z][\w-]+)[`']? (?:to|package|library)\b"
)
# The most directories of the workspace that are searched for a module.
MOST_DIRECTORIES = 200
NEAR = 0.8


def hint_of_module(error):
    """The hint for a module that is missing."""
    name = error.name
    root = name.partition(".")[0]
    if root in OF_WORKSPACES:
        return None
    if root in REMOVED:
        return hint_of_removed(root)
    # A package that is there has no such module, unless it shares its name with others.
    least = 2 if is_there(root) else 1
    package = package_of(imported(error) or [name], least)
    if package is None and (name != root or least > 1):
        return None
    if root in sys.stdlib_module_names:
        return f"`{root}` belongs to Python's standard library, and is not in this build of it: no package brings it"
    place = place_in_workspace(root)
    if place is not None:
        return f"it is in `{place}/` of the workspace: `import sys; sys.path.insert(0, {place!r})`"
    near = None if package or root in POPULAR else nearest(root)
    install = installation(package or root)
    return f"did you mean `{near}`? If not, {install}" if near else install


def hint_of_name(wanted):
    """The hint for `from namespace import name`."""
    package = package_of([wanted])
    return None if package is None or is_installed(package) else installation(package)


def hint_of_message(error):
    """The hint for an error of a library that wants another package, by what it says."""
    text = str(error)
    module = WANTED_MODULE.search(text)
    if module:
        name = next(filter(None, module.groups()))
        return installation(package_of([name]) or name.partition(".")[0])
    wanted = WANTED_PACKAGE.search(text)
    if wanted is None or ("[" not in wanted[1] and is_installed(wanted[1])):
        return None
    return installation(wanted[1])


def hint_of_removed(root):
    version, package, module = REMOVED[root]
    gone = f"Python {version} and newer have no module `{root}`"
    if package:
        return f"{gone}: {installation(package)}"
    return f"{gone}: use `{module}`" if module else gone


def installation(package):
    return f'install_package("{package}")'


def package_of(names, least=1):
    """The package of the first of these modules that is known to be of a package of another name.

    least: how many parts of the module's name must say so
    """
    for name in names:
        parts = name.split(".")
        for length in range(len(parts), least - 1, -1):
            prefix = ".".join(parts[:length])
            namespace, _, last = prefix.rpartition(".")
            if prefix in PACKAGES:
                return PACKAGES[prefix]
            if namespace in NAMESPACES and prefix not in NAMESPACES:
                length += last in DEEPER.get(namespace, ())
                # Versions of an API are modules of one package.
                return re.sub(r"_v\d\w*$", "", "-".join(parts[:length])).replace("_", "-")  # fmt: skip
    return None


def imported(error):
    """The modules that the statement imports which raised: `error` has only the first part that is missing."""
    tb = error.__traceback__
    while tb.tb_next is not None:
        tb = tb.tb_next
    before = None
    for instruction in dis.get_instructions(tb.tb_frame.f_code):
        if instruction.offset == tb.tb_lasti:
            name = instruction.argval
            if instruction.opname != "IMPORT_NAME" or not name.startswith(error.name):
                return None
            names = before.argval if isinstance(before.argval, tuple) else ()
            return [*(f"{name}.{member}" for member in names), name]
        before = instruction
    return None


def is_there(root):
    try:
        return root in sys.modules or importlib.util.find_spec(root) is not None
    except (ImportError, ValueError):
        return False


def is_installed(package):
    try:
        metadata.distribution(re.split(r"[\[<>=!~ ]", package)[0])
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return True


def place_in_workspace(root):
    """The directory below the current one that has the module."""
    for looked, (directory, directories, files) in enumerate(os.walk(".")):
        if looked >= MOST_DIRECTORIES:
            return None
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith((".", "__"))
            and name not in ("node_modules", "site-packages", "mcptools")
        )
        if directory.count(os.sep) > 1:
            directories.clear()
        is_package = root in directories and os.path.isfile(
            os.path.join(directory, root, "__init__.py")
        )
        if directory != "." and (f"{root}.py" in files or is_package):
            return os.path.relpath(directory)
    return None


def nearest(root):
    """A known module of almost this name."""
    installed = {info.name for info in pkgutil.iter_modules()}
    known = {*installed, *POPULAR, *PACKAGES, *sys.stdlib_module_names}
    found = difflib.get_close_matches(root, known, n=1, cutoff=NEAR)
    return found[0] if found and len(root) > 3 else None
