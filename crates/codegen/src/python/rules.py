"""The part of JSON Schema that Python's types cannot express, as a check on plain JSON values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: is_number(value) and value == int(value),
    "number": lambda value: is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def violation(schema: Any, value: Any) -> str | None:
    """The first keyword that `value` does not satisfy, with what it demands, or None."""
    if isinstance(schema, bool):
        return None if schema else "nothing"
    for keyword, demand in schema.items():
        if keyword == "allOf":
            broken = next(
                filter(None, (violation(part, value) for part in demand)), None
            )
            if broken:
                return broken
            continue
        check = CHECKS.get(keyword)
        if check and not check(demand, value, schema):
            return f"{keyword}: {json.dumps(demand, ensure_ascii=False)}"
    return None


def is_valid(schema: Any, value: Any) -> bool:
    return violation(schema, value) is None


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def key(value: Any) -> Any:
    """Equal for values that are equal as JSON: 1 and 1.0 are, 1 and True are not."""
    if isinstance(value, dict):
        return (
            "object",
            frozenset((name, key(member)) for name, member in value.items()),
        )
    if isinstance(value, list):
        return ("array", tuple(key(item) for item in value))
    return ("number" if is_number(value) else type(value).__name__, value)


def has_type(names: Any, value: Any) -> bool:
    return any(
        TYPES[name](value)
        for name in ([names] if isinstance(names, str) else names)
        if name in TYPES
    )


def is_multiple(value: Any, unit: float) -> bool:
    if isinstance(value, int) and isinstance(unit, int):
        return value % unit == 0
    count = value / unit
    return math.isfinite(count) and math.isclose(
        count, round(count), rel_tol=1e-9, abs_tol=1e-9
    )


def others(value: dict[str, Any], schema: dict[str, Any]) -> list[Any]:
    patterns = schema.get("patternProperties", {})
    declared = schema.get("properties", {})
    return [
        member
        for name, member in value.items()
        if name not in declared
        and not any(re.search(pattern, name) for pattern in patterns)
    ]


def contains(wanted: Any, value: list[Any], schema: dict[str, Any]) -> bool:
    count = sum(is_valid(wanted, item) for item in value)
    return (
        schema.get("minContains", 1) <= count <= schema.get("maxContains", len(value))
    )


def items_after_prefix(wanted: Any, value: list[Any], schema: dict[str, Any]) -> bool:
    if isinstance(wanted, list):
        return all(is_valid(part, item) for part, item in zip(wanted, value))
    return all(
        is_valid(wanted, item) for item in value[len(schema.get("prefixItems", ())) :]
    )


def follow(branch: Any, value: Any, schema: dict[str, Any]) -> bool:
    chosen = schema.get("then" if is_valid(branch, value) else "else", True)
    return is_valid(chosen, value)


def of(
    name: str, check: Callable[[Any, Any, Any], bool]
) -> Callable[[Any, Any, Any], bool]:
    """A check that concerns only values of one type."""
    return lambda demand, value, schema: (
        not TYPES[name](value) or check(demand, value, schema)
    )


CHECKS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "type": lambda names, value, _: has_type(names, value),
    "enum": lambda values, value, _: any(
        key(value) == key(admitted) for admitted in values
    ),
    "const": lambda constant, value, _: key(value) == key(constant),
    "anyOf": lambda parts, value, _: any(is_valid(part, value) for part in parts),
    "oneOf": lambda parts, value, _: sum(is_valid(part, value) for part in parts) == 1,
    "not": lambda part, value, _: not is_valid(part, value),
    "if": follow,
    "minimum": of("number", lambda bound, value, _: value >= bound),
    "maximum": of("number", lambda bound, value, _: value <= bound),
    "exclusiveMinimum": of("number", lambda bound, value, _: value > bound),
    "exclusiveMaximum": of("number", lambda bound, value, _: value < bound),
    "multipleOf": of("number", lambda unit, value, _: is_multiple(value, unit)),
    "minLength": of("string", lambda length, value, _: len(value) >= length),
    "maxLength": of("string", lambda length, value, _: len(value) <= length),
    "pattern": of(
        "string", lambda pattern, value, _: re.search(pattern, value) is not None
    ),
    "minItems": of("array", lambda length, value, _: len(value) >= length),
    "maxItems": of("array", lambda length, value, _: len(value) <= length),
    "uniqueItems": of(
        "array",
        lambda on, value, _: not on or len({key(item) for item in value}) == len(value),
    ),
    "prefixItems": of(
        "array", lambda parts, value, _: all(map(is_valid, parts, value))
    ),
    "items": of("array", items_after_prefix),
    "contains": of("array", contains),
    "minProperties": of("object", lambda count, value, _: len(value) >= count),
    "maxProperties": of("object", lambda count, value, _: len(value) <= count),
    "required": of(
        "object", lambda names, value, _: all(name in value for name in names)
    ),
    "properties": of(
        "object",
        lambda parts, value, _: all(
            is_valid(part, value[name]) for name, part in parts.items() if name in value
        ),
    ),
    "patternProperties": of(
        "object",
        lambda parts, value, _: all(
            is_valid(part, member)
            for pattern, part in parts.items()
            for name, member in value.items()
            if re.search(pattern, name)
        ),
    ),
    "additionalProperties": of(
        "object",
        lambda part, value, schema: all(
            is_valid(part, member) for member in others(value, schema)
        ),
    ),
    "propertyNames": of(
        "object", lambda part, value, _: all(is_valid(part, name) for name in value)
    ),
    "dependentRequired": of(
        "object",
        lambda names, value, _: all(
            name in value for given in names if given in value for name in names[given]
        ),
    ),
    "dependentSchemas": of(
        "object",
        lambda parts, value, _: all(
            is_valid(parts[given], value) for given in parts if given in value
        ),
    ),
}
