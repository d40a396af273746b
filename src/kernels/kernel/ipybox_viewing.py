"""Shows plots and HTML: the text that the agent reads, and what those see who have a browser. Standard library and IPython
only."""

import json
import math
import re
from html.parser import HTMLParser

import ipybox_views
from ipybox_tables import in_text, shortened
from ipybox_views import KIND, PAGE, PLOT, TITLE

# The longest plot, in characters.
PLOT_CHARS = 16 * 1024 * 1024
# The longest HTML in a view, and as a page of its own.
HTML_CHARS = 1024 * 1024
PAGE_CHARS = 16 * 1024 * 1024
# The most HTML that is read for its text, and the most rows of a table in that text.
READ_CHARS = 256 * 1024
READ_ROWS = 15

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = re.compile(r"application/vnd\.vega(lite)?\.v[0-9.]+(\+json|\.json)")

# A `repr` that says no more than the class.
PLACEHOLDER = re.compile(r"<[^\n]*( object| at 0x[0-9a-fA-F]+)>|<Figure size [^\n]*>")
# The longest text of a page.
TEXT_CHARS = 240


def with_view(data):
    """The representations of an object that are shown."""
    plot = of_plotly(data) or of_vega(data)
    if plot is not None:
        return {**data, **shown_plot(*plot)}
    content = data.get("text/html")
    if isinstance(content, str) and content.strip() and not has_picture(data):
        return {**data, **shown_html(content, data.get("text/plain"))}
    return data


def seen():
    return ", which the user sees" if ipybox_views.is_wanted() else ""


def shown_plot(kind, content, title, text):
    if len(content) > PLOT_CHARS:
        text += f". It is not drawn: its data are {len(content):,} characters, and at most {PLOT_CHARS:,} can be shown"
        return {"text/plain": text}
    role = KIND if ipybox_views.is_wanted() else PLOT
    return {role: f"{kind}\n{content}", TITLE: title, "text/plain": text}


def has_picture(data):
    return any(kind.startswith(("image/", "application/")) for kind in data)


def shown_html(content, text):
    shown = {}
    if ipybox_views.is_wanted() and len(content) <= HTML_CHARS:
        shown[KIND] = f"html.html\n{content.encode('utf-8', 'replace').decode()}"
    if isinstance(text, str) and text and not PLACEHOLDER.fullmatch(text):
        return shown
    reader = HtmlReader.of(content)
    if reader.is_live and len(content) <= PAGE_CHARS:
        shown[PAGE] = content.encode("utf-8", "replace").decode()
        shown[TITLE] = reader.title.strip()
    words = reader.text()
    if words:
        shown["text/plain"] = words
    return shown


class HtmlReader(HTMLParser):
    """Collects the text of HTML, with the rows of its tables as lines."""

    BLOCK_NAMES = """
        address article aside blockquote br dd details div dl dt figcaption figure footer h1 h2 h3 h4 h5 h6 header hr li main
        nav ol option p pre section summary table tbody tfoot thead tr ul
    """
    BLOCKS = frozenset(BLOCK_NAMES.split())
    UNSEEN = (
        "audio",
        "canvas",
        "iframe",
        "noscript",
        "object",
        "script",
        "style",
        "svg",
        "template",
        "title",
        "video",
    )
    ADDRESSED = ("audio", "iframe", "img", "video")
    # These are nothing without a browser.
    LIVE = ("audio", "canvas", "embed", "iframe", "img", "object", "svg", "video")

    @classmethod
    def of(cls, content, most_rows=READ_ROWS):
        reader = cls(most_rows)
        reader.feed(content[:READ_CHARS])
        reader.close()
        return reader

    def __init__(self, most_rows):
        super().__init__(convert_charrefs=True)
        self.most_rows = most_rows
        self.tags = set()
        self.lines = [""]
        self.title = ""
        self.unseen = []
        self.rows = 0
        self.rows_left_out = 0

    @property
    def is_live(self):
        """True if it has more than text: pictures, or elements that a script fills."""
        is_filled = "script" in self.tags and not self.tags <= {*self.UNSEEN}
        return is_filled or not self.tags.isdisjoint(self.LIVE)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag in self.ADDRESSED and not self.unseen:
            self.show_address(dict(attrs))
        if tag in self.UNSEEN:
            self.unseen.append(tag)
        elif tag in self.BLOCKS:
            self.end_line()
        if tag == "tr":
            self.rows += 1
        elif tag == "table":
            self.end_table()
        elif tag in ("td", "th") and self.lines[-1].strip():
            self.lines[-1] = self.lines[-1].rstrip() + " | "

    def show_address(self, attributes):
        address = attributes.get("src") or ""
        if address.startswith(("data:", "blob:")):
            address = ""
        self.handle_data(f" {attributes.get('alt') or address} ")

    def handle_endtag(self, tag):
        if tag in self.unseen:
            del self.unseen[self.unseen.index(tag) :]
        elif tag in self.BLOCKS:
            self.end_line()
        if tag == "table":
            self.end_table()

    def handle_data(self, data):
        if self.unseen:
            self.title += data if self.unseen[-1] == "title" else ""
        else:
            self.lines[-1] += re.sub(r"\s+", " ", data)

    def end_line(self):
        if self.lines[-1].strip():
            # The first row has the names.
            if self.rows > self.most_rows + 1:
                self.rows_left_out += 1
                self.lines[-1] = ""
            else:
                self.lines.append("")

    def end_table(self):
        if self.rows_left_out:
            self.lines[-1:] = [f"… {self.rows_left_out:,} more rows", ""]
        self.rows = self.rows_left_out = 0

    def text(self):
        self.end_line()
        self.end_table()
        text = "\n".join(filter(None, map(str.strip, self.lines)))
        return text.encode("utf-8", "replace").decode()


