"""Shows objects: a short text for the agent, and for people tables to sort and filter, plots and HTML as files.

The host says with each cell whether its client has views, which show more than text and images. If it has, an object that one
is made of gets a further representation. `ipybox_viewing.py`, `ipybox_tables.py` and `ipybox_libraries.py` do the work, and
are loaded when they are needed. Standard library and IPython only.
"""

from ipybox_loading import later
from IPython.utils.dir2 import get_real_method

# A view: the name of a file, a line break, and its content.
KIND = "application/vnd.ipybox.view"
# The same of a plot for clients without views: there is only its page.
PLOT = "application/vnd.ipybox.plot"
# A page of HTML, which needs nothing else.
PAGE = "application/vnd.ipybox.page"
# The title of a picture. All figures of matplotlib have it.
TITLE = "application/vnd.ipybox.title"

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
    ("duckdb", "DuckDBPyRelation"),
    ("_duckdb", "DuckDBPyRelation"),
    ("duckdb.duckdb", "DuckDBPyRelation"),
    ("duckdb._relation", "DuckDBPyRelation"),
)

# Other classes whose objects are shown by a function of `ipybox_libraries.py`.
SHOWN = {
    ("matplotlib.figure", "Figure"): "title_of_figure",
    ("pandas.io.formats.style", "Styler"): "show_styler",
    ("holoviews.core.dimension", "Dimensioned"): "show_holoviews",
    ("panel.viewable", "Viewable"): "show_panel",
    ("branca.element", "Figure"): "show_map",
    ("folium.folium", "Map"): "show_map",
    ("great_tables.gt", "GT"): "show_great_table",
}

# Modules that are adjusted by a function of `ipybox_libraries.py`, once they are imported.
ADJUSTED = {
    "plotly.io": "show_figures",
    "altair": "show_charts",
    "bokeh.io.showing": "show_bokeh",
    "bokeh.io.output": "load_no_bokeh",
    "itables.javascript": "show_itables",
    "sympy.interactive.printing": "print_no_formulas_as_images",
    "tqdm.notebook": "draw_bars_as_text",
}

viewing = later("ipybox_viewing")
tables = later("ipybox_tables")
libraries = later("ipybox_libraries")

# True if the client of the cell that runs has views.
is_wanted = bool
# The figures that the cell has shown; whether its code has ended.
_figures = set()
_is_at_end = False


def install(shell, after_import, is_wanted_now):
    """Decide how the shell shows objects; with views, if `is_wanted_now()` at that time."""
    global is_wanted
    is_wanted = is_wanted_now
    show_by_name = shell.display_formatter.mimebundle_formatter.for_type_by_name
    for module, name in TABLES:
        show_by_name(module, name, show_table)
    for (module, name), function in SHOWN.items():
        show_by_name(module, name, shower(function))
    for module, function in ADJUSTED.items():
        after_import(module, adjuster(function))
    shell.events.register("pre_execute", begin)
    # Before matplotlib's, which shows all figures.
    shell.events.register("post_execute", end)


def adjuster(name):
    """Have a library show things otherwise. A version that is made otherwise shows them as it does."""

    def adjust(library):
        try:
            getattr(libraries(), name)(library)
        except Exception:  # noqa: BLE001, S110 - code that imports a library must get it
            pass

    return adjust


def shower(name):
    def show(thing):
        try:
            shown = getattr(libraries(), name)(thing)
        except Exception:  # noqa: BLE001 - an object of a library can be of any state; it is shown as ever then
            shown = None
        return shown or own_bundle(thing)

    return show


def begin():
    global _is_at_end
    _is_at_end = False
    forget_figures()


def end():
    global _is_at_end
    _is_at_end = True


def forget_figures():
    """From here on, no figure has been shown."""
    _figures.clear()


def is_repeated(kind, data):
    """True if these are the representations of a figure that the cell has shown already, and does not show again on purpose:
    it comes as the cell's value, or matplotlib shows it when the cell has ended."""
    if TITLE not in data:
        return False
    pictures = [data[kind] for kind in sorted(data) if kind.startswith("image/")]
    if not pictures:
        return False
    figure = hash(tuple(pictures))
    is_shown = figure in _figures
    _figures.add(figure)
    return is_shown and (_is_at_end or kind == "execute_result")


def with_view(data):
    """The representations of an object that are shown."""
    if KIND in data or PAGE in data or data.keys() <= {"text/plain"}:
        return data
    try:
        return viewing().with_view(data)
    except Exception:  # noqa: BLE001 - code can show anything by these names; it is shown as text then
        return data


def show_table(table):
    """The representations of a table that take the place of the class's own."""
    try:
        shown = tables().show_table(table, has_view=is_wanted())
    except Exception:  # noqa: BLE001 - a table can have objects of any class; it is shown as ever then
        shown = None
    return shown or own_bundle(table)


def own_bundle(thing):
    # IPython does not ask an object whose class has a formatter, nor those of derived classes.
    own = get_real_method(thing, "_repr_mimebundle_")
    return own and own(include=None, exclude=None)
