"""Views: what a client that can show more than text and images shows of an object. Tables to sort and filter, plots, HTML.

The host says with each cell whether its client has views. If it has, an object that one is made of gets a further
representation, and a short text in place of a long one: the user sees the rest. Standard library and IPython only.
"""

import json
import math
import re
import sys

# The representation: the name of a file, a line break, and its content.
KIND = "application/vnd.ipybox.view"
# The longest content, in characters.
VIEW_CHARS = 8 * 1024 * 1024
# The longest HTML.
HTML_CHARS = 1024 * 1024

# How much of a table a view has.
TABLE_ROWS = 50_000
TABLE_VALUES = 500_000
TABLE_COLUMNS = 500
# The longest text in a table.
VALUE_CHARS = 1000
# How much of a table its text has.
TEXT_ROWS = 5
TEXT_COLUMNS = 50
TEXT_VALUE_CHARS = 60

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = re.compile(r"application/vnd\.vega(lite)?\.v[0-9.]+(\+json|\.json)")

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

_is_wanted = bool


def install(shell, after_import, is_wanted):
    """Make views of what the shell shows, if `is_wanted()` at that time."""
    global _is_wanted
    _is_wanted = is_wanted
    for module, name in TABLES:
        shell.display_formatter.mimebundle_formatter.for_type_by_name(
            module, name, show_table
        )
    after_import("plotly.io", show_figures)
    after_import("altair", show_charts)


def with_view(data):
    """The representations of an object, with its view."""
    if KIND in data or not _is_wanted():
        return data
    try:
        kind, content, text = (
            of_plotly(data) or of_vega(data) or of_html(data) or (None,) * 3
        )
    except Exception:  # noqa: BLE001 - code can show anything by these names; it is shown as text then
        return data
    if kind is None or len(content) > VIEW_CHARS:
        return data
    shown = {**data, KIND: f"{kind}\n{content}"}
    if text is not None:
        shown["text/plain"] = text
    return shown


# Tables


