"""Tool results: text, a structured value, and images, sounds and resources as objects.

Standard library only: it runs in every Python that the kernel or one of its children may start.
"""

import base64
import json
import pathlib
import re

import ipybox_literals

__all__ = ["Attachment", "Audio", "Image", "Resource", "ResourceLink", "ToolResult"]

# The types that IPython shows as pictures, and the one of them that is text.
_SVG = "image/svg+xml"
_PICTURES = (
    "application/pdf",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    _SVG,
)


class ToolResult(str):
    """The result of a tool. As a string it is its text: the text blocks, joined by newlines.

    structured: the structured value, or None
    blocks: all the content in the server's order: strings and attachments
    attachments: the content that is no text: images, sounds, resources, links to resources

    `print` and `str` name the attachments after the text.
    """

    def __new__(cls, text="", blocks=None, structured=None):
        self = super().__new__(cls, text)
        self.blocks = tuple(blocks) if blocks is not None else (text,) if text else ()
        self.structured = structured
        return self

    @classmethod
    def of(cls, value):
        """Make a result of a plain value: text, a structured value, or None for nothing."""
        if isinstance(value, cls):
            return value
        if value is None or isinstance(value, str):
            return cls(value or "")
        return cls(_to_json(value), (), value)

    @property
    def value(self):
        """The structured value if there is one, else this text, or None if there is nothing."""
        if self.structured is not None:
            return self.structured
        return self if self or self.blocks else None

    @property
    def attachments(self):
        return tuple(block for block in self.blocks if not isinstance(block, str))

    def __str__(self):
        if not self.attachments:
            return str.__str__(self)
        texts = [str.__str__(self)] if self else []
        return "\n".join([*texts, *map(repr, self.attachments)])

    def __repr__(self):
        text = str.__repr__(self)
        if not self.attachments:
            return text
        return f"<ToolResult {text} with {', '.join(map(repr, self.attachments))}>"

    def _ipython_display_(self):
        show(self, str.__str__(self))


