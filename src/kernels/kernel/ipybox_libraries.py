"""Adjusts libraries that show things to people with a browser: here are an agent, which reads a short text, and people, who get
a file. Standard library, IPython and the library only."""

import contextlib
import importlib.util
import io
import json
import os
import types
import unicodedata

import ipybox_views
from ipybox_tables import in_text, show_table
from ipybox_viewing import PLOTLY, HtmlReader, as_title, quoted, shortened_text
from ipybox_views import PAGE, TITLE

# Plotly's renderers for browsers and notebooks.
BROWSERS = (
    "azure",
    "browser",
    "chrome",
    "chromium",
    "cocalc",
    "colab",
    "databricks",
    "firefox",
    "jupyterlab",
    "kaggle",
    "notebook",
    "notebook_connected",
    "nteract",
    "plotly_mimetype",
    "plotly_mimetype+notebook",
    "vscode",
)
# The same of Altair.
CHART_BROWSERS = (
    "browser",
    "colab",
    "default",
    "html",
    "jupyter",
    "jupyterlab",
    "kaggle",
    "mimetype",
    "nteract",
    "zeppelin",
)
# The most rows of a table in the text of its page.
PAGE_ROWS = 3
# The most rows of a chart of Altair.
CHART_ROWS = 100_000


def publish(data):
    from IPython.display import publish_display_data

    publish_display_data(data)


# matplotlib


def title_of_figure(figure):
    """The title of a figure of matplotlib, for the name of its file."""
    suptitle = getattr(figure, "_suptitle", None)
    titles = [suptitle.get_text()] if suptitle is not None else []
    for axes in figure.axes:
        titles += [axes.get_title(loc) for loc in ("center", "left", "right")]
    title = next(filter(None, map(str.strip, titles)), "")
    return {TITLE: plain_title(title)}


def plain_title(title):
    return unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()


# Plotly and Altair


def show_figures(plotly_io):
    """Have Plotly show figures as what they are, which takes no `nbformat` in the kernel."""
    from plotly.io import _renderers
    from plotly.io._base_renderers import ExternalRenderer

    class Figures(ExternalRenderer):
        # Plotly sets it, if `show` has it.
        config = None

        def render(self, fig_dict):
            options = {"config": self.config} if self.config else {}
            publish({PLOTLY: {**fig_dict, **options}})

    if getattr(_renderers, "nbformat", 0) is None:
        # It asks for nothing but the version.
        _renderers.nbformat = types.SimpleNamespace(__version__="5.0.0")
    if os.environ.get("PLOTLY_RENDERER"):
        return
    for name in ("ipybox", *BROWSERS):
        plotly_io.renderers[name] = Figures()
    plotly_io.renderers.default = "ipybox"


def show_charts(altair):
    """Have Altair show charts as what they are, and not as HTML that loads its programs from the network."""
    renderers = altair.renderers
    version = altair.SCHEMA_VERSION.lstrip("v").split(".")[0]

    def show(spec, **options):
        shown = {f"application/vnd.vegalite.v{version}+json": spec}
        with contextlib.suppress(Exception):
            # Only with `vl-convert-python`.
            shown |= picture_of_chart(altair, spec)
        return shown

    for name in ("ipybox", *CHART_BROWSERS):
        renderers.register(name, show)
    renderers.enable("ipybox")
    # Altair's own limit is for notebooks that keep every chart.
    altair.data_transformers.enable("default", max_rows=CHART_ROWS)


def picture_of_chart(altair, spec):
    """The image of a chart, unless its data would have to be loaded."""
    if importlib.util.find_spec("vl_convert") is None or '"url":' in json.dumps(spec):
        return {}
    from altair.utils.mimebundle import spec_to_mimebundle

    shown = spec_to_mimebundle(spec, format="png", mode="vega-lite")
    return shown[0] if isinstance(shown, tuple) else shown


# Bokeh, HoloViews, Panel


def show_bokeh(showing):
    """Have Bokeh's `show` make a page, instead of opening a browser."""
    save_or_show = showing.show

    def show(obj, *args, **kwargs):
        from bokeh.embed import file_html
        from bokeh.io.state import curstate
        from bokeh.model import Model
        from bokeh.resources import INLINE

        if not isinstance(obj, Model) and not isinstance(obj, (list, tuple)):
            # An application.
            return save_or_show(obj, *args, **kwargs)
        title = title_of_bokeh(obj)
        page = file_html(obj, INLINE, title or "Bokeh")
        file = curstate().file
        if file is not None and file.filename:
            with open(file.filename, "w", encoding="utf-8") as output:
                output.write(page)
        publish(
            {
                PAGE: page,
                TITLE: plain_title(title),
                "text/plain": text_of_bokeh(obj, title),
            }
        )
        return None

    showing.show = show


def load_no_bokeh(output):
    """Have Bokeh not load its programs into a notebook."""
    output.output_notebook = lambda *args, **kwargs: None


def plots_of_bokeh(obj):
    from bokeh.models import Plot

    found = []
    for model in obj if isinstance(obj, (list, tuple)) else [obj]:
        found += [model] if isinstance(model, Plot) else model.select({"type": Plot})
    return found