def show_table(table):
    """The view of a table and its text, instead of the class's own text."""
    if not _is_wanted():
        return None
    columns, count = columns_of(table)
    of_data = sum(not column.is_index for column in columns)
    size = (
        f"{count:,} {plural(count, 'row')} and {of_data:,} {plural(of_data, 'column')}"
    )
    title = f"{type(table).__name__} of {size}"
    shown = columns[:TABLE_COLUMNS]
    most = min(count, TABLE_ROWS, TABLE_VALUES // max(1, len(shown)))
    head = {
        "title": title,
        "rows": count,
        "columns": [column.described() for column in shown],
        "left_out": len(columns) - len(shown),
    }
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    lines = [encode(head)]
    left = VIEW_CHARS - len(lines[0])
    rows = list(zip(*(column.values(most) for column in shown), strict=True))
    for row in rows:
        line = encode(row)
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    content = "\n".join(lines)
    return {
        KIND: f"table.jsonl\n{content}",
        "text/plain": text_of_table(title, columns, rows, count),
    }


def text_of_table(title, columns, rows, count):
    named = ", ".join(
        f"{column.name} {column.kind}" for column in columns[:TEXT_COLUMNS]
    )
    more = len(columns) - TEXT_COLUMNS
    if more > 0:
        named += f" and {more:,} more"
    first = rows[:TEXT_ROWS]
    what = "Rows" if count <= len(first) else f"The first {len(first)} rows"
    lines = [f"{title}, which the user sees as a table.", f"Columns: {named}"]
    if first:
        lines.append(f"{what}:")
        lines.append(",".join(column.name for column in columns[:TEXT_COLUMNS]))
        lines.extend(",".join(map(in_text, row[:TEXT_COLUMNS])) for row in first)
    return "\n".join(lines)


def in_text(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = " ".join(str(value).split())
    return text if len(text) <= TEXT_VALUE_CHARS else f"{text[:TEXT_VALUE_CHARS]}…"


class Column:
    """A column of a table: its name and type in words, and how its first values are had as a list."""

    def __init__(self, name, kind, first, is_index=False):
        self.name = cut(" ".join(str(name).split())) or ("(index)" if is_index else "")
        self.kind = cut(str(kind))
        if "timedelta" in self.kind or "uration" in self.kind:
            self.kind += ", in seconds"
        self.is_index = is_index
        self._first = first

    def described(self):
        return {"name": self.name, "type": self.kind, "index": self.is_index}

    def values(self, count):
        return [plain(value) for value in self._first(count)]


def columns_of(table):
    """The columns of a table, and how many rows it has."""
    module = type(table).__module__
    for parent in type(table).__mro__:
        if parent.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
            module = parent.__module__
            break
    if module.startswith("pandas"):
        return pandas_columns(table), len(table)
    if module.startswith("polars"):
        frame = table if hasattr(table, "get_columns") else table.to_frame()
        return [
            Column(
                series.name,
                series.dtype,
                lambda most, it=series: it.head(most).to_list(),
            )
            for series in frame.get_columns()
        ], len(table)
    return [
        Column(
            field.name,
            field.type,
            lambda most, it=column: it.slice(0, most).to_pylist(),
        )
        for field, column in zip(table.schema, table.columns, strict=True)
    ], table.num_rows


def pandas_columns(table):
    pandas = sys.modules["pandas"]
    if isinstance(table, pandas.Series):
        table = table.to_frame("" if table.name is None else table.name)
    index = table.index
    levels = []
    if not isinstance(index, pandas.RangeIndex) or index.name is not None:
        for number in range(index.nlevels):
            level = index.get_level_values(number)
            name = "" if level.name is None else level.name
            levels.append(
                Column(
                    name, level.dtype, lambda most, it=level: it[:most].tolist(), True
                )
            )
    columns = []
    for number, (name, kind) in enumerate(
        zip(table.columns, table.dtypes, strict=True)
    ):
        if isinstance(name, tuple):
            name = " / ".join(map(str, name))
        columns.append(
            Column(name, kind, lambda most, at=number: table.iloc[:most, at].tolist())
        )
    return [*levels, *columns]


def plain(value):
    """A value as JSON has it: a number, a truth value, a text or nothing."""
    kind = type(value)
    if kind is int or kind is bool or value is None:
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else str(value)
    if kind is str:
        return cut(value)
    # What is missing differs from itself, or refuses to say whether it does.
    try:
        if bool(value != value):  # noqa: PLR0124
            return None
    except (TypeError, ValueError):
        if kind.__name__ == "NAType":
            return None
    if kind.__name__ == "NaTType":
        return None
    if hasattr(value, "total_seconds"):
        return plain(value.total_seconds())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (int, float)):
        return plain(float(value) if isinstance(value, float) else int(value))
    if isinstance(value, (dict, list, tuple)):
        try:
            return cut(json.dumps(value, default=str, ensure_ascii=False))
        except (RecursionError, TypeError, ValueError):
            pass
    return cut(str(value))


def cut(text):
    text = text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"
    # Halves of characters cannot be sent.
    return text.encode("utf-8", "replace").decode()


def plural(count, word):
    return word if count == 1 else f"{word}s"


# Plots


def of_plotly(data):
    figure = data.get(PLOTLY)
    if not isinstance(figure, dict):
        return None
    layout = figure.get("layout") or {}
    traces = figure.get("data") or []
    named = [described_trace(trace) for trace in traces[:20]]
    if len(traces) > len(named):
        named.append(f"{len(traces) - len(named):,} more")
    parts = [f"Plotly figure{quoted(title_of(layout))}, which the user sees"]
    if named:
        parts.append(f"traces: {', '.join(named)}")
    for axis in ("xaxis", "yaxis"):
        title = title_of(layout.get(axis) or {})
        if title:
            parts.append(f"{axis[0]}: {in_text(title)}")
    return "plotly.json", to_json(figure), "; ".join(parts)


def described_trace(trace):
    return f"{trace.get('type', 'scatter')}{quoted(trace.get('name'))}"


def title_of(part):
    title = part.get("title")
    return title.get("text") if isinstance(title, dict) else title


def quoted(title):
    return f" “{in_text(title)}”" if isinstance(title, str) and title else ""


def of_vega(data):
    found = next((kind for kind in data if VEGA.fullmatch(kind)), None)
    chart = data.get(found)
    if not isinstance(chart, dict):
        return None
    is_lite = VEGA.fullmatch(found)[1] is not None
    name = "Vega-Lite" if is_lite else "Vega"
    parts = [f"{name} chart{quoted(title_of(chart))}, which the user sees"]
    mark = chart.get("mark")
    mark = mark.get("type") if isinstance(mark, dict) else mark
    if isinstance(mark, str):
        parts.append(f"mark: {in_text(mark)}")
    encoding = chart.get("encoding")
    for channel, field in (encoding if isinstance(encoding, dict) else {}).items():
        if isinstance(field, dict) and (field.get("field") or field.get("aggregate")):
            what = (field.get("aggregate"), field.get("field"), field.get("type"))
            parts.append(f"{channel}: {' '.join(str(part) for part in what if part)}")
    file = "vegalite.json" if is_lite else "vega.json"
    return file, to_json(chart), "; ".join(parts[:20])


def of_html(data):
    """HTML, if there is no picture of the same."""
    html = data.get("text/html")
    if not isinstance(html, str) or not html.strip() or len(html) > HTML_CHARS:
        return None
    if any(kind.startswith(("image/", "application/vnd.")) for kind in data):
        return None
    return "html.html", html.encode("utf-8", "replace").decode(), None


def to_json(value):
    # Numbers that JSON does not have are missing in a plot.
    try:
        return json.dumps(value, default=as_list, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), default=as_list, ensure_ascii=False)


def finite(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return finite(value.tolist()) if hasattr(value, "tolist") else value


def as_list(value):
    return value.tolist() if hasattr(value, "tolist") else str(value)


def show_figures(plotly_io):
    """Have Plotly show figures by their views, which takes no `nbformat` in the kernel."""
    try:
        from plotly.io._base_renderers import ExternalRenderer

        before = plotly_io.renderers.default
    except (AttributeError, ImportError):
        # A version that is made otherwise shows figures as it does.
        return

    class Views(ExternalRenderer):
        def render(self, fig_dict):
            if not _is_wanted():
                plotly_io.show(fig_dict, renderer=before, validate=False)
                return
            from IPython.display import publish_display_data

            publish_display_data({PLOTLY: fig_dict})

    plotly_io.renderers["ipybox"] = Views()
    plotly_io.renderers.default = "ipybox"


def show_charts(altair):
    """Have Altair show charts as what they are, and not as HTML that loads its programs from elsewhere."""
    renderers = getattr(altair, "renderers", None)
    before = getattr(renderers, "active", None)
    if before is None:
        return

    def show(spec, **options):
        if _is_wanted():
            version = altair.SCHEMA_VERSION.lstrip("v").split(".")[0]
            return {f"application/vnd.vegalite.v{version}+json": spec}
        with renderers.enable(before):
            return renderers.get()(spec, **options)

    renderers.register("ipybox", show)
    renderers.enable("ipybox")