def shortened_text(text):
    return shortened(text, TEXT_CHARS)


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
    title = title_of(layout)
    parts = [f"Plotly figure{quoted(title)}{seen()}"]
    if named:
        parts.append(f"traces: {', '.join(named)}")
    for axis in ("xaxis", "yaxis"):
        of_axis = title_of(layout.get(axis) or {})
        if of_axis:
            parts.append(f"{axis[0]}: {in_text(of_axis)}")
    return "plotly.json", to_json(figure), as_title(title), "; ".join(parts)


def described_trace(trace):
    return f"{trace.get('type', 'scatter')}{quoted(trace.get('name'))}"


def title_of(part):
    title = part.get("title")
    return title.get("text") if isinstance(title, dict) else title


def as_title(title):
    return title if isinstance(title, str) else ""


def quoted(title):
    return f" “{in_text(title)}”" if isinstance(title, str) and title else ""


def of_vega(data):
    found = next((kind for kind in data if VEGA.fullmatch(kind)), None)
    chart = data.get(found)
    if not isinstance(chart, dict):
        return None
    is_lite = VEGA.fullmatch(found)[1] is not None
    name = "Vega-Lite" if is_lite else "Vega"
    title = title_of(chart)
    parts = [f"{name} chart{quoted(title)}{seen()}"]
    mark = chart.get("mark")
    mark = mark.get("type") if isinstance(mark, dict) else mark
    if isinstance(mark, str):
        parts.append(f"mark: {in_text(mark)}")
    encoding = chart.get("encoding")
    for channel, field in (encoding if isinstance(encoding, dict) else {}).items():
        if isinstance(field, dict) and (field.get("field") or field.get("aggregate")):
            what = (field.get("aggregate"), field.get("field"), field.get("type"))
            parts.append(f"{channel}: {' '.join(str(part) for part in what if part)}")
    data = chart.get("data")
    if isinstance(data, dict) and isinstance(data.get("url"), str):
        parts.append(
            f"not drawn: its data are at {in_text(data['url'])}, and nothing is loaded"
        )
    if not isinstance(encoding, dict):
        marks = [*marks_of(chart, 5)]
        if marks:
            parts.append(f"of {', '.join(marks[:20])}")
    file = "vegalite.json" if is_lite else "vega.json"
    return file, to_json(chart), as_title(title), "; ".join(parts[:20])


def marks_of(chart, depth):
    """The marks of the charts that a chart consists of."""
    for name in ("layer", "hconcat", "vconcat", "concat", "spec"):
        parts = chart.get(name)
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, dict) and depth:
                mark = part.get("mark")
                mark = mark.get("type") if isinstance(mark, dict) else mark
                yield from (
                    [in_text(mark)]
                    if isinstance(mark, str)
                    else marks_of(part, depth - 1)
                )


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
