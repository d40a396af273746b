"""Makes the views of `ipybox_views.py`, and what the agent gets to read instead. Standard library and IPython only."""

import csv
import datetime
import decimal
import io
import itertools
import json
import math
import numbers
import os
import re
import sys
import time
import warnings

import ipybox_views
from ipybox_views import KIND, TABLES

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
# How many items of a list or an array can be in a text of that length, with a comma and a space after each.
VALUE_ITEMS = VALUE_CHARS // 3 + 1
# When a view has to do with the rows it has: the texts of objects can take long. Other rows take a tenth of it.
TABLE_SECONDS = 3
# How many values are taken from a table at a time.
VALUES_AT_ONCE = 20_000
# The longest description of a column's type.
TYPE_CHARS = 100
# How much of a table its text has.
TEXT_ROWS = 5
TEXT_COLUMNS = 50
# A table of so many rows and values is a result to be read, as that of `describe()`: its text has all of it.
SMALL_ROWS = 15
SMALL_VALUES = 200
TEXT_VALUE_CHARS = 60

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = re.compile(r"application/vnd\.vega(lite)?\.v[0-9.]+(\+json|\.json)")


def with_view(data):
    """The representations of an object, with its view."""
    kind, content, text = (
        of_plotly(data) or of_vega(data) or of_html(data) or (None,) * 3
    )
    if kind is None or len(content) > VIEW_CHARS:
        return data
    shown = {**data, KIND: f"{kind}\n{content}"}
    if text is not None:
        shown["text/plain"] = text
    return shown


# Tables


def show_table(table):
    """The view of a table and its text, unless its class shows it in its own way."""
    if has_own_look(table):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return view_of_table(table)


def class_of(table):
    """The class of a library that it is of."""
    return next(
        parent
        for parent in type(table).__mro__
        if (parent.__module__, parent.__name__) in TABLES
    )


def has_own_look(table):
    """Whether its class is derived from a library's and says itself how it is shown."""
    own, of_library = type(table), class_of(table)
    looks = ("_repr_mimebundle_", "_repr_html_", "__repr__")
    return any(
        getattr(own, look, None) is not getattr(of_library, look, None)
        for look in looks
    )


def view_of_table(table):
    columns, count = columns_of(table)
    if not columns:
        return None
    of_data = sum(not column.is_index for column in columns)
    size = (
        f"{count:,} {plural(count, 'row')} and {of_data:,} {plural(of_data, 'column')}"
    )
    title = cut(f"{type(table).__name__} of {size}")
    shown = columns[:TABLE_COLUMNS]
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    head = {
        "title": title,
        "rows": count,
        "columns": [column.described() for column in shown],
        "left_out": len(columns) - len(shown),
    }
    lines = [encode(head)]
    left = VIEW_CHARS - len(lines[0])
    first = []
    for row in rows_of(shown, count):
        line = encode(row)
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
        if len(first) < SMALL_ROWS:
            first.append(row)
    content = "\n".join(lines)
    return {
        KIND: f"table.jsonl\n{content}",
        "text/plain": text_of_table(title, columns, first, count),
    }


