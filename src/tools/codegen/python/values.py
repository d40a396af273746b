"""The types of values that are no objects: how they are checked, and what of JSON Schema Python's own types do not say."""

from __future__ import annotations

import enum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticCustomError, core_schema, to_jsonable_python

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


class _Integer:
    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        def integral(value: Any) -> Any:
            return (
                int(value) if isinstance(value, float) and value.is_integer() else value
            )

        return core_schema.no_info_before_validator_function(
            integral, core_schema.int_schema(strict=True)
        )


class _Number:
    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        def number(value: Any, check: Any) -> Any:
            return value if type(value) is int else check(value)

        return core_schema.no_info_wrap_validator_function(
            number,
            core_schema.float_schema(strict=True, allow_inf_nan=False),
            serialization=core_schema.plain_serializer_function_ser_schema(_plain),
        )


Int = Annotated[int, _Integer()]
Float = Annotated[float, _Number()]


class Rule:
    """What the type does not say about a value: a JSON Schema that it satisfies."""

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
    return to_jsonable_python(value)


FromList = BeforeValidator(
    lambda items: tuple(items) if isinstance(items, list) else items
)