def title_of_bokeh(obj):
    for plot in plots_of_bokeh(obj):
        title = getattr(plot.title, "text", None)
        if title:
            return str(title)
    return ""


def text_of_bokeh(obj, title):
    plots = plots_of_bokeh(obj)
    parts = [
        f"Bokeh {'figure' if len(plots) == 1 else type(obj).__name__}{quoted(title)}"
    ]
    if len(plots) > 1:
        parts.append(f"{len(plots)} plots")
    for plot in plots[:1]:
        glyphs = [type(getattr(it, "glyph", it)).__name__ for it in plot.renderers]
        if glyphs:
            parts.append(f"glyphs: {', '.join(glyphs[:20])}")
        for name, axes in (("x", plot.xaxis), ("y", plot.yaxis)):
            label = next((axis.axis_label for axis in axes if axis.axis_label), None)
            if label:
                parts.append(f"{name}: {in_text(label)}")
    return "; ".join(parts)


def show_holoviews(thing):
    import holoviews

    backend = holoviews.Store.current_backend
    if backend not in ("bokeh", "plotly"):
        return None
    page = io.BytesIO()
    holoviews.save(thing, page, fmt="html", backend=backend, resources="inline")
    options = holoviews.Store.lookup_options(backend, thing, "plot").kwargs
    title = as_title(options.get("title")) or as_title(getattr(thing, "label", ""))
    text = shortened_text(f"HoloViews{quoted(title)} {thing!r}")
    page = page.getvalue().decode()
    return {PAGE: page, TITLE: plain_title(title), "text/plain": text}


def show_panel(thing):
    from bokeh.resources import INLINE

    page = io.StringIO()
    thing.save(page, resources=INLINE)
    return {
        PAGE: page.getvalue(),
        TITLE: "",
        "text/plain": shortened_text(f"Panel {thing!r}"),
    }


# Maps and tables


def show_map(thing):
    """The page of a map of folium. What it is drawn by comes from the network."""
    page = thing.get_root().render()
    reader = HtmlReader.of(page)
    layers = [type(child).__name__ for child in thing._children.values()]
    where = getattr(thing, "location", None)
    parts = ["Map by folium" + (f" at {', '.join(map(str, where))}" if where else "")]
    if layers:
        counts = {name: layers.count(name) for name in layers}
        parts.append(
            ", ".join(
                f"{name} × {count}" if count > 1 else name
                for name, count in counts.items()
            )
        )
    parts.append("its page loads the map from the network")
    return {
        PAGE: page,
        TITLE: plain_title(reader.title),
        "text/plain": "; ".join(parts),
    }


def show_styler(styler):
    """The text of a styled table of pandas is that of the table."""
    shown = show_table(styler.data, has_view=False)
    return shown and {"text/plain": shown["text/plain"]}


def show_great_table(table):
    content = table.as_raw_html()
    shown = {
        PAGE: content,
        "text/plain": shortened_text(HtmlReader.of(content, PAGE_ROWS).text()),
    }
    title = getattr(table._heading, "title", None)
    return {**shown, TITLE: plain_title(as_title(title))}


def show_itables(javascript):
    """Have `itables.show` make a page, with all that it needs."""

    def show(df=None, caption=None, **options):
        options["connected"] = False
        page = javascript.generate_init_offline_itables_html(
            options.get("dt_bundle") or javascript.opt.dt_bundle
        ) + javascript.to_html_datatable(df, caption, **options)
        shown = {
            PAGE: page,
            TITLE: plain_title(as_title(caption)),
            "text/plain": shortened_text(repr(df)),
        }
        with contextlib.suppress(Exception):
            # It takes more than tables.
            shown |= show_table(df, ipybox_views.is_wanted(), PAGE_ROWS) or {}
        publish(shown)

    javascript.show = show
    # Would load the programs into a notebook.
    javascript.init_notebook_mode = lambda *args, **options: None


# SymPy, tqdm


def print_no_formulas_as_images(printing):
    """Have SymPy show formulas as text, also numbers, unless code asks for images."""
    init = printing._init_ipython_printing

    def init_without_images(ip, stringify_func, use_latex, *args, **kwargs):
        init(
            ip,
            stringify_func,
            "mathjax" if use_latex is True else use_latex,
            *args,
            **kwargs,
        )
        for kind in ("image/png", "image/svg+xml"):
            for builtin in (int, float):
                ip.display_formatter.formatters[kind].type_printers.pop(builtin, None)

    printing._init_ipython_printing = init_without_images


def draw_bars_as_text(notebook):
    """Have the progress bars for notebooks be those for terminals: widgets would show their first state only."""
    from tqdm.std import tqdm

    class tqdm_notebook(tqdm):
        def __init__(self, *args, display=True, **kwargs):
            if isinstance(kwargs.get("ncols"), str):
                # Of a page.
                del kwargs["ncols"]
            super().__init__(*args, **kwargs)

        def display(
            self, msg=None, pos=None, close=False, bar_style=None, check_delay=True
        ):
            return super().display(msg, pos)

    notebook.tqdm_notebook = notebook.tqdm = tqdm_notebook
    notebook.tnrange = notebook.trange = lambda *args, **kwargs: tqdm_notebook(
        range(*args), **kwargs
    )