def rows_of(columns, count):
    """The first rows, as many as a view can have and as there is time for."""
    most = min(count, TABLE_ROWS, TABLE_VALUES // len(columns))
    at_once = max(1, VALUES_AT_ONCE // len(columns))
    end = time.monotonic() + TABLE_SECONDS
    for begin in range(0, most, at_once):
        part = slice(begin, min(begin + at_once, most))
        for row in zip(*(column.values(part) for column in columns), strict=True):
            yield row
            if time.monotonic() > end:
                return


def text_of_table(title, columns, rows, count):
    is_small = count <= SMALL_ROWS and count * len(columns) <= SMALL_VALUES
    rows = rows if is_small else rows[:TEXT_ROWS]
    named = ", ".join(
        f"{column.name} {column.kind}" for column in columns[:TEXT_COLUMNS]
    )
    more = len(columns) - TEXT_COLUMNS
    if more > 0:
        named += f" and {more:,} more"
    lines = [f"{title}, which the user sees as a table.", f"Columns: {named}"]
    if rows:
        lines.append("Rows:" if count <= len(rows) else f"The first {len(rows)} rows:")
        names = [column.name for column in columns]
        lines += map(separated, [names, *([*map(in_text, row)] for row in rows)])
    return "\n".join(lines)


def separated(values):
    """A line of comma-separated values."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values[:TEXT_COLUMNS])
    return line.getvalue()


def in_text(value):
    if value is None:
        return ""
    if isinstance(value, float):
        # Six digits, and cents also of an amount that has more.
        digits = len(f"{abs(value):.0f}") + 2
        return f"{value:.{min(max(6, digits), 17)}g}"
    text = value["number"] if isinstance(value, dict) else str(value)
    return shortened(" ".join(text.split()), TEXT_VALUE_CHARS)


class Column:
    """A column of a table: its name and type in words, and how a part of its values is had as a list."""

    def __init__(self, name, kind, part, is_index=False):
        self.name = cut(" ".join(str(name).split())) or ("(index)" if is_index else "")
        self.kind = cut(shortened(str(kind), TYPE_CHARS))
        if "timedelta" in self.kind or "uration" in self.kind:
            self.kind += ", in seconds"
        self.is_index = is_index
        self._part = part

    def described(self):
        return {"name": self.name, "type": self.kind, "index": self.is_index}

    def values(self, part):
        return map(plain, self._part(part))


def columns_of(table):
    """The columns of a table, and how many rows it has."""
    library = class_of(table).__module__.partition(".")[0]
    if library == "pandas":
        return pandas_columns(table), len(table)
    if library == "polars":
        frame = table if hasattr(table, "get_columns") else table.to_frame()
        return [
            Column(
                series.name, series.dtype, lambda part, it=series: it[part].to_list()
            )
            for series in frame.get_columns()
        ], len(table)
    return [
        Column(
            field.name,
            field.type,
            lambda part, it=column: it.slice(
                part.start, part.stop - part.start
            ).to_pylist(),
        )
        for field, column in zip(table.schema, table.columns, strict=True)
    ], table.num_rows


def pandas_columns(table):
    pandas = sys.modules["pandas"]
    if isinstance(table, pandas.Series):
        table = table.to_frame("" if table.name is None else table.name)
    index = table.index
    levels = []
    # The numbers of the rows need no column.
    if not (
        isinstance(index, pandas.RangeIndex)
        and (index.name, index.start, index.step) == (None, 0, 1)
    ):
        for number, name in enumerate(index.names):
            level = index[:0].get_level_values(number)
            levels.append(
                Column(
                    "" if name is None else name,
                    level.dtype,
                    lambda part, at=number: index[part].get_level_values(at).tolist(),
                    True,
                )
            )
    columns = []
    for number, (name, kind) in enumerate(
        zip(table.columns, table.dtypes, strict=True)
    ):
        if isinstance(name, tuple):
            name = " / ".join(map(str, name))
        columns.append(
            Column(name, kind, lambda part, at=number: table.iloc[part, at].tolist())
        )
    return [*levels, *columns]


def plain(value):
    """A value as JSON has it: a number, a truth value, a text or nothing. Other numbers are `{"number": text}`."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return cut(value)
    if isinstance(value, float):
        value = float(value)
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else {"number": str(value)}
    if isinstance(value, numbers.Integral):
        value = int(value)
        return value if value.bit_length() < 64 else {"number": str(value)}
    if isinstance(value, decimal.Decimal):
        return None if value.is_nan() else {"number": cut(str(value))}
    if kind.__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return plain(float(value))
    if isinstance(value, datetime.timedelta):
        return plain(value.total_seconds())
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return cut(text_of(value))


def text_of(value):
    """The text of another value, without looking at more of it than the text can have."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return str(bytes(value[:VALUE_CHARS]))
    if type(value).__name__ == "ndarray" and value.ndim == 1:
        value = value[:VALUE_ITEMS].tolist()
    if isinstance(value, dict):
        value = dict(itertools.islice(value.items(), VALUE_ITEMS))
    elif isinstance(value, (list, tuple)):
        value = value[:VALUE_ITEMS]
    else:
        return str(value)
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        return str(value)


def cut(text):
    # Halves of characters cannot be sent.
    return shortened(text, VALUE_CHARS).encode("utf-8", "replace").decode()


def shortened(text, chars):
    return text if len(text) <= chars else f"{text[:chars]}…"


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
    if os.environ.get("PLOTLY_RENDERER"):
        return
    from plotly.io._base_renderers import ExternalRenderer

    before = plotly_io.renderers.default

    class Views(ExternalRenderer):
        # Plotly sets it, if `show` has it.
        config = None

        def render(self, fig_dict):
            options = {"config": self.config} if self.config else {}
            if not ipybox_views.is_wanted():
                plotly_io.show(fig_dict, renderer=before, validate=False, **options)
                return
            from IPython.display import publish_display_data

            publish_display_data({PLOTLY: {**fig_dict, **options}})

    plotly_io.renderers["ipybox"] = Views()
    plotly_io.renderers.default = "ipybox"


def show_charts(altair):
    """Have Altair show charts as what they are, and not as HTML that loads its programs from the network."""
    renderers = altair.renderers
    before = renderers.active

    def show(spec, **options):
        if ipybox_views.is_wanted():
            version = altair.SCHEMA_VERSION.lstrip("v").split(".")[0]
            return {f"application/vnd.vegalite.v{version}+json": spec}
        with renderers.enable(before):
            return renderers.get()(spec, **options)

    renderers.register("ipybox", show)
    renderers.enable("ipybox")
