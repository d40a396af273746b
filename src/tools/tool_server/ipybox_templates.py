"""Expands URI templates (RFC 6570, all four levels).

Standard library only: it runs in every Python that the kernel or one of its children may start.
"""

import re
from collections.abc import Mapping
from urllib.parse import quote

# For each operator: the text before the first value and between values, whether values have their names, the text after the
# name of an empty value, and which characters beside the unreserved ones are kept.
_RESERVED = ":/?#[]@!$&'()*+,;="
_OPERATORS = {
    "": ("", ",", False, "", ""),
    "+": ("", ",", False, "", _RESERVED),
    "#": ("#", ",", False, "", _RESERVED),
    ".": (".", ".", False, "", ""),
    "/": ("/", "/", False, "", ""),
    ";": (";", ";", True, "", ""),
    "?": ("?", "&", True, "=", ""),
    "&": ("&", "&", True, "=", ""),
}
_PART = re.compile(r"\{([^{}]*)\}|([^{}]+)|([{}])")
_EXPRESSION = re.compile(r"([+#./;?&]?)(.*)", re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z0-9_.%-]+)(\*|:[1-9][0-9]{0,3})?")
_ENCODED = re.compile("(%[0-9A-Fa-f]{2})")
# Characters that a URI may have outside of variables.
_LITERAL = _RESERVED + "~"


def expand(template, variables):
    """The URI that a template and variables make.

    A value is a string or a number, a list, a mapping, or None for a variable that is left out. An empty list or mapping
    is left out too.
    """
    return "".join(_parts(template, variables))


def names(template):
    """The names of a template's variables, in their order."""
    found = {}
    for expression, _, _ in _PART.findall(template):
        if expression:
            _, specifications = _read(template, expression)
            found.update(dict.fromkeys(name for name, _ in specifications))
    return list(found)


def _parts(template, variables):
    for match in _PART.finditer(template):
        expression, literal, stray = match.groups()
        if stray:
            raise ValueError(
                f"the URI template {template!r} has a {stray!r} that stands alone"
            )
        if literal is not None:
            yield _encoded(literal, _LITERAL)
        else:
            yield _expression(*_read(template, expression), variables)


def _read(template, expression):
    operator, rest = _EXPRESSION.fullmatch(expression).groups()
    specifications = []
    for text in rest.split(","):
        variable = _VARIABLE.fullmatch(text)
        if variable is None:
            message = (
                f"the URI template {template!r} has {text!r} where a variable has to be"
            )
            raise ValueError(message)
        specifications.append(variable.groups())
    return operator, specifications


def _expression(operator, specifications, variables):
    first, separator, has_names, after_empty, kept = _OPERATORS[operator]
    values = []
    for name, modifier in specifications:
        value = variables.get(name)
        if isinstance(value, Mapping):
            value = {
                str(key): _text(name, item)
                for key, item in value.items()
                if item is not None
            }
        elif value is not None and not isinstance(value, (str, int, float)):
            value = [_text(name, item) for item in value if item is not None]
        if value is None or value in ({}, []):
            continue
        if modifier == "*" and isinstance(value, dict):
            values.extend(
                f"{_encoded(key, kept)}={_encoded(item, kept)}"
                if item or after_empty or not has_names
                else _encoded(key, kept)
                for key, item in value.items()
            )
        elif modifier == "*" and isinstance(value, list):
            values.extend(
                _named(name, _encoded(item, kept), has_names, after_empty)
                for item in value
            )
        else:
            values.append(
                _named(
                    name, _joined(name, value, modifier, kept), has_names, after_empty
                )
            )
    return first + separator.join(values) if values else ""


def _joined(name, value, modifier, kept):
    """The text of a value that does not come apart."""
    is_prefix = modifier not in (None, "*")
    if isinstance(value, dict):
        value = [text for pair in value.items() for text in pair]
    if isinstance(value, list):
        if is_prefix:
            raise TypeError(
                f"{name!r} has to be a string: its template takes the beginning of it"
            )
        return ",".join(_encoded(item, kept) for item in value)
    text = _text(name, value)
    return _encoded(text[: int(modifier[1:])] if is_prefix else text, kept)


def _named(name, text, has_names, after_empty):
    if not has_names:
        return text
    return f"{name}={text}" if text else name + after_empty


def _text(name, value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(
        f"{name!r} has to be made of strings, not of {type(value).__name__}"
    )


def _encoded(text, kept):
    """A text with percent-encoding, which is left as it is where reserved characters are kept."""
    if not kept:
        return quote(text, safe="~")
    parts = _ENCODED.split(text)
    return "".join(
        part if index % 2 else quote(part, safe=f"~{kept}")
        for index, part in enumerate(parts)
    )
