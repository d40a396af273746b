"""The types of values that are no objects: how they are checked, and what of JSON Schema Python's own types do not say."""

from __future__ import annotations

import enum
import math
import re
from numbers import Integral
from typing import Annotated, Any, TypeVar

from ipybox_arguments import plain
from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticCustomError, core_schema

from ._rules import violation

T = TypeVar("T")


class Null:
    """Marks an optional field that may be null: None is sent."""


Nullable = Annotated[T | None, Null()]


class _ShownEnum(enum.EnumMeta):
    # `help` shows the members, and not the methods of strings.

    def __dir__(cls) -> list[str]:
        return list(cls.__members__)


class _Enum(enum.Enum, metaclass=_ShownEnum):
    def __str__(self) -> str:
        return str(self._value_)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        # Fields hold the plain value, however it was given: `Sort.stars` or "stars".
        values = core_schema.literal_schema([member._value_ for member in cls])
        return core_schema.no_info_wrap_validator_function(_one_of, values)


class StrEnum(str, _Enum):
    """One of some strings."""


class IntEnum(int, _Enum):
    """One of some integers."""


class AnyEnum(_Enum):
    """One of some values."""


def _one_of(value: Any, check: Any) -> Any:
    value = _plain(value)
    admitted = check(value)
    # For Python, 1 and True are equal; for JSON they are not.
    is_same = isinstance(admitted, bool) == isinstance(value, bool)
    return admitted if is_same else check(repr(value))


def _plain(value: Any) -> Any:
    return value._value_ if isinstance(value, enum.Enum) else value


# The context in which a result is validated: the server may have written numbers that JSON does not have, or that are
# longer than those of other languages.
RESULT = "a result"

_LONG = re.compile("-?[0-9]{19,}")
_NO_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class _Integer:
    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        def integral(value: Any, info: Any) -> Any:
            if isinstance(value, float) and value.is_integer():
                return int(value)
            is_long = info.context is RESULT and isinstance(value, str)
            return int(value) if is_long and _LONG.fullmatch(value) else value

        return core_schema.with_info_before_validator_function(
            integral, core_schema.int_schema(strict=True)
        )


class _Number:
    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        def number(value: Any, check: Any, info: Any) -> Any:
            if isinstance(value, Integral) and not isinstance(value, bool):
                return int(value)
            if info.context is RESULT:
                if isinstance(value, float):
                    return value
                if value is None:
                    # Most libraries write NaN as null, and so it arrives.
                    return math.nan
                if isinstance(value, str):
                    is_long = _LONG.fullmatch(value)
                    value = int(value) if is_long else _NO_JSON.get(value, value)
                    if not isinstance(value, str):
                        return value
            return check(value)

        return core_schema.with_info_wrap_validator_function(
            number,
            core_schema.float_schema(strict=True, allow_inf_nan=False),
            serialization=core_schema.plain_serializer_function_ser_schema(_plain),
        )


Int = Annotated[int, _Integer()]
Float = Annotated[float, _Number()]


class Rule:
    """A rule that the type does not express: a JSON Schema that the value satisfies."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, value: Any) -> Any:
        broken = violation(self.schema, as_json(value))
        if broken:
            raise PydanticCustomError(
                "rule", "Input should satisfy {rule}", {"rule": broken}
            )
        return value


def as_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: as_json(member) for name, member in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    return plain(value)


FromList = BeforeValidator(
    lambda items: tuple(items) if isinstance(items, list) else items
)
