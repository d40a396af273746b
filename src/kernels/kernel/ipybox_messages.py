"""Contents of messages in the form that ipybox reads, with bounded lengths. Standard library and IPython only."""

import json

import ipybox_views

# The longest text in a message, in characters.
PIECE_CHARS = 64 * 1024


def pieces(kind, content):
    """The type and content of each of the messages that carry one message's content."""
    if kind == "stream" and is_long(content.get("text")):
        for text in cut(content["text"]):
            yield kind, {**content, "text": text}
    elif kind in ("display_data", "execute_result", "update_display_data"):
        data, long_text = split_bundle(content["data"])
        if data or long_text is None:
            yield kind, {**content, "data": data}
        if long_text is None:
            return
        # ipybox shows the object's text and the stream after it as one.
        first, *rest = cut(long_text)
        metadata = {**content.get("metadata", {}), "ipybox_begun": True}
        yield (
            "display_data",
            {**content, "data": {"text/plain": first}, "metadata": metadata},
        )
        for text in rest:
            yield "stream", {"name": "object", "text": text}
        yield "stream", {"name": "object", "text": "\n"}
    elif kind in ("error", "execute_reply") and content and "traceback" in content:
        yield kind, shortened_error(content)
    else:
        yield kind, content


def cut(text):
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]


# The text representations, the most informative first.
TEXTS = ("text/markdown", "text/plain", "text/latex", "application/json", "text/html")
# All representations that ipybox reads.
READ = (
    *TEXTS,
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/svg+xml",
    "application/pdf",
    "application/vnd.ipybox.file",
    ipybox_views.KIND,
    ipybox_views.PLOT,
    ipybox_views.PAGE,
    ipybox_views.TITLE,
)


def split_bundle(data):
    """The representations of an object that fit in a message, and its text if that does not fit."""
    if isinstance(data.get("application/json"), (dict, list)):
        # As text, because ipybox refuses deeply nested JSON.
        data = dict(data)
        try:
            data["application/json"] = to_json(data["application/json"])
        except (RecursionError, TypeError, ValueError):
            # The value is no JSON; there may be other representations.
            del data["application/json"]
    texts = [kind for kind in TEXTS if isinstance(data.get(kind), str)]
    long = [kind for kind in texts if is_long(data[kind])]
    if not long:
        return data, None
    short = {kind: value for kind, value in data.items() if kind not in long}
    # HTML of that length is for browsers: an interactive plot, a sound.
    if texts[0] != long[0] or long[0] == "text/html":
        return short, None
    others = {kind: value for kind, value in short.items() if kind not in TEXTS}
    return others, data[long[0]]


def is_long(text):
    return isinstance(text, str) and len(text) > PIECE_CHARS


def to_json(value):
    return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))


def shortened(text):
    if len(text) <= PIECE_CHARS:
        return text
    half = PIECE_CHARS // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def shortened_error(content):
    """An exception whose too long texts are cut in the middle."""
    return {
        **content,
        "evalue": shortened(content["evalue"]),
        "traceback": [shortened(line) for line in content["traceback"]],
    }