class Attachment:
    """Binary content of a result: `data` are its bytes, `media_type` is their type."""

    def __init__(self, data, media_type):
        self.data = data
        self.media_type = media_type

    def save(self, path):
        """Write the bytes to a file and return its path. Missing directories are created."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path

    def __repr__(self):
        return f"<{type(self).__name__} {self._about()}>"

    def _about(self):
        return f"{self.media_type}, {len(self.data):,} bytes"

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/plain": repr(self)}
        if self.media_type == _SVG:
            bundle[_SVG] = self.data.decode("utf-8", errors="replace")
        elif self.media_type in _PICTURES:
            bundle[self.media_type] = base64.b64encode(self.data).decode()
        return bundle


class Image(Attachment):
    """An image. `display(image)` shows it, and so does a cell whose last value it is."""


class Audio(Attachment):
    """A sound."""


class Resource(Attachment):
    """A resource that came with the result. `uri` names it; `text` is its text, or None if it is binary."""

    def __init__(self, data, media_type, uri, text=None):
        super().__init__(data, media_type)
        self.uri = uri
        self.text = text

    def _about(self):
        return f"{self.uri} {super()._about()}"


class ResourceLink:
    """A resource that can be read from the server: `read()` returns its contents, as a ToolResult."""

    def __init__(self, client, link):
        self._client = client
        self.server_name = client.server_name
        self.uri = link["uri"]
        self.name = link.get("name")
        self.title = link.get("title")
        self.description = link.get("description")
        self.media_type = link.get("mimeType")
        self.size = link.get("size")

    def read(self):
        """Read the resource from the server."""
        return self._client.read_resource_sync(self.uri)

    async def read_async(self):
        """Read the resource from the server without blocking the event loop."""
        return await self._client.read_resource(self.uri)

    def __repr__(self):
        facts = [
            self.uri,
            self.media_type,
            None if self.size is None else f"{self.size:,} bytes",
        ]
        return f"<ResourceLink {' '.join(filter(None, facts))}>"


def show(value, text):
    """Display `text` and the attachments of a result, or leave it to IPython if it has none."""
    if not value.attachments:
        # IPython's protocol: it then displays the value in another way.
        raise NotImplementedError
    from IPython.display import display

    if text:
        display({"text/plain": text}, raw=True)
    for attachment in value.attachments:
        display(attachment)


def from_answer(client, answer, data):
    """Make a result of the answer that a ToolRunner got. `data` is the binary data after it."""
    value = answer["result"]
    structured = value if answer.get("is_structured") else None
    if "content" not in answer:
        result = ToolResult.of(value)
        # Also if the value is a text.
        result.structured = structured
        return result
    blocks = list(_blocks(client, answer["content"], memoryview(data)))
    texts = [
        text
        for text in (getattr(block, "text", block) for block in blocks)
        if isinstance(text, str)
    ]
    if structured is not None and not texts:
        texts = [_to_json(structured)]
    return ToolResult("\n".join(texts), blocks, structured)


def _blocks(client, content, data):
    at = 0

    def take(holder, encoded):
        nonlocal at
        if "bytes" not in holder:
            return base64.b64decode(holder[encoded])
        begin, at = at, at + holder["bytes"]
        return bytes(data[begin:at])

    for block in content:
        kind = block["type"]
        if kind == "text":
            yield block["text"]
        elif kind == "image":
            yield Image(take(block, "data"), block["mimeType"])
        elif kind == "audio":
            yield Audio(take(block, "data"), block["mimeType"])
        elif kind == "resource_link":
            yield ResourceLink(client, block)
        else:
            resource = block["resource"]
            text = resource.get("text")
            held = (
                take(resource, "blob")
                if text is None
                else text.encode("utf-8", "replace")
            )
            unknown = "application/octet-stream" if text is None else "text/plain"
            yield Resource(
                held, resource.get("mimeType") or unknown, resource["uri"], text
            )


def _to_json(value):
    return json.dumps(value, ensure_ascii=False)


# The most lines of a text that look like JSON and are tried.
_ATTEMPTS = 1_000
_FENCED = re.compile(r"```json\n(.*?)\n```", re.DOTALL)
_LINE = re.compile(r"^[{\[]", re.MULTILINE)
_SPACE = re.compile(r"[ \t\r\n]*")
_REST_OF_LINE = re.compile(r"[ \t\r]*(?:\n|\Z)")


def json_values(result):
    """The JSON objects and arrays in a result: its structured value, else those in its texts.

    A text is JSON, has it in a block fenced by ```json, or in lines of its own between prose; or it is what Python writes for
    an object. Texts without any are prose.
    """
    result = ToolResult.of(result)
    structured = result.structured
    if (
        isinstance(structured, dict)
        and set(structured) == {"result"}
        and isinstance(structured["result"], str)
    ):
        # The MCP SDK for Python wraps a text like this.
        return _in_text(structured["result"])
    if structured is not None:
        return [structured]
    texts = [getattr(block, "text", block) for block in result.blocks]
    return [
        value for text in texts if isinstance(text, str) for value in _in_text(text)
    ]


def _in_text(text):
    fenced = _FENCED.search(text)
    return (
        _all_json(text)
        or (_all_json(fenced[1]) if fenced else [])
        or _in_lines(text)
        or _literals(text)
    )


# Numbers that JSON does not have, as they arrive in structured values.
_NO_JSON = {"NaN": None, "Infinity": "Infinity", "-Infinity": "-Infinity"}
_DECODER = json.JSONDecoder(parse_constant=_NO_JSON.get)


def _decode(text, at):
    """The object or array that begins at an offset in a text and the offset of its end, or None."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, (dict, list)) else None


def _all_json(text):
    """The objects and arrays of which a text consists; none if it holds anything else."""
    values = []
    at = _SPACE.match(text).end()
    while at < len(text):
        decoded = _decode(text, at)
        if decoded is None:
            return []
        values.append(decoded[0])
        at = _SPACE.match(text, decoded[1]).end()
    return values


def _in_lines(text):
    """The objects and arrays in a text that begin and end at line boundaries."""
    values = []
    attempts = at = 0
    while attempts < _ATTEMPTS and (line := _LINE.search(text, at)):
        decoded = _decode(text, line.start())
        end = decoded and _REST_OF_LINE.match(text, decoded[1])
        if end:
            values.append(decoded[0])
            at = end.end()
        else:
            attempts += 1
            at = line.end()
    return values


def _literals(text):
    """The dict or list of which a text consists as `str` writes it in Python, or one for each line."""
    if not text.lstrip().startswith(("{", "[", "(")):
        return []
    return ipybox_literals.read(text)
