"""Views: what a client that can show more than text and images shows of an object. Tables to sort and filter, plots, HTML.

The host says with each cell whether its client has views. If it has, an object that one is made of gets a further
representation, and a short text in place of a long one: the user sees the rest. `ipybox_viewing.py` makes them, and is
loaded for the first: most clients have none. Standard library and IPython only.
"""

from ipybox_loading import later
from IPython.utils.dir2 import get_real_method

# The representation: the name of a file, a line break, and its content.
KIND = "application/vnd.ipybox.view"

# Classes of tables, by module and name. pandas 3 says of its classes that they are of `pandas`.
TABLES = (
    ("pandas", "DataFrame"),
    ("pandas", "Series"),
    ("pandas.core.frame", "DataFrame"),
    ("pandas.core.series", "Series"),
    ("polars.dataframe.frame", "DataFrame"),
    ("polars.series.series", "Series"),
    ("pyarrow.lib", "Table"),
    ("pyarrow.lib", "RecordBatch"),
)

viewing = later("ipybox_viewing")

# Whether the client of the cell that runs has views.
is_wanted = bool


def install(shell, after_import, is_wanted_now):
    """Make views of what the shell shows, if `is_wanted_now()` at that time."""
    global is_wanted
    is_wanted = is_wanted_now
    for module, name in TABLES:
        shell.display_formatter.mimebundle_formatter.for_type_by_name(
            module, name, show_table
        )
    after_import("plotly.io", lambda library: adjust("show_figures", library))
    after_import("altair", lambda library: adjust("show_charts", library))


def adjust(name, library):
    """Have a library show its plots by views. A version that is made otherwise shows them as it does."""
    try:
        getattr(viewing(), name)(library)
    except Exception:  # noqa: BLE001, S110 - code that imports a library must get it
        pass


def with_view(data):
    """The representations of an object, with its view."""
    if KIND in data or not is_wanted():
        return data
    try:
        return viewing().with_view(data)
    except Exception:  # noqa: BLE001 - code can show anything by these names; it is shown as text then
        return data


def show_table(table):
    """The representations of a table that take the place of the class's own."""
    try:
        shown = viewing().show_table(table) if is_wanted() else None
    except Exception:  # noqa: BLE001 - a table can have objects of any class; it is shown as ever then
        shown = None
    if shown is not None:
        return shown
    # IPython does not ask an object whose class has a formatter, nor those of derived classes.
    own = get_real_method(table, "_repr_mimebundle_")
    return own and own(include=None, exclude=None)
