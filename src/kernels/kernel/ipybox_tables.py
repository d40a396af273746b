"""Shows tables: the text that the agent reads, and the table of those who can sort it. Standard library and IPython only."""

import csv
import datetime
import decimal
import io
import itertools
import json
import math
import numbers
import os
import sys
import time
import warnings

from ipybox_views import KIND, TABLES

# The longest table for those who can sort it, in characters.
VIEW_CHARS = 8 * 1024 * 1024
# The largest part of a table in a view.
TABLE_ROWS = 50_000
TABLE_VALUES = 500_000
TABLE_COLUMNS = 500
# The longest text in a table.
VALUE_CHARS = 1000
# The most items of a list or an array in a text of that length, with a comma and a space after each.
VALUE_ITEMS = VALUE_CHARS // 3 + 1
# The time after which a view keeps to the rows it has: the texts of objects can take long. Other rows take a tenth of it.
TABLE_SECONDS = 3
# The number of values that are taken from a table at a time.
VALUES_AT_ONCE = 20_000
# The longest description of a column's type.
TYPE_CHARS = 100
# The largest part of a table in its text.
TEXT_ROWS = 5
TEXT_COLUMNS = 50
# A table of so many rows and values is a result to be read, as that of `describe()`: its text has all of it.
SMALL_ROWS = 15
SMALL_VALUES = 200
TEXT_VALUE_CHARS = 60
# The most rows of a query that are computed for its text.
MOST_COUNTED = 10_000
# The options by which code says how it wants to read a table of pandas, and their defaults.
PANDAS_OPTIONS = (
    ("max_rows", 60),
    ("min_rows", 10),
    ("max_colwidth", 50),
    ("precision", 6),
    ("float_format", None),
)


def show_table(table, has_view, text_rows=TEXT_ROWS):
    """The text of a table, and its view if one is wanted; None if its class shows it in its own way.

    text_rows: how many rows the text has of a table that is not small
    """
    if has_own_look(table):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = view_of_table(table, has_view, text_rows)
    if shown and has_own_options(table):
        del shown["text/plain"]
    return shown


def class_of(table):
    """The class of a library that it is of."""
    return next(
        parent
        for parent in type(table).__mro__
        if (parent.__module__, parent.__name__) in TABLES
    )


def has_own_look(table):
    """True if its class is derived from a library's and says itself how it is shown."""
    own, of_library = type(table), class_of(table)
    looks = ("_repr_mimebundle_", "_repr_html_", "__repr__")
    return any(
        getattr(own, look, None) is not getattr(of_library, look, None)
        for look in looks
    )


def has_own_options(table):
    """True if code has set the library's options for showing tables: the library shows them then."""
    library = library_of(table)
    if library == "polars":
        return any(name.startswith("POLARS_FMT_") for name in os.environ)
    if library != "pandas":
        return False
    get_option = sys.modules["pandas"].get_option
    return any(get_option(f"display.{name}") != value for name, value in PANDAS_OPTIONS)


def library_of(table):
    return class_of(table).__module__.partition(".")[0].lstrip("_")


def view_of_table(table, has_view, text_rows):
    columns, count = columns_of(table, TABLE_ROWS if has_view else MOST_COUNTED)
    if not columns:
        return None
    of_data = sum(not column.is_index for column in columns)
    rows = f"{count:,} {plural(count, 'row')}"
    if isinstance(count, AtLeast):
        rows = f"more than {count - 1:,} rows"
    size = f"{rows} and {of_data:,} {plural(of_data, 'column')}"
    title = cut(f"{type(table).__name__} of {size}")
    if not has_view:
        first = [*rows_of(columns[:TEXT_COLUMNS], min(count, SMALL_ROWS))]
        return {"text/plain": text_of_table(title, columns, first, count, text_rows)}
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
    seen = f"{title}, which the user sees as a table"
    return {
        KIND: f"table.jsonl\n{content}",
        "text/plain": text_of_table(seen, columns, first, count, text_rows),
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


def text_of_table(title, columns, rows, count, text_rows):
    is_small = count <= SMALL_ROWS and count * len(columns) <= SMALL_VALUES
    rows = rows[: SMALL_ROWS if is_small else text_rows]
    named = ", ".join(
        f"{column.name} {column.kind}" for column in columns[:TEXT_COLUMNS]
    )
    more = len(columns) - TEXT_COLUMNS
    if more > 0:
        named += f" and {more:,} more"
    lines = [title, f"Columns: {named}"]
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
    # A time that is a day.
    text = " ".join(text.split()).removesuffix("T00:00:00")
    return shortened(text, TEXT_VALUE_CHARS)


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


class AtLeast(int):
    """A number of rows of which there are more."""


def columns_of(table, most):
    """The columns of a table, and how many rows it has. Of a query, at most about `most` rows are computed."""
    library = library_of(table)
    if library == "duckdb":
        return duckdb_columns(table, most)
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


def duckdb_columns(relation, most):
    names, kinds = relation.columns, relation.types
    most = max(SMALL_ROWS, min(most, TABLE_VALUES // len(names)))
    # Only once: it can be of data that is there once.
    rows = relation.limit(most + 1).fetchall()
    count = AtLeast(len(rows)) if len(rows) > most else len(rows)
    return [
        Column(name, kind, lambda part, at=number: [row[at] for row in rows[part]])
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ], count


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
